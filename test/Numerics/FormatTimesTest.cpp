//===- FormatTimesTest.cpp ------------------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FormatTables.h"

#include <gtest/gtest.h>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

/// Times that know nothing of bytes, nor of one another.
FormatTable timedTable(unsigned seed) {
  FormatTable table = randomTable(6, 4, seed);
  std::mt19937_64 random(seed);
  for (std::vector<FormatCost> &costs : table)
    for (FormatCost &cost : costs) {
      cost.milliseconds.decode = 1 + static_cast<double>(random() % 1000) / 100;
      cost.milliseconds.prefill = 100 + static_cast<double>(random() % 1000);
    }
  return table;
}

ChoiceRule ofBytes(int64_t budget) {
  return [=](const FormatTable &priced, double) { return leastLoss(priced, budget); };
}

ChoiceRule ofPenalty(double lossPerByte) {
  return [=](const FormatTable &priced, double lossWeight) -> Result<FormatChoice> {
    return leastPenalized(priced, lossWeight * lossPerByte);
  };
}

/// The least times of all choices within a budget.
LeastTimes leastOfAll(const FormatTable &table, int64_t budget, const Milliseconds &limits) {
  LeastTimes least{kAnyTime, kAnyTime};
  enumerate(table, [&](const FormatChoice &choice) {
    if (choice.bytes > budget)
      return;
    for (Stage stage : kStages) {
      const double time = choice.milliseconds[stage];
      least.alone[stage] = std::min(least.alone[stage], time);
      if (choice.milliseconds[otherThan(stage)] <= limits[otherThan(stage)])
        least.beside[stage] = std::min(least.beside[stage], time);
    }
  });
  return least;
}

TEST(FormatTimes, OneLimitIsKeptAndNoChoiceThatIsFasterAndSmallerIsBetter) {
  for (unsigned seed = 0; seed < 20; ++seed)
    for (Stage stage : kStages) {
      const FormatTable table = timedTable(seed);
      const int64_t budget = leastBytes(table) + 3000;
      auto free = withinTime(table, kAnyTime, ofBytes(budget));
      ASSERT_TRUE(free) << free.error().message;
      EXPECT_EQ(free->formats, leastLoss(table, budget)->formats);
      const double least = leastOfAll(table, budget, kAnyTime).alone[stage];
      for (double share : {0.0, 0.3, 0.7}) {
        Milliseconds limits = kAnyTime;
        limits[stage] = least + share * (free->milliseconds[stage] - least) + 1e-9;
        auto found = withinTime(table, limits, ofBytes(budget));
        ASSERT_TRUE(found) << found.error().message;
        EXPECT_TRUE(found->milliseconds.within(limits));
        EXPECT_LE(found->bytes, budget);
        enumerate(table, [&](const FormatChoice &choice) {
          if (choice.bytes <= budget && choice.milliseconds[stage] <= found->milliseconds[stage])
            EXPECT_GE(choice.loss, found->loss * (1 - 1e-12)) << "seed " << seed;
        });
      }
      Milliseconds limits = kAnyTime;
      limits[stage] = 0.99 * least;
      auto refused = withinTime(table, limits, ofBytes(budget));
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, ErrorCode::OutOfRange);
      EXPECT_EQ(refused.error().message,
                fmt::format("{:.4g} ms {}: the fastest formats take {:.4g} ms", limits[stage],
                            stage == Stage::Decode ? "a token" : "for 512 tokens", least));
    }
}

TEST(FormatTimes, APenaltyOfBytesStopsAtNoLimitThatCanBeMet) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const FormatTable table = timedTable(seed);
    for (double lossPerByte : {1e-4, 1e-2, 1.0})
      for (Stage stage : kStages) {
        Milliseconds limits = kAnyTime;
        limits[stage] = leastOfAll(table, INT64_MAX, kAnyTime).alone[stage] + 1e-9;
        auto found = withinTime(table, limits, ofPenalty(lossPerByte));
        ASSERT_TRUE(found) << found.error().message;
        EXPECT_TRUE(found->milliseconds.within(limits));
      }
  }
}

/// Relaxation leaves a few tight limits unmet, of few groups more than of many.
TEST(FormatTimes, BothLimitsAreKeptAndNoChoiceThatIsFasterAndSmallerIsBetter) {
  int met = 0, missed = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    const FormatTable table = timedTable(seed);
    const int64_t budget = leastBytes(table) + 3000;
    const FormatChoice free = *leastLoss(table, budget);
    const Milliseconds least = leastOfAll(table, budget, kAnyTime).alone;
    for (double decode : {0.1, 0.3, 0.7})
      for (double prefill : {0.1, 0.3, 0.7}) {
        const Milliseconds limits = {
            least.decode + decode * (free.milliseconds.decode - least.decode),
            least.prefill + prefill * (free.milliseconds.prefill - least.prefill)};
        const LeastTimes known = leastOfAll(table, budget, limits);
        auto found = withinTime(table, limits, ofBytes(budget));
        if (!found) {
          EXPECT_EQ(found.error().code, ErrorCode::OutOfRange);
          EXPECT_NE(found.error().message.find("for 512 tokens, together: within the latter"),
                    std::string::npos)
              << found.error().message;
          auto beside = leastTimes(table, limits, ofBytes(budget));
          ASSERT_TRUE(beside);
          for (Stage stage : kStages) {
            EXPECT_GT(beside->beside[stage], limits[stage]);
            EXPECT_GE(beside->beside[stage], known.beside[stage] * (1 - 1e-12));
            EXPECT_NEAR(beside->alone[stage], known.alone[stage], 1e-9 * known.alone[stage]);
          }
          missed += known.beside.within(limits);
          continue;
        }
        ++met;
        EXPECT_TRUE(found->milliseconds.within(limits));
        EXPECT_LE(found->bytes, budget);
        enumerate(table, [&](const FormatChoice &choice) {
          if (choice.bytes <= budget && choice.milliseconds.within(found->milliseconds))
            EXPECT_GE(choice.loss, found->loss * (1 - 1e-12)) << "seed " << seed;
        });
      }
  }
  EXPECT_GT(met, 100);
  EXPECT_LT(missed, met / 10);
}

/// A whole model's worth of groups: limits between those of the fastest choices are met.
TEST(FormatTimes, ManyGroupsLeaveLittleRoom) {
  FormatTable table = randomTable(60, 12, 5);
  std::mt19937_64 random(5);
  for (std::vector<FormatCost> &costs : table)
    for (FormatCost &cost : costs) {
      const double bytes = static_cast<double>(cost.bytes);
      cost.milliseconds = {bytes * (0.8 + 4e-4 * static_cast<double>(random() % 1000)),
                           bytes * (0.8 + 4e-4 * static_cast<double>(random() % 1000))};
    }
  const int64_t budget = 2 * leastBytes(table);
  const ChoiceRule rule = ofBytes(budget);
  const FormatChoice free = *leastLoss(table, budget);
  const Milliseconds least = leastTimes(table, kAnyTime, rule)->alone;
  double before = INFINITY;
  for (double share : {0.2, 0.5, 0.9}) {
    const Milliseconds limits = {least.decode + share * (free.milliseconds.decode - least.decode),
                                 least.prefill +
                                     share * (free.milliseconds.prefill - least.prefill)};
    auto found = withinTime(table, limits, rule);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_TRUE(found->milliseconds.within(limits));
    EXPECT_LE(found->loss, before);
    EXPECT_GE(found->loss, free.loss * (1 - 1e-12));
    before = found->loss;
    // One stage has little left of its time.
    EXPECT_GT(std::max(found->milliseconds.decode / limits.decode,
                       found->milliseconds.prefill / limits.prefill),
              0.97);
  }
}

TEST(FormatTimes, WhatIsFasterIsWorthItsBytes) {
  const std::vector<FormatCost> costs = {
      {20, 2, {5, 50}},   {30, 3, {4, 50}}, // more of both, but faster to decode
      {30, 3, {5, 30}},                     // or to prefill
      {30, 3, {4.9, 49}},                   // by no more than chance
      {20, 2, {5, 50}},   {40, 1, {9, 90}},
  };
  EXPECT_EQ(undominatedInTime(costs), (std::vector<size_t>{0, 1, 2, 5}));
  for (unsigned seed = 0; seed < 20; ++seed)
    for (const std::vector<FormatCost> &group : randomTable(6, 4, seed))
      EXPECT_EQ(undominatedInTime(group), undominated(group)); // nothing was timed
}

TEST(FormatTimes, DescentKeepsToBothLimits) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    const FormatTable table = timedTable(seed);
    const int64_t budget = leastBytes(table) + 3000;
    const FormatChoice start = *leastLoss(table, budget);
    const Milliseconds limits = start.milliseconds + Milliseconds{0.5, 50};
    auto objective = [&](std::span<const size_t> formats) -> Result<double> {
      return trueLoss(table, formats);
    };
    auto found = descend(table, budget, start.formats, 4096, objective, limits);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_TRUE(found->isLocalOptimum);
    EXPECT_TRUE(found->choice.milliseconds.within(limits));
    enumerate(table, [&](const FormatChoice &choice) {
      size_t differences = 0;
      for (size_t group = 0; group < table.size(); ++group)
        differences += choice.formats[group] != found->choice.formats[group];
      if (differences == 1 && choice.bytes <= budget && choice.milliseconds.within(limits)) {
        EXPECT_GE(trueLoss(table, choice.formats), found->loss) << "seed " << seed;
      }
    });
    for (Stage stage : kStages) {
      Milliseconds tight = kAnyTime;
      tight[stage] = 0.99 * start.milliseconds[stage];
      EXPECT_FALSE(descend(table, budget, start.formats, 4096, objective, tight));
    }
  }
}

} // namespace
