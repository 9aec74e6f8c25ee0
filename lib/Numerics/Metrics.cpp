//===- Metrics.cpp - How far apart two tensors are ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Metrics.h"

#include "easyquant/Numerics/VectorClones.h"

#include <cmath>
#include <limits>

namespace easyquant::numerics {
namespace {

double greater(double a, double b) { return std::isnan(a) || a > b ? a : b; }

/// Independent lanes, since the compiler may not reorder a sum of floating-point numbers.
struct ErrorLanes {
  static constexpr int64_t kLanes = 8;
  double error[kLanes] = {}, square[kLanes] = {}, largest[kLanes] = {};

  EASYQUANT_INLINE void step(int64_t lane, double expected, double actual) {
    double difference = std::fabs(expected - actual);
    error[lane] += difference * difference;
    square[lane] += expected * expected;
    largest[lane] = difference > largest[lane] ? difference : largest[lane];
  }

  EASYQUANT_INLINE ErrorSums sums() const {
    double errors = 0, squares = 0, most = 0;
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      errors += error[lane];
      squares += square[lane];
      most = largest[lane] > most ? largest[lane] : most;
    }
    // The comparisons pass over NaNs; the sums do not.
    return {errors, squares, std::isnan(errors) ? std::numeric_limits<double>::quiet_NaN() : most};
  }
};

template <typename T>
EASYQUANT_INLINE void accumulate(ErrorSums &sums, const T *reference, const float *actual,
                                 int64_t count) {
  constexpr int64_t lanes = ErrorLanes::kLanes;
  ErrorLanes errors{};
  const int64_t whole = count - count % lanes;
  for (int64_t i = 0; i < whole; i += lanes)
    for (int64_t lane = 0; lane < lanes; ++lane)
      errors.step(lane, reference[i + lane], actual[i + lane]);
  for (int64_t i = whole; i < count; ++i)
    errors.step(i - whole, reference[i], actual[i]);
  sums.add(errors.sums());
}

EASYQUANT_VECTOR_CLONES
void accumulateFloats(ErrorSums &sums, const float *reference, const float *actual, int64_t count) {
  accumulate(sums, reference, actual, count);
}

template <typename T> ErrorSums sumsOf(const T *reference, const float *actual, int64_t count) {
  ErrorSums sums;
  sums.add(reference, actual, count);
  return sums;
}

} // namespace

void ErrorSums::add(const float *reference, const float *actual, int64_t count) {
  accumulateFloats(*this, reference, actual, count);
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
