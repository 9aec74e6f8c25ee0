//===- AgreementTest.cpp - Whether all ranks do the same work -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Comm/Agreement.h"

#include "../Support/TestFiles.h"
#include "Ranks.h"

#include <gtest/gtest.h>

using namespace easyquant;
using namespace easyquant::comm;
using namespace easyquant::comm::test;

static void agreeOn(int size, const std::function<std::string(int rank)> &recipe,
                    const std::function<void(int rank, const Result<void> &)> &expect) {
  onRanks(size, [&](Communicator &communicator) {
    const std::string own = recipe(communicator.rank());
    const Agreed subjects[] = {Agreed::of("the version", "0.1.0"), Agreed::of("the recipe", own)};
    expect(communicator.rank(), agree(communicator, subjects));
    EXPECT_TRUE(communicator.barrier()); // a disagreement poisons nothing
  });
}

TEST(Agreement, HoldsWhereAllAreTheSame) {
  for (int size : {1, 2, 5})
    agreeOn(
        size, [](int) { return "same"; },
        [](int, const Result<void> &agreed) { ASSERT_VALUE(agreed); });
}

TEST(Agreement, NamesTheOddRankOnEveryRank) {
  for (int odd : {0, 2})
    agreeOn(
        4, [odd](int rank) { return rank == odd ? "other" : "same"; },
        [odd](int rank, const Result<void> &agreed) {
          EXPECT_ERROR(agreed, ErrorCode::InvalidArgument, fmt::format("rank {} of 4", rank),
                       "ranks disagree on the recipe", fmt::format("rank {} has", odd),
                       "start every rank with the same");
          if (!agreed) {
            EXPECT_EQ(agreed.error().message.find("rank 3 has"), std::string::npos);
          }
        });
}

TEST(Agreement, RankZeroIsRightWhereVotesAreEqual) {
  agreeOn(
      2, [](int rank) { return std::to_string(rank); },
      [](int, const Result<void> &agreed) {
        EXPECT_ERROR(agreed, ErrorCode::InvalidArgument, "rank 1 has");
      });
}

TEST(Agreement, RanksThatCompareOtherThingsDisagree) {
  onRanks(2, [](Communicator &communicator) {
    const Agreed subjects[] = {Agreed::of("the model", "m"), Agreed::of("the tokens", "t")};
    EXPECT_ERROR(agree(communicator, std::span(subjects, communicator.rank() == 0 ? 2 : 1)),
                 ErrorCode::InvalidArgument, "versions");
  });
}
