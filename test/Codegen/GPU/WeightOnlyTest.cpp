//===- WeightOnlyTest.cpp - Linears on floats on a simulated GPU ----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LinearData.h"

#include "easyquant/Numerics/Quantize.h"

#include <algorithm>
#include <cmath>

using namespace easyquant;
using namespace easyquant::gpu;
using namespace easyquant::numerics;

namespace {

/// The last place of 1.
double unitOf(Float type) {
  return type == Float::F32 ? 0x1p-23 : type == Float::F16 ? 0x1p-10 : 0x1p-7;
}

/// A linear with data: random weights; tokens with a row of zeros and an outlier when there are
/// enough.
struct Problem {
  Problem(const WeightOnlySpec &spec, int64_t rows)
      : spec(spec), rows(rows), xStride((spec.k + 7) / 8 * 8 + 16) {
    std::mt19937 random(static_cast<unsigned>(spec.n * 31 + spec.k * 7 + rows));
    std::normal_distribution<float> normal;
    // What is behind the columns of a row must not matter.
    x.assign(rows * xStride, 0x7fff);
    for (int64_t m = 0; m < rows; ++m)
      for (int64_t k = 0; k < spec.k; ++k)
        x[m * xStride + k] = toHalf(rows > 2 && m == 1 ? 0.0f : normal(random), spec.input);
    x[(rows - 1) * xStride + spec.k / 2] = toHalf(300.0f, spec.input);
    if (spec.isFloat()) {
      for (int64_t i = 0; i < spec.n * spec.k; ++i)
        floats.push_back(toHalf(0.05f * normal(random), spec.input));
    } else {
      weights = randomWeights(spec.n, spec.k, schemeOf(spec), random);
    }
    for (int64_t n = 0; n < spec.n; ++n)
      bias.push_back(normal(random));
    for (int64_t i = 0; i < rows * spec.n; ++i)
      y.push_back(rounded(normal(random), spec.output));
  }

  /// The weights as floats.
  std::vector<float> dequantized() const {
    std::vector<float> w(spec.n * spec.k);
    if (spec.isFloat()) {
      for (size_t i = 0; i < w.size(); ++i)
        w[i] = fromHalf(floats[i], spec.input);
      return w;
    }
    dequantize(weights, Matrix{w.data(), spec.n, spec.k, spec.k});
    return w;
  }

  /// All of y within the bound of WeightOnly.h, against sums in double.
  void check(const std::vector<float> &found) const {
    std::vector<float> w = dequantized();
    for (int64_t m = 0; m < rows; ++m)
      for (int64_t n = 0; n < spec.n; ++n) {
        double sum = 0, magnitude = 0;
        auto add = [&](double term) {
          sum += term;
          magnitude += std::abs(term);
        };
        for (int64_t k = 0; k < spec.k; ++k)
          add(double(fromHalf(x[m * xStride + k], spec.input)) * w[n * spec.k + k]);
        if (spec.bias)
          add(bias[n]);
        if (spec.accumulate)
          add(y[m * spec.n + n]);
        double bound = (static_cast<double>(spec.k) / 8 + 32) * 0x1p-22 * magnitude;
        if (spec.isTable()) // whose values are rounded
          bound += 0.5 * unitOf(spec.input) * magnitude;
        bound += 0.5 * unitOf(spec.output) * (std::abs(sum) + bound) + 0x1p-25;
        ASSERT_NEAR(found[m * spec.n + n], sum, bound) << "row " << m << ", column " << n;
      }
  }

  WeightOnlySpec spec;
  int64_t rows, xStride;
  std::vector<uint16_t> x, floats;
  QuantizedMatrix weights;
  std::vector<float> bias, y;
};

PackedWeight packedWeights(const Problem &p) {
  if (!p.spec.isFloat())
    return fragmentsOf(p.weights, FragmentOrder::M16N8K16);
  PackedWeight packed;
  std::vector<uint8_t> &floats = packed[WeightTensor::Codes];
  floats.resize(floatFragmentBytes(p.spec.n, p.spec.k));
  packFloatFragments(p.spec.n, p.spec.k, p.floats.data(), floats.data());
  return packed;
}

/// y of one kernel, launched `launches` times.
std::vector<float> compute(KernelLibrary &library, const WeightOnlyKernel &kernel, const Problem &p,
                           simt::Statistics *statistics = nullptr,
                           simt::Checks checks = simt::Checks::All, int launches = 1) {
  const WeightOnlySpec &spec = p.spec;
  PackedWeight packed = packedWeights(p);
  simt::Device device;
  DeviceBuffer<uint16_t> x(device, p.x, "x");
  DeviceBuffer<uint8_t> w(device, packed[WeightTensor::Codes], "w");
  DeviceBuffer<uint8_t> scales(device, packed[WeightTensor::Scales], "wscales");
  DeviceBuffer<uint8_t> zeros(device, packed[WeightTensor::ZeroPoints], "wzeros");
  DeviceBuffer<uint8_t> minima(device, packed[WeightTensor::Minima], "wminima");
  DeviceBuffer<uint8_t> outer(device, packed[WeightTensor::Outer], "wouter");
  DeviceBuffer<uint8_t> codebook(device, packed[WeightTensor::Codebook], "codebook");
  DeviceBuffer<float> bias(device, p.bias, "bias");
  FloatRows y(device, p.y, p.rows, spec.n, spec.output, "y");
  DeviceBuffer<float> partials(device, kernel.partialBytes(p.rows) / 4, "partials");
  DeviceBuffer<int32_t> counters(device, std::vector<int32_t>(kernel.counterCount(p.rows)),
                                 "counters");
  std::map<std::string, Argument> arguments = {{"x", x},
                                               {"x_stride", p.xStride},
                                               {"w", w},
                                               {"y", Argument(y.address())},
                                               {"y_stride", y.stride()}};
  if (!spec.isFloat())
    arguments.emplace("wscales", scales);
  if (spec.zeroPoints)
    arguments.emplace("wzeros", zeros);
  if (spec.minima)
    arguments.emplace("wminima", minima);
  if (spec.outer)
    arguments.emplace("wouter", outer);
  if (spec.isTable())
    arguments.emplace("codebook", codebook);
  if (spec.bias)
    arguments.emplace("bias", bias);
  if (kernel.counterCount(1) > 0) {
    arguments.emplace("partials", partials);
    arguments.emplace("counters", counters);
  }
  for (int launch = 0; launch < launches; ++launch) {
    // Every other one from the last block on: whichever block ends last adds up.
    simt::Statistics found = run(device, library, kernel.description, p.rows, arguments, checks,
                                 /*backwards=*/launch % 2 == 1);
    if (statistics)
      *statistics = found;
    for (int32_t count : counters.read())
      EXPECT_EQ(count, 0);
  }
  return y.read();
}

/// A kernel takes what it is for and one row more.
bool isFor(const WeightOnlyKernel &kernel, int64_t rows) {
  if (kernel.form == WeightOnlyKernel::Stream)
    return rows <= kernel.stream.rows + 1;
  return kernel.tile.rows <= std::max<int64_t>(2 * rows, 32);
}

/// Every kernel of every spec, on those of `rows` that it could be taken for.
void checkAll(const std::vector<WeightOnlySpec> &specs, const std::vector<int64_t> &rows,
              ChipId chip = ChipId::SM80) {
  KernelLibrary library(chip);
  for (const WeightOnlySpec &spec : specs)
    for (const WeightOnlyKernel &kernel : weightOnlyKernels(spec, library.target()))
      if (std::ranges::any_of(rows, [&](int64_t m) { return isFor(kernel, m); }))
        library.add(spec, kernel);
  for (const WeightOnlySpec &spec : specs)
    for (int64_t m : rows) {
      Problem problem(spec, m);
      for (const WeightOnlyKernel &kernel : weightOnlyKernels(spec, library.target())) {
        if (!isFor(kernel, m))
          continue;
        SCOPED_TRACE(kernel.description.name + " on " + std::to_string(m) + " rows");
        problem.check(compute(library, kernel, problem));
      }
    }
}

/// body(spec, kernel) for all kernels of one form.
template <typename Body>
void forKernels(KernelLibrary &library, const std::vector<WeightOnlySpec> &specs,
                WeightOnlyKernel::Form form, Body body) {
  for (bool add : {true, false})
    for (const WeightOnlySpec &spec : specs)
      for (const WeightOnlyKernel &kernel : weightOnlyKernels(spec, library.target())) {
        if (kernel.form != form)
          continue;
        SCOPED_TRACE(kernel.description.name);
        if (add)
          library.add(spec, kernel);
        else
          body(spec, kernel);
      }
}

WeightOnlySpec spec(int64_t n, int64_t k, int bits, int64_t group = 0, Float input = Float::BF16) {
  WeightOnlySpec spec;
  spec.n = n;
  spec.k = k;
  spec.bits = bits;
  spec.groupSize = group;
  spec.input = input;
  return spec;
}

class GPUWeightOnlyBits : public testing::TestWithParam<int> {};

} // namespace

TEST_P(GPUWeightOnlyBits, PerChannel) {
  std::vector<WeightOnlySpec> specs = {spec(70, 77, GetParam(), 0, Float::F16)};
  for (auto [n, k] : {std::pair(128, 128), {1, 1}, {33, 100}, {70, 77}})
    specs.push_back(spec(n, k, GetParam()));
  checkAll(specs, {1, 3, 9, 17});
}

TEST_P(GPUWeightOnlyBits, LargeTiles) {
  checkAll({spec(150, 200, GetParam(), 0, Float::F16), spec(128, 192, GetParam())}, {130});
}

TEST_P(GPUWeightOnlyBits, BlocksShareColumns) {
  KernelLibrary library;
  WeightOnlySpec whole = spec(40, 8192, GetParam());
  whole.bias = whole.accumulate = true;
  std::vector<WeightOnlySpec> specs = {whole};
  if (!whole.isFloat())
    specs.push_back(spec(40, 8192, GetParam(), 128));
  auto check = [&](const WeightOnlySpec &s, const WeightOnlyKernel &kernel) {
    EXPECT_GT(kernel.stream.splits, 1);
    Problem problem(s, kernel.stream.rows == 1 ? 2 : 3);
    // A second launch finds the counters as the first did; what adds to y is launched once.
    int launches = s.accumulate ? 1 : 2;
    problem.check(compute(library, kernel, problem, nullptr, simt::Checks::All, launches));
  };
  forKernels(library, specs, WeightOnlyKernel::Stream, check);
}

namespace {

/// All tiles of the specs, on a row more than a tile has, with so many blocks that share K.
void checkShared(const std::vector<WeightOnlySpec> &specs, const std::vector<int64_t> &splits,
                 ChipId chip) {
  KernelLibrary library(chip);
  std::vector<std::pair<const WeightOnlySpec *, WeightOnlyKernel>> kernels;
  for (const WeightOnlySpec &s : specs)
    for (const WeightOnlyKernel &kernel : weightOnlyKernels(s, library.target()))
      if (kernel.form == WeightOnlyKernel::Matrix && kernel.tile.rows <= 64 &&
          kernel.tile.splits == 1)
        for (int64_t count : splits) {
          kernels.emplace_back(&s, shareColumns(s, kernel, count));
          library.add(s, kernels.back().second);
        }
  EXPECT_GE(kernels.size(), specs.size() * splits.size());
  for (const auto &[s, kernel] : kernels) {
    SCOPED_TRACE(kernel.description.name);
    Problem problem(*s, kernel.tile.rows + 1);
    const std::vector<float> found = compute(library, kernel, problem);
    problem.check(found);
    // Once more, twice in a row; what adds to y is launched once.
    EXPECT_EQ(compute(library, kernel, problem, nullptr, simt::Checks::All, s->accumulate ? 1 : 2),
              found);
  }
}

} // namespace

TEST_P(GPUWeightOnlyBits, BlocksOfTilesShareColumns) {
  // K is no multiple of the parts, or of a slab; columns and rows end within a tile.
  const bool isFloat = GetParam() == 16;
  WeightOnlySpec whole = spec(70, 300, GetParam()), grouped = spec(50, 420, GetParam(), 64);
  whole.bias = whole.accumulate = true;
  grouped.zeroPoints = true;
  grouped.output = Float::BF16;
  checkShared(isFloat ? std::vector{whole} : std::vector{whole, grouped}, {3}, ChipId::SM80);
}

TEST(GPUWeightOnly, BlocksOfTilesShareColumnsOfEveryKind) {
  WeightOnlySpec nvfp4 = spec(40, 200, 4, 16), minima = spec(40, 256, 5, 32);
  nvfp4.codes = CodeFormat::F4E2M1FN;
  nvfp4.scales = ScaleFormat::F8E4M3FN;
  nvfp4.outer = true;
  minima.minima = true;
  checkShared({nvfp4, minima, spec(33, 360, 8)}, {2, 4}, ChipId::SM90a);
}

TEST(GPUWeightOnly, KernelsOfOneNameAreOne) {
  for (const Chip &chip : chips())
    for (int64_t n : {96, 576, 4096, 11008})
      for (int64_t k : {64, 576, 4096, 11008})
        for (int bits : {2, 3, 4, 8, 16})
          for (int64_t group : {0, 64, 128})
            expectOneTileOfAName(weightOnlyKernels(spec(n, k, bits, group), chip), chip);
}

TEST(GPUWeightOnly, SumsInOneOrderAreNotShared) {
  WeightOnlySpec s = spec(4096, 4096, 16);
  const Chip h200 = chip(ChipId::SM90a);
  EXPECT_GT(kernelFor(weightOnlyKernels(s, h200), 128).tile.splits, 1);
  s.oneOrder = true;
  for (const WeightOnlyKernel &kernel : weightOnlyKernels(s, h200)) {
    EXPECT_EQ(kernel.form, WeightOnlyKernel::Matrix);
    EXPECT_EQ(kernel.tile.splits, 1);
  }
}

TEST(GPUWeightOnly, SumsOfPartsAreAddedInTheirOrder) {
  // The bits are those of a linear for each part, added in f32 one after the other.
  constexpr int64_t kPart = 128, kSplits = 3;
  KernelLibrary library;
  const WeightOnlySpec whole = spec(40, kPart * kSplits - 70, 16);
  auto columnsOf = [&](int64_t part) { return std::min(kPart, whole.k - part * kPart); };
  auto partOf = [&](int64_t part) { return spec(whole.n, columnsOf(part), 16); };
  auto tileOf = [&](const WeightOnlySpec &s) {
    std::vector<WeightOnlyKernel> kernels = weightOnlyKernels(s, library.target());
    return *std::ranges::find_if(kernels, [](const WeightOnlyKernel &kernel) {
      return kernel.form == WeightOnlyKernel::Matrix && kernel.tile.rows == 64;
    });
  };
  const WeightOnlyKernel shared = shareColumns(whole, tileOf(whole), kSplits);
  ASSERT_EQ(kPart % shared.tile.slab, 0);
  library.add(whole, shared);
  for (int64_t part = 0; part < kSplits; ++part)
    library.add(partOf(part), tileOf(partOf(part)));
  Problem problem(whole, 20);
  std::vector<float> expected;
  for (int64_t part = 0; part < kSplits; ++part) {
    Problem own(partOf(part), problem.rows);
    for (int64_t k = 0; k < own.spec.k; ++k) {
      const int64_t from = part * kPart + k;
      for (int64_t m = 0; m < own.rows; ++m)
        own.x[m * own.xStride + k] = problem.x[m * problem.xStride + from];
      for (int64_t n = 0; n < whole.n; ++n)
        own.floats[n * own.spec.k + k] = problem.floats[n * whole.k + from];
    }
    const std::vector<float> sums = compute(library, tileOf(own.spec), own);
    for (size_t i = 0; i < sums.size(); ++i)
      part == 0 ? expected.push_back(sums[i]) : void(expected[i] += sums[i]);
  }
  EXPECT_EQ(compute(library, shared, problem), expected);
}

INSTANTIATE_TEST_SUITE_P(Bits, GPUWeightOnlyBits, testing::Values(2, 3, 4, 5, 6, 8, 16));

TEST(GPUWeightOnly, BiasResidualAndOutputs) {
  // What is done with sums does not depend on the number of bits, but on whether they are scaled.
  std::vector<WeightOnlySpec> specs;
  for (int bits : {4, 16})
    for (Float output : {Float::F32, Float::F16, Float::BF16}) {
      WeightOnlySpec all = spec(50, 96, bits, 0, output == Float::F16 ? output : Float::BF16);
      all.output = output;
      all.bias = true;
      specs.push_back(all);
      all.accumulate = true;
      specs.push_back(all);
    }
  checkAll(specs, {3, 17});
}

TEST(GPUWeightOnly, Groups) {
  auto specs = [](Float input) {
    return std::vector{spec(64, 128, 4, 32, input), spec(33, 200, 4, 64, input),
                       spec(70, 300, 2, 96, input), spec(40, 384, 8, 256, input),
                       spec(65, 168, 3, 64, input)};
  };
  checkAll(specs(Float::BF16), {1, 9, 17, 70});
  checkAll(specs(Float::F16), {9, 17});
}

TEST(GPUWeightOnly, ZeroPoints) {
  for (Float input : {Float::F16, Float::BF16}) {
    std::vector<WeightOnlySpec> specs;
    for (int bits : {2, 3, 4, 8})
      for (int64_t group : {0, 64}) {
        WeightOnlySpec s = spec(50, 160, bits, group, input);
        s.zeroPoints = true;
        s.bias = group != 0;
        specs.push_back(s);
      }
    checkAll(specs, input == Float::F16 ? std::vector<int64_t>{3} : std::vector<int64_t>{1, 3, 33});
  }
}

TEST(GPUWeightOnly, ScalesOfHalfPrecision) {
  std::vector<WeightOnlySpec> specs, wide;
  for (int bits : {2, 3, 4, 8}) {
    for (int64_t group : {0, 64}) {
      WeightOnlySpec s = spec(50, 160, bits, group);
      s.zeroPoints = group == 0;
      s.scales = ScaleFormat::F16;
      specs.push_back(s);
    }
    // Columns beyond the padding of the parameters.
    wide.push_back(spec(150, 128, bits, 64));
    wide.back().zeroPoints = true;
    wide.back().scales = ScaleFormat::F16;
  }
  checkAll(specs, {1, 3, 33});
  checkAll(wide, {70});
}

TEST(GPUWeightOnly, EveryCodec) {
  std::vector<WeightOnlySpec> specs, wide;
  for (const WeightCodec &codec : floatCodecs()) {
    WeightOnlySpec s = spec(50, 360, codec.bits);
    static_cast<WeightCodec &>(s) = codec;
    specs.push_back(s);
    // Columns beyond the padding of the parameters.
    s.n = 150;
    s.k = 128;
    s.input = Float::F16;
    wide.push_back(s);
  }
  checkAll(specs, {3, 33});
  checkAll(wide, {1, 70});
}

TEST(GPUWeightOnly, EveryCodecOnAnotherChip) {
  std::vector<WeightOnlySpec> specs;
  for (const WeightCodec &codec : floatCodecs()) {
    specs.push_back(spec(70, 96, codec.bits));
    static_cast<WeightCodec &>(specs.back()) = codec;
  }
  checkAll(specs, {17}, ChipId::SM90a);
}

TEST(GPUWeightOnly, OtherChips) {
  for (ChipId chip : {ChipId::SM89, ChipId::SM90a})
    checkAll({spec(33, 100, 8), spec(128, 192, 4, 64), spec(128, 128, 16)}, {3, 66}, chip);
}

TEST(GPUWeightOnly, TilesAreReadWithoutBankConflicts) {
  KernelLibrary library;
  std::vector<WeightOnlySpec> specs = {spec(128, 512, 4, 128), spec(128, 512, 8), spec(128, 512, 3),
                                       spec(128, 512, 2), spec(128, 512, 16)};
  auto check = [&](const WeightOnlySpec &s, const WeightOnlyKernel &kernel) {
    simt::Statistics statistics;
    compute(library, kernel, Problem(s, 128), &statistics, simt::Checks::None);
    EXPECT_GT(expectSmoothCopies(statistics), 0u);
  };
  forKernels(library, specs, WeightOnlyKernel::Matrix, check);
}

TEST(GPUWeightOnly, EachWeightIsReadOnce) {
  // With few rows every byte of the weights is read once, in full sectors, 16 or 8 bytes a lane.
  KernelLibrary library;
  std::vector<WeightOnlySpec> specs = {spec(128, 2048, 4, 128), spec(128, 2048, 4),
                                       spec(128, 1056, 8),      spec(128, 2048, 3),
                                       spec(128, 2048, 2, 64),  spec(128, 1024, 16)};
  auto check = [&](const WeightOnlySpec &s, const WeightOnlyKernel &kernel) {
    Problem problem(s, kernel.stream.rows);
    simt::Statistics statistics;
    compute(library, kernel, problem, &statistics, simt::Checks::None);
    uint64_t bytes = 0, sectors = 0;
    for (const simt::InstructionStatistics &i : statistics.instructions)
      if (i.text.starts_with("ld.global") &&
          (i.text.find(".v4") != std::string::npos || i.text.find(".v2") != std::string::npos)) {
        bytes += i.bytes;
        sectors += i.sectors;
      }
    EXPECT_EQ(bytes, packedWeights(problem)[WeightTensor::Codes].size());
    EXPECT_EQ(sectors * 32, bytes);
    for (const auto &[kind, traffic] : statistics.traffic) {
      // Sums of two tokens of sixteen columns are read together, once, after the loop.
      if (kind == "shared store" || (kind == "shared load" && kernel.stream.columns >= 32))
        EXPECT_EQ(traffic.conflicts, 0u) << kind;
      EXPECT_FALSE(kind.starts_with("local"));
    }
  };
  forKernels(library, specs, WeightOnlyKernel::Stream, check);
}
