//===- VectorMathTest.cpp - Error bounds of elementary functions ----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../../lib/Codegen/CPU/VectorMath.h"
#include "../../lib/Codegen/CPU/RowKernel.h"
#include "KernelRunner.h"

#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

using namespace mlir;
using namespace easyquant::cpu;

namespace {

using Function = Value (*)(KernelBuilder &, Value);
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// y = f(x) by a kernel, for vectors of any length.
std::vector<float> evaluate(const Target &target, Function function, std::vector<float> x) {
  KernelRunner run(target, [&](ModuleOp module) {
    Builder builder(module.getContext());
    SmallVector<Type> types(2, MemRefType::get({ShapedType::kDynamic}, builder.getF32Type()));
    return getOrEmitFunction(
        module, "evaluate", target, types, [&](KernelBuilder &b, ValueRange args) {
          int64_t lanes = b.target.lanes();
          b.forLoop(0, b.size(args[0], 0), lanes, [&](Value i) {
            b.storeVector(function(b, b.loadVector(lanes, args[0], {i})), args[1], {i});
          });
        });
  });
  size_t count = x.size();
  x.resize((count + 15) / 16 * 16);
  std::vector<float> y(x.size());
  MemRef<float, 1> xs(x.data(), {static_cast<int64_t>(x.size())});
  MemRef<float, 1> ys(y.data(), {static_cast<int64_t>(y.size())});
  run(xs, ys);
  y.resize(count);
  return y;
}

/// Floats from `low` to `high`, evenly in their bit patterns, with a step prime to powers of two.
std::vector<float> sample(float low, float high) {
  std::vector<float> values;
  auto append = [&](float from, float to, float sign) {
    uint32_t first = std::bit_cast<uint32_t>(from), last = std::bit_cast<uint32_t>(to);
    for (uint32_t bits = first; bits <= last; bits += 1499)
      values.push_back(sign * std::bit_cast<float>(bits));
    values.push_back(sign * to);
  };
  if (low < 0)
    append(0.0f, -low, -1.0f);
  if (high > 0)
    append(0.0f, high, 1.0f);
  return values;
}

/// The spacing of floats around a real number.
double ulp(double y) { return std::ldexp(1.0, std::max(std::ilogb(y), -126) - 23); }

void expectWithinUlps(Function function, double (*reference)(double), float low, float high,
                      double bound) {
  std::vector<float> x = sample(low, high);
  for (const Target &target : testTargets()) {
    std::vector<float> y = evaluate(target, function, x);
    double worst = 0;
    float where = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      double expected = reference(x[i]);
      double error = std::abs(y[i] - expected) / ulp(expected);
      if (!(error <= worst)) {
        worst = error;
        where = x[i];
      }
    }
    EXPECT_LE(worst, bound) << target.name().str() << " at " << where;
    ::testing::Test::RecordProperty(target.name().str() + "_ulps", std::to_string(worst));
  }
}

} // namespace

TEST(VectorMath, Exp) {
  expectWithinUlps(exp, std::exp, -0x1.5d589ep+6f, 0x1.62e42ep+6f, 1.0);
  for (const Target &target : testTargets()) {
    std::vector<float> y = evaluate(target, exp,
                                    {0.0f, -0.0f, 88.73f, kInfinity, -87.34f, -kInfinity, -1e30f,
                                     1e30f, 1e-40f, std::nanf("")});
    EXPECT_EQ(y[0], 1.0f);
    EXPECT_EQ(y[1], 1.0f);
    EXPECT_EQ(y[2], kInfinity);
    EXPECT_EQ(y[3], kInfinity);
    EXPECT_EQ(y[4], 0.0f);
    EXPECT_EQ(y[5], 0.0f);
    EXPECT_EQ(y[6], 0.0f);
    EXPECT_EQ(y[7], kInfinity);
    EXPECT_EQ(y[8], 1.0f);
    EXPECT_TRUE(std::isnan(y[9]));
  }
}

TEST(VectorMath, Exp2OfNonPositive) {
  expectWithinUlps(exp2NonPositive, std::exp2, -126.0f, 0.0f, 1.0);
  for (const Target &target : testTargets()) {
    std::vector<float> y =
        evaluate(target, exp2NonPositive, {0.0f, -1.0f, -126.0f, -126.01f, -1e30f, -kInfinity});
    EXPECT_EQ(y[0], 1.0f);
    EXPECT_EQ(y[1], 0.5f);
    EXPECT_EQ(y[2], 0x1p-126f);
    EXPECT_EQ(y[3], 0.0f);
    EXPECT_EQ(y[4], 0.0f);
    EXPECT_EQ(y[5], 0.0f);
  }
}

TEST(VectorMath, Logistic) {
  expectWithinUlps(logistic, [](double x) { return 1 / (1 + std::exp(-x)); }, -87.0f, 100.0f, 3.0);
  for (const Target &target : testTargets()) {
    std::vector<float> y = evaluate(target, logistic, {-kInfinity, -1e30f, 1e30f, kInfinity});
    EXPECT_EQ(y, (std::vector<float>{0.0f, 0.0f, 1.0f, 1.0f}));
  }
}

TEST(VectorMath, NormalCdf) {
  std::vector<float> x = sample(-12.0f, 12.0f);
  for (const Target &target : testTargets()) {
    std::vector<float> y = evaluate(target, normalCdf, x);
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      double expected = 0.5 * std::erfc(-x[i] / std::sqrt(2.0));
      double bound = 0x1p-20 + double(x[i]) * x[i] * 0x1p-23;
      worst = std::max(worst, std::abs(y[i] / expected - 1) / bound);
    }
    EXPECT_LE(worst, 1.0) << target.name().str();
    y = evaluate(target, normalCdf, {-kInfinity, -1e30f, 1e30f, kInfinity});
    EXPECT_EQ(y, (std::vector<float>{0.0f, 0.0f, 1.0f, 1.0f}));
  }
}
