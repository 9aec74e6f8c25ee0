//===- Bounds.h - What can be promised statically ---------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_BOUNDS_H
#define EASYQUANT_NUMERICS_BOUNDS_H

#include "easyquant/Numerics/Scheme.h"

#include <cstdint>

namespace easyquant::numerics {

/// The greatest K for which every sum of at most K products a * b, in any order, fits int32:
/// 133,144 for [-127, 127] by [-127, 127], 131,071 for [-128, 127] by [-128, 127], 66,311 for
/// weights stored + 128 ([1, 255]) by [-127, 127]. INT64_MAX when all products are 0. Codes of a
/// range are at most 2^16 in magnitude.
int64_t maxAccumulationLength(CodeRange a, CodeRange b);

/// OutOfRange when `length` products (K, or the group size where every group has an accumulator of
/// its own) can overflow int32; the message says what to do.
Result<void> checkAccumulator(int64_t length, CodeRange a, CodeRange b);

/// The range of codes as kernels store them: offset binary, [1, 255] for symmetric int8.
constexpr CodeRange storedRange(const Scheme &scheme) {
  CodeRange range = codeRange(scheme);
  int32_t offset = int32_t(1) << (scheme.bits - 1);
  return {range.min + offset, range.max + offset};
}

/// The range of code - zero point, whatever the zero point is: [-255, 255] for asymmetric int8.
constexpr CodeRange centredRange(const Scheme &scheme) {
  CodeRange range = codeRange(scheme);
  int32_t width = range.max - range.min;
  return scheme.symmetric ? range : CodeRange{-width, width};
}

/// The greatest K for which an int32 accumulator holds every sum of K products of weights and
/// inputs: of the codes as they are multiplied (weights as `stored`: storedRange), and of the codes
/// less their zero points, which the corrections leave.
int64_t maxDotLength(const Scheme &weight, const Scheme &input, bool stored);

/// Greatest |x - s * q| of a value inside the range of a scale, in exact arithmetic: s / 2.
constexpr double roundingErrorBound(double scale) { return scale / 2; }

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_BOUNDS_H
