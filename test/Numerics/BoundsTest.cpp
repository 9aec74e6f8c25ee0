//===- BoundsTest.cpp - Promises against measurements ---------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every bound meets random values, and values made to come as near to it as can be.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Bounds.h"

#include "RandomData.h"
#include "SchemeKinds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

/// Float operations may add that much to an error in exact arithmetic.
constexpr double kSlack = 1 + 1e-4;

/// Largest |x - xhat| of a row under its parameters.
double measured(const std::vector<float> &x, const Scheme &scheme, SliceParams params) {
  QParams q{1, 1, {params.scale}, {}};
  if (!scheme.symmetric)
    q.zeroPoints = {params.zeroPoint};
  QuantizedMatrix codes{scheme, 1, int64_t(x.size()), std::vector<int8_t>(x.size()), q};
  EXPECT_TRUE(quantize(ConstMatrix(x.data(), 1, x.size()), scheme, q, codes.codes));
  std::vector<float> back(x.size());
  dequantize(codes, Matrix(back.data(), 1, x.size()));
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i)
    worst = std::max(worst, std::fabs(double(x[i]) - back[i]));
  return worst;
}

TEST(Bounds, RoundingInsideTheRange) {
  for (const Scheme &scheme : allKinds())
    for (auto [lo, hi] : {std::pair(-3.0f, 5.0f), {0.0f, 1.0f}, {-7.0f, -2.0f}, {-1.0f, 1.0f}}) {
      SliceParams params = paramsOfRange(lo, hi, scheme);
      std::vector<float> x = {lo, hi};
      for (int i = 0; i <= 1000; ++i) // random would do; this meets the middles between codes
        x.push_back(lo + (hi - lo) * i / 1000);
      for (int code = -128; code < 128; ++code)
        if (float tie = (code + 0.5f) * params.scale; tie >= lo && tie <= hi)
          x.push_back(tie);
      double worst = measured(x, scheme, params);
      EXPECT_LE(worst, roundingErrorBound(params.scale) * kSlack) << toString(scheme);
      EXPECT_GE(worst, roundingErrorBound(params.scale) * 0.98); // and no better bound is true
    }
}

TEST(Bounds, AnyValueOfASliceWhoseEndsWereCut) {
  for (const Scheme &scheme : allKinds())
    for (ScaleRuleKind rule :
         {ScaleRuleKind::Mse, ScaleRuleKind::Entropy, ScaleRuleKind::Percentile}) {
      std::vector<float> x = gaussian(500, scheme.bits, 9.0f);
      auto params = chooseQParams(ConstMatrix(x.data(), 1, 500), scheme, {rule, 98});
      ASSERT_TRUE(params);
      SliceParams slice{params->scales[0], scheme.symmetric ? 0 : params->zeroPoints[0]};
      auto [lo, hi] = std::minmax_element(x.begin(), x.end());
      EXPECT_LE(measured(x, scheme, slice),
                quantizationErrorBound(*lo, *hi, slice, scheme) * kSlack)
          << toString(scheme) << ", " << toString(rule);
    }
}

TEST(Bounds, SimQuant) {
  for (int bits : {2, 4, 8}) {
    std::vector<float> minima, maxima;
    double worst = 0, levels = std::ldexp(1.0, bits) - 1;
    for (int d = 0; d < 20; ++d) {
      std::vector<float> x = gaussian(64, d);
      for (float &v : x)
        v = v * (d + 1) + 10 * d;
      auto [low, high] = std::minmax_element(x.begin(), x.end());
      double least = *low, s = levels / (*high - least);
      x.push_back(static_cast<float>(least + 0.5 / s)); // between the first two codes
      minima.push_back(*std::min_element(x.begin(), x.end()));
      maxima.push_back(*std::max_element(x.begin(), x.end()));
      for (double v : x) {
        double code = std::clamp(std::nearbyint((v - least) * s), 0.0, levels);
        worst = std::max(worst, std::fabs(v - (code / s + least)));
      }
    }
    double bound = simQuantErrorBound(minima, maxima, bits);
    EXPECT_LE(worst, bound * kSlack);
    EXPECT_GE(worst, bound * 0.9);
  }
}

TEST(Bounds, OutputsOfALinear) {
  std::mt19937 random(3);
  for (auto [k, groupSize] : {std::pair<int64_t, int64_t>(1, 0), {17, 4}, {100, 32}, {64, 0}}) {
    std::vector<float> x = gaussian(k, k), w = gaussian(k, k + 1);
    std::vector<double> weightErrors(groupCount(k, groupSize));
    for (double &e : weightErrors)
      e = 0.01 * (1 + random() % 5);
    const double inputError = 0.03;
    double bound = linearErrorBound(x, inputError, w, weightErrors, groupSize), attained = 0;
    for (bool adversarial : {false, true})
      for (int trial = 0; trial < 50; ++trial) {
        double exact = 0, moved = 0;
        for (int64_t i = 0; i < k; ++i) {
          std::uniform_real_distribution<double> uniform(-1, 1);
          double e = weightErrors[groupSize == 0 ? 0 : i / groupSize];
          // The worst: both move away from zero, so that all products grow in one direction.
          double sign = x[i] * double(w[i]) < 0 ? -1 : 1;
          double dx = adversarial ? std::copysign(inputError, x[i]) : inputError * uniform(random);
          double dw = adversarial ? std::copysign(e, w[i]) : e * uniform(random);
          exact += (adversarial ? sign : 1) * x[i] * double(w[i]);
          moved += (adversarial ? sign : 1) * (x[i] + dx) * (w[i] + dw);
        }
        attained = std::max(attained, std::fabs(moved - exact));
      }
    EXPECT_LE(attained, bound * (1 + 1e-9));
    EXPECT_GE(attained, bound * (1 - 1e-9)); // attained by the worst of them
  }
}

TEST(Bounds, ErrorsCompoundThroughLayers) {
  std::vector<double> gains = {5, 2, 0.5, 3}, local = {1, 0.5, 0, 2};
  EXPECT_EQ(compoundedErrors(gains, local), (std::vector<double>{1, 2.5, 1.25, 5.75}));
  // y_l = g_l y_(l-1) + noise: linear layers, whose gains are exact.
  std::mt19937 random(4);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (int trial = 0; trial < 100; ++trial) {
    double error = 0;
    for (size_t l = 0; l < gains.size(); ++l) {
      error = gains[l] * error + local[l] * uniform(random);
      EXPECT_LE(std::fabs(error), compoundedErrors(gains, local)[l]);
    }
  }
}

TEST(Bounds, MeansOverCalibrationSamples) {
  // Draws from the ends of the interval: nothing varies more.
  std::mt19937 random(5);
  const double width = 4, risk = 0.05;
  for (int64_t n : {1, 8, 128, 1000}) {
    double bound = samplingErrorBound(width, n, risk);
    EXPECT_DOUBLE_EQ(bound, 4 * std::sqrt(std::log(40.0) / (2 * n)));
    int outside = 0;
    const int trials = 2000;
    for (int t = 0; t < trials; ++t) {
      double mean = 0;
      for (int64_t i = 0; i < n; ++i)
        mean += (random() & 1 ? width / 2 : -width / 2) / n;
      outside += std::fabs(mean) > bound;
    }
    EXPECT_LE(outside, trials * risk);
  }
}

} // namespace
