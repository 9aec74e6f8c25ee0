//===- SessionTest.cpp - Prefill, decode, score, truncate ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Runtime/Session.h"
#include "Fixture.h"
#include "easyquant/Support/Threads.h"

#include <cmath>
#include <gtest/gtest.h>
#include <thread>

using namespace easyquant;
using namespace easyquant::runtime;
using namespace easyquant::runtime::test;

#if __has_feature(thread_sanitizer)
/// LLVM's OpenMP runtime is not instrumented: its own locks are invisible, and memory that passes
/// from one of its threads to another inside it looks like a race.
extern "C" const char *__tsan_default_suppressions() { return "called_from_lib:libomp.so.5\n"; }
#endif

namespace {

class SessionTest : public testing::Test {
protected:
  void SetUp() override {
    manifest = writeFixtureFiles(folder.path());
    load();
  }

  void load() {
    writeManifest(folder.path(), manifest);
    auto loaded = Model::load(folder.path().string(), kIsa, false);
    ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
    model = std::move(*loaded);
  }

  Session create(int64_t context = 0, int32_t threads = 1) const {
    return std::move(Session::create(model, context, threads).value());
  }

  static std::vector<float> copyLogits(const Session &session) {
    return {session.logits(), session.logits() + FIXTURE_VOCAB};
  }

  void expectLogitsOf(const Session &session, const std::vector<int32_t> &tokens) const {
    ASSERT_EQ(session.position(), int64_t(tokens.size()));
    ASSERT_NE(session.logits(), nullptr);
    std::vector<double> expected = referenceLogits(FixtureWeights(), tokens);
    for (size_t v = 0; v < FIXTURE_VOCAB; ++v)
      EXPECT_NEAR(session.logits()[v], expected[v], 1e-4 * (1 + std::abs(expected[v])))
          << "after " << tokens.size() << " tokens, logit " << v;
  }

  /// Expects `result` to be this error and `session` to be as it was: position, logits, and what it
  /// goes on to predict.
  void expectRefused(Session &session, const std::vector<int32_t> &held, const Result<void> &result,
                     ErrorCode code, const std::string &message) const {
    ASSERT_FALSE(result.has_value()) << message;
    EXPECT_EQ(result.error().code, code);
    EXPECT_EQ(result.error().message, message);
    EXPECT_EQ(session.position(), int64_t(held.size()));
    if (held.empty())
      EXPECT_EQ(session.logits(), nullptr);
    else
      expectLogitsOf(session, held);
  }

  TemporaryFolder folder;
  nlohmann::json manifest;
  std::shared_ptr<const Model> model;
};

TEST_F(SessionTest, PrefillOfAnyLengthAgreesWithTheDefinition) {
  for (size_t count : {1, 2, 3, 4, 5, 8, 9, 31, 150, FIXTURE_MAX_CONTEXT + 0}) {
    Session session = create();
    EXPECT_EQ(session.logits(), nullptr);
    std::vector<int32_t> tokens = randomTokens(count, uint32_t(count));
    Result<void> result = session.prefill(tokens);
    ASSERT_TRUE(result.has_value()) << result.error().message;
    expectLogitsOf(session, tokens);
  }
}

TEST_F(SessionTest, ChunksAndThreadsDoNotChangeABit) {
  std::vector<int32_t> tokens = randomTokens(37, 5);
  Session whole = create();
  ASSERT_TRUE(whole.prefill(tokens).has_value());
  std::vector<float> expected = copyLogits(whole);
  for (size_t chunk : {1, 2, 3, 7, 36}) {
    Session session = create(0, int32_t(chunk % 3 + 1));
    for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
      size_t count = std::min(chunk, tokens.size() - begin);
      ASSERT_TRUE(session.prefill(std::span(tokens).subspan(begin, count)).has_value());
    }
    EXPECT_EQ(copyLogits(session), expected) << "in chunks of " << chunk;
  }
}

TEST_F(SessionTest, ScoresEveryToken) {
  std::vector<int32_t> tokens = randomTokens(23, 9);
  for (int32_t threads : {1, 3}) {
    Session session = create(0, threads);
    ASSERT_TRUE(session.prefill(std::span(tokens).first(6)).has_value());
    size_t count = tokens.size() - 6;
    std::vector<float> logits(count * FIXTURE_VOCAB + 1, -77.0f);
    Result<void> result = session.score(std::span(tokens).subspan(6), logits.data());
    ASSERT_TRUE(result.has_value()) << result.error().message;
    for (size_t i = 0; i < count; ++i) {
      std::vector<int32_t> before(tokens.begin(), tokens.begin() + int64_t(7 + i));
      std::vector<double> expected = referenceLogits(FixtureWeights(), before);
      for (size_t v = 0; v < FIXTURE_VOCAB; ++v)
        EXPECT_NEAR(logits[i * FIXTURE_VOCAB + v], expected[v], 1e-4);
    }
    EXPECT_EQ(logits.back(), -77.0f) << "wrote beyond the caller's buffer";
    expectLogitsOf(session, tokens);
  }
}

TEST_F(SessionTest, TruncationForgets) {
  Session session = create();
  std::vector<int32_t> tokens = randomTokens(20, 3), other = randomTokens(11, 4);
  ASSERT_TRUE(session.prefill(tokens).has_value());
  ASSERT_TRUE(session.truncate(7).has_value());
  EXPECT_EQ(session.position(), 7);
  EXPECT_EQ(session.logits(), nullptr);
  ASSERT_TRUE(session.prefill(other).has_value());
  std::vector<int32_t> expected(tokens.begin(), tokens.begin() + 7);
  expected.insert(expected.end(), other.begin(), other.end());
  expectLogitsOf(session, expected);

  expectRefused(session, expected, session.truncate(19), ErrorCode::InvalidArgument,
                "position: found 19, expected 0..18 (the tokens held)");
  expectRefused(session, expected, session.truncate(-1), ErrorCode::InvalidArgument,
                "position: found -1, expected 0..18 (the tokens held)");
  ASSERT_TRUE(session.truncate(0).has_value());
  ASSERT_TRUE(session.prefill(other).has_value());
  expectLogitsOf(session, other);
}

TEST_F(SessionTest, RefusesTokensOutsideTheVocabulary) {
  Session session = create();
  std::vector<int32_t> tokens = {1, 2, 3, 4, 5, FIXTURE_VOCAB, 6};
  expectRefused(session, {}, session.prefill(tokens), ErrorCode::InvalidArgument,
                "tokens[5]: found 19, expected a token id in 0..18");
  ASSERT_TRUE(session.prefill(std::span(tokens).first(3)).has_value());
  expectRefused(session, {1, 2, 3}, session.prefill(std::vector<int32_t>{-1}),
                ErrorCode::InvalidArgument, "tokens[0]: found -1, expected a token id in 0..18");
  expectRefused(session, {1, 2, 3}, session.prefill({}), ErrorCode::InvalidArgument,
                "tokens: found none, expected at least one");
}

TEST_F(SessionTest, RefusesToOverflowItsContext) {
  Session session = create(20);
  std::vector<int32_t> tokens = randomTokens(18, 1);
  ASSERT_TRUE(session.prefill(tokens).has_value());
  expectRefused(session, tokens, session.prefill(std::vector<int32_t>{1, 2, 3}),
                ErrorCode::OutOfRange,
                "context overflow: 3 tokens at position 18 do not fit the context of 20 tokens; "
                "append fewer, or truncate; or create it with a longer context (the model was "
                "made for at most 200)");
  // Up to the last token it works, and not one further, whatever the capacity was rounded to.
  ASSERT_TRUE(session.prefill(std::vector<int32_t>{1, 2}).has_value());
  tokens.insert(tokens.end(), {1, 2});
  Result<void> result = session.prefill(std::vector<int32_t>{1});
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::OutOfRange);
  expectLogitsOf(session, tokens);

  Session longest = create();
  result = longest.prefill(randomTokens(FIXTURE_MAX_CONTEXT + 1, 2));
  expectRefused(longest, {}, result, ErrorCode::OutOfRange,
                "context overflow: 201 tokens at position 0 do not fit the context of 200 tokens; "
                "append fewer, or truncate; the model was made for no longer one");
}

TEST_F(SessionTest, RefusesLogitsThatAreNotFinite) {
  Session session = create();
  std::vector<int32_t> tokens = randomTokens(10, 8);
  ASSERT_TRUE(session.prefill(tokens).has_value());
  const std::string reason =
      " are not finite: the model's weights or activations overflow; compile it with another "
      "scheme, or leave its outlier sites float with --ignore";
  expectRefused(session, tokens, session.prefill(std::vector<int32_t>{kOverflowingToken}),
                ErrorCode::Corrupt, "the logits after the token at position 10 (id 18)" + reason);
  // In a later chunk, and at a row that is not the last of its chunk when all are wanted.
  std::vector<int32_t> late = {1, 2, 3, 4, 5, kOverflowingToken, 6};
  expectRefused(session, tokens, session.prefill(late), ErrorCode::Corrupt,
                "the logits after the token at position 16 (id 6)" + reason);
  std::vector<float> all(late.size() * FIXTURE_VOCAB);
  expectRefused(session, tokens, session.score(late, all.data()), ErrorCode::Corrupt,
                "the logits after the token at position 15 (id 18)" + reason);
  // What the failed calls left in the cache is not seen.
  ASSERT_TRUE(session.prefill(std::vector<int32_t>{1}).has_value());
  tokens.push_back(1);
  expectLogitsOf(session, tokens);
}

TEST_F(SessionTest, ChecksItsOptions) {
  auto expectError = [&](int64_t context, int32_t threads, ErrorCode code,
                         const std::string &message) {
    Result<Session> session = Session::create(model, context, threads);
    ASSERT_FALSE(session.has_value()) << message;
    EXPECT_EQ(session.error().code, code);
    EXPECT_EQ(session.error().message, message);
  };
  expectError(-1, 1, ErrorCode::InvalidArgument,
              "context: found -1, expected tokens, or 0 for the model's longest");
  expectError(201, 1, ErrorCode::OutOfRange,
              "context: found 201 tokens, but the model was made for at most 200");
  expectError(INT64_MAX, 1, ErrorCode::OutOfRange,
              "context: found 9223372036854775807 tokens, but the model was made for at most 200");
  const int32_t most = mostThreads();
  for (int32_t threads : {-1, most + 1, INT32_MAX})
    expectError(1, threads, ErrorCode::InvalidArgument,
                fmt::format("threads: found {}, expected 1..{} (8 for each CPU that the process "
                            "may run on), or 0 for one a CPU",
                            threads, most));
  EXPECT_GE(create(0, 0).threads(), 1);
  EXPECT_EQ(create(0, 0).context(), FIXTURE_MAX_CONTEXT);
}

TEST_F(SessionTest, EndsBeforeAnyKernelWhenAsked) {
  // How often it may still go on, and what it has been told.
  struct Countdown {
    int64_t left;
    std::vector<int64_t> done{};
  };
  auto count = [](void *context, int64_t done, int64_t total) {
    auto *self = static_cast<Countdown *>(context);
    EXPECT_EQ(total, 10);
    self->done.push_back(done);
    return self->left-- == 0;
  };
  std::vector<int32_t> held = randomTokens(7, 1), tokens = randomTokens(10, 2);
  Session session = create(0, 2);
  ASSERT_TRUE(session.prefill(held).has_value());
  // Three steps of 4, 4 and 2 tokens; before each, before each of their embeddings and before each
  // attention it is asked.
  const int64_t questions = 3 + 10 + 3;
  for (int64_t left = 0; left < questions; ++left) {
    Countdown countdown{left};
    session.setProgress({count, &countdown});
    Result<void> result = session.prefill(tokens);
    const int64_t done = left < 6 ? 0 : left < 12 ? 4 : 8;
    expectRefused(session, held, result, ErrorCode::Interrupted,
                  fmt::format("interrupted after {} of 10 tokens", done));
    EXPECT_EQ(std::ssize(countdown.done), left + 1);
    EXPECT_EQ(countdown.done.back(), done);
  }
  Countdown patient{questions};
  session.setProgress({count, &patient});
  ASSERT_TRUE(session.prefill(tokens).has_value());
  EXPECT_EQ(std::ssize(patient.done), questions);
  session.setProgress({});
  held.insert(held.end(), tokens.begin(), tokens.end());
  expectLogitsOf(session, held);
}

TEST_F(SessionTest, SizesItsBuffers) {
  // 17 tokens take three pages.
  EXPECT_EQ(create(17, 3).bytes(), FIXTURE_ARENA_BYTES + 3 * FIXTURE_ARENA_BYTES_PER_THREAD +
                                       FIXTURE_WINDOW_BYTES + 3 * FIXTURE_PAGE_BYTES +
                                       2 * FIXTURE_VOCAB * 4);
}

TEST_F(SessionTest, SaysHowMuchMemoryThereIsNot) {
  manifest["model"]["max_context"] = INT32_MAX;
  manifest["program"]["cache"]["page_bytes"] = int64_t(1) << 27;
  load();
  Result<Session> session = Session::create(model, 0, 1);
  ASSERT_FALSE(session.has_value());
  EXPECT_EQ(session.error().code, ErrorCode::OutOfRange);
  EXPECT_EQ(session.error().message.substr(0, 92),
            "KV cache of 268435456 pages of 8 tokens: the system has not got the "
            "36028797018964032 bytes ");

  manifest["program"]["cache"]["page_bytes"] = INT64_MAX / 64 * 64;
  load();
  session = Session::create(model, 0, 1);
  ASSERT_FALSE(session.has_value());
  EXPECT_EQ(session.error().code, ErrorCode::OutOfRange);
  EXPECT_EQ(session.error().message.substr(0, 72),
            "KV cache of 268435456 pages of 8 tokens: 268435456 x 9223372036854775744");
  manifest["program"]["cache"]["page_bytes"] = int(FIXTURE_PAGE_BYTES);
  manifest["program"]["arena_bytes"] = INT64_MAX;
  load();
  session = Session::create(model, 16, 1);
  ASSERT_FALSE(session.has_value());
  EXPECT_EQ(session.error().code, ErrorCode::OutOfRange);
}

TEST_F(SessionTest, TwoSessionsInTwoThreadsShareOneModel) {
  // Run under ThreadSanitizer by the tsan preset.
  std::vector<float> results[2];
  auto work = [&](int which) {
    Session session = create(0, 1 + which);
    std::vector<int32_t> tokens = randomTokens(40, uint32_t(which));
    for (int round = 0; round < 20; ++round) {
      if (!session.truncate(0) || !session.prefill(std::span(tokens).first(25)))
        return;
      for (size_t i = 25; i < tokens.size(); ++i)
        if (!session.prefill(std::span(tokens).subspan(i, 1)))
          return;
    }
    results[which] = copyLogits(session);
  };
  std::thread first(work, 0), second(work, 1);
  first.join();
  second.join();
  for (int which : {0, 1}) {
    std::vector<int32_t> tokens = randomTokens(40, uint32_t(which));
    std::vector<double> expected = referenceLogits(FixtureWeights(), tokens);
    ASSERT_EQ(results[which].size(), size_t(FIXTURE_VOCAB));
    for (size_t v = 0; v < FIXTURE_VOCAB; ++v)
      EXPECT_NEAR(results[which][v], expected[v], 1e-4);
  }
}

TEST_F(SessionTest, ModelsLoadInSeveralThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> loaded = 0;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      auto own = Model::load(folder.path().string(), kIsa, false);
      auto session = own ? Session::create(*own, 16, 1) : Unexpected(own.error());
      loaded += session.has_value() && session->prefill(std::vector<int32_t>{1, 2}).has_value();
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(loaded, 4);
}

} // namespace
