//===- SignRoundTest.cpp - Rounding learned by signed gradients -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The layer is y = x What^T. Oracle: the update of SignRound.h, transcribed in double precision.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/SignRound.h"

#include "RandomData.h"
#include "SchemeKinds.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

constexpr int64_t kRows = 5, kColumns = 24, kTokens = 12, kSequences = 6;

struct Toy : DifferentiableLayer {
  std::vector<float> weight = gaussian(kRows * kColumns, 1), now = weight;
  std::vector<std::vector<float>> in, out;
  std::vector<ConstMatrix> targets;

  Toy() {
    std::vector<float> mix = gaussian(kColumns, 2);
    for (int64_t s = 0; s < kSequences; ++s) {
      in.push_back(gaussian(kTokens * kColumns, 10 + s));
      std::vector<float> common = gaussian(kTokens, 50 + s);
      for (int64_t i = 0; i < kTokens * kColumns; ++i)
        in.back()[i] += 2 * common[i / kColumns] * mix[i % kColumns];
      out.emplace_back(kTokens * kRows);
      EXPECT_TRUE(forward(s, {out.back().data(), kTokens, kRows}));
    }
    for (auto &y : out)
      targets.emplace_back(y.data(), kTokens, kRows);
  }
  Result<void> setWeight(size_t, ConstMatrix values) override {
    std::copy_n(values.data, kRows * kColumns, now.data());
    return {};
  }
  Result<void> forward(size_t s, Matrix y) override {
    for (int64_t t = 0; t < kTokens; ++t)
      for (int64_t n = 0; n < kRows; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < kColumns; ++k)
          sum += double(in[s][t * kColumns + k]) * now[n * kColumns + k];
        y(t, n) = static_cast<float>(sum);
      }
    return {};
  }
  Result<void> backward(size_t s, ConstMatrix dy, std::span<const Matrix> gradients) override {
    for (int64_t n = 0; n < kRows; ++n)
      for (int64_t k = 0; k < kColumns; ++k) {
        double sum = 0;
        for (int64_t t = 0; t < kTokens; ++t)
          sum += double(dy(t, n)) * in[s][t * kColumns + k];
        gradients[0](n, k) = static_cast<float>(sum);
      }
    return {};
  }
  Result<TrainedWeights> learned(const Scheme &scheme, const SignRoundOptions &options) {
    TrainedSite site{ConstMatrix(weight.data(), kRows, kColumns), scheme, {extremesRule(scheme)}};
    return learnRounding(*this, std::span(&site, 1), targets, options);
  }
};

TEST(SignRound, IsTheUpdateTranscribed) {
  const Scheme scheme{3, false, kGroup, 8, false};
  // What the layer is given last is the state after the last step.
  constexpr int64_t steps = 2;
  Toy toy;
  auto start =
      quantize(ConstMatrix(toy.weight.data(), kRows, kColumns), scheme, {ScaleRuleKind::ZeroPoint});
  ASSERT_TRUE(start);
  std::vector<double> v(kRows * kColumns), a(kRows * 3, 1), what(kRows * kColumns);
  std::vector<int> codes(kRows * kColumns);
  auto scaleOf = [&](int64_t p) { return a[p] * start->params.scales[p]; };
  auto round = [&] {
    for (int64_t i = 0; i < kRows * kColumns; ++i) {
      int64_t p = i / kColumns * 3 + i % kColumns / 8, z = start->params.zeroPoints[p];
      codes[i] = std::clamp<int>(std::nearbyint(toy.weight[i] / scaleOf(p) + v[i]) + z, -4, 3);
      what[i] = scaleOf(p) * (codes[i] - z);
    }
  };
  round();
  for (int64_t step = 0; step < steps; ++step) {
    const double rate = (1 - double(step) / steps) / steps;
    std::vector<double> slope(a.size()), old(v);
    for (int64_t n = 0; n < kRows; ++n)
      for (int64_t k = 0; k < kColumns; ++k) {
        double g = 0;
        for (int64_t t = 0; t < kTokens; ++t) {
          double error = -toy.targets[step](t, n);
          for (int64_t j = 0; j < kColumns; ++j)
            error += toy.in[step][t * kColumns + j] * what[n * kColumns + j];
          g += 2 * error * toy.in[step][t * kColumns + k];
        }
        int64_t i = n * kColumns + k, p = n * 3 + k / 8, z = start->params.zeroPoints[p];
        double place = toy.weight[i] / scaleOf(p) + old[i];
        bool inside = place >= -4 - z && place <= 3 - z;
        slope[p] += g * (codes[i] - z - (inside ? toy.weight[i] / scaleOf(p) : 0));
        if (inside)
          v[i] = std::clamp(v[i] - rate * ((g > 0) - (g < 0)), -0.5, 0.5);
      }
    for (size_t p = 0; p < a.size(); ++p)
      a[p] -= rate / 4 * ((slope[p] > 0) - (slope[p] < 0));
    round();
  }
  auto result = toy.learned(scheme, {.steps = steps});
  ASSERT_TRUE(result) << result.error().message;
  for (int64_t i = 0; i < kRows * kColumns; ++i)
    EXPECT_NEAR(toy.now[i], what[i], 1e-5) << i; // what the layer was given last
}

TEST(SignRound, LowersTheErrorAndNeverEndsWorse) {
  for (const Scheme &scheme : {grouped(3, 8), Scheme{4, false, kGroup, 8, false}, grouped(2, 24)}) {
    auto result = Toy().learned(scheme, {.steps = 100});
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_LT(result->after, 0.9 * result->before) << toString(scheme);
  }
  auto none = Toy().learned(grouped(3, 8), {.steps = 0});
  ASSERT_TRUE(none);
  EXPECT_EQ(none->after, none->before);
}

TEST(SignRound, RefusesWhatItCannotLearn) {
  Scheme fp8{8, true, kChannel, 0, false};
  fp8.codes = CodeFormat::F8E4M3FN;
  auto refused = Toy().learned(fp8, {});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("take gptq or lkd"), std::string::npos);
  EXPECT_FALSE(Toy().learned(grouped(3, 8), {.steps = -1}));
  EXPECT_FALSE(Toy().learned(grouped(3, 8), {.heldOut = 1}));
}

} // namespace
