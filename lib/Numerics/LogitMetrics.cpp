//===- LogitMetrics.cpp - What logits say of the next token ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// With p and q the logits less their maxima, KL = sum e^p (p - q) / sum e^p - log sum e^p + log sum
// e^q. Lanes are those of the vectorizer, so that sums have one order on every machine.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/LogitMetrics.h"

#include "easyquant/Numerics/Exponential.h"

#include "easyquant/Support/Parallel.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

namespace easyquant::numerics {
namespace {

constexpr int64_t kLanes = 16;

EASYQUANT_INLINE float greatestOf(const float *x, int64_t count) {
  float greatest = x[0];
  for (int64_t i = 1; i < count; ++i)
    greatest = x[i] > greatest ? x[i] : greatest;
  return greatest;
}

EASYQUANT_INLINE double sumOf(const double *lanes) {
  double sum = 0;
  for (int64_t lane = 0; lane < kLanes; ++lane)
    sum += lanes[lane];
  return sum;
}

struct RowSums {
  double reference = 0, logits = 0; ///< of the exponentials
  double difference = 0;            ///< sum e^p (p - q)
};

EASYQUANT_VECTOR_CLONES
void sumRow(const float *p, const float *q, int64_t count, RowSums &sums) {
  const float topP = greatestOf(p, count), topQ = greatestOf(q, count);
  double reference[kLanes] = {}, logits[kLanes] = {}, difference[kLanes] = {};
  auto step = [&](int64_t lane, int64_t i) __attribute__((always_inline)) {
    const float a = p[i] - topP, b = q[i] - topQ, weight = exponential(a);
    reference[lane] += weight;
    logits[lane] += exponential(b);
    difference[lane] += static_cast<double>(weight) * (a - b);
  };
  const int64_t whole = count - count % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane)
      step(lane, i + lane);
  for (int64_t i = whole; i < count; ++i)
    step(i - whole, i);
  sums = {sumOf(reference), sumOf(logits), sumOf(difference)};
}

EASYQUANT_VECTOR_CLONES
void sumExponentials(const float *x, int64_t count, float top, double &sum) {
  double lanes[kLanes] = {};
  const int64_t whole = count - count % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] += exponential(x[i + lane] - top);
  for (int64_t i = whole; i < count; ++i)
    lanes[i - whole] += exponential(x[i] - top);
  sum = sumOf(lanes);
}

/// Makes exponentials of x, less the greatest.
EASYQUANT_VECTOR_CLONES
void exponentiate(float *x, int64_t count) {
  const float top = greatestOf(x, count);
  for (int64_t i = 0; i < count; ++i)
    x[i] = exponential(x[i] - top);
}

EASYQUANT_VECTOR_CLONES
void scaleRow(float *x, int64_t count, float factor) {
  for (int64_t i = 0; i < count; ++i)
    x[i] *= factor;
}

/// Rows are summed in their order, on whichever thread they were computed.
template <typename RowValue>
double sumOverRows(int64_t rows, unsigned threads, const RowValue &valueOf) {
  std::vector<double> values(rows);
  parallelFor(rows, threads, [&](int64_t row) { values[row] = valueOf(row); });
  double sum = 0;
  for (double value : values)
    sum += value;
  return sum;
}

} // namespace

Result<double> klDivergence(ConstMatrix reference, ConstMatrix logits, unsigned threads) {
  if (reference.rows != logits.rows || reference.columns != logits.columns || logits.columns < 1)
    return makeError(ErrorCode::InvalidArgument,
                     "logits are {}x{}, those to compare with {}x{}: expected the same",
                     logits.rows, logits.columns, reference.rows, reference.columns);
  return sumOverRows(logits.rows, threads, [&](int64_t row) {
    RowSums sums;
    sumRow(reference.row(row), logits.row(row), logits.columns, sums);
    // Gibbs: not negative, but for rounding.
    return std::max(0.0, sums.difference / sums.reference - std::log(sums.reference) +
                             std::log(sums.logits));
  });
}

Result<double> crossEntropy(ConstMatrix logits, std::span<const int32_t> targets,
                            unsigned threads) {
  if (std::ssize(targets) != logits.rows || logits.columns < 1)
    return makeError(ErrorCode::InvalidArgument, "{} targets for {} rows of {} logits",
                     targets.size(), logits.rows, logits.columns);
  for (int32_t target : targets)
    if (target < 0 || target >= logits.columns)
      return makeError(ErrorCode::InvalidArgument, "target {}, expected 0 to {}", target,
                       logits.columns - 1);
  return sumOverRows(logits.rows, threads, [&](int64_t row) {
    const float *x = logits.row(row);
    const float top = *std::max_element(x, x + logits.columns);
    double sum = 0;
    sumExponentials(x, logits.columns, top, sum);
    return std::log(sum) + top - x[targets[row]];
  });
}

void sampledLossGradient(Matrix logits, uint64_t seed, int64_t first, unsigned threads) {
  const int64_t columns = logits.columns;
  parallelFor(logits.rows, threads, [&](int64_t row) {
    float *x = logits.row(row);
    exponentiate(x, columns);
    double sum = 0;
    for (int64_t j = 0; j < columns; ++j)
      sum += x[j];
    scaleRow(x, columns, static_cast<float>(1 / sum));
    std::mt19937_64 random(seed + static_cast<uint64_t>(first + row));
    std::vector<uint64_t> signs((columns + 63) / 64);
    std::generate(signs.begin(), signs.end(), std::ref(random));
    auto signedRoot = [&](int64_t j) {
      const float root = std::sqrt(x[j]);
      return signs[j / 64] >> (j % 64) & 1 ? root : -root;
    };
    double share = 0;
    for (int64_t j = 0; j < columns; ++j)
      share += signedRoot(j);
    for (int64_t j = 0; j < columns; ++j)
      x[j] = signedRoot(j) - x[j] * static_cast<float>(share);
  });
}

} // namespace easyquant::numerics
