//===- TokenGroupsTest.cpp - Activations whose groups have scales ---------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RandomData.h"

#include "easyquant/Numerics/Hadamard.h"
#include "easyquant/Numerics/Quantize.h"
#include "easyquant/Numerics/Reference.h"
#include "easyquant/Numerics/ScaleRules.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

/// Rows whose groups differ in size, with zeros and an outlier.
std::vector<float> rowsOf(int64_t rows, int64_t columns) {
  std::vector<float> x = gaussian(rows * columns, static_cast<unsigned>(columns));
  for (int64_t i = 0; i < rows * columns; ++i)
    x[i] *= static_cast<float>(1 + i % columns / 32 * 10);
  x[columns / 2] = 4000.0f;
  if (rows > 1)
    std::fill_n(&x[columns], std::min<int64_t>(columns, 40), 0.0f);
  return x;
}

TEST(TokenGroups, HaveTheCodesOfRowsOfTheirOwn) {
  for (int64_t columns : {1, 31, 32, 33, 100, 576, 1500})
    for (int64_t group : {32, 64, 128}) {
      const int64_t rows = 3;
      std::vector<float> x = rowsOf(rows, columns);
      auto q = quantizeTokensInGroups({x.data(), rows, columns}, group);
      ASSERT_TRUE(q);
      ASSERT_EQ(q->tokenGroup, group);
      ASSERT_EQ(q->groups, groupCount(columns, group));
      ASSERT_TRUE(q->zeroPoints.empty());
      std::vector<float> back(rows * columns), expected(rows * columns);
      dequantize(*q, Matrix(back.data(), rows, columns));
      for (int64_t g = 0; g < q->groups; ++g) {
        const int64_t begin = g * group, count = std::min(group, columns - begin);
        auto alone = quantizeTokens({&x[begin], rows, count, columns}, 0);
        ASSERT_TRUE(alone);
        dequantize(*alone, Matrix(&expected[begin], rows, count, columns));
        for (int64_t i = 0; i < rows; ++i) {
          EXPECT_EQ(q->scales[i * q->groups + g], alone->scales[i]);
          EXPECT_EQ(q->sums[i * q->groups + g], alone->sums[i]);
          for (int64_t j = 0; j < count; ++j)
            ASSERT_EQ(q->codes[i * q->paddedColumns + begin + j],
                      alone->codes[i * alone->paddedColumns + j]);
        }
      }
      EXPECT_EQ(back, expected);
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = columns; j < q->paddedColumns; ++j)
          EXPECT_EQ(q->codes[i * q->paddedColumns + j], 0);
    }
}

// Every code is the nearest one with its scale and zero point, and these reach both ends.
TEST(TokenGroups, ZeroPointsFollowTheExtrema) {
  for (int64_t columns : {1, 32, 33, 300}) {
    std::vector<float> x = rowsOf(3, columns);
    for (int64_t j = 0; j < columns; ++j) // to one side of 0, then to the other
      x[2 * columns + j] = j / 32 % 2 ? std::fabs(x[2 * columns + j]) + 1 : -std::fabs(x[j]) - 1;
    auto q = quantizeTokensInGroups({x.data(), 3, columns}, 32, /*symmetric=*/false);
    ASSERT_TRUE(q);
    ASSERT_EQ(q->zeroPoints.size(), q->scales.size());
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t g = 0; g < q->groups; ++g) {
        const float *first = &x[i * columns + g * 32];
        const int64_t count = std::min<int64_t>(32, columns - g * 32);
        const double least = std::min(0.0f, *std::min_element(first, first + count));
        const double most = std::max(0.0f, *std::max_element(first, first + count));
        const float scale = q->scales[i * q->groups + g];
        const int32_t zero = q->zeroPoints[i * q->groups + g];
        const int8_t *codes = &q->codes[i * q->paddedColumns + g * 32];
        if (most == least) {
          EXPECT_EQ(scale, 1.0f);
          EXPECT_EQ(zero, 0);
        } else {
          EXPECT_NEAR(scale, (most - least) / 255, 1e-6 * scale);
          EXPECT_NEAR(zero, -128 - least / scale, 0.5001);
        }
        int32_t sum = 0;
        for (int64_t j = 0; j < count; ++j) {
          EXPECT_NEAR(scale * (codes[j] - zero), first[j], 0.5001 * scale);
          sum += codes[j];
        }
        EXPECT_EQ(sum, q->sums[i * q->groups + g]);
      }
  }
  // The widest range, and the narrowest that counts.
  std::vector<float> ends = {0x1.fffffep127f, -0x1.fffffep127f};
  auto wide = quantizeTokensInGroups({ends.data(), 1, 2}, 32, false);
  EXPECT_TRUE(std::isfinite(wide->scales[0]));
  EXPECT_EQ(wide->codes[0] - wide->codes[1], 255);
  ends = {0x1p-119f, 0x1p-119f * -1};
  EXPECT_TRUE(std::isnormal(quantizeTokensInGroups({ends.data(), 1, 2}, 32, false)->scales[0]));
  ends = {0x1p-119f, 0};
  EXPECT_EQ(quantizeTokensInGroups({ends.data(), 1, 2}, 32, false)->codes[0], 0);
}

TEST(TokenGroups, FollowTheScheme) {
  std::vector<float> x = rowsOf(2, 100);
  Scheme scheme{8, true, Granularity::Token, 32, true};
  auto q = quantizeTokens({x.data(), 2, 100}, scheme, 48);
  ASSERT_TRUE(q);
  EXPECT_EQ(q->scales, quantizeTokensInGroups({x.data(), 2, 100}, 32)->scales);
  scheme.symmetric = false;
  q = quantizeTokens({x.data(), 2, 100}, scheme, 48);
  EXPECT_EQ(q->zeroPoints, quantizeTokensInGroups({x.data(), 2, 100}, 32, false)->zeroPoints);
  scheme.groupSize = 0;
  EXPECT_FALSE(quantizeTokens({x.data(), 2, 100}, scheme, 48));
  scheme.symmetric = true;
  q = quantizeTokens({x.data(), 2, 100}, scheme, 48);
  ASSERT_TRUE(q);
  EXPECT_EQ(q->scales.size(), 2u);
  EXPECT_EQ(q->groups, 3);
}

TEST(TokenGroups, Refused) {
  std::vector<float> x(100, 1.0f);
  for (int64_t group : {-32, 0, 16, 48, 256})
    EXPECT_FALSE(quantizeTokensInGroups({x.data(), 1, 100}, group)) << group;
  x[70] = std::numeric_limits<float>::infinity();
  auto infinite = quantizeTokensInGroups({x.data(), 1, 100}, 32);
  ASSERT_FALSE(infinite);
  EXPECT_NE(infinite.error().message.find("row 0, column 70"), std::string::npos);
  EXPECT_FALSE(quantizeTokens({x.data(), 1, 60}, Scheme{8, true, Granularity::Tensor}, 0));
  // Groups of tokens that reach over those of the weight.
  std::vector<float> out(1);
  auto tokens = quantizeTokensInGroups({x.data(), 1, 60}, 64);
  for (int64_t group : {32, 96}) {
    auto w = chooseQParams({x.data(), 1, 60}, {8, true, Granularity::Group, group}, {});
    ASSERT_TRUE(w);
    QuantizedMatrix weight{
        {8, true, Granularity::Group, group}, 1, 60, std::vector<int8_t>(60), *w};
    auto done = reference::integerLinear(*tokens, weight, nullptr, false, Matrix(out.data(), 1, 1));
    ASSERT_FALSE(done);
    EXPECT_NE(done.error().message.find("lie within those of the weight"), std::string::npos);
  }
}

struct RowShape {
  int64_t columns, weightGroup, tokenGroup;
};

// The linear of the dequantized operands, in double and in the kernels' order.
TEST(TokenGroups, GiveTheLinearOfTheDequantizedOperands) {
  const int64_t M = 3, N = 5;
  for (auto [K, weightGroup, tokenGroup] : {RowShape{257, 32, 32},
                                            {300, 128, 32},
                                            {300, 64, 64},
                                            {200, 0, 32},
                                            {9, 0, 128},
                                            {500, 128, 64}})
    for (auto [symmetric, symmetricInput] :
         {std::pair(true, true), {true, false}, {false, true}, {false, false}}) {
      Scheme scheme{4, symmetric, weightGroup ? Granularity::Group : Granularity::Channel,
                    weightGroup};
      CodeRange range = codeRange(scheme);
      const int64_t groups = groupCount(K, weightGroup);
      QuantizedMatrix w{scheme,
                        N,
                        K,
                        randomCodes(N * K, 1, range.min, range.max),
                        {N, groups, gaussian(N * groups, 2), {}}};
      if (!symmetric)
        for (int8_t z : randomCodes(N * groups, 3, range.min, range.max))
          w.params.zeroPoints.push_back(z);
      std::vector<float> xs = rowsOf(M, K);
      auto x = quantizeTokensInGroups({xs.data(), M, K}, tokenGroup, symmetricInput);
      ASSERT_TRUE(x);
      auto dots = reference::integerDots(*x, w);
      ASSERT_TRUE(dots);
      ASSERT_EQ(std::ssize(*dots), M * N * x->groups);
      std::vector<float> y(M * N), added(M * N, 0.25f), bias = gaussian(N, 7);
      std::vector<double> exact(M * N);
      ASSERT_TRUE(reference::integerLinear(*x, w, bias.data(), false, Matrix(y.data(), M, N)));
      ASSERT_TRUE(reference::integerLinear(*x, w, nullptr, true, Matrix(added.data(), M, N)));
      ASSERT_TRUE(reference::integerLinear(*x, w, bias.data(), {exact.data(), M, N}));
      for (int64_t m = 0; m < M; ++m)
        for (int64_t n = 0; n < N; ++n) {
          double sum = 0, magnitude = std::fabs(bias[n]) + 0.25;
          for (int64_t k = 0; k < K; ++k) {
            const int64_t h = n * groups + (weightGroup ? k / weightGroup : 0);
            const int64_t i = m * x->groups + k / tokenGroup;
            double product =
                double(x->scales[i]) *
                (x->codes[m * x->paddedColumns + k] - (symmetricInput ? 0 : x->zeroPoints[i])) *
                w.params.scales[h] *
                (w.codes[n * K + k] - (symmetric ? 0 : w.params.zeroPoints[h]));
            sum += product;
            magnitude += std::fabs(product);
          }
          EXPECT_NEAR(exact[m * N + n], sum + bias[n], 1e-13 * magnitude);
          const double bound = (2.0 * x->groups + 2.0 * groups + 4) * 0x1p-24 * magnitude;
          EXPECT_NEAR(y[m * N + n], sum + bias[n], bound);
          EXPECT_NEAR(added[m * N + n], sum + 0.25, bound);
        }
    }
}

TEST(TokenGroups, ComeBackFromABasis) {
  const int64_t rows = 3, columns = 96;
  std::vector<float> x = rowsOf(rows, columns), back(rows * columns);
  Scheme scheme;
  scheme.granularity = Granularity::Token;
  scheme.dynamic = true;
  for (int64_t group : {0, 32})
    for (int64_t block : {0, 16, 32}) {
      scheme.groupSize = group;
      scheme.hadamard = block;
      ASSERT_TRUE(roundsTokens(scheme));
      ASSERT_TRUE(roundTokens({x.data(), rows, columns}, scheme, {back.data(), rows, columns}));
      std::vector<float> rotated = x, expected(rows * columns);
      for (int64_t i = 0; i < rows && block; ++i)
        rotateActivation({&rotated[i * columns], static_cast<size_t>(columns)}, block);
      auto q = quantizeTokens({rotated.data(), rows, columns}, scheme, 0);
      ASSERT_TRUE(q);
      dequantize(*q, Matrix(expected.data(), rows, columns));
      if (block)
        rotateConstant(expected, block);
      EXPECT_EQ(back, expected);
      // Half a code away, at most, of the widest scale.
      const float scale = *std::max_element(q->scales.begin(), q->scales.end());
      for (size_t i = 0; i < x.size(); ++i)
        ASSERT_LE(std::fabs(back[i] - x[i]), 0.51f * scale * std::sqrt(block ? block : 1.0f));
    }
}

TEST(TokenGroups, AreRoundedByFP8AndNothingElse) {
  Scheme scheme{.granularity = Granularity::Token, .dynamic = true, .codes = CodeFormat::F8E4M3FN};
  std::vector<float> x = {448, 17, -0.5f, 1e-3f}, back(4);
  ASSERT_TRUE(roundTokens({x.data(), 1, 4}, scheme, {back.data(), 1, 4}));
  EXPECT_EQ(back, (std::vector<float>{448, 16, -0.5f, 1.0f / 512})); // 17 is a tie of 16 and 18
  scheme.dynamic = false;
  EXPECT_FALSE(roundTokens({x.data(), 1, 4}, scheme, {back.data(), 1, 4}));
  scheme = {.granularity = Granularity::Token, .dynamic = true, .hadamard = 16};
  EXPECT_EQ(roundTokens({x.data(), 1, 4}, scheme, {back.data(), 1, 4}).error().code,
            ErrorCode::InvalidArgument);
}

} // namespace
