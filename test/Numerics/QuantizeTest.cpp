//===- QuantizeTest.cpp ---------------------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The oracle is one scalar line of the definition per element, with std::nearbyint for rounding
// (round to nearest even is the default mode) and double precision for error bounds.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Quantize.h"
#include "easyquant/Numerics/ScaleRules.h"

#include "RandomData.h"
#include "SchemeKinds.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

int32_t clampTo(double v, CodeRange range) {
  return static_cast<int32_t>(std::min<double>(std::max<double>(v, range.min), range.max));
}

struct AbsMaxCase {
  int64_t rows, columns;
  Scheme scheme;
};

class AbsMaxScales : public testing::TestWithParam<AbsMaxCase> {};

TEST_P(AbsMaxScales, MatchesTheDefinitionElementByElement) {
  auto [rows, columns, scheme] = GetParam();
  for (float outlier : {0.0f, 1.0e6f, -3.0e38f, 1.0e-40f}) {
    std::vector<float> x = gaussian(rows * columns, rows * 131 + columns, outlier);
    ConstMatrix view(x.data(), rows, columns);
    auto q = quantize(view, scheme, {});
    ASSERT_TRUE(q) << q.error().message;
    CodeRange range = codeRange(scheme);
    int64_t groups = groupCount(columns, scheme.groupSize);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        // Everything that shares a scale with (i, j), found by asking each element.
        auto shares = [&](int64_t r, int64_t c) {
          if (scheme.granularity == Granularity::Tensor)
            return true;
          return r == i && (scheme.groupSize == 0 || c / scheme.groupSize == j / scheme.groupSize);
        };
        float absMax = 0;
        int64_t firstRow = scheme.granularity == Granularity::Tensor ? 0 : i;
        int64_t lastRow = scheme.granularity == Granularity::Tensor ? rows : i + 1;
        for (int64_t r = firstRow; r < lastRow; ++r)
          for (int64_t c = 0; c < columns; ++c)
            if (shares(r, c))
              absMax = std::max(absMax, std::fabs(view(r, c)));
        float scale = absMax < kMinAbsMax ? 1 : absMax / range.max;
        int64_t g = scheme.groupSize == 0 ? 0 : j / scheme.groupSize;
        int64_t index = (scheme.granularity == Granularity::Tensor ? 0 : i * groups) + g;
        ASSERT_EQ(q->params.scales[index], scale);
        int32_t expected = clampTo(std::nearbyint(view(i, j) / scale), range);
        ASSERT_EQ(q->codes[i * columns + j], expected) << "at " << i << ", " << j;
      }
    // |x - xhat| <= s / 2, up to the rounding of x / s and of s * q themselves.
    std::vector<float> back(x.size());
    dequantize(*q, Matrix(back.data(), rows, columns));
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        int64_t g = scheme.groupSize == 0 ? 0 : j / scheme.groupSize;
        double scale = q->params.scales[(q->params.rows == 1 ? 0 : i * groups) + g];
        ASSERT_LE(std::fabs(double(x[i * columns + j]) - back[i * columns + j]),
                  scale * (0.5 + 1e-4));
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AbsMaxScales,
                         testing::Values(AbsMaxCase{1, 1, {8, true, kChannel, 0}},
                                         AbsMaxCase{1, 1, {4, true, kGroup, 32}},
                                         AbsMaxCase{3, 100, {4, true, kGroup, 48}},
                                         AbsMaxCase{5, 31, {8, true, kGroup, 8}},
                                         AbsMaxCase{17, 64, {8, true, kChannel, 0}},
                                         AbsMaxCase{4, 257, {3, true, kChannel, 0}},
                                         AbsMaxCase{7, 33, {2, true, kGroup, 16}},
                                         AbsMaxCase{6, 19, {8, true, kTensor, 0}},
                                         AbsMaxCase{2, 130, {4, true, kGroup, 128}},
                                         AbsMaxCase{33, 7, {4, true, kTensor, 0}}));

TEST(Quantize, RoundsHalfToEven) {
  // absmax 127 gives scale 1, so that the values are the quotients.
  std::vector<float> x = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f, -126.5f, 0.49999997f};
  auto q = quantize(ConstMatrix(x.data(), 1, x.size()), Scheme{}, {});
  ASSERT_TRUE(q);
  EXPECT_EQ(q->params.scales[0], 1.0f);
  EXPECT_EQ(q->codes, (std::vector<int8_t>{127, 0, 2, 2, 0, -2, -2, 126, -126, 0}));
}

TEST(Quantize, AsymmetricCodesUseTheFullRange) {
  Scheme scheme{4, false, Granularity::Channel, 0, false};
  QParams params{1, 1, {0.5f}, {-3}};
  std::vector<float> x = {-100, -2.5f, 0, 0.25f, 0.75f, 4.75f, 5, 1e38f};
  std::vector<int8_t> codes(x.size());
  ASSERT_TRUE(quantize(ConstMatrix(x.data(), 1, x.size()), scheme, params, codes));
  EXPECT_EQ(codes, (std::vector<int8_t>{-8, -8, -3, -3, -1, 7, 7, 7}));
  std::vector<float> back(x.size());
  dequantize(QuantizedMatrix{scheme, 1, 8, codes, params}, Matrix(back.data(), 1, 8));
  EXPECT_EQ(back, (std::vector<float>{-2.5f, -2.5f, 0, 0, 1, 5, 5, 5}));
}

TEST(Quantize, EmptyZeroAndVanishingSlices) {
  const float below = std::nextafter(kMinAbsMax, 0.0f);
  for (float value : {0.0f, -0.0f, std::numeric_limits<float>::denorm_min(), -below}) {
    std::vector<float> x(24, value);
    auto q = quantize(ConstMatrix(x.data(), 2, 12), Scheme{4, true, kGroup, 8, false}, {});
    ASSERT_TRUE(q);
    EXPECT_EQ(q->params.scales, std::vector<float>(4, 1.0f));
    EXPECT_EQ(q->codes, std::vector<int8_t>(24, 0));
    auto tokens = quantizeTokens(ConstMatrix(x.data(), 2, 12), 8);
    ASSERT_TRUE(tokens);
    EXPECT_EQ(tokens->scales, std::vector<float>(2, 1.0f));
    EXPECT_EQ(tokens->codes, std::vector<int8_t>(2 * 16, 0));
  }
  EXPECT_TRUE(quantize(ConstMatrix(nullptr, 0, 16), Scheme{}, {}));
  EXPECT_TRUE(quantize(ConstMatrix(nullptr, 0, 0), Scheme{8, true, kTensor, 0, false}, {}));
}

TEST(Quantize, ScalesAreNormalFromTheThresholdUp) {
  for (float value : {kMinAbsMax, std::numeric_limits<float>::max()}) {
    auto q = quantize(ConstMatrix(&value, 1, 1), Scheme{}, {});
    ASSERT_TRUE(q);
    EXPECT_TRUE(std::isnormal(q->params.scales[0]));
    EXPECT_EQ(q->codes[0], 127);
    auto tokens = quantizeTokens(ConstMatrix(&value, 1, 1), 0);
    ASSERT_TRUE(tokens);
    EXPECT_TRUE(std::isnormal(tokens->scales[0]));
    EXPECT_EQ(tokens->codes[0], 127);
    EXPECT_TRUE(std::isfinite(127.0f / value));
  }
}

TEST(Quantize, RefusesWhatIsNotFinite) {
  for (float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x(60, 1.0f);
    x[2 * 20 + 13] = bad;
    ConstMatrix view(x.data(), 3, 20);
    QParams ones{3, 1, {1, 1, 1}, {}};
    std::vector<int8_t> codes(60);
    for (const auto &error :
         {chooseQParams(view, Scheme{}, {}).error(), quantizeTokens(view, 0).error(),
          chooseQParams(view, Scheme{4, true, kGroup, 8, false}, {}).error(),
          quantize(view, Scheme{}, ones, codes).error()}) {
      EXPECT_EQ(error.code, ErrorCode::InvalidArgument);
      EXPECT_NE(error.message.find("row 2, column 13"), std::string::npos) << error.message;
    }
  }
}

TEST(Quantize, RefusesParametersThatDoNotFit) {
  std::vector<float> x(32, 1.0f);
  std::vector<int8_t> codes(32);
  ConstMatrix view(x.data(), 2, 16);
  Scheme asymmetric{8, false, kChannel, 0, false};
  EXPECT_FALSE(quantize(view, Scheme{}, QParams{1, 1, {1}, {}}, codes));
  EXPECT_FALSE(quantize(view, Scheme{}, QParams{2, 1, {1, 0}, {}}, codes));
  EXPECT_FALSE(quantize(view, Scheme{}, QParams{2, 1, {1, -1}, {}}, codes));
  EXPECT_FALSE(quantize(view, Scheme{}, QParams{2, 1, {1, NAN}, {}}, codes));
  EXPECT_FALSE(quantize(view, Scheme{}, QParams{2, 1, {1, 1}, {0, 0}}, codes));
  EXPECT_FALSE(quantize(view, asymmetric, QParams{2, 1, {1, 1}, {0, 128}}, codes));
  EXPECT_FALSE(quantize(view, Scheme{}, QParams{2, 1, {1, 1}, {}}, std::span(codes).first(31)));
  EXPECT_FALSE(chooseQParams(view, asymmetric, {}));
  EXPECT_FALSE(chooseQParams(ConstMatrix(x.data(), 2, 16, 15), Scheme{}, {}));
  EXPECT_TRUE(quantize(view, asymmetric, QParams{2, 1, {1, 1}, {0, 127}}, codes));
}

TEST(QuantizeTokens, MatchesTheDefinition) {
  for (int64_t columns : {1, 7, 8, 9, 64, 100, 577})
    for (int64_t groupSize : {0, 8, 48}) {
      const int64_t rows = 5, stride = columns + 3;
      std::vector<float> x = gaussian(rows * stride, columns);
      x[stride + columns / 2] = 4000.0f;          // an attention sink's outlier
      std::fill_n(&x[2 * stride], columns, 0.0f); // an all-zero row
      ConstMatrix view(x.data(), rows, columns, stride);
      auto q = quantizeTokens(view, groupSize);
      ASSERT_TRUE(q);
      ASSERT_EQ(q->paddedColumns % 8, 0);
      ASSERT_LT(q->paddedColumns - columns, 8);
      for (int64_t i = 0; i < rows; ++i) {
        float absMax = 0;
        for (int64_t j = 0; j < columns; ++j)
          absMax = std::max(absMax, std::fabs(view(i, j)));
        ASSERT_EQ(q->scales[i], absMax == 0 ? 1.0f : absMax / 127.0f);
        std::vector<int32_t> sums(q->groups, 0);
        for (int64_t j = 0; j < q->paddedColumns; ++j) {
          int32_t expected = 0;
          if (j < columns && absMax != 0) {
            float inverse = 127.0f / absMax;
            expected = static_cast<int32_t>(std::nearbyint(view(i, j) * inverse));
            sums[groupSize == 0 ? 0 : j / groupSize] += expected;
          }
          ASSERT_EQ(q->codes[i * q->paddedColumns + j], expected);
          ASSERT_LE(std::abs(expected), 127);
        }
        ASSERT_EQ(sums, std::vector<int32_t>(q->sums.begin() + i * q->groups,
                                             q->sums.begin() + (i + 1) * q->groups));
      }
      std::vector<float> back(rows * columns);
      dequantize(*q, Matrix(back.data(), rows, columns));
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j)
          ASSERT_LE(std::fabs(back[i * columns + j] - view(i, j)), q->scales[i] * 0.5001f);
    }
}

// The header's claim: no value ever leaves [-127, 127] without a clamp.
TEST(QuantizeTokens, ReciprocalNeedsNoClamp) {
  std::mt19937 random(7);
  for (int i = 0; i < 2000000; ++i) {
    uint32_t bits = random() & 0x7fffffff;
    float absMax = std::bit_cast<float>(bits);
    if (!std::isfinite(absMax) || absMax < kMinAbsMax)
      continue;
    float inverse = 127.0f / absMax;
    ASSERT_LE(std::nearbyint(absMax * inverse), 127.0f) << absMax;
    ASSERT_GE(std::nearbyint(absMax * inverse), 127.0f) << absMax;
  }
}

class StaticTokens : public testing::TestWithParam<std::tuple<bool, int64_t>> {};

TEST_P(StaticTokens, MatchTheDefinitionElementByElement) {
  auto [symmetric, groupSize] = GetParam();
  Scheme scheme{8, symmetric, Granularity::Tensor, 0, false};
  CodeRange range = codeRange(scheme);
  const int64_t M = 5, K = 100;
  for (float scale : {0.03f, 1.0f, 3e-38f, 0x1p126f})
    for (int32_t zero : symmetric ? std::vector{0} : std::vector{-128, -3, 0, 127}) {
      std::vector<float> x = gaussian(M * K, 6, 3e38f);
      x[3] = 2.5f * scale;
      auto q = quantizeTokens({x.data(), M, K}, scheme, scale, zero, groupSize);
      ASSERT_TRUE(q) << q.error().message;
      ASSERT_EQ(q->zeroPoints.size(), size_t(symmetric ? 0 : M));
      float inverse = 1 / scale;
      for (int64_t m = 0; m < M; ++m) {
        EXPECT_EQ(q->scales[m], scale);
        std::vector<int32_t> sums(q->groups);
        for (int64_t k = 0; k < q->paddedColumns; ++k) {
          int32_t expected = 0;
          if (k < K) {
            float scaled = x[m * K + k] * inverse;
            expected = clampTo(std::nearbyint(scaled) + double(zero), range);
            sums[groupSize == 0 ? 0 : k / groupSize] += expected;
          }
          ASSERT_EQ(q->codes[m * q->paddedColumns + k], expected) << m << ", " << k;
        }
        for (int64_t g = 0; g < q->groups; ++g)
          EXPECT_EQ(q->sums[m * q->groups + g], sums[g]);
      }
    }
}
INSTANTIATE_TEST_SUITE_P(Forms, StaticTokens,
                         testing::Combine(testing::Bool(), testing::Values(0, 48)));

/// Row by row as definition 3 where every x / s is within half a step of the codes, else as 2.
TEST(StaticTokens, HaveOwnScalesWhereTheyLeaveTheRange) {
  const int64_t K = 40, groupSize = 16;
  const float scale = 0.25f;
  for (auto [symmetric, full, zero] :
       {std::tuple(true, false, 0), {true, true, 0}, {false, false, -128}, {false, false, 40}}) {
    Scheme scheme{8, symmetric, Granularity::Tensor, 0, false, full};
    Scheme apart = scheme;
    apart.sinks = true;
    CodeRange range = codeRange(scheme);
    double low = range.min - zero - 0.5, high = range.max - zero + 0.5;
    // Exactly at either end and a little beyond; far beyond; tiny; within.
    for (double end : {low, high, low - 0.125, high + 0.125, 3000.0, -3000.0, 1e-30, 1.0}) {
      std::vector<float> x = gaussian(K, 9);
      for (float &value : x)
        value = std::fabs(value); // which all of these ranges hold
      x[17] = static_cast<float>(end * scale);
      ConstMatrix row(x.data(), 1, K);
      bool leaves = end < low || end > high;
      auto q = quantizeTokens(row, apart, scale, zero, groupSize);
      auto expected = leaves ? quantizeTokens(row, groupSize)
                             : quantizeTokens(row, scheme, scale, zero, groupSize);
      ASSERT_TRUE(q && expected);
      EXPECT_EQ(q->codes, expected->codes) << end;
      EXPECT_EQ(q->scales, expected->scales) << end;
      EXPECT_EQ(q->sums, expected->sums) << end;
      if (!symmetric) {
        EXPECT_EQ(q->zeroPoints, std::vector<int32_t>{leaves ? 0 : zero}) << end;
      }
    }
  }
}

TEST(StaticTokens, Refuses) {
  std::vector<float> x(8, 1.0f);
  ConstMatrix view(x.data(), 1, 8);
  Scheme symmetric{8, true, Granularity::Tensor, 0, false}, asymmetric = symmetric;
  asymmetric.symmetric = false;
  EXPECT_TRUE(quantizeTokens(view, asymmetric, 0.1f, -128, 0));
  for (float scale : {0.0f, -1.0f, 1e-39f, INFINITY, NAN, 0x1p127f})
    EXPECT_FALSE(quantizeTokens(view, symmetric, scale, 0, 0)) << scale;
  EXPECT_FALSE(quantizeTokens(view, symmetric, 0.1f, 1, 0));
  EXPECT_FALSE(quantizeTokens(view, asymmetric, 0.1f, 128, 0));
  EXPECT_FALSE(quantizeTokens(view, {4, true, Granularity::Tensor, 0, false}, 0.1f, 0, 0));
  EXPECT_FALSE(quantizeTokens(view, {8, true, Granularity::Channel, 0, false}, 0.1f, 0, 0));
  EXPECT_FALSE(quantizeTokens(view, symmetric, 0.1f, 0, -8));
  x[5] = NAN;
  auto notFinite = quantizeTokens(view, symmetric, 0.1f, 0, 0);
  ASSERT_FALSE(notFinite);
  EXPECT_NE(notFinite.error().message.find("row 0, column 5"), std::string::npos);
}

} // namespace
