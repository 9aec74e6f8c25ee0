//===- PackingTest.cpp ----------------------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Packing.h"
#include "easyquant/Numerics/ScaleRules.h"

#include "RandomData.h"

#include <gtest/gtest.h>

#include <limits>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

constexpr Scheme kInt8{8, true, Granularity::Channel, 0, false};
Scheme grouped(int bits, int64_t groupSize) {
  return {bits, true, Granularity::Group, groupSize, false};
}

struct Shape {
  int64_t rows, columns;
  Scheme scheme;
};
class Panels : public testing::TestWithParam<Shape> {
protected:
  int64_t rows = GetParam().rows, columns = GetParam().columns;
  Scheme scheme = GetParam().scheme;
  PanelLayout layout = *panelLayout(scheme, rows, columns);
};

/// The code at (row, column) by the formula of the header, 0 in the padding.
int codeAt(const std::vector<uint8_t> &packed, const PanelLayout &l, int64_t row, int64_t column) {
  int64_t kp = paddedColumns(l.columns), p = row / 32, r = row % 32;
  if (l.scheme.bits == 8)
    return packed[((p * (kp / 4) + column / 4) * 32 + r) * 4 + column % 4] - 128;
  int byte = packed[((p * (kp / 8) + column / 8) * 32 + r) * 4 + column % 4];
  return (column % 8 < 4 ? byte & 15 : byte >> 4) - 8;
}

TEST_P(Panels, FollowTheFormulaAndComeBack) {
  CodeRange range = codeRange(scheme);
  int64_t groups = groupCount(columns, scheme.groupSize);
  QuantizedMatrix q{scheme, rows, columns, randomCodes(rows * columns, 1, range.min, range.max),
                    QParams{rows, groups, {}, {}}};
  q.params.scales = gaussian(rows * groups, 2);
  PackedWeights packed = packPanels(layout, q);
  ASSERT_EQ(packed.codes.size(),
            size_t((rows + 31) / 32 * 32 * ((columns + 7) / 8 * 8) * scheme.bits / 8));
  ASSERT_EQ(packed.scales.size(), size_t((rows + 31) / 32 * groups * 32));
  for (int64_t row = 0; row < (rows + 31) / 32 * 32; ++row) {
    for (int64_t column = 0; column < paddedColumns(columns); ++column) {
      int expected = row < rows && column < columns ? q.codes[row * columns + column] : 0;
      ASSERT_EQ(codeAt(packed.codes, layout, row, column), expected) << row << ", " << column;
    }
    for (int64_t g = 0; g < groups; ++g) {
      float expected = row < rows ? q.params.scales[row * groups + g] : 1.0f;
      ASSERT_EQ(packed.scales[(row / 32 * groups + g) * 32 + row % 32], expected);
    }
  }
  auto back = unpackPanels(packed);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->codes, q.codes);
  EXPECT_EQ(back->params.scales, q.params.scales);
}

TEST_P(Panels, OnePassGivesTheBitsOfTheSteps) {
  for (float outlier : {0.0f, 5.0e5f}) {
    std::vector<float> w = gaussian(rows * columns, 3, outlier);
    ConstMatrix view(w.data(), rows, columns);
    auto q = quantize(view, scheme, {});
    ASSERT_TRUE(q);
    PackedWeights expected = packPanels(layout, *q);
    std::vector<float> back(w.size());
    dequantize(*q, Matrix(back.data(), rows, columns));

    PackedWeights packed{layout, std::vector<uint8_t>(layout.codeBytes(), 0xcd),
                         std::vector<float>(layout.scaleCount(), -1)};
    ErrorSums error;
    for (int64_t p = 0; p < layout.panels(); ++p)
      ASSERT_TRUE(quantizePanelAbsMax(layout, view, p,
                                      packed.codes.data() + p * layout.panelBytes(),
                                      packed.scales.data() + p * layout.panelScales(), error));
    EXPECT_EQ(packed.codes, expected.codes);
    EXPECT_EQ(packed.scales, expected.scales);
    double relative = relativeRms(w.data(), back.data(), w.size());
    EXPECT_NEAR(error.relativeRms(), relative, 1e-12 * relative);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Panels,
                         testing::Values(Shape{1, 1, kInt8}, Shape{1, 1, grouped(4, 8)},
                                         Shape{31, 7, kInt8}, Shape{32, 8, kInt8},
                                         Shape{33, 9, grouped(4, 8)}, Shape{64, 576, kInt8},
                                         Shape{70, 100, grouped(4, 48)},
                                         Shape{5, 172, grouped(4, 128)},
                                         Shape{96, 61, grouped(8, 32)},
                                         Shape{34, 30, {4, true, Granularity::Channel, 0, false}}));

TEST(PanelLayout, RepeatsTheScaleOfATensor) {
  Scheme scheme{8, true, Granularity::Tensor, 0, false};
  std::vector<float> w = gaussian(40 * 12, 4);
  auto q = quantize(ConstMatrix(w.data(), 40, 12), scheme, {});
  auto layout = panelLayout(scheme, 40, 12);
  ASSERT_TRUE(q && layout);
  PackedWeights packed = packPanels(*layout, *q);
  for (int64_t row = 0; row < 64; ++row)
    EXPECT_EQ(packed.scales[row], row < 40 ? q->params.scales[0] : 1.0f);
  auto back = unpackPanels(packed);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->params.scales, q->params.scales);
}

TEST(PanelLayout, RefusesWhatKernelsCannotTake) {
  auto refused = [](const Scheme &scheme, int64_t rows, int64_t columns, const char *words) {
    auto layout = panelLayout(scheme, rows, columns);
    ASSERT_FALSE(layout);
    EXPECT_NE(layout.error().message.find(words), std::string::npos) << layout.error().message;
  };
  refused(grouped(4, 12), 8, 8, "such as 16");
  refused(grouped(3, 32), 8, 8, "int8 and int4");
  refused({8, false, Granularity::Channel, 0, false}, 8, 8, "symmetric");
  refused({8, true, Granularity::Token, 0, true}, 8, 8, "static");
  refused(grouped(5, 32), 8, 8, "2, 3, 4 or 8");
  refused(kInt8, 0, 8, "0 x 8");
  refused(kInt8, 8, -1, "8 x -1");
}

TEST(Panel, NamesTheRowOfTheMatrix) {
  std::vector<float> w(40 * 16, 1.0f);
  w[37 * 16 + 5] = std::numeric_limits<float>::infinity();
  PanelLayout layout = *panelLayout(grouped(4, 8), 40, 16);
  std::vector<uint8_t> codes(layout.panelBytes());
  std::vector<float> scales(layout.panelScales());
  ErrorSums error;
  ConstMatrix view(w.data(), 40, 16);
  EXPECT_TRUE(quantizePanelAbsMax(layout, view, 0, codes.data(), scales.data(), error));
  auto result = quantizePanelAbsMax(layout, view, 1, codes.data(), scales.data(), error);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("row 37, column 5"), std::string::npos);
  EXPECT_FALSE(quantizePanelAbsMax(layout, view, 2, codes.data(), scales.data(), error));
  EXPECT_FALSE(unpackPanels({layout, codes, scales}));
}

TEST(Dense, FieldsLieWhereTheHeaderSays) {
  for (int bits : {2, 3, 4, 8})
    for (int64_t count : {0, 1, 7, 8, 9, 100}) {
      int half = 1 << (bits - 1);
      std::vector<int8_t> codes = randomCodes(count, bits, -half, half - 1), back(count);
      std::vector<uint8_t> packed(denseBytes(count, bits), 0xff);
      ASSERT_TRUE(packDense(codes, bits, packed));
      for (int64_t bit = 0; bit < int64_t(packed.size()) * 8; ++bit) {
        int64_t field = bit / bits;
        int expected = field < count ? (codes[field] + half) >> (bit % bits) & 1 : 0;
        ASSERT_EQ(packed[bit / 8] >> (bit % 8) & 1, expected);
      }
      ASSERT_TRUE(unpackDense(packed, bits, back));
      EXPECT_EQ(back, codes);
    }
}

TEST(Dense, Refuses) {
  std::vector<int8_t> codes = {0, 1, 4};
  std::vector<uint8_t> room(2), less(1);
  auto outside = packDense(codes, 3, room);
  ASSERT_FALSE(outside);
  EXPECT_EQ(outside.error().message, "code 4 at 2: 3 bits hold [-4, 3]");
  EXPECT_FALSE(packDense(codes, 4, less));
  EXPECT_FALSE(packDense(codes, 5, room));
  EXPECT_FALSE(unpackDense(less, 4, codes));
}

} // namespace
