//===- SmoothQuantTest.cpp ------------------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/SmoothQuant.h"

#include "RandomData.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

/// Magnitudes over six decades.
std::vector<float> magnitudes(int64_t count, unsigned seed) {
  std::vector<float> x = gaussian(count, seed);
  for (float &v : x)
    v = std::exp(3 * v);
  return x;
}

TEST(SmoothQuant, FactorsAreThoseOfTheFormula) {
  std::vector<float> a = magnitudes(100, 1), w = magnitudes(100, 2);
  w[3] = 0;     // clamped
  w[4] = 1e-7f; // clamped
  a[5] = 1e-14f;
  for (double alpha : {0.0, 0.25, 0.5, 0.85, 1.0}) {
    auto factors = smoothingFactors(a, w, alpha);
    ASSERT_TRUE(factors) << factors.error().message;
    for (size_t j = 0; j < a.size(); ++j) {
      double expected =
          std::pow(double(a[j]), alpha) / std::pow(std::max(double(w[j]), 1e-5), 1 - alpha);
      EXPECT_FLOAT_EQ((*factors)[j], std::max(expected, 1e-5)) << j;
    }
  }
}

TEST(SmoothQuant, HalfMakesBothSidesAlike) {
  std::vector<float> a = magnitudes(50, 3), w = magnitudes(50, 4);
  std::vector<float> s = *smoothingFactors(a, w, 0.5);
  for (size_t j = 0; j < a.size(); ++j)
    EXPECT_NEAR(a[j] / s[j], w[j] * s[j], 1e-5 * w[j] * s[j]);
}

TEST(SmoothQuant, UnusedChannelsStayAsTheyAre) {
  std::vector<float> a = {0, 2}, w = {3, 0};
  EXPECT_EQ((*smoothingFactors(a, w, 0.5))[0], 1.0f);
  EXPECT_TRUE(std::isfinite((*smoothingFactors(a, w, 0.5))[1]));
  EXPECT_TRUE(smoothingFactors({}, {}, 0.5)->empty());
}

TEST(SmoothQuant, Refused) {
  std::vector<float> a = {1, 2}, w = {3, 4}, longer = {1, 2, 3};
  for (double alpha : {-0.1, 1.1, double(NAN)})
    EXPECT_NE(smoothingFactors(a, w, alpha).error().message.find("alpha"), std::string::npos);
  EXPECT_FALSE(smoothingFactors(a, longer, 0.5));
  for (float bad : {-1.0f, INFINITY, NAN}) {
    std::vector<float> broken = {1, bad};
    EXPECT_NE(smoothingFactors(broken, w, 0.5).error().message.find("channel 1"),
              std::string::npos);
    EXPECT_FALSE(smoothingFactors(a, broken, 0.5));
  }
}

// The header's derivation: alpha = 1/2 attains the lower bound of the error bound where both sides
// have the same codes, and is within the ratio of means otherwise.
TEST(SmoothQuant, HalfMinimizesTheErrorBound) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::vector<float> a = magnitudes(30, seed), w = magnitudes(30, seed + 100);
    std::vector<float> half = *smoothingFactors(a, w, 0.5);
    double sum = 0, peak = 0;
    for (size_t j = 0; j < a.size(); ++j) {
      double m = std::sqrt(double(a[j]) * w[j]);
      sum += m;
      peak = std::max(peak, m);
    }
    double best = smoothedErrorBound(a, w, half, 127, 127);
    EXPECT_NEAR(best, peak * sum / 127, 1e-5 * best);
    for (int trial = 0; trial < 50; ++trial) {
      std::vector<float> other = half;
      std::vector<float> noise = gaussian(30, seed * 1000 + trial);
      for (size_t j = 0; j < other.size(); ++j)
        other[j] *= std::exp((trial % 5 + 1) * 0.2f * noise[j]);
      EXPECT_GE(smoothedErrorBound(a, w, other, 127, 127), best * (1 - 1e-6));
      EXPECT_GE(smoothedErrorBound(a, w, other, 127, 7),
                peak * sum / std::sqrt(127 * 7) * (1 - 1e-6));
    }
    for (double alpha : {0.0, 0.3, 0.7, 1.0})
      EXPECT_GE(smoothedErrorBound(a, w, *smoothingFactors(a, w, alpha), 127, 127),
                best * (1 - 1e-6));
  }
}

TEST(SmoothQuant, BestExponentsMinimizeEachChannelsPart) {
  std::vector<float> a = magnitudes(40, 7), w = magnitudes(40, 8);
  a[0] = 0;
  const double stepX = 0.3, stepW = 0.02;
  std::vector<double> alphas = bestExponents(a, w, stepX, stepW);
  EXPECT_EQ(alphas[0], 0.5);
  for (size_t j = 1; j < a.size(); ++j) {
    auto part = [&](double alpha) {
      double s = std::pow(a[j], alpha) / std::pow(w[j], 1 - alpha);
      return stepW * a[j] / s + stepX * w[j] * s;
    };
    double best = part(alphas[j]);
    EXPECT_NEAR(best, 2 * std::sqrt(stepW * stepX * a[j] * w[j]), 1e-6 * best);
    EXPECT_LE(best, part(alphas[j] + 0.01) * (1 + 1e-12));
    EXPECT_LE(best, part(alphas[j] - 0.01) * (1 + 1e-12));
  }
}

TEST(SmoothQuant, SearchFindsTheAlphaOfLeastMeasuredError) {
  // Channels of activations with outliers, weights of 4 and of 8 bits; the oracle rounds both.
  const int64_t tokens = 400, columns = 48, rows = 24;
  std::mt19937 random(3);
  std::normal_distribution<float> bell;
  for (int bits : {4, 8}) {
    std::vector<float> x(tokens * columns), w(rows * columns), peaks(columns), squares(columns);
    std::vector<float> weightPeaks(columns);
    for (int64_t j = 0; j < columns; ++j) {
      const float size = j % 12 == 0 ? 30.0f : 1.0f;
      double sum = 0;
      for (int64_t t = 0; t < tokens; ++t) {
        float value = size * bell(random);
        x[t * columns + j] = value;
        peaks[j] = std::max(peaks[j], std::fabs(value));
        sum += double(value) * value;
      }
      squares[j] = static_cast<float>(sum / tokens);
      for (int64_t n = 0; n < rows; ++n) {
        w[n * columns + j] = 0.05f * bell(random);
        weightPeaks[j] = std::max(weightPeaks[j], std::fabs(w[n * columns + j]));
      }
    }
    const int qw = (1 << (bits - 1)) - 1;
    auto measured = [&](const std::vector<float> &s) {
      double step = 0;
      for (int64_t j = 0; j < columns; ++j)
        step = std::max(step, double(peaks[j]) / s[j] / 127);
      std::vector<double> rounded(tokens * columns);
      for (int64_t i = 0; i < tokens * columns; ++i)
        rounded[i] = std::nearbyint(x[i] / s[i % columns] / step) * step;
      double error = 0;
      for (int64_t n = 0; n < rows; ++n) {
        double weightStep = 0;
        for (int64_t j = 0; j < columns; ++j)
          weightStep = std::max(weightStep, std::fabs(double(w[n * columns + j]) * s[j]) / qw);
        for (int64_t t = 0; t < tokens; ++t) {
          double difference = 0;
          for (int64_t j = 0; j < columns; ++j) {
            double code = std::nearbyint(w[n * columns + j] * s[j] / weightStep) * weightStep;
            difference +=
                code * rounded[t * columns + j] - double(w[n * columns + j]) * x[t * columns + j];
          }
          error += difference * difference;
        }
      }
      return error / tokens;
    };
    auto search = SmoothingSearch::create(peaks, squares, weightPeaks, {127, qw, 0});
    ASSERT_TRUE(search);
    search->update({w.data(), rows, columns});
    const auto &best = search->best();
    EXPECT_NEAR(best.error, measured(best.factors), 0.15 * best.error);
    for (double alpha = 0; alpha <= 1; alpha += 0.1)
      EXPECT_LE(measured(best.factors),
                1.15 * measured(*smoothingFactors(peaks, weightPeaks, alpha)))
          << "alpha " << alpha << " instead of " << best.alpha << ", " << bits << " bits";
    EXPECT_LT(measured(best.factors), measured(std::vector<float>(columns, 1.0f)));
  }
}

} // namespace
