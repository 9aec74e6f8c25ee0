//===- ReferenceLinearTest.cpp --------------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An integer linear is a float linear of the dequantized operands: the oracle knows nothing of
// groups, sums or offsets.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Metrics.h"
#include "easyquant/Numerics/Packing.h"
#include "easyquant/Numerics/Reference.h"
#include "easyquant/Numerics/ScaleRules.h"

#include "RandomData.h"
#include "SchemeKinds.h"

#include <gtest/gtest.h>

#include <cstring>

#include <cmath>
#include <numeric>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

TEST(Linear, ClosedForm) {
  // x[m,k] = m + k, w[n,k] = n - k: sum_k (m + k)(n - k) from the sums of k and k^2.
  const int64_t M = 3, N = 4, K = 10;
  std::vector<float> x(M * K), w(N * K), bias = {1, -2, 3, 0.5f};
  for (int64_t k = 0; k < K; ++k) {
    for (int64_t m = 0; m < M; ++m)
      x[m * K + k] = float(m + k);
    for (int64_t n = 0; n < N; ++n)
      w[n * K + k] = float(n - k);
  }
  std::vector<double> y(M * N);
  reference::linear({x.data(), M, K}, {w.data(), N, K}, bias.data(), {y.data(), M, N});
  double s1 = K * (K - 1) / 2.0, s2 = (K - 1) * K * (2 * K - 1) / 6.0;
  for (int64_t m = 0; m < M; ++m)
    for (int64_t n = 0; n < N; ++n)
      EXPECT_EQ(y[m * N + n], K * m * n + (n - m) * s1 - s2 + bias[n]);
}

struct LinearShape {
  int64_t m, n, k;
  Scheme scheme;
};
class IntegerLinear : public testing::TestWithParam<LinearShape> {};

TEST_P(IntegerLinear, IsTheLinearOfTheDequantizedOperands) {
  auto [M, N, K, scheme] = GetParam();
  for (float outlier : {0.0f, 3300.0f}) {
    std::vector<float> xs = gaussian(M * K, 1, outlier), ws = gaussian(N * K, 2),
                       bias = gaussian(N, 3);
    if (M > 1) // an all-zero row among others
      std::fill_n(xs.begin() + K, K, 0.0f);
    auto x = quantizeTokens({xs.data(), M, K}, scheme.groupSize);
    auto w = quantize({ws.data(), N, K}, scheme, {});
    ASSERT_TRUE(x && w);

    // The dequantized operands as exact doubles (their fp32 forms would add rounding).
    auto weight = [&](int64_t n, int64_t k) {
      int64_t g = scheme.groupSize == 0 ? 0 : k / scheme.groupSize;
      int64_t index = (w->params.rows == 1 ? 0 : n * w->params.groups) + g;
      return double(w->params.scales[index]) * w->codes[n * K + k];
    };
    auto token = [&](int64_t m, int64_t k) {
      return double(x->scales[m]) * x->codes[m * x->paddedColumns + k];
    };
    std::vector<float> y(M * N), accumulated(M * N, 0.25f);
    std::vector<double> exact(M * N);
    Matrix out(y.data(), M, N), added(accumulated.data(), M, N);
    ASSERT_TRUE(reference::integerLinear(*x, *w, bias.data(), false, out));
    ASSERT_TRUE(reference::integerLinear(*x, *w, nullptr, true, added));
    ASSERT_TRUE(reference::integerLinear(*x, *w, bias.data(), {exact.data(), M, N}));
    for (int64_t m = 0; m < M; ++m)
      for (int64_t n = 0; n < N; ++n) {
        double sum = 0, magnitude = 0;
        for (int64_t k = 0; k < K; ++k) {
          sum += token(m, k) * weight(n, k);
          magnitude += std::fabs(token(m, k) * weight(n, k));
        }
        magnitude += std::fabs(bias[n]) + 0.25;
        ASSERT_NEAR(exact[m * N + n], sum + bias[n], 1e-13 * magnitude);
        // One conversion and one fma a group, then a product and two sums, 2^-24 each.
        double bound = (2.0 * x->groups + 4) * 0x1p-24 * magnitude;
        ASSERT_NEAR(y[m * N + n], sum + bias[n], bound);
        ASSERT_NEAR(accumulated[m * N + n], sum + 0.25, bound);
      }
  }
}

// What a kernel does with weights stored + offset, corrected by the sums of the codes.
TEST_P(IntegerLinear, OffsetWeightsAndSumsGiveTheSameDots) {
  auto [M, N, K, scheme] = GetParam();
  std::vector<float> xs = gaussian(M * K, 4), ws = gaussian(N * K, 5);
  auto x = quantizeTokens({xs.data(), M, K}, scheme.groupSize);
  auto w = quantize({ws.data(), N, K}, scheme, {});
  ASSERT_TRUE(x && w);
  auto dots = reference::integerDots(*x, *w);
  ASSERT_TRUE(dots);
  int offset = 1 << (scheme.bits - 1);
  for (int64_t m = 0; m < M; ++m)
    for (int64_t n = 0; n < N; ++n)
      for (int64_t g = 0; g < x->groups; ++g) {
        int64_t size = scheme.groupSize == 0 ? K : scheme.groupSize, raw = 0;
        for (int64_t k = g * size; k < std::min(K, (g + 1) * size); ++k)
          raw += (w->codes[n * K + k] + offset) * x->codes[m * x->paddedColumns + k];
        ASSERT_EQ((*dots)[(m * N + n) * x->groups + g], raw - offset * x->sums[m * x->groups + g]);
      }
}

// Zero points on either side: dots are products of the differences, and what kernels compute.
TEST(IntegerLinearZeroPoints, GiveTheLinearOfTheDequantizedOperands) {
  const int64_t M = 3, N = 5, K = 100;
  for (int bits : {2, 3, 4, 5, 6, 8})
    for (int64_t groupSize : {0, 48})
      for (bool symmetricInput : {true, false}) {
        Scheme scheme{bits, false, groupSize ? Granularity::Group : Granularity::Channel, groupSize,
                      false};
        CodeRange range = codeRange(scheme);
        int64_t groups = groupCount(K, groupSize);
        QuantizedMatrix w{scheme,
                          N,
                          K,
                          randomCodes(N * K, 1, range.min, range.max),
                          {N, groups, gaussian(N * groups, 2), {}}};
        for (int8_t z : randomCodes(N * groups, 3, range.min, range.max))
          w.params.zeroPoints.push_back(z);
        std::vector<float> xs = gaussian(M * K, 4);
        Scheme input{8, symmetricInput, Granularity::Tensor, 0, false};
        auto x =
            quantizeTokens({xs.data(), M, K}, input, 0.02f, symmetricInput ? 0 : -37, groupSize);
        ASSERT_TRUE(x);
        auto dots = reference::integerDots(*x, w);
        ASSERT_TRUE(dots);
        PanelLayout layout = *panelLayout(scheme, N, K);
        layout.withSums = true;
        PackedWeight packed = pack(layout, w);
        std::vector<int32_t> sums(packed[WeightTensor::Sums].size() / sizeof(int32_t));
        std::memcpy(sums.data(), packed[WeightTensor::Sums].data(), sums.size() * sizeof(int32_t));
        std::vector<float> xBack(M * K), y(M * N), wBack(N * K);
        std::vector<double> exact(M * N);
        dequantize(*x, Matrix(xBack.data(), M, K));
        dequantize(w, Matrix(wBack.data(), N, K));
        ASSERT_TRUE(reference::integerLinear(*x, w, nullptr, false, Matrix(y.data(), M, N)));
        ASSERT_TRUE(reference::integerLinear(*x, w, nullptr, {exact.data(), M, N}));
        int32_t offset = 1 << (bits - 1), zx = symmetricInput ? 0 : -37;
        for (int64_t m = 0; m < M; ++m)
          for (int64_t n = 0; n < N; ++n) {
            double sum = 0, magnitude = 0;
            for (int64_t k = 0; k < K; ++k) {
              double product = double(xBack[m * K + k]) * wBack[n * K + k];
              sum += product;
              magnitude += std::fabs(product);
            }
            EXPECT_NEAR(exact[m * N + n], sum, 3 * 0x1p-24 * magnitude);
            EXPECT_NEAR(y[m * N + n], sum, (2.0 * groups + 6) * 0x1p-24 * magnitude);
            for (int64_t g = 0; g < groups; ++g) {
              int64_t size = groupSize ? groupSize : K, acc = 0;
              for (int64_t k = g * size; k < std::min(K, (g + 1) * size); ++k)
                acc += x->codes[m * x->paddedColumns + k] * (w.codes[n * K + k] + offset);
              int32_t zw = w.params.zeroPoints[n * groups + g];
              EXPECT_EQ((*dots)[(m * N + n) * groups + g],
                        acc - (offset + zw) * x->sums[m * groups + g] -
                            zx * sums[g * kPanelRows + n]);
            }
          }
      }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, IntegerLinear,
    testing::Values(LinearShape{1, 1, 1, kInt8}, LinearShape{1, 33, 64, kInt8},
                    LinearShape{2, 5, 100, grouped(4, 48)}, LinearShape{3, 40, 172, grouped(4, 32)},
                    LinearShape{17, 9, 31, grouped(8, 128)},
                    LinearShape{4, 7, 576, {8, true, Granularity::Tensor, 0, false}},
                    LinearShape{2, 3, 65, grouped(2, 8)}));

TEST(IntegerLinear, ExtremeCodesStayExact) {
  const int64_t K = 66311; // the longest sum that weights stored + 128 allow
  QuantizedMatrix w{kInt8, 1, K, std::vector<int8_t>(K, -127), {1, 1, {1.0f}, {}}};
  QuantizedTokens x{1, K, paddedColumns(K), 1, {}, {1.0f}, {int32_t(127 * K)}};
  x.codes.assign(paddedColumns(K), 0);
  std::fill_n(x.codes.begin(), K, int8_t(127));
  auto dots = reference::integerDots(x, w);
  ASSERT_TRUE(dots);
  EXPECT_EQ((*dots)[0], -127 * 127 * K);
}

TEST(IntegerLinear, Refuses) {
  std::vector<float> data(66312, 1.0f), out(1);
  Matrix y(out.data(), 1, 1);
  auto x = quantizeTokens({data.data(), 1, 66312}, 0);
  auto w = quantize({data.data(), 1, 66312}, kInt8, {});
  auto tooLong = reference::integerLinear(*x, *w, nullptr, false, y);
  ASSERT_FALSE(tooLong);
  EXPECT_EQ(tooLong.error().code, ErrorCode::OutOfRange);
  // Zero points on both sides: differences up to 255, and 255 * 255 * 33,026 > 2^31.
  std::vector<float> row(33026, 1.0f);
  auto fits = [&](int64_t k) {
    auto tokens =
        quantizeTokens({row.data(), 1, k}, {8, false, Granularity::Tensor, 0, false}, 0.1f, 0, 0);
    QuantizedMatrix codes{{8, false, Granularity::Channel, 0, false},
                          1,
                          k,
                          std::vector<int8_t>(k),
                          {1, 1, {1.0f}, {0}}};
    return reference::integerLinear(*tokens, codes, nullptr, false, y).has_value();
  };
  EXPECT_TRUE(fits(33025));
  EXPECT_FALSE(fits(33026));
  // The same length in groups has short sums.
  auto groupedTokens = quantizeTokens({data.data(), 1, 66312}, 64);
  auto groupedWeights = quantize({data.data(), 1, 66312}, grouped(8, 64), {});
  EXPECT_TRUE(reference::integerLinear(*groupedTokens, *groupedWeights, nullptr, false, y));
  EXPECT_FALSE(reference::integerLinear(*x, *groupedWeights, nullptr, false, y));
  auto narrower = quantizeTokens({data.data(), 1, 100}, 64);
  EXPECT_FALSE(reference::integerLinear(*narrower, *groupedWeights, nullptr, false, y));
}

} // namespace
