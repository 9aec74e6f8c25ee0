//===- RowGradientsTest.cpp - Gradients of row operations against differences ===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The oracle knows what an operation computes, in double, and nothing of its slope: gradients are
// differences of fourth order over a step of 1e-3, whose error is below 1e-9.
//
//===----------------------------------------------------------------------===//

#include "GuardedBuffer.h"
#include "KernelRunner.h"

#include <cmath>
#include <numbers>
#include <random>
#include <vector>

using namespace mlir;
using namespace easyquant::cpu;

namespace {

constexpr double kEpsilon = 1e-5, kCap = 2.5;
constexpr float kBetween = 1234.5f;
using Row = std::vector<double>;

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

double geluTanh(double x) {
  const double inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1 + std::tanh(inner));
}

/// What an operation of one input does to a number, and one of a gate to this.
double activation(RowOp op, double x) {
  switch (op) {
  case RowOp::SiluMul:
    return x * logistic(x);
  case RowOp::SigmoidMul:
    return logistic(x);
  case RowOp::Mul:
    return x;
  case RowOp::GeluErf:
    return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
  case RowOp::SoftCap:
    return kCap * std::tanh(x / kCap);
  default:
    return geluTanh(x);
  }
}

/// A norm of every `width` columns.
Row normalized(const RowGradientSpec &spec, const Row &x, const Row &weight) {
  Row y(x.size());
  for (int64_t first = 0; first < spec.columns; first += spec.width) {
    double centre = 0, square = 0;
    for (int64_t i = 0; i < spec.width && spec.op == RowOp::LayerNorm; ++i)
      centre += x[first + i] / static_cast<double>(spec.width);
    for (int64_t i = 0; i < spec.width; ++i)
      square += (x[first + i] - centre) * (x[first + i] - centre);
    const double root = std::sqrt(square / static_cast<double>(spec.width) + spec.constant);
    for (int64_t i = 0; i < spec.width; ++i)
      y[first + i] = (x[first + i] - centre) / root * weight[i];
  }
  return y;
}

/// The slope of f at x.
template <typename F> double slope(const F &f, double x) {
  constexpr double h = 1e-3;
  return (8 * (f(x + h) - f(x - h)) - (f(x + 2 * h) - f(x - 2 * h))) / (12 * h);
}

/// Rows of numbers, `columns` of every `stride`.
struct Rows {
  Rows(int64_t rows, int64_t columns, std::mt19937 *random = nullptr)
      : rows(rows), columns(columns), stride(columns + 3),
        values((rows - 1) * stride + columns, kBetween) {
    std::normal_distribution<float> normal(0, 1.5);
    for (int64_t m = 0; m < rows && random; ++m)
      for (int64_t i = 0; i < columns; ++i)
        values[m * stride + i] = normal(*random);
  }
  ~Rows() {
    for (int64_t m = 0; m + 1 < rows; ++m)
      for (int64_t i = columns; i < stride; ++i)
        EXPECT_EQ(values[m * stride + i], kBetween) << "between rows";
  }
  MemRef<float, 2> view() {
    return MemRef<float, 2>::strided(values.data(), {rows, columns}, stride);
  }
  Row row(int64_t m) const {
    return {values.data() + m * stride, values.data() + m * stride + columns};
  }

  int64_t rows, columns, stride;
  GuardedBuffer<float> values;
};

void expectNear(const Row &found, const Row &expected, const char *what) {
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], 4e-6 * (1 + std::abs(expected[i])))
        << what << ", column " << i;
}

} // namespace

TEST(RowGradients, AreSlopes) {
  std::vector<RowGradientSpec> specs = {
      {RowOp::RmsNorm, 37, 37, kEpsilon, true}, {RowOp::RmsNorm, 36, 12, kEpsilon, true},
      {RowOp::RmsNorm, 24, 8, kEpsilon, false}, {RowOp::LayerNorm, 41, 41, kEpsilon, true},
      {RowOp::SoftCap, 37, 0, kCap, true},
  };
  for (RowOp op : {RowOp::SiluMul, RowOp::GeluMul, RowOp::SigmoidMul, RowOp::Mul, RowOp::GeluTanh,
                   RowOp::GeluErf})
    specs.push_back({op, 37});
  for (const Target &target : testTargets()) {
    KernelLibrary kernels(target, [&](ModuleOp module) {
      SmallVector<func::FuncOp> functions;
      for (const RowGradientSpec &spec : specs)
        functions.push_back(getOrEmitRowGradient(module, spec, target));
      return functions;
    });
    for (const RowGradientSpec &spec : specs) {
      SCOPED_TRACE(symbolName(spec));
      const Kernel run = kernels.kernel(symbolName(spec));
      for (auto [rows, threads] : {std::pair<int64_t, int64_t>{1, 1}, {5, 2}}) {
        std::mt19937 random(static_cast<unsigned>(rows));
        Rows dy(rows, spec.columns, &random), x(rows, spec.columns, &random),
            up(rows, spec.columns, &random), dx(rows, spec.columns), dup(rows, spec.columns);
        auto dyView = dy.view(), xView = x.view(), upView = up.view(), dxView = dx.view(),
             dupView = dup.view();
        if (isGated(spec.op)) {
          run(dyView, xView, upView, dxView, dupView, threads);
          for (int64_t m = 0; m < rows; ++m) {
            Row dGate(spec.columns), dUp(spec.columns);
            for (int64_t i = 0; i < spec.columns; ++i) {
              auto of = [&](double gate) { return activation(spec.op, gate); };
              dGate[i] = dy.row(m)[i] * up.row(m)[i] * slope(of, x.row(m)[i]);
              dUp[i] = dy.row(m)[i] * of(x.row(m)[i]);
            }
            expectNear(dx.row(m), dGate, "gate");
            expectNear(dup.row(m), dUp, "up");
          }
          continue;
        }
        if (spec.width == 0) {
          run(dyView, xView, dxView, threads);
          for (int64_t m = 0; m < rows; ++m) {
            Row expected(spec.columns);
            for (int64_t i = 0; i < spec.columns; ++i)
              expected[i] = dy.row(m)[i] *
                            slope([&](double at) { return activation(spec.op, at); }, x.row(m)[i]);
            expectNear(dx.row(m), expected, "x");
          }
          continue;
        }
        Rows weight(1, spec.width, &random);
        MemRef<float, 1> weightView(weight.values.data(), {spec.width});
        spec.weight ? run(dyView, xView, weightView, dxView, threads)
                    : run(dyView, xView, dxView, threads);
        const Row factors = spec.weight ? weight.row(0) : Row(spec.width, 1.0);
        for (int64_t m = 0; m < rows; ++m) {
          Row expected(spec.columns);
          for (int64_t i = 0; i < spec.columns; ++i) {
            auto loss = [&](double at) {
              Row changed = x.row(m);
              changed[i] = at;
              const Row y = normalized(spec, changed, factors);
              double sum = 0;
              for (int64_t j = 0; j < spec.columns; ++j)
                sum += dy.row(m)[j] * y[j];
              return sum;
            };
            expected[i] = slope(loss, x.row(m)[i]);
          }
          expectNear(dx.row(m), expected, "x");
        }
      }
    }
  }
}
