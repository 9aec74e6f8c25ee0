//===- FailingAllocationTest.cpp - The C interface without memory ---------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every allocation of a model's life is refused once, one after the other, from loading to freeing:
// what is called must return, and the next life must be as if nothing had happened. What leaks,
// AddressSanitizer finds.
//
//===----------------------------------------------------------------------===//

#include "FailingAllocation.h"
#include "Fixture.h"
#include "Owned.h"
#include "easyquant/Runtime/easyquant.h"

#include <gtest/gtest.h>
#include <memory>
#include <thread>

using namespace easyquant::runtime::test;

namespace {

class FailingAllocationTest : public testing::Test {
protected:
  void SetUp() override { writeFixture(folder.path()); }

  Owned<eq_error> load(Owned<eq_model> &model) const {
    eq_model *raw = nullptr;
    eq_error *error = eq_model_load(path.c_str(), nullptr, &raw);
    model.reset(raw);
    return Owned<eq_error>(error);
  }

  static Owned<eq_error> create(const eq_model *model, Owned<eq_session> &session, bool measure) {
    eq_session *raw = nullptr;
    const eq_session_options options = {100, 2, measure, 0};
    eq_error *error = eq_session_create(model, &options, &raw);
    session.reset(raw);
    return Owned<eq_error>(error);
  }

  /// Every call that appends.
  static Owned<eq_error> append(eq_session *session) {
    static const int32_t tokens[] = {1, 5, 9, 3, 7, 11};
    static float logits[3 * FIXTURE_VOCAB];
    eq_session_reset(session);
    for (auto call : {+[](eq_session *s) { return eq_session_prefill(s, tokens, 6); },
                      +[](eq_session *s) { return eq_session_decode(s, 4); },
                      +[](eq_session *s) { return eq_session_truncate(s, 2); },
                      +[](eq_session *s) { return eq_session_score(s, tokens, 3, logits); }})
      if (Owned<eq_error> error{call(session)})
        return error;
    return nullptr;
  }

  /// Every call that tells what was measured.
  static Owned<eq_error> tell(eq_session *session) {
    const char *json = nullptr;
    for (auto call : {eq_session_breakdown, eq_session_breakdown_sites})
      if (Owned<eq_error> error{call(session, &json)})
        return error;
    return nullptr;
  }

  static Owned<eq_error> create(const eq_model *model, Owned<eq_batch> &batch,
                                int64_t keptStates = 0) {
    eq_batch *raw = nullptr;
    const eq_batch_options options = {100, 3, 64, 2, 0, keptStates, 0};
    eq_error *error = eq_batch_create(model, &options, &raw);
    batch.reset(raw);
    return Owned<eq_error>(error);
  }

  /// A life of two sequences: one of five tokens, and a fork of it that goes on with two more, each
  /// item with its error. Those that it leaves behind are removed first.
  static Owned<eq_error> live(eq_batch *batch, std::vector<int64_t> &ids) {
    static const int32_t tokens[] = {1, 5, 9, 3, 7, 11};
    static float logits[5 * FIXTURE_VOCAB];
    static double logprobs[2];
    for (int64_t id : ids)
      eq_error_free(eq_batch_remove(batch, id));
    ids.clear();
    int64_t first = 0, fork = 0;
    if (Owned<eq_error> error{eq_batch_add(batch, &first)})
      return error;
    ids.push_back(first);
    eq_batch_item items[] = {
        {first, tokens, 5, logits, nullptr, nullptr, 0, EQ_OK, nullptr},
        {first + 100, tokens, 5, nullptr, nullptr, nullptr, 0, EQ_OK, nullptr}};
    if (Owned<eq_error> error{eq_batch_append(batch, items, 2)})
      return error;
    if (Owned<eq_error> error{items[0].error})
      return error;
    const Owned<eq_error> refused{items[1].error};
    EXPECT_EQ(items[1].status, EQ_INVALID_ARGUMENT);
    if (Owned<eq_error> error{eq_batch_fork(batch, first, &fork)})
      return error;
    ids.push_back(fork);
    items[0] = {first, tokens + 5, 1, nullptr, nullptr, nullptr, 0, EQ_OK, nullptr};
    items[1] = {fork, tokens, 2, logits, logprobs, nullptr, 0, EQ_OK, nullptr};
    if (Owned<eq_error> error{eq_batch_append(batch, items, 2)}) {
      EXPECT_EQ(eq_batch_position(batch, first), 5);
      EXPECT_EQ(eq_batch_position(batch, fork), 5);
      return error;
    }
    EXPECT_FALSE(items[0].error || items[1].error);
    eq_choice choices[3] = {};
    choices[0].sequence = first;
    choices[1].sequence = fork;
    choices[2].sequence = first + 100;
    if (Owned<eq_error> error{eq_batch_choose(batch, choices, 3)})
      return error;
    const Owned<eq_error> notThere{choices[2].error};
    EXPECT_EQ(choices[2].status, EQ_INVALID_ARGUMENT);
    EXPECT_FALSE(choices[0].error || choices[1].error);
    if (Owned<eq_error> error{eq_batch_truncate(batch, fork, 6)})
      return error;
    size_t size = 0;
    if (Owned<eq_error> error{eq_batch_saved_size(batch, first, &size)})
      return error;
    static char bytes[1 << 16];
    EXPECT_LE(size, sizeof(bytes));
    if (Owned<eq_error> error{eq_batch_save(batch, first, bytes, size)})
      return error;
    int64_t restored = 0;
    if (Owned<eq_error> error{eq_batch_restore(batch, bytes, size, &restored)})
      return error;
    ids.push_back(restored); // which has room for it
    return nullptr;
  }

  static void expectWorks(eq_batch *batch, std::vector<int64_t> &ids, bool isRecurrent = false) {
    Owned<eq_error> error = live(batch, ids);
    ASSERT_FALSE(error) << eq_error_get_message(error.get());
    const int32_t token = 4;
    eq_batch_item item = {ids[1], &token, 1, nullptr, nullptr, nullptr, 0, EQ_OK, nullptr};
    ASSERT_EQ(eq_batch_append(batch, &item, 1), nullptr);
    ASSERT_EQ(item.status, EQ_OK);
    for (auto [id, tokens] : {std::pair(ids[0], std::vector<int32_t>{1, 5, 9, 3, 7, 11}),
                              std::pair(ids[1], std::vector<int32_t>{1, 5, 9, 3, 7, 1, 4})}) {
      std::vector<double> expected = referenceLogits(FixtureWeights(), tokens, isRecurrent);
      for (size_t v = 0; v < FIXTURE_VOCAB; ++v)
        EXPECT_NEAR(eq_batch_logits(batch, id)[v], expected[v], 1e-4 * (1 + std::abs(expected[v])));
    }
  }

  static void expectWorks(eq_session *session) {
    Owned<eq_error> error = append(session);
    ASSERT_FALSE(error) << eq_error_get_message(error.get());
    std::vector<double> expected = referenceLogits(FixtureWeights(), {1, 5, 1, 5, 9});
    for (size_t v = 0; v < FIXTURE_VOCAB; ++v)
      EXPECT_NEAR(eq_session_logits(session)[v], expected[v], 1e-4 * (1 + std::abs(expected[v])));
  }

  /// Lets the first, second, ... allocation of `body` fail, until there is none left; `after`
  /// follows each. How many there were.
  template <typename Body, typename After> static int64_t sweep(Body body, After after) {
    for (int64_t number = 1;; ++number) {
      SCOPED_TRACE(number);
      Owned<eq_error> error;
      bool isOver;
      {
        FailingAllocation failing(number);
        error = body();
        isOver = !FailingAllocation::hasFailed();
      }
      if (error)
        EXPECT_GT(std::string(eq_error_get_message(error.get())).size(), 8u);
      EXPECT_FALSE(isOver && error) << eq_error_get_message(error.get());
      after();
      if (isOver || testing::Test::HasFailure())
        return number - 1;
    }
  }

  TemporaryFolder folder;
  const std::string path = folder.path();
};

TEST_F(FailingAllocationTest, LoadingReturns) {
  // From cold: each allocation fails the first time that it is made in this process.
  Owned<eq_model> model;
  int64_t count = sweep([&] { return load(model); }, [] {});
  EXPECT_GT(count, 100);
  ASSERT_TRUE(model);
}

TEST_F(FailingAllocationTest, SessionsReturnAndGoOn) {
  Owned<eq_model> model;
  ASSERT_FALSE(load(model));
  for (bool measure : {false, true}) {
    Owned<eq_session> session;
    int64_t count = sweep([&] { return create(model.get(), session, measure); }, [] {});
    EXPECT_GT(count, 0);
    ASSERT_TRUE(session);
    // Whatever failed, the same session works afterwards.
    sweep([&] { return append(session.get()); }, [&] { expectWorks(session.get()); });
    if (measure)
      EXPECT_GT(sweep([&] { return tell(session.get()); }, [] {}), 50);
    expectWorks(session.get());
  }
}

TEST_F(FailingAllocationTest, BatchesReturnAndGoOn) {
  Owned<eq_model> model;
  ASSERT_FALSE(load(model));
  Owned<eq_batch> batch;
  EXPECT_GT(sweep([&] { return create(model.get(), batch); }, [] {}), 0);
  ASSERT_TRUE(batch);
  // From the first call on, and then with all buffers at their size.
  std::vector<int64_t> ids;
  ids.reserve(3);
  EXPECT_GT(sweep([&] { return live(batch.get(), ids); }, [&] { expectWorks(batch.get(), ids); }),
            10);
  expectWorks(batch.get(), ids);
}

TEST_F(FailingAllocationTest, BatchesWithKeptStatesReturnAndGoOn) {
  writeRecurrentFixture(folder.path());
  Owned<eq_model> model;
  ASSERT_FALSE(load(model));
  Owned<eq_batch> batch;
  ASSERT_FALSE(create(model.get(), batch, 1));
  std::vector<int64_t> ids;
  ids.reserve(3);
  EXPECT_GT(sweep([&] { return live(batch.get(), ids); },
                  [&] { expectWorks(batch.get(), ids, /*isRecurrent=*/true); }),
            10);
  expectWorks(batch.get(), ids, /*isRecurrent=*/true);
}

#if !__has_feature(address_sanitizer) // which alone sees what libomp allocates
TEST_F(FailingAllocationTest, StepsFindTheirThreads) {
  constexpr size_t kLineOfText = 512; // of a libomp that traces its loops
  Owned<eq_model> model;
  Owned<eq_session> session;
  ASSERT_FALSE(load(model));
  std::thread([&] { // which libomp has not seen
    {
      FailingAllocation watching(0);
      ASSERT_FALSE(create(model.get(), session, false));
      EXPECT_GT(FailingAllocation::largestOfOpenMP(), kLineOfText);
    }
    FailingAllocation watching(0);
    ASSERT_FALSE(append(session.get()));
    EXPECT_LE(FailingAllocation::largestOfOpenMP(), kLineOfText);
  })
      .join();
  // In this thread the first call takes what it needs.
  ASSERT_FALSE(append(session.get()));
  FailingAllocation watching(0);
  ASSERT_FALSE(append(session.get()));
  EXPECT_LE(FailingAllocation::largestOfOpenMP(), kLineOfText);
}
#endif

} // namespace
