//===- Half.h - Widening fp16 and bf16 ----------------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_FORMATS_HALF_H
#define EASYQUANT_LIB_FORMATS_HALF_H

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace easyquant::formats {

/// The integer or float stored at `data`, which need not be aligned. Files and machine are
/// little-endian.
template <typename T> T load(const std::byte *data) {
  static_assert(std::endian::native == std::endian::little);
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

/// IEEE binary16 to binary32, exact. In integer arithmetic: the baseline x86-64 has no instruction.
inline float halfToFloat(uint16_t bits) {
  uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  uint32_t exponent = bits >> 10 & 0x1f;
  uint32_t mantissa = bits & 0x3ff;
  if (exponent == 0) { // zero or subnormal: mantissa * 2^-24
    float value = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -value : value;
  }
  if (exponent == 31) // infinity or NaN
    return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

/// bfloat16 to binary32, exact.
inline float bfloatToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

} // namespace easyquant::formats

#endif // EASYQUANT_LIB_FORMATS_HALF_H
