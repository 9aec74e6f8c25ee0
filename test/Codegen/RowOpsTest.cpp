//===- RowOpsTest.cpp - Row operations against double precision -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GuardedBuffer.h"
#include "KernelRunner.h"

#include "easyquant/Numerics/Quantize.h"
#include "easyquant/Numerics/Reference.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

using namespace mlir;
using namespace easyquant::cpu;
using namespace easyquant::numerics;

namespace {

constexpr double kEpsilon = 1e-5;
constexpr RowOp kOps[] = {RowOp::Quantize, RowOp::RmsNorm, RowOp::LayerNorm, RowOp::SiluMul,
                          RowOp::GeluTanh, RowOp::GeluErf, RowOp::Add};

/// Random rows, with a row of zeros, one with a huge outlier, one of denormals and one of large
/// values among them when there are enough.
struct Inputs {
  Inputs(int64_t rows, int64_t columns)
      : rows(rows), columns(columns), stride(columns + 5), a((rows - 1) * stride + columns),
        b(a.elementCount()), weight(columns), bias(columns) {
    std::mt19937 random(static_cast<unsigned>(rows * 1000 + columns));
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < static_cast<int64_t>(a.elementCount()); ++i) {
      int64_t row = i / stride;
      float size = row == 4 ? 1e-41f : row == 5 ? 300.0f : 1.0f;
      a[i] = row == 2 ? 0.0f : size * normal(random);
      b[i] = normal(random);
    }
    if (rows > 3)
      a[3 * stride + columns / 2] = -1e6f;
    for (int64_t i = 0; i < columns; ++i) {
      weight[i] = normal(random);
      bias[i] = normal(random);
    }
  }
  ConstMatrix matrix(const GuardedBuffer<float> &buffer) const {
    return {buffer.data(), rows, columns, stride};
  }

  int64_t rows, columns, stride;
  GuardedBuffer<float> a, b, weight, bias;
};

/// Calls a kernel of `op` with the inputs that it has, then `out`.
template <typename... Out>
void call(const KernelRunner &run, RowOp op, const Inputs &in, int64_t threads, Out &&...out) {
  auto a = MemRef<float, 2>::strided(in.a.data(), {in.rows, in.columns}, in.stride);
  auto b = MemRef<float, 2>::strided(in.b.data(), {in.rows, in.columns}, in.stride);
  MemRef<float, 1> weight(in.weight.data(), {in.columns});
  MemRef<float, 1> bias(in.bias.data(), {in.columns});
  if (op == RowOp::RmsNorm)
    run(a, weight, out..., threads);
  else if (op == RowOp::LayerNorm)
    run(a, weight, bias, out..., threads);
  else if (op == RowOp::SiluMul || op == RowOp::Add)
    run(a, b, out..., threads);
  else
    run(a, out..., threads);
}

/// Strided float rows with a guard value between them.
struct FloatOutput {
  static constexpr float kBetween = 1234.5f;

  explicit FloatOutput(const Inputs &in)
      : rows(in.rows), columns(in.columns), stride(in.columns + 3),
        y((rows - 1) * stride + columns, kBetween) {}
  ~FloatOutput() {
    int64_t overwritten = 0;
    for (size_t i = 0; i < y.elementCount(); ++i)
      overwritten += static_cast<int64_t>(i) % stride >= columns && y[i] != kBetween;
    EXPECT_EQ(overwritten, 0) << "elements between rows were written";
  }
  MemRef<float, 2> view() { return MemRef<float, 2>::strided(y.data(), {rows, columns}, stride); }
  ConstMatrix matrix() const { return {y.data(), rows, columns, stride}; }

  int64_t rows, columns, stride;
  GuardedBuffer<float> y;
};

struct QuantizedOutput {
  QuantizedOutput(const Inputs &in, int64_t groupSize)
      : rows(in.rows), padded(easyquant::cpu::paddedColumns(in.columns)),
        groups(easyquant::cpu::groupCount(in.columns, groupSize)), codes(rows * padded, 99),
        scales(rows, -1.0f), sums(rows * groups, -99) {}
  MemRef<int8_t, 2> codesView() { return {codes.data(), {rows, padded}}; }
  MemRef<float, 1> scalesView() { return {scales.data(), {rows}}; }
  MemRef<int32_t, 2> sumsView() { return {sums.data(), {rows, groups}}; }

  /// Row by row, bit by bit.
  void expectEqual(const QuantizedTokens &expected) const {
    for (int64_t m = 0; m < rows; ++m) {
      EXPECT_EQ(std::bit_cast<uint32_t>(scales[m]), std::bit_cast<uint32_t>(expected.scales[m]))
          << "scale of row " << m;
      for (int64_t k = 0; k < padded; ++k)
        ASSERT_EQ(codes[m * padded + k], expected.codes[m * padded + k])
            << "code " << k << " of row " << m;
      for (int64_t g = 0; g < groups; ++g)
        ASSERT_EQ(sums[m * groups + g], expected.sums[m * groups + g])
            << "sum " << g << " of row " << m;
    }
  }

  int64_t rows, padded, groups;
  GuardedBuffer<int8_t> codes;
  GuardedBuffer<float> scales;
  GuardedBuffer<int32_t> sums;
};

void evaluateReference(RowOp op, const Inputs &in, reference::Output y) {
  ConstMatrix a = in.matrix(in.a), b = in.matrix(in.b);
  switch (op) {
  case RowOp::Quantize:
    FAIL() << "quantize has a reference of its own";
  case RowOp::RmsNorm:
    return reference::rmsNorm(a, in.weight.data(), kEpsilon, y);
  case RowOp::LayerNorm:
    return reference::layerNorm(a, in.weight.data(), in.bias.data(), kEpsilon, y);
  case RowOp::SiluMul:
    return reference::siluMul(a, b, y);
  case RowOp::GeluTanh:
    return reference::geluTanh(a, y);
  case RowOp::GeluErf:
    return reference::geluErf(a, y);
  case RowOp::Add:
    return reference::add(a, b, y);
  }
}

KernelRunner compile(const Target &target, RowOp op, int64_t columns, bool quantize,
                     int64_t groupSize = 0) {
  RowSpec spec{op, columns, kEpsilon, quantize, groupSize};
  return KernelRunner(target,
                      [&](ModuleOp module) { return getOrEmitRowOp(module, spec, target); });
}

/// |y - reference| <= 2^-18 of the largest element of its row (and a few steps of the denormals).
void expectNear(const FloatOutput &output, const std::vector<double> &expected) {
  for (int64_t m = 0; m < output.rows; ++m) {
    const double *row = expected.data() + m * output.columns;
    double largest = 0;
    for (int64_t c = 0; c < output.columns; ++c)
      largest = std::max(largest, std::abs(row[c]));
    for (int64_t c = 0; c < output.columns; ++c)
      ASSERT_NEAR(output.matrix()(m, c), row[c], 0x1p-18 * largest + 0x1p-146)
          << "row " << m << ", " << c;
  }
}

class RowOps : public ::testing::TestWithParam<RowOp> {};

} // namespace

// Shapes that no vector divides, one row, strided rows; each quantized form against the definition
// applied to what the unquantized form stores.
TEST_P(RowOps, MatchReference) {
  RowOp op = GetParam();
  constexpr std::pair<int64_t, int64_t> shapes[] = {{1, 0}, {7, 0}, {64, 32}, {172, 64}, {576, 0}};
  for (const Target &target : testTargets())
    for (auto [columns, groupSize] : shapes) {
      SCOPED_TRACE(target.name().str() + ", columns " + std::to_string(columns));
      KernelRunner quantized = compile(target, op, columns, true, groupSize);
      std::optional<KernelRunner> plain;
      if (op != RowOp::Quantize)
        plain.emplace(target, [&](ModuleOp module) {
          return getOrEmitRowOp(module, RowSpec{op, columns, kEpsilon}, target);
        });
      for (int64_t rows : {1, 2, 3, 17}) {
        Inputs in(rows, columns);
        ConstMatrix values = in.matrix(in.a);
        FloatOutput output(in);
        if (plain) {
          auto y = output.view();
          call(*plain, op, in, 1, y);
          std::vector<double> expected(rows * columns);
          evaluateReference(op, in, {expected.data(), rows, columns});
          expectNear(output, expected);
          values = output.matrix();
        }
        QuantizedOutput codes(in, groupSize);
        auto c = codes.codesView();
        auto s = codes.scalesView();
        auto sums = codes.sumsView();
        call(quantized, op, in, 1, c, s, sums);
        auto definition = quantizeTokens(values, groupSize);
        ASSERT_TRUE(definition.has_value()) << definition.error().message;
        codes.expectEqual(*definition);
      }
    }
}

// Enough rows for a parallel region.
TEST_P(RowOps, SameBitsForEveryNumberOfThreads) {
  RowOp op = GetParam();
  Inputs in(97, 500);
  for (const Target &target : testTargets()) {
    KernelRunner run = compile(target, op, in.columns, true, 128);
    QuantizedOutput one(in, 128), many(in, 128);
    auto callOn = [&](QuantizedOutput &out, int64_t threads) {
      auto c = out.codesView();
      auto s = out.scalesView();
      auto sums = out.sumsView();
      call(run, op, in, threads, c, s, sums);
    };
    callOn(one, 1);
    for (int64_t threads : {2, 3, 100}) {
      callOn(many, threads);
      EXPECT_TRUE(std::ranges::equal(one.codes.span(), many.codes.span()));
      EXPECT_TRUE(std::ranges::equal(one.scales.span(), many.scales.span()));
      EXPECT_TRUE(std::ranges::equal(one.sums.span(), many.sums.span()));
    }
  }
}

// A row that is not finite may get any codes; the rows around it are as if it were not there.
TEST_P(RowOps, RowsThatAreNotFiniteStayAlone) {
  RowOp op = GetParam();
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const Target &target : testTargets()) {
    KernelRunner run = compile(target, op, 172, true, 64);
    Inputs in(7, 172);
    QuantizedOutput clean(in, 64), spoilt(in, 64);
    auto callOn = [&](QuantizedOutput &out) {
      auto c = out.codesView();
      auto s = out.scalesView();
      auto sums = out.sumsView();
      call(run, op, in, 1, c, s, sums);
    };
    callOn(clean);
    in.a[1 * in.stride + 3] = std::nanf("");
    in.a[3 * in.stride + 170] = infinity;
    in.a[5 * in.stride] = -infinity;
    in.a[5 * in.stride + 1] = infinity;
    callOn(spoilt);
    for (int64_t m : {0, 2, 4, 6}) {
      auto row = [&](const QuantizedOutput &out) {
        return out.codes.span().subspan(m * out.padded, out.padded);
      };
      EXPECT_TRUE(std::ranges::equal(row(clean), row(spoilt)));
      EXPECT_EQ(clean.scales[m], spoilt.scales[m]);
    }
  }
}

static std::string opName(const ::testing::TestParamInfo<RowOp> &info) {
  std::string name = symbolName(RowSpec{info.param, 1, kEpsilon});
  return name.substr(0, name.find("_1"));
}
INSTANTIATE_TEST_SUITE_P(All, RowOps, ::testing::ValuesIn(kOps), opName);

// Scales around the threshold below which a row counts as zero.
TEST(RowOpsQuantize, SmallestScales) {
  for (const Target &target : testTargets()) {
    KernelRunner run = compile(target, RowOp::Quantize, 9, true);
    for (float largest : {0x1p-149f, 0x1p-126f, 0x1.fffffep-120f, 0x1p-119f, 0x1p-118f, 0x1p127f}) {
      Inputs in(1, 9);
      for (int64_t i = 0; i < 9; ++i)
        in.a[i] = largest * (static_cast<float>(i - 4) / 4);
      QuantizedOutput out(in, 0);
      auto c = out.codesView();
      auto s = out.scalesView();
      auto sums = out.sumsView();
      call(run, RowOp::Quantize, in, 1, c, s, sums);
      out.expectEqual(*quantizeTokens(in.matrix(in.a), 0));
    }
  }
}

TEST(RowSpec, SpecsHaveNamesOfTheirOwn) {
  RowSpec norm{RowOp::RmsNorm, 64, 1e-5};
  RowSpec other = norm;
  other.epsilon = 1e-6;
  EXPECT_NE(symbolName(norm), symbolName(other));
  other = norm;
  other.quantize = true;
  EXPECT_NE(symbolName(norm), symbolName(other));
  RowSpec grouped = other;
  grouped.groupSize = 32;
  EXPECT_NE(symbolName(grouped), symbolName(other));
}
