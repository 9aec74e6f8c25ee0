//===- ErrorLanes.h - Sums of errors, as vectors form them ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Private to lib/Numerics. What ErrorSums::add does, for an array that comes in parts.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_NUMERICS_ERRORLANES_H
#define EASYQUANT_LIB_NUMERICS_ERRORLANES_H

#include "VectorClones.h"

#include "easyquant/Numerics/Metrics.h"

#include <cmath>
#include <limits>

namespace easyquant::numerics {

/// Independent lanes, since the compiler may not reorder a sum of floating-point numbers.
struct ErrorLanes {
  static constexpr int64_t kLanes = 8;
  double error[kLanes] = {}, square[kLanes] = {}, largest[kLanes] = {};

  /// The next `count` elements. All parts but the last have a multiple of kLanes.
  template <typename T>
  EASYQUANT_INLINE void add(const T *reference, const float *actual, int64_t count) {
    int64_t whole = count - count % kLanes;
    for (int64_t i = 0; i < whole; i += kLanes)
      for (int64_t lane = 0; lane < kLanes; ++lane)
        step(lane, reference[i + lane], actual[i + lane]);
    for (int64_t i = whole; i < count; ++i)
      step(i - whole, reference[i], actual[i]);
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

private:
  EASYQUANT_INLINE void step(int64_t lane, double expected, double actual) {
    double difference = std::fabs(expected - actual);
    error[lane] += difference * difference;
    square[lane] += expected * expected;
    largest[lane] = difference > largest[lane] ? difference : largest[lane];
  }
};

} // namespace easyquant::numerics

#endif // EASYQUANT_LIB_NUMERICS_ERRORLANES_H
