//===- CApiTest.cpp - The C interface, through the shared library -------===//
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

extern "C" int64_t greedyFromC(const char *artifact, const int32_t *prompt, size_t promptCount,
                               int32_t *generated, size_t count);

namespace {

void expectError(eq_error *raw, eq_error_code code, const std::string &message) {
  Owned<eq_error> error(raw);
  ASSERT_TRUE(error) << message;
  EXPECT_EQ(eq_error_get_code(error.get()), code);
  EXPECT_EQ(std::string(eq_error_get_message(error.get())), message);
}

void expectSuccess(eq_error *raw) {
  Owned<eq_error> error(raw);
  EXPECT_FALSE(error) << eq_error_get_message(error.get());
}

class CApiTest : public testing::Test {
protected:
  void SetUp() override { writeFixture(folder.path()); }

  Owned<eq_model> load() {
    eq_model *model = nullptr;
    eq_model_options options = {kIsa.c_str(), 0, nullptr, nullptr, 0};
    expectSuccess(eq_model_load(folder.path().c_str(), &options, &model));
    return Owned<eq_model>(model);
  }

  Owned<eq_session> create(const eq_model *model, int64_t context = 0, bool measure = false) {
    eq_session *session = nullptr;
    eq_session_options options = {context, 1, measure, 0};
    expectSuccess(eq_session_create(model, &options, &session));
    return Owned<eq_session>(session);
  }

  TemporaryFolder folder;
};

TEST_F(CApiTest, DescribesTheModel) {
  Owned<eq_model> model = load();
  ASSERT_TRUE(model);
  EXPECT_EQ(eq_abi_version(), uint32_t(EQ_ABI_VERSION));
  EXPECT_EQ(eq_model_vocab_size(model.get()), FIXTURE_VOCAB);
  EXPECT_EQ(eq_model_max_context(model.get()), FIXTURE_MAX_CONTEXT);
  EXPECT_EQ(std::string(eq_model_isa(model.get())), kIsa);
  EXPECT_EQ(eq_model_weights_bytes(model.get()), FIXTURE_WEIGHTS_BYTES);
  EXPECT_EQ(std::string(eq_model_manifest(model.get())), readFile(folder.path() / "manifest.json"));
}

TEST_F(CApiTest, DefaultsChooseTheInstructionSetAndContext) {
  eq_model *rawModel = nullptr;
  expectSuccess(eq_model_load(folder.path().c_str(), nullptr, &rawModel));
  Owned<eq_model> model(rawModel);
  eq_session *rawSession = nullptr;
  expectSuccess(eq_session_create(model.get(), nullptr, &rawSession));
  Owned<eq_session> session(rawSession);
  std::vector<int32_t> tokens = randomTokens(FIXTURE_MAX_CONTEXT, 1);
  expectSuccess(eq_session_prefill(session.get(), tokens.data(), tokens.size()));
  EXPECT_GT(eq_session_bytes(session.get()), 0);
}

TEST_F(CApiTest, StepsScoresTruncatesAndResets) {
  Owned<eq_model> model = load();
  Owned<eq_session> session = create(model.get());
  std::vector<int32_t> tokens = randomTokens(12, 2);
  EXPECT_EQ(eq_session_logits(session.get()), nullptr);
  expectSuccess(eq_session_prefill(session.get(), tokens.data(), 11));
  expectSuccess(eq_session_decode(session.get(), tokens[11]));
  EXPECT_EQ(eq_session_position(session.get()), 12);
  std::vector<double> expected = referenceLogits(FixtureWeights(), tokens);
  for (size_t v = 0; v < FIXTURE_VOCAB; ++v)
    EXPECT_NEAR(eq_session_logits(session.get())[v], expected[v], 1e-4);

  expectSuccess(eq_session_truncate(session.get(), 5));
  EXPECT_EQ(eq_session_logits(session.get()), nullptr);
  std::vector<float> logits(7 * FIXTURE_VOCAB);
  expectSuccess(eq_session_score(session.get(), &tokens[5], 7, logits.data()));
  for (size_t v = 0; v < FIXTURE_VOCAB; ++v) {
    EXPECT_NEAR(logits[6 * FIXTURE_VOCAB + v], expected[v], 1e-4);
    EXPECT_EQ(eq_session_logits(session.get())[v], logits[6 * FIXTURE_VOCAB + v]);
  }
  eq_session_reset(session.get());
  EXPECT_EQ(eq_session_position(session.get()), 0);
  EXPECT_EQ(eq_session_logits(session.get()), nullptr);
}

TEST_F(CApiTest, BreaksDownWhatStepsCost) {
  Owned<eq_model> model = load();
  Owned<eq_session> session = create(model.get(), 0, /*measure=*/true);
  std::vector<int32_t> tokens = randomTokens(2, 3);
  expectSuccess(eq_session_prefill(session.get(), tokens.data(), tokens.size()));
  const char *text = nullptr, *siteText = nullptr;
  expectSuccess(eq_session_breakdown(session.get(), &text));
  expectSuccess(eq_session_breakdown_sites(session.get(), &siteText));
  ASSERT_TRUE(text && siteText);
  auto phases = nlohmann::json::parse(text), sites = nlohmann::json::parse(siteText);
  std::vector<std::string> names;
  for (auto &[name, cost] : phases.items())
    names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"attention", "comm", "gemm", "load", "other",
                                             "quantize", "sync"}));
  ASSERT_EQ(sites.size(), 2u);
  for (auto [index, site, phase, launches] :
       {std::tuple(0, "embedding", "other", 2), std::tuple(1, "attention", "attention", 1)}) {
    EXPECT_EQ(sites[index]["site"], site);
    EXPECT_EQ(sites[index]["phase"], phase);
    EXPECT_EQ(sites[index]["launches"], launches);
    for (const char *figure : {"launches", "bytes", "instructions", "seconds"})
      EXPECT_EQ(sites[index][figure], phases[phase][figure]) << site << " " << figure;
  }
  EXPECT_GE(phases["attention"]["seconds"], int(FIXTURE_ATTENTION_NANOSECONDS) / 1e9);
}

TEST_F(CApiTest, RefusesNull) {
  Owned<eq_model> model = load();
  Owned<eq_session> session = create(model.get());
  int32_t token = 1;
  float logits[FIXTURE_VOCAB];
  eq_model *noModel = nullptr;
  const eq_error_code code = EQ_INVALID_ARGUMENT;
  auto message = [](const char *name) {
    return std::string(name) + ": found NULL, expected a pointer";
  };
  expectError(eq_model_load(nullptr, nullptr, &noModel), code, message("path"));
  expectError(eq_model_load("x", nullptr, nullptr), code, message("model"));
  eq_session *noSession = nullptr;
  expectError(eq_session_create(nullptr, nullptr, &noSession), code, message("model"));
  expectError(eq_session_create(model.get(), nullptr, nullptr), code, message("session"));
  expectError(eq_session_prefill(nullptr, &token, 1), code, message("session"));
  expectError(eq_session_prefill(session.get(), nullptr, 1), code, message("tokens"));
  expectError(eq_session_decode(nullptr, 1), code, message("session"));
  expectError(eq_session_score(nullptr, &token, 1, logits), code, message("session"));
  expectError(eq_session_score(session.get(), nullptr, 1, logits), code, message("tokens"));
  expectError(eq_session_score(session.get(), &token, 1, nullptr), code, message("logits"));
  expectError(eq_session_truncate(nullptr, 0), code, message("session"));
  const char *text = nullptr;
  for (auto *breakdown : {eq_session_breakdown, eq_session_breakdown_sites}) {
    expectError(breakdown(nullptr, &text), code, message("session"));
    expectError(breakdown(session.get(), nullptr), code, message("json"));
  }
  EXPECT_EQ(noModel, nullptr);
  EXPECT_EQ(noSession, nullptr);

  eq_error_free(nullptr);
  eq_model_free(nullptr);
  eq_session_free(nullptr);
  eq_session_reset(nullptr);
  eq_session_set_progress(nullptr, nullptr, nullptr);
  EXPECT_EQ(eq_session_logits(nullptr), nullptr);
  EXPECT_EQ(eq_session_position(nullptr), 0);
  EXPECT_EQ(eq_session_bytes(nullptr), 0);
  EXPECT_EQ(eq_model_manifest(nullptr), nullptr);
  EXPECT_EQ(eq_model_isa(nullptr), nullptr);
  EXPECT_EQ(eq_model_vocab_size(nullptr), 0);
  EXPECT_EQ(eq_model_max_context(nullptr), 0);
  EXPECT_EQ(eq_model_weights_bytes(nullptr), 0);
}

TEST_F(CApiTest, ErrorsCarryCodeAndMessage) {
  eq_model *noModel = nullptr;
  expectError(eq_model_load("/nonexistent", nullptr, &noModel), EQ_NOT_FOUND,
              "/nonexistent: no such folder; expected an artifact that `easyquant compile` wrote");
  const std::vector<std::string> isas =
      easyquant::formats::instructionSetsOf(easyquant::formats::hostProcessor());
  eq_model_options options = {"sse2", 0, nullptr, nullptr, 0};
  expectError(eq_model_load(folder.path().c_str(), &options, &noModel), EQ_INVALID_ARGUMENT,
              "isa: found \"sse2\", expected auto, " + isas.front() + " or " + isas.back());
  EXPECT_EQ(noModel, nullptr);

  Owned<eq_model> model = load();
  eq_session_options tooLong = {FIXTURE_MAX_CONTEXT + 1, 1, 0, 0};
  eq_session *noSession = nullptr;
  expectError(eq_session_create(model.get(), &tooLong, &noSession), EQ_OUT_OF_RANGE,
              "context: found 201 tokens, but the model was made for at most 200");
  EXPECT_EQ(noSession, nullptr);

  Owned<eq_session> session = create(model.get(), 2);
  int32_t tokens[] = {1, 2, 3};
  expectError(eq_session_prefill(session.get(), tokens, 0), EQ_INVALID_ARGUMENT,
              "tokens: found none, expected at least one");
  expectError(eq_session_decode(session.get(), -5), EQ_INVALID_ARGUMENT,
              "tokens[0]: found -5, expected a token id in 0..18");
  expectError(eq_session_prefill(session.get(), tokens, 3), EQ_OUT_OF_RANGE,
              "context overflow: 3 tokens at position 0 do not fit the context of 2 tokens; append "
              "fewer, or truncate; or create it with a longer context (the model was made for at "
              "most 200)");
  // Refused by their number, before the first that is not there is read.
  float logits[FIXTURE_VOCAB];
  constexpr size_t tooMany = size_t(1) << 40;
  expectError(eq_session_prefill(session.get(), tokens, tooMany), EQ_OUT_OF_RANGE,
              "context overflow: 1099511627776 tokens at position 0 do not fit the context of 2 "
              "tokens; append fewer, or truncate; or create it with a longer context (the model "
              "was made for at most 200)");
  EXPECT_EQ(eq_error_get_code(
                Owned<eq_error>(eq_session_score(session.get(), tokens, tooMany, logits)).get()),
            EQ_OUT_OF_RANGE);
  expectError(eq_session_prefill(session.get(), nullptr, 0), EQ_INVALID_ARGUMENT,
              "tokens: found none, expected at least one");
  expectError(eq_session_truncate(session.get(), 1), EQ_INVALID_ARGUMENT,
              "position: found 1, expected 0..0 (the tokens held)");
}

TEST_F(CApiTest, EndsACallWhenAsked) {
  Owned<eq_model> model = load();
  Owned<eq_session> session = create(model.get());
  const int32_t tokens[] = {1, 2, 3, 4, 5, 6};
  int64_t asked = 0;
  auto stopInTheSecondStep = [](void *context, int64_t done, int64_t total) -> int32_t {
    EXPECT_EQ(total, 6);
    ++*static_cast<int64_t *>(context);
    return done == FIXTURE_MAX_ROWS;
  };
  eq_session_set_progress(session.get(), stopInTheSecondStep, &asked);
  expectError(eq_session_prefill(session.get(), tokens, 6), EQ_INTERRUPTED,
              "interrupted after 4 of 6 tokens");
  EXPECT_EQ(asked, 1 + FIXTURE_MAX_ROWS + 1 + 1); // step, embeddings, attention; second step
  EXPECT_EQ(eq_session_position(session.get()), 0);
  EXPECT_EQ(eq_session_logits(session.get()), nullptr);
  eq_session_set_progress(session.get(), nullptr, nullptr);
  expectSuccess(eq_session_prefill(session.get(), tokens, 6));
}

TEST_F(CApiTest, BoundsThreads) {
  Owned<eq_model> model = load();
  eq_session *session = nullptr;
  const int32_t most = eq_max_threads();
  ASSERT_GE(most, 8);
  for (int32_t threads : {most + 1, 1000000}) {
    const eq_session_options options = {16, threads, 0, 0};
    Owned<eq_error> error(eq_session_create(model.get(), &options, &session));
    ASSERT_TRUE(error);
    EXPECT_EQ(eq_error_get_code(error.get()), EQ_INVALID_ARGUMENT);
    EXPECT_TRUE(std::string(eq_error_get_message(error.get()))
                    .starts_with("threads: found " + std::to_string(threads) + ", expected 1.." +
                                 std::to_string(most)));
  }
}

TEST_F(CApiTest, SessionsOutliveTheModelHandle) {
  Owned<eq_model> model = load();
  Owned<eq_session> session = create(model.get());
  model.reset();
  expectSuccess(eq_session_decode(session.get(), 1));
  EXPECT_NEAR(eq_session_logits(session.get())[1], referenceLogits(FixtureWeights(), {1})[1], 1e-5);
}

TEST_F(CApiTest, IsUsableFromC) {
  std::vector<int32_t> tokens = {4, 7, 1}, generated(6);
  ASSERT_EQ(greedyFromC(folder.path().c_str(), tokens.data(), tokens.size(), generated.data(),
                        generated.size()),
            int64_t(tokens.size() + generated.size()) - 1);
  for (int32_t token : generated) {
    std::vector<double> expected = referenceLogits(FixtureWeights(), tokens);
    auto best = std::max_element(expected.begin(), expected.end());
    ASSERT_EQ(token, best - expected.begin());
    tokens.push_back(token);
  }
}

} // namespace
