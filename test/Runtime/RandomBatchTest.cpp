//===- RandomBatchTest.cpp - A batch beside sessions --------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Many random calls of a batch (sequences join, leave, fork, are cut back and appended to;
// items are refused, pages run out, calls are interrupted), beside sessions that are fed the same:
// the same logits, to the bit. With a recurrent state, too, whose model traps where the state is
// not that of the tokens before. Run under ThreadSanitizer by the tsan preset.
//
//===----------------------------------------------------------------------===//

#include "Fixture.h"
#include "easyquant/Runtime/Batch.h"
#include "easyquant/Runtime/Session.h"

#include <deque>
#include <gtest/gtest.h>
#include <random>

using namespace easyquant;
using namespace easyquant::runtime;
using namespace easyquant::runtime::test;

namespace {

constexpr int64_t kContext = 60, kSequences = 9, kTokens = 200;

/// How many states are kept; -1: layers have none.
class RandomBatchTest : public testing::TestWithParam<int64_t> {
protected:
  /// A sequence of the batch, and what it should be.
  struct Mirror {
    int64_t id;
    std::vector<int32_t> tokens;
    std::vector<float> logits; ///< empty: none
  };

  void SetUp() override {
    if (GetParam() < 0)
      writeFixture(folder.path());
    else
      writeRecurrentFixture(folder.path());
    model = Model::load(folder.path().string(), kIsa, false).value();
    batch = std::make_unique<Batch>(
        Batch::create(model, {.context = kContext,
                              .sequences = kSequences,
                              .tokens = kTokens,
                              .threads = 2,
                              .keptStates = std::max<int64_t>(0, GetParam())})
            .value());
    session = std::make_unique<Session>(Session::create(model, kContext, 1).value());
  }

  int64_t upTo(int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(random); }
  bool oneIn(int64_t count) { return upTo(count - 1) == 0; }
  Mirror &anyMirror() { return mirrors[static_cast<size_t>(upTo(std::ssize(mirrors) - 1))]; }

  /// What a session that holds `mirror` makes of the tokens: the logits of every one. The cache of
  /// the fixture is float, so that it does not matter how its tokens came there.
  Result<std::vector<float>> inASession(const Mirror &mirror, std::span<const int32_t> tokens) {
    EXPECT_TRUE(session->truncate(0).has_value());
    if (!mirror.tokens.empty())
      EXPECT_TRUE(session->prefill(mirror.tokens).has_value());
    std::vector<float> logits(tokens.size() * FIXTURE_VOCAB);
    if (auto done = session->score(tokens, logits.data()); !done)
      return Unexpected(done.error());
    return logits;
  }

  void expectSame() {
    for (const Mirror &mirror : mirrors) {
      ASSERT_EQ(batch->position(mirror.id).value(), std::ssize(mirror.tokens));
      const float *logits = batch->logits(mirror.id);
      ASSERT_EQ(logits == nullptr, mirror.logits.empty());
      if (logits)
        ASSERT_TRUE(std::equal(mirror.logits.begin(), mirror.logits.end(), logits))
            << "sequence " << mirror.id;
    }
  }

  void appendToSome();

  TemporaryFolder folder;
  std::shared_ptr<const Model> model;
  std::unique_ptr<Batch> batch;
  std::unique_ptr<Session> session;
  std::vector<Mirror> mirrors;
  uint32_t seed = 14;
  std::mt19937 random{seed};
  int64_t appended = 0, withoutPages = 0, interrupted = 0, refused = 0;
};

void RandomBatchTest::appendToSome() {
  std::deque<std::vector<int32_t>> tokens;
  std::deque<std::vector<float>> logits;
  std::vector<Batch::Item> items;
  std::shuffle(mirrors.begin(), mirrors.end(), random);
  const size_t count = static_cast<size_t>(1 + upTo(std::ssize(mirrors) - 1));
  int64_t rows = 0;
  for (size_t i = 0; i < count; ++i) {
    std::vector<int32_t> &mine =
        tokens.emplace_back(randomTokens(size_t(oneIn(2) ? 1 : 1 + upTo(11)), random()));
    if (oneIn(40))
      mine.back() = oneIn(2) ? kOverflowingToken : FIXTURE_VOCAB;
    rows += std::ssize(mine);
    float *all = oneIn(4) ? logits.emplace_back(mine.size() * FIXTURE_VOCAB).data() : nullptr;
    items.push_back({mirrors[i].id, mine, all});
  }

  int64_t left = oneIn(5) ? upTo(rows) : -1;
  auto stop = [](void *context, int64_t, int64_t) {
    return (*static_cast<int64_t *>(context))-- == 0;
  };
  if (left >= 0)
    batch->setProgress({stop, &left});
  Result<void> done = batch->append(items);
  batch->setProgress({});
  if (!done) {
    EXPECT_EQ(done.error().code, ErrorCode::Interrupted);
    ++interrupted;
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    const Batch::Item &item = items[i];
    Mirror &mirror = mirrors[i];
    if (!item.result && item.result.error().message.starts_with("cache pages: ")) {
      ++withoutPages;
      continue;
    }
    Result<std::vector<float>> expected = inASession(mirror, item.tokens);
    ASSERT_EQ(expected.has_value(), item.result.has_value());
    if (!expected) {
      EXPECT_EQ(item.result.error().code, expected.error().code);
      refused++;
      continue;
    }
    if (item.allLogits)
      ASSERT_TRUE(std::equal(expected->begin(), expected->end(), item.allLogits));
    mirror.tokens.insert(mirror.tokens.end(), item.tokens.begin(), item.tokens.end());
    mirror.logits.assign(expected->end() - FIXTURE_VOCAB, expected->end());
    ++appended;
  }
}

TEST_P(RandomBatchTest, ManyCallsAreThoseOfSessions) {
  const int64_t calls = GetParam() < 0 ? 1000 : 400;
  for (int64_t call = 0; call < calls && !HasFatalFailure(); ++call) {
    SCOPED_TRACE(call);
    const int64_t kind = upTo(9);
    const bool isFull = std::ssize(mirrors) == kSequences;
    if (mirrors.empty() || (kind == 0 && !isFull)) {
      mirrors.push_back({batch->add().value(), {}, {}});
    } else if (kind == 1 && !isFull) {
      Mirror copy = anyMirror();
      copy.id = batch->fork(copy.id).value();
      mirrors.push_back(std::move(copy));
    } else if (kind == 2 && oneIn(2)) {
      auto chosen = mirrors.begin() + upTo(std::ssize(mirrors) - 1);
      ASSERT_TRUE(batch->remove(chosen->id).has_value());
      mirrors.erase(chosen);
    } else if (kind == 3) {
      Mirror &mirror = anyMirror();
      mirror.tokens.resize(static_cast<size_t>(upTo(std::ssize(mirror.tokens))));
      mirror.logits.clear();
      ASSERT_TRUE(batch->truncate(mirror.id, std::ssize(mirror.tokens)).has_value());
    } else {
      appendToSome();
    }
    expectSame();
  }
  EXPECT_GT(appended, calls / 2);
  EXPECT_GT(withoutPages, calls / 100);
  EXPECT_GT(interrupted, calls / 50);
  EXPECT_GT(refused, calls / 50);
  while (!mirrors.empty()) { // no page is lost
    ASSERT_TRUE(batch->remove(mirrors.back().id).has_value());
    mirrors.pop_back();
  }
  EXPECT_EQ(batch->freePages(), batch->pages());
}

INSTANTIATE_TEST_SUITE_P(KeptStates, RandomBatchTest, testing::Values(-1, 0, 1, 2));

} // namespace
