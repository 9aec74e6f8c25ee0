//===- MovedBytes.cpp - Memory traffic of a quantized linear --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/MovedBytes.h"

#include "easyquant/Numerics/Packing.h"

namespace easyquant::numerics {

/// Bytes of `count` fields of `bits` bits behind each other.
static int64_t packedBytes(int64_t count, int bits) { return (count * bits + 7) / 8; }

MovedBytes movedBytes(int64_t outputs, int64_t inputs, const Scheme &weight, bool int8Inputs,
                      int64_t tokens) {
  constexpr int64_t kFloat = sizeof(float);
  const int64_t groups = groupCount(inputs, weight.groupSize);
  const int64_t parameters = scaleRows(weight, outputs) * groups;
  const int64_t codes = packedBytes(outputs * inputs, weight.bits);
  const int64_t params = scaleRows(weight, outputs) * rowScaleBits(weight.scales, groups) / 8 +
                         (weight.outer ? kFloat : 0) +
                         (weight.minima ? scaleBytes(weight.scales) * parameters : 0) +
                         (weight.hasZeroPoints() ? packedBytes(parameters, weight.bits) : 0);
  const int64_t written = kFloat * outputs * tokens;
  const int64_t floats = kFloat * inputs * tokens;
  if (!int8Inputs) {
    const int64_t fused = 2 * floats + codes + params + written;
    return {fused, fused + 2 * kFloat * outputs * inputs};
  }
  const int64_t quantized = (inputs + kFloat) * tokens; // a byte an element, a scale a token
  const int64_t accumulated = static_cast<int64_t>(sizeof(int32_t)) * outputs * groups * tokens;
  return {2 * quantized + codes + params + written,
          2 * floats + 2 * quantized + codes + 2 * accumulated + params + written};
}

} // namespace easyquant::numerics
