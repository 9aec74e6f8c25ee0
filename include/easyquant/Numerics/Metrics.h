//===- Metrics.h - How far apart two tensors are ----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_METRICS_H
#define EASYQUANT_NUMERICS_METRICS_H

#include <cstdint>

namespace easyquant::numerics {

/// Sums from which the error of a tensor follows; those of its parts add up. Double precision and a
/// fixed order of summation: adding parts in their order gives the same bits with any number of
/// threads.
struct ErrorSums {
  double squaredError = 0;     ///< sum (reference - actual)^2
  double squaredReference = 0; ///< sum reference^2
  /// max |reference - actual|; NaN once anything was NaN, as the sums are.
  double maxAbsError = 0;

  void add(const float *reference, const float *actual, int64_t count);
  void add(const double *reference, const float *actual, int64_t count);
  void add(const ErrorSums &part);

  /// ||reference - actual|| / ||reference||: 0 when both are zero, infinite when only the reference
  /// is.
  double relativeRms() const;
};

/// The relative RMS difference of two arrays of `count` elements.
double relativeRms(const float *reference, const float *actual, int64_t count);
double relativeRms(const double *reference, const float *actual, int64_t count);
double maxAbsError(const float *reference, const float *actual, int64_t count);
double maxAbsError(const double *reference, const float *actual, int64_t count);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_METRICS_H
