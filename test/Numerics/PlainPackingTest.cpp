//===- PlainPackingTest.cpp - Weights as they are -------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RandomData.h"

#include "easyquant/Numerics/PlainPacking.h"
#include "easyquant/Numerics/ScaleRules.h"

#include <gtest/gtest.h>

#include <cstring>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

template <typename T> std::vector<T> elements(const std::vector<uint8_t> &bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::unique_ptr<WeightLayout> plain(const Scheme &scheme, int64_t rows, int64_t columns) {
  auto layout = findLayoutKind(kPlainLayout)->make(scheme, rows, columns);
  EXPECT_TRUE(layout.has_value());
  return std::move(*layout);
}

QuantizedMatrix quantized(const Scheme &scheme, int64_t rows, int64_t columns,
                          const ScaleRule &rule, float outer = 1) {
  auto x = gaussian(rows * columns, 7);
  QuantizedMatrix q{scheme, rows, columns, std::vector<int8_t>(rows * columns), {}};
  ConstMatrix matrix(x.data(), rows, columns);
  q.params = *chooseQParams(matrix, scheme, rule, outer);
  EXPECT_TRUE(numerics::quantize(matrix, scheme, q.params, q.codes).has_value());
  return q;
}

TEST(PlainPacking, PartsAreThoseOfTheMatrix) {
  const Scheme scheme{.bits = 5,
                      .symmetric = false,
                      .granularity = Granularity::Group,
                      .groupSize = 16,
                      .scales = ScaleFormat::F16};
  auto layout = plain(scheme, 7, 40);
  layout->withSums = true;
  const QuantizedMatrix q = quantized(scheme, 7, 40, {.kind = ScaleRuleKind::ZeroPoint});
  const PackedWeight packed = pack(*layout, q);
  EXPECT_EQ(elements<int8_t>(packed[WeightTensor::Codes]), q.codes);
  EXPECT_EQ(elements<float>(packed[WeightTensor::Scales]), q.params.scales);
  auto zeros = elements<int8_t>(packed[WeightTensor::ZeroPoints]);
  EXPECT_EQ(std::vector<int32_t>(zeros.begin(), zeros.end()), q.params.zeroPoints);
  EXPECT_EQ(layout->shape(WeightTensor::ZeroPoints), (std::vector<int64_t>{7, 3}));
  int32_t sum = 0; // of the last group, of eight columns
  for (int64_t k = 32; k < 40; ++k)
    sum += q.codes[6 * 40 + k] - q.params.zeroPoints.back();
  EXPECT_EQ(elements<int32_t>(packed[WeightTensor::Sums]).back(), sum);
}

TEST(PlainPacking, BlocksOfRowsGoBelowEachOther) {
  const Scheme scheme{.bits = 8};
  auto layout = plain(scheme, 5, 12);
  const QuantizedMatrix whole = quantized(scheme, 5, 12, {});
  PackedWeight packed = layout->allocate();
  for (int64_t row = 0; row < 5; ++row) {
    QuantizedMatrix block{scheme, 1, 12, {}, {1, 1, {whole.params.scales[row]}, {}}};
    block.codes.assign(whole.codes.begin() + row * 12, whole.codes.begin() + (row + 1) * 12);
    layout->pack(row, block, packed);
  }
  EXPECT_EQ(packed.tensors, pack(*layout, whole).tensors);
}

TEST(PlainPacking, ScalesAreProductsInF32) {
  const Scheme scheme{.bits = 4,
                      .granularity = Granularity::Group,
                      .groupSize = 16,
                      .codes = CodeFormat::F4E2M1FN,
                      .scales = ScaleFormat::F8E4M3FN,
                      .outer = true};
  auto layout = plain(scheme, 3, 32);
  const QuantizedMatrix q = quantized(scheme, 3, 32, {}, 0.001f);
  const PackedWeight packed = pack(*layout, q);
  EXPECT_EQ(elements<float>(packed[WeightTensor::Scales]), q.params.scales);
  EXPECT_FALSE(layout->has(WeightTensor::Outer));
  const Scheme twoLevels{
      .bits = 4, .granularity = Granularity::Group, .groupSize = 16, .scales = ScaleFormat::UI6};
  const QuantizedMatrix k = quantized(twoLevels, 3, 200, {});
  const PackedWeight wide = pack(*plain(twoLevels, 3, 200), k);
  EXPECT_EQ(elements<float>(wide[WeightTensor::Scales]), k.params.scales);
}

TEST(PlainPacking, RefusesWhatIsNoWeight) {
  Scheme scheme{.bits = 8, .granularity = Granularity::Token, .dynamic = true};
  auto layout = findLayoutKind(kPlainLayout)->make(scheme, 4, 4);
  ASSERT_FALSE(layout.has_value());
  EXPECT_EQ(layout.error().code, ErrorCode::Unsupported);
  EXPECT_FALSE(findLayoutKind(kPlainLayout)->make(Scheme{}, 0, 4).has_value());
}

} // namespace
