//===- SoftFloat.h - Formats of floats and their rounding, in integers - -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The slow and certain way between float formats: any format to any other under any rounding mode
// of PTX, one value at a time. The fast paths of Convert.cpp and HalfOps.cpp are tested against it.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SIMT_SOFTFLOAT_H
#define EASYQUANT_LIB_SIMT_SOFTFLOAT_H

#include <bit>
#include <cstdint>

namespace easyquant::simt {

enum class Rounding : uint8_t {
  NearestEven,
  Zero,
  Down,
  Up,
  NearestAway, ///< cvt.rna: ties away from zero
};

/// A binary format: 1 sign bit, exponent, mantissa.
struct FloatFormat {
  int exponentBits, mantissaBits;
  bool hasInfinity = true; ///< e4m3 has none: all ones is NaN, the other codes are numbers.
  constexpr int bias() const { return (1 << (exponentBits - 1)) - 1; }
  constexpr int bits() const { return 1 + exponentBits + mantissaBits; }
  constexpr uint64_t mask() const { return ~uint64_t(0) >> (64 - bits()); }
};
inline constexpr FloatFormat kHalf{5, 10}, kBFloat{8, 7}, kTF32{8, 10}, kSingle{8, 23},
    kDouble{11, 52}, kE4M3{4, 3, false}, kE5M2{5, 2};

/// ±significand · 2^exponent, or infinity, or NaN.
struct Unpacked {
  enum Class : uint8_t { Finite, Infinity, NaN } kind = Finite;
  bool negative = false;
  uint64_t significand = 0;
  int exponent = 0;
};

constexpr Unpacked unpack(uint64_t bits, FloatFormat f) {
  Unpacked result;
  result.negative = bits >> (f.bits() - 1) & 1;
  uint64_t mantissa = bits & ((1ull << f.mantissaBits) - 1);
  int exponent = static_cast<int>(bits >> f.mantissaBits & ((1ull << f.exponentBits) - 1));
  bool top = exponent == (1 << f.exponentBits) - 1;
  if (f.hasInfinity ? top : top && mantissa == (1ull << f.mantissaBits) - 1) {
    result.kind = f.hasInfinity && mantissa == 0 ? Unpacked::Infinity : Unpacked::NaN;
    return result;
  }
  result.significand = exponent ? mantissa | 1ull << f.mantissaBits : mantissa;
  result.exponent = (exponent ? exponent : 1) - f.bias() - f.mantissaBits;
  return result;
}

/// Largest finite value of a format, as bits without sign.
constexpr uint64_t largestFinite(FloatFormat f) {
  uint64_t all = (1ull << (f.bits() - 1)) - 1;
  return f.hasInfinity ? (((1ull << f.exponentBits) - 1) << f.mantissaBits) - 1 : all - 1;
}

/// The nearest code. `sticky`: the true magnitude is a little larger than the significand says.
/// `saturate`: beyond the largest finite value comes that value, not infinity (satfinite).
/// NaN is the canonical one: all ones below the sign, as the machine makes it.
constexpr uint64_t pack(Unpacked v, FloatFormat f, Rounding rounding, bool saturate = false,
                        bool sticky = false) {
  uint64_t sign = static_cast<uint64_t>(v.negative) << (f.bits() - 1);
  uint64_t infinity = ((1ull << f.exponentBits) - 1) << f.mantissaBits;
  uint64_t overflow = f.hasInfinity && !saturate ? infinity : largestFinite(f);
  if (v.kind == Unpacked::NaN)
    return (1ull << (f.bits() - 1)) - 1;
  if (v.kind == Unpacked::Infinity)
    return sign | (f.hasInfinity && !saturate ? infinity : largestFinite(f));
  if (v.significand == 0)
    return sign;
  // Exponent of the leading bit, and of the last place that the format keeps there.
  int lead = v.exponent + 63 - std::countl_zero(v.significand);
  int minimum = 1 - f.bias();
  int place = (lead < minimum ? minimum : lead) - f.mantissaBits;
  int shift = place - v.exponent;
  uint64_t kept = 0, half = 0; // half: 0 exact, 1 below half, 2 half, 3 above
  if (shift <= 0) {
    kept = v.significand << -shift;
    half = sticky;
  } else if (shift > 64) {
    half = 1;
  } else {
    kept = shift == 64 ? 0 : v.significand >> shift;
    uint64_t rest = shift == 64 ? v.significand : v.significand & ((1ull << shift) - 1);
    uint64_t middle = 1ull << (shift - 1);
    half = rest > middle || (rest == middle && sticky) ? 3
           : rest == middle                            ? 2
           : rest || sticky                            ? 1
                                                       : 0;
  }
  bool up = false;
  switch (rounding) {
  case Rounding::NearestEven:
    up = half == 3 || (half == 2 && (kept & 1));
    break;
  case Rounding::NearestAway:
    up = half >= 2;
    break;
  case Rounding::Zero:
    break;
  case Rounding::Down:
    up = half && v.negative;
    break;
  case Rounding::Up:
    up = half && !v.negative;
    break;
  }
  kept += up;
  // Carries into the exponent by themselves: a subnormal has exponent field 0, a normal one the
  // implicit bit is added to.
  uint64_t code = kept;
  if (place > minimum - f.mantissaBits)
    code += static_cast<uint64_t>(place + f.mantissaBits - minimum) << f.mantissaBits;
  uint64_t limit = largestFinite(f);
  if (code > limit || lead > f.bias() + 1) {
    bool stays = rounding == Rounding::Zero || (rounding == Rounding::Down && !v.negative) ||
                 (rounding == Rounding::Up && v.negative);
    code = stays ? limit : overflow;
    if (!f.hasInfinity && !saturate && !stays)
      code = limit + 1; // NaN
  }
  return sign | code;
}

/// From one format to another.
constexpr uint64_t convert(uint64_t bits, FloatFormat from, FloatFormat to, Rounding rounding,
                           bool saturate = false) {
  return pack(unpack(bits, from), to, rounding, saturate);
}

} // namespace easyquant::simt

#endif // EASYQUANT_LIB_SIMT_SOFTFLOAT_H
