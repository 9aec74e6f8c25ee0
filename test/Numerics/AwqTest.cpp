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

TEST(Awq, ScaledRoundingWeighsScaledErrors) {
  const int64_t rows = 40, k = 70;
  Scheme scheme{4, false, kGroup, 32, false};
  std::vector<float> w = gaussian(rows * k, 1), s = gaussian(k, 2), h = gaussian(k, 3), scaled = w,
                     out(w.size()), ofScaled(k);
  for (int64_t j = 0; j < k; ++j) {
    s[j] = std::exp(s[j]);
    h[j] = std::exp(2 * h[j]);
    ofScaled[j] = h[j] / (s[j] * s[j]); // what the scaled weight reads is divided by s
    for (int64_t i = 0; i < rows; ++i)
      scaled[i * k + j] *= s[j];
  }
  for (bool coarse : {false, true}) {
    ScaleRule rule{.kind = ScaleRuleKind::HessianDiagonal, .weights = h, .coarse = coarse};
    ASSERT_TRUE(fakeQuantizeScaled(ConstMatrix(w.data(), rows, k), s, scheme, rule, 2,
                                   Matrix(out.data(), rows, k)));
    rule.weights = ofScaled;
    auto q = quantize(ConstMatrix(scaled.data(), rows, k), scheme, rule);
    ASSERT_TRUE(q);
    std::vector<float> back(w.size());
    dequantize(*q, Matrix(back.data(), rows, k));
    for (size_t i = 0; i < w.size(); ++i)
      EXPECT_EQ(out[i], back[i] / s[i % k]);
  }
}

} // namespace
