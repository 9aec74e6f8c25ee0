//===- RowQuantize.h - The inner loops of quantization ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Private to lib/Numerics. Branch-free loops over contiguous floats, written so that the vectorizer
// takes them even on baseline x86-64 (SSE2 has no rounding instruction), and inlined, so that it
// takes them as its caller is compiled (VectorClones.h).
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_NUMERICS_ROWQUANTIZE_H
#define EASYQUANT_LIB_NUMERICS_ROWQUANTIZE_H

#include "easyquant/Numerics/VectorClones.h"

#include "easyquant/Numerics/Matrix.h"
#include "easyquant/Numerics/Scheme.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace easyquant::numerics {

inline Result<void> checkMatrix(ConstMatrix x) {
  if (x.rows < 0 || x.columns < 0 || (x.rows > 1 && x.stride < x.columns))
    return makeError(ErrorCode::InvalidArgument,
                     "matrix of {} x {} with row stride {}: sizes must not be negative and rows "
                     "must not overlap",
                     x.rows, x.columns, x.stride);
  return {};
}

/// The bits of the largest magnitude, compared as integers: for finite numbers the order is that of
/// the magnitudes, and any infinity or NaN comes out at or above kInfinityBits.
EASYQUANT_INLINE int32_t absMaxBits(const float *x, int64_t count) {
  int32_t largest = 0;
  for (int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<int32_t>(x[i]) & 0x7fffffff);
  return largest;
}
inline constexpr int32_t kInfinityBits = 0x7f800000;

/// The error for a row in which absMaxBits found something that is not finite.
inline Unexpected notFiniteError(
    const float *x, int64_t count, int64_t row,
    const char *remedy = "only finite values can be quantized; repair the checkpoint or leave this "
                         "tensor out (--ignore)") {
  int64_t column = std::find_if(x, x + count, [](float v) { return !std::isfinite(v); }) - x;
  return makeError(ErrorCode::InvalidArgument, "row {}, column {} is {}: {}", row, column,
                   x[column], remedy);
}

/// Least and greatest of at least one finite value. Lanes, since the order of a plain loop may not
/// be changed by the vectorizer.
struct Extremes {
  float min, max;
};
EASYQUANT_INLINE Extremes extremesOf(const float *x, int64_t count) {
  constexpr int64_t lanes = 8;
  float low[lanes], high[lanes];
  std::fill_n(low, lanes, x[0]);
  std::fill_n(high, lanes, x[0]);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (int64_t l = 0; l < lanes; ++l) {
      low[l] = x[i + l] < low[l] ? x[i + l] : low[l];
      high[l] = x[i + l] > high[l] ? x[i + l] : high[l];
    }
  for (; i < count; ++i) {
    low[0] = std::min(low[0], x[i]);
    high[0] = std::max(high[0], x[i]);
  }
  return {*std::min_element(low, low + lanes), *std::max_element(high, high + lanes)};
}

/// rne(x) for lo <= x <= hi with magnitudes below 2^22, clamped to [lo, hi] first: rounding is
/// monotone and leaves integers alone, so clamping before it is the same. At 1.5 * 2^23 the last
/// bit of a float weighs 1, so the addition itself rounds to nearest even.
EASYQUANT_INLINE int32_t roundClamped(float x, float lo, float hi) {
  constexpr float magic = 0x1.8p23f;
  x = x < lo ? lo : x;
  x = x > hi ? hi : x;
  return std::bit_cast<int32_t>(x + magic) - std::bit_cast<int32_t>(magic);
}

/// The columns of a row that share a scale.
struct ColumnRange {
  int64_t begin, count;
};
inline ColumnRange groupColumns(int64_t group, int64_t groupSize, int64_t columns) {
  if (groupSize == 0)
    return {0, columns};
  int64_t begin = group * groupSize;
  return {begin, std::min(groupSize, columns - begin)};
}

} // namespace easyquant::numerics

#endif // EASYQUANT_LIB_NUMERICS_ROWQUANTIZE_H
