//===- AwqClipTest.cpp - Ranges by what becomes of the output -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Oracles: every range that is tried, and for refined ones a search in double precision of far more
// scales and zero points.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Awq.h"

#include "RandomData.h"
#include "SchemeKinds.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

/// The error of one slice with the range cut at (1 - i/20) max|w|.
double clippedError(const std::vector<float> &w, const std::vector<float> &x, int64_t tokens,
                    int64_t k, int64_t row, int64_t first, int64_t count, int step,
                    const Scheme &scheme, SliceParams &params) {
  double lo = 0, hi = 0;
  for (int64_t j = first; j < first + count; ++j) {
    lo = std::min<double>(lo, w[row * k + j]);
    hi = std::max<double>(hi, w[row * k + j]);
  }
  double limit = std::max(-lo, hi) * (1 - step / 20.0);
  params = paramsOfRange(static_cast<float>(std::max(lo, -limit)),
                         static_cast<float>(std::min(hi, limit)), scheme);
  CodeRange range = codeRange(scheme);
  double error = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    double sum = 0;
    for (int64_t j = first; j < first + count; ++j) {
      double v = w[row * k + j];
      double code = std::nearbyint(v / params.scale) + params.zeroPoint;
      code = std::min<double>(std::max<double>(code, range.min), range.max);
      sum += (v - params.scale * (code - params.zeroPoint)) * x[t * k + j];
    }
    error += sum * sum;
  }
  return error;
}

TEST(AwqClip, TakesTheRangeOfLeastOutputError) {
  const int64_t rows = 37, k = 100, tokens = 60;
  for (const Scheme &scheme :
       {Scheme{4, false, kGroup, 48, false}, Scheme{3, true, kGroup, 32, false},
        Scheme{2, false, kChannel, 0, false}, Scheme{4, true, kChannel, 0, false}}) {
    std::vector<float> w = gaussian(rows * k, 5), x = gaussian(tokens * k, 6);
    for (int64_t j = 0; j < k; ++j) { // a row of zeros, a constant one, one of one sign
      w[j] = 0;
      w[k + j] = 3;
      w[2 * k + j] = std::fabs(w[2 * k + j]);
    }
    auto one = searchAwqClip(ConstMatrix(w.data(), rows, k), ConstMatrix(x.data(), tokens, k),
                             scheme, false, 1);
    auto two = searchAwqClip(ConstMatrix(w.data(), rows, k), ConstMatrix(x.data(), tokens, k),
                             scheme, false, 3);
    ASSERT_TRUE(one);
    ASSERT_TRUE(two);
    EXPECT_EQ(one->params.scales, two->params.scales);
    EXPECT_EQ(one->params.zeroPoints, two->params.zeroPoints);
    EXPECT_EQ(one->clipped, two->clipped);
    EXPECT_GT(one->clipped, 0);
    int64_t size = scheme.groupSize == 0 ? k : scheme.groupSize;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t g = 0; g < one->params.groups; ++g) {
        int64_t first = g * size, count = std::min(size, k - first);
        size_t at = i * one->params.groups + g;
        SliceParams chosen{one->params.scales[at],
                           scheme.symmetric ? 0 : one->params.zeroPoints[at]};
        double least = 1e300, error = -1;
        for (int step = 0; step < 10; ++step) {
          SliceParams params;
          double e = clippedError(w, x, tokens, k, i, first, count, step, scheme, params);
          least = std::min(least, e);
          if (std::fabs(params.scale / chosen.scale - 1) < 1e-6 &&
              params.zeroPoint == chosen.zeroPoint && error < 0)
            error = e;
        }
        // The chosen range is one of the ten, and none is better by more than rounding.
        ASSERT_GE(error, 0) << "row " << i << " group " << g;
        ASSERT_LE(error, least * 1.001 + 1e-9) << "row " << i << " group " << g;
      }
  }
}

TEST(AwqClip, RefusesWhatDoesNotFit) {
  std::vector<float> w = gaussian(40, 1), x = gaussian(40, 2);
  ConstMatrix view(w.data(), 4, 10);
  Scheme scheme{4, false, kGroup, 8, false};
  EXPECT_TRUE(searchAwqClip(view, ConstMatrix(nullptr, 0, 10), scheme, false, 1));
  EXPECT_FALSE(searchAwqClip(view, ConstMatrix(x.data(), 5, 8), scheme, false, 1));
  EXPECT_FALSE(searchAwqClip(view, ConstMatrix(x.data(), 4, 10),
                             Scheme{4, true, Granularity::Tensor, 0, false}, false, 1));
  x[13] = INFINITY;
  auto bad = searchAwqClip(view, ConstMatrix(x.data(), 4, 10), scheme, false, 1);
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.error().message.find("activations: row 1, column 3"), std::string::npos);
}

/// sum over the tokens of ((w - what) x)^2 of one row, all of one slice.
double outputError(const float *w, const std::vector<float> &x, int64_t k, double scale,
                   int32_t zeroPoint, const Scheme &scheme) {
  CodeRange range = codeRange(scheme);
  double error = 0;
  for (size_t t = 0; t < x.size() / k; ++t) {
    double sum = 0;
    for (int64_t j = 0; j < k; ++j) {
      double steps = std::clamp<double>(std::nearbyint(w[j] / scale), range.min - zeroPoint,
                                        range.max - zeroPoint);
      sum += (w[j] - scale * steps) * x[t * k + j];
    }
    error += sum * sum;
  }
  return error;
}

TEST(AwqClip, RefinedRangesAreNearTheLeastErrorThereIs) {
  const int64_t rows = 8, k = 24, tokens = 40;
  for (Scheme scheme : allKinds()) {
    if (scheme.bits > 4)
      continue; // where a search of all zero points takes long, and there is little to gain
    scheme.scales = scheme.bits == 4 ? ScaleFormat::F16 : ScaleFormat::F32;
    std::vector<float> w = gaussian(rows * k, 5), x = gaussian(tokens * k, 6);
    for (int64_t t = 0; t < tokens; ++t) // channels that go together
      for (int64_t j = 0; j < k; ++j)
        x[t * k + j] += 2 * x[t * k];
    ConstMatrix weight(w.data(), rows, k), inputs(x.data(), tokens, k);
    auto clipped = searchAwqClip(weight, inputs, scheme, false, 1);
    auto refined = searchAwqClip(weight, inputs, scheme, true, 1);
    auto again = searchAwqClip(weight, inputs, scheme, true, 3);
    ASSERT_TRUE(clipped && refined && again);
    EXPECT_EQ(refined->params.scales, again->params.scales);
    EXPECT_EQ(refined->params.zeroPoints, again->params.zeroPoints);
    double ofClipped = 0, ofRefined = 0, ofSearch = 0;
    for (int64_t i = 0; i < rows; ++i) {
      auto errorOf = [&](const QParams &params) {
        return outputError(&w[i * k], x, k, params.scales[i],
                           scheme.symmetric ? 0 : params.zeroPoints[i], scheme);
      };
      const double before = errorOf(clipped->params), after = errorOf(refined->params);
      EXPECT_LE(after, before * 1.001) << toString(scheme) << ", row " << i;
      double least = before;
      const CodeRange range = codeRange(scheme);
      for (int step = 1; step <= 300; ++step)
        for (int z = scheme.symmetric ? 0 : range.min; z <= (scheme.symmetric ? 0 : range.max); ++z)
          least = std::min(least, outputError(&w[i * k], x, k,
                                              clipped->params.scales[i] * step / 150.0, z, scheme));
      ofClipped += std::log(before);
      ofRefined += std::log(after);
      ofSearch += std::log(least);
    }
    EXPECT_LT(ofRefined, ofClipped) << toString(scheme);
    EXPECT_LT(ofRefined - ofSearch, 0.8 * (ofClipped - ofSearch)) << toString(scheme);
  }
}

TEST(AwqClip, RefinesSlicesOfNothing) {
  std::vector<float> w(2 * 16), x = gaussian(8 * 16, 1);
  for (int64_t j = 0; j < 16; ++j)
    w[16 + j] = 3;
  Scheme scheme{4, false, kGroup, 8, false};
  auto found =
      searchAwqClip(ConstMatrix(w.data(), 2, 16), ConstMatrix(x.data(), 8, 16), scheme, true, 1);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->params.scales[0], 1);
  EXPECT_EQ(found->params.zeroPoints[0], 0);
  EXPECT_NEAR(found->params.scales[2] * (7 - found->params.zeroPoints[2]), 3, 1e-5);
}

} // namespace
