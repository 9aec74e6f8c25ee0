//===- Bounds.cpp - What can be promised statically -----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Bounds.h"

#include <algorithm>
#include <limits>

namespace easyquant::numerics {

int64_t maxAccumulationLength(CodeRange a, CodeRange b) {
  int64_t corners[] = {int64_t(a.min) * b.min, int64_t(a.min) * b.max, int64_t(a.max) * b.min,
                       int64_t(a.max) * b.max};
  // Partial sums may be all of one sign, so each end limits K on its own.
  int64_t greatest = std::max<int64_t>(0, *std::max_element(corners, corners + 4));
  int64_t least = std::min<int64_t>(0, *std::min_element(corners, corners + 4));
  int64_t length = std::numeric_limits<int64_t>::max();
  if (greatest > 0)
    length = std::min(length, std::numeric_limits<int32_t>::max() / greatest);
  if (least < 0)
    length = std::min(length, int64_t(std::numeric_limits<int32_t>::min()) / least);
  return length;
}

int64_t maxDotLength(const Scheme &weight, const Scheme &input, bool stored) {
  int64_t multiplied =
      maxAccumulationLength(stored ? storedRange(weight) : codeRange(weight), codeRange(input));
  return std::min(multiplied, maxAccumulationLength(centredRange(weight), centredRange(input)));
}

Result<void> checkAccumulator(int64_t length, CodeRange a, CodeRange b) {
  int64_t limit = maxAccumulationLength(a, b);
  if (length <= limit)
    return {};
  return makeError(ErrorCode::OutOfRange,
                   "a sum of {} products of codes in [{}, {}] and [{}, {}] can overflow its int32 "
                   "accumulator: at most {} fit; use groups (--group-size) or leave this site "
                   "float (--ignore)",
                   length, a.min, a.max, b.min, b.max, limit);
}

} // namespace easyquant::numerics
