//===- CommunicatorTest.cpp - Collectives among threads -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Support/TestFiles.h"
#include "Ranks.h"
#include "Reduce.h"
#include "easyquant/Comm/Bucket.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>

using namespace easyquant;
using namespace easyquant::comm;
using namespace easyquant::comm::test;

template <typename T> static std::vector<T> valuesOf(int rank, size_t count) {
  std::mt19937_64 random(static_cast<uint64_t>(rank) * 1000 + count);
  std::vector<T> values(count);
  for (T &value : values)
    value = static_cast<T>(std::normal_distribution<double>(0, 1e4)(random));
  return values;
}

template <typename T> static bool sameBits(const std::vector<T> &a, const std::vector<T> &b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// The tree that Communicator.h promises, written down once more.
template <typename T> static T treeSum(const std::vector<T> &values) {
  size_t power = 1;
  while (power * 2 <= values.size())
    power *= 2;
  const size_t extra = values.size() - power;
  std::vector<T> level;
  for (size_t i = 0; i < extra; ++i)
    level.push_back(values[2 * i] + values[2 * i + 1]);
  level.insert(level.end(), values.begin() + static_cast<ptrdiff_t>(2 * extra), values.end());
  while (level.size() > 1) {
    std::vector<T> next;
    for (size_t i = 0; i < level.size(); i += 2)
      next.push_back(level[i] + level[i + 1]);
    level = next;
  }
  return level[0];
}

template <typename T> class Collectives : public testing::Test {};
using Types = testing::Types<float, double, int32_t, int64_t>;
TYPED_TEST_SUITE(Collectives, Types);

/// What all ranks get of valuesOf(rank, count).
template <typename T> static std::vector<T> reduced(int size, size_t count, Reduction reduction) {
  std::vector<std::vector<T>> parts;
  for (int rank = 0; rank < size; ++rank)
    parts.push_back(valuesOf<T>(rank, count));
  std::vector<T> result(count);
  for (size_t i = 0; i < count; ++i) {
    std::vector<T> column;
    for (const auto &part : parts)
      column.push_back(part[i]);
    result[i] = reduction == Reduction::Sum   ? treeSum(column)
                : reduction == Reduction::Min ? *std::ranges::min_element(column)
                                              : *std::ranges::max_element(column);
  }
  return result;
}

TYPED_TEST(Collectives, AllReduceFollowsTheTree) {
  for (int size = 1; size <= 9; ++size)
    onRanks(size, [&](Communicator &communicator) {
      for (size_t count : {size_t(0), size_t(1), size_t(257)})
        for (Reduction reduction : {Reduction::Sum, Reduction::Min, Reduction::Max}) {
          auto values = valuesOf<TypeParam>(communicator.rank(), count);
          ASSERT_VALUE(communicator.allReduce(std::span(values), reduction));
          EXPECT_TRUE(sameBits(values, reduced<TypeParam>(size, count, reduction)))
              << size << " ranks, rank " << communicator.rank();
        }
      ASSERT_VALUE(communicator.close());
    });
}

TYPED_TEST(Collectives, GatherEqualAndUnequalCounts) {
  const std::vector<int64_t> counts = {3, 0, 5};
  for (bool equal : {true, false})
    onRanks(3, [&](Communicator &communicator) {
      std::vector<TypeParam> all, values;
      for (int rank = 0; rank < 3; ++rank) {
        const auto part =
            valuesOf<TypeParam>(rank, equal ? 4 : static_cast<size_t>(counts[size_t(rank)]));
        all.insert(all.end(), part.begin(), part.end());
        values.insert(values.end(), rank == communicator.rank() ? part.begin() : part.end(),
                      part.end());
        values.resize(all.size());
      }
      ASSERT_VALUE(communicator.allGather(std::span(values),
                                          equal ? std::span<const int64_t>() : std::span(counts)));
      EXPECT_TRUE(sameBits(values, all));
    });
}

TEST(Communicator, BroadcastsFromAnyRank) {
  for (int root : {0, 2})
    onRanks(4, [&](Communicator &communicator) {
      std::string text = communicator.rank() == root ? "from the root" : "nothing to see";
      text.resize(13);
      ASSERT_VALUE(communicator.broadcast(std::span(text), root));
      EXPECT_EQ(text, "from the root");
    });
}

TEST(Communicator, ManyAreUnderWayAtOnceAndWaitedForInAnyOrder) {
  onRanks(3, [](Communicator &communicator) {
    std::vector<int64_t> values(20);
    std::vector<Request> requests;
    for (int64_t i = 0; i < 20; ++i) {
      values[size_t(i)] = i * (communicator.rank() + 1);
      auto request = communicator.start({.call = Call::AllReduce,
                                         .type = ElementType::I64,
                                         .data = &values[size_t(i)],
                                         .count = 1});
      ASSERT_VALUE(request);
      requests.push_back(*request);
    }
    for (int64_t i = 0; i < 20; ++i) {
      const auto at = size_t(communicator.rank() == 1 ? 19 - i : i);
      ASSERT_VALUE(communicator.wait(requests[at]));
      EXPECT_EQ(values[at], int64_t(at) * 6);
    }
    ASSERT_VALUE(communicator.wait(requests[3])); // once more
  });
}

TEST(Communicator, SendsAndReceivesInOrder) {
  onRanks(2, [](Communicator &communicator) {
    const int other = 1 - communicator.rank();
    int32_t out[2] = {10 + communicator.rank(), 20 + communicator.rank()}, in[2] = {};
    std::vector<Request> requests;
    for (Call call : {Call::Send, Call::Receive})
      for (int32_t &value : call == Call::Send ? out : in) {
        auto request = communicator.start(
            {.call = call, .type = ElementType::I32, .data = &value, .count = 1, .peer = other});
        ASSERT_VALUE(request);
        requests.push_back(*request);
      }
    for (Request request : requests)
      ASSERT_VALUE(communicator.wait(request));
    EXPECT_EQ(in[0], 10 + other);
    EXPECT_EQ(in[1], 20 + other);
  });
}

TEST(Communicator, BucketsGiveWhatSingleCallsGive) {
  onRanks(3, [](Communicator &communicator) {
    for (size_t each : {size_t(1), size_t(5)}) {
      std::vector<std::vector<float>> bucketed, single;
      Bucket<float> bucket;
      for (size_t i = 0; i < 224; ++i)
        single.push_back(
            valuesOf<float>(communicator.rank() * 300 + int(i), i % 7 == 0 ? 1 : each));
      bucketed = single;
      for (auto &buffer : bucketed)
        bucket.add(std::span(buffer));
      ASSERT_VALUE(bucket.allReduce(communicator, Reduction::Sum, Order::Fixed));
      for (auto &buffer : single)
        ASSERT_VALUE(communicator.allReduce(std::span(buffer), Reduction::Sum));
      for (size_t i = 0; i < single.size(); ++i)
        EXPECT_TRUE(sameBits(single[i], bucketed[i]));
    }
  });
}

TEST(Communicator, NaNsAreKeptByMinimumAndMaximum) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (Reduction reduction : {Reduction::Min, Reduction::Max}) {
    float left[2] = {nan, 1}, right[2] = {2, nan}, into[2] = {};
    combine(ElementType::F32, reduction, 2, into, left, right);
    EXPECT_TRUE(std::isnan(into[0]) && std::isnan(into[1]));
  }
}

TEST(Communicator, ARankThatDoesNotComeIsNamedOnAll) {
  onRanks(3,
          [](Communicator &communicator) {
            if (communicator.rank() == 1) { // busy, and then late
              std::this_thread::sleep_for(std::chrono::milliseconds(600));
              EXPECT_ERROR(communicator.barrier(), ErrorCode::IO, "rank 1 of 3", "given up");
              return;
            }
            std::vector<float> values(3);
            auto result =
                communicator.allReduce(std::span(values), Reduction::Max, Order::Any, "o_proj");
            EXPECT_ERROR(result, ErrorCode::IO, "all-reduce (max) of 3 f32 (12 bytes) at o_proj",
                         "rank 1");
            EXPECT_EQ(communicator.barrier().error().message, result.error().message); // at once
          },
          {.timeout = std::chrono::milliseconds(200)});
}

TEST(Communicator, ARankThatLeavesEndsTheOthers) {
  auto communicators = makeThreadCommunicators(2);
  communicators[1].reset();
  EXPECT_ERROR(communicators[0]->barrier(), ErrorCode::IO, "rank 0 of 2: barrier",
               "rank 1 of 2 has left");
}

TEST(Communicator, AbortTellsTheReason) {
  onRanks(2, [](Communicator &communicator) {
    if (communicator.rank() == 0)
      communicator.abort({ErrorCode::IO, "the disk is full"});
    EXPECT_ERROR(communicator.barrier(), ErrorCode::IO, "the disk is full");
  });
}

TEST(Communicator, CanBeInterrupted) {
  std::atomic<bool> interrupted = false;
  auto communicators = makeThreadCommunicators(2, {.interrupted = &interrupted});
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    interrupted = true;
  });
  EXPECT_ERROR(communicators[0]->barrier(), ErrorCode::Interrupted, "barrier", "interrupted");
  other.join();
}

TEST(Communicator, RanksThatStartDifferentCollectivesAreNamed) {
  onRanks(2, [](Communicator &communicator) {
    std::vector<float> values(communicator.rank() == 0 ? 4 : 6);
    auto result = communicator.allReduce(std::span(values), Reduction::Sum);
    ASSERT_FALSE(result);
    EXPECT_TRUE(
        easyquant::test::mentions(result.error().message, {"all ranks must start the same"}))
        << result.error().message;
  });
}

TEST(Communicator, RefusesWhatCannotBe) {
  auto communicator = std::move(makeThreadCommunicators(1)[0]);
  std::vector<float> values(5);
  std::vector<int64_t> counts = {4};
  EXPECT_ERROR(communicator->broadcast(std::span(values), 1), ErrorCode::InvalidArgument,
               "found rank 1, expected a rank in 0..0");
  EXPECT_ERROR(communicator->allGather(std::span(values), std::span(counts)),
               ErrorCode::InvalidArgument, "with the sum 5");
  EXPECT_ERROR(communicator->run({.call = Call::AllReduce, .data = values.data(), .count = 5}),
               ErrorCode::InvalidArgument, "found bytes, expected i32");
  EXPECT_ERROR(
      communicator->run({.call = Call::Send, .data = values.data(), .count = 5, .peer = 0}),
      ErrorCode::InvalidArgument, "expected another rank");
  EXPECT_ERROR(communicator->run({.call = Call::Barrier, .count = -1}), ErrorCode::InvalidArgument,
               "negative");
  EXPECT_ERROR(communicator->run({.call = Call::AllReduce,
                                  .type = ElementType::F32,
                                  .memory = Memory::Device,
                                  .data = values.data(),
                                  .count = 5}),
               ErrorCode::Unsupported, "host memory only");
  EXPECT_ERROR(communicator->wait({7}), ErrorCode::InvalidArgument, "found request 7");
  ASSERT_VALUE(communicator->barrier()); // none of these poisons
  ASSERT_VALUE(communicator->close());
}
