//===- TokensTest.cpp - Reading calibration tokens ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Execution/Tokens.h"

#include "easyquant/Formats/SafetensorsWriter.h"

#include <gtest/gtest.h>
#include <unistd.h>

using namespace easyquant;
using namespace easyquant::execution;

namespace {

class TokensTest : public testing::Test {
protected:
  ~TokensTest() override { std::filesystem::remove(path); }

  Result<CalibrationTokens> read(const std::vector<int32_t> &ids, int64_t samples,
                                 const std::string &bos = "1", const char *type = "I32",
                                 std::map<std::string, std::string> more = {}) {
    int64_t length = static_cast<int64_t>(ids.size()) / samples;
    more.insert({{"bos", bos}, {"seed", "7"}});
    auto writer =
        formats::SafetensorsWriter::create(path, {{"tokens", type, {samples, length}}}, more);
    EXPECT_TRUE(writer && writer->write("tokens", std::as_bytes(std::span(ids))) &&
                writer->finish());
    return CalibrationTokens::read(path, 10);
  }
  void expectError(const Result<CalibrationTokens> &tokens, const std::string &part) {
    ASSERT_FALSE(tokens);
    EXPECT_NE(tokens.error().message.find(part), std::string::npos) << tokens.error().message;
    EXPECT_NE(tokens.error().message.find(path.filename()), std::string::npos);
  }

  std::filesystem::path path = std::filesystem::temp_directory_path() /
                               ("easyquant-tokens-" + std::to_string(getpid()) + ".safetensors");
};

} // namespace

TEST_F(TokensTest, PaddingAndBosDoNotCount) {
  auto tokens = read({1, 5, 9, 2, 1, 3, -1, -1}, 2);
  ASSERT_TRUE(tokens) << tokens.error().message;
  EXPECT_EQ(tokens->samples(), 2);
  EXPECT_EQ(tokens->maxLength(), 4);
  EXPECT_EQ(tokens->sample(1).size(), 2u);
  EXPECT_EQ(tokens->sample(1)[1], 3);
  EXPECT_EQ(tokens->count(), 6);
  EXPECT_EQ(tokens->counted(), 4);
  EXPECT_EQ(tokens->stamp().seed, 7);
  EXPECT_TRUE(tokens->stamp().bos);
  EXPECT_EQ(read({1, 5, 9, 2, 1, 3, -1, -1}, 2, "0")->counted(), 6);
}

TEST_F(TokensTest, SplitTakesTheFirstPartsOfAllSamplesFirst) {
  auto split = [&](const std::string &bos, int64_t most = 100) {
    auto tokens = read({1, 2, 3, 4, 5, 6, 7, 1, 8, 9, -1, -1, -1, -1}, 2, bos);
    tokens->split(3, most);
    std::vector<std::vector<int32_t>> parts;
    for (int64_t i = 0; i < tokens->samples(); ++i)
      parts.emplace_back(tokens->sample(i).begin(), tokens->sample(i).end());
    EXPECT_EQ(tokens->maxLength(), 3);
    return parts;
  };
  using Parts = std::vector<std::vector<int32_t>>;
  EXPECT_EQ(split("1"), (Parts{{1, 2, 3}, {1, 8, 9}, {1, 4, 5}, {1, 6, 7}}));
  // What is left of the first sample is shorter than half a sequence.
  EXPECT_EQ(split("0"), (Parts{{1, 2, 3}, {1, 8, 9}, {4, 5, 6}}));
  EXPECT_EQ(split("1", 3), (Parts{{1, 2, 3}, {1, 8, 9}, {1, 4, 5}}));
}

TEST_F(TokensTest, TheFirstSamplesHoldSoManyTokens) {
  auto tokens = read({1, 2, 3, 1, 4, -1, 1, 5, 6}, 3); // 3, 2 and 3
  EXPECT_EQ(tokens->samplesHolding(0), 0);
  EXPECT_EQ(tokens->samplesHolding(3), 1);
  EXPECT_EQ(tokens->samplesHolding(4), 2);
  EXPECT_EQ(tokens->samplesHolding(100), 3);
}

TEST_F(TokensTest, SomeSamplesAreThoseThatWereAskedFor) {
  const std::vector<int32_t> ids = {1, 2, 3, 1, 4, -1, 1, 5, 6, 1, 7, 8};
  EXPECT_EQ(read(ids, 4)->askedSamples(), 4);
  auto tokens = read(ids, 4, "1", "I32", {{"samples", "2"}, {"text_hash", "t"}});
  ASSERT_TRUE(tokens);
  EXPECT_EQ(tokens->askedSamples(), 2);
  EXPECT_EQ(tokens->allSamples(), 4);
  tokens->keep(1, 2);
  ASSERT_TRUE(tokens->write(path));
  auto again = CalibrationTokens::read(path, 10);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->hash(), read({1, 4, -1, 1, 5, 6}, 2)->hash());
  EXPECT_EQ(again->stamp(), tokens->stamp());
  EXPECT_EQ(again->stamp().text, "t");
  EXPECT_EQ(again->askedSamples(), 2);
  EXPECT_EQ(again->sample(0).size(), 2u);
  again->keep(1, 100);
  EXPECT_EQ(again->allSamples(), 1);
  EXPECT_EQ(again->sample(0)[1], 5);
  expectError(read(ids, 4, "1", "I32", {{"samples", "5"}}), "say \"5\" for \"samples\"");
  expectError(read(ids, 4, "1", "I32", {{"samples", "two"}}), "expected a number");
}

TEST_F(TokensTest, HashIsThatOfTheTokens) {
  auto hash = [&](const std::vector<int32_t> &ids, int64_t samples) {
    return read(ids, samples)->hash();
  };
  EXPECT_EQ(hash({1, 2, 3, 4}, 2), hash({1, 2, 3, 4}, 2));
  EXPECT_NE(hash({1, 2, 3, 4}, 2), hash({1, 2, 3, 5}, 2));
  EXPECT_NE(hash({1, 2, 3, 4}, 2), hash({1, 2, 3, 4}, 1));
}

TEST_F(TokensTest, BadFilesAreErrors) {
  expectError(read({1, 10}, 1), "sample 0, token 1 is 10, expected 0 to 9");
  expectError(read({1, -2}, 1), "token 1 is -2");
  expectError(read({1, -1, 3}, 1), "token 2 is 3, expected nothing but -1");
  expectError(read({1, 2, 1, -1}, 2), "sample 1 has no token but the one that begins texts");
  expectError(read({-1, -1}, 1, "0"), "sample 0 has no token");
  expectError(read({1, 2}, 1, "yes"), "for \"bos\", expected 0 or 1");
  expectError(read({1, 2}, 1, "1", "F32"), "I32 [samples, length]");
  std::filesystem::remove(path);
  EXPECT_EQ(CalibrationTokens::read(path, 10).error().code, ErrorCode::NotFound);
}
