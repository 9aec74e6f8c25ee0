//===- FP4Test.cpp - FP4 with scales of blocks, and linears on it ---------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LinearData.h"

#include "easyquant/Numerics/Quantize.h"
#include "easyquant/Numerics/ScaleRules.h"

#include <cmath>
#include <limits>

using namespace easyquant;
using namespace easyquant::gpu;
using namespace easyquant::numerics;

namespace {

constexpr Scheme kInput = {.bits = 4,
                           .granularity = Granularity::Group,
                           .groupSize = 16,
                           .dynamic = true,
                           .codes = CodeFormat::F4E2M1FN,
                           .scales = ScaleFormat::F8E4M3FN,
                           .outer = true};

/// Rows around 1, of zeros, with an outlier, of ties, of tiny numbers.
std::vector<float> someRows(int64_t rows, int64_t columns) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> x(rows * columns);
  for (int64_t m = 0; m < rows; ++m)
    for (int64_t c = 0; c < columns; ++c) {
      const float value = normal(random);
      const float kinds[] = {value, 0, c == 0 ? 1e6f : value, static_cast<float>(c % 97 - 48) / 4,
                             value * 1e-30f};
      x[m * columns + c] = kinds[m % 5];
    }
  return x;
}

QuantizedMatrix quantized(const std::vector<float> &x, int64_t rows, int64_t columns, float outer) {
  const ConstMatrix matrix(x.data(), rows, columns);
  QuantizedMatrix q{kInput, rows, columns, {}, *chooseQParams(matrix, kInput, {}, outer)};
  q.codes.resize(x.size());
  EXPECT_TRUE(quantize(matrix, q.scheme, q.params, q.codes));
  return q;
}

/// A scale in units of the outer one, of which Numerics has the product.
float innerOf(const QuantizedMatrix &q, int64_t row, int64_t group) {
  return roundScale(q.params.scales[row * q.params.groups + group] / q.params.outerOf(row),
                    ScaleFormat::F8E4M3FN);
}

/// Rows as kernels have them.
struct BlockRows {
  std::vector<uint8_t> codes;
  std::vector<uint32_t> scales;
  std::vector<float> outer;
};

BlockRows blocksOf(const QuantizedMatrix &q) {
  const int64_t steps = blockSteps(q.columns), bytes = blockCodeBytes(q.columns);
  BlockRows rows{
      std::vector<uint8_t>(q.rows * bytes), std::vector<uint32_t>(q.rows * steps, 0x38383838), {}};
  constexpr int64_t kPlaces[16] = {0, 2, 8, 10, 4, 6, 12, 14, 1, 3, 9, 11, 5, 7, 13, 15};
  for (int64_t m = 0; m < q.rows; ++m) {
    rows.outer.push_back(q.params.outerOf(m));
    for (int64_t c = 0; c < q.columns; ++c) {
      const int64_t place = c / 16 * 16 + kPlaces[c % 16];
      const int code = q.codes[m * q.columns + c] + 8;
      rows.codes[m * bytes + place / 2] |= static_cast<uint8_t>(code << place % 2 * 4);
    }
    for (int64_t g = 0; g < q.params.groups; ++g) {
      uint32_t &word = rows.scales[m * steps + g / 4];
      word &= ~(0xffu << g % 4 * 8);
      word |= encodeScale(innerOf(q, m, g), ScaleFormat::F8E4M3FN) << g % 4 * 8;
    }
  }
  return rows;
}

/// What codes stand for, in real numbers.
std::vector<double> valuesOf(const QuantizedMatrix &q) {
  std::vector<double> values;
  for (int64_t m = 0; m < q.rows; ++m)
    for (int64_t c = 0; c < q.columns; ++c)
      values.push_back(double(codeValue(q.scheme, q.codes[m * q.columns + c], 0)) *
                       innerOf(q, m, c / 16) * q.params.outerOf(m));
  return values;
}

struct Problem {
  Problem(const BlockScaledSpec &spec, int64_t rows)
      : spec(spec), rows(rows), random(static_cast<unsigned>(spec.n + spec.k + rows)),
        weights(randomWeights(spec.weightRows(), spec.k, schemeOf(spec), random)),
        x(quantized(someRows(rows, spec.k), rows, spec.k, 0.0123f)) {
    // Scales of all magnitudes.
    std::uniform_real_distribution<float> exponent(-9, 8);
    for (int64_t n = 0; n < spec.weightRows(); ++n)
      for (int64_t g = 0; g < weights.params.groups; ++g)
        weights.params.scales[n * weights.params.groups + g] =
            roundScale(std::exp2(exponent(random)), spec.scales) * weights.params.outerOf(n);
    std::normal_distribution<float> normal;
    for (int64_t n = 0; n < spec.weightRows(); ++n)
      bias.push_back(normal(random));
    for (int64_t i = 0; i < rows * spec.n; ++i)
      y.push_back(normal(random));
  }

  /// All of y within the bound of BlockScaled.h, against sums in double. Row m is one of expert
  /// `expertOf(m)`.
  template <typename ExpertOf>
  void check(const std::vector<float> &found, ExpertOf expertOf) const {
    const std::vector<double> values = valuesOf(x), w = valuesOf(weights);
    for (int64_t m = 0; m < rows; ++m)
      for (int64_t n = 0; n < spec.n; ++n) {
        const int64_t row = expertOf(m) * spec.n + n;
        ExactProduct expected;
        for (int64_t k = 0; k < spec.k; ++k)
          expected.add(values[m * spec.k + k] * w[row * spec.k + k]);
        if (spec.bias)
          expected.add(bias[row]);
        if (spec.accumulate)
          expected.add(y[m * spec.n + n]);
        ASSERT_NEAR(found[m * spec.n + n], expected.sum, expected.bound(spec.k))
            << "row " << m << ", column " << n;
      }
  }

  BlockScaledSpec spec;
  int64_t rows;
  std::mt19937 random;
  QuantizedMatrix weights, x;
  std::vector<float> bias, y;
};

struct Computed {
  std::vector<float> y;
  simt::Statistics statistics;
};

Computed compute(KernelLibrary &library, const BlockScaledKernel &kernel, const Problem &p,
                 const std::vector<int32_t> &itemList = {}) {
  const PackedWeight packed = fragmentsOf(p.weights, FragmentOrder::M16N8K16);
  const BlockRows rows = blocksOf(p.x);
  simt::Device device;
  DeviceBuffer<uint8_t> codes(device, rows.codes, "codes");
  DeviceBuffer<uint32_t> scales(device, rows.scales, "scales");
  DeviceBuffer<float> outer(device, rows.outer, "outer");
  DeviceBuffer<uint8_t> w(device, packed[WeightTensor::Codes], "w");
  DeviceBuffer<uint8_t> wscales(device, packed[WeightTensor::Scales], "wscales");
  DeviceBuffer<uint8_t> wouter(device, packed[WeightTensor::Outer], "wouter");
  DeviceBuffer<float> bias(device, p.bias, "bias");
  DeviceBuffer<int32_t> items(device, itemList, "items");
  FloatRows y(device, p.y, p.rows, p.spec.n, Float::F32, "y");
  std::map<std::string, Argument> arguments = {
      {"codes", codes},     {"scales", scales},           {"outer", outer},        {"w", w},
      {"wscales", wscales}, {"y", Argument(y.address())}, {"y_stride", y.stride()}};
  if (p.spec.outer)
    arguments.emplace("wouter", wouter);
  if (p.spec.bias)
    arguments.emplace("bias", bias);
  if (p.spec.experts)
    arguments.emplace("items", items);
  simt::Statistics statistics = run(device, library, kernel.description, p.rows, arguments);
  return {y.read(), statistics};
}

BlockScaledSpec spec(int64_t n, int64_t k) {
  BlockScaledSpec spec;
  spec.bits = 4;
  spec.groupSize = 16;
  spec.codes = CodeFormat::F4E2M1FN;
  spec.scales = ScaleFormat::F8E4M3FN;
  spec.outer = true;
  spec.n = n;
  spec.k = k;
  return spec;
}

int64_t ofNoExpert(int64_t) { return 0; }

} // namespace

TEST(GPUFP4, CodesAreThoseOfNumerics) {
  constexpr int64_t kCount = 11, kColumns[] = {1, 7, 40, 64, 172, 2176};
  KernelLibrary library;
  for (int64_t columns : kColumns)
    library.add(BlockCodesSpec{columns});
  for (int64_t columns : kColumns)
    for (float outer : {0.0625f, 3.1e-5f}) {
      const Description kernel = library.add(BlockCodesSpec{columns});
      SCOPED_TRACE(kernel.name);
      const std::vector<float> values = someRows(kCount, columns);
      const BlockRows expected = blocksOf(quantized(values, kCount, columns, outer));
      simt::Device device;
      FloatRows x(device, values, kCount, columns, Float::F32, "x");
      DeviceBuffer<float> scale(device, std::vector<float>{outer}, "scale");
      DeviceBuffer<uint8_t> codes(device, kCount * blockCodeBytes(columns), "codes");
      DeviceBuffer<uint32_t> scales(device, kCount * blockSteps(columns), "scales");
      DeviceBuffer<float> outers(device, kCount, "outer");
      run(device, library, kernel, kCount,
          {{"x", Argument(x.address())},
           {"x_stride", x.stride()},
           {"scale", scale},
           {"codes", codes},
           {"scales", scales},
           {"outer", outers}});
      EXPECT_EQ(codes.read(), expected.codes);
      EXPECT_EQ(scales.read(), expected.scales);
      EXPECT_EQ(outers.read(), std::vector<float>(kCount, outer));
    }
}

// Codes have no NaN, and so the scales of such groups are, which makes that of the row's results.
TEST(GPUFP4, GroupsThatAreNotFiniteHaveNoScale) {
  constexpr int64_t kColumns = 64;
  KernelLibrary library;
  const Description kernel = library.add(BlockCodesSpec{kColumns});
  std::vector<float> values(kColumns, 1.0f);
  values[20] = std::numeric_limits<float>::quiet_NaN();
  values[40] = -std::numeric_limits<float>::infinity();
  values[63] = std::numeric_limits<float>::max();
  simt::Device device;
  FloatRows x(device, values, 1, kColumns, Float::F32, "x");
  DeviceBuffer<float> scale(device, std::vector<float>{1.0f}, "scale"), outer(device, 1, "outer");
  DeviceBuffer<uint8_t> codes(device, blockCodeBytes(kColumns), "codes");
  DeviceBuffer<uint32_t> scales(device, blockSteps(kColumns), "scales");
  run(device, library, kernel, 1,
      {{"x", Argument(x.address())},
       {"x_stride", x.stride()},
       {"scale", scale},
       {"codes", codes},
       {"scales", scales},
       {"outer", outer}});
  const uint32_t own =
      encodeScale(roundScale(1.0f / 6, ScaleFormat::F8E4M3FN), ScaleFormat::F8E4M3FN);
  EXPECT_EQ(scales.read(), std::vector<uint32_t>{own | 0x7f7f00 | 0x7e000000});
}

TEST(GPUFP4, LinearsAreWithinTheBound) {
  std::vector<BlockScaledSpec> specs = {spec(50, 360), spec(150, 96), spec(70, 1100), spec(33, 40)};
  specs[0].bias = specs[2].accumulate = true;
  specs[3].outer = false;
  KernelLibrary library(ChipId::SM120a);
  for (const BlockScaledSpec &spec : specs)
    library.add(spec);
  for (const BlockScaledSpec &spec : specs)
    for (const BlockScaledKernel &kernel : blockScaledKernels(spec, library.target())) {
      SCOPED_TRACE(kernel.description.name);
      const bool isDot = kernel.form == BlockScaledKernel::Dot;
      const Problem problem(spec, isDot                   ? 17
                                  : kernel.tile.rows > 32 ? kernel.tile.rows / 2 + 1
                                                          : 33);
      problem.check(compute(library, kernel, problem).y, ofNoExpert);
    }
}

/// No row has a part in another one's result, nor has their number.
TEST(GPUFP4, RowsAreAlone) {
  const BlockScaledSpec few = spec(64, 256);
  KernelLibrary library(ChipId::SM120a);
  const std::vector<BlockScaledKernel> kernels = library.add(few);
  const Problem many(few, 40);
  for (const BlockScaledKernel &kernel : kernels) {
    Problem one = many;
    one.rows = one.x.rows = 1;
    one.y.resize(few.n);
    one.x.codes.resize(few.k);
    one.x.params.scales.resize(one.x.params.groups);
    std::vector<float> all = compute(library, kernel, many).y;
    all.resize(few.n);
    EXPECT_EQ(compute(library, kernel, one).y, all) << kernel.description.name;
  }
}

TEST(GPUFP4, MainLoopHasNoBankConflicts) {
  const BlockScaledSpec whole = spec(128, 512);
  KernelLibrary library(ChipId::SM120a);
  for (const BlockScaledKernel &kernel : library.add(whole)) {
    SCOPED_TRACE(kernel.description.name);
    const int64_t rows = kernel.form == BlockScaledKernel::Dot ? 16 : kernel.tile.rows;
    const Computed done = compute(library, kernel, Problem(whole, rows));
    if (kernel.form == BlockScaledKernel::Matrix)
      expectSmoothCopies(done.statistics);
  }
}

/// Both lists of items, with experts that have no rows.
TEST(GPUFP4, Experts) {
  const std::vector<int64_t> counts = {0, 1, 17, 0, 20};
  BlockScaledSpec all = spec(192, 96);
  all.experts = std::ssize(counts);
  all.bias = true;
  std::vector<int32_t> experts;
  for (int64_t expert = 0; expert < all.experts; ++expert)
    experts.insert(experts.end(), counts[expert], static_cast<int32_t>(expert));
  const Problem problem(all, std::ssize(experts));
  KernelLibrary library(ChipId::SM120a);
  for (const BlockScaledKernel &kernel : library.add(all)) {
    SCOPED_TRACE(kernel.description.name);
    std::vector<int32_t> items(kItemStride);
    for (int64_t list = 0; list < std::ssize(kItemRows); ++list) {
      int32_t count = 0;
      int64_t begin = 0;
      for (int64_t expert = 0; expert < all.experts; begin += counts[expert++])
        for (int64_t first = 0; first < counts[expert]; first += kItemRows[list]) {
          items.resize(std::max<size_t>(items.size(), (++count + 1) * kItemStride));
          const int64_t fields[] = {expert, begin + first,
                                    std::min(counts[expert] - first, kItemRows[list])};
          for (int64_t field = 0; field < 3; ++field)
            items[count * kItemStride + list * kItemFields + field] =
                static_cast<int32_t>(fields[field]);
        }
      items[list * kItemFields] = count;
    }
    problem.check(compute(library, kernel, problem, items).y,
                  [&](int64_t m) { return experts[m]; });
  }
}
