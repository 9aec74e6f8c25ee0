//===- Metrics.cpp - How far apart two tensors are ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Metrics.h"

#include "ErrorLanes.h"

namespace easyquant::numerics {
namespace {

double greater(double a, double b) { return std::isnan(a) || a > b ? a : b; }

template <typename T>
EASYQUANT_INLINE void accumulate(ErrorSums &sums, const T *reference, const float *actual,
                                 int64_t count) {
  ErrorLanes lanes{};
  lanes.add(reference, actual, count);
  sums.add(lanes.sums());
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
