//===- ArithmeticTest.cpp - Integers and floats against the host's --------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Snippet.h"

#include <bit>
#include <cfenv>
#include <cmath>
#include <functional>

using namespace easyquant::simt;

namespace {

constexpr size_t kCount = 2000;

template <typename T>
void binary(const std::string &instruction, const std::function<T(T, T)> &expected) {
  auto a = integers<T>(kCount, 1), b = integers<T>(kCount, 2);
  auto d = perElement<T>(instruction + " %d, %a, %b;", a, b);
  for (size_t k = 0; k < kCount; ++k)
    ASSERT_EQ(d[k], expected(a[k], b[k])) << instruction << " of " << +a[k] << ", " << +b[k];
}

TEST(Integer, AddSubMulMinMax) {
  binary<int32_t>("add.s32",
                  [](int32_t a, int32_t b) { return int32_t(uint32_t(a) + uint32_t(b)); });
  binary<int16_t>("sub.s16", [](int16_t a, int16_t b) { return int16_t(a - b); });
  binary<uint64_t>("mul.lo.u64", [](uint64_t a, uint64_t b) { return a * b; });
  binary<uint64_t>("mul.hi.u64",
                   [](uint64_t a, uint64_t b) { return uint64_t((unsigned __int128)a * b >> 64); });
  binary<int32_t>("mul.hi.s32", [](int32_t a, int32_t b) { return int32_t(int64_t(a) * b >> 32); });
  binary<int32_t>("add.sat.s32", [](int32_t a, int32_t b) {
    return int32_t(std::clamp<int64_t>(int64_t(a) + b, INT32_MIN, INT32_MAX));
  });
  binary<uint32_t>("min.u32", [](uint32_t a, uint32_t b) { return std::min(a, b); });
  binary<int64_t>("max.s64", [](int64_t a, int64_t b) { return std::max(a, b); });
}

TEST(Integer, DivisionTruncates) {
  auto a = integers<int32_t>(kCount, 3), b = integers<int32_t>(kCount, 4);
  for (int32_t &v : b)
    v = v == 0 ? 7 : v;
  auto q = perElement<int32_t>("div.s32 %d, %a, %b;", a, b);
  auto r = perElement<int32_t>("rem.s32 %d, %a, %b;", a, b);
  for (size_t k = 0; k < kCount; ++k) {
    ASSERT_EQ(q[k], int32_t(int64_t(a[k]) / b[k])) << a[k] << " / " << b[k];
    ASSERT_EQ(r[k], int32_t(int64_t(a[k]) % b[k])) << a[k] << " % " << b[k];
  }
}

TEST(Integer, WideMultiplyAddAndCarryChains) {
  auto a = integers<int32_t>(kCount, 5), b = integers<int32_t>(kCount, 6);
  auto c = integers<int64_t>(kCount, 7);
  auto wide = perElement<int64_t>("mad.wide.s32 %d, %a, %b, %c;", a, b, c);
  for (size_t k = 0; k < kCount; ++k)
    ASSERT_EQ(wide[k], int64_t(uint64_t(int64_t(a[k]) * b[k]) + uint64_t(c[k])));
  // A 64-bit sum and difference out of 32-bit halves.
  auto x = integers<uint64_t>(kCount, 8), y = integers<uint64_t>(kCount, 9);
  const std::string halves = ".reg .b32 %xl, %xh, %yl, %yh;\nmov.b64 {%xl, %xh}, %a;\n"
                             "mov.b64 {%yl, %yh}, %b;\n";
  auto sum = perElement<uint64_t>(halves + "add.cc.u32 %t, %xl, %yl;\naddc.u32 %u, %xh, %yh;\n"
                                           "mov.b64 %d, {%t, %u};",
                                  x, y);
  auto difference =
      perElement<uint64_t>(halves + "sub.cc.u32 %t, %xl, %yl;\nsubc.u32 %u, %xh, %yh;\n"
                                    "mov.b64 %d, {%t, %u};",
                           x, y);
  auto product =
      perElement<uint64_t>(halves + "mul.lo.u32 %t, %xl, %yl;\nmul.hi.u32 %u, %xl, %yl;\n"
                                    "mad.lo.u32 %u, %xh, %yl, %u;\nmad.lo.u32 %u, %xl, %yh, %u;\n"
                                    "mov.b64 %d, {%t, %u};",
                           x, y);
  for (size_t k = 0; k < kCount; ++k) {
    ASSERT_EQ(sum[k], x[k] + y[k]);
    ASSERT_EQ(difference[k], x[k] - y[k]);
    ASSERT_EQ(product[k], x[k] * y[k]);
  }
}

TEST(Integer, ShiftsClampAndFieldsExtend) {
  auto a = integers<int32_t>(kCount, 10);
  auto b = integers<uint32_t>(kCount, 11), c = integers<uint32_t>(kCount, 12);
  for (size_t k = 0; k < kCount; ++k)
    b[k] %= 40, c[k] %= 40;
  auto left = perElement<int32_t>("shl.b32 %d, %a, %b;", a, b);
  auto right = perElement<int32_t>("shr.s32 %d, %a, %b;", a, b);
  auto logical = perElement<uint32_t>("shr.u32 %d, %a, %b;", a, b);
  auto field = perElement<uint32_t>("bfe.u32 %d, %a, %b, %c;", a, b, c);
  auto signedField = perElement<int32_t>("bfe.s32 %d, %a, %b, %c;", a, b, c);
  auto funnel = perElement<uint32_t>("shf.l.wrap.b32 %d, %a, %c, %b;", a, b, c);
  for (size_t k = 0; k < kCount; ++k) {
    uint64_t u = uint32_t(a[k]);
    int64_t s = a[k];
    ASSERT_EQ(uint32_t(left[k]), b[k] > 31 ? 0 : uint32_t(u << b[k]));
    ASSERT_EQ(right[k], int32_t(s >> std::min(b[k], 31u)));
    ASSERT_EQ(logical[k], uint32_t(u >> b[k]));
    uint64_t mask = c[k] ? ~0ull >> (64 - c[k]) : 0;
    ASSERT_EQ(field[k], uint32_t(u >> b[k] & mask));
    // The manual's own loop for the signed field.
    unsigned msb = 31, top = std::min(b[k] + c[k] - 1, msb);
    bool sign = c[k] && (u >> top & 1);
    uint32_t expected = 0;
    for (unsigned i = 0; i <= msb; ++i)
      expected |= uint32_t(i < c[k] && b[k] + i <= msb ? u >> (b[k] + i) & 1 : sign) << i;
    ASSERT_EQ(uint32_t(signedField[k]), expected) << a[k] << " " << b[k] << " " << c[k];
    ASSERT_EQ(funnel[k], uint32_t(((uint64_t(c[k]) << 32 | u) << (b[k] & 31)) >> 32));
  }
}

TEST(Integer, BitCountsPermutesAndTruthTables) {
  auto a = integers<uint32_t>(kCount, 13), b = integers<uint32_t>(kCount, 14),
       c = integers<uint32_t>(kCount, 15);
  auto ones = perElement<uint32_t>("popc.b32 %d, %a;", a);
  auto zeros = perElement<uint32_t>("clz.b32 %d, %a;", a);
  auto found = perElement<uint32_t>("bfind.u32 %d, %a;", a);
  auto reversed = perElement<uint32_t>("brev.b32 %d, %a;", a);
  auto permuted = perElement<uint32_t>("prmt.b32 %d, %a, %b, %c;", a, b, c);
  auto logic = perElement<uint32_t>("lop3.b32 %d, %a, %b, %c, 0xCA;", a, b, c);
  auto inserted = perElement<uint32_t>("bfi.b32 %d, %a, %b, 5, 9;", a, b);
  for (size_t k = 0; k < kCount; ++k) {
    ASSERT_EQ(ones[k], unsigned(std::popcount(a[k])));
    ASSERT_EQ(zeros[k], unsigned(std::countl_zero(a[k])));
    ASSERT_EQ(found[k], a[k] ? 31 - unsigned(std::countl_zero(a[k])) : ~0u);
    uint32_t r = 0, p = 0;
    for (int i = 0; i < 32; ++i)
      r |= (a[k] >> i & 1) << (31 - i);
    ASSERT_EQ(reversed[k], r);
    for (int i = 0; i < 4; ++i) {
      uint32_t s = c[k] >> 4 * i & 15;
      uint8_t byte = (s & 4 ? b[k] : a[k]) >> 8 * (s & 3);
      p |= uint32_t(s & 8 ? (byte & 0x80 ? 0xff : 0) : byte) << 8 * i;
    }
    ASSERT_EQ(permuted[k], p);
    ASSERT_EQ(logic[k], (a[k] & b[k]) | (~a[k] & c[k])); // 0xCA is a ? b : c
    ASSERT_EQ(inserted[k], (b[k] & ~(0x1ffu << 5)) | (a[k] & 0x1ff) << 5);
  }
}

TEST(Integer, DotProductsOfBytes) {
  auto a = integers<uint32_t>(kCount, 16), b = integers<uint32_t>(kCount, 17),
       c = integers<uint32_t>(kCount, 18);
  auto d = perElement<uint32_t>("dp4a.s32.u32 %d, %a, %b, %c;", a, b, c);
  auto high = perElement<uint32_t>("dp2a.hi.s32.s32 %d, %a, %b, %c;", a, b, c);
  for (size_t k = 0; k < kCount; ++k) {
    uint32_t sum = c[k], two = c[k];
    for (int i = 0; i < 4; ++i)
      sum += uint32_t(int8_t(a[k] >> 8 * i) * int(uint8_t(b[k] >> 8 * i)));
    for (int i = 0; i < 2; ++i)
      two += uint32_t(int16_t(a[k] >> 16 * i) * int(int8_t(b[k] >> 8 * (2 + i))));
    ASSERT_EQ(d[k], sum);
    ASSERT_EQ(high[k], two);
  }
}

// ---- floats ------------------------------------------------------------------------------------

uint32_t bitsOf(float x) { return x == x ? std::bit_cast<uint32_t>(x) : 0x7fffffff; }

struct RoundingCase {
  const char *suffix;
  int mode;
};
class Rounded : public testing::TestWithParam<RoundingCase> {};

TEST_P(Rounded, AddMulFmaDivSqrtAreTheHosts) {
  auto [suffix, mode] = GetParam();
  auto a = floats(kCount, 20), b = floats(kCount, 21), c = floats(kCount, 22);
  std::string s = suffix;
  auto sum = perElement<float>("add." + s + ".f32 %d, %a, %b;", a, b);
  auto product = perElement<float>("mul." + s + ".f32 %d, %a, %b;", a, b);
  auto fused = perElement<float>("fma." + s + ".f32 %d, %a, %b, %c;", a, b, c);
  auto quotient = perElement<float>("div." + s + ".f32 %d, %a, %b;", a, b);
  auto root = perElement<float>("sqrt." + s + ".f32 %d, %a;", a);
  for (size_t k = 0; k < kCount; ++k) {
    volatile float x = a[k], y = b[k], z = c[k];
    std::fesetround(mode);
    volatile float expected[] = {x + y, x * y, std::fma(x, y, z), x / y, std::sqrt(x)};
    std::fesetround(FE_TONEAREST);
    float got[] = {sum[k], product[k], fused[k], quotient[k], root[k]};
    for (int i = 0; i < 5; ++i)
      ASSERT_EQ(bitsOf(got[i]), bitsOf(expected[i]))
          << "operation " << i << " of " << x << ", " << y << ", " << z;
  }
}
INSTANTIATE_TEST_SUITE_P(, Rounded,
                         testing::Values(RoundingCase{"rn", FE_TONEAREST},
                                         RoundingCase{"rz", FE_TOWARDZERO},
                                         RoundingCase{"rm", FE_DOWNWARD},
                                         RoundingCase{"rp", FE_UPWARD}),
                         [](const auto &info) { return std::string(info.param.suffix); });

float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

TEST(Float, FlushesAndSaturates) {
  auto a = floats(kCount, 23), b = floats(kCount, 24);
  auto ftz = perElement<float>("mul.ftz.f32 %d, %a, %b;", a, b);
  auto sat = perElement<float>("add.sat.f32 %d, %a, %b;", a, b);
  for (size_t k = 0; k < kCount; ++k) {
    ASSERT_EQ(bitsOf(ftz[k]), bitsOf(flushed(flushed(a[k]) * flushed(b[k]))));
    float s = a[k] + b[k];
    ASSERT_EQ(bitsOf(sat[k]), bitsOf(s > 1 ? 1.0f : s > 0 ? s : 0.0f)) << a[k] << " + " << b[k];
  }
}

/// Halves and a single, against the same of singles that halves have been widened to.
TEST(Float, SumsOfHalvesAreThoseOfSingles) {
  auto a = floats(kCount, 40), b = floats(kCount, 41), c = floats(kCount, 42);
  for (std::string half : {"f16", "bf16"}) {
    const std::string halves =
        ".reg .b16 %h, %g;\ncvt.rn." + half + ".f32 %h, %a;\ncvt.rn." + half + ".f32 %g, %b;\n";
    const std::string singles =
        halves + "cvt.f32." + half + " %a, %h;\ncvt.f32." + half + " %b, %g;\n";
    auto bits = [&](const std::string &lines) {
      std::vector<uint32_t> all;
      for (float x : perElement<float>(lines, a, b, c))
        all.push_back(bitsOf(x));
      return all;
    };
    EXPECT_EQ(bits(halves + "add.rn.f32." + half + " %d, %h, %c;"),
              bits(singles + "add.rn.f32 %d, %a, %c;"));
    EXPECT_EQ(bits(halves + "sub.rn.f32." + half + " %d, %h, %c;"),
              bits(singles + "sub.rn.f32 %d, %a, %c;"));
    EXPECT_EQ(bits(halves + "fma.rn.f32." + half + " %d, %h, %g, %c;"),
              bits(singles + "fma.rn.f32 %d, %a, %b, %c;"));
  }
}

TEST(Float, MinimumAndMaximumTakeTheNumber) {
  auto a = floats(kCount, 25), b = floats(kCount, 26);
  auto low = perElement<float>("min.f32 %d, %a, %b;", a, b);
  auto high = perElement<float>("max.NaN.f32 %d, %a, %b;", a, b);
  for (size_t k = 0; k < kCount; ++k) {
    float expected = std::fmin(a[k], b[k]);
    if (a[k] == 0 && b[k] == 0)
      expected = std::signbit(a[k]) ? a[k] : b[k];
    ASSERT_EQ(bitsOf(low[k]), bitsOf(expected)) << a[k] << ", " << b[k];
    float most = a[k] != a[k] || b[k] != b[k] ? NAN : std::fmax(a[k], b[k]);
    if (a[k] == 0 && b[k] == 0)
      most = std::signbit(a[k]) ? b[k] : a[k];
    ASSERT_EQ(bitsOf(high[k]), bitsOf(most)) << a[k] << ", " << b[k];
  }
}

TEST(Float, ElementaryFunctionsAreWithinTwoUnits) {
  auto a = floats(kCount, 27);
  for (float &x : a)
    x = std::isfinite(x) ? std::fmod(x, 20.0f) : 1.0f;
  struct {
    const char *name;
    double (*function)(double);
  } cases[] = {{"ex2.approx.f32", [](double x) { return std::exp2(x); }},
               {"sin.approx.f32", [](double x) { return std::sin(x); }},
               {"cos.approx.f32", [](double x) { return std::cos(x); }},
               {"tanh.approx.f32", [](double x) { return std::tanh(x); }},
               {"rcp.rn.f32", [](double x) { return 1 / x; }}};
  for (auto &c : cases) {
    auto d = perElement<float>(std::string(c.name) + " %d, %a;", a);
    for (size_t k = 0; k < kCount; ++k) {
      double expected = c.function(a[k]);
      if (std::isinf(static_cast<float>(expected)))
        ASSERT_EQ(d[k], static_cast<float>(expected));
      else
        ASSERT_NEAR(d[k], expected, std::fabs(expected) * 0x1p-22 + 0x1p-148)
            << c.name << " of " << a[k];
    }
  }
}

TEST(Float, ComparisonsOrderedAndNot) {
  auto a = floats(kCount, 28), b = floats(kCount, 29);
  auto less = perElement<uint32_t>("setp.lt.f32 %p, %a, %b;\nselp.u32 %d, 1, 0, %p;", a, b);
  auto unordered = perElement<uint32_t>("setp.geu.f32 %p, %a, %b;\nselp.u32 %d, 1, 0, %p;", a, b);
  auto notEqual = perElement<uint32_t>("set.ne.u32.f32 %d, %a, %b;", a, b);
  auto both =
      perElement<uint32_t>("setp.gt.f32 %p, %a, 0f00000000;\n"
                           "setp.lt.or.f32 %p|%q, %b, 0f00000000, !%p;\n"
                           "selp.u32 %t, 1, 0, %p;\nselp.u32 %u, 2, 0, %q;\nor.b32 %d, %t, %u;",
                           a, b);
  for (size_t k = 0; k < kCount; ++k) {
    ASSERT_EQ(less[k], a[k] < b[k]);
    ASSERT_EQ(unordered[k], !(a[k] < b[k]));
    ASSERT_EQ(notEqual[k], a[k] < b[k] || a[k] > b[k] ? ~0u : 0u);
    bool c = !(a[k] > 0), p = b[k] < 0;
    ASSERT_EQ(both[k], unsigned(p || c) | unsigned(!p || c) << 1);
  }
}

} // namespace
