//===- Exponential.h - An exponential for vector loops ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Inlined into functions that are marked EASYQUANT_VECTOR_CLONES.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_EXPONENTIAL_H
#define EASYQUANT_NUMERICS_EXPONENTIAL_H

#include "easyquant/Numerics/VectorClones.h"

#include <bit>
#include <cstdint>

namespace easyquant::numerics {

/// e^x for x <= 0, to 2 units in the last place; 0 below -87. A polynomial of the remainder of x
/// log2(e), so that loops over it become vector code.
EASYQUANT_INLINE float exponential(float x) {
  const float clamped = x < -87.0f ? -87.0f : x;
  // Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits.
  const float shifted = clamped * 1.44269504f + 12582912.0f;
  const float whole = shifted - 12582912.0f;
  const float r = (clamped - whole * 0.693359375f) - whole * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - 0x4b400000;
  const float power = std::bit_cast<float>((exponent + 127) << 23);
  return x < -87.0f ? 0.0f : p * power;
}

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_EXPONENTIAL_H
