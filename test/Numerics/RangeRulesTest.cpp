//===- RangeRulesTest.cpp - Percentile, mse and entropy -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Oracles: the definitions of ScaleRules.h, each slice by brute force in double precision.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/ScaleRules.h"

#include "RandomData.h"
#include "SchemeKinds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

/// Slices of every temper: bell-shaped, heavy-tailed, one-sided, with one outlier, tiny.
std::vector<std::vector<float>> slices() {
  std::vector<std::vector<float>> all;
  for (int64_t count : {1, 2, 17, 128, 1000}) {
    all.push_back(gaussian(count, count));
    all.push_back(gaussian(count, count + 1, 80.0f));
    std::vector<float> cubed = gaussian(count, count + 2), positive = cubed, tiny = cubed;
    for (float &v : cubed)
      v = v * v * v;
    for (float &v : positive)
      v = std::fabs(v) * 1e20f;
    for (float &v : tiny)
      v *= 1e-30f;
    all.insert(all.end(), {cubed, positive, tiny});
  }
  return all;
}

SliceParams choose(const std::vector<float> &x, const Scheme &scheme, const ScaleRule &rule) {
  auto params = chooseQParams(ConstMatrix(x.data(), 1, x.size()), scheme, rule);
  EXPECT_TRUE(params) << params.error().message;
  return {params->scales[0], scheme.symmetric ? 0 : params->zeroPoints[0]};
}

double quantizationError(const std::vector<float> &x, SliceParams params, const Scheme &scheme,
                         double norm) {
  CodeRange range = codeRange(scheme);
  double sum = 0;
  for (double v : x) {
    double code = std::clamp<double>(std::nearbyint(v / params.scale) + params.zeroPoint, range.min,
                                     range.max);
    sum += std::pow(std::fabs(v - params.scale * (code - params.zeroPoint)), norm);
  }
  return sum;
}

TEST(Percentile, IsNumpysLinearInterpolation) {
  auto numpy = [](std::vector<double> v, double p) {
    std::sort(v.begin(), v.end());
    double rank = (v.size() - 1) * p / 100, low = std::floor(rank);
    double next = v[std::min<size_t>(low + 1, v.size() - 1)];
    return v[low] + (next - v[low]) * (rank - low);
  };
  for (const std::vector<float> &x : slices())
    for (double p : {60.0, 99.0, 99.9, 100.0})
      for (const Scheme &scheme : allKinds()) {
        std::vector<double> values(x.begin(), x.end()), magnitudes = values;
        for (double &v : magnitudes)
          v = std::fabs(v);
        double t = numpy(magnitudes, p);
        SliceParams expected =
            scheme.symmetric ? paramsOfRange(-t, t, scheme)
                             : paramsOfRange(numpy(values, 100 - p), numpy(values, p), scheme);
        SliceParams actual = choose(x, scheme, {ScaleRuleKind::Percentile, p});
        ASSERT_NEAR(actual.scale / expected.scale, 1, 1e-6) << p << ", " << toString(scheme);
        ASSERT_NEAR(actual.zeroPoint, expected.zeroPoint, 1);
      }
}

TEST(Mse, FindsTheBestOfTheGrid) {
  for (const std::vector<float> &x : slices())
    for (double norm : {2.0, 2.4})
      for (const Scheme &scheme : allKinds()) {
        float lo = *std::min_element(x.begin(), x.end()),
              hi = *std::max_element(x.begin(), x.end());
        double least = INFINITY;
        for (int i = 0; i <= 100; ++i) {
          float factor = static_cast<float>(1 - 0.8 * i / 100);
          least =
              std::min(least, quantizationError(x, paramsOfRange(lo * factor, hi * factor, scheme),
                                                scheme, norm));
        }
        SliceParams actual = choose(x, scheme, {ScaleRuleKind::Mse, 99, norm});
        double unit = std::pow(std::max(-lo, hi), norm);
        ASSERT_LE(quantizationError(x, actual, scheme, norm), least * (1 + 1e-4) + unit * 1e-12)
            << toString(scheme) << ", norm " << norm << ", " << x.size() << " values";
      }
}

/// KL(P || Q) of a cut at +-t, bin by bin from the definition.
double divergence(const Histogram &h, double t, const Scheme &scheme) {
  double w = h.width(), lo = std::max<double>(h.min(), -t), hi = std::min<double>(h.max(), t);
  lo = std::min(lo, 0.0);
  hi = std::max(hi, 0.0);
  SliceParams params = paramsOfRange(static_cast<float>(lo), static_cast<float>(hi), scheme);
  CodeRange range = codeRange(scheme);
  int64_t first = std::floor(std::min(h.min(), 0.0f) / w),
          last = std::floor(std::max(h.max(), 0.0f) / w);
  if (t < std::max(-h.min(), h.max())) { // an edge
    first = std::max<int64_t>(first, -t / w);
    last = std::min<int64_t>(last, t / w - 1);
  }
  std::map<int64_t, double> p;
  std::map<int, double> mass, places;
  auto codeOf = [&](int64_t bin) {
    return int(std::clamp<double>(
        std::ceil((bin + 0.5) * w / params.scale - 0.5) + params.zeroPoint, range.min, range.max));
  };
  double inside = 0;
  for (int64_t i = -Histogram::kBins; i < Histogram::kBins; ++i) {
    if (h.count(i) == 0)
      continue;
    p[std::clamp(i, first, last)] += h.count(i);
    if (i >= first && i <= last) {
      mass[codeOf(i)] += h.count(i);
      inside += h.count(i);
    }
  }
  if (inside == 0)
    return INFINITY;
  for (auto [bin, count] : p)
    places[codeOf(bin)] += count > 0;
  double sum = 0;
  for (auto [bin, count] : p)
    if (count > 0) {
      double pn = count / h.total(), qn = mass[codeOf(bin)] / places[codeOf(bin)] / inside;
      sum += pn * std::log(pn / qn); // log of infinity where Q is 0
    }
  return sum;
}

TEST(Entropy, FindsTheLeastDivergence) {
  size_t pair = 0; // of which every third takes long enough
  for (const std::vector<float> &x : slices())
    for (const Scheme &scheme : allKinds()) {
      if (pair++ % 3 != 0)
        continue;
      Histogram h;
      ASSERT_TRUE(h.update(ConstMatrix(x.data(), 1, x.size())));
      double absMax = std::max(-h.min(), h.max());
      double codes = codeRange(scheme).max - codeRange(scheme).min + 1;
      double least = divergence(h, absMax, scheme);
      std::vector<std::pair<double, float>> candidates;
      auto add = [&](double t) {
        float lo = std::max<double>(h.min(), -t), hi = std::min<double>(h.max(), t);
        candidates.emplace_back(divergence(h, t, scheme), paramsOfRange(lo, hi, scheme).scale);
        least = std::min(least, candidates.back().first);
      };
      add(absMax);
      int64_t widest =
          std::max(-std::floor(h.min() / h.width()), std::floor(h.max() / h.width()) + 1);
      for (int64_t i = widest; (i -= std::max<int64_t>(1, i / 64)) > 0;) {
        double low = std::max<double>(std::floor(std::min(h.min(), 0.0f) / h.width()), -i);
        double high = std::min<double>(std::floor(std::max(h.max(), 0.0f) / h.width()), i - 1);
        if (high - low + 1 >= codes)
          add(i * h.width());
      }
      SliceParams actual = choose(x, scheme, {ScaleRuleKind::Entropy});
      double found = INFINITY;
      for (auto [kl, scale] : candidates)
        if (scale == actual.scale)
          found = std::min(found, kl);
      ASSERT_LE(found, least * (1 + 1e-9) + 1e-12)
          << toString(scheme) << ", " << x.size() << " values";
    }
}

TEST(RangeRules, CutTheOutlierOfABell) {
  std::vector<float> x = gaussian(20000, 3, 400.0f);
  Scheme int4{4, true, Granularity::Channel, 0, false, false};
  float all = choose(x, int4, {}).scale;
  for (ScaleRuleKind rule : {ScaleRuleKind::Percentile, ScaleRuleKind::Entropy})
    EXPECT_LT(choose(x, int4, {rule}).scale, all / 50) << toString(rule);
  // Clipping 400 would cost more than rounding all others to 0.
  EXPECT_EQ(choose(x, int4, {ScaleRuleKind::Mse, 99, 2}).scale, all);
  x = gaussian(20000, 3, 8.0f);
  EXPECT_LT(choose(x, int4, {ScaleRuleKind::Mse, 99, 2}).scale, 0.8 * 8 / 7);
}

} // namespace
