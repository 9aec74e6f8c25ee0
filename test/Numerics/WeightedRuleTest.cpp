//===- WeightedRuleTest.cpp - The rule hessian-diagonal -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Oracle: a search in double precision of far more scales, and of all zero points, than the rule
// looks at.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/ScaleRules.h"

#include "RandomData.h"
#include "SchemeKinds.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

/// Mean squares of activations: log-normal, as those of transformers are, with a sink.
std::vector<float> weightsOf(int64_t count, unsigned seed) {
  std::vector<float> h = gaussian(count, seed);
  for (float &v : h)
    v = std::exp(2 * v);
  if (count > 8)
    h[count / 3] = 1e5f;
  return h;
}

double weightedError(const std::vector<float> &x, const std::vector<float> &h, double scale,
                     int32_t zeroPoint, const Scheme &scheme) {
  CodeRange range = codeRange(scheme);
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    double steps = std::clamp<double>(std::nearbyint(x[i] / scale), range.min - zeroPoint,
                                      range.max - zeroPoint);
    double error = x[i] - scale * steps;
    sum += h[i] * error * error;
  }
  return sum;
}

/// The least error of 2,000 scales, up to twice the one of all values, and every zero point.
double leastError(const std::vector<float> &x, const std::vector<float> &h, SliceParams all,
                  const Scheme &scheme) {
  CodeRange range = codeRange(scheme);
  double least = weightedError(x, h, all.scale, all.zeroPoint, scheme);
  for (int step = 1; step <= 2000; ++step)
    for (int z = scheme.symmetric ? 0 : range.min; z <= (scheme.symmetric ? 0 : range.max); ++z)
      least = std::min(least, weightedError(x, h, all.scale * step / 1000, z, scheme));
  return least;
}

SliceParams choose(const std::vector<float> &x, const Scheme &scheme, const ScaleRule &rule) {
  auto params = chooseQParams(ConstMatrix(x.data(), 1, x.size()), scheme, rule);
  EXPECT_TRUE(params) << params.error().message;
  return {params->scales[0], scheme.symmetric ? 0 : params->zeroPoints[0]};
}

ScaleRule weighted(const std::vector<float> &h) {
  return {.kind = ScaleRuleKind::HessianDiagonal, .weights = h};
}

TEST(WeightedRule, IsNearTheLeastErrorThereIsAndNeverBehindAllValues) {
  for (const Scheme &scheme : allKinds()) {
    if (scheme.bits > 6)
      continue; // where a search of all zero points takes long, and there is little to gain
    double ofAll = 0, ofRule = 0, ofSearch = 0;
    for (unsigned seed = 0; seed < 12; ++seed) {
      std::vector<float> x = gaussian(seed % 3 ? 64 : 17, seed, seed % 4 ? 0.0f : 6.0f);
      std::vector<float> h = weightsOf(x.size(), seed + 100);
      SliceParams all = choose(x, scheme, {extremesRule(scheme)});
      SliceParams found = choose(x, scheme, weighted(h));
      const double error = weightedError(x, h, found.scale, found.zeroPoint, scheme);
      const double before = weightedError(x, h, all.scale, all.zeroPoint, scheme);
      EXPECT_LE(error, before * (1 + 1e-6)) << toString(scheme) << ", seed " << seed;
      ScaleRule quick = weighted(h);
      quick.coarse = true;
      SliceParams rough = choose(x, scheme, quick);
      EXPECT_LE(weightedError(x, h, rough.scale, rough.zeroPoint, scheme), before * (1 + 1e-6))
          << toString(scheme) << ", seed " << seed;
      // Slices whose errors are within a few orders count alike.
      ofAll += std::log(before);
      ofRule += std::log(error);
      ofSearch += std::log(leastError(x, h, all, scheme));
    }
    EXPECT_LT(ofRule, ofAll) << toString(scheme);
    EXPECT_LT(ofRule - ofSearch, 0.5 * (ofAll - ofSearch)) << toString(scheme);
  }
}

TEST(WeightedRule, IsExactWhereCodesAre) {
  // Integers times a scale that their extremes hide: the largest value does not count.
  std::vector<float> x, h;
  for (int i = 0; i < 64; ++i) {
    x.push_back(0.125f * static_cast<float>(i % 15 - 7));
    h.push_back(1);
  }
  x.push_back(3);
  h.push_back(0);
  SliceParams found = choose(x, {4, true, kChannel, 0, false}, weighted(h));
  EXPECT_FLOAT_EQ(found.scale, 0.125f);
}

TEST(WeightedRule, PutsTheLargestValueOnAnInnerCodeWhereThatIsBetter) {
  // Codes of f4E2M1FN without 6, the greatest: the range of all values makes 3 of 4 and rounds 3.
  Scheme fp4{4, true, kChannel, 0, false};
  fp4.codes = CodeFormat::F4E2M1FN;
  std::vector<float> x, h;
  for (int i = 0; i < 32; ++i)
    for (float code : {0.5f, -1.0f, 1.5f, -2.0f, 3.0f, 4.0f}) {
      x.push_back(0.125f * code);
      h.push_back(1);
    }
  EXPECT_FLOAT_EQ(choose(x, fp4, weighted(h)).scale, 0.125f);
  ScaleRule quick = weighted(h);
  quick.coarse = true;
  EXPECT_FLOAT_EQ(choose(x, fp4, quick).scale, 0.125f);
}

TEST(WeightedRule, ServesEveryFormatAndKeepsScalesInTheirs) {
  Scheme nf4{4, true, kGroup, 32, false}, fp4 = nf4, fp8{8, true, kChannel, 0, false};
  nf4.codes = CodeFormat::Table;
  nf4.table = Codebook::nf4();
  fp4.codes = CodeFormat::F4E2M1FN;
  fp8.codes = CodeFormat::F8E4M3FN;
  Scheme mx = fp4, nv = fp4;
  mx.scales = ScaleFormat::F8E8M0FNU;
  nv.scales = ScaleFormat::F8E4M3FN;
  nv.groupSize = 16;
  nv.outer = true;
  nf4.scales = ScaleFormat::F16;
  for (const Scheme &scheme : {nf4, fp4, fp8, mx, nv}) {
    std::vector<float> x = gaussian(4 * 64, 7), h = weightsOf(64, 8);
    ConstMatrix w(x.data(), 4, 64);
    auto error = [&](const ScaleRule &rule) {
      auto q = quantize(w, scheme, rule);
      EXPECT_TRUE(q) << q.error().message;
      std::vector<float> back(x.size());
      dequantize(*q, Matrix(back.data(), 4, 64));
      double sum = 0;
      for (size_t i = 0; i < x.size(); ++i)
        sum += double(h[i % 64]) * (x[i] - back[i]) * (x[i] - back[i]);
      return sum;
    };
    EXPECT_LE(error(weighted(h)), error({extremesRule(scheme)}) * (1 + 1e-6)) << toString(scheme);
  }
}

TEST(WeightedRule, TakesTheColumnsOfEachGroup) {
  std::vector<float> x = gaussian(3 * 40, 1), h = weightsOf(40, 2);
  Scheme scheme{3, false, kGroup, 16, false};
  auto whole = chooseQParams(ConstMatrix(x.data(), 3, 40), scheme, weighted(h));
  ASSERT_TRUE(whole) << whole.error().message;
  for (int64_t row = 0; row < 3; ++row)
    for (int64_t group = 0; group < 3; ++group) {
      const int64_t begin = group * 16, count = std::min<int64_t>(16, 40 - begin);
      std::vector<float> slice(x.begin() + row * 40 + begin, x.begin() + row * 40 + begin + count);
      std::vector<float> own(h.begin() + begin, h.begin() + begin + count);
      SliceParams alone = choose(slice, {3, false, kChannel, 0, false}, weighted(own));
      EXPECT_EQ(whole->scales[row * 3 + group], alone.scale);
      EXPECT_EQ(whole->zeroPoints[row * 3 + group], alone.zeroPoint);
    }
}

TEST(WeightedRule, TakesNastySlices) {
  Scheme scheme{4, false, kChannel, 0, false};
  for (std::vector<float> x : {std::vector<float>(9, 0.0f),
                               std::vector<float>(9, 3.0f),
                               {1e-30f, -1e-30f, 2e-30f},
                               {1e37f, -1e37f, 3e36f}}) {
    for (float h : {0.0f, 1e-38f, 1.0f, 1e38f}) {
      std::vector<float> weights(x.size(), h);
      SliceParams params = choose(x, scheme, weighted(weights));
      EXPECT_TRUE(std::isnormal(params.scale) && params.scale > 0);
    }
  }
}

TEST(WeightedRule, RefusesWeightsThatAreNone) {
  std::vector<float> x = gaussian(8, 1), few(7, 1.0f), bad(8, 1.0f);
  ConstMatrix w(x.data(), 1, 8);
  auto missing = chooseQParams(w, kInt8, weighted(few));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message,
            "scale rule hessian-diagonal with 7 weights for 8 columns: expected one a column, "
            "gathered on calibration text");
  for (float v : {-1.0f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    bad[5] = v;
    auto refused = chooseQParams(w, kInt8, weighted(bad));
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("the weight of column 5 is"), std::string::npos);
  }
  EXPECT_FALSE(chooseQParams(Histogram(), kInt8, {ScaleRuleKind::HessianDiagonal}));
}

} // namespace
