//===- FakeQuantizeTest.cpp - Rounded rows on a simulated GPU -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LinearData.h"

#include "easyquant/Numerics/Quantize.h"
#include "easyquant/Numerics/ScaleRules.h"

using namespace easyquant;
using namespace easyquant::gpu;
using namespace easyquant::numerics;

namespace {

/// Rows of many magnitudes: zeros, one value, subnormals of the formats, outliers, ties.
std::vector<float> someRows(int64_t rows, int64_t columns) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> x(rows * columns);
  for (int64_t m = 0; m < rows; ++m)
    for (int64_t c = 0; c < columns; ++c) {
      float value = normal(random);
      if (m % 5 == 1)
        value = 0;
      if (m % 5 == 2)
        value *= c == 0 ? 1e6f : 1e-2f;
      if (m % 5 == 3)
        value = static_cast<float>(c % 97 - 48) * 0.25f;
      if (m % 5 == 4)
        value *= 1e-30f;
      x[m * columns + c] = value;
    }
  return x;
}

Scheme schemeOf(const FakeQuantizeSpec &spec) {
  const bool isScaled = spec.groupSize != 0 && spec.isStatic;
  return {.bits = spec.codes == CodeFormat::F8E4M3FN ? 8 : 4,
          .granularity = spec.groupSize  ? Granularity::Group
                         : spec.isStatic ? Granularity::Tensor
                                         : Granularity::Channel,
          .groupSize = spec.groupSize,
          .dynamic = spec.groupSize != 0,
          .codes = spec.codes,
          .scales = isScaled ? ScaleFormat::F8E4M3FN : ScaleFormat::F32,
          .outer = isScaled};
}

/// What quantization and dequantization give by Numerics.
std::vector<float> expectedOf(const FakeQuantizeSpec &spec, const std::vector<float> &values,
                              int64_t rows, float scale) {
  const Scheme scheme = schemeOf(spec);
  ConstMatrix x(values.data(), rows, spec.columns);
  QuantizedMatrix q{scheme, rows, spec.columns, {}, {1, 1, {scale}, {}}};
  if (spec.groupSize || !spec.isStatic) {
    auto params = scheme.outer ? chooseQParams(x, scheme, {}, scale) : chooseQParams(x, scheme, {});
    EXPECT_TRUE(params) << params.error().message;
    q.params = *params;
  }
  q.codes.resize(values.size());
  EXPECT_TRUE(quantize(x, scheme, q.params, q.codes));
  std::vector<float> expected(values.size());
  dequantize(q, {expected.data(), rows, spec.columns});
  return rounded(expected, spec.output);
}

} // namespace

TEST(GPUFakeQuantize, GivesTheBitsOfNumerics) {
  std::vector<FakeQuantizeSpec> specs;
  for (int64_t columns : {1, 7, 40, 172, 1088}) {
    for (CodeFormat codes : {CodeFormat::F8E4M3FN, CodeFormat::F4E2M1FN})
      for (bool isStatic : {false, true})
        specs.push_back({columns, codes, isStatic});
    specs.push_back({columns, CodeFormat::F8E4M3FN, /*isStatic=*/false, /*groupSize=*/128});
    specs.push_back({columns, CodeFormat::F4E2M1FN, /*isStatic=*/true, /*groupSize=*/16});
    specs.push_back(specs.back());
    specs.back().output = Float::BF16;
  }
  KernelLibrary library;
  for (const FakeQuantizeSpec &spec : specs)
    library.add(spec);
  constexpr int64_t kRows = 11;
  for (const FakeQuantizeSpec &spec : specs)
    for (float scale : {0.0625f, 3.1e-5f}) {
      SCOPED_TRACE(library.add(spec).name);
      const std::vector<float> values = someRows(kRows, spec.columns);
      simt::Device device;
      FloatRows x(device, values, kRows, spec.columns, Float::F32, "x");
      FloatRows y(device, std::vector<float>(values.size()), kRows, spec.columns, spec.output, "y");
      DeviceBuffer<float> given(device, std::vector<float>{scale}, "scale");
      std::map<std::string, Argument> arguments = {{"x", Argument(x.address())},
                                                   {"x_stride", x.stride()},
                                                   {"y", Argument(y.address())},
                                                   {"y_stride", y.stride()}};
      if (spec.isStatic)
        arguments.emplace("scale", given);
      run(device, library, library.add(spec), kRows, arguments);
      EXPECT_EQ(y.read(), expectedOf(spec, values, kRows, scale));
    }
}
