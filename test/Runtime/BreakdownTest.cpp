//===- BreakdownTest.cpp - What the kernels of a session cost -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Fixture.h"
#include "easyquant/Runtime/Session.h"

#include <chrono>
#include <gtest/gtest.h>
#include <thread>

using namespace easyquant;
using namespace easyquant::runtime;
using namespace easyquant::runtime::test;

namespace {

/// A prompt of 9 tokens runs in steps of 4, 4 and 1.
static_assert(FIXTURE_MAX_ROWS == 4);
constexpr double kAttentionSeconds = int(FIXTURE_ATTENTION_NANOSECONDS) / 1e9;

class BreakdownTest : public testing::Test {
protected:
  void SetUp() override {
    writeFixture(folder.path());
    auto loaded = Model::load(folder.path().string(), kIsa, false);
    ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
    model = std::move(*loaded);
  }

  Session create(bool measure = true) const {
    return std::move(Session::create(model, 0, 1, measure).value());
  }

  static PhaseCost of(const Session &session, Phase phase) {
    return session.costs().value()[static_cast<size_t>(phase)];
  }

  TemporaryFolder folder;
  std::shared_ptr<const Model> model;
};

TEST_F(BreakdownTest, CountsAndTimesEveryKernel) {
  auto begin = std::chrono::steady_clock::now();
  Session session = create();
  ASSERT_TRUE(session.prefill(randomTokens(9, 1)).has_value());
  ASSERT_TRUE(session.prefill(randomTokens(1, 2)).has_value());
  PhaseCosts costs = session.costs().value();
  double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  double sum = 0;
  for (size_t i = 0; i < kPhases; ++i) {
    auto phase = static_cast<Phase>(i);
    EXPECT_EQ(costs[i].launches, phase == Phase::Other ? 10u : phase == Phase::Attention ? 4u : 0u);
    EXPECT_EQ(costs[i].seconds > 0, costs[i].launches > 0) << nameOf(phase);
    EXPECT_EQ(costs[i].bytes + costs[i].instructions, 0u);
    sum += costs[i].seconds;
  }
  EXPECT_GE(of(session, Phase::Attention).seconds, 4 * kAttentionSeconds);
  EXPECT_LE(sum, wall);
}

TEST_F(BreakdownTest, NamesSitesInTheirOrder) {
  Session session = create();
  ASSERT_TRUE(session.prefill(randomTokens(9, 1)).has_value());
  std::vector<SiteCost> sites = session.siteCosts().value();
  ASSERT_EQ(sites.size(), 2u);
  EXPECT_EQ(sites[0].site, "embedding");
  EXPECT_EQ(sites[0].phase, Phase::Other);
  EXPECT_EQ(sites[0].cost.launches, 9u);
  EXPECT_EQ(sites[1].site, "attention");
  EXPECT_EQ(sites[1].phase, Phase::Attention);
  EXPECT_EQ(sites[1].cost.launches, 3u);
  for (const SiteCost &site : sites)
    EXPECT_EQ(site.cost.seconds, of(session, site.phase).seconds);
}

TEST_F(BreakdownTest, AddsUpOverStepsAndOnlyOverSteps) {
  Session session = create();
  EXPECT_TRUE(session.siteCosts().value().empty());
  ASSERT_TRUE(session.prefill(randomTokens(1, 1)).has_value());
  double once = of(session, Phase::Attention).seconds;
  ASSERT_TRUE(session.truncate(0).has_value());
  EXPECT_EQ(of(session, Phase::Attention).seconds, once);
  ASSERT_TRUE(session.prefill(randomTokens(1, 1)).has_value());
  EXPECT_GE(of(session, Phase::Attention).seconds, once + kAttentionSeconds);
  // A step whose logits are refused has cost what it has cost.
  EXPECT_FALSE(session.prefill(std::vector<int32_t>{kOverflowingToken}).has_value());
  EXPECT_EQ(of(session, Phase::Attention).launches, 3u);
}

TEST_F(BreakdownTest, MeasuringChangesNoBit) {
  Session measured = create(), plain = create(false);
  std::vector<int32_t> tokens = randomTokens(7, 4);
  std::vector<float> first(tokens.size() * FIXTURE_VOCAB), second(first.size());
  ASSERT_TRUE(measured.score(tokens, first.data()).has_value());
  ASSERT_TRUE(plain.score(tokens, second.data()).has_value());
  EXPECT_EQ(first, second);
}

TEST_F(BreakdownTest, ASessionThatDoesNotMeasureSaysSo) {
  Session session = create(false);
  ASSERT_TRUE(session.prefill(randomTokens(2, 1)).has_value());
  auto expectError = [](const auto &result) {
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, ErrorCode::InvalidArgument);
    EXPECT_EQ(result.error().message, "costs of phases: the session or batch was not created to "
                                      "measure them; set measure in its options");
  };
  expectError(session.costs());
  expectError(session.siteCosts());
}

TEST_F(BreakdownTest, SessionsInThreadsCountTheirOwn) {
  // Run under ThreadSanitizer by the tsan preset.
  uint64_t launches[3] = {};
  auto work = [&](int which) {
    Session session = create(which < 2);
    for (int step = 0; step < 5 * (which + 1); ++step)
      if (!session.prefill(randomTokens(1, uint32_t(step))))
        return;
    if (which < 2)
      launches[which] = of(session, Phase::Attention).launches;
  };
  std::thread first(work, 0), second(work, 1), unmeasured(work, 2);
  first.join();
  second.join();
  unmeasured.join();
  EXPECT_EQ(launches[0], 5u);
  EXPECT_EQ(launches[1], 10u);
}

} // namespace
