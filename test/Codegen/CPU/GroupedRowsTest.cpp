//===- GroupedRowsTest.cpp - Activations in groups ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Codes, scales and sums of rows whose groups of columns have scales of their own, and what linears
// make of them: the bits of lib/Numerics.
//
//===----------------------------------------------------------------------===//

#include "LinearProblem.h"

#include "easyquant/Numerics/Hadamard.h"

#include <limits>
#include <set>

using namespace easyquant;
using namespace easyquant::cpu;

namespace {

//===----------------------------------------------------------------------===//
// Linears
//===----------------------------------------------------------------------===//

void check(const LinearSpec &spec, const Target &target, const Kernel &run, int64_t m,
           Inputs kind) {
  checkLinear(spec, target, run, m, kind,
              [](const Problem &p, const std::vector<float> &, const num::QuantizedTokens &tokens,
                 const std::vector<float> &initial, const std::vector<float> &actual) {
                expectIntegerLinear(p, tokens, initial, actual);
              });
}

/// Groups as large as those of the weight, smaller ones, and ones of whole rows; last groups of
/// either that are short.
std::vector<LinearSpec> specsOf(WeightFormat weights, bool isTable) {
  auto make = [&](int64_t n, int64_t k, int64_t groupSize, int64_t inputGroup) {
    LinearSpec spec{n, k, weights, groupSize, true};
    spec.inputGroup = inputGroup;
    if (isTable)
      spec.numbers.codes = CodeFormat::Table;
    return spec;
  };
  std::vector<LinearSpec> specs = {
      make(33, 257, 32, 32),  make(40, 300, 64, 32), make(37, 330, 128, 64), make(31, 400, 0, 128),
      make(33, 130, 128, 32), make(1, 9, 0, 32),     make(96, 1500, 0, 32),
  };
  for (size_t i = 0; i < specs.size(); ++i) {
    specs[i].bias = i % 3 == 0;
    specs[i].accumulate = i % 4 == 1;
    specs[i].zeroPoints = i % 2 == 1 && !isTable;
    specs[i].fullRange = i == 4 && !isTable;
    if (specs[i].groupSize)
      specs[i].numbers.scales = ScaleFormat::F16;
  }
  specs.push_back(make(37, 600, 32, 32));
  specs.back().numbers.scales = ScaleFormat::UI6;
  if (!isTable) {
    specs.push_back(make(33, 257, 32, 32));
    specs.push_back(make(40, 300, 64, 32));
    for (LinearSpec &spec : std::span(specs).last(2))
      spec.numbers.minima = true;
    specs.back().numbers.scales = ScaleFormat::F16;
  }
  // Half of them have zero points, other ones in the next width. int4 has both.
  const bool both = weights == WeightFormat::I4 && !isTable;
  for (size_t i = 0, count = specs.size(); i < count; ++i) {
    LinearSpec spec = specs[i];
    spec.inputZeroPoints = true;
    if (both)
      specs.push_back(spec);
    else if ((static_cast<int64_t>(i) + bitsOf(weights)) % 2)
      specs[i] = spec;
  }
  // Codes that bytes are no multiple of differ from the others in how they are unpacked alone.
  if (!isTable && 8 % bitsOf(weights) != 0) {
    int64_t i = 0;
    llvm::erase_if(specs, [&](const LinearSpec &) { return i++ % 2 != bitsOf(weights) % 2; });
  }
  return specs;
}

struct Form {
  WeightFormat weights;
  bool isTable = false;
};
class GroupedLinear : public testing::TestWithParam<std::tuple<Form, int>> {};

} // namespace

TEST_P(GroupedLinear, MatchesTheDefinition) {
  auto [form, number] = GetParam();
  const Target target = testTargets()[number];
  std::vector<LinearSpec> specs = specsOf(form.weights, form.isTable);
  KernelLibrary library(target, [&](mlir::ModuleOp module) {
    return llvm::map_to_vector(
        specs, [&](const LinearSpec &spec) { return getOrEmitLinear(module, spec, target); });
  });
  for (const LinearSpec &spec : specs) {
    Kernel run = library.kernel(symbolName(spec));
    for (int64_t m : {1, 2, 5, 6, 7, 8, 9, 13, 17})
      check(spec, target, run, m, Inputs::Gaussian);
    for (int64_t m : {1, 3, 17})
      for (Inputs kind : {Inputs::ZeroRows, Inputs::Outliers, Inputs::Extreme})
        check(spec, target, run, m, kind);
  }
}

static constexpr Form forms[] = {
    {WeightFormat::I8}, {WeightFormat::I6}, {WeightFormat::I5},       {WeightFormat::I4},
    {WeightFormat::I3}, {WeightFormat::I2}, {WeightFormat::I4, true}, {WeightFormat::I3, true}};
INSTANTIATE_TEST_SUITE_P(Forms, GroupedLinear,
                         testing::Combine(testing::ValuesIn(forms), testing::Values(0, 1)),
                         [](const auto &info) {
                           Form form = std::get<0>(info.param);
                           Target target = testTargets()[std::get<1>(info.param)];
                           return llvm::StringRef(nameOf(form.weights)).upper() +
                                  (form.isTable ? "table_" : "_") +
                                  instructionSetOf(target.isa).symbol() +
                                  (target.emulateDot ? "_emulated" : "");
                         });

TEST(GroupedLinear, SpecsHaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (int64_t group : {0, 32, 64, 128})
    for (int64_t input : {0, 32, 64, 128}) {
      LinearSpec spec{64, 256, WeightFormat::I4, group, true};
      spec.inputGroup = input;
      names.insert(symbolName(spec));
    }
  EXPECT_EQ(names.size(), 16u);
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

namespace {

constexpr RowOp kOps[] = {RowOp::Quantize, RowOp::RmsNorm,  RowOp::LayerNorm,
                          RowOp::SiluMul,  RowOp::GeluTanh, RowOp::Add};

RowSpec rowSpec(RowOp op, int64_t columns, int64_t group, int64_t hadamard,
                bool zeroPoints = false) {
  RowSpec spec{op, columns, 1e-5, RowQuantization::Dynamic, group};
  spec.scaleGroup = group;
  spec.hadamard = hadamard;
  spec.zeroPoints = zeroPoints;
  return spec;
}
/// What the same kernel stores before it quantizes.
RowSpec unquantized(RowSpec spec) {
  spec.op = spec.op == RowOp::Quantize ? RowOp::Copy : spec.op;
  spec.quantization = RowQuantization::None;
  spec.groupSize = spec.scaleGroup = 0;
  spec.zeroPoints = false;
  return spec;
}

/// Rows of all sizes, with groups of zeros, of denormals and of one huge value.
struct Rows {
  Rows(int64_t rows, int64_t columns)
      : rows(rows), columns(columns), stride(columns + 5), a((rows - 1) * stride + columns),
        b(a.elementCount()), weight(columns), bias(columns) {
    std::mt19937 random(static_cast<unsigned>(rows * 1000 + columns));
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < static_cast<int64_t>(a.elementCount()); ++i) {
      const int64_t group = i % stride / 32;
      float size = i / stride == 1 ? 1e-41f : group % 5 == 3 ? 1e4f : group % 5 == 1 ? 0.0f : 1.0f;
      a[i] = size * normal(random);
      if (i / stride == 2)
        a[i] = group % 2 ? std::fabs(a[i]) + 1 : -std::fabs(a[i]);
      b[i] = normal(random);
    }
    for (int64_t i = 0; i < columns; ++i) {
      weight[i] = normal(random);
      bias[i] = normal(random);
    }
  }

  template <typename... Out> void call(const Kernel &run, RowOp op, int64_t threads, Out &...out) {
    auto x = MemRef<float, 2>::strided(a.data(), {rows, columns}, stride);
    auto other = MemRef<float, 2>::strided(b.data(), {rows, columns}, stride);
    MemRef<float, 1> w(weight.data(), {columns}), shift(bias.data(), {columns});
    if (op == RowOp::RmsNorm)
      run(x, w, out..., threads);
    else if (op == RowOp::LayerNorm)
      run(x, w, shift, out..., threads);
    else if (op == RowOp::SiluMul || op == RowOp::Add)
      run(x, other, out..., threads);
    else
      run(x, out..., threads);
  }

  int64_t rows, columns, stride;
  GuardedBuffer<float> a, b, weight, bias;
};

struct Codes {
  Codes(const Rows &in, int64_t group, bool zeroPoints = false)
      : rows(in.rows), padded(paddedColumns(in.columns)), groups(groupCount(in.columns, group)),
        codes(rows * padded, 99), scales(rows * groups, -1.0f), sums(rows * groups, -99),
        zeros(zeroPoints ? rows * groups : 0, -99) {}

  void fill(const Kernel &run, RowOp op, Rows &in, int64_t threads) {
    MemRef<int8_t, 2> c(codes.data(), {rows, padded});
    MemRef<float, 2> s(scales.data(), {rows, groups});
    MemRef<int32_t, 2> g(sums.data(), {rows, groups});
    MemRef<int32_t, 2> z(zeros.data(), {rows, groups});
    if (zeros.elementCount())
      in.call(run, op, threads, c, s, g, z);
    else
      in.call(run, op, threads, c, s, g);
  }
  bool isRow(const num::QuantizedTokens &expected, int64_t m) const {
    auto same = [m](auto part, const auto &all, int64_t width) {
      return std::memcmp(part.data() + m * width, all.data() + m * width, width * sizeof(all[0])) ==
             0;
    };
    return same(codes.span(), expected.codes, padded) &&
           same(scales.span(), expected.scales, groups) &&
           same(sums.span(), expected.sums, groups) &&
           zeros.elementCount() == expected.zeroPoints.size() &&
           (expected.zeroPoints.empty() || same(zeros.span(), expected.zeroPoints, groups));
  }

  int64_t rows, padded, groups;
  GuardedBuffer<int8_t> codes;
  GuardedBuffer<float> scales;
  GuardedBuffer<int32_t> sums, zeros;
};

struct Shape {
  int64_t columns, group, hadamard;
};
class GroupedRows : public testing::TestWithParam<RowOp> {};

} // namespace

// In the plain basis and in a rotated one, whose blocks are smaller and larger than the groups.
TEST_P(GroupedRows, MatchTheDefinition) {
  const RowOp op = GetParam();
  constexpr Shape shapes[] = {{1, 32, 0},    {32, 32, 0},     {172, 32, 0},
                              {576, 64, 0},  {300, 128, 0},   {48, 32, 16},
                              {576, 32, 64}, {1536, 32, 512}, {576, 128, 64}};
  for (const Target &target : testTargets()) {
    KernelLibrary library(target, [&](mlir::ModuleOp module) {
      llvm::SmallVector<mlir::func::FuncOp> made;
      for (auto [columns, group, hadamard] : shapes) {
        RowSpec spec = rowSpec(op, columns, group, hadamard), asymmetric = spec;
        asymmetric.zeroPoints = true;
        for (const RowSpec &form : {spec, asymmetric, unquantized(spec)})
          if (mlir::func::FuncOp function = getOrEmitRowOp(module, form, target);
              !llvm::is_contained(made, function))
            made.push_back(function);
      }
      return made;
    });
    for (auto [columns, group, hadamard] : shapes)
      for (int64_t rows : {1, 7}) {
        const RowSpec spec = rowSpec(op, columns, group, hadamard);
        SCOPED_TRACE(symbolName(spec) + " " + target.name().str());
        Rows in(rows, columns);
        std::vector<float> values(rows * columns);
        MemRef<float, 2> y(values.data(), {rows, columns});
        in.call(library.kernel(symbolName(unquantized(spec))), op, 1, y);
        for (bool zeroPoints : {false, true}) {
          const auto expected =
              *num::quantizeTokensInGroups({values.data(), rows, columns}, group, !zeroPoints);
          Kernel run =
              library.kernel(symbolName(rowSpec(op, columns, group, hadamard, zeroPoints)));
          for (int64_t threads : {1, 3}) {
            Codes out(in, group, zeroPoints);
            out.fill(run, op, in, threads);
            for (int64_t m = 0; m < rows; ++m)
              EXPECT_TRUE(out.isRow(expected, m))
                  << "row " << m << ", threads " << threads << ", zero points " << zeroPoints;
          }
        }
      }
  }
}

// A row that is not finite may get any codes; those around it are as ever.
TEST_P(GroupedRows, RowsThatAreNotFiniteStayAlone) {
  const RowSpec spec = rowSpec(GetParam(), 172, 32, 0);
  for (const Target &target : testTargets()) {
    KernelLibrary library(target, [&](mlir::ModuleOp module) {
      return llvm::SmallVector<mlir::func::FuncOp>{getOrEmitRowOp(module, spec, target)};
    });
    Kernel run = library.kernel(symbolName(spec));
    Rows in(5, 172);
    Codes clean(in, 32), spoilt(in, 32);
    clean.fill(run, spec.op, in, 1);
    in.a[1 * in.stride + 3] = std::nanf("");
    in.a[3 * in.stride + 170] = std::numeric_limits<float>::infinity();
    spoilt.fill(run, spec.op, in, 1);
    for (int64_t m : {0, 2, 4}) {
      auto row = [m](auto part, int64_t width) { return part.subspan(m * width, width); };
      EXPECT_TRUE(std::ranges::equal(row(clean.codes.span(), clean.padded),
                                     row(spoilt.codes.span(), clean.padded)));
      EXPECT_TRUE(std::ranges::equal(row(clean.scales.span(), clean.groups),
                                     row(spoilt.scales.span(), clean.groups)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GroupedRows, testing::ValuesIn(kOps), [](const auto &info) {
  std::string name = symbolName(RowSpec{info.param, 1, 1e-5});
  return name.substr(0, name.find("_1"));
});

TEST(GroupedRows, SpecsHaveNamesOfTheirOwn) {
  RowSpec own = rowSpec(RowOp::RmsNorm, 64, 32, 0), shared = own, asymmetric = own;
  shared.scaleGroup = 0;
  asymmetric.zeroPoints = true;
  EXPECT_EQ(std::set({symbolName(own), symbolName(shared), symbolName(asymmetric)}).size(), 3u);
}
