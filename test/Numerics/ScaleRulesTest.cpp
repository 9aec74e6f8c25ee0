//===- ScaleRulesTest.cpp - Ranges, scales and zero points ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Oracles: the formulas of ScaleRules.h in double precision, slice by slice.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/ScaleRules.h"

#include "RandomData.h"
#include "SchemeKinds.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

Scheme kind(int bits, bool symmetric, bool fullRange, Granularity granularity = kChannel,
            int64_t groupSize = 0) {
  return {bits, symmetric, granularity, groupSize, false, fullRange};
}

/// The values of slice (i, g), in order.
std::vector<float> sliceOf(ConstMatrix x, const Scheme &scheme, int64_t i, int64_t g) {
  std::vector<float> slice;
  for (int64_t r = 0; r < x.rows; ++r)
    for (int64_t c = 0; c < x.columns; ++c)
      if ((scheme.granularity == kTensor || r == i) &&
          (scheme.groupSize == 0 || c / scheme.groupSize == g))
        slice.push_back(x(r, c));
  return slice;
}

void expectParams(const SliceParams &actual, const Scheme &scheme, double lo, double hi) {
  lo = std::min(lo, 0.0);
  hi = std::max(hi, 0.0);
  double codes = std::ldexp(1.0, scheme.bits), t = std::max(-lo, hi);
  double scale = !scheme.symmetric  ? (hi - lo) / (codes - 1)
                 : scheme.fullRange ? t / (codes / 2 - 0.5)
                                    : t / (codes / 2 - 1);
  ASSERT_NEAR(actual.scale, scale, scale * 2e-7) << toString(scheme);
  double zeroPoint = scheme.symmetric ? 0 : -codes / 2 - lo / scale;
  // Half a code, and a little where the quotient lies at a tie.
  ASSERT_NEAR(actual.zeroPoint, zeroPoint, scheme.symmetric ? 0 : 0.5 + 1e-4) << toString(scheme);
}

struct Shape {
  int64_t rows, columns;
  Granularity granularity;
  int64_t groupSize;
};
class Extremes : public testing::TestWithParam<Shape> {};

TEST_P(Extremes, ScalesFollowFromAllValuesOfTheSlice) {
  auto [rows, columns, granularity, groupSize] = GetParam();
  for (float outlier : {0.0f, 50.0f, -3.0e38f}) {
    std::vector<float> x = gaussian(rows * (columns + 3), rows * 7 + columns, outlier);
    ConstMatrix view(x.data(), rows, columns, columns + 3);
    for (const Scheme &scheme : allKinds(granularity, groupSize)) {
      auto params = chooseQParams(view, scheme, {extremesRule(scheme)});
      ASSERT_TRUE(params) << params.error().message;
      ASSERT_EQ(params->rows, scaleRows(scheme, rows));
      ASSERT_EQ(params->zeroPoints.empty(), scheme.symmetric);
      for (int64_t i = 0; i < params->rows; ++i)
        for (int64_t g = 0; g < params->groups; ++g) {
          std::vector<float> slice = sliceOf(view, scheme, i, g);
          auto [lo, hi] = std::minmax_element(slice.begin(), slice.end());
          int64_t at = i * params->groups + g;
          expectParams({params->scales[at], scheme.symmetric ? 0 : params->zeroPoints[at]}, scheme,
                       *lo, *hi);
        }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Shapes, Extremes,
                         testing::Values(Shape{1, 1, kChannel, 0}, Shape{3, 17, kTensor, 0},
                                         Shape{2, 100, kGroup, 48}, Shape{17, 31, kGroup, 8},
                                         Shape{5, 257, kChannel, 0}, Shape{2, 7, kGroup, 128}));

TEST(ScaleRules, EveryValueInsideIsWithinHalfAScale) {
  std::vector<float> x = gaussian(9 * 130, 5, -20.0f);
  ConstMatrix view(x.data(), 9, 130);
  for (const Scheme &scheme : allKinds(kGroup, 48)) {
    auto q = quantize(view, scheme, {extremesRule(scheme)});
    ASSERT_TRUE(q) << q.error().message;
    std::vector<float> back(x.size());
    dequantize(*q, Matrix(back.data(), 9, 130));
    for (int64_t i = 0; i < 9 * 130; ++i) {
      float scale = q->params.scales[i / 130 * 3 + i % 130 / 48];
      //
      ASSERT_LE(std::fabs(x[i] - back[i]), scale * 0.5001);
    }
  }
}

TEST(ScaleRules, ZeroIsACodeAndConstantsAreRepresented) {
  for (float value : {5.0f, -5.0f, 1e-30f, -FLT_MAX / 2}) {
    std::vector<float> x(40, value);
    x[7] = 0;
    for (const Scheme &scheme : allKinds(kTensor))
      for (ScaleRuleKind rule : {extremesRule(scheme), ScaleRuleKind::Mse, ScaleRuleKind::Entropy,
                                 ScaleRuleKind::Percentile}) {
        auto q = quantize(ConstMatrix(x.data(), 1, 40), scheme, {rule});
        ASSERT_TRUE(q) << q.error().message;
        std::vector<float> back(40);
        dequantize(*q, Matrix(back.data(), 1, 40));
        EXPECT_EQ(back[7], 0);
        EXPECT_NEAR(back[0] / value, 1, scheme.fullRange ? 0.34 / (1 << (scheme.bits - 2)) : 1e-6)
            << toString(scheme) << ", " << toString(rule);
      }
  }
}

TEST(ScaleRules, ZeroSlicesHaveScaleOneAndCodesZero) {
  for (float value : {0.0f, -0.0f, FLT_TRUE_MIN, -std::nextafter(kMinAbsMax, 0.0f)}) {
    std::vector<float> x(24, value);
    for (const Scheme &scheme : allKinds(kGroup, 8))
      for (ScaleRuleKind rule : {extremesRule(scheme), ScaleRuleKind::Percentile,
                                 ScaleRuleKind::Mse, ScaleRuleKind::Entropy}) {
        auto q = quantize(ConstMatrix(x.data(), 2, 12), scheme, {rule});
        ASSERT_TRUE(q) << q.error().message;
        EXPECT_EQ(q->params.scales, std::vector<float>(4, 1.0f));
        EXPECT_EQ(q->codes, std::vector<int8_t>(24, 0));
      }
  }
}

TEST(ScaleRules, ScalesAreNormalAcrossTheRangeOfFloats) {
  for (float t = kMinAbsMax; std::isfinite(t); t *= 1000)
    for (const Scheme &scheme : allKinds())
      for (auto [lo, hi] : {std::pair(-t, t), {0.0f, t}, {-t, 0.0f}}) {
        SliceParams params = paramsOfRange(lo, hi, scheme);
        EXPECT_TRUE(std::isnormal(params.scale)) << t << " " << toString(scheme);
        CodeRange range = codeRange(scheme);
        EXPECT_GE(params.zeroPoint, range.min);
        EXPECT_LE(params.zeroPoint, range.max);
      }
}

TEST(ScaleRules, Refused) {
  std::vector<float> x(60, 1.0f);
  ConstMatrix view(x.data(), 3, 20);
  auto expectError = [&](const Scheme &scheme, const ScaleRule &rule, const char *words) {
    auto params = chooseQParams(view, scheme, rule);
    ASSERT_FALSE(params);
    EXPECT_EQ(params.error().code, ErrorCode::InvalidArgument);
    EXPECT_NE(params.error().message.find(words), std::string::npos) << params.error().message;
  };
  expectError(kind(8, false, false), {ScaleRuleKind::AbsMax}, "take zeropoint");
  expectError(kind(8, true, false), {ScaleRuleKind::ZeroPoint}, "take absmax");
  expectError(kind(8, true, true), {ScaleRuleKind::AbsMax}, "take symmetric");
  for (double p : {50.0, 100.5, -1.0, double(NAN)})
    expectError(Scheme{}, {ScaleRuleKind::Percentile, p}, "percentile");
  for (double norm : {1.0, 2.41, double(NAN)})
    expectError(Scheme{}, {ScaleRuleKind::Mse, 99, norm}, "norm");
  for (float bad : {INFINITY, -INFINITY, NAN}) {
    x[2 * 20 + 13] = bad;
    for (ScaleRuleKind rule : {ScaleRuleKind::AbsMax, ScaleRuleKind::Percentile, ScaleRuleKind::Mse,
                               ScaleRuleKind::Entropy})
      expectError(kind(4, true, false, kGroup, 8), {rule}, "row 2, column 13");
  }
  EXPECT_EQ(*scaleRuleKind("entropy"), ScaleRuleKind::Entropy);
  EXPECT_NE(scaleRuleKind("max").error().message.find("absmax, zeropoint"), std::string::npos);
}

// A slice of zeros comes back as zeros, or next to them where the table has none.
TEST(ScaleRules, ZerosOfTablesWithoutOneStaySmall) {
  for (const Codebook *table : {Codebook::nf4(), Codebook::iq4nl(), Codebook::learned(2)})
    for (ScaleFormat format :
         {ScaleFormat::F32, ScaleFormat::F16, ScaleFormat::BF16, ScaleFormat::UI6}) {
      Scheme scheme{.bits = table->bits(), .granularity = Granularity::Group, .groupSize = 16};
      scheme.codes = CodeFormat::Table;
      scheme.table = table;
      scheme.scales = format;
      std::vector<float> x(2 * 32); // a row of zeros, and one with a group of zeros
      std::fill_n(x.begin() + 48, 16, 0.5f);
      for (ScaleRuleKind kind : {ScaleRuleKind::AbsMax, ScaleRuleKind::Mse}) {
        auto q = quantize(ConstMatrix(x.data(), 2, 32), scheme, {.kind = kind});
        ASSERT_TRUE(q) << q.error().message;
        std::vector<float> back(x.size());
        dequantize(*q, Matrix(back.data(), 2, 32));
        const bool hasZero = table->hasZero();
        for (int i = 0; i < 32; ++i)
          EXPECT_LE(std::fabs(back[i]), hasZero ? 0 : 1e-4f) << toString(scheme);
        // A group beside others of a super-group has at least 1/64 of their scale.
        const float least = format == ScaleFormat::UI6 ? 0.02f : 1e-4f;
        for (int i = 32; i < 48; ++i)
          EXPECT_LE(std::fabs(back[i]), hasZero ? 0 : least) << toString(scheme);
      }
    }
}

} // namespace
