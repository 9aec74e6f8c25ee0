//===- ReferenceTest.cpp --------------------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Closed forms, tabulated values and invariances: nothing here repeats the formulas of the
// references.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Reference.h"
#include "easyquant/Numerics/Gradients.h"
#include "easyquant/Numerics/Rope.h"

#include "RandomData.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <numbers>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

using Values = std::vector<double>;

TEST(Norms, RmsNorm) {
  std::vector<float> x = {3, 4, 0, 0, 0, 0, 0, 0}, weight = {2, 1};
  Values y(8);
  // Rows of two: (3, 4) has mean square 12.5; zero rows stay zero.
  reference::rmsNorm({x.data(), 4, 2}, weight.data(), 0.0625, {y.data(), 4, 2});
  EXPECT_DOUBLE_EQ(y[0], 6 / std::sqrt(12.5625));
  EXPECT_DOUBLE_EQ(y[1], 4 / std::sqrt(12.5625));
  for (int i = 2; i < 8; ++i)
    EXPECT_EQ(y[i], 0.0);
  // Invariant under scaling when epsilon is 0, up to sign.
  std::vector<float> random = gaussian(64, 1), scaled = random, ones(64, 1.0f);
  for (float &v : scaled)
    v *= -1024;
  Values a(64), b(64);
  reference::rmsNorm({random.data(), 1, 64}, ones.data(), 0, {a.data(), 1, 64});
  reference::rmsNorm({scaled.data(), 1, 64}, ones.data(), 0, {b.data(), 1, 64});
  double squares = 0;
  for (int i = 0; i < 64; ++i) {
    EXPECT_NEAR(a[i], -b[i], 1e-14);
    squares += a[i] * a[i];
  }
  EXPECT_NEAR(squares, 64, 1e-12);
}

TEST(Norms, LayerNorm) {
  std::vector<float> x = {1, 2, 3, 4}, weight = {1, 1, 1, 2}, bias = {0, 0, 0, 10};
  Values y(4);
  reference::layerNorm({x.data(), 1, 4}, weight.data(), bias.data(), 0, {y.data(), 1, 4});
  double sigma = std::sqrt(1.25);
  EXPECT_DOUBLE_EQ(y[0], -1.5 / sigma);
  EXPECT_DOUBLE_EQ(y[3], 2 * 1.5 / sigma + 10);
  // A constant row is only its bias; a huge common shift cancels.
  std::vector<float> constant(4, 7.0f), shifted = {16385, 16386, 16387, 16388};
  reference::layerNorm({constant.data(), 1, 4}, weight.data(), bias.data(), 1e-5, {y.data(), 1, 4});
  EXPECT_EQ(y, (Values{0, 0, 0, 10}));
  reference::layerNorm({shifted.data(), 1, 4}, weight.data(), bias.data(), 0, {y.data(), 1, 4});
  EXPECT_NEAR(y[0], -1.5 / sigma, 1e-12);
}

TEST(Activations, TabulatedValues) {
  std::vector<float> x = {0, 1, -1, 3, -100, 100, -1000, 1000}, ones(8, 1.0f);
  Values y(8);
  // Phi(1) = 0.8413447460685429, Phi(3) = 0.9986501019683699 (tables of the normal distribution).
  reference::geluErf({x.data(), 1, 8}, {y.data(), 1, 8});
  EXPECT_EQ(y[0], 0.0);
  EXPECT_NEAR(y[1], 0.8413447460685429, 1e-15);
  EXPECT_NEAR(y[2], -0.15865525393145707, 1e-15);
  EXPECT_NEAR(y[3], 2.9959503059051097, 1e-14);
  EXPECT_NEAR(y[4], 0, 1e-300);
  EXPECT_EQ(y[5], 100.0);
  // The tanh form: 0.8411919906082768 at 1, and it odd-complements: g(x) - g(-x) = x.
  reference::geluTanh({x.data(), 1, 8}, {y.data(), 1, 8});
  EXPECT_NEAR(y[1], 0.8411919906082768, 1e-15);
  EXPECT_NEAR(y[1] + y[2], 2 * 0.8411919906082768 - 1, 1e-15);
  EXPECT_EQ(y[6], 0.0);
  EXPECT_EQ(y[7], 1000.0);
  // silu(1) = 1 / (1 + 1/e).
  reference::siluMul({x.data(), 1, 8}, {ones.data(), 1, 8}, {y.data(), 1, 8});
  EXPECT_EQ(y[0], 0.0);
  EXPECT_NEAR(y[1], 0.7310585786300049, 1e-15);
  EXPECT_NEAR(y[2], -0.2689414213699951, 1e-15);
  EXPECT_EQ(y[6], 0.0);
  EXPECT_EQ(y[7], 1000.0);
  std::vector<float> up = {5, 2, -2, 0, 1, 0.5f, 1e30f, -1};
  reference::siluMul({x.data(), 1, 8}, {up.data(), 1, 8}, {y.data(), 1, 8});
  EXPECT_NEAR(y[1], 2 * 0.7310585786300049, 1e-15);
  EXPECT_EQ(y[3], 0.0);
  EXPECT_EQ(y[5], 50.0);
  EXPECT_EQ(y[6], 0.0);
  reference::add({x.data(), 1, 8}, {up.data(), 1, 8}, {y.data(), 1, 8});
  EXPECT_EQ(y, (Values{5, 3, -3, 3, -99, 100.5, double(1e30f) - 1000, 999}));
}

TEST(Rope, TurnsComplexNumbers) {
  const int64_t D = 8, heads = 3, position = 11, M = 2;
  auto table = ropeTable({.dims = D, .theta = 10000}, 20);
  ASSERT_TRUE(table);
  ASSERT_EQ(table->size(), size_t(20 * D));
  std::vector<float> x = gaussian(M * heads * D, 1);
  Values y(x.size());
  reference::rope({x.data(), M, heads * D}, *table, D, position, {y.data(), M, heads * D});
  for (int64_t m = 0; m < M; ++m)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < D / 2; ++i) {
        int64_t at = (m * heads + h) * D + i;
        std::complex<double> before(x[at], x[at + D / 2]);
        // Frequencies 1, 1/10, 1/100, 1/1000 for D = 8 and theta = 10^4.
        auto after = before * std::polar(1.0, (position + m) * std::pow(10.0, -double(i)));
        EXPECT_NEAR(y[at], after.real(), 1e-6);
        EXPECT_NEAR(y[at + D / 2], after.imag(), 1e-6);
      }
  reference::rope({x.data(), 1, heads * D}, *table, D, 0, {y.data(), 1, heads * D});
  for (int64_t i = 0; i < heads * D; ++i)
    EXPECT_EQ(y[i], x[i]);
}

TEST(Rope, TurnsAPartOfAHead) {
  const int64_t D = 10, R = 4, position = 3;
  auto table = ropeTable({.dims = R, .theta = 100}, 20);
  ASSERT_TRUE(table);
  std::vector<float> x = gaussian(2 * D, 1);
  Values y(x.size());
  reference::rope({x.data(), 1, 2 * D}, *table, D, position, {y.data(), 1, 2 * D}, R);
  for (int64_t at = 0; at < 2 * D; at += D) {
    for (int64_t i = 0; i < R / 2; ++i) { // frequencies 1 and 1/10
      std::complex<double> before(x[at + i], x[at + i + R / 2]);
      auto after = before * std::polar(1.0, position * std::pow(10.0, -double(i)));
      EXPECT_NEAR(y[at + i], after.real(), 1e-6);
      EXPECT_NEAR(y[at + i + R / 2], after.imag(), 1e-6);
    }
    for (int64_t i = R; i < D; ++i)
      EXPECT_EQ(y[at + i], x[at + i]);
  }
}

TEST(Rope, LongRopeDividesEachFrequency) {
  RopeParams params{.dims = 6, .theta = 1000, .scaling = RopeScaling::LongRope};
  params.attentionFactor = longRopeAttentionFactor(32, 4096);
  params.divisors = {1.0f, 1.5f, 40.0f};
  EXPECT_NEAR(params.attentionFactor, 1.1902380714238083, 1e-15); // of Phi-3-mini-128k
  auto frequencies = ropeFrequencies(params);
  ASSERT_TRUE(frequencies);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_NEAR((*frequencies)[i], std::pow(10.0, -double(i)) / params.divisors[i], 1e-15);
  auto table = ropeTable(params, 8);
  EXPECT_EQ((*table)[7 * 6 + 2], float(params.attentionFactor * std::cos(0.7 / 1.5)));
  EXPECT_EQ(longRopeAttentionFactor(1, 4096), 1);
}

TEST(Rope, LinearScalingInterpolatesPositions) {
  auto plain = ropeTable({.dims = 16, .theta = 5e5}, 64);
  auto scaled =
      ropeTable({.dims = 16, .theta = 5e5, .scaling = RopeScaling::Linear, .factor = 4}, 256);
  ASSERT_TRUE(plain && scaled);
  for (int64_t p = 0; p < 64; ++p)
    for (int64_t i = 0; i < 16; ++i)
      ASSERT_NEAR((*scaled)[4 * p * 16 + i], (*plain)[p * 16 + i], 1e-7);
}

TEST(Rope, Llama3ScalingByWavelength) {
  RopeParams params{.dims = 128,
                    .theta = 500000,
                    .scaling = RopeScaling::Llama3,
                    .factor = 8,
                    .lowFrequencyFactor = 1,
                    .highFrequencyFactor = 4,
                    .originalPositions = 8192};
  auto scaled = ropeFrequencies(params);
  auto divisors = ropeDivisors(params);
  params.scaling = RopeScaling::None;
  auto plain = ropeFrequencies(params);
  ASSERT_TRUE(scaled && divisors && plain);
  ASSERT_EQ(divisors->size(), plain->size());
  int kept = 0, divided = 0, between = 0;
  for (size_t i = 0; i < plain->size(); ++i) {
    EXPECT_EQ((*divisors)[i], static_cast<float>((*plain)[i] / (*scaled)[i]));
    double wavelength = 2 * std::numbers::pi / (*plain)[i], ratio = (*scaled)[i] / (*plain)[i];
    if (wavelength < 8192 / 4.0) {
      EXPECT_EQ(ratio, 1.0);
      ++kept;
    } else if (wavelength > 8192) {
      EXPECT_NEAR(ratio, 1.0 / 8, 1e-15);
      ++divided;
    } else {
      // Linear in 8192 / wavelength between (1, 1/8) and (4, 1).
      EXPECT_NEAR(ratio, 1.0 / 8 + (8192 / wavelength - 1) / 3 * 7 / 8, 1e-14);
      ++between;
    }
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(divided, 20);
  EXPECT_GT(between, 3);
}

TEST(Rope, YarnInterpolatesThePairsThatTurnSlowly) {
  RopeParams params{.dims = 128,
                    .theta = 1e6,
                    .scaling = RopeScaling::Yarn,
                    .factor = 4,
                    .originalPositions = 32768,
                    .attentionFactor = yarnAttentionFactor(4)};
  EXPECT_NEAR(params.attentionFactor, 1.1386294361119891, 1e-15);
  for (bool truncate : {true, false}) {
    params.truncate = truncate;
    auto scaled = ropeFrequencies(params);
    RopeParams unscaled{.dims = 128, .theta = 1e6};
    auto plain = ropeFrequencies(unscaled);
    ASSERT_TRUE(scaled && plain);
    // Pair i turns 32768 f_i / 2 pi times: 32 times at i = 23.6, once at i = 39.6.
    const double first = truncate ? 23.0 : 23.5959476, last = truncate ? 40.0 : 39.6508807;
    for (int i = 0; i < 64; ++i) {
      double turns = 32768 * (*plain)[i] / (2 * std::numbers::pi);
      double ratio = (*scaled)[i] / (*plain)[i];
      double t = std::clamp((i - first) / (last - first), 0.0, 1.0);
      EXPECT_NEAR(ratio, t / 4 + (1 - t), 1e-6) << i;
      EXPECT_TRUE(turns < 33 || i <= 23) << i;
      EXPECT_TRUE(turns > 1 || i >= 40) << i;
    }
    auto table = ropeTable(params, 3), plainTable = ropeTable(unscaled, 3);
    ASSERT_TRUE(table && plainTable);
    for (int i = 0; i < 46; ++i) // the pairs that are not interpolated
      EXPECT_NEAR((*table)[256 + i], 1.1386294361119891 * (*plainTable)[256 + i], 1e-6);
  }
}

TEST(Rope, ProportionTurnsTheFirstPairs) {
  RopeParams params{
      .dims = 16, .theta = 1e6, .scaling = RopeScaling::Proportional, .turnedPairs = 2};
  auto frequencies = ropeFrequencies(params);
  auto divisors = ropeDivisors(params);
  ASSERT_TRUE(frequencies && divisors);
  // Exponents are those of all eight pairs.
  EXPECT_NEAR((*frequencies)[1], std::pow(1e6, -2.0 / 16), 1e-15);
  EXPECT_EQ((*divisors)[1], 1.0f);
  for (int i = 2; i < 8; ++i) {
    EXPECT_EQ((*frequencies)[i], 0.0);
    EXPECT_EQ((*divisors)[i], 1e30f);
  }
  auto table = ropeTable(params, 5);
  ASSERT_TRUE(table);
  EXPECT_EQ((*table)[4 * 16 + 4], 1.0f);
  EXPECT_EQ((*table)[4 * 16 + 5], 0.0f);
}

TEST(Rope, Refuses) {
  auto refused = [](RopeParams params, const char *word) {
    auto result = ropeTable(params, 1);
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().message.find(word), std::string::npos) << result.error().message;
  };
  refused({.dims = 7}, "7 dimensions");
  refused({.dims = 0}, "0 dimensions");
  refused({.dims = 4, .scaling = RopeScaling::LongRope, .divisors = {1}}, "with 1 divisors");
  refused({.dims = 4, .scaling = RopeScaling::LongRope, .divisors = {1, NAN}}, "a divisor = nan");
  refused({.dims = 2, .scaling = RopeScaling::LongRope, .attentionFactor = 0, .divisors = {1}},
          "attention_factor");
  refused({.dims = 8, .theta = 0}, "rope_theta");
  refused({.dims = 8, .theta = NAN}, "rope_theta");
  refused({.dims = 8, .scaling = RopeScaling::Linear, .factor = -2}, "factor");
  refused({.dims = 8, .scaling = RopeScaling::Llama3, .lowFrequencyFactor = 4}, "below");
  refused({.dims = 8, .scaling = RopeScaling::Yarn, .betaFast = 1}, "beta_slow = 1");
  refused({.dims = 8, .theta = 1, .scaling = RopeScaling::Yarn}, "rope_theta = 1");
  refused({.dims = 8, .scaling = RopeScaling::Yarn, .attentionFactor = NAN}, "attention_factor");
  refused({.dims = 8, .scaling = RopeScaling::Yarn, .originalPositions = 0}, "original_max");
  refused({.dims = 8, .scaling = RopeScaling::Proportional}, "first 0 pairs");
  refused({.dims = 8, .scaling = RopeScaling::Proportional, .turnedPairs = 5}, "first 5 pairs");
  EXPECT_FALSE(ropeTable({.dims = 8}, -1));
}

struct Attention : testing::Test {
  reference::AttentionParams params{4, 2, 3, 0.5, 0};
  static constexpr int64_t M = 3, position = 5, T = M + position;
  std::vector<float> q = gaussian(M * 12, 1), k = gaussian(T * 6, 2), v = gaussian(T * 6, 3);
  Values run() {
    Values y(M * 12);
    reference::attention({q.data(), M, 12}, {k.data(), T, 6}, {v.data(), T, 6}, params, position,
                         {y.data(), M, 12});
    return y;
  }
};

TEST_F(Attention, EqualScoresAverageTheVisibleValues) {
  std::fill(q.begin(), q.end(), 0.0f);
  for (int64_t window : {0, 1, 2, 6, 100}) {
    params.window = window;
    Values y = run();
    for (int64_t m = 0; m < M; ++m)
      for (int64_t h = 0; h < 4; ++h)
        for (int64_t i = 0; i < 3; ++i) {
          double sum = 0, count = 0;
          for (int64_t t = 0; t <= position + m; ++t)
            if (window == 0 || position + m - t < window) {
              sum += v[t * 6 + h / 2 * 3 + i];
              ++count;
            }
          EXPECT_NEAR(y[m * 12 + h * 3 + i], sum / count, 1e-14);
        }
  }
}

// Behind equal scores a sink is so many tokens as its exponential says, and has no value.
TEST_F(Attention, SinksTakeTheirPart) {
  const std::vector<float> sinks = {-1, 0, 2, 300};
  std::fill(q.begin(), q.end(), 0.0f);
  params.sinkLogits = sinks;
  for (int64_t window : {0, 2}) {
    params.window = window;
    Values y = run();
    for (int64_t m = 0; m < M; ++m)
      for (int64_t h = 0; h < 4; ++h)
        for (int64_t i = 0; i < 3; ++i) {
          double sum = 0, count = std::exp(double{sinks[h]});
          for (int64_t t = 0; t <= position + m; ++t)
            if (window == 0 || position + m - t < window) {
              sum += v[t * 6 + h / 2 * 3 + i];
              ++count;
            }
          EXPECT_NEAR(y[m * 12 + h * 3 + i], sum / count, 1e-14);
        }
    std::vector<float> keys(M * 6, 1.0f), received(M);
    receivedAttention(params, {q.data(), M, 12}, {keys.data(), M, 6}, received, 1);
    for (int64_t t = 0; t < M; ++t) {
      double mean = 0;
      for (float sink : sinks)
        for (int64_t m = t; m < M && (window == 0 || m - t < window); ++m) {
          const auto seen = static_cast<double>(window == 0 ? m + 1 : std::min(m + 1, window));
          mean += 0.25 / (seen + std::exp(double{sink}));
        }
      EXPECT_NEAR(received[t], mean, 1e-6);
    }
  }
}

TEST_F(Attention, ASharpScorePicksItsValue) {
  std::fill(q.begin(), q.end(), 1000.0f);
  std::fill(k.begin(), k.end(), -1000.0f); // scores of -1.5e6: exp would vanish without the maximum
  std::fill_n(k.begin() + 2 * 6, 6, 1.0f); // token 2 is the one
  Values y = run();
  for (int64_t m = 0; m < M; ++m)
    for (int64_t h = 0; h < 4; ++h)
      for (int64_t i = 0; i < 3; ++i)
        EXPECT_EQ(y[m * 12 + h * 3 + i], double(v[2 * 6 + h / 2 * 3 + i]));
}

TEST_F(Attention, TwoTokensAreASigmoid) {
  params = {1, 1, 1, 0.25, 0};
  std::vector<float> query = {2}, keys = {3, -1}, values = {10, 20};
  double y = 0;
  reference::attention({query.data(), 1, 1}, {keys.data(), 2, 1}, {values.data(), 2, 1}, params, 1,
                       {&y, 1, 1});
  double first = 1 / (1 + std::exp(-0.25 * 2 * (3 - -1)));
  EXPECT_NEAR(y, 10 * first + 20 * (1 - first), 1e-13);
}

TEST_F(Attention, LaterTokensAndUnseenValuesDoNotMatter) {
  params.window = 4;
  Values before = run();
  for (int64_t t : {0, 1}) // row 0 is token 5 and sees 2 .. 5
    std::fill_n(v.begin() + t * 6, 6, 1e30f);
  std::fill_n(k.begin() + 6 * 6, 12, 1e30f); // tokens 6 and 7 come after it
  Values after = run();
  for (int64_t i = 0; i < 12; ++i)
    EXPECT_EQ(before[i], after[i]);
}

TEST(Embedding, CopiesRows) {
  std::vector<float> table = gaussian(5 * 3, 1);
  std::vector<int32_t> tokens = {4, 0, 4};
  Values y(9);
  reference::embedding(tokens, {table.data(), 5, 3}, {y.data(), 3, 3});
  for (int64_t m = 0; m < 3; ++m)
    for (int64_t j = 0; j < 3; ++j)
      EXPECT_EQ(y[m * 3 + j], double(table[tokens[m] * 3 + j]));
  reference::positionEmbedding({table.data(), 5, 3}, 2, {y.data(), 3, 3});
  EXPECT_EQ(y[2 * 3 + 1], double(table[4 * 3 + 1]) + table[4 * 3 + 1]);
  EXPECT_EQ(y[0], double(table[4 * 3]) + table[2 * 3]);
}

} // namespace
