//===- HistogramTest.cpp --------------------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Histogram.h"
#include "easyquant/Numerics/ScaleRules.h"

#include "RandomData.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

Histogram histogramOf(const std::vector<float> &x) {
  Histogram h;
  EXPECT_TRUE(h.update(ConstMatrix(x.data(), 1, x.size())));
  return h;
}

TEST(Histogram, CountsEveryValueInItsBin) {
  for (float outlier : {0.0f, 1e-20f, 3e38f, -FLT_MAX}) {
    std::vector<float> x = gaussian(1000, 9, outlier);
    Histogram h = histogramOf(x);
    EXPECT_EQ(h.total(), 1000);
    EXPECT_EQ(h.min(), *std::min_element(x.begin(), x.end()));
    EXPECT_EQ(h.max(), *std::max_element(x.begin(), x.end()));
    double absMax = std::max(-double(h.min()), double(h.max()));
    EXPECT_LT(absMax, Histogram::kBins * h.width());
    EXPECT_GE(absMax, Histogram::kBins / 2 * h.width());
    for (int64_t i = -Histogram::kBins; i < Histogram::kBins; ++i) {
      auto inside = [&](float v) { return v >= i * h.width() && v < (i + 1) * h.width(); };
      ASSERT_EQ(h.count(i), std::count_if(x.begin(), x.end(), inside)) << "bin " << i;
    }
  }
}

TEST(Histogram, DependsOnTheSetOfValuesAlone) {
  std::vector<float> x = gaussian(500, 4, 1e10f);
  x[3] = -0.0f;
  x[5] = FLT_TRUE_MIN;
  Histogram whole = histogramOf(x);
  std::sort(x.begin(), x.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  Histogram grown, merged, other;
  for (const float &v : x) // 1 x 1 at a time, growing all the way
    ASSERT_TRUE(grown.update(ConstMatrix(&v, 1, 1)));
  EXPECT_EQ(grown, whole);
  ASSERT_TRUE(merged.update(ConstMatrix(x.data() + 200, 300, 1)));
  ASSERT_TRUE(other.update(ConstMatrix(x.data(), 10, 20)));
  Histogram reversed = other;
  reversed.merge(merged);
  merged.merge(other);
  merged.merge(Histogram());
  EXPECT_EQ(merged, whole);
  EXPECT_EQ(reversed, whole);
  Histogram empty;
  empty.merge(whole);
  EXPECT_EQ(empty, whole);
}

TEST(Histogram, RefusesWhatIsNotFinite) {
  std::vector<float> x(12, 1.0f);
  x[7] = NAN;
  Histogram h;
  auto result = h.update(ConstMatrix(x.data(), 3, 4));
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("row 1, column 3"), std::string::npos);
  EXPECT_EQ(h, Histogram());
}

TEST(Histogram, ComesBackFromItsCounts) {
  for (const Histogram &h : {histogramOf(gaussian(300, 2, -7.0f)), Histogram()}) {
    auto back = Histogram::fromCounts(h.allCounts(), h.min(), h.max());
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(*back, h);
  }
  Histogram h = histogramOf({1.0f, -2.0f});
  std::vector<int64_t> counts(h.allCounts().begin(), h.allCounts().end());
  EXPECT_FALSE(Histogram::fromCounts(std::span(counts).first(100), -2, 1));
  EXPECT_FALSE(Histogram::fromCounts(counts, -2, INFINITY));
  EXPECT_FALSE(Histogram::fromCounts(counts, 1, -2));
  EXPECT_FALSE(Histogram::fromCounts(counts, -2, 1.5f)); // nothing in the bin of 1.5
  EXPECT_FALSE(Histogram::fromCounts(counts, -2, 0));    // 1 is above it
  counts[Histogram::kBins] = -1;
  EXPECT_FALSE(Histogram::fromCounts(counts, -2, 1));
}

// What a histogram gives is what the values themselves give, up to the width of a bin.
TEST(Histogram, ScalesComeCloseToThoseOfTheValues) {
  std::vector<float> x = gaussian(50000, 6);
  for (float &v : x)
    v = v > 0 ? v * v : v;
  Histogram h = histogramOf(x);
  for (auto [symmetric, full] : {std::pair(true, false), {true, true}, {false, false}})
    for (int bits : {4, 8}) {
      Scheme scheme{bits, symmetric, Granularity::Tensor, 0, false, full};
      for (ScaleRuleKind kind : {extremesRule(scheme), ScaleRuleKind::Percentile,
                                 ScaleRuleKind::Mse, ScaleRuleKind::Entropy}) {
        ScaleRule rule{kind, 99.9, 2};
        auto exact = chooseQParams(ConstMatrix(x.data(), 1, x.size()), scheme, rule);
        auto close = chooseQParams(h, scheme, rule);
        ASSERT_TRUE(exact && close);
        bool same = kind == extremesRule(scheme) || kind == ScaleRuleKind::Entropy;
        double tolerance = same ? 0 : kind == ScaleRuleKind::Mse ? 0.06 : 2.0 / 1024;
        EXPECT_NEAR(close->scale / exact->scales[0], 1, tolerance)
            << toString(scheme) << ", " << toString(kind);
        if (!symmetric) {
          EXPECT_NEAR(close->zeroPoint, exact->zeroPoints[0], same ? 0 : 2);
        }
      }
    }
}

} // namespace
