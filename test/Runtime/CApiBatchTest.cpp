//===- CApiBatchTest.cpp - Batches through the C interface --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Fixture.h"
#include "Owned.h"
#include "easyquant/Runtime/easyquant.h"
#include "easyquant/Support/Checksum.h"

#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <random>

using namespace easyquant::runtime::test;

namespace {

class CApiBatchTest : public testing::Test {
protected:
  void SetUp() override {
    writeFixture(folder.path());
    eq_model *loaded = nullptr;
    expectSuccess(eq_model_load(folder.path().c_str(), nullptr, &loaded));
    model.reset(loaded);
  }

  static void expectSuccess(eq_error *raw) {
    Owned<eq_error> error(raw);
    EXPECT_FALSE(error) << eq_error_get_message(error.get());
  }

  static void expectError(eq_error *raw, eq_error_code code, const std::string &message) {
    Owned<eq_error> error(raw);
    ASSERT_TRUE(error) << message;
    EXPECT_EQ(eq_error_get_code(error.get()), code);
    EXPECT_EQ(std::string(eq_error_get_message(error.get())), message);
  }

  Owned<eq_batch> create(const eq_batch_options &options) const {
    eq_batch *batch = nullptr;
    expectSuccess(eq_batch_create(model.get(), &options, &batch));
    return Owned<eq_batch>(batch);
  }

  static void expectLogitsOf(const eq_batch *batch, int64_t id,
                             const std::vector<int32_t> &tokens) {
    ASSERT_EQ(eq_batch_position(batch, id), std::ssize(tokens));
    std::vector<double> expected = referenceLogits(FixtureWeights(), tokens);
    for (size_t v = 0; v < FIXTURE_VOCAB; ++v)
      EXPECT_NEAR(eq_batch_logits(batch, id)[v], expected[v], 1e-4 * (1 + std::abs(expected[v])));
  }

  TemporaryFolder folder;
  Owned<eq_model> model;
};

TEST_F(CApiBatchTest, AppendsForksTruncatesAndRemoves) {
  Owned<eq_batch> batch = create({0, 3, 0, 2, 0, 0, 0});
  EXPECT_EQ(eq_batch_context(batch.get()), FIXTURE_MAX_CONTEXT);
  EXPECT_EQ(eq_batch_threads(batch.get()), 2);
  EXPECT_GT(eq_batch_bytes(batch.get()), 0);
  int64_t first = -1, second = -1, fork = -1;
  expectSuccess(eq_batch_add(batch.get(), &first));
  expectSuccess(eq_batch_add(batch.get(), &second));
  EXPECT_EQ(eq_batch_logits(batch.get(), first), nullptr);
  std::vector<int32_t> tokens = randomTokens(11, 1);
  std::vector<float> logits(2 * FIXTURE_VOCAB);
  eq_batch_item items[] = {
      {first, tokens.data(), 11, nullptr, nullptr, nullptr, 0, EQ_IO, nullptr},
      {second, tokens.data(), 2, logits.data(), nullptr, nullptr, 0, EQ_IO, nullptr}};
  expectSuccess(eq_batch_append(batch.get(), items, 2));
  for (const eq_batch_item &item : items) {
    EXPECT_EQ(item.status, EQ_OK);
    EXPECT_EQ(item.error, nullptr);
  }
  expectLogitsOf(batch.get(), first, tokens);
  expectLogitsOf(batch.get(), second, {tokens[0], tokens[1]});
  EXPECT_EQ(logits[FIXTURE_VOCAB], eq_batch_logits(batch.get(), second)[0]);

  expectSuccess(eq_batch_fork(batch.get(), first, &fork));
  expectLogitsOf(batch.get(), fork, tokens);
  expectSuccess(eq_batch_truncate(batch.get(), first, 1));
  EXPECT_EQ(eq_batch_logits(batch.get(), first), nullptr);
  expectLogitsOf(batch.get(), fork, tokens);
  expectSuccess(eq_batch_remove(batch.get(), second));
  EXPECT_EQ(eq_batch_position(batch.get(), second), -1);
  EXPECT_EQ(eq_batch_logits(batch.get(), second), nullptr);
}

TEST_F(CApiBatchTest, ItemsHaveErrorsOfTheirOwn) {
  Owned<eq_batch> batch = create({8, 1, 0, 1, 0, 0, 0});
  int64_t id = -1;
  expectSuccess(eq_batch_add(batch.get(), &id));
  const int32_t tokens[] = {1, 2, -3};
  eq_batch_item items[] = {{id, tokens, 3, nullptr, nullptr, nullptr, 0, EQ_OK, nullptr},
                           {id, nullptr, 3, nullptr, nullptr, nullptr, 0, EQ_OK, nullptr},
                           {7, tokens, 1, nullptr, nullptr, nullptr, 0, EQ_OK, nullptr},
                           {id, tokens, 2, nullptr, nullptr, nullptr, 0, EQ_OK, nullptr}};
  expectSuccess(eq_batch_append(batch.get(), items, 4));
  EXPECT_EQ(items[0].status, EQ_INVALID_ARGUMENT);
  expectError(items[0].error, EQ_INVALID_ARGUMENT,
              "tokens[2]: found -3, expected a token id in 0..18");
  expectError(items[1].error, EQ_INVALID_ARGUMENT, "tokens: found none, expected at least one");
  expectError(items[2].error, EQ_INVALID_ARGUMENT,
              "sequence: found 7, which is not among the 1 of the batch; add one, and use its id "
              "until it is removed");
  EXPECT_EQ(items[3].status, EQ_OK);
  expectLogitsOf(batch.get(), id, {1, 2});
  expectError(eq_batch_add(batch.get(), &id), EQ_OUT_OF_RANGE,
              "sequences: the batch holds 1 already, its most; remove one, or create it for more");

  auto stop = [](void *, int64_t, int64_t) { return int32_t(1); };
  eq_batch_set_progress(batch.get(), stop, nullptr);
  items[0].count = 1;
  expectError(eq_batch_append(batch.get(), items, 1), EQ_INTERRUPTED,
              "interrupted after 0 of 1 tokens");
  EXPECT_EQ(items[0].status, EQ_OK);
  EXPECT_EQ(items[0].error, nullptr);
  eq_batch_set_progress(batch.get(), nullptr, nullptr);
  expectSuccess(eq_batch_append(batch.get(), items, 1));
  expectLogitsOf(batch.get(), id, {1, 2, 1});
}

TEST_F(CApiBatchTest, ScoresTokensAndChoosesThem) {
  Owned<eq_batch> batch = create({0, 3, 0, 2, 0, 0, 0});
  const std::vector<int32_t> tokens = randomTokens(11, 1); // three steps
  std::vector<double> logprobs(11), expected;
  std::vector<eq_logprob> best(2 * 11);
  eq_batch_item item = {0, tokens.data(), 11,     nullptr, logprobs.data(), best.data(),
                        2, EQ_IO,         nullptr};
  expectSuccess(eq_batch_add(batch.get(), &item.sequence));
  expectSuccess(eq_batch_append(batch.get(), &item, 1));
  EXPECT_EQ(logprobs[0], 0);
  EXPECT_EQ(best[0].token, -1);
  auto likeliest =
      [&](size_t count) { // after so many tokens; `expected` are their log-probabilities
        expected = referenceLogits(FixtureWeights(), {tokens.begin(), tokens.begin() + count});
        double sum = 0;
        for (double logit : expected)
          sum += std::exp(logit);
        for (double &logit : expected)
          logit -= std::log(sum);
        return std::max_element(expected.begin(), expected.end()) - expected.begin();
      };
  for (size_t i = 1; i < 11; ++i) {
    EXPECT_EQ(best[2 * i].token, likeliest(i));
    EXPECT_NEAR(best[2 * i].logprob, expected[best[2 * i].token], 1e-4);
    EXPECT_NEAR(best[2 * i + 1].logprob, expected[best[2 * i + 1].token], 1e-4);
    EXPECT_NEAR(logprobs[i], expected[tokens[i]], 1e-4);
  }

  const uint32_t none = 0;
  eq_choice choices[4] = {};
  for (eq_choice &choice : choices)
    choice.sequence = item.sequence;
  choices[1].with_logprob = 1;
  choices[2].allowed = &none;
  choices[2].allowed_words = 1;
  choices[3].sequence = 7;
  expectSuccess(eq_batch_choose(batch.get(), choices, 4));
  EXPECT_EQ(choices[0].chosen.token, likeliest(11));
  EXPECT_EQ(choices[1].chosen.token, choices[0].chosen.token);
  EXPECT_NEAR(choices[1].chosen.logprob, expected[choices[1].chosen.token], 1e-4);
  EXPECT_EQ(choices[2].status, EQ_INVALID_ARGUMENT);
  expectError(choices[2].error, EQ_INVALID_ARGUMENT,
              "allowed: found no token that may be chosen for sequence 0, expected the bit of at "
              "least one");
  expectError(choices[3].error, EQ_INVALID_ARGUMENT,
              "sequence: found 7, which is not among the 1 of the batch; add one, and use its id "
              "until it is removed");

  // Rows of the caller's are chosen from as if the sequence ended there.
  std::vector<float> rows(11 * FIXTURE_VOCAB);
  eq_batch_item again = {0, tokens.data(), 11, rows.data(), nullptr, nullptr, 0, EQ_OK, nullptr};
  expectSuccess(eq_batch_add(batch.get(), &again.sequence));
  expectSuccess(eq_batch_append(batch.get(), &again, 1));
  for (size_t i = 1; i < 11; ++i) {
    eq_choice ended = {}, row = {};
    ended.temperature = row.temperature = 1;
    ended.top_p = row.top_p = 1;
    ended.seed = row.seed = 3;
    expectSuccess(eq_batch_add(batch.get(), &ended.sequence));
    eq_batch_item shorter = {ended.sequence, tokens.data(), i, nullptr, nullptr, nullptr, 0,
                             EQ_OK,          nullptr};
    expectSuccess(eq_batch_append(batch.get(), &shorter, 1));
    row.sequence = again.sequence;
    row.logits = rows.data() + (i - 1) * FIXTURE_VOCAB;
    row.position = static_cast<int64_t>(i);
    expectSuccess(eq_batch_choose(batch.get(), &ended, 1));
    expectSuccess(eq_batch_choose(batch.get(), &row, 1));
    EXPECT_EQ(row.chosen.token, ended.chosen.token);
    expectSuccess(eq_batch_remove(batch.get(), ended.sequence));
  }
  eq_choice refused = {};
  refused.sequence = again.sequence;
  refused.logits = rows.data();
  refused.position = -1;
  expectSuccess(eq_batch_choose(batch.get(), &refused, 1));
  expectError(refused.error, EQ_INVALID_ARGUMENT, "position: found -1, expected at least 0");
  refused.position = 1;
  rows[3] = std::numeric_limits<float>::infinity();
  expectSuccess(eq_batch_choose(batch.get(), &refused, 1));
  expectError(refused.error, EQ_INVALID_ARGUMENT,
              "logits: found a number that is not finite, expected 19 that are");
  expectSuccess(eq_batch_remove(batch.get(), again.sequence));

  item.best_count = FIXTURE_VOCAB + 1;
  expectSuccess(eq_batch_append(batch.get(), &item, 1));
  expectError(item.error, EQ_INVALID_ARGUMENT,
              "best_count: found 20, expected at most the 19 tokens of the vocabulary");
  // Logits that are not finite are the error of their step, and nothing is chosen from them.
  const int32_t overflowing[] = {kOverflowingToken};
  eq_batch_item bad = {0, overflowing, 1, nullptr, logprobs.data(), nullptr, 0, EQ_OK, nullptr};
  expectSuccess(eq_batch_add(batch.get(), &bad.sequence));
  expectSuccess(eq_batch_append(batch.get(), &bad, 1));
  EXPECT_EQ(bad.status, EQ_CORRUPT);
  eq_error_free(bad.error);
  choices[0].sequence = bad.sequence;
  expectSuccess(eq_batch_choose(batch.get(), choices, 1));
  expectError(choices[0].error, EQ_INVALID_ARGUMENT,
              "sequence: " + std::to_string(bad.sequence) +
                  " has no logits, expected a token behind which another is chosen; append one");
}

TEST_F(CApiBatchTest, SavesAndRestoresSequences) {
  Owned<eq_batch> batch = create({0, 3, 48, 1, 0, 0, 0}), other = create({0, 2, 0, 2, 0, 0, 0});
  EXPECT_EQ(eq_batch_pages(batch.get()), 6);
  std::vector<int32_t> tokens = randomTokens(19, 4);
  eq_batch_item item = {0, tokens.data(), 19, nullptr, nullptr, nullptr, 0, EQ_OK, nullptr};
  expectSuccess(eq_batch_add(batch.get(), &item.sequence));
  int64_t empty = -1;
  expectSuccess(eq_batch_add(batch.get(), &empty));
  expectSuccess(eq_batch_append(batch.get(), &item, 1));
  EXPECT_EQ(eq_batch_free_pages(batch.get()), 3);
  auto saved = [&](const eq_batch *from, int64_t id) {
    size_t size = 0;
    expectSuccess(eq_batch_saved_size(from, id, &size));
    std::string bytes(size, '\0');
    expectSuccess(eq_batch_save(from, id, bytes.data(), size));
    return bytes;
  };
  auto restored = [&](eq_batch *to, const std::string &bytes) {
    int64_t id = -1;
    expectSuccess(eq_batch_restore(to, bytes.data(), bytes.size(), &id));
    return id;
  };
  const std::string bytes = saved(batch.get(), item.sequence);
  const int64_t copy = restored(batch.get(), bytes), away = restored(other.get(), bytes);
  EXPECT_EQ(eq_batch_free_pages(batch.get()), 0);
  EXPECT_EQ(saved(other.get(), away), bytes);
  // They go on apart, and from the same place.
  for (auto [own, id] : {std::pair(batch.get(), copy), std::pair(other.get(), away),
                         std::pair(batch.get(), item.sequence)}) {
    expectLogitsOf(own, id, tokens);
    eq_batch_item more = {id, tokens.data(), 3, nullptr, nullptr, nullptr, 0, EQ_OK, nullptr};
    expectSuccess(eq_batch_append(own, &more, 1));
    std::vector<int32_t> all = tokens;
    all.insert(all.end(), tokens.begin(), tokens.begin() + 3);
    expectLogitsOf(own, id, all);
  }
  EXPECT_EQ(eq_batch_position(other.get(), restored(other.get(), saved(batch.get(), empty))), 0);
  // A sequence that was cut back has no logits, and its cache has seen more.
  expectSuccess(eq_batch_truncate(batch.get(), item.sequence, 17));
  const std::string cut = saved(batch.get(), item.sequence);
  expectSuccess(eq_batch_remove(batch.get(), copy));
  const int64_t again = restored(batch.get(), cut);
  EXPECT_EQ(eq_batch_logits(batch.get(), again), nullptr);
  eq_batch_item more = {again, tokens.data() + 17, 2, nullptr, nullptr, nullptr, 0, EQ_OK, nullptr};
  expectSuccess(eq_batch_append(batch.get(), &more, 1));
  expectLogitsOf(batch.get(), again, tokens);

  int64_t id = -5;
  char room[8];
  expectError(eq_batch_save(batch.get(), 99, room, 8), EQ_INVALID_ARGUMENT,
              "sequence: found 99, which is not among the 3 of the batch; add one, and use its id "
              "until it is removed");
  expectError(eq_batch_save(batch.get(), again, room, 8), EQ_INVALID_ARGUMENT,
              fmt::format("bytes: found room for 8, expected {}, as eq_batch_saved_size says",
                          bytes.size()));
  expectError(eq_batch_restore(batch.get(), bytes.data(), bytes.size(), &id), EQ_OUT_OF_RANGE,
              "cache pages: a saved sequence of 19 tokens takes 3 pages, but 0 of the 6 pages are "
              "free; remove or truncate sequences");
  Owned<eq_batch> little = create({18, 1, 0, 1, 0, 0, 0});
  expectError(eq_batch_restore(little.get(), bytes.data(), bytes.size(), &id), EQ_OUT_OF_RANGE,
              "bytes: found a sequence of 19 tokens, but the context is 18; create the batch for a "
              "longer one");
  EXPECT_EQ(id, -5);
}

TEST_F(CApiBatchTest, RefusesDamagedSequences) {
  Owned<eq_batch> batch = create({0, 2, 0, 1, 0, 0, 0});
  const std::vector<int32_t> tokens = randomTokens(19, 4);
  eq_batch_item item = {0, tokens.data(), 19, nullptr, nullptr, nullptr, 0, EQ_OK, nullptr};
  expectSuccess(eq_batch_add(batch.get(), &item.sequence));
  expectSuccess(eq_batch_append(batch.get(), &item, 1));
  size_t size = 0;
  expectSuccess(eq_batch_saved_size(batch.get(), item.sequence, &size));
  std::string bytes(size, '\0');
  expectSuccess(eq_batch_save(batch.get(), item.sequence, bytes.data(), size));
  const int64_t free = eq_batch_free_pages(batch.get());
  auto restore = [&](const std::string &from) {
    int64_t id = -1;
    Owned<eq_error> error(eq_batch_restore(batch.get(), from.data(), from.size(), &id));
    EXPECT_EQ(id >= 0, !error);
    if (!error)
      expectSuccess(eq_batch_remove(batch.get(), id));
    EXPECT_EQ(eq_batch_free_pages(batch.get()), free);
    return error ? eq_error_get_code(error.get()) : EQ_OK;
  };
  EXPECT_EQ(restore(bytes), EQ_OK);
  std::mt19937 random(3);
  for (int round = 0; round < 1000; ++round) {
    std::string damaged = bytes;
    if (round % 4 == 0)
      damaged.resize(random() % size);
    else if (round % 4 == 1)
      damaged += std::string(1 + random() % 100, 'x');
    else
      damaged[random() % (round % 4 == 2 ? 96 : size)] ^= static_cast<char>(1 << random() % 8);
    const eq_error_code code = restore(damaged);
    EXPECT_TRUE(code == EQ_CORRUPT || code == EQ_INVALID_ARGUMENT) << round;
  }
  // With a checksum that fits: whatever it says, it is refused, or is a sequence that can go on.
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string forged = bytes;
    for (int i = 0; i <= round % 3; ++i)
      if (const size_t at = 72 + random() % 24; round % 2 == 0) {
        forged[at] = static_cast<char>(random());
      } else {
        const int64_t values[] = {0, -1, 1, 18, 20, INT64_MAX, INT64_MIN, int64_t(1) << 32};
        std::memcpy(forged.data() + 72 + 8 * (random() % 3), values + random() % 8, 8);
      }
    if (round % 7 == 0) // logits that no sequence has
      std::memset(forged.data() + size - 4, 0xff, 4);
    const std::string stamp = easyquant::checksumOf(
        {reinterpret_cast<const std::byte *>(forged.data()) + 40, forged.size() - 40});
    std::copy(stamp.begin(), stamp.end(), forged.begin() + 8);
    const eq_error_code code = restore(forged);
    refused += code != EQ_OK ? 1 : 0;
    EXPECT_TRUE(code == EQ_OK || code == EQ_CORRUPT || code == EQ_OUT_OF_RANGE) << code;
    if (round % 7 == 0)
      EXPECT_NE(code, EQ_OK);
  }
  EXPECT_GT(refused, 2000);

  TemporaryFolder second;
  writeFixture(second.path(), FixtureWeights(1));
  eq_model *loaded = nullptr;
  expectSuccess(eq_model_load(second.path().c_str(), nullptr, &loaded));
  model.reset(loaded);
  Owned<eq_batch> other = create({0, 2, 0, 1, 0, 0, 0});
  int64_t id = -1;
  expectError(eq_batch_restore(other.get(), bytes.data(), bytes.size(), &id), EQ_INVALID_ARGUMENT,
              "bytes: found a sequence of another artifact or another kind of device, expected one "
              "of fixture; restore it where it was saved");
}

TEST_F(CApiBatchTest, BreaksDownWhatStepsCost) {
  Owned<eq_batch> batch = create({0, 2, 0, 1, 1, 0, 0});
  const int32_t tokens[] = {1, 2};
  eq_batch_item items[2] = {};
  for (eq_batch_item &item : items) {
    expectSuccess(eq_batch_add(batch.get(), &item.sequence));
    item.tokens = tokens;
    item.count = 2;
  }
  expectSuccess(eq_batch_append(batch.get(), items, 2));
  const char *text = nullptr, *siteText = nullptr;
  expectSuccess(eq_batch_breakdown(batch.get(), &text));
  expectSuccess(eq_batch_breakdown_sites(batch.get(), &siteText));
  EXPECT_EQ(nlohmann::json::parse(text)["attention"]["launches"], 1);
  EXPECT_EQ(nlohmann::json::parse(siteText)[0]["launches"], 4);
}

TEST_F(CApiBatchTest, RefusesNull) {
  Owned<eq_batch> batch = create({0, 0, 0, 1, 0, 0, 0});
  const eq_error_code code = EQ_INVALID_ARGUMENT;
  auto message = [](const char *name) {
    return std::string(name) + ": found NULL, expected a pointer";
  };
  eq_batch *none = nullptr;
  int64_t id = 5;
  expectError(eq_batch_create(nullptr, nullptr, &none), code, message("model"));
  expectError(eq_batch_create(model.get(), nullptr, nullptr), code, message("batch"));
  expectError(eq_batch_add(nullptr, &id), code, message("batch"));
  expectError(eq_batch_add(batch.get(), nullptr), code, message("sequence"));
  expectError(eq_batch_fork(nullptr, 0, &id), code, message("batch"));
  expectError(eq_batch_fork(batch.get(), 0, nullptr), code, message("fork"));
  expectError(eq_batch_remove(nullptr, 0), code, message("batch"));
  expectError(eq_batch_truncate(nullptr, 0, 0), code, message("batch"));
  char byte = 0;
  expectError(eq_batch_state_save(nullptr, 0, &byte, 1), code, message("batch"));
  expectError(eq_batch_state_save(batch.get(), 0, nullptr, 1), code, message("state"));
  expectError(eq_batch_state_restore(nullptr, 0, &byte, 1), code, message("batch"));
  expectError(eq_batch_state_restore(batch.get(), 0, nullptr, 1), code, message("state"));
  expectError(eq_batch_state_reset(nullptr, 0), code, message("batch"));
  expectError(eq_batch_append(nullptr, nullptr, 0), code, message("batch"));
  expectError(eq_batch_append(batch.get(), nullptr, 1), code, message("items"));
  expectSuccess(eq_batch_append(batch.get(), nullptr, 0));
  expectError(eq_batch_choose(nullptr, nullptr, 0), code, message("batch"));
  expectError(eq_batch_choose(batch.get(), nullptr, 1), code, message("choices"));
  expectSuccess(eq_batch_choose(batch.get(), nullptr, 0));
  size_t size = 0;
  expectError(eq_batch_saved_size(nullptr, 0, &size), code, message("batch"));
  expectError(eq_batch_saved_size(batch.get(), 0, nullptr), code, message("size"));
  expectError(eq_batch_save(nullptr, 0, &byte, 1), code, message("batch"));
  expectError(eq_batch_save(batch.get(), 0, nullptr, 1), code, message("bytes"));
  expectError(eq_batch_restore(nullptr, &byte, 1, &id), code, message("batch"));
  expectError(eq_batch_restore(batch.get(), nullptr, 1, &id), code, message("bytes"));
  expectError(eq_batch_restore(batch.get(), &byte, 1, nullptr), code, message("sequence"));
  EXPECT_EQ(eq_batch_pages(nullptr), 0);
  EXPECT_EQ(eq_batch_free_pages(nullptr), 0);
  const char *text = nullptr;
  for (auto *breakdown : {eq_batch_breakdown, eq_batch_breakdown_sites}) {
    expectError(breakdown(nullptr, &text), code, message("batch"));
    expectError(breakdown(batch.get(), nullptr), code, message("json"));
  }
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(id, 5);
  eq_batch_free(nullptr);
  eq_batch_set_progress(nullptr, nullptr, nullptr);
  EXPECT_EQ(eq_batch_logits(nullptr, 0), nullptr);
  EXPECT_EQ(eq_batch_position(nullptr, 0), 0);
  EXPECT_EQ(eq_batch_resume_position(nullptr, 0, 0), 0);
  EXPECT_EQ(eq_batch_state_size(nullptr), 0);
  EXPECT_EQ(eq_batch_bytes(nullptr), 0);
  EXPECT_EQ(eq_batch_context(nullptr), 0);
  EXPECT_EQ(eq_batch_threads(nullptr), 0);
}

} // namespace
