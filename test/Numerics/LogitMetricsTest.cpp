//===- LogitMetricsTest.cpp -----------------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/LogitMetrics.h"

#include "RandomData.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

/// log softmax of a row in long double.
std::vector<long double> logSoftmax(const float *x, int64_t count) {
  long double top = x[0], sum = 0;
  for (int64_t i = 0; i < count; ++i)
    top = std::max<long double>(top, x[i]);
  for (int64_t i = 0; i < count; ++i)
    sum += std::exp(x[i] - top);
  std::vector<long double> result(count);
  for (int64_t i = 0; i < count; ++i)
    result[i] = x[i] - top - std::log(sum);
  return result;
}

TEST(LogitMetrics, AreThoseOfTheFormulas) {
  for (int64_t vocabulary : {1, 2, 15, 16, 17, 1000, 4099}) {
    const int64_t rows = 5;
    std::vector<float> p = gaussian(rows * vocabulary, 1), q = gaussian(rows * vocabulary, 2);
    for (size_t i = 0; i < p.size(); ++i) {
      p[i] = 4 * p[i] + 30; // no maximum of 0
      q[i] = p[i] + 0.2f * q[i];
    }
    p[0] = -1e4f; // a weight that is 0
    q[vocabulary - 1] = 1e4f;
    std::vector<int32_t> targets;
    long double divergence = 0, entropy = 0;
    for (int64_t row = 0; row < rows; ++row) {
      auto a = logSoftmax(p.data() + row * vocabulary, vocabulary);
      auto b = logSoftmax(q.data() + row * vocabulary, vocabulary);
      for (int64_t i = 0; i < vocabulary; ++i)
        divergence += std::exp(a[i]) * (a[i] - b[i]);
      targets.push_back(static_cast<int32_t>((row * 7919) % vocabulary));
      entropy -= b[targets.back()];
    }
    const ConstMatrix reference(p.data(), rows, vocabulary), logits(q.data(), rows, vocabulary);
    auto kl = klDivergence(reference, logits, 1);
    auto loss = crossEntropy(logits, targets, 1);
    ASSERT_TRUE(kl && loss);
    EXPECT_NEAR(*kl, double(divergence), 1e-6 * double(divergence) + 1e-6) << vocabulary;
    EXPECT_NEAR(*loss, double(entropy), 1e-6 * double(entropy) + 1e-6) << vocabulary;
    EXPECT_EQ(*kl, *klDivergence(reference, logits, 3));
    EXPECT_EQ(*loss, *crossEntropy(logits, targets, 3));
    EXPECT_EQ(*klDivergence(logits, logits), 0);
  }
}

TEST(LogitMetrics, TellSmallDivergences) {
  // What 8 bits do to one layer: differences of 1e-4 make a divergence near 5e-9 a row.
  const int64_t rows = 64, vocabulary = 4096;
  std::vector<float> p = gaussian(rows * vocabulary, 3), q = gaussian(rows * vocabulary, 4);
  long double expected = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    p[i] *= 3;
    q[i] = p[i] + 1e-2f * q[i];
  }
  for (int64_t row = 0; row < rows; ++row) {
    auto a = logSoftmax(p.data() + row * vocabulary, vocabulary);
    auto b = logSoftmax(q.data() + row * vocabulary, vocabulary);
    for (int64_t i = 0; i < vocabulary; ++i)
      expected += std::exp(a[i]) * (a[i] - b[i]);
  }
  auto found = klDivergence({p.data(), rows, vocabulary}, {q.data(), rows, vocabulary});
  ASSERT_TRUE(found);
  EXPECT_NEAR(*found, double(expected), 1e-2 * double(expected));
}

TEST(LogitMetrics, SampledGradientsHaveTheCovarianceOfTheNextToken) {
  // Two words of signs; each row is drawn anew.
  const int64_t rows = 8192, vocabulary = 70;
  std::vector<float> row = gaussian(vocabulary, 5), x;
  for (float &logit : row)
    logit *= 2;
  for (int64_t i = 0; i < rows; ++i)
    x.insert(x.end(), row.begin(), row.end());
  std::vector<float> again = x;
  sampledLossGradient({x.data(), rows, vocabulary}, 1, 0, 1);
  sampledLossGradient({again.data(), rows, vocabulary}, 1, 0, 3);
  EXPECT_EQ(x, again);
  const auto logs = logSoftmax(row.data(), vocabulary);
  for (int64_t a : {0, 31, 63, 64, 69})
    for (int64_t b = 0; b < vocabulary; ++b) {
      double mean = 0;
      for (int64_t i = 0; i < rows; ++i)
        mean += double(x[i * vocabulary + a]) * x[i * vocabulary + b] / rows;
      const double p = double(std::exp(logs[a])), q = double(std::exp(logs[b]));
      const double expected = (a == b ? p : 0) - p * q;
      EXPECT_NEAR(mean, expected, 5 * std::sqrt(2 * p * q / rows)) << a << " " << b;
    }
}

TEST(LogitMetrics, RefuseWhatDoesNotFit) {
  std::vector<float> x(12);
  EXPECT_FALSE(klDivergence({x.data(), 3, 4}, {x.data(), 4, 3}));
  EXPECT_FALSE(crossEntropy({x.data(), 3, 4}, std::vector<int32_t>{0, 1}));
  EXPECT_FALSE(crossEntropy({x.data(), 3, 4}, std::vector<int32_t>{0, 1, 4}));
  EXPECT_FALSE(crossEntropy({x.data(), 3, 4}, std::vector<int32_t>{0, -1, 3}));
  EXPECT_NEAR(*crossEntropy({x.data(), 3, 4}, std::vector<int32_t>{0, 1, 3}), 3 * std::log(4.0),
              1e-6);
}

} // namespace
