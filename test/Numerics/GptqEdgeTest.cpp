//===- GptqEdgeTest.cpp ---------------------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What GPTQ does with Hessians and weights that are not as they should be.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Gptq.h"

#include "RandomData.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

const Scheme kInt4{4, true, Granularity::Channel, 0};

std::vector<float> identity(int64_t n, float value = 1) {
  std::vector<float> h(n * n);
  for (int64_t i = 0; i < n; ++i)
    h[i * n + i] = value;
  return h;
}

Result<GptqResult> run(const std::vector<float> &w, const std::vector<float> &h, int64_t k,
                       GptqOptions options = {}) {
  auto factor = factorHessian(ConstMatrix(h.data(), k, k), options);
  if (!factor)
    return Unexpected(factor.error());
  return gptq(ConstMatrix(w.data(), w.size() / k, k), *factor, kInt4, {}, options);
}

// Inputs that do not hang together leave nothing to correct.
TEST(GptqEdge, DiagonalHessianIsRoundToNearest) {
  for (float value : {1e-30f, 1.0f, 1e30f})
    for (bool actOrder : {false, true}) {
      std::vector<float> w = gaussian(5 * 37, 3);
      auto result = run(w, identity(37, value), 37, {.actOrder = actOrder});
      ASSERT_TRUE(result) << result.error().message;
      auto nearest = quantize(ConstMatrix(w.data(), 5, 37), kInt4, ScaleRule());
      EXPECT_EQ(result->weight.codes, nearest->codes);
      EXPECT_EQ(result->weight.params.scales, nearest->params.scales);
    }
}

TEST(GptqEdge, WeighsErrorsByTheDiagonal) {
  // Nothing to correct: what round to nearest is in the ranges of the rule with diag H as weights.
  std::vector<float> h = identity(40, 1), weights(40);
  for (int64_t j = 0; j < 40; ++j)
    h[j * 40 + j] = weights[j] = std::exp(static_cast<float>(j % 7) - 3);
  const ScaleRule rule{.kind = ScaleRuleKind::HessianDiagonal, .weights = weights};
  std::vector<float> w = gaussian(5 * 40, 3);
  const Scheme scheme{3, true, Granularity::Group, 16};
  auto nearest = quantize(ConstMatrix(w.data(), 5, 40), scheme, rule);
  ASSERT_TRUE(nearest) << nearest.error().message;
  for (GptqOptions options : {GptqOptions{.actOrder = true}, {.staticGroups = true}, {}}) {
    auto factor = factorHessian(ConstMatrix(h.data(), 40, 40), options);
    ASSERT_TRUE(factor) << factor.error().message;
    auto result = gptq(ConstMatrix(w.data(), 5, 40), *factor, scheme,
                       {ScaleRuleKind::HessianDiagonal}, options);
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->weight.codes, nearest->codes);
    EXPECT_EQ(result->weight.params.scales, nearest->params.scales);
  }
}

TEST(GptqEdge, DeadColumnsAreZeroAndDisturbNobody) {
  const int64_t k = 12;
  std::vector<float> h = identity(k, 3), w = gaussian(4 * k, 5);
  for (int64_t dead : {0, 7, 11}) {
    h[dead * k + dead] = 0;
    for (int64_t r = 0; r < 4; ++r)
      w[r * k + dead] = 1e6f; // must not set the scale
  }
  auto result = run(w, h, k);
  ASSERT_TRUE(result) << result.error().message;
  for (int64_t r = 0; r < 4; ++r) {
    EXPECT_LT(result->weight.params.scales[r], 1);
    for (int64_t j = 0; j < k; ++j)
      if (j == 0 || j == 7 || j == 11)
        EXPECT_EQ(result->weight.codes[r * k + j], 0);
  }
  EXPECT_TRUE(run(w, std::vector<float>(k * k, 0.0f), k)); // no column is alive
}

TEST(GptqEdge, ZeroAndEmptyWeights) {
  auto zeros = run(std::vector<float>(3 * 8, 0.0f), identity(8), 8);
  ASSERT_TRUE(zeros);
  EXPECT_EQ(zeros->weight.codes, std::vector<int8_t>(24, 0));
  EXPECT_EQ(zeros->weight.params.scales, std::vector<float>(3, 1.0f));
  EXPECT_EQ(zeros->loss, 0);
  EXPECT_TRUE(run({}, identity(8), 8));
}

// Off-diagonals a little above what a Gram matrix can have, as sums in single precision make them.
TEST(GptqEdge, DampingGrowsUntilTheFactorExists) {
  const int64_t k = 40;
  std::vector<float> h(k * k, 1.03f);
  for (int64_t i = 0; i < k; ++i)
    h[i * k + i] = 1;
  auto factor = factorHessian(ConstMatrix(h.data(), k, k), {});
  ASSERT_TRUE(factor) << factor.error().message;
  EXPECT_GT(factor->damping, 0.03);
  EXPECT_LE(factor->damping, 0.05);
  EXPECT_FALSE(factor->inDouble);
}

// 1 + 2e-9 is 1 in single precision, in which the matrix of ones then stays singular.
TEST(GptqEdge, DoubleIsTriedBeforeGivingUp) {
  const int64_t k = 64;
  std::vector<float> h(k * k);
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j < k; ++j)
      h[i * k + j] = 1;
  auto factor = factorHessian(ConstMatrix(h.data(), k, k), {.damping = 2e-9});
  ASSERT_TRUE(factor) << factor.error().message;
  EXPECT_TRUE(factor->inDouble);
  EXPECT_EQ(factor->damping, 2e-9);
}

TEST(GptqEdge, RefusesWhatItCannotFactor) {
  auto refused = [](const std::vector<float> &h, int64_t rows, int64_t columns, const char *text,
                    GptqOptions options = {}) {
    auto factor = factorHessian(ConstMatrix(h.data(), rows, columns), options);
    ASSERT_FALSE(factor);
    EXPECT_EQ(factor.error().code, ErrorCode::InvalidArgument);
    EXPECT_NE(factor.error().message.find(text), std::string::npos) << factor.error().message;
  };
  refused({1, 5, 5, 1}, 2, 2, "not positive definite");
  refused({1, 0, 0, -1}, 2, 2, "diagonal element 1");
  refused({1, 0, NAN, 1}, 2, 2, "element (1, 0)");
  refused({1, 0, 0, INFINITY}, 2, 2, "element (1, 1)");
  refused({1, 0}, 1, 2, "square");
  refused({1}, 1, 1, "damping", {.damping = 0});
  refused({1}, 1, 1, "damping", {.damping = NAN});
}

TEST(GptqEdge, RefusesWeightsThatItCannotRound) {
  EXPECT_FALSE(run({1, 2, NAN, 4}, identity(4), 4));
  EXPECT_FALSE(run({1, 2, INFINITY, 4}, identity(4), 4));
  auto factor = factorHessian(ConstMatrix(identity(3).data(), 3, 3), {});
  std::vector<float> w(8, 1.0f);
  EXPECT_FALSE(gptq(ConstMatrix(w.data(), 2, 4), *factor, kInt4, {}, {}));
  // The error of the first weight, half a step of 4e37, counts 100 times in the second.
  auto overflow = run({2.1e37f, 3e38f}, {10100, 100, 100, 1}, 2, {.damping = 1e-6});
  ASSERT_FALSE(overflow);
  EXPECT_NE(overflow.error().message.find("range of float"), std::string::npos);
}

} // namespace
