//===- RowOpsTest.cpp - Row operations against double precision -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GuardedBuffer.h"
#include "KernelRunner.h"

#include "easyquant/Numerics/Hadamard.h"
#include "easyquant/Numerics/Quantize.h"
#include "easyquant/Numerics/Reference.h"

#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

using namespace mlir;
using namespace easyquant::cpu;
using namespace easyquant::numerics;

namespace {

constexpr double kEpsilon = 1e-5, kConstant = 2.5;
constexpr double constantOf(RowOp op) {
  return op == RowOp::Multiply || op == RowOp::SoftCap ? kConstant : kEpsilon;
}
constexpr RowOp kOps[] = {RowOp::Quantize, RowOp::RmsNorm,    RowOp::LayerNorm, RowOp::SiluMul,
                          RowOp::GeluMul,  RowOp::ClampedMul, RowOp::Mul,       RowOp::SigmoidMul,
                          RowOp::GeluTanh, RowOp::GeluErf,    RowOp::Add,       RowOp::Multiply,
                          RowOp::SoftCap,  RowOp::AddBias,    RowOp::Gather};

/// Random rows, with a row of zeros, one with a huge outlier, one of denormals and one of large
/// values among them when there are enough.
struct Inputs {
  Inputs(int64_t rows, int64_t columns)
      : rows(rows), columns(columns), stride(columns + 5), a((rows - 1) * stride + columns),
        b(a.elementCount()), weight(columns), bias(columns), order(columns) {
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
      order[i] = static_cast<int32_t>(i);
    }
    std::ranges::shuffle(order.span(), random);
  }
  ConstMatrix matrix(const GuardedBuffer<float> &buffer) const {
    return {buffer.data(), rows, columns, stride};
  }

  int64_t rows, columns, stride;
  GuardedBuffer<float> a, b, weight, bias;
  GuardedBuffer<int32_t> order;
};

/// Calls a kernel of `op` with the inputs that it has, then `out`.
template <typename... Out>
void call(const Kernel &run, RowOp op, const Inputs &in, int64_t threads, Out &&...out) {
  auto a = MemRef<float, 2>::strided(in.a.data(), {in.rows, in.columns}, in.stride);
  auto b = MemRef<float, 2>::strided(in.b.data(), {in.rows, in.columns}, in.stride);
  MemRef<float, 1> weight(in.weight.data(), {in.columns});
  MemRef<float, 1> bias(in.bias.data(), {in.columns});
  MemRef<int32_t, 1> order(in.order.data(), {in.columns});
  if (op == RowOp::RmsNorm)
    run(a, weight, out..., threads);
  else if (op == RowOp::LayerNorm)
    run(a, weight, bias, out..., threads);
  else if (op == RowOp::AddBias)
    run(a, bias, out..., threads);
  else if (op == RowOp::Gather)
    run(a, order, out..., threads);
  else if (isGated(op) || op == RowOp::Add)
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
        scales(rows, -1.0f), sums(rows * groups, -99), zeros(rows, -99) {}

  /// Calls a kernel that fills this. `params`: scale and zero point of a static one.
  template <typename... Params>
  void fill(const Kernel &run, const RowSpec &spec, const Inputs &in, int64_t threads,
            Params... params) {
    MemRef<int8_t, 2> c(codes.data(), {rows, padded});
    MemRef<float, 1> s(scales.data(), {rows});
    MemRef<int32_t, 2> g(sums.data(), {rows, groups});
    MemRef<int32_t, 1> z(zeros.data(), {rows});
    if (spec.zeroPoints)
      call(run, spec.op, in, threads, params..., c, s, g, z);
    else
      call(run, spec.op, in, threads, params..., c, s, g);
  }

  /// Row by row, bit by bit.
  void expectEqual(const QuantizedTokens &expected) const {
    for (int64_t m = 0; m < rows; ++m) {
      EXPECT_EQ(std::bit_cast<uint32_t>(scales[m]), std::bit_cast<uint32_t>(expected.scales[m]))
          << "scale of row " << m;
      if (!expected.zeroPoints.empty()) {
        EXPECT_EQ(zeros[m], expected.zeroPoints[m]) << "zero point of row " << m;
      }
      for (int64_t k = 0; k < padded; ++k)
        ASSERT_EQ(codes[m * padded + k], expected.codes[m * padded + k])
            << "code " << k << " of row " << m;
      for (int64_t g = 0; g < groups; ++g)
        ASSERT_EQ(sums[m * groups + g], expected.sums[m * groups + g])
            << "sum " << g << " of row " << m;
    }
  }
  friend bool operator==(const QuantizedOutput &a, const QuantizedOutput &b) {
    return std::ranges::equal(a.codes.span(), b.codes.span()) &&
           std::ranges::equal(a.scales.span(), b.scales.span()) &&
           std::ranges::equal(a.sums.span(), b.sums.span()) &&
           std::ranges::equal(a.zeros.span(), b.zeros.span());
  }

  int64_t rows, padded, groups;
  GuardedBuffer<int8_t> codes;
  GuardedBuffer<float> scales;
  GuardedBuffer<int32_t> sums, zeros;
};

void evaluateReference(RowOp op, const Inputs &in, reference::Output y) {
  ConstMatrix a = in.matrix(in.a), b = in.matrix(in.b);
  switch (op) {
  case RowOp::Quantize:
  case RowOp::Copy:
    FAIL() << "compared with what it reads";
  case RowOp::RmsNorm:
    return reference::rmsNorm(a, in.weight.data(), kEpsilon, y);
  case RowOp::LayerNorm:
    return reference::layerNorm(a, in.weight.data(), in.bias.data(), kEpsilon, y);
  case RowOp::SiluMul:
    return reference::siluMul(a, b, y);
  case RowOp::GeluMul:
    return reference::geluMul(a, b, y);
  case RowOp::ClampedMul:
    for (int64_t m = 0; m < a.rows; ++m)
      for (int64_t c = 0; c < a.columns; ++c) {
        const double gate = std::min<double>(a(m, c), 7.0), up = std::clamp<double>(b(m, c), -7, 7);
        y(m, c) = (up + 1) * gate / (1.0 + std::exp(-1.702 * gate));
      }
    return;
  case RowOp::Mul:
    for (int64_t m = 0; m < in.rows; ++m)
      for (int64_t c = 0; c < in.columns; ++c)
        y(m, c) = static_cast<double>(a(m, c)) * b(m, c);
    return;
  case RowOp::SigmoidMul:
    for (int64_t m = 0; m < a.rows; ++m)
      for (int64_t c = 0; c < a.columns; ++c)
        y(m, c) = b(m, c) / (1.0 + std::exp(-static_cast<double>(a(m, c))));
    return;
  case RowOp::GeluTanh:
    return reference::geluTanh(a, y);
  case RowOp::GeluErf:
    return reference::geluErf(a, y);
  case RowOp::Add:
    return reference::add(a, b, y);
  case RowOp::AddBias:
    for (int64_t m = 0; m < in.rows; ++m)
      for (int64_t c = 0; c < in.columns; ++c)
        y(m, c) = static_cast<double>(a(m, c)) + in.bias[c];
    return;
  case RowOp::Multiply:
    return reference::multiply(a, kConstant, y);
  case RowOp::SoftCap:
    return reference::softCap(a, kConstant, y);
  case RowOp::Gather:
    for (int64_t m = 0; m < in.rows; ++m)
      for (int64_t c = 0; c < in.columns; ++c)
        y(m, c) = a(m, in.order[c]);
  }
}

KernelLibrary compile(const Target &target, const std::vector<RowSpec> &specs) {
  return KernelLibrary(target, [&](ModuleOp module) {
    return llvm::map_to_vector(
        specs, [&](const RowSpec &spec) { return getOrEmitRowOp(module, spec, target); });
  });
}

/// The quantized forms of an operation, without sinks and with them.
std::vector<RowSpec> quantizedForms(RowOp op, int64_t columns, int64_t groupSize) {
  constexpr auto fixed = RowQuantization::Static;
  return {{op, columns, constantOf(op), RowQuantization::Dynamic, groupSize},
          {op, columns, constantOf(op), fixed, groupSize},
          {op, columns, constantOf(op), fixed, groupSize, false, true},
          {op, columns, constantOf(op), fixed, groupSize, false, false, true},
          {op, columns, constantOf(op), fixed, groupSize, false, true, true},
          {op, columns, constantOf(op), fixed, groupSize, true, false, true},
          {op, columns, constantOf(op), fixed, groupSize, true}};
}

/// Each form of quantization against its definition applied to `values`.
void checkQuantized(const RowSpec &spec, const Kernel &run, const Inputs &in, ConstMatrix values) {
  SCOPED_TRACE(symbolName(spec));
  QuantizedOutput out(in, spec.groupSize);
  if (spec.quantization == RowQuantization::Dynamic) {
    out.fill(run, spec, in, 1);
    return out.expectEqual(*quantizeTokens(values, spec.groupSize));
  }
  Scheme scheme{8, !spec.zeroPoints, Granularity::Tensor, 0, false, spec.fullRange};
  scheme.sinks = spec.sinks;
  for (auto [scale, zero] : {std::pair(0.02f, -128), {0.02f, 17}, {3e-38f, 127}, {1e30f, 5}}) {
    if (spec.zeroPoints)
      out.fill(run, spec, in, 1, scale, zero);
    else
      out.fill(run, spec, in, 1, scale);
    auto expected =
        quantizeTokens(values, scheme, scale, spec.zeroPoints ? zero : 0, spec.groupSize);
    ASSERT_TRUE(expected) << expected.error().message;
    out.expectEqual(*expected);
  }
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
  for (const Target &target : testTargets()) {
    std::vector<RowSpec> specs;
    for (auto [columns, groupSize] : shapes) {
      if (op != RowOp::Quantize)
        specs.push_back({op, columns, constantOf(op)});
      for (const RowSpec &spec : quantizedForms(op, columns, groupSize))
        specs.push_back(spec);
    }
    KernelLibrary library = compile(target, specs);
    for (auto [columns, groupSize] : shapes)
      for (int64_t rows : {1, 2, 3, 17}) {
        SCOPED_TRACE(target.name().str() + ", columns " + std::to_string(columns));
        Inputs in(rows, columns);
        ConstMatrix values = in.matrix(in.a);
        FloatOutput output(in);
        if (op != RowOp::Quantize) {
          auto y = output.view();
          call(library.kernel(symbolName(RowSpec{op, columns, constantOf(op)})), op, in, 1, y);
          std::vector<double> expected(rows * columns);
          evaluateReference(op, in, {expected.data(), rows, columns});
          expectNear(output, expected);
          values = output.matrix();
        }
        for (const RowSpec &spec : quantizedForms(op, columns, groupSize))
          checkQuantized(spec, library.kernel(symbolName(spec)), in, values);
      }
  }
}

// In a rotated basis, stored and in each quantized form, against the definitions applied to what
// the unrotated form stores.
TEST_P(RowOps, RotatedMatchDefinition) {
  RowOp op = GetParam();
  constexpr std::pair<int64_t, int64_t> shapes[] = {{16, 16}, {48, 16}, {576, 64}, {1536, 512}};
  for (const Target &target : testTargets()) {
    auto formsOf = [&](int64_t columns, int64_t block) {
      std::vector<RowSpec> forms = quantizedForms(op, columns, 64);
      forms.push_back({op == RowOp::Quantize ? RowOp::Copy : op, columns, constantOf(op)});
      for (RowSpec &spec : forms)
        spec.hadamard = block;
      return forms;
    };
    std::vector<RowSpec> specs;
    for (auto [columns, block] : shapes) {
      if (op != RowOp::Quantize)
        specs.push_back({op, columns, constantOf(op)});
      llvm::append_range(specs, formsOf(columns, block));
    }
    KernelLibrary library = compile(target, specs);
    for (auto [columns, block] : shapes) {
      SCOPED_TRACE(target.name().str() + ", columns " + std::to_string(columns));
      Inputs in(7, columns);
      FloatOutput plain(in), stored(in);
      auto y = plain.view(), z = stored.view();
      if (op != RowOp::Quantize)
        call(library.kernel(symbolName(RowSpec{op, columns, constantOf(op)})), op, in, 1, y);
      std::vector<float> rotated;
      ConstMatrix values = op == RowOp::Quantize ? in.matrix(in.a) : plain.matrix();
      for (int64_t m = 0; m < in.rows; ++m)
        rotated.insert(rotated.end(), values.row(m), values.row(m) + columns);
      for (int64_t m = 0; m < in.rows; ++m)
        rotateActivation(std::span(rotated).subspan(m * columns, columns), block);
      std::vector<RowSpec> forms = formsOf(columns, block);
      call(library.kernel(symbolName(forms.back())), op, in, 1, z);
      for (int64_t m = 0; m < in.rows; ++m)
        for (int64_t c = 0; c < columns; ++c)
          ASSERT_EQ(std::bit_cast<uint32_t>(stored.matrix()(m, c)),
                    std::bit_cast<uint32_t>(rotated[m * columns + c]))
              << "row " << m << ", " << c;
      forms.pop_back();
      for (const RowSpec &spec : forms)
        checkQuantized(spec, library.kernel(symbolName(spec)), in,
                       {rotated.data(), in.rows, columns});
    }
  }
}

// Enough rows for a parallel region.
TEST_P(RowOps, SameBitsForEveryNumberOfThreads) {
  Inputs in(97, 500);
  std::vector<RowSpec> specs = quantizedForms(GetParam(), in.columns, 128);
  for (const Target &target : testTargets()) {
    KernelLibrary library = compile(target, specs);
    for (const RowSpec &spec : {specs.front(), specs.back()}) {
      QuantizedOutput one(in, 128), many(in, 128);
      auto fill = [&](QuantizedOutput &out, int64_t threads) {
        Kernel run = library.kernel(symbolName(spec));
        if (spec.zeroPoints)
          out.fill(run, spec, in, threads, 0.02f, 17);
        else
          out.fill(run, spec, in, threads);
      };
      fill(one, 1);
      for (int64_t threads : {2, 3, 100}) {
        fill(many, threads);
        EXPECT_TRUE(one == many) << threads << " threads";
      }
    }
  }
}

// A row that is not finite may get any codes; the rows around it are as if it were not there.
TEST_P(RowOps, RowsThatAreNotFiniteStayAlone) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::vector<RowSpec> specs = quantizedForms(GetParam(), 172, 64);
  for (const Target &target : testTargets()) {
    KernelLibrary library = compile(target, specs);
    for (const RowSpec &spec : {specs.front(), specs.back()}) {
      Kernel run = library.kernel(symbolName(spec));
      Inputs in(7, 172);
      QuantizedOutput clean(in, 64), spoilt(in, 64);
      auto fill = [&](QuantizedOutput &out) {
        if (spec.zeroPoints)
          out.fill(run, spec, in, 1, 0.02f, 17);
        else
          out.fill(run, spec, in, 1);
      };
      fill(clean);
      in.a[1 * in.stride + 3] = std::nanf("");
      in.a[3 * in.stride + 170] = infinity;
      in.a[5 * in.stride] = -infinity;
      in.a[5 * in.stride + 1] = infinity;
      fill(spoilt);
      for (int64_t m : {0, 2, 4, 6}) {
        auto row = [&](const QuantizedOutput &out) {
          return out.codes.span().subspan(m * out.padded, out.padded);
        };
        EXPECT_TRUE(std::ranges::equal(row(clean), row(spoilt)));
        EXPECT_EQ(clean.scales[m], spoilt.scales[m]);
      }
    }
  }
}

static std::string opName(const ::testing::TestParamInfo<RowOp> &info) {
  std::string name = symbolName(RowSpec{info.param, 1, constantOf(info.param)});
  return name.substr(0, name.find("_1"));
}
INSTANTIATE_TEST_SUITE_P(All, RowOps, ::testing::ValuesIn(kOps), opName);

// Scales around the threshold below which a row counts as zero.
TEST(RowOpsQuantize, SmallestScales) {
  RowSpec spec{RowOp::Quantize, 9, 0.0, RowQuantization::Dynamic};
  for (const Target &target : testTargets()) {
    KernelLibrary library = compile(target, {spec});
    for (float largest : {0x1p-149f, 0x1p-126f, 0x1.fffffep-120f, 0x1p-119f, 0x1p-118f, 0x1p127f}) {
      Inputs in(1, 9);
      for (int64_t i = 0; i < 9; ++i)
        in.a[i] = largest * (static_cast<float>(i - 4) / 4);
      checkQuantized(spec, library.kernel(symbolName(spec)), in, in.matrix(in.a));
    }
  }
}

TEST(RowSpec, SpecsHaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (double epsilon : {1e-5, 1e-6})
    for (int64_t groupSize : {0, 32})
      for (RowSpec spec : quantizedForms(RowOp::RmsNorm, 64, groupSize)) {
        spec.constant = epsilon;
        names.insert(symbolName(spec));
      }
  RowSpec plain{RowOp::RmsNorm, 64, 1e-5}, rotated = plain;
  rotated.hadamard = 64;
  names.insert({symbolName(plain), symbolName(rotated)});
  EXPECT_EQ(names.size(), 2 * 2 * 7 + 2);
}
