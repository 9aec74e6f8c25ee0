//===- CApiBatchTest.cpp - Batches through the C interface --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Fixture.h"
#include "Owned.h"
#include "easyquant/Runtime/easyquant.h"

#include <gtest/gtest.h>
#include <memory>

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
  Owned<eq_batch> batch = create({0, 3, 0, 2, 0});
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
  Owned<eq_batch> batch = create({8, 1, 0, 1, 0});
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
  Owned<eq_batch> batch = create({0, 2, 0, 2, 0});
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
              "sequence: 1 has no logits, expected a token behind which another is chosen; append "
              "one");
}

TEST_F(CApiBatchTest, BreaksDownWhatStepsCost) {
  Owned<eq_batch> batch = create({0, 2, 0, 1, 1});
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
  Owned<eq_batch> batch = create({0, 0, 0, 1, 0});
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
  EXPECT_EQ(eq_batch_state_size(nullptr), 0);
  EXPECT_EQ(eq_batch_bytes(nullptr), 0);
  EXPECT_EQ(eq_batch_context(nullptr), 0);
  EXPECT_EQ(eq_batch_threads(nullptr), 0);
}

} // namespace
