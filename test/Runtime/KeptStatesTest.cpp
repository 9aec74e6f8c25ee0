//===- KeptStatesTest.cpp - States that sequences go back to ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which states sequences have from before, and how many tokens are read again. Steps of the fixture
// have four rows, pages eight tokens. RandomBatchTest.cpp compares bits.
//
//===----------------------------------------------------------------------===//

#include "Fixture.h"
#include "easyquant/Runtime/Batch.h"

#include <gtest/gtest.h>

using namespace easyquant;
using namespace easyquant::runtime;
using namespace easyquant::runtime::test;

namespace {

static_assert(FIXTURE_MAX_ROWS == 4 && FIXTURE_PAGE_TOKENS == 8);

class KeptStatesTest : public testing::Test {
protected:
  void SetUp() override {
    writeRecurrentFixture(folder.path());
    auto loaded = Model::load(folder.path().string(), kIsa, false);
    ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
    model = std::move(*loaded);
  }

  Batch create(int64_t keptStates, int64_t sequences = 3) const {
    return std::move(
        Batch::create(
            model,
            {.sequences = sequences, .threads = 1, .measure = true, .keptStates = keptStates})
            .value());
  }
  static Result<void> append(Batch &batch, int64_t id, std::vector<int32_t> tokens) {
    Batch::Item item = {id, tokens};
    if (auto done = batch.append({&item, 1}); !done)
      return done;
    return item.result;
  }
  /// The fixture marks each token that it reads.
  static uint64_t tokensRead(const Batch &batch) {
    return batch.costs().value()[static_cast<size_t>(Phase::Other)].launches;
  }
  static std::vector<int64_t> resumes(const Batch &batch, int64_t id) {
    std::vector<int64_t> found;
    for (int64_t at = 0; at <= batch.position(id).value(); ++at)
      if (batch.resumePosition(id, at).value() == at)
        found.push_back(at);
    return found;
  }
  static void expectLogitsOf(const Batch &batch, int64_t id, const std::vector<int32_t> &tokens) {
    ASSERT_EQ(batch.position(id).value(), int64_t(tokens.size()));
    ASSERT_NE(batch.logits(id), nullptr);
    std::vector<double> expected = referenceLogits(FixtureWeights(), tokens, true);
    for (size_t v = 0; v < FIXTURE_VOCAB; ++v)
      EXPECT_NEAR(batch.logits(id)[v], expected[v], 1e-4 * (1 + std::abs(expected[v])))
          << "sequence " << id << ", logit " << v;
  }
  /// Cuts a sequence that holds `tokens`, and lets it go on with `more`.
  static void goOn(Batch &batch, int64_t id, std::vector<int32_t> &tokens, size_t position,
                   const std::vector<int32_t> &more, uint64_t readAgain) {
    tokens.resize(position);
    ASSERT_TRUE(batch.truncate(id, int64_t(position)).has_value());
    ASSERT_EQ(batch.position(id).value(), int64_t(position));
    ASSERT_EQ(batch.logits(id), nullptr);
    const uint64_t before = tokensRead(batch);
    ASSERT_TRUE(append(batch, id, more).has_value());
    EXPECT_EQ(tokensRead(batch) - before, readAgain + more.size());
    tokens.insert(tokens.end(), more.begin(), more.end());
    expectLogitsOf(batch, id, tokens);
  }

  TemporaryFolder folder;
  std::shared_ptr<const Model> model;
};

TEST_F(KeptStatesTest, TheLastPageEndsOfACallAreKept) {
  for (auto [kept, expected] :
       {std::pair(0, std::vector<int64_t>{0, 37}), std::pair(1, std::vector<int64_t>{0, 32, 37}),
        std::pair(2, std::vector<int64_t>{0, 24, 32, 37}),
        std::pair(9, std::vector<int64_t>{0, 8, 16, 24, 32, 37})}) {
    Batch batch = create(kept);
    const int64_t id = batch.add().value();
    std::vector<int32_t> tokens = randomTokens(37, 3);
    ASSERT_TRUE(append(batch, id, tokens).has_value());
    EXPECT_EQ(resumes(batch, id), expected);
    EXPECT_EQ(batch.resumePosition(id, 1000).value(), 37);
    EXPECT_EQ(batch.resumePosition(id, -5).value(), 0);
    EXPECT_FALSE(batch.resumePosition(id + 1, 0).has_value());
  }
}

TEST_F(KeptStatesTest, TheOldestGoFirst) {
  Batch batch = create(3);
  const int64_t id = batch.add().value();
  std::vector<int32_t> tokens = randomTokens(120, 5);
  for (int32_t token : tokens)
    ASSERT_TRUE(append(batch, id, {token}).has_value());
  // And what the last call has begun with.
  EXPECT_EQ(resumes(batch, id), (std::vector<int64_t>{0, 104, 112, 119, 120}));
  goOn(batch, id, tokens, 105, {1, 2, 3}, 1);
  EXPECT_EQ(resumes(batch, id), (std::vector<int64_t>{0, 104, 105, 108}));
}

TEST_F(KeptStatesTest, TokensBehindTheNewestStateAreReadAgain) {
  Batch batch = create(2);
  const int64_t id = batch.add().value();
  std::vector<int32_t> tokens = randomTokens(37, 3);
  ASSERT_TRUE(append(batch, id, tokens).has_value());
  goOn(batch, id, tokens, 33, {4}, 1);
  goOn(batch, id, tokens, 32, {4, 5}, 0);
  goOn(batch, id, tokens, 31, {6, 7, 8, 9, 10, 11}, 7);
  goOn(batch, id, tokens, 24, {3}, 0);
  goOn(batch, id, tokens, 23, {3}, 23);
  goOn(batch, id, tokens, 0, {5, 6}, 0);
  // Cut twice before it goes on.
  tokens = randomTokens(30, 4);
  ASSERT_TRUE(batch.truncate(id, 0).has_value());
  ASSERT_TRUE(append(batch, id, tokens).has_value());
  ASSERT_TRUE(batch.truncate(id, 29).has_value());
  goOn(batch, id, tokens, 20, {1}, 4);
}

TEST_F(KeptStatesTest, TheLastCallIsUndoneWithoutAny) {
  Batch batch = create(0);
  const int64_t id = batch.add().value();
  std::vector<int32_t> tokens = randomTokens(10, 3);
  ASSERT_TRUE(append(batch, id, tokens).has_value());
  goOn(batch, id, tokens, 10, {1, 2, 3, 4, 5}, 0);
  goOn(batch, id, tokens, 13, {1, 2, 3}, 3);
  // Guesses of which one was right, and again: what is read again does not grow.
  for (int round = 0; round < 5; ++round)
    goOn(batch, id, tokens, tokens.size() - 2, {3, 1, 4}, 1);
}

TEST_F(KeptStatesTest, GuessesAreReadInOneStep) {
  Batch batch = create(1);
  const int64_t id = batch.add().value();
  std::vector<int32_t> tokens = randomTokens(17, 3);
  ASSERT_TRUE(append(batch, id, tokens).has_value());
  goOn(batch, id, tokens, 17, {1, 2, 3}, 0);
  ASSERT_TRUE(batch.truncate(id, 18).has_value());
  tokens = {tokens.begin(), tokens.begin() + 18};
  const auto steps = [&] {
    return batch.costs().value()[static_cast<size_t>(Phase::Attention)].launches;
  };
  const uint64_t before = steps();
  std::vector<float> logits(3 * FIXTURE_VOCAB);
  std::vector<int32_t> more = {5, 6, 7};
  Batch::Item item = {id, more, logits.data()};
  ASSERT_TRUE(batch.append({&item, 1}).has_value() && item.result.has_value());
  EXPECT_EQ(steps() - before, 1u); // one token again, and three
  for (size_t row = 0; row < 3; ++row) {
    tokens.push_back(more[row]);
    std::vector<double> expected = referenceLogits(FixtureWeights(), tokens, true);
    for (size_t v = 0; v < FIXTURE_VOCAB; ++v)
      EXPECT_NEAR(logits[row * FIXTURE_VOCAB + v], expected[v], 1e-4 * (1 + std::abs(expected[v])));
  }
}

TEST_F(KeptStatesTest, ForksShareTheStatesThatTheyHave) {
  Batch batch = create(2);
  const int64_t id = batch.add().value();
  std::vector<int32_t> tokens = randomTokens(37, 3), other = tokens;
  ASSERT_TRUE(append(batch, id, tokens).has_value());
  const int64_t fork = batch.fork(id).value();
  EXPECT_EQ(resumes(batch, fork), resumes(batch, id));
  goOn(batch, id, tokens, 26, {1, 2, 3, 4, 5, 6, 7}, 2);
  goOn(batch, fork, other, 35, {9, 8}, 3);
  ASSERT_TRUE(batch.remove(id).has_value());
  goOn(batch, fork, other, 25, {7}, 1);
}

TEST_F(KeptStatesTest, ACallThatFailsLeavesTheTokens) {
  Batch batch = create(2);
  const int64_t id = batch.add().value();
  std::vector<int32_t> tokens = randomTokens(37, 3);
  ASSERT_TRUE(append(batch, id, tokens).has_value());
  for (int64_t steps = 0; steps < 10; ++steps) {
    int64_t left = 6 * steps;
    batch.setProgress(
        {[](void *context, int64_t, int64_t) { return (*static_cast<int64_t *>(context))-- == 0; },
         &left});
    EXPECT_FALSE(append(batch, id, randomTokens(44, 8)).has_value());
    batch.setProgress({});
    ASSERT_EQ(batch.position(id).value(), 37);
    expectLogitsOf(batch, id, tokens);
  }
  std::vector<int32_t> overflowing = randomTokens(20, 6);
  overflowing.push_back(kOverflowingToken);
  EXPECT_FALSE(append(batch, id, overflowing).has_value());
  expectLogitsOf(batch, id, tokens);
  const uint64_t again = 36 - uint64_t(batch.resumePosition(id, 36).value());
  goOn(batch, id, tokens, 36, {1, 2}, again);
}

TEST_F(KeptStatesTest, SavedSequencesGoOnFromTheirState) {
  Batch batch = create(2);
  const int64_t id = batch.add().value();
  std::vector<int32_t> tokens = randomTokens(37, 3);
  ASSERT_TRUE(append(batch, id, tokens).has_value());
  auto saved = [&] {
    std::vector<std::byte> bytes(static_cast<size_t>(batch.savedBytes(id).value()));
    EXPECT_TRUE(batch.save(id, bytes).has_value());
    return bytes;
  };
  const std::vector<std::byte> whole = saved();
  ASSERT_TRUE(batch.truncate(id, 30).has_value());
  const std::vector<std::byte> cut = saved();
  Batch other = create(1);
  const int64_t first = other.restore(whole).value(), second = other.restore(cut).value();
  EXPECT_EQ(resumes(other, first), (std::vector<int64_t>{0, 37}));
  EXPECT_EQ(resumes(other, second),
            (std::vector<int64_t>{0, 24})); // a page end, so that it is kept
  std::vector<int32_t> beginning(tokens.begin(), tokens.begin() + 30);
  goOn(other, first, tokens, 37, {3, 4}, 0);
  goOn(other, second, beginning, 30, {5}, 6);
  goOn(other, second, beginning, 28, {6}, 4);
}

TEST_F(KeptStatesTest, TheOptionBoundsTheMemory) {
  for (int64_t kept : {1, 2, 5})
    for (int64_t sequences : {1, 3})
      EXPECT_EQ(create(kept, sequences).bytes() - create(0, sequences).bytes(),
                kept * sequences * FIXTURE_RECURRENT_VALUES * int64_t(sizeof(float)));
  Result<Batch> refused = Batch::create(model, {.keptStates = -1});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message, "kept_states: found -1, expected 0..2147483647");
}

} // namespace
