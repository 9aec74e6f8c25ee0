//===- SiteStatisticsTest.cpp - Averages, sinks, and all of a site --------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/SiteStatistics.h"

#include "RandomData.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

/// One update's rows: 6 tokens of 40 channels.
std::vector<float> step(int t, float mean = 2) {
  std::vector<float> x = gaussian(240, 77 + t);
  for (float &v : x)
    v = v * (1 + t % 4) + mean;
  return x;
}
ConstMatrix viewOf(const std::vector<float> &x) { return {x.data(), 6, 40}; }

TEST(Ema, FollowsTheFormula) {
  for (double decay : {0.0, 0.9, 0.99}) {
    Ema ema(decay);
    double peak = 0, mean = 0;
    for (int t = 0; t < 30; ++t) {
      std::vector<float> x = step(t);
      double absMax = 0, sum = 0;
      for (float v : x) {
        absMax = std::max<double>(absMax, std::fabs(v));
        sum += v;
      }
      peak = t == 0 ? absMax : decay * peak + (1 - decay) * absMax;
      mean = t == 0 ? sum / 240 : decay * mean + (1 - decay) * sum / 240;
      ASSERT_TRUE(ema.update(viewOf(x)));
      ASSERT_NEAR(ema.peak(), peak, peak * 1e-12);
      ASSERT_NEAR(ema.mean(), mean, peak * 1e-12);
    }
    SliceParams symmetric = ema.params(Scheme{});
    EXPECT_FLOAT_EQ(symmetric.scale, peak / 127);
    EXPECT_EQ(symmetric.zeroPoint, 0);
    Scheme full{8, true, Granularity::Tensor, 0, false, true};
    EXPECT_FLOAT_EQ(ema.params(full).scale, peak / 127.5);
    SliceParams asymmetric = ema.params({8, false, Granularity::Tensor, 0, false, false});
    EXPECT_FLOAT_EQ(asymmetric.scale, peak / 127);
    EXPECT_EQ(asymmetric.zeroPoint, -std::nearbyint(mean / asymmetric.scale));
  }
  EXPECT_EQ(Ema::params(1, 400, {4, false, Granularity::Tensor, 0, false, false}).zeroPoint, -8);
}

TEST(Ema, LeavesOutEmptyAndConstantInputs) {
  Ema ema(0.5), same(0.5);
  std::vector<float> first = step(1), second = step(2), constant(240, 1e9f);
  ASSERT_TRUE(ema.update(viewOf(first)) && same.update(viewOf(first)));
  ASSERT_TRUE(ema.update(viewOf(constant)));
  ASSERT_TRUE(ema.update(ConstMatrix(nullptr, 0, 40)));
  ASSERT_TRUE(ema.update(viewOf(second)) && same.update(viewOf(second)));
  EXPECT_EQ(ema.peak(), same.peak());
  EXPECT_EQ(ema.steps(), 2);
}

TEST(Ema, MergesAsIfTheUpdatesHadComeOneAfterAnother) {
  for (int cut : {0, 1, 7, 19, 20}) {
    Ema all(0.9), front(0.9), back(0.9);
    for (int t = 0; t < 20; ++t) {
      std::vector<float> x = step(t);
      ASSERT_TRUE(all.update(viewOf(x)));
      ASSERT_TRUE((t < cut ? front : back).update(viewOf(x)));
    }
    front.merge(back);
    EXPECT_NEAR(front.peak(), all.peak(), all.peak() * 1e-12);
    EXPECT_NEAR(front.mean(), all.mean(), all.peak() * 1e-12);
    EXPECT_EQ(front.steps(), 20);
  }
}

TEST(TokenPeaks, FindsPositionsThatAreFarAboveTheRestInEverySample) {
  TokenPeaks all, one, other;
  for (int sample = 0; sample < 4; ++sample) {
    std::vector<float> x = gaussian(50 * 40, sample);
    x[0 * 40 + 7] = 900 + sample; // position 1, always
    x[9 * 40 + 3] = -700;         // position 10, always
    if (sample == 2)
      x[30 * 40] = 1e5f; // a rare token
    ConstMatrix rows(x.data(), 50, 40);
    ASSERT_TRUE(all.update(rows, 1));
    // The same in two pieces.
    ASSERT_TRUE((sample % 2 ? one : other).update(rows.middleRows(0, 20), 1));
    ASSERT_TRUE((sample % 2 ? one : other).update(rows.middleRows(20, 30), 21));
  }
  EXPECT_EQ(all.sinks(), (std::vector<int64_t>{1, 10}));
  one.merge(other);
  EXPECT_EQ(one.sinks(), all.sinks());
  EXPECT_TRUE(all.sinks(1e6).empty());
}

TEST(SiteStatistics, WritesWhatWasAskedFor) {
  std::vector<std::string> names = {"absmax",  "minmax", "mean_abs", "moments", "histogram",
                                    "hessian", "ema",    "sinks",    "inliers"};
  auto all = SiteStatistics::create("layer.0", 40, names);
  auto a = SiteStatistics::create("layer.0", 40, names);
  auto b = SiteStatistics::create("layer.0", 40, names);
  ASSERT_TRUE(all && a && b);
  for (int t = 0; t < 5; ++t) {
    std::vector<float> x = step(t);
    ASSERT_TRUE(all->update(viewOf(x), 1));
    ASSERT_TRUE((t < 2 ? *a : *b).update(viewOf(x), 1));
  }
  ASSERT_TRUE(a->merge(*b));
  std::vector<StatisticTensor> whole = std::move(*all).finish(), parts = std::move(*a).finish();
  ASSERT_EQ(whole.size(), names.size() + 3); // tokens, histogram_range, inlier_tokens
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(whole[i].name, parts[i].name);
    EXPECT_EQ(whole[i].shape, parts[i].shape);
    int64_t count = 1;
    for (int64_t extent : whole[i].shape)
      count *= extent;
    std::visit(
        [&](const auto &values) {
          const auto &others = std::get<std::decay_t<decltype(values)>>(parts[i].values);
          ASSERT_EQ(static_cast<int64_t>(values.size()), count);
          for (int64_t j = 0; j < count; ++j)
            ASSERT_NEAR(values[j], others[j], 1e-5 * std::fabs(values[j]) + 1e-4) << whole[i].name;
        },
        whole[i].values);
  }
  EXPECT_EQ(whole[0].name, "layer.0/tokens");
  EXPECT_EQ(std::get<1>(whole[0].values), std::vector<int64_t>{30});
}

TEST(SiteStatistics, ErrorsNameTheSite) {
  std::vector<std::string> names = {"mean_abs"}, unknown = {"median"};
  auto error = SiteStatistics::create("up_proj", 40, unknown).error();
  EXPECT_NE(error.message.find("'up_proj'"), std::string::npos);
  EXPECT_NE(error.message.find("absmax, minmax"), std::string::npos);
  auto s = SiteStatistics::create("up_proj", 40, names);
  std::vector<float> x = step(0);
  EXPECT_FALSE(s->update(ConstMatrix(x.data(), 5, 41), 0));
  x[40] = NAN;
  auto message = s->update(viewOf(x), 0).error().message;
  EXPECT_NE(message.find("site 'up_proj': row 1, column 0 is nan"), std::string::npos) << message;
  EXPECT_EQ(s->tokens(), 0);
  EXPECT_FALSE(s->merge(*SiteStatistics::create("gate_proj", 40, names)));
  EXPECT_FALSE(s->merge(*SiteStatistics::create("up_proj", 40, {})));
}

TEST(ExpertStatistics, AreThoseOfTheRowsOfEachExpert) {
  std::vector<std::string> names = {"absmax",  "minmax", "mean_abs", "moments",
                                    "hessian", "ema",    "inliers",  "histogram"};
  // No row chooses the second of four experts in the first step, and none the third at all.
  const std::vector<int32_t> offsets[] = {{0, 2, 2, 2, 6}, {0, 1, 4, 4, 6}};
  auto all = ExpertStatistics::create("up_proj", 40, names, 4);
  auto a = ExpertStatistics::create("up_proj", 40, names, 4);
  auto b = ExpertStatistics::create("up_proj", 40, names, 4);
  std::vector<SiteStatistics> own;
  for (int expert = 0; expert < 4; ++expert)
    own.push_back(std::move(*SiteStatistics::create("up_proj", 40, names)));
  for (int t = 0; t < 2; ++t) {
    std::vector<float> x = step(t);
    ASSERT_TRUE(all->update(viewOf(x), offsets[t], 0));
    ASSERT_TRUE((t == 0 ? *a : *b).update(viewOf(x), offsets[t], 0));
    for (int expert = 0; expert < 4; ++expert)
      ASSERT_TRUE(own[expert].update(
          viewOf(x).middleRows(offsets[t][expert], offsets[t][expert + 1] - offsets[t][expert]),
          0));
  }
  ASSERT_TRUE(a->merge(*b));
  std::vector<StatisticTensor> stacks = std::move(*all).finish(), merged = std::move(*a).finish();
  ASSERT_EQ(stacks.size(), names.size() + 3);
  for (int64_t expert = 0; expert < 4; ++expert) {
    std::vector<StatisticTensor> expected = std::move(own[expert]).finish();
    for (size_t i = 0; i < stacks.size(); ++i) {
      EXPECT_EQ(stacks[i].name, expected[i].name);
      EXPECT_EQ(stacks[i].shape.front(), 4);
      EXPECT_EQ(merged[i].shape, stacks[i].shape);
      std::visit(
          [&](const auto &values) {
            using Values = std::decay_t<decltype(values)>;
            const auto size = static_cast<int64_t>(values.size());
            const auto &found = std::get<Values>(stacks[i].values);
            const auto &other = std::get<Values>(merged[i].values);
            ASSERT_EQ(static_cast<int64_t>(found.size()), 4 * size);
            for (int64_t j = 0; j < size; ++j) {
              ASSERT_EQ(found[expert * size + j], values[j]) << stacks[i].name;
              ASSERT_NEAR(other[expert * size + j], values[j], 1e-5 * std::fabs(values[j]) + 1e-4);
            }
          },
          expected[i].values);
    }
  }
  EXPECT_EQ(std::get<1>(stacks[0].values), (std::vector<int64_t>{3, 3, 0, 6}));
  EXPECT_EQ(stacks[0].shape, std::vector<int64_t>{4});
}

TEST(ExpertStatistics, ErrorsNameTheSite) {
  std::vector<std::string> names = {"mean_abs"}, sinks = {"sinks"}, unknown = {"median"};
  EXPECT_NE(ExpertStatistics::create("up_proj", 40, sinks, 4).error().message.find("is none of"),
            std::string::npos);
  EXPECT_TRUE(ExpertStatistics::create("up_proj", 40, sinks, 0));
  EXPECT_FALSE(ExpertStatistics::create("up_proj", 40, unknown, 4));
  auto s = ExpertStatistics::create("up_proj", 40, names, 4);
  std::vector<float> x = step(0);
  const std::vector<int32_t> few = {0, 3, 6}, shorter = {0, 1, 2, 3, 4}, good = {0, 1, 2, 3, 6};
  EXPECT_FALSE(s->update(viewOf(x), few, 0));
  EXPECT_FALSE(s->update(viewOf(x), shorter, 0));
  EXPECT_FALSE(s->merge(*ExpertStatistics::create("up_proj", 40, names, 3)));
  x[2 * 40 + 1] = NAN;
  auto message = s->update(viewOf(x), good, 0).error().message;
  EXPECT_NE(message.find("expert 2 of site 'up_proj': row 0, column 1 is nan"), std::string::npos)
      << message;
}

} // namespace
