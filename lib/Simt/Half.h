//===- Half.h - f16 and bf16 arithmetic ----------------------- -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SIMT_HALF_H
#define EASYQUANT_LIB_SIMT_HALF_H

#include "SoftFloat.h"

#include <bit>
#include <cmath>

namespace easyquant::simt {

/// binary16. A conversion compiles to an instruction.
struct Half {
  static constexpr FloatFormat format = kHalf;
  static constexpr uint16_t nan = 0x7fff;
  static float widen(uint16_t bits) { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
  static uint16_t narrow(float x) {
    auto bits = std::bit_cast<uint16_t>(static_cast<_Float16>(x));
    return x == x ? bits : nan;
  }
};

/// bfloat16.
struct BFloat {
  static constexpr FloatFormat format = kBFloat;
  static constexpr uint16_t nan = 0x7fff;
  static float widen(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }
  static uint16_t narrow(float x) {
    auto bits = std::bit_cast<uint32_t>(x);
    auto rounded = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    return x == x ? rounded : nan;
  }
};

/// The value of a sum rounded to odd: to double, where a lost part makes the last bit one. Rounding
/// it again to a much shorter format is then the same as rounding the exact sum once.
inline double addToOdd(double a, double b) {
  double sum = a + b;
  double back = sum - a;
  double error = (a - (sum - back)) + (b - back);
  auto bits = std::bit_cast<uint64_t>(sum);
  if (error == 0 || !std::isfinite(sum) || bits & 1)
    return sum;
  // The neighbour towards the exact sum.
  bool away = (error > 0) == (sum > 0);
  return std::bit_cast<double>(away ? bits + 1 : bits - 1);
}

/// A double that was rounded to odd, or is exact, to H.
template <typename H> uint16_t narrowOnce(double x) {
  double magnitude = std::fabs(x);
  // Below this float has no room for more than bf16's bits; above 2^128 it has none at all.
  if (magnitude >= 0x1p-100 && magnitude < 0x1p127) {
    // To float, to odd again: 24 bits are enough beside 11.
    auto bits = std::bit_cast<uint64_t>(x);
    uint64_t lost = bits & 0x1fffffff;
    bits = (bits & ~0x1fffffffull) | uint64_t(lost != 0) << 29;
    return H::narrow(static_cast<float>(std::bit_cast<double>(bits)));
  }
  return static_cast<uint16_t>(
      convert(std::bit_cast<uint64_t>(x), kDouble, H::format, Rounding::NearestEven));
}

} // namespace easyquant::simt

#endif // EASYQUANT_LIB_SIMT_HALF_H
