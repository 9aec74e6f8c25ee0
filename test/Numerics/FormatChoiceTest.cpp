//===- FormatChoiceTest.cpp -----------------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FormatTables.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

TEST(FormatChoice, FindsTheOptimumOfAllChoices) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const FormatTable table = randomTable(6, 4, seed); // 4^6 = 4096 of them
    const int64_t least = leastBytes(table);
    for (int64_t budget : {least, least + 300, least + 1200, least + 3000, 10 * least}) {
      double best = INFINITY;
      enumerate(table, [&](const FormatChoice &choice) {
        if (choice.bytes <= budget)
          best = std::min(best, choice.loss);
      });
      auto found = leastLoss(table, budget);
      ASSERT_TRUE(found) << found.error().message;
      EXPECT_DOUBLE_EQ(found->loss, best) << "seed " << seed << ", budget " << budget;
      EXPECT_LE(found->bytes, budget);
      EXPECT_EQ(costOf(table, found->formats).bytes, found->bytes);
    }
  }
}

TEST(FormatChoice, IsNoWorseThanAnyPenaltyAndNoBetterThanItsRelaxation) {
  // A whole model's worth of groups: what minimizes loss + p bytes is optimal for its own bytes.
  const FormatTable table = randomTable(120, 24, 7);
  for (double penalty : {1e-4, 1e-3, 1e-2}) {
    const FormatChoice penalized = leastPenalized(table, penalty);
    auto found = leastLoss(table, penalized.bytes);
    ASSERT_TRUE(found);
    EXPECT_NEAR(found->loss, penalized.loss, 1e-9 * penalized.loss);
    auto more = leastLoss(table, penalized.bytes + 500);
    ASSERT_TRUE(more);
    EXPECT_LE(more->loss, found->loss);
    EXPECT_GE(more->loss, penalized.loss - 500 * penalty - 1e-9);
  }
}

TEST(FormatChoice, AnImpossibleBudgetNamesTheLeastSize) {
  const FormatTable table = {{{40, 1}, {20, 3}}, {{70, 2}}};
  auto refused = leastLoss(table, 89);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::OutOfRange);
  EXPECT_NE(refused.error().message.find("take 90 bytes"), std::string::npos)
      << refused.error().message;
  EXPECT_FALSE(sampleChoices(table, 89, 3));
  EXPECT_EQ(leastLoss(table, 90)->formats, (std::vector<size_t>{1, 0}));
}

TEST(FormatChoice, LossesMayBeNegativeAndEqual) {
  const FormatTable table = {{{10, 0}, {20, -1}, {20, -1}, {30, -1}}, {{10, -2}, {40, -2}}};
  auto found = leastLoss(table, 100);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->formats, (std::vector<size_t>{1, 0}));
  EXPECT_EQ(undominated(table[0]), (std::vector<size_t>{0, 1}));
}

TEST(FormatChoice, DescentEndsWhereNoChangeHelps) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    const FormatTable table = randomTable(6, 4, seed);
    const int64_t budget = leastBytes(table) + 1500;
    auto objective = [&](std::span<const size_t> formats) -> Result<double> {
      return trueLoss(table, formats);
    };
    auto start = leastLoss(table, budget);
    ASSERT_TRUE(start);
    auto found = descend(table, budget, start->formats, 4096, objective);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_TRUE(found->isLocalOptimum);
    EXPECT_LE(found->loss, trueLoss(table, start->formats));
    EXPECT_DOUBLE_EQ(found->loss, trueLoss(table, found->choice.formats));
    enumerate(table, [&](const FormatChoice &choice) {
      size_t differences = 0;
      for (size_t group = 0; group < table.size(); ++group)
        differences += choice.formats[group] != found->choice.formats[group];
      if (differences == 1 && choice.bytes <= budget) {
        EXPECT_GE(trueLoss(table, choice.formats), found->loss) << "seed " << seed;
      }
    });
  }
}

TEST(FormatChoice, DescentKeepsToItsEvaluations) {
  const FormatTable table = randomTable(6, 4, 3);
  const int64_t budget = leastBytes(table) + 1500;
  std::vector<size_t> smallest;
  for (const auto &costs : table)
    smallest.push_back(undominated(costs).front());
  int64_t asked = 0;
  auto objective = [&](std::span<const size_t> formats) -> Result<double> {
    ++asked;
    return trueLoss(table, formats);
  };
  double before = trueLoss(table, smallest);
  for (int64_t evaluations : {1, 2, 5, 17}) {
    asked = 0;
    auto found = descend(table, budget, smallest, evaluations, objective);
    ASSERT_TRUE(found);
    EXPECT_EQ(asked, evaluations);
    EXPECT_EQ(found->evaluations, evaluations);
    EXPECT_FALSE(found->isLocalOptimum);
    EXPECT_LE(found->loss, before); // more evaluations never end worse
    before = found->loss;
  }
  EXPECT_FALSE(descend(table, budget, smallest, 0, objective));
  EXPECT_FALSE(descend(table, leastBytes(table) - 1, smallest, 9, objective));
}

TEST(FormatChoice, LearnsWhatKindsOfGroupsWeigh) {
  const FormatTable table = randomTable(40, 6, 11);
  std::vector<size_t> kindOf;
  for (size_t group = 0; group < table.size(); ++group)
    kindOf.push_back(group % 4);
  const std::vector<double> weights = {0.5, 3, 1, 0};
  const int64_t budget = 2 * leastBytes(table);
  auto choices = sampleChoices(table, budget, 24);
  ASSERT_TRUE(choices);
  ASSERT_EQ(choices->size(), 24u);
  std::vector<double> losses;
  for (const FormatChoice &choice : *choices) {
    EXPECT_LE(choice.bytes, budget);
    double loss = 0;
    for (size_t group = 0; group < table.size(); ++group)
      loss += weights[kindOf[group]] * table[group][choice.formats[group]].loss;
    losses.push_back(loss);
  }
  auto learned = fitKinds(table, kindOf, *choices, losses);
  ASSERT_TRUE(learned) << learned.error().message;
  for (size_t kind = 0; kind < 4; ++kind)
    EXPECT_NEAR((*learned)[kind], weights[kind], 0.1) << kind;
  // One sample says how much all of them weigh, and nothing of their differences.
  auto one = fitKinds(table, kindOf, std::span(*choices).first(1), std::span(losses).first(1));
  ASSERT_TRUE(one);
  EXPECT_FALSE(fitKinds(table, kindOf, {}, {}));
  losses[3] = 0;
  EXPECT_FALSE(fitKinds(table, kindOf, *choices, losses));
}

TEST(FormatChoice, RankCorrelationIsSpearmans) {
  const std::vector<double> x = {1, 2, 3, 4, 5}, y = {10, 30, 20, 50, 40};
  EXPECT_DOUBLE_EQ(rankCorrelation(x, x), 1);
  EXPECT_DOUBLE_EQ(rankCorrelation(x, std::vector<double>{5, 4, 3, 2, -9}), -1);
  EXPECT_DOUBLE_EQ(rankCorrelation(x, y), 1 - 6.0 * 4 / (5 * 24)); // 1 - 6 sum d^2 / (n (n^2 - 1))
  // Two halves of a tie share rank 1.5: covariance 4.5 over sqrt(5 * 4.5).
  EXPECT_NEAR(rankCorrelation(std::vector<double>{1, 2, 3, 4}, std::vector<double>{7, 8, 8, 9}),
              4.5 / std::sqrt(5 * 4.5), 1e-15);
  EXPECT_EQ(rankCorrelation(x, std::vector<double>(5, 2.0)), 0);
  EXPECT_EQ(rankCorrelation({}, {}), 0);
}

} // namespace
