//===- ConvertTest.cpp - Conversions against a search for the nearest code -===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Snippet.h"

#include <bit>
#include <cmath>
#include <functional>

using namespace easyquant::simt;

namespace {

constexpr size_t kSamples = 3000;

/// A small float format by its definition, apart from the simulator's own code.
struct Format {
  int exponentBits, mantissaBits;
  bool hasInfinity;
  int bits() const { return 1 + exponentBits + mantissaBits; }
  double value(uint32_t code) const {
    int bias = (1 << (exponentBits - 1)) - 1;
    uint32_t mantissa = code & ((1u << mantissaBits) - 1);
    int exponent = code >> mantissaBits & ((1 << exponentBits) - 1);
    double sign = code >> (bits() - 1) ? -1 : 1;
    if (exponent == (1 << exponentBits) - 1) {
      if (hasInfinity)
        return mantissa ? NAN : sign * INFINITY;
      if (mantissa == (1u << mantissaBits) - 1)
        return NAN;
    }
    return exponent
               ? sign * std::ldexp((1 << mantissaBits) + mantissa, exponent - bias - mantissaBits)
               : sign * std::ldexp(mantissa, 1 - bias - mantissaBits);
  }
};
const Format half{5, 10, true}, bfloat{8, 7, true}, e4m3{4, 3, false}, e5m2{5, 2, true};

/// The code nearest to x, ties to even, by searching all codes. The overflow threshold lies half a
/// step beyond the largest value.
uint32_t nearest(const Format &f, double x, bool saturate) {
  if (x != x)
    return (1u << (f.bits() - 1)) - 1;
  uint32_t sign = std::signbit(x) ? 1u << (f.bits() - 1) : 0;
  double magnitude = std::fabs(x);
  uint32_t low = 0, high = (1u << (f.bits() - 1)) - 1;
  while (!std::isfinite(f.value(high)))
    --high;
  uint32_t largest = high;
  double step = f.value(largest) - f.value(largest - 1);
  if (magnitude >= f.value(largest) + step / 2)
    return sign | (saturate ? largest : largest + 1);
  while (high - low > 1) {
    uint32_t middle = (low + high) / 2;
    (f.value(middle) <= magnitude ? low : high) = middle;
  }
  double below = magnitude - f.value(low), above = f.value(high) - magnitude;
  bool up = above < below || (above == below && (high & 1) == 0);
  return sign | (up ? high : low);
}

TEST(Convert, SingleToHalfAndBFloat) {
  auto a = floats(kSamples, 1);
  auto h = perElement<uint16_t>("cvt.rn.f16.f32 %d, %a;", a);
  auto b = perElement<uint16_t>("cvt.rn.bf16.f32 %d, %a;", a);
  auto pairs = perElement<uint32_t>("cvt.rn.f16x2.f32 %d, %a, %b;", a, floats(kSamples, 2));
  auto second = floats(kSamples, 2);
  auto zeroed = perElement<uint16_t>("cvt.rn.relu.f16.f32 %d, %a;", a);
  for (size_t k = 0; k < kSamples; ++k) {
    uint32_t expected = nearest(half, a[k], false);
    ASSERT_EQ(h[k], expected) << a[k];
    ASSERT_EQ(b[k], nearest(bfloat, a[k], false)) << a[k];
    ASSERT_EQ(pairs[k], nearest(half, second[k], false) | expected << 16);
    ASSERT_EQ(zeroed[k], a[k] == a[k] && expected & 0x8000 ? 0 : expected);
  }
}

TEST(Convert, DirectedRoundingNeverCrosses) {
  auto a = floats(kSamples, 3);
  auto zero = perElement<uint16_t>("cvt.rz.f16.f32 %d, %a;", a);
  auto down = perElement<uint16_t>("cvt.rm.f16.f32 %d, %a;", a);
  auto up = perElement<uint16_t>("cvt.rp.f16.f32 %d, %a;", a);
  for (size_t k = 0; k < kSamples; ++k) {
    if (!std::isfinite(a[k]))
      continue;
    double x = a[k], z = half.value(zero[k]), d = half.value(down[k]), u = half.value(up[k]);
    ASSERT_LE(std::fabs(z), std::fabs(x));
    ASSERT_LE(d, x);
    ASSERT_GE(u, x);
    // The next code would cross; and down and up are neighbours around x, or x itself.
    ASSERT_GT(std::fabs(half.value(zero[k] + 1)), std::fabs(x)) << x;
    ASSERT_TRUE(d == x ? u == x : z == d || z == u) << x;
  }
}

TEST(Convert, EightBitFloats) {
  auto a = floats(kSamples, 4), b = floats(kSamples, 5);
  auto narrow = perElement<uint16_t>("cvt.rn.satfinite.e4m3x2.f32 %d, %a, %b;", a, b);
  auto wide = perElement<uint16_t>("cvt.rn.satfinite.e5m2x2.f32 %d, %a, %b;", a, b);
  for (size_t k = 0; k < kSamples; ++k) {
    ASSERT_EQ(narrow[k], nearest(e4m3, b[k], true) | nearest(e4m3, a[k], true) << 8)
        << a[k] << " " << b[k];
    ASSERT_EQ(wide[k], nearest(e5m2, b[k], true) | nearest(e5m2, a[k], true) << 8)
        << a[k] << " " << b[k];
  }
  std::vector<uint16_t> codes(256);
  for (size_t k = 0; k < 256; ++k)
    codes[k] = k | (255 - k) << 8;
  auto back = perElement<uint32_t>("cvt.rn.f16x2.e4m3x2 %d, %a;", codes);
  for (uint32_t k = 0; k < 256; ++k) {
    double low = e4m3.value(k);
    ASSERT_EQ(std::bit_cast<uint64_t>(half.value(back[k] & 0xffff) + 0.0),
              std::bit_cast<uint64_t>(low == low ? low + 0.0 : half.value(0x7fff)));
  }
}

TEST(Convert, TensorFloat) {
  auto a = floats(kSamples, 6);
  auto d = perElement<uint32_t>("cvt.rna.tf32.f32 %d, %a;", a);
  for (size_t k = 0; k < kSamples; ++k) {
    if (!std::isfinite(a[k]))
      continue;
    // Ties away from zero: half of the last kept place is added to the magnitude.
    uint32_t bits = std::bit_cast<uint32_t>(a[k]);
    ASSERT_EQ(d[k], (bits + 0x1000) & 0xffffe000) << a[k];
  }
}

TEST(Convert, FloatsToIntegersClamp) {
  auto a = floats(kSamples, 7);
  struct {
    const char *mode;
    double (*round)(double);
  } modes[] = {{"rni", [](double x) { return std::nearbyint(x); }},
               {"rzi", [](double x) { return std::trunc(x); }},
               {"rmi", [](double x) { return std::floor(x); }},
               {"rpi", [](double x) { return std::ceil(x); }}};
  for (auto &m : modes) {
    std::string mode = m.mode;
    auto s32 = perElement<int32_t>("cvt." + mode + ".s32.f32 %d, %a;", a);
    auto u8 = perElement<uint16_t>("cvt." + mode + ".u8.f32 %d, %a;", a);
    auto s8 = perElement<int32_t>("cvt." + mode + ".sat.s8.f32 %d, %a;", a);
    auto same = perElement<float>("cvt." + mode + ".f32.f32 %d, %a;", a);
    for (size_t k = 0; k < kSamples; ++k) {
      double r = m.round(a[k]);
      auto clamp = [&](double low, double high) {
        return r != r ? 0 : std::fmin(std::fmax(r, low), high);
      };
      ASSERT_EQ(s32[k], int32_t(clamp(-2147483648.0, 2147483647.0))) << a[k];
      ASSERT_EQ(u8[k], uint16_t(clamp(0, 255))) << a[k];
      ASSERT_EQ(s8[k], int32_t(clamp(-128, 127))) << a[k];
      if (r == r)
        ASSERT_EQ(same[k], r);
    }
  }
}

TEST(Convert, IntegersWidenNarrowAndSaturate) {
  auto a = integers<int32_t>(kSamples, 8);
  auto s64 = perElement<int64_t>("cvt.s64.s32 %d, %a;", a);
  auto s16 = perElement<int32_t>("cvt.s32.s16 %d, %a;", a);
  auto sat = perElement<int16_t>("cvt.sat.s8.s32 %d, %a;", a);
  auto usat = perElement<uint16_t>("cvt.sat.u16.s32 %d, %a;", a);
  for (size_t k = 0; k < kSamples; ++k) {
    ASSERT_EQ(s64[k], int64_t(a[k]));
    ASSERT_EQ(s16[k], int32_t(int16_t(a[k])));
    ASSERT_EQ(sat[k], std::clamp(a[k], -128, 127));
    ASSERT_EQ(usat[k], std::clamp(a[k], 0, 65535));
  }
}

TEST(Convert, IntegersToFloats) {
  auto a = integers<uint64_t>(kSamples, 9);
  auto s = integers<int32_t>(kSamples, 10);
  auto u = perElement<float>("cvt.rn.f32.u64 %d, %a;", a);
  auto d = perElement<double>("cvt.rn.f64.s64 %d, %a;", a);
  auto f = perElement<float>("cvt.rn.f32.s32 %d, %a;", s);
  auto toZero = perElement<float>("cvt.rz.f32.u64 %d, %a;", a);
  for (size_t k = 0; k < kSamples; ++k) {
    ASSERT_EQ(u[k], static_cast<float>(a[k]));
    ASSERT_EQ(d[k], static_cast<double>(static_cast<int64_t>(a[k])));
    ASSERT_EQ(f[k], static_cast<float>(s[k]));
    ASSERT_LE(static_cast<long double>(toZero[k]), static_cast<long double>(a[k]));
    ASSERT_GT(static_cast<long double>(std::nextafter(toZero[k], INFINITY)),
              static_cast<long double>(a[k]));
  }
}

/// f16 and bf16 arithmetic rounds the exact result once. Sums and products of two are exact in long
/// double, and so is a fused one of halves.
TEST(Half, RoundsTheExactResultOnce) {
  std::mt19937_64 random(11);
  std::vector<uint16_t> a(kSamples), b(kSamples), c(kSamples);
  for (size_t k = 0; k < kSamples; ++k)
    a[k] = random(), b[k] = random(), c[k] = k % 3 ? random() : a[k] ^ 0x8000;
  auto check = [&](const char *instruction, const Format &f, auto expected) {
    auto d = perElement<uint16_t>(instruction, a, b, c);
    for (size_t k = 0; k < kSamples; ++k) {
      long double x = f.value(a[k]), y = f.value(b[k]), z = f.value(c[k]);
      long double exact = expected(x, y, z);
      uint32_t code;
      // Rounding to double first would round twice; shift the decision by the sign of what is lost.
      double rounded = static_cast<double>(exact);
      if (rounded != exact && std::isfinite(rounded))
        rounded = std::nextafter(rounded, exact > rounded ? INFINITY : -INFINITY);
      code = nearest(f, rounded, false);
      ASSERT_EQ(d[k], code) << instruction << " of " << double(x) << ", " << double(y) << ", "
                            << double(z);
    }
  };
  check("add.rn.f16 %d, %a, %b;", half, [](auto x, auto y, auto) { return x + y; });
  check("mul.rn.f16 %d, %a, %b;", half, [](auto x, auto y, auto) { return x * y; });
  check("fma.rn.f16 %d, %a, %b, %c;", half, [](auto x, auto y, auto z) { return x * y + z; });
  check("mul.rn.bf16 %d, %a, %b;", bfloat, [](auto x, auto y, auto) { return x * y; });
}

} // namespace
