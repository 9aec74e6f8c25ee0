//===- ExpertsTest.cpp - Linears of experts on a simulated GPU ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ExpertItems.h"
#include "LinearData.h"

#include "easyquant/Numerics/Quantize.h"
#include "easyquant/Numerics/Reference.h"

#include <cmath>

using namespace easyquant;
using namespace easyquant::gpu;
using namespace easyquant::numerics;
using easyquant::gpu::paddedColumns;

namespace {

/// Rows of an expert from `first` on, of y of all of them.
std::vector<float> rowsOf(const std::vector<float> &y, int64_t first, int64_t count, int64_t n) {
  return {y.begin() + first * n, y.begin() + (first + count) * n};
}

/// The weights of one of the experts that have `n` rows each.
QuantizedMatrix expertOf(const QuantizedMatrix &all, int64_t n, int64_t expert) {
  QuantizedMatrix own = all;
  auto cut = [&](auto &values, int64_t columns) {
    if (values.empty())
      return;
    auto begin = values.begin() + expert * n * columns;
    values = {begin, begin + n * columns};
  };
  own.rows = own.params.rows = n;
  cut(own.codes, all.columns);
  cut(own.params.scales, all.params.groups);
  cut(own.params.zeroPoints, all.params.groups);
  cut(own.params.minima, all.params.groups);
  cut(own.params.outer, 1);
  return own;
}

/// The codes of all experts, of which those without rows are never written: a kernel that reads
/// them is found out.
struct ExpertCodes {
  ExpertCodes(simt::Device &device, const std::vector<uint8_t> &all,
              const std::vector<int64_t> &counts)
      : buffer(device, all.size(), "w") {
    const size_t bytes = all.size() / counts.size();
    for (size_t expert = 0; expert < counts.size(); ++expert)
      if (counts[expert] > 0)
        EXPECT_TRUE(
            device.copyIn(buffer.address() + expert * bytes, all.data() + expert * bytes, bytes));
  }
  DeviceBuffer<uint8_t> buffer;
};

/// The parts of weights beside their codes that kernels take.
std::vector<std::pair<const char *, WeightTensor>> partsOf(const WeightCodec &codec) {
  std::vector<std::pair<const char *, WeightTensor>> parts;
  auto add = [&](bool there, const char *name, WeightTensor part) {
    if (there)
      parts.emplace_back(name, part);
  };
  add(codec.bits != 16, "wscales", WeightTensor::Scales);
  add(codec.zeroPoints, "wzeros", WeightTensor::ZeroPoints);
  add(codec.minima, "wminima", WeightTensor::Minima);
  add(codec.outer, "wouter", WeightTensor::Outer);
  add(codec.isTable(), "codebook", WeightTensor::Codebook);
  return parts;
}

void addWeights(std::map<std::string, Argument> &arguments, simt::Device &device,
                const PackedWeight &packed, std::vector<DeviceBuffer<uint8_t>> &buffers,
                std::vector<std::pair<const char *, WeightTensor>> parts) {
  for (auto [name, part] : parts) {
    buffers.emplace_back(device, packed[part], name);
    arguments.emplace(name, buffers.back());
  }
}

/// Experts with none, one, some and many rows.
const std::vector<int64_t> kCounts = {0, 1, 17, 0, 20};

/// Both kernels of each spec, against the linears of the experts, to the bit.
void checkCodes(const std::vector<LinearSpec> &specs, const std::vector<int64_t> &counts,
                ChipId chip = ChipId::SM80) {
  KernelLibrary library(chip);
  for (const LinearSpec &spec : specs)
    library.add(spec);
  for (const LinearSpec &spec : specs) {
    const Sorted sorted(counts);
    const int64_t rows = sorted.rows();
    std::mt19937 random(static_cast<unsigned>(spec.n + spec.k));
    std::normal_distribution<float> normal;
    const QuantizedMatrix all =
        randomWeights(spec.weightRows(), spec.k, schemeOf(spec, /*isInt8=*/true), random);
    std::vector<float> x(rows * spec.k), bias(spec.weightRows());
    for (std::vector<float> *values : {&x, &bias})
      for (float &value : *values)
        value = normal(random);
    const ConstMatrix matrix{x.data(), rows, spec.k, spec.k};
    const QuantizedTokens tokens =
        spec.inputGroup ? *quantizeTokensInGroups(matrix, spec.inputGroup, !spec.inputZeroPoints)
        : spec.inputZeroPoints
            ? *quantizeTokens(matrix, {8, false, Granularity::Tensor}, 0.02f, -11, spec.groupSize)
            : *quantizeTokens(matrix, spec.groupSize);
    std::vector<float> expected;
    for (int64_t expert = 0; expert < spec.experts; ++expert) {
      std::vector<float> y(rows * spec.n);
      EXPECT_TRUE(reference::integerLinear(tokens, expertOf(all, spec.n, expert),
                                           spec.bias ? bias.data() + expert * spec.n : nullptr,
                                           false, Matrix{y.data(), rows, spec.n, spec.n}));
      auto own = rowsOf(y, std::ssize(expected) / spec.n, counts[expert], spec.n);
      expected.insert(expected.end(), own.begin(), own.end());
    }
    std::vector<int8_t> padded(rows * paddedColumns(spec.k));
    for (int64_t m = 0; m < rows; ++m)
      std::copy_n(tokens.codes.begin() + m * tokens.paddedColumns, spec.k,
                  padded.begin() + m * paddedColumns(spec.k));
    const PackedWeight packed = fragmentsOf(all, FragmentOrder::M16N8K32);
    for (const LinearKernel &kernel : linearKernels(spec, library.target())) {
      simt::Device device;
      DeviceBuffer<int8_t> codes(device, padded, "codes");
      DeviceBuffer<float> scales(device, tokens.scales, "scales"), biases(device, bias, "bias");
      DeviceBuffer<int32_t> sums(device, tokens.sums, "sums"),
          zeros(device, tokens.zeroPoints, "zeros"), items(device, sorted.items(), "items");
      ExpertCodes w(device, packed[WeightTensor::Codes], counts);
      FloatRows y(device, std::vector<float>(rows * spec.n), rows, spec.n, spec.output, "y");
      std::map<std::string, Argument> arguments = {
          {"codes", codes}, {"scales", scales},           {"w", w.buffer},
          {"items", items}, {"y", Argument(y.address())}, {"y_stride", y.stride()}};
      std::vector<DeviceBuffer<uint8_t>> parts;
      std::vector<std::pair<const char *, WeightTensor>> needed = partsOf(spec);
      if (spec.inputZeroPoints && !spec.sumsWeights())
        needed.emplace_back("wsums", WeightTensor::Sums);
      addWeights(arguments, device, packed, parts, needed);
      if (spec.readsSums())
        arguments.emplace("sums", sums);
      if (spec.inputZeroPoints)
        arguments.emplace("zeros", zeros);
      if (spec.bias)
        arguments.emplace("bias", biases);
      const simt::Statistics found = run(device, library, kernel.description, rows, arguments);
      if (spec.k % 32 == 0) // else rows end amid a sector
        expectSmoothCopies(found);
      EXPECT_EQ(y.read(), expected) << kernel.description.name;
    }
  }
}

LinearSpec codes(int64_t n, int64_t k, int bits, int64_t group = 0) {
  LinearSpec spec;
  spec.n = n;
  spec.k = k;
  spec.bits = bits;
  spec.groupSize = group;
  spec.experts = std::ssize(kCounts);
  return spec;
}

} // namespace

TEST(GPUExperts, LinearsOnInt8) {
  LinearSpec biased = codes(192, 96, 4, 32);
  biased.bias = biased.zeroPoints = biased.inputZeroPoints = true;
  biased.scales = ScaleFormat::F16;
  checkCodes({codes(64, 100, 8), codes(128, 160, 4, 64), biased}, kCounts);
}

TEST(GPUExperts, LinearsOnInt8OfOtherSchemes) {
  std::vector<LinearSpec> specs = {codes(64, 96, 8), codes(64, 96, 3, 32), codes(64, 128, 4, 64)};
  specs[0].inputZeroPoints = true;
  specs[1].minima = true;
  specs[1].scales = ScaleFormat::F16;
  specs[2].inputGroup = 32;
  specs[2].inputZeroPoints = true;
  checkCodes(specs, kCounts);
}

TEST(GPUExperts, OneExpertHasAllRows) { checkCodes({codes(64, 64, 8)}, {0, 0, 0, 150, 0}); }

namespace {

/// Weights of experts and rows of floats.
struct FloatExperts {
  FloatExperts(const WeightOnlySpec &spec, int64_t rows);
  /// What a kernel makes of rows, of which each expert has so many.
  std::vector<float> run(KernelLibrary &library, const WeightOnlyKernel &kernel,
                         const std::vector<uint16_t> &rows,
                         const std::vector<int64_t> &counts) const;

  WeightOnlySpec spec;
  int64_t xStride;
  std::vector<uint16_t> x;
  std::vector<float> w, bias;
  PackedWeight packed;
};

FloatExperts::FloatExperts(const WeightOnlySpec &spec, int64_t rows)
    : spec(spec), xStride((spec.k + 7) / 8 * 8 + 16), x(rows * xStride, 0x7fff),
      w(spec.weightRows() * spec.k), bias(spec.weightRows()) {
  const int64_t n = spec.weightRows();
  std::mt19937 random(static_cast<unsigned>(spec.n + spec.k));
  std::normal_distribution<float> normal;
  for (int64_t m = 0; m < rows; ++m)
    for (int64_t k = 0; k < spec.k; ++k)
      x[m * xStride + k] = toHalf(normal(random), spec.input);
  for (float &value : bias)
    value = normal(random);
  if (!spec.isFloat()) {
    const QuantizedMatrix all = randomWeights(n, spec.k, schemeOf(spec), random);
    dequantize(all, Matrix{w.data(), n, spec.k, spec.k});
    packed = fragmentsOf(all, FragmentOrder::M16N8K16);
    return;
  }
  std::vector<uint16_t> floats;
  for (float &value : w) {
    floats.push_back(toHalf(normal(random), spec.input));
    value = fromHalf(floats.back(), spec.input);
  }
  packed[WeightTensor::Codes].resize(floatFragmentBytes(n, spec.k));
  packFloatFragments(n, spec.k, floats.data(), packed[WeightTensor::Codes].data());
}

std::vector<float> FloatExperts::run(KernelLibrary &library, const WeightOnlyKernel &kernel,
                                     const std::vector<uint16_t> &rows,
                                     const std::vector<int64_t> &counts) const {
  const Sorted sorted(counts);
  simt::Device device;
  DeviceBuffer<uint16_t> tokens(device, rows, "x");
  DeviceBuffer<int32_t> items(device, sorted.items(), "items");
  DeviceBuffer<float> biases(device, bias, "bias");
  ExpertCodes codes(device, packed[WeightTensor::Codes], counts);
  FloatRows y(device, std::vector<float>(sorted.rows() * spec.n), sorted.rows(), spec.n,
              spec.output, "y");
  std::map<std::string, Argument> arguments = {
      {"x", tokens},    {"x_stride", xStride},        {"w", codes.buffer},
      {"items", items}, {"y", Argument(y.address())}, {"y_stride", y.stride()}};
  std::vector<DeviceBuffer<uint8_t>> parts;
  addWeights(arguments, device, packed, parts, partsOf(spec));
  if (spec.bias)
    arguments.emplace("bias", biases);
  const simt::Statistics found =
      ::run(device, library, kernel.description, sorted.rows(), arguments);
  if (spec.k % 32 == 0) // else rows end amid a sector
    expectSmoothCopies(found);
  return y.read();
}

/// Both kernels of each spec, within the bound of WeightOnly.h against the linears of the experts,
/// and with the same bits.
void checkFloats(const std::vector<WeightOnlySpec> &specs, const std::vector<int64_t> &counts,
                 ChipId chip = ChipId::SM80) {
  KernelLibrary library(chip);
  for (const WeightOnlySpec &spec : specs)
    library.add(spec);
  for (const WeightOnlySpec &spec : specs) {
    const FloatExperts experts(spec, Sorted(counts).rows());
    std::vector<std::vector<float>> results;
    for (const WeightOnlyKernel &kernel : weightOnlyKernels(spec, library.target()))
      results.push_back(experts.run(library, kernel, experts.x, counts));
    EXPECT_EQ(results.front(), results.back()) << "n " << spec.n << ", k " << spec.k;
    int64_t row = 0;
    for (int64_t expert = 0; expert < spec.experts; ++expert)
      for (int64_t end = row + counts[expert]; row < end; ++row)
        for (int64_t c = 0; c < spec.n; ++c) {
          const int64_t at = expert * spec.n + c;
          double sum = spec.bias ? experts.bias[at] : 0, magnitude = std::abs(sum);
          for (int64_t k = 0; k < spec.k; ++k) {
            const double term = double(fromHalf(experts.x[row * experts.xStride + k], spec.input)) *
                                experts.w[at * spec.k + k];
            sum += term;
            magnitude += std::abs(term);
          }
          double bound = (static_cast<double>(spec.k) / 8 + 32) * 0x1p-22 * magnitude + 0x1p-25;
          if (spec.isTable()) // whose values are rounded
            bound += 0x1p-8 * magnitude;
          ASSERT_NEAR(results.front()[row * spec.n + c], sum, bound)
              << "row " << row << ", column " << c;
        }
  }
}

WeightOnlySpec floats(int64_t n, int64_t k, int bits, int64_t group = 0) {
  WeightOnlySpec spec;
  spec.n = n;
  spec.k = k;
  spec.bits = bits;
  spec.groupSize = group;
  spec.experts = std::ssize(kCounts);
  return spec;
}

} // namespace

TEST(GPUExperts, LinearsOnFloats) {
  WeightOnlySpec biased = floats(192, 96, 4, 32);
  biased.bias = biased.zeroPoints = true;
  biased.scales = ScaleFormat::F16;
  checkFloats({floats(64, 100, 16), floats(24, 96, 16), floats(64, 160, 8), biased}, kCounts);
}

TEST(GPUExperts, LinearsOnFloatsOfOtherSchemes) {
  std::vector<WeightOnlySpec> specs;
  for (const WeightCodec &codec : floatCodecs()) {
    // One of each kind: bits in two planes, FP4 of both scales, a table, two levels, minima.
    const bool isKind =
        (codec.bits == 5 && codec.zeroPoints) || codec.outer ||
        codec.scales == ScaleFormat::F8E8M0FNU || (codec.isTable() && codec.bits == 4) ||
        (codec.scales == ScaleFormat::UI6 && codec.zeroPoints) || (codec.minima && codec.bits == 4);
    if (!isKind)
      continue;
    WeightOnlySpec spec = floats(64, 96, codec.bits);
    static_cast<WeightCodec &>(spec) = codec;
    spec.bias = codec.outer;
    specs.push_back(spec);
  }
  ASSERT_EQ(specs.size(), 6u);
  checkFloats(specs, {0, 1, 3, 0, 18});
}

/// Which other rows chose an expert changes no bit of a row.
TEST(GPUExperts, RowsDoNotKnowEachOther) {
  const WeightOnlySpec spec = floats(64, 64, 4, 32);
  KernelLibrary library;
  library.add(spec);
  const FloatExperts experts(spec, Sorted(kCounts).rows());
  for (const WeightOnlyKernel &kernel : weightOnlyKernels(spec, library.target())) {
    const std::vector<float> all = experts.run(library, kernel, experts.x, kCounts);
    // Every third row, at another place of its item, and seldom beside the same rows.
    std::vector<int64_t> counts(kCounts.size());
    std::vector<uint16_t> x;
    std::vector<float> expected;
    int64_t row = 0;
    for (size_t expert = 0; expert < kCounts.size(); ++expert)
      for (const int64_t end = row + kCounts[expert]; row < end; ++row) {
        if (row % 3 != 0)
          continue;
        ++counts[expert];
        x.insert(x.end(), experts.x.begin() + row * experts.xStride,
                 experts.x.begin() + (row + 1) * experts.xStride);
        const std::vector<float> own = rowsOf(all, row, 1, spec.n);
        expected.insert(expected.end(), own.begin(), own.end());
      }
    EXPECT_EQ(experts.run(library, kernel, x, counts), expected) << kernel.description.name;
  }
}
