//===- FP8Test.cpp - Codes of FP8, and linears on them --------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LinearData.h"

#include "easyquant/Numerics/Quantize.h"
#include "easyquant/Numerics/ScaleRules.h"

#include <cmath>
#include <optional>

using namespace easyquant;
using namespace easyquant::gpu;
using namespace easyquant::numerics;
using easyquant::gpu::paddedColumns;

namespace {

constexpr Scheme kRows = {
    .bits = 8, .granularity = Granularity::Channel, .codes = CodeFormat::F8E4M3FN};
constexpr Scheme kWhole = {
    .bits = 8, .granularity = Granularity::Tensor, .codes = CodeFormat::F8E4M3FN};

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

/// Codes by Numerics, with a scale a row, or with the one that is given.
QuantizedMatrix quantized(const std::vector<float> &x, int64_t rows, int64_t columns,
                          std::optional<float> scale) {
  const ConstMatrix matrix(x.data(), rows, columns);
  QuantizedMatrix q{scale ? kWhole : kRows, rows, columns, {}, {}};
  q.params = scale ? QParams{1, 1, {*scale}, {}} : *chooseQParams(matrix, kRows, {});
  q.codes.resize(x.size());
  EXPECT_TRUE(quantize(matrix, q.scheme, q.params, q.codes));
  return q;
}

/// Codes as kernels have them: the bits of the format, padded.
std::vector<uint8_t> bytesOf(const QuantizedMatrix &q) {
  const int64_t stride = paddedColumns(q.columns);
  std::vector<uint8_t> bytes(q.rows * stride);
  for (int64_t m = 0; m < q.rows; ++m)
    for (int64_t c = 0; c < q.columns; ++c)
      bytes[m * stride + c] = static_cast<uint8_t>(q.codes[m * q.columns + c] + 128);
  return bytes;
}

struct Problem {
  Problem(const LinearSpec &spec, int64_t rows)
      : spec(spec), rows(rows), random(static_cast<unsigned>(spec.n + spec.k + rows)),
        weights(randomWeights(spec.n, spec.k, schemeOf(spec), random)),
        x(quantized(someRows(rows, spec.k), rows, spec.k, std::nullopt)) {
    std::normal_distribution<float> normal;
    for (int64_t n = 0; n < spec.n; ++n)
      bias.push_back(normal(random));
    for (int64_t i = 0; i < rows * spec.n; ++i)
      y.push_back(normal(random));
  }

  /// All of y within the bound of LinearSpec, against sums in double.
  void check(const std::vector<float> &found) const {
    std::vector<float> values(rows * spec.k), w(spec.n * spec.k);
    dequantize(x, {values.data(), rows, spec.k});
    dequantize(weights, {w.data(), spec.n, spec.k});
    for (int64_t m = 0; m < rows; ++m)
      for (int64_t n = 0; n < spec.n; ++n) {
        ExactProduct expected;
        for (int64_t k = 0; k < spec.k; ++k)
          expected.add(double(values[m * spec.k + k]) * w[n * spec.k + k]);
        if (spec.bias)
          expected.add(bias[n]);
        if (spec.accumulate)
          expected.add(y[m * spec.n + n]);
        ASSERT_NEAR(found[m * spec.n + n], expected.sum, expected.bound(spec.k))
            << "row " << m << ", column " << n;
      }
  }

  LinearSpec spec;
  int64_t rows;
  std::mt19937 random;
  QuantizedMatrix weights, x;
  std::vector<float> bias, y;
};

std::vector<float> compute(KernelLibrary &library, const LinearKernel &kernel, const Problem &p) {
  const PackedWeight packed = fragmentsOf(p.weights, FragmentOrder::M16N8K32);
  simt::Device device;
  DeviceBuffer<uint8_t> codes(device, bytesOf(p.x), "codes");
  DeviceBuffer<float> scales(device, p.x.params.scales, "scales");
  DeviceBuffer<uint8_t> w(device, packed[WeightTensor::Codes], "w");
  DeviceBuffer<uint8_t> wscales(device, packed[WeightTensor::Scales], "wscales");
  DeviceBuffer<float> bias(device, p.bias, "bias");
  FloatRows y(device, p.y, p.rows, p.spec.n, Float::F32, "y");
  std::map<std::string, Argument> arguments = {
      {"codes", codes},     {"scales", scales},           {"w", w},
      {"wscales", wscales}, {"y", Argument(y.address())}, {"y_stride", y.stride()}};
  if (p.spec.bias)
    arguments.emplace("bias", bias);
  run(device, library, kernel.description, p.rows, arguments);
  return y.read();
}

LinearSpec spec(int64_t n, int64_t k, int64_t group = 0) {
  LinearSpec spec;
  spec.codes = CodeFormat::F8E4M3FN;
  spec.n = n;
  spec.k = k;
  spec.groupSize = group;
  return spec;
}

} // namespace

TEST(GPUFP8, CodesAreThoseOfNumerics) {
  constexpr int64_t kCount = 11, kColumns[] = {1, 40, 172, 1088};
  const std::optional<float> scales[] = {std::nullopt, 0.0625f};
  KernelLibrary library;
  auto specOf = [](int64_t columns, bool isStatic) {
    RowSpec spec;
    spec.columns = columns;
    spec.codes = CodeFormat::F8E4M3FN;
    spec.quantization = isStatic ? RowQuantization::Static : RowQuantization::Dynamic;
    return spec;
  };
  for (int64_t columns : kColumns)
    for (const std::optional<float> &scale : scales)
      library.add(specOf(columns, scale.has_value()));
  for (int64_t columns : kColumns)
    for (const std::optional<float> &scale : scales) {
      const RowSpec spec = specOf(columns, scale.has_value());
      SCOPED_TRACE(library.add(spec).name);
      const std::vector<float> values = someRows(kCount, columns);
      const QuantizedMatrix expected = quantized(values, kCount, columns, scale);
      simt::Device device;
      FloatRows x(device, values, kCount, columns, Float::F32, "x");
      DeviceBuffer<uint8_t> codes(device, kCount * paddedColumns(columns), "codes");
      DeviceBuffer<float> rowScales(device, kCount, "scales");
      DeviceBuffer<float> given(device, std::vector<float>{scale.value_or(0)}, "scale");
      std::map<std::string, Argument> arguments = {{"x", Argument(x.address())},
                                                   {"x_stride", x.stride()},
                                                   {"codes", codes},
                                                   {"scales", rowScales}};
      if (scale)
        arguments.emplace("scale", given);
      run(device, library, library.add(spec), kCount, arguments);
      EXPECT_EQ(codes.read(), bytesOf(expected));
      EXPECT_EQ(rowScales.read(),
                scale ? std::vector<float>(kCount, *scale) : expected.params.scales);
    }
}

/// By products of f16 and by those of FP8, whose simulated sums have the bits of f32.
TEST(GPUFP8, LinearsAreWithinTheBound) {
  std::vector<LinearSpec> specs = {spec(50, 360),     spec(150, 96),      spec(70, 384, 128),
                                   spec(50, 256, 64), spec(33, 600, 256), spec(50, 400, 192)};
  specs[0].bias = specs[2].accumulate = true;
  for (ChipId id : {ChipId::SM80, ChipId::SM89, ChipId::SM90a, ChipId::SM120a}) {
    KernelLibrary library(id);
    for (const LinearSpec &spec : specs)
      for (const LinearKernel &kernel : linearKernels(spec, library.target())) {
        EXPECT_EQ(kernel.converts, id != ChipId::SM89 && id != ChipId::SM120a);
        library.add(spec, kernel);
      }
    for (const LinearSpec &spec : specs)
      for (const LinearKernel &kernel : linearKernels(spec, library.target())) {
        const int64_t ofBlock = kernel.form == LinearKernel::Dot ? kernel.rows : kernel.tile.rows;
        // A chip of each kind walks them all.
        if (id == ChipId::SM90a && ofBlock > 32)
          continue;
        SCOPED_TRACE(kernel.description.name);
        const Problem problem(spec, ofBlock > 32 ? ofBlock / 2 + 1 : 17);
        problem.check(compute(library, kernel, problem));
      }
  }
}
