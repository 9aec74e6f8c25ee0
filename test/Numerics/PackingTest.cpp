//===- PackingTest.cpp ----------------------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Packing.h"
#include "easyquant/Numerics/ScaleRules.h"

#include "RandomData.h"
#include "SchemeKinds.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

struct PackedShape {
  int64_t rows, columns;
  Scheme scheme;
};
class PackedPanels : public testing::TestWithParam<PackedShape> {
protected:
  int64_t rows = GetParam().rows, columns = GetParam().columns;
  Scheme scheme = GetParam().scheme;
  PanelLayout layout = *panelLayout(scheme, rows, columns);
};

class SymmetricPanels : public PackedPanels {};

/// The code at (row, column) by the formulas of the header, 0 in the padding.
int codeAt(const std::vector<uint8_t> &packed, const PanelLayout &l, int64_t row, int64_t column) {
  int bits = l.scheme.bits;
  int64_t p = row / 32, r = row % 32, j = column / 8, i = column % 4, half = column % 8 / 4;
  const uint8_t *panel = packed.data() + p * paddedColumns(l.columns) * 4 * bits;
  auto byte = [&](int64_t block, int64_t rows, int64_t index) {
    return int{panel[(block * rows + index) * 4 + i]};
  };
  switch (bits) {
  case 8:
    return byte(2 * j + half, 32, r) - 128;
  case 6: {
    int upper = byte(j, 48, r) >> (4 * half) & 15;
    return 4 * upper + (byte(j, 48, 32 + r % 16) >> (r / 16 * 4 + 2 * half) & 3) - 32;
  }
  case 5: {
    int upper = byte(j, 40, r) >> (4 * half) & 15;
    return 2 * upper + (byte(j, 40, 32 + r % 8) >> (r / 8 * 2 + half) & 1) - 16;
  }
  case 4:
    return (byte(j, 32, r) >> (4 * half) & 15) - 8;
  case 3: {
    int upper = byte(j, 24, r % 16) >> (r / 16 * 4 + 2 * half) & 3;
    return 2 * upper + (byte(j, 24, 16 + r % 8) >> (r / 8 * 2 + half) & 1) - 4;
  }
  default:
    return (byte(j, 16, r % 16) >> (r / 16 * 4 + 2 * half) & 3) - 2;
  }
}

/// The zero point of row r of group `slice`, by the header's formula.
int zeroPointAt(const PackedWeight &packed, int bits, int64_t slice, int64_t r) {
  const uint8_t *bytes = &packed[WeightTensor::ZeroPoints][slice * 4 * bits];
  auto field = [&](int width, int64_t first) {
    return bytes[first + r % (4 * width)] >> (r / (4 * width) * width) & ((1 << width) - 1);
  };
  const int upper = bits == 3 ? 2 : bits == 5 || bits == 6 ? 4 : bits, lower = bits - upper;
  return ((field(upper, 0) << lower) | (lower ? field(lower, 4 * upper) : 0)) - (1 << (bits - 1));
}

/// What was packed, by the formulas of the header, but for the sums.
QuantizedMatrix unpacked(const PanelLayout &l, const PackedWeight &packed) {
  const Scheme &scheme = l.scheme;
  const int64_t bytes = scaleBytes(scheme.scales);
  QuantizedMatrix q{scheme, l.rows, l.columns, {}, {scaleRows(scheme, l.rows), l.groups(), {}, {}}};
  for (int64_t row = 0; row < l.rows && scheme.outer; ++row) {
    float outer;
    std::memcpy(&outer, packed[WeightTensor::Outer].data() + row * sizeof(outer), sizeof(outer));
    q.params.outer.push_back(outer);
  }
  for (int64_t row = 0; row < l.rows; ++row)
    for (int64_t k = 0; k < l.columns; ++k)
      q.codes.push_back(static_cast<int8_t>(codeAt(packed[WeightTensor::Codes], l, row, k)));
  for (int64_t row = 0; row < q.params.rows; ++row)
    for (int64_t g = 0; g < q.params.groups; ++g) {
      const int64_t slice = row / 32 * q.params.groups + g, r = row % 32;
      uint32_t scale = 0;
      std::memcpy(&scale, &packed[WeightTensor::Scales][(slice * 32 + r) * bytes], bytes);
      q.params.scales.push_back(decodeScale(scale, scheme.scales) * q.params.outerOf(row));
      if (!scheme.symmetric) {
        q.params.zeroPoints.push_back(zeroPointAt(packed, scheme.bits, slice, r));
      }
    }
  return q;
}

TEST_P(PackedPanels, FollowTheFormulaAndComeBack) {
  CodeRange range = codeRange(scheme);
  int64_t groups = groupCount(columns, scheme.groupSize);
  QuantizedMatrix q{scheme, rows, columns, randomCodes(rows * columns, 1, range.min, range.max),
                    QParams{rows, groups, {}, {}}};
  q.params.scales = gaussian(rows * groups, 2);
  if (!scheme.symmetric)
    for (int8_t z : randomCodes(rows * groups, 3, range.min, range.max))
      q.params.zeroPoints.push_back(z);
  layout.withSums = true;
  PackedWeight packed = pack(layout, q);
  auto at = [&]<typename T>(WeightTensor tensor, int64_t index, T) {
    T value;
    std::memcpy(&value, packed[tensor].data() + index * sizeof(T), sizeof(T));
    return value;
  };
  size_t params = (rows + 31) / 32 * groups * 32;
  ASSERT_EQ(packed[WeightTensor::Codes].size(),
            size_t((rows + 31) / 32 * 32 * ((columns + 7) / 8 * 8) * scheme.bits / 8));
  ASSERT_EQ(packed[WeightTensor::Scales].size(), 4 * params);
  ASSERT_EQ(packed[WeightTensor::ZeroPoints].size(),
            scheme.symmetric ? 0 : params / 8 * scheme.bits);
  ASSERT_EQ(packed[WeightTensor::Sums].size(), 4 * params);
  ASSERT_TRUE(packed[WeightTensor::Outer].empty());
  for (int64_t row = 0; row < (rows + 31) / 32 * 32; ++row) {
    for (int64_t column = 0; column < paddedColumns(columns); ++column) {
      int expected = row < rows && column < columns ? q.codes[row * columns + column] : 0;
      ASSERT_EQ(codeAt(packed[WeightTensor::Codes], layout, row, column), expected)
          << row << ", " << column;
    }
    for (int64_t g = 0; g < groups; ++g) {
      int64_t slice = row / 32 * groups + g, r = row % 32, place = slice * 32 + r;
      bool inside = row < rows;
      int zero = inside && !scheme.symmetric ? q.params.zeroPoints[row * groups + g] : 0, sum = 0;
      for (int64_t k = 0; inside && k < columns; ++k)
        if (scheme.groupSize == 0 || k / scheme.groupSize == g)
          sum += q.codes[row * columns + k] - zero;
      ASSERT_EQ(at(WeightTensor::Scales, place, 0.0f),
                inside ? q.params.scales[row * groups + g] : 1.0f);
      ASSERT_EQ(at(WeightTensor::Sums, place, int32_t(0)), sum);
      if (!scheme.symmetric) {
        ASSERT_EQ(zeroPointAt(packed, scheme.bits, slice, r), zero);
      }
    }
  }
  QuantizedMatrix back = unpacked(layout, packed);
  EXPECT_EQ(back.codes, q.codes);
  EXPECT_EQ(back.params.scales, q.params.scales);
  EXPECT_EQ(back.params.zeroPoints, q.params.zeroPoints);

  // Blocks of rows one by one are the whole, in any order.
  PackedWeight blocks = layout.allocate();
  for (int64_t first = (rows - 1) / 32 * 32; first >= 0; first -= 32) {
    int64_t count = std::min<int64_t>(32, rows - first);
    auto part = [](const auto &values, int64_t from, int64_t to) {
      return std::vector(values.begin() + from, values.begin() + to);
    };
    QuantizedMatrix block{scheme,
                          count,
                          columns,
                          part(q.codes, first * columns, (first + count) * columns),
                          {count, groups, {}, {}}};
    block.params.scales = part(q.params.scales, first * groups, (first + count) * groups);
    if (!scheme.symmetric)
      block.params.zeroPoints = part(q.params.zeroPoints, first * groups, (first + count) * groups);
    layout.pack(first, block, blocks);
  }
  EXPECT_EQ(blocks.tensors, packed.tensors);
}

// Every value that b bits hold, symmetric or not, in every place of a block.
TEST(Panels, EveryCodeRoundTripsEverywhere) {
  constexpr int64_t rows = 33, columns = 9;
  for (int bits : {2, 3, 4, 5, 6, 8}) {
    PanelLayout layout = *panelLayout({bits, false, Granularity::Channel, 0, false}, rows, columns);
    int values = 1 << bits;
    std::vector<int8_t> codes(rows * columns);
    for (int first = 0; first < values; ++first) {
      for (size_t i = 0; i < codes.size(); ++i)
        codes[i] = static_cast<int8_t>((first + int(i)) % values - values / 2);
      QuantizedMatrix q{layout.scheme,
                        rows,
                        columns,
                        codes,
                        {rows, 1, std::vector<float>(rows, 1.0f), std::vector<int32_t>(rows)}};
      ASSERT_EQ(unpacked(layout, pack(layout, q)).codes, codes) << bits << " bits from " << first;
    }
  }
}

TEST_P(SymmetricPanels, OnePassGivesTheBitsOfTheSteps) {
  for (ScaleFormat scales : {ScaleFormat::F32, ScaleFormat::F16})
    for (float outlier : {0.0f, 5.0e5f}) {
      scheme.scales = scales;
      std::vector<float> w = gaussian(rows * columns, 3, outlier);
      ConstMatrix view(w.data(), rows, columns);
      auto q = quantize(view, scheme, {});
      ErrorSums error;
      auto onePass = quantizeAbsMax(view, scheme, 0, error);
      ASSERT_EQ(bool(q), bool(onePass)); // f16 does not hold every scale
      if (!q)
        continue;
      EXPECT_EQ(onePass->codes, q->codes);
      EXPECT_EQ(onePass->params.scales, q->params.scales);
      std::vector<float> back(w.size());
      dequantize(*q, Matrix(back.data(), rows, columns));
      double relative = relativeRms(w.data(), back.data(), w.size());
      // Both round: the codes times the scale here, the weights over the scale there.
      EXPECT_NEAR(error.relativeRms(), relative, 1e-5 * relative + 0x1p-23);
    }
}

const PackedShape symmetricShapes[] = {{1, 1, kInt8},
                                       {1, 1, grouped(4, 8)},
                                       {31, 7, kInt8},
                                       {32, 8, kInt8},
                                       {33, 9, grouped(4, 8)},
                                       {64, 576, kInt8},
                                       {70, 100, grouped(4, 48)},
                                       {5, 172, grouped(4, 128)},
                                       {96, 61, grouped(8, 32)},
                                       {34, 30, {4, true, Granularity::Channel, 0, false}},
                                       {1, 1, grouped(6, 8)},
                                       {70, 100, grouped(6, 48)},
                                       {33, 31, {6, true, Granularity::Channel, 0, false}},
                                       {1, 1, grouped(5, 8)},
                                       {70, 100, grouped(5, 48)},
                                       {33, 31, {5, true, Granularity::Channel, 0, false}},
                                       {1, 1, grouped(3, 8)},
                                       {70, 100, grouped(3, 48)},
                                       {33, 31, {3, true, Granularity::Channel, 0, false}},
                                       {1, 1, grouped(2, 8)},
                                       {70, 100, grouped(2, 64)},
                                       {33, 31, {2, true, Granularity::Channel, 0, false}}};
const PackedShape asymmetricShapes[] = {{33, 31, {8, false, Granularity::Channel, 0, false}},
                                        {70, 100, {4, false, Granularity::Group, 48, false}},
                                        {40, 65, {6, false, Granularity::Group, 32, false}},
                                        {70, 100, {5, false, Granularity::Group, 48, false}},
                                        {5, 172, {3, false, Granularity::Group, 128, false}},
                                        {40, 65, {2, false, Granularity::Group, 32, false}}};
INSTANTIATE_TEST_SUITE_P(Symmetric, PackedPanels, testing::ValuesIn(symmetricShapes));
INSTANTIATE_TEST_SUITE_P(Asymmetric, PackedPanels, testing::ValuesIn(asymmetricShapes));
INSTANTIATE_TEST_SUITE_P(Symmetric, SymmetricPanels, testing::ValuesIn(symmetricShapes));

TEST(PanelLayout, RepeatsTheParametersOfATensor) {
  Scheme scheme{8, false, Granularity::Tensor, 0, false};
  QuantizedMatrix q{scheme, 40, 12, randomCodes(40 * 12, 4, -128, 127), {1, 1, {0.25f}, {-7}}};
  auto layout = panelLayout(scheme, 40, 12);
  ASSERT_TRUE(layout);
  PackedWeight packed = pack(*layout, q);
  for (int64_t row = 0; row < 64; ++row) {
    float scale;
    std::memcpy(&scale, packed[WeightTensor::Scales].data() + 4 * row, 4);
    EXPECT_EQ(scale, row < 40 ? 0.25f : 1.0f);
    EXPECT_EQ(packed[WeightTensor::ZeroPoints][row], row < 40 ? 121 : 128);
  }
  QuantizedMatrix back = unpacked(*layout, packed);
  EXPECT_EQ(back.codes, q.codes);
  EXPECT_EQ(back.params.scales, q.params.scales);
  EXPECT_EQ(back.params.zeroPoints, q.params.zeroPoints);
}

TEST(PanelLayout, RefusesWhatKernelsCannotTake) {
  auto refused = [](const Scheme &scheme, int64_t rows, int64_t columns, const char *words) {
    auto layout = panelLayout(scheme, rows, columns);
    ASSERT_FALSE(layout);
    EXPECT_NE(layout.error().message.find(words), std::string::npos) << layout.error().message;
  };
  refused(grouped(4, 12), 8, 8, "such as 16");
  refused({8, true, Granularity::Token, 0, true}, 8, 8, "static");
  refused(grouped(7, 32), 8, 8, "2, 3, 4, 5, 6 or 8");
  refused(kInt8, 0, 8, "0 x 8");
  refused(kInt8, 8, -1, "8 x -1");
}

TEST(WeightLayout, IsFoundByItsName) {
  const Scheme scheme{4, false, Granularity::Group, 32, false};
  for (std::string_view name : {"panel", "m16n8k32", "m16n8k16"}) {
    const LayoutKind *kind = findLayoutKind(name);
    ASSERT_TRUE(kind) << name;
    auto layout = kind->make(scheme, 70, 64);
    ASSERT_TRUE(layout) << layout.error().message;
    (*layout)->withSums = true;
    EXPECT_FALSE((*layout)->shape(WeightTensor::Sums).empty());
    EXPECT_EQ((*layout)->bytes(WeightTensor::Scales), (*layout)->bytes(WeightTensor::Sums));
    EXPECT_EQ((*layout)->bytes(WeightTensor::Outer), 0);
    EXPECT_FALSE(kind->make(scheme, 0, 64)) << name;
  }
  EXPECT_EQ(findLayoutKind("wgmma"), nullptr);
}

TEST(PanelLayout, KeepsScalesInTheirFormat) {
  const Codebook *nf4 = Codebook::nf4();
  for (Scheme scheme :
       {Scheme{.bits = 4, .granularity = kGroup, .groupSize = 16, .scales = ScaleFormat::F16},
        Scheme{.bits = 8, .codes = CodeFormat::F8E4M3FN, .scales = ScaleFormat::BF16},
        Scheme{.bits = 4,
               .granularity = kGroup,
               .groupSize = 32,
               .codes = CodeFormat::F4E2M1FN,
               .scales = ScaleFormat::F8E8M0FNU},
        Scheme{.bits = 4,
               .granularity = kGroup,
               .groupSize = 64,
               .codes = CodeFormat::Table,
               .scales = ScaleFormat::F16,
               .table = nf4},
        Scheme{.bits = 4,
               .granularity = kGroup,
               .groupSize = 16,
               .codes = CodeFormat::F4E2M1FN,
               .scales = ScaleFormat::F8E4M3FN,
               .outer = true}}) {
    std::vector<float> w = gaussian(45 * 70, 11);
    auto q = quantize(ConstMatrix(w.data(), 45, 70), scheme, {});
    ASSERT_TRUE(q) << q.error().message;
    auto layout = panelLayout(scheme, 45, 70);
    ASSERT_TRUE(layout);
    PackedWeight packed = pack(*layout, *q);
    EXPECT_EQ(std::ssize(packed[WeightTensor::Scales]),
              64 * layout->groups() * scaleBytes(scheme.scales));
    EXPECT_EQ(packed[WeightTensor::Outer].size(), scheme.outer ? 256u : 0u);
    QuantizedMatrix back = unpacked(*layout, packed);
    EXPECT_EQ(back.codes, q->codes) << toString(scheme);
    EXPECT_EQ(back.params.scales, q->params.scales) << toString(scheme);
    for (int64_t row = 0; row < 45; ++row)
      EXPECT_EQ(back.params.outerOf(row), q->params.outerOf(row));
  }
}

TEST(OnePass, NamesTheRowOfTheMatrix) {
  std::vector<float> w(40 * 16, 1.0f);
  w[37 * 16 + 5] = std::numeric_limits<float>::infinity();
  ErrorSums error;
  ConstMatrix view(w.data(), 40, 16);
  EXPECT_TRUE(quantizeAbsMax(view.middleRows(0, 32), grouped(4, 8), 0, error));
  auto result = quantizeAbsMax(view.middleRows(32, 8), grouped(4, 8), 32, error);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("row 37, column 5"), std::string::npos);
  EXPECT_FALSE(quantizeAbsMax(view, {8, false, Granularity::Channel, 0, false}, 0, error));
}

} // namespace
