//===- GptqTest.cpp -------------------------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The oracle is the Optimal Brain Quantizer that GPTQ speeds up, in double precision: one column at
// a time, its error corrected through the explicit inverse of H, from which the column is then
// eliminated. It knows neither Cholesky factors nor blocks.
//
// With a Hessian of rows it is the recursion that follows from H = V^T D V on both sides, element
// by element.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Gptq.h"

#include "RandomData.h"
#include "SchemeKinds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

using Doubles = std::vector<double>;

/// (2/n) X^T X of n inputs whose columns hang together and differ in size, as activations do.
std::vector<float> hessianOf(int64_t k, int64_t inputs, unsigned seed) {
  std::vector<float> factors = gaussian(inputs * 8, seed), noise = gaussian(inputs * k, seed + 1);
  std::vector<float> loadings = gaussian(8 * k, seed + 2), sizes = gaussian(k, seed + 3);
  std::vector<float> x(inputs * k), h(k * k);
  for (int64_t i = 0; i < inputs; ++i)
    for (int64_t j = 0; j < k; ++j) {
      float sum = noise[i * k + j];
      for (int64_t f = 0; f < 8; ++f)
        sum += factors[i * 8 + f] * loadings[f * k + j];
      x[i * k + j] = sum * std::exp(sizes[j]);
    }
  for (int64_t a = 0; a < k; ++a)
    for (int64_t b = 0; b < k; ++b) {
      double sum = 0;
      for (int64_t i = 0; i < inputs; ++i)
        sum += double(x[i * k + a]) * x[i * k + b];
      h[a * k + b] = static_cast<float>(2 * sum / static_cast<double>(inputs));
    }
  return h;
}

Doubles damped(const std::vector<float> &h, int64_t k, double damping) {
  Doubles d(h.begin(), h.end());
  double mean = 0;
  for (int64_t i = 0; i < k; ++i)
    mean += d[i * k + i] / static_cast<double>(k);
  for (int64_t i = 0; i < k; ++i)
    d[i * k + i] += damping * mean;
  return d;
}

/// Gauss and Jordan.
Doubles inverse(Doubles a, int64_t n) {
  Doubles b(n * n);
  for (int64_t i = 0; i < n; ++i)
    b[i * n + i] = 1;
  for (int64_t p = 0; p < n; ++p)
    for (int64_t i = 0; i < n; ++i) {
      if (i == p)
        continue;
      double f = a[i * n + p] / a[p * n + p];
      for (int64_t j = 0; j < n; ++j) {
        a[i * n + j] -= f * a[p * n + j];
        b[i * n + j] -= f * b[p * n + j];
      }
    }
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j)
      b[i * n + j] /= a[i * n + i];
  return b;
}

/// tr(A H B^T)
double traceOf(const Doubles &a, const Doubles &h, const Doubles &b, int64_t rows, int64_t k) {
  double sum = 0;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = 0; j < k; ++j)
        sum += a[r * k + i] * h[i * k + j] * b[r * k + j];
  return sum;
}

double lossOf(const Doubles &error, const Doubles &h, int64_t rows, int64_t k) {
  return traceOf(error, h, error, rows, k);
}

Doubles errorOf(const std::vector<float> &w, const QuantizedMatrix &q) {
  std::vector<float> back(w.size());
  dequantize(q, Matrix(back.data(), q.rows, q.columns));
  Doubles error(w.size());
  for (size_t i = 0; i < w.size(); ++i)
    error[i] = double(w[i]) - back[i];
  return error;
}

struct SolverCase {
  int64_t rows, columns, inputs;
  Scheme scheme;
  bool actOrder = false, staticGroups = false;
};

/// W - What.
Doubles oracle(const std::vector<float> &w, const Doubles &h, const SolverCase &c) {
  const int64_t k = c.columns, size = c.scheme.groupSize == 0 ? k : c.scheme.groupSize;
  const ScaleRule rule{extremesRule(c.scheme)};
  Scheme perRow = c.scheme;
  perRow.granularity = Granularity::Channel;
  perRow.groupSize = 0;
  const CodeRange range = codeRange(c.scheme);
  std::vector<int64_t> order(k);
  std::iota(order.begin(), order.end(), 0);
  if (c.actOrder)
    std::sort(order.begin(), order.end(),
              [&](int64_t a, int64_t b) { return h[a * k + a] > h[b * k + b]; });
  const Doubles fullInverse = inverse(h, k);
  const auto tensor = chooseQParams(ConstMatrix(w.data(), c.rows, k), c.scheme, rule);
  Doubles error(w.size());
  for (int64_t r = 0; r < c.rows; ++r) {
    Doubles row(w.begin() + r * k, w.begin() + (r + 1) * k), h1 = fullInverse;
    std::vector<float> scales(k);
    std::vector<int32_t> zeros(k);
    auto choose = [&](int64_t first) {
      std::vector<float> slice(row.begin() + first, row.begin() + std::min(first + size, k));
      auto p = chooseQParams(ConstMatrix(slice.data(), 1, slice.size()), perRow, rule);
      for (size_t j = 0; j < slice.size(); ++j) {
        bool whole = c.scheme.granularity == Granularity::Tensor;
        scales[first + j] = whole ? tensor->scales[0] : p->scales[0];
        zeros[first + j] = p->zeroPoints.empty() ? 0
                           : whole               ? tensor->zeroPoints[0]
                                                 : p->zeroPoints[0];
      }
    };
    bool upFront = c.actOrder || c.staticGroups;
    for (int64_t g = 0; upFront && g < k; g += size)
      choose(g);
    for (int64_t j : order) {
      if (!upFront && j % size == 0)
        choose(j);
      double code = std::nearbyint(row[j] / scales[j]) + zeros[j];
      code = std::clamp<double>(code, range.min, range.max);
      double what = scales[j] * (code - zeros[j]);
      error[r * k + j] = w[r * k + j] - what;
      double step = (row[j] - what) / h1[j * k + j];
      for (int64_t t = 0; t < k; ++t)
        row[t] -= step * h1[j * k + t]; // 0 for columns already eliminated
      Doubles column(k);
      for (int64_t t = 0; t < k; ++t)
        column[t] = h1[t * k + j];
      for (int64_t a = 0; a < k; ++a)
        for (int64_t b = 0; b < k; ++b)
          h1[a * k + b] -= column[a] * column[b] / column[j];
    }
  }
  return error;
}

class GptqOracle : public testing::TestWithParam<SolverCase> {};

TEST_P(GptqOracle, LosesNoMoreThanThePlainSolverAndLessThanNearest) {
  const SolverCase &c = GetParam();
  std::vector<float> w = gaussian(c.rows * c.columns, c.columns * 7 + c.rows);
  std::vector<float> h = hessianOf(c.columns, c.inputs, c.columns);
  GptqOptions options{.actOrder = c.actOrder, .staticGroups = c.staticGroups, .threads = 2};
  ScaleRule rule{extremesRule(c.scheme)};
  auto factor = factorHessian(ConstMatrix(h.data(), c.columns, c.columns), options);
  ASSERT_TRUE(factor) << factor.error().message;
  EXPECT_EQ(factor->damping, 0.01);
  ConstMatrix view(w.data(), c.rows, c.columns);
  auto result = gptq(view, *factor, c.scheme, rule, options);
  ASSERT_TRUE(result) << result.error().message;
  auto nearest = quantize(view, c.scheme, rule);
  ASSERT_TRUE(nearest);

  Doubles hd = damped(h, c.columns, 0.01);
  double loss = lossOf(errorOf(w, result->weight), hd, c.rows, c.columns);
  double expected = lossOf(oracle(w, hd, c), hd, c.rows, c.columns);
  double rounded = lossOf(errorOf(w, *nearest), hd, c.rows, c.columns);
  EXPECT_NEAR(loss, expected, 0.005 * expected + 1e-12);
  EXPECT_NEAR(result->loss, loss, 1e-3 * loss + 1e-12);
  if (c.columns > 1)
    EXPECT_LT(loss, rounded);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, GptqOracle,
    testing::Values(SolverCase{1, 1, 5, {4, true, kChannel, 0}},
                    SolverCase{2, 31, 100, {4, true, kChannel, 0}},
                    SolverCase{3, 64, 200, {8, true, kChannel, 0}},
                    SolverCase{17, 100, 400, {4, true, kGroup, 32}},
                    SolverCase{17, 130, 400, {4, false, kGroup, 48}},
                    SolverCase{40, 130, 60, {3, false, kGroup, 128}},
                    SolverCase{33, 96, 300, {2, false, kGroup, 8}},
                    SolverCase{6, 70, 200, {4, true, kTensor, 0}, false, true},
                    SolverCase{17, 130, 400, {4, false, kGroup, 32}, true},
                    SolverCase{17, 100, 50, {3, true, kGroup, 48}, true},
                    SolverCase{17, 130, 400, {4, false, kGroup, 32}, false, true},
                    SolverCase{3, 64, 200, {4, true, kChannel, 0, false, true}, true}));

TEST(Gptq, GivesTheSameBytesForAnyNumberOfThreads) {
  const int64_t rows = 150, k = 300;
  std::vector<float> w = gaussian(rows * k, 1), h = hessianOf(k, 500, 2);
  Scheme scheme{4, false, kGroup, 128};
  for (bool actOrder : {false, true}) {
    std::vector<GptqResult> results;
    for (unsigned threads : {1u, 2u, 5u}) {
      GptqOptions options{.actOrder = actOrder, .threads = threads};
      auto factor = factorHessian(ConstMatrix(h.data(), k, k), options);
      ASSERT_TRUE(factor);
      auto result = gptq(ConstMatrix(w.data(), rows, k), *factor, scheme,
                         {ScaleRuleKind::ZeroPoint}, options);
      ASSERT_TRUE(result);
      results.push_back(std::move(*result));
    }
    for (const GptqResult &other : results) {
      EXPECT_EQ(other.weight.codes, results[0].weight.codes);
      EXPECT_EQ(other.weight.params.scales, results[0].weight.params.scales);
      EXPECT_EQ(other.weight.params.zeroPoints, results[0].weight.params.zeroPoints);
      EXPECT_EQ(other.loss, results[0].loss);
    }
  }
}

/// V of H = V^T D V, lower triangular with ones on the diagonal, by elimination from the end.
Doubles unitFactor(Doubles h, int64_t n) {
  for (int64_t p = n - 1; p >= 0; --p) {
    for (int64_t i = 0; i < p; ++i)
      for (int64_t j = 0; j < p; ++j)
        h[i * n + j] -= h[p * n + i] * h[p * n + j] / h[p * n + p];
    for (int64_t j = 0; j < p; ++j)
      h[p * n + j] /= h[p * n + p];
    h[p * n + p] = 1;
  }
  return h;
}

/// tr(Hout E H E^T)
double lossOf(const Doubles &error, const Doubles &h, const Doubles &outputs, int64_t rows,
              int64_t k) {
  Doubles product(rows * k);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < k; ++j)
        product[i * k + j] += outputs[i * rows + r] * error[r * k + j];
  return traceOf(product, h, error, rows, k);
}

/// W - What, each element being rounded with all errors above and to the left of it.
Doubles rowsOracle(const std::vector<float> &w, const Doubles &h, const Doubles &outputs,
                   int64_t rows, int64_t k, const QParams &params, const Scheme &scheme) {
  const Doubles across = unitFactor(h, k), down = unitFactor(outputs, rows);
  const CodeRange range = codeRange(scheme);
  Doubles error(w.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < k; ++j) {
      double target = w[i * k + j];
      for (int64_t r = 0; r <= i; ++r)
        for (int64_t l = 0; l <= j; ++l)
          if (r != i || l != j)
            target += down[i * rows + r] * error[r * k + l] * across[j * k + l];
      const int64_t at = i * params.groups + j / scheme.groupSize;
      const double scale = params.scales[at], zero = params.zeroPoints[at];
      const double code =
          std::clamp<double>(std::nearbyint(target / scale) + zero, range.min, range.max);
      error[i * k + j] = w[i * k + j] - scale * (code - zero);
    }
  return error;
}

TEST(GptqRows, RoundsAsTheRecursionOverRowsAndColumnsDoes) {
  const Scheme scheme{4, false, kGroup, 32};
  const ScaleRule rule{extremesRule(scheme)};
  for (auto [rows, k] : {std::pair<int64_t, int64_t>{1, 32}, {70, 64}, {33, 130}, {150, 96}}) {
    std::vector<float> w = gaussian(rows * k, k), h = hessianOf(k, 400, k),
                       outputs = hessianOf(rows, 300, rows + 7);
    GptqOptions options{.staticGroups = true, .threads = 2};
    auto factor = factorHessian(ConstMatrix(h.data(), k, k), options);
    auto rowFactor = factorRows(ConstMatrix(outputs.data(), rows, rows), 0.1, 2);
    ASSERT_TRUE(factor);
    ASSERT_TRUE(rowFactor) << rowFactor.error().message;
    options.rowFactor = &*rowFactor;
    auto result = gptq(ConstMatrix(w.data(), rows, k), *factor, scheme, rule, options);
    ASSERT_TRUE(result) << result.error().message;
    const Doubles hd = damped(h, k, 0.01), od = damped(outputs, rows, 0.1);
    const Doubles error = errorOf(w, result->weight),
                  expected = rowsOracle(w, hd, od, rows, k, result->weight.params, scheme);
    int64_t same = 0;
    for (size_t i = 0; i < error.size(); ++i)
      same += std::abs(error[i] - expected[i]) < 1e-5;
    // One code that a float rounds the other way changes some of those behind it.
    EXPECT_GE(same, 0.98 * static_cast<double>(error.size())) << rows << " x " << k;
    const double loss = lossOf(error, hd, od, rows, k);
    EXPECT_NEAR(loss, lossOf(expected, hd, od, rows, k), 0.005 * loss);
    EXPECT_NEAR(result->loss, loss, 1e-3 * loss);
    auto nearest = quantize(ConstMatrix(w.data(), rows, k), scheme, rule);
    ASSERT_TRUE(nearest);
    EXPECT_LT(loss, lossOf(errorOf(w, *nearest), hd, od, rows, k));
    options.rowFactor = nullptr;
    auto byColumns = gptq(ConstMatrix(w.data(), rows, k), *factor, scheme, rule, options);
    ASSERT_TRUE(byColumns);
    if (rows > 1)
      EXPECT_LT(loss, lossOf(errorOf(w, byColumns->weight), hd, od, rows, k));
  }
}

TEST(GptqRows, ThatHaveNothingToDoWithEachOtherHaveTheBytesOfGptq) {
  const int64_t rows = 150, k = 300;
  std::vector<float> w = gaussian(rows * k, 1), h = hessianOf(k, 500, 2), outputs(rows * rows);
  for (int64_t i = 0; i < rows; ++i)
    outputs[i * rows + i] = static_cast<float>(1 + i % 5);
  auto rowFactor = factorRows(ConstMatrix(outputs.data(), rows, rows), 1, 1);
  ASSERT_TRUE(rowFactor);
  for (bool actOrder : {false, true}) {
    GptqOptions options{.actOrder = actOrder};
    auto factor = factorHessian(ConstMatrix(h.data(), k, k), options);
    ASSERT_TRUE(factor);
    auto round = [&] {
      return gptq(ConstMatrix(w.data(), rows, k), *factor, {4, false, kGroup, 128},
                  {ScaleRuleKind::ZeroPoint}, options);
    };
    auto expected = round();
    options.rowFactor = &*rowFactor;
    auto found = round();
    ASSERT_TRUE(expected && found);
    EXPECT_EQ(found->weight.codes, expected->weight.codes);
    EXPECT_EQ(found->weight.params.scales, expected->weight.params.scales);
    EXPECT_EQ(found->weight.params.zeroPoints, expected->weight.params.zeroPoints);
  }
}

TEST(GptqRows, OfAnotherWeightOrOfNoHessianAreRefused) {
  std::vector<float> outputs = {1, 0, 0, NAN}, w(3 * 4), h(16);
  auto bad = factorRows(ConstMatrix(outputs.data(), 2, 2), 1, 1);
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.error().message.find("(1, 1)"), std::string::npos) << bad.error().message;
  outputs[3] = 1;
  auto rowFactor = factorRows(ConstMatrix(outputs.data(), 2, 2), 1, 1);
  GptqOptions options{.rowFactor = &*rowFactor};
  auto factor = factorHessian(ConstMatrix(h.data(), 4, 4), options);
  ASSERT_TRUE(factor);
  auto result = gptq(ConstMatrix(w.data(), 3, 4), *factor, {4, true, kChannel, 0},
                     {ScaleRuleKind::AbsMax}, options);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("feedback over 2 rows"), std::string::npos);
}

} // namespace
