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

/// e^x for -87 <= x <= 0, to 2 units in the last place; any number for less. A polynomial of the
/// remainder of x log2(e), so that loops over it become vector code.
EASYQUANT_INLINE float exponentialInRange(float x) {
  // Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits.
  const float shifted = x * 1.44269504f + 12582912.0f;
  const float whole = shifted - 12582912.0f;
  const float r = (x - whole * 0.693359375f) - whole * -2.12194440e-4f;
  // By Estrin's scheme, whose chains are short.
  const float square = r * r;
  const float high = 1.9875691500e-4f * r + 1.3981999507e-3f;
  const float middle = 8.3334519073e-3f * r + 4.1665795894e-2f;
  const float low = 1.6666665459e-1f * r + 5.0000001201e-1f;
  const float p = ((high * square + middle) * square + low) * square + r + 1.0f;
  const uint32_t exponent = std::bit_cast<uint32_t>(shifted) - 0x4b400000;
  return p * std::bit_cast<float>((exponent + 127) << 23);
}

/// The same for all x <= 0; 0 below -87.
EASYQUANT_INLINE float exponential(float x) {
  const float power = exponentialInRange(x < -87.0f ? -87.0f : x);
  return x < -87.0f ? 0.0f : power;
}

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_EXPONENTIAL_H
