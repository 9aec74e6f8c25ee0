//===- Metrics.cpp - How far apart two tensors are ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Metrics.h"

#include <cmath>
#include <limits>

namespace easyquant::numerics {
namespace {

double greater(double a, double b) { return std::isnan(a) || a > b ? a : b; }

/// Independent lanes, since the compiler may not reorder a sum of floating-point numbers.
constexpr int64_t kLanes = 8;

template <typename T>
void accumulate(ErrorSums &sums, const T *reference, const float *actual, int64_t count) {
  double error[kLanes] = {}, square[kLanes] = {}, largest[kLanes] = {};
  auto step = [&](int64_t lane, int64_t i) {
    double expected = reference[i];
    double difference = std::fabs(expected - static_cast<double>(actual[i]));
    error[lane] += difference * difference;
    square[lane] += expected * expected;
    largest[lane] = difference > largest[lane] ? difference : largest[lane];
  };
  int64_t whole = count - count % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane)
      step(lane, i + lane);
  for (int64_t i = whole; i < count; ++i)
    step(i - whole, i);

  ErrorSums part;
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    part.squaredError += error[lane];
    part.squaredReference += square[lane];
    part.maxAbsError = greater(part.maxAbsError, largest[lane]);
  }
  // The comparison above passes over NaNs; the sum does not.
  if (std::isnan(part.squaredError))
    part.maxAbsError = std::numeric_limits<double>::quiet_NaN();
  sums.add(part);
}

template <typename T> ErrorSums sumsOf(const T *reference, const float *actual, int64_t count) {
  ErrorSums sums;
  sums.add(reference, actual, count);
  return sums;
}

} // namespace

void ErrorSums::add(const float *reference, const float *actual, int64_t count) {
  accumulate(*this, reference, actual, count);
}
void ErrorSums::add(const double *reference, const float *actual, int64_t count) {
  accumulate(*this, reference, actual, count);
}
void ErrorSums::add(const ErrorSums &part) {
  squaredError += part.squaredError;
  squaredReference += part.squaredReference;
  maxAbsError = greater(part.maxAbsError, maxAbsError);
}

double ErrorSums::relativeRms() const {
  if (squaredError == 0)
    return 0;
  return std::sqrt(squaredError / squaredReference);
}

double relativeRms(const float *reference, const float *actual, int64_t count) {
  return sumsOf(reference, actual, count).relativeRms();
}
double relativeRms(const double *reference, const float *actual, int64_t count) {
  return sumsOf(reference, actual, count).relativeRms();
}
double maxAbsError(const float *reference, const float *actual, int64_t count) {
  return sumsOf(reference, actual, count).maxAbsError;
}
double maxAbsError(const double *reference, const float *actual, int64_t count) {
  return sumsOf(reference, actual, count).maxAbsError;
}

} // namespace easyquant::numerics
