//===- NarrowFloats.h - Rounding to fp16 and bf16 ---------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_NARROWFLOATS_H
#define EASYQUANT_FORMATS_NARROWFLOATS_H

#include <bit>
#include <cstdint>

namespace easyquant::formats {

/// The bits of the nearest bf16, ties to even; the value is finite.
inline uint16_t toBFloat(float value) {
  auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// The bits of the nearest binary16, ties to even; an infinity beyond its range.
inline uint16_t toHalf(float value) {
  return std::bit_cast<uint16_t>(static_cast<_Float16>(value));
}

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_NARROWFLOATS_H
