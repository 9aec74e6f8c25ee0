//===- SamplingTest.cpp - Choosing tokens against the definition ----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The oracle sorts the whole vocabulary in double precision, as eq_choice says.
// test/python/test_sampling.py has one in NumPy, with NumPy's random numbers.
//
//===----------------------------------------------------------------------===//

#include "Sampling.h"

#include <gtest/gtest.h>
#include <numeric>
#include <random>

// Members that a choice does not name are zero, which is what it means.
#pragma clang diagnostic ignored "-Wmissing-designated-field-initializers"

using namespace easyquant;
using namespace easyquant::runtime;

namespace {

std::vector<double> changedLogits(const std::vector<float> &logits, const eq_choice &choice) {
  std::vector<double> scores(logits.begin(), logits.end());
  const std::vector<int32_t> all(choice.tokens, choice.tokens + choice.token_count);
  const double repetition = choice.repetition_penalty == 0 ? 1 : choice.repetition_penalty;
  for (int32_t token = 0; token < std::ssize(scores); ++token) {
    double &score = scores[token];
    if (std::count(all.begin(), all.end(), token) > 0)
      score = score > 0 ? score / repetition : score * repetition;
    const auto count = std::count(all.begin() + choice.prompt_tokens, all.end(), token);
    score -= choice.frequency_penalty * count + (count > 0 ? choice.presence_penalty : 0);
    for (size_t i = 0; i < choice.bias_count; ++i)
      score += choice.bias[i].token == token ? choice.bias[i].bias : 0;
    if (choice.allowed && (choice.allowed[token / 32] >> token % 32 & 1) == 0)
      score = -INFINITY;
  }
  return scores;
}

/// The probabilities of the tokens.
std::vector<double> distribution(const std::vector<float> &logits, const eq_choice &choice) {
  const std::vector<double> scores = changedLogits(logits, choice);
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
  std::vector<double> weights(scores.size()), kept(scores.size());
  if (choice.temperature == 0) {
    kept[order[0]] = 1;
    return kept;
  }
  for (size_t i = 0; i < weights.size(); ++i)
    weights[i] = std::exp((scores[i] - scores[order[0]]) / choice.temperature);
  if (choice.top_k > 0 && choice.top_k < std::ssize(order))
    order.resize(choice.top_k);
  double total = 0, sum = 0;
  for (int32_t token : order)
    total += weights[token];
  for (int32_t token : order) {
    if (weights[token] >= choice.min_p)
      kept[token] = weights[token];
    if ((sum += weights[token]) >= choice.top_p * total * (1 - 1e-9))
      break;
  }
  total = std::accumulate(kept.begin(), kept.end(), 0.0);
  for (double &weight : kept)
    weight /= total;
  return kept;
}

/// Whether a token is the one that u falls on, but for rounding.
testing::AssertionResult isDrawn(const std::vector<double> &probabilities, double u,
                                 int32_t token) {
  const double before = std::accumulate(probabilities.begin(), probabilities.begin() + token, 0.0);
  if (probabilities[token] > 0 && before <= u + 2e-6 && u - 2e-6 <= before + probabilities[token])
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << "token " << token << " is at " << before << " + "
                                     << probabilities[token] << ", found u = " << u;
}

std::vector<float> randomLogits(int64_t count, float spread, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(count);
  for (float &logit : logits)
    logit = std::round(normal(random) * 64) / 64; // with ties
  return logits;
}

TEST(SamplingTest, RandomNumbersAreThoseOfPhilox) {
  // As numpy.random.Philox(key=[seed, 0], counter=[position - 1, 0, 0, 0]), its first word, without
  // the lower 11 bits.
  EXPECT_EQ(uniformAt(0, 1), 104003916602523 * 0x1p-53);
  EXPECT_EQ(uniformAt(7, 1000), 2102178278741401 * 0x1p-53);
  EXPECT_EQ(uniformAt(~uint64_t(0), 1), 2116165697649611 * 0x1p-53);
}

TEST(SamplingTest, DrawsAreThoseOfTheDefinition) {
  std::mt19937 random(1);
  auto pick = [&](auto... values) {
    const double all[] = {static_cast<double>(values)...};
    return all[random() % sizeof...(values)];
  };
  for (int round = 0; round < 1500; ++round) {
    SCOPED_TRACE(round);
    const auto vocabulary = static_cast<int64_t>(pick(1, 2, 15, 63, 64, 65, 300, 5000));
    const std::vector<float> logits =
        randomLogits(vocabulary, static_cast<float>(pick(0, 0.01, 1, 3, 30)), round);
    std::vector<int32_t> tokens;
    for (int i = 0; i < pick(0, 0, 5, 400); ++i)
      tokens.push_back(static_cast<int32_t>(random() % vocabulary));
    std::vector<eq_bias> bias;
    for (int i = 0; i < pick(0, 0, 1, 7); ++i)
      bias.push_back({static_cast<int32_t>(random() % vocabulary),
                      static_cast<float>(pick(-100, -1, 2.5, 100))});
    std::vector<uint32_t> allowed((vocabulary + 31) / 32);
    const double kept = pick(0.02, 0.5, 1);
    for (int64_t token = 0; token < vocabulary; ++token)
      if (static_cast<double>(random() % 1000) < 1000 * kept)
        allowed[token / 32] |= 1u << token % 32;
    eq_choice choice = {};
    choice.temperature = pick(0, 0.1, 0.8, 1, 1, 5);
    choice.top_k = static_cast<int64_t>(pick(0, 0, 1, 2, 40, 64, 1000, 1e9));
    choice.top_p = pick(1, 1, 0.999999, 0.95, 0.5, 1e-9);
    choice.min_p = pick(0, 0, 0.05, 0.3, 1);
    choice.repetition_penalty = pick(0, 1, 1.3, 0.7);
    choice.presence_penalty = pick(0, 0.5, -2);
    choice.frequency_penalty = pick(0, 0.2, -1);
    choice.tokens = tokens.data();
    choice.token_count = tokens.size();
    choice.prompt_tokens = tokens.size() / 2;
    choice.bias = bias.data();
    choice.bias_count = bias.size();
    const bool isNoneAllowed =
        std::all_of(allowed.begin(), allowed.end(), [](uint32_t word) { return word == 0; });
    if (random() % 3 == 0) {
      choice.allowed = allowed.data();
      choice.allowed_words = allowed.size();
    }
    ASSERT_TRUE(checkChoice(choice, vocabulary).has_value());
    RowReader reader(vocabulary);
    if (choice.allowed && isNoneAllowed) {
      EXPECT_EQ(reader.choose(logits.data(), choice, 3), -1);
      continue;
    }
    // Near a border of top-p or min-p rounding may decide: the definition is asked on both sides.
    const std::vector<double> exact = distribution(logits, choice);
    for (uint64_t position = 0; position < 8; ++position) {
      choice.seed = random();
      const int32_t token = reader.choose(logits.data(), choice, static_cast<int64_t>(position));
      const double u = uniformAt(choice.seed, position);
      testing::AssertionResult drawn = isDrawn(exact, u, token);
      for (double shift : {1 - 2e-6, 1 + 2e-6})
        if (eq_choice near = choice; !drawn) {
          near.top_p = std::min(1.0, choice.top_p * shift);
          near.min_p = choice.min_p * (2 - shift);
          drawn = isDrawn(distribution(logits, near), u, token);
        }
      EXPECT_TRUE(drawn);
    }
  }
}

/// Rows of many tokens, none of which can be left out beforehand, and such as have all their ties,
/// outliers or gaps where top-p ends.
std::vector<std::pair<std::string, std::vector<float>>> hardRows(int64_t count) {
  constexpr float huge = std::numeric_limits<float>::max();
  const auto size = static_cast<size_t>(count);
  std::vector<std::pair<std::string, std::vector<float>>> rows = {
      {"equal", std::vector<float>(size, 1.5f)},      {"flat", randomLogits(count, 0.1f, 1)},
      {"wide", randomLogits(count, 30, 2)},           {"two values", {}},
      {"one outlier", randomLogits(count, 1e-3f, 3)}, {"neighbours", {}},
      {"both ends", std::vector<float>(size, 0.0f)}};
  for (int64_t i = 0; i < count; ++i) {
    rows[3].second.push_back(i % 3 == 0 ? 1.0f : -2.0f);
    rows[5].second.push_back(i % 2 == 0 ? 1.0f : std::nextafter(1.0f, 2.0f));
  }
  rows[4].second[size / 2] = 9;
  rows[6].second[0] = huge;
  rows[6].second[size - 1] = -huge;
  return rows;
}

TEST(SamplingTest, ManyTokensMatter) {
  for (int64_t vocabulary : {1000, 20001})
    for (const auto &[name, logits] : hardRows(vocabulary)) {
      RowReader reader(vocabulary);
      std::vector<uint32_t> odd((vocabulary + 31) / 32, 0xaaaaaaaa);
      odd.back() &= (uint32_t(1) << vocabulary % 32) - 1;
      for (double topP : {0.999999, 0.95, 0.3})
        for (double temperature : {1.0, 20.0})
          for (auto [topK, minP, isOdd] : {std::tuple(int64_t(0), 0.0, false),
                                           {0, 0.2, false},
                                           {0, 0.0, true},
                                           {vocabulary - 1, 0.0, false}}) {
            SCOPED_TRACE(name + " of " + std::to_string(vocabulary) + ", top-p " +
                         std::to_string(topP) + ", temperature " + std::to_string(temperature) +
                         ", top-k " + std::to_string(topK) + ", min-p " + std::to_string(minP));
            eq_choice choice = {.temperature = temperature, .top_k = topK, .top_p = topP};
            choice.min_p = minP;
            if (isOdd) {
              choice.allowed = odd.data();
              choice.allowed_words = odd.size();
            }
            const std::vector<double> exact = distribution(logits, choice);
            for (uint64_t seed = 0; seed < 4; ++seed) {
              choice.seed = seed;
              const int32_t token = reader.choose(logits.data(), choice, 1);
              const double u = uniformAt(seed, 1);
              testing::AssertionResult drawn = isDrawn(exact, u, token);
              for (double shift : {1 - 2e-6, 1 + 2e-6})
                if (eq_choice near = choice; !drawn) {
                  near.top_p = std::min(1.0, topP * shift);
                  near.min_p = minP * (2 - shift);
                  drawn = isDrawn(distribution(logits, near), u, token);
                }
              EXPECT_TRUE(drawn);
            }
          }
    }
}

TEST(SamplingTest, FrequenciesAreTheProbabilities) {
  const std::vector<float> logits = randomLogits(40, 1.5f, 3);
  std::vector<eq_choice> choices(4);
  for (eq_choice &choice : choices)
    choice = {.temperature = 1, .top_p = 1};
  choices[1].temperature = 0.6;
  choices[2].top_p = 0.8;
  choices[3].top_k = 6;
  for (eq_choice &choice : choices)
    for (bool bySeed : {false, true}) {
      constexpr int draws = 40000;
      const std::vector<double> expected = distribution(logits, choice);
      std::vector<int> found(logits.size());
      RowReader reader(std::ssize(logits));
      for (int i = 0; i < draws; ++i) {
        choice.seed = bySeed ? i : 11;
        ++found[reader.choose(logits.data(), choice, bySeed ? 5 : i)];
      }
      double chiSquare = 0;
      int degrees = -1;
      for (size_t token = 0; token < found.size(); ++token) {
        if (expected[token] == 0) {
          EXPECT_EQ(found[token], 0);
          continue;
        }
        const double mean = expected[token] * draws;
        chiSquare += (found[token] - mean) * (found[token] - mean) / mean;
        ++degrees;
      }
      // Five standard deviations: the seeds are fixed, so that it is this or never.
      EXPECT_LT(chiSquare, degrees + 5 * std::sqrt(2.0 * degrees));
      EXPECT_GT(chiSquare, degrees - 5 * std::sqrt(2.0 * degrees));
    }
}

TEST(SamplingTest, GreedyTakesTheFirstOfEquals) {
  std::vector<float> logits(1000, -1.0f);
  logits[700] = logits[130] = logits[131] = 2.0f;
  RowReader reader(1000);
  EXPECT_EQ(reader.choose(logits.data(), {}, 0), 130);
  EXPECT_EQ(reader.choose(logits.data(), {.temperature = 2, .top_k = 1, .top_p = 1}, 0), 130);
  EXPECT_EQ(reader.choose(logits.data(), {.temperature = 2, .top_p = 0}, 0), 130);
  // However small: equal ones are drawn from, others are not.
  std::vector<int> found(1000);
  for (uint64_t seed = 0; seed < 300; ++seed)
    ++found[reader.choose(logits.data(), {.temperature = 1e-300, .top_p = 1, .seed = seed}, 0)];
  EXPECT_EQ(found[130] + found[131] + found[700], 300);
  EXPECT_GT(std::min({found[130], found[131], found[700]}), 60);
}

TEST(SamplingTest, TellsLogProbabilities) {
  for (int64_t vocabulary : {1, 64, 777, 5000}) {
    const std::vector<float> logits = randomLogits(vocabulary, 4, 9);
    const double top = *std::max_element(logits.begin(), logits.end());
    double total = 0;
    for (float logit : logits)
      total += std::exp(logit - top);
    std::vector<int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    RowReader reader(vocabulary);
    for (int64_t count : {int64_t(0), int64_t(1), std::min<int64_t>(20, vocabulary), vocabulary}) {
      std::vector<eq_logprob> best(count);
      double logprob = 1;
      const int32_t token = order[order.size() / 2];
      reader.describe(logits.data(), token, &logprob, best);
      EXPECT_NEAR(logprob, logits[token] - top - std::log(total), 1e-6);
      for (int64_t i = 0; i < count; ++i) {
        EXPECT_EQ(best[i].token, order[i]);
        EXPECT_NEAR(best[i].logprob, logits[order[i]] - top - std::log(total), 1e-6);
      }
    }
  }
}

void expectRefused(const eq_choice &choice, const std::string &message) {
  Result<void> checked = checkChoice(choice, 40);
  ASSERT_FALSE(checked.has_value()) << message;
  EXPECT_EQ(checked.error().code, ErrorCode::InvalidArgument);
  EXPECT_EQ(checked.error().message, message);
}

TEST(SamplingTest, RefusesWhatCannotBe) {
  expectRefused({.temperature = -1}, "temperature: found -1, expected a number from 0 to "
                                     "1.7976931348623157e+308");
  expectRefused({.temperature = NAN}, "temperature: found nan, expected a number from 0 to "
                                      "1.7976931348623157e+308");
  expectRefused({.top_p = 1.5}, "top_p: found 1.5, expected a number from 0 to 1");
  expectRefused({.min_p = NAN}, "min_p: found nan, expected a number from 0 to 1");
  expectRefused({.repetition_penalty = 1e-9},
                "repetition_penalty: found 1e-09, expected a number from 0.01 to 100");
  expectRefused({.presence_penalty = INFINITY},
                "presence_penalty: found inf, expected a number from -1000000 to 1000000");
  expectRefused({.top_k = -1}, "top_k: found -1, expected at least 0 (0 is all tokens)");
  const int32_t tokens[] = {1, 40};
  expectRefused({.tokens = tokens, .token_count = 2},
                "tokens[1]: found 40, expected a token id in 0..39");
  expectRefused({.tokens = tokens, .token_count = 1, .prompt_tokens = 2},
                "tokens: found 2 of a prompt among 1, expected those of the prompt and then those "
                "of the answer");
  expectRefused({.token_count = 1}, "tokens: found 0 of a prompt among 1 at NULL, expected those "
                                    "of the prompt and then those of the answer");
  const eq_bias bias[] = {{-1, 0}, {3, INFINITY}};
  expectRefused({.bias = bias, .bias_count = 1},
                "bias[0]: found 0 for token -1, expected a number "
                "from -1000000 to 1000000 for a token id in 0..39");
  expectRefused({.bias = bias + 1, .bias_count = 1},
                "bias[0]: found inf for token 3, expected a number from -1000000 to 1000000 for a "
                "token id in 0..39");
  expectRefused({.bias_count = 1}, "bias: found NULL, expected 1 entries");
  const uint32_t allowed[1] = {};
  expectRefused({.allowed = allowed, .allowed_words = 1},
                "allowed: found 1 words of 32 bits, expected 2 for a vocabulary of 40 tokens");
  eq_logprob best[41];
  expectRefused({.best = best, .best_count = 41},
                "best: found 41 tokens, expected at most the 40 of the vocabulary");
  expectRefused({.best_count = 2},
                "best: found 2 tokens at NULL, expected at most the 40 of the vocabulary");
}

} // namespace
