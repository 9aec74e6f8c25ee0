//===- AwqTest.cpp --------------------------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The oracles are transcriptions of the formulas in double, one element at a time; the outputs of
// clipped weights are computed token by token, without Gram matrices.
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

TEST(Awq, ScalesAreNormalizedPowers) {
  std::vector<float> x = {0, 1e-6f, 0.02f, 1, 3, 250};
  for (int i = 0; i < 20; ++i) {
    double r = i / 20.0, least = 1e300, most = 0;
    std::vector<double> expected;
    for (float v : x) {
      expected.push_back(std::max(std::pow(double(v), r), 1e-4));
      least = std::min(least, expected.back());
      most = std::max(most, expected.back());
    }
    std::vector<float> s = awqScales(x, r);
    for (size_t j = 0; j < x.size(); ++j)
      EXPECT_NEAR(s[j], expected[j] / std::sqrt(least * most), 1e-6 * s[j]);
  }
  EXPECT_EQ(awqScales(std::vector<float>(4, 0.0f), 0.5), std::vector<float>(4, 1.0f));
  EXPECT_TRUE(awqScales({}, 0.5).empty());
}

TEST(Awq, KeepsTheScalesOfLeastLoss) {
  std::vector<float> x = {0.5f, 2, 8};
  std::vector<float> target = awqScales(x, 13 / 20.0);
  auto distance = [&](std::span<const float> s) -> Result<double> {
    double sum = 0;
    for (size_t j = 0; j < x.size(); ++j)
      sum += std::pow(double(s[j]) - target[j], 2);
    return sum;
  };
  auto found = searchAwqScales(x, distance);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->ratio, 13 / 20.0);
  EXPECT_EQ(found->scales, target);
  EXPECT_EQ(found->loss, 0);
  EXPECT_EQ(found->identityLoss, *distance(std::vector<float>(3, 1.0f)));

  int calls = 0;
  auto flat =
      searchAwqScales(x, [&](std::span<const float>) { return Result<double>(++calls * 0.0); });
  ASSERT_TRUE(flat);
  EXPECT_EQ(calls, 21);
  EXPECT_EQ(flat->ratio, -1);
  EXPECT_EQ(flat->scales, std::vector<float>(3, 1.0f));
}

TEST(Awq, SearchRefusesWhatIsNotFinite) {
  auto constant = [](double value) {
    return [value](std::span<const float>) { return Result<double>(value); };
  };
  std::vector<float> x = {1, 2};
  EXPECT_FALSE(searchAwqScales(x, constant(NAN)));
  EXPECT_FALSE(searchAwqScales(std::vector<float>{1, NAN}, constant(1)));
  EXPECT_FALSE(searchAwqScales(std::vector<float>{1, -1}, constant(1)));
  int calls = 0;
  auto onlyIdentity = searchAwqScales(
      x, [&](std::span<const float>) { return Result<double>(calls++ == 0 ? 1.0 : NAN); });
  ASSERT_TRUE(onlyIdentity);
  EXPECT_EQ(onlyIdentity->ratio, -1);
  auto failing = searchAwqScales(x, [](std::span<const float>) -> Result<double> {
    return makeError(ErrorCode::IO, "disk full");
  });
  ASSERT_FALSE(failing);
  EXPECT_EQ(failing.error().message, "disk full");
}

TEST(Awq, ScaledRoundingIsRoundingInScaledCoordinates) {
  for (auto [rows, k] : {std::pair{1, 1}, {3, 17}, {70, 130}})
    for (const Scheme &scheme :
         {Scheme{4, false, kGroup, 48, false}, Scheme{3, true, kChannel, 0, false},
          Scheme{8, true, Granularity::Tensor, 0, false}}) {
      std::vector<float> w = gaussian(rows * k, 1), s = gaussian(k, 2), scaled = w, out(w.size());
      for (int64_t j = 0; j < k; ++j) {
        s[j] = std::exp(s[j]);
        for (int64_t i = 0; i < rows; ++i)
          scaled[i * k + j] *= s[j];
      }
      ScaleRule rule{extremesRule(scheme)};
      ASSERT_TRUE(fakeQuantizeScaled(ConstMatrix(w.data(), rows, k), s, scheme, rule, 2,
                                     Matrix(out.data(), rows, k)));
      auto q = quantize(ConstMatrix(scaled.data(), rows, k), scheme, rule);
      std::vector<float> back(w.size());
      dequantize(*q, Matrix(back.data(), rows, k));
      for (size_t i = 0; i < w.size(); ++i)
        EXPECT_EQ(out[i], back[i] / s[i % k]);
    }
}

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

TEST(Awq, ClipsToTheRangeOfLeastOutputError) {
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
    auto one =
        searchAwqClip(ConstMatrix(w.data(), rows, k), ConstMatrix(x.data(), tokens, k), scheme, 1);
    auto two =
        searchAwqClip(ConstMatrix(w.data(), rows, k), ConstMatrix(x.data(), tokens, k), scheme, 3);
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

TEST(Awq, ClipRefusesWhatDoesNotFit) {
  std::vector<float> w = gaussian(40, 1), x = gaussian(40, 2);
  ConstMatrix view(w.data(), 4, 10);
  Scheme scheme{4, false, kGroup, 8, false};
  EXPECT_TRUE(searchAwqClip(view, ConstMatrix(nullptr, 0, 10), scheme, 1));
  EXPECT_FALSE(searchAwqClip(view, ConstMatrix(x.data(), 5, 8), scheme, 1));
  EXPECT_FALSE(searchAwqClip(view, ConstMatrix(x.data(), 4, 10),
                             Scheme{4, true, Granularity::Tensor, 0, false}, 1));
  x[13] = INFINITY;
  auto bad = searchAwqClip(view, ConstMatrix(x.data(), 4, 10), scheme, 1);
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.error().message.find("activations: row 1, column 3"), std::string::npos);
}

} // namespace
