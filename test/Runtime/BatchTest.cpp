//===- BatchTest.cpp - Many sequences in one step -----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a batch does, and what it refuses. RandomBatchTest.cpp compares it with sessions.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Runtime/Batch.h"
#include "Fixture.h"

#include <gtest/gtest.h>
#include <thread>

using namespace easyquant;
using namespace easyquant::runtime;
using namespace easyquant::runtime::test;

namespace {

static_assert(FIXTURE_MAX_ROWS == 4 && FIXTURE_PAGE_TOKENS == 8);

class BatchTest : public testing::Test {
protected:
  void SetUp() override {
    writeFixture(folder.path());
    auto loaded = Model::load(folder.path().string(), kIsa, false);
    ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
    model = std::move(*loaded);
  }

  Batch create(const BatchOptions &options) const {
    return std::move(Batch::create(model, options).value());
  }

  static Result<void> append(Batch &batch, int64_t id, const std::vector<int32_t> &tokens,
                             float *allLogits = nullptr) {
    Batch::Item item = {id, tokens, allLogits};
    if (auto done = batch.append({&item, 1}); !done)
      return done;
    return item.result;
  }

  static void expectLogitsOf(const Batch &batch, int64_t id, const std::vector<int32_t> &tokens) {
    ASSERT_EQ(batch.position(id).value(), int64_t(tokens.size()));
    ASSERT_NE(batch.logits(id), nullptr);
    std::vector<double> expected = referenceLogits(FixtureWeights(), tokens);
    for (size_t v = 0; v < FIXTURE_VOCAB; ++v)
      EXPECT_NEAR(batch.logits(id)[v], expected[v], 1e-4 * (1 + std::abs(expected[v])))
          << "sequence " << id << ", logit " << v;
  }

  template <typename T>
  static void expectError(const Result<T> &result, ErrorCode code, const std::string &message) {
    ASSERT_FALSE(result.has_value()) << message;
    EXPECT_EQ(result.error().code, code);
    EXPECT_EQ(result.error().message, message);
  }

  static uint64_t stepsOf(const Batch &batch) {
    return batch.costs().value()[static_cast<size_t>(Phase::Attention)].launches;
  }

  TemporaryFolder folder;
  std::shared_ptr<const Model> model;
};

TEST_F(BatchTest, RunsSequencesOfDifferentLengths) {
  Batch batch = create({.sequences = 16, .threads = 2});
  std::vector<std::vector<int32_t>> tokens;
  std::vector<Batch::Item> items(16);
  for (uint32_t i = 0; i < 16; ++i) {
    tokens.push_back(randomTokens(1 + 5 * i, i));
    EXPECT_EQ(batch.add().value(), int64_t(i));
  }
  for (uint32_t i = 0; i < 16; ++i)
    items[i] = {i, tokens[i]};
  ASSERT_TRUE(batch.append(items).has_value());
  for (uint32_t i = 0; i < 16; ++i) {
    EXPECT_TRUE(items[i].result.has_value());
    expectLogitsOf(batch, i, tokens[i]);
  }
}

TEST_F(BatchTest, FillsStepsWithPiecesOfDifferentSequences) {
  Batch batch = create({.sequences = 6, .threads = 1, .measure = true});
  std::vector<int32_t> one = {3}, six = {1, 2, 3, 4, 5, 6};
  std::vector<Batch::Item> items(6);
  for (Batch::Item &item : items) {
    item.sequence = batch.add().value();
    item.tokens = item.sequence == 1 ? six : one;
  }
  ASSERT_TRUE(batch.append(items).has_value());
  // Rows of the sequences 0, 2, 3, 4; four of sequence 1; two of it and one of sequence 5. The
  // first step has no room for a piece of four behind its first row.
  EXPECT_EQ(stepsOf(batch), 3u);
  for (Batch::Item &item : items) {
    expectLogitsOf(batch, item.sequence, std::vector(item.tokens.begin(), item.tokens.end()));
    item.tokens = one;
  }
  ASSERT_TRUE(batch.append(items).has_value());
  EXPECT_EQ(stepsOf(batch), 5u);
  expectLogitsOf(batch, 1, {1, 2, 3, 4, 5, 6, 3});
}

TEST_F(BatchTest, GivesTheLogitsOfEveryTokenWhereTheyAreWanted) {
  Batch batch = create({.sequences = 3, .threads = 1, .measure = true});
  std::vector<int32_t> tokens = randomTokens(6, 2), two = {7, 9};
  std::vector<float> all(6 * FIXTURE_VOCAB), ofTwo(2 * FIXTURE_VOCAB);
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(batch.add().has_value());
  Batch::Item items[] = {{0, tokens, all.data()}, {1, two}, {2, two, ofTwo.data()}};
  ASSERT_TRUE(batch.append(items).has_value());
  EXPECT_EQ(stepsOf(batch), 3u); // 4; 2 and 2; 2
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::vector<double> expected =
        referenceLogits(FixtureWeights(), {tokens.begin(), tokens.begin() + ptrdiff_t(i) + 1});
    for (size_t v = 0; v < FIXTURE_VOCAB; ++v)
      EXPECT_NEAR(all[i * FIXTURE_VOCAB + v], expected[v], 1e-4 * (1 + std::abs(expected[v])));
  }
  expectLogitsOf(batch, 0, tokens);
  for (int64_t id : {1, 2})
    expectLogitsOf(batch, id, two);
  EXPECT_EQ(std::vector(ofTwo.end() - FIXTURE_VOCAB, ofTwo.end()),
            std::vector(batch.logits(1), batch.logits(1) + FIXTURE_VOCAB));
}

TEST_F(BatchTest, OnlyTheSequenceWithoutFiniteLogitsFails) {
  Batch batch = create({.sequences = 3, .threads = 1});
  std::vector<int32_t> first = {1, 2}, bad = {4, 5, 6, 7, kOverflowingToken, 8},
                       last = randomTokens(9, 1);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(batch.add().has_value());
    ASSERT_TRUE(append(batch, i, {3}).has_value());
  }
  Batch::Item items[] = {{0, first}, {1, bad}, {2, last}};
  ASSERT_TRUE(batch.append(items).has_value());
  expectError(items[1].result, ErrorCode::Corrupt,
              "the logits after the token at position 6 (id 8) are not finite: the model's weights "
              "or activations overflow; compile it with another scheme, or leave its outlier sites "
              "float with --ignore");
  expectLogitsOf(batch, 0, {3, 1, 2});
  expectLogitsOf(batch, 1, {3});
  last.insert(last.begin(), 3);
  expectLogitsOf(batch, 2, last);
  ASSERT_TRUE(append(batch, 1, first).has_value());
  expectLogitsOf(batch, 1, {3, 1, 2});
}

TEST_F(BatchTest, BadItemsFailAndTheOthersGoOn) {
  Batch batch = create({.context = 20, .sequences = 3, .threads = 1});
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(batch.add().has_value());
  ASSERT_TRUE(batch.remove(1).has_value());
  std::vector<int32_t> tokens = {5, 6, 7}, outside = {5, FIXTURE_VOCAB}, none,
                       long_ = randomTokens(21, 3);
  Batch::Item items[] = {{0, tokens}, {1, tokens}, {0, tokens},  {2, outside},
                         {2, none},   {2, long_},  {-7, tokens}, {2, tokens}};
  ASSERT_TRUE(batch.append(items).has_value());
  EXPECT_TRUE(items[0].result.has_value());
  const ErrorCode code = ErrorCode::InvalidArgument;
  expectError(items[1].result, code,
              "sequence: found 1, which is not among the 2 of the batch; add one, and use its id "
              "until it is removed");
  expectError(items[2].result, code,
              "sequence: found 0 twice in one call, expected each once; put its tokens into one "
              "item");
  expectError(items[3].result, code, "tokens[1]: found 19, expected a token id in 0..18");
  expectError(items[4].result, code, "tokens: found none, expected at least one");
  expectError(items[5].result, ErrorCode::OutOfRange,
              "context overflow: 21 tokens at position 0 do not fit the context of 20 tokens; "
              "append fewer, or truncate; or create it with a longer context (the model was made "
              "for at most 200)");
  EXPECT_FALSE(items[6].result.has_value());
  EXPECT_TRUE(items[7].result.has_value());
  expectLogitsOf(batch, 0, tokens);
  expectLogitsOf(batch, 2, tokens);
  ASSERT_TRUE(batch.append(std::span(items).subspan(1, 1)).has_value());
  EXPECT_FALSE(items[1].result.has_value());
  ASSERT_TRUE(batch.append({}).has_value());
}

TEST_F(BatchTest, IdsAreOfOneSequence) {
  Batch batch = create({.sequences = 2});
  EXPECT_EQ(batch.add().value(), 0);
  EXPECT_EQ(batch.add().value(), 1);
  expectError(batch.add(), ErrorCode::OutOfRange,
              "sequences: the batch holds 2 already, its most; remove one, or create it for more");
  ASSERT_TRUE(append(batch, 1, {4, 5}).has_value());
  expectError(batch.fork(1), ErrorCode::OutOfRange,
              "sequences: the batch holds 2 already, its most; remove one, or create it for more");
  ASSERT_TRUE(batch.remove(0).has_value());
  EXPECT_EQ(batch.fork(1).value(), 2);
  const std::string message = "sequence: found 0, which is not among the 2 of the batch; add one, "
                              "and use its id until it is removed";
  const ErrorCode code = ErrorCode::InvalidArgument;
  expectError(batch.remove(0), code, message);
  expectError(batch.truncate(0, 0), code, message);
  expectError(batch.fork(0), code, message);
  expectError(batch.position(0), code, message);
  EXPECT_EQ(batch.logits(0), nullptr);
  expectError(batch.truncate(2, 3), code, "position: found 3, expected 0..2 (the tokens held)");
  expectLogitsOf(batch, 1, {4, 5});
  expectLogitsOf(batch, 2, {4, 5});
}

TEST_F(BatchTest, TheYoungestSequenceGetsNoPages) {
  // Three pages of eight tokens: two sequences have one each, and both want another.
  Batch batch = create({.context = 24, .sequences = 2, .tokens = 24, .threads = 1});
  std::vector<int32_t> old = randomTokens(8, 1), young = randomTokens(8, 2);
  for (int64_t id : {0, 1})
    ASSERT_EQ(batch.add().value(), id);
  ASSERT_TRUE(append(batch, 0, old).has_value());
  ASSERT_TRUE(append(batch, 1, young).has_value());
  const int32_t next[] = {3, 4};
  Batch::Item items[] = {{.sequence = 1, .tokens = {next, 1}},
                         {.sequence = 0, .tokens = {next + 1, 1}}};
  ASSERT_TRUE(batch.append(items).has_value());
  expectError(std::move(items[0].result), ErrorCode::OutOfRange,
              "cache pages: 1 tokens at position 8 take 1 pages of 8 tokens, 0 of them copies of "
              "shared ones, but 0 of the 3 pages are free; append fewer, remove or truncate "
              "sequences, or create the batch for more tokens");
  EXPECT_TRUE(items[1].result.has_value());
  old.push_back(4);
  expectLogitsOf(batch, 0, old);
  expectLogitsOf(batch, 1, young);
}

TEST_F(BatchTest, ForksShareFullPagesAndWriteTheirOwn) {
  // Six pages: of 20 tokens three, and three more for copies and what comes behind them.
  Batch batch = create({.context = 100, .sequences = 3, .tokens = 48, .threads = 1});
  std::vector<int32_t> tokens = randomTokens(20, 1), longer = tokens, other = tokens;
  ASSERT_TRUE(batch.add().has_value());
  ASSERT_TRUE(append(batch, 0, tokens).has_value());
  ASSERT_EQ(batch.fork(0).value(), 1);
  ASSERT_EQ(batch.fork(1).value(), 2);
  for (int64_t id : {0, 1, 2})
    expectLogitsOf(batch, id, tokens);
  // The third page is copied, for two of them.
  ASSERT_TRUE(append(batch, 0, {1}).has_value());
  ASSERT_TRUE(append(batch, 1, {2}).has_value());
  ASSERT_TRUE(append(batch, 2, {3}).has_value());
  longer.push_back(1);
  expectLogitsOf(batch, 0, longer);
  expectError(append(batch, 2, randomTokens(12, 4)), ErrorCode::OutOfRange,
              "cache pages: 12 tokens at position 21 take 2 pages of 8 tokens, 0 of them copies of "
              "shared ones, but 1 of the 6 pages are free; append fewer, remove or truncate "
              "sequences, or create the batch for more tokens");
  // What was cut off comes free, and what is common stays.
  ASSERT_TRUE(batch.truncate(0, 9).has_value());
  ASSERT_TRUE(append(batch, 2, randomTokens(12, 4)).has_value());
  expectError(append(batch, 0, {7, 8}), ErrorCode::OutOfRange,
              "cache pages: 2 tokens at position 9 take 1 pages of 8 tokens, 1 of them copies of "
              "shared ones, but 0 of the 6 pages are free; append fewer, remove or truncate "
              "sequences, or create the batch for more tokens");
  ASSERT_TRUE(batch.remove(2).has_value());
  ASSERT_TRUE(append(batch, 0, {7, 8}).has_value());
  ASSERT_TRUE(append(batch, 1, {9}).has_value());
  other.insert(other.end(), {2, 9});
  expectLogitsOf(batch, 1, other);
  longer.resize(9);
  longer.insert(longer.end(), {7, 8});
  expectLogitsOf(batch, 0, longer);
}

TEST_F(BatchTest, PagesGoToItemsInTheirOrder) {
  Batch batch = create({.context = 100, .sequences = 3, .tokens = 32, .threads = 1});
  std::vector<int32_t> tokens = randomTokens(15, 1), few = {1};
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(batch.add().has_value());
  Batch::Item items[] = {{0, tokens}, {1, tokens}, {2, few}};
  ASSERT_TRUE(batch.append(items).has_value());
  EXPECT_TRUE(items[0].result.has_value() && items[1].result.has_value());
  EXPECT_FALSE(items[2].result.has_value());
  EXPECT_EQ(batch.position(2).value(), 0);
  EXPECT_EQ(batch.logits(2), nullptr);
  // A failed item gives back what it took.
  ASSERT_TRUE(batch.truncate(0, 0).has_value());
  EXPECT_FALSE(append(batch, 2, {1, 2, 3, 4, kOverflowingToken}).has_value());
  ASSERT_TRUE(append(batch, 0, tokens).has_value());
  expectLogitsOf(batch, 0, tokens);
  expectLogitsOf(batch, 1, tokens);
}

TEST_F(BatchTest, AnInterruptedCallChangesNothing) {
  struct Countdown {
    int64_t left;
    int64_t last = 0;
  };
  auto count = [](void *context, int64_t done, int64_t total) {
    auto *self = static_cast<Countdown *>(context);
    EXPECT_EQ(total, 12);
    EXPECT_GE(done, self->last);
    self->last = done;
    return self->left-- == 0;
  };
  Batch batch = create({.sequences = 3, .threads = 2});
  std::vector<int32_t> held = {3, 4, 5}, one = {2}, ten = randomTokens(10, 7);
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(batch.add().has_value());
  ASSERT_TRUE(append(batch, 1, held).has_value());
  // Steps of 2 (0 and 2), 4, 4 and 2 rows: the first one is not left, for it is of one token each.
  const int64_t questions = 1 + (1 + 4 + 1) + (1 + 4 + 1) + (1 + 2 + 1);
  for (int64_t left = 0; left < questions; ++left) {
    Batch::Item items[] = {{0, one}, {1, ten}, {2, one}};
    Countdown countdown{left};
    batch.setProgress({count, &countdown});
    Result<void> result = batch.append(items);
    const int64_t done = left < 1 ? 0 : left < 7 ? 2 : left < 13 ? 6 : 10;
    expectError(result, ErrorCode::Interrupted,
                fmt::format("interrupted after {} of 12 tokens", done));
    for (const Batch::Item &item : items)
      EXPECT_TRUE(item.result.has_value());
    EXPECT_EQ(batch.position(0).value(), 0);
    EXPECT_EQ(batch.logits(0), nullptr);
    expectLogitsOf(batch, 1, held);
  }
  batch.setProgress({});
  Batch::Item items[] = {{0, one}, {1, ten}, {2, one}};
  ASSERT_TRUE(batch.append(items).has_value());
  held.insert(held.end(), ten.begin(), ten.end());
  expectLogitsOf(batch, 0, one);
  expectLogitsOf(batch, 1, held);
}

TEST_F(BatchTest, ChecksItsOptions) {
  const ErrorCode code = ErrorCode::InvalidArgument;
  for (int64_t sequences : {int64_t(0), int64_t(-3), int64_t(1) << 31})
    expectError(Batch::create(model, {.sequences = sequences}), code,
                fmt::format("sequences: found {}, expected 1..2147483647", sequences));
  expectError(Batch::create(model, {.tokens = -1}), code,
              "tokens: found -1, expected those of all sequences together, or 0 for as many as "
              "they can hold");
  expectError(Batch::create(model, {.context = 201, .sequences = 2}), ErrorCode::OutOfRange,
              "context: found 201 tokens, but the model was made for at most 200");
  Result<Batch> large = Batch::create(model, {.sequences = INT32_MAX});
  ASSERT_FALSE(large.has_value());
  EXPECT_EQ(large.error().code, ErrorCode::OutOfRange);
  EXPECT_TRUE(large.error().message.starts_with("KV cache of 53687091175 pages of 8 tokens: "))
      << large.error().message;
}

TEST_F(BatchTest, SizesItsBuffers) {
  auto expected = [](int64_t sequences, int64_t pages) {
    return FIXTURE_ARENA_BYTES + FIXTURE_ARENA_BYTES_PER_THREAD + pages * FIXTURE_PAGE_BYTES +
           sequences * (FIXTURE_WINDOW_BYTES + 2 * FIXTURE_VOCAB * 4);
  };
  EXPECT_EQ(create({.context = 17, .sequences = 4, .threads = 1}).bytes(), expected(4, 12));
  EXPECT_EQ(create({.context = 17, .sequences = 4, .tokens = 33, .threads = 1}).bytes(),
            expected(4, 5));
  EXPECT_EQ(create({.context = 17, .sequences = 4, .tokens = INT64_MAX, .threads = 1}).bytes(),
            expected(4, 12));
}

TEST_F(BatchTest, TwoBatchesInTwoThreadsShareOneModel) {
  // Run under ThreadSanitizer by the tsan preset.
  auto work = [&](uint32_t which) {
    Batch batch = create({.sequences = 3, .threads = 1 + int32_t(which)});
    std::vector<int32_t> tokens[3];
    for (int round = 0; round < 20; ++round) {
      Batch::Item items[3];
      std::vector<int32_t> fresh[3];
      for (int64_t i = 0; i < 3; ++i) {
        if (round == 0 && !batch.add())
          return;
        fresh[i] = randomTokens(1 + (which + uint32_t(round) + uint32_t(i)) % 5, uint32_t(round));
        tokens[i].insert(tokens[i].end(), fresh[i].begin(), fresh[i].end());
        items[i] = {i, fresh[i]};
      }
      if (!batch.append(items))
        return;
    }
    for (int64_t i = 0; i < 3; ++i)
      expectLogitsOf(batch, i, tokens[i]);
  };
  std::thread first(work, 0), second(work, 1);
  first.join();
  second.join();
}

} // namespace
