//===- HalfOps.cpp - Arithmetic in f16 and bf16, alone and in pairs -------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"
#include "Half.h"
#include "Lanes.h"

using namespace easyquant;
using namespace easyquant::simt;

namespace {

enum HalfFlags : uint32_t { kFtz = 1, kSat = 2, kRelu = 4, kNaN = 8, kXorSign = 16 };

template <typename H> uint16_t flushHalf(uint16_t x) {
  constexpr uint16_t exponent = ((1 << H::format.exponentBits) - 1) << H::format.mantissaBits;
  return x & exponent ? x : x & 0x8000;
}
template <typename H> bool isNaN(uint16_t x) { return (x & 0x7fff) > largestFinite(H::format) + 1; }

template <typename H> uint16_t finishHalf(uint16_t r, uint32_t flags) {
  if (flags & kFtz)
    r = flushHalf<H>(r);
  if (flags & kRelu)
    return isNaN<H>(r) ? H::nan : r & 0x8000 ? 0 : r;
  if (flags & kSat) {
    if (isNaN<H>(r) || r & 0x8000)
      return 0;
    return std::min(r, H::narrow(1.0f));
  }
  return r;
}

// Sums are rounded to odd in double, products are exact there: one rounding in all.
struct HalfPlus {
  template <typename H> static uint16_t apply(float a, float b, uint32_t) {
    return narrowOnce<H>(addToOdd(a, b));
  }
};
struct HalfMinus {
  template <typename H> static uint16_t apply(float a, float b, uint32_t) {
    return narrowOnce<H>(addToOdd(a, -double(b)));
  }
};
struct HalfTimes {
  template <typename H> static uint16_t apply(float a, float b, uint32_t) {
    return narrowOnce<H>(double(a) * double(b));
  }
};
template <bool maximum> struct HalfExtremum {
  template <typename H> static uint16_t apply(float a, float b, uint32_t flags) {
    float x = flags & kXorSign ? std::fabs(a) : a, y = flags & kXorSign ? std::fabs(b) : b;
    float r;
    if (x != x || y != y)
      r = flags & kNaN || (x != x && y != y) ? NAN : x != x ? y : x;
    else if (x == y)
      r = std::signbit(x) == maximum ? y : x;
    else
      r = (x < y) == maximum ? y : x;
    if (flags & kXorSign)
      r = std::signbit(a) != std::signbit(b) ? -r : r;
    return H::narrow(r);
  }
};

template <typename H, typename F> uint16_t applyBinary(uint16_t a, uint16_t b, uint32_t flags) {
  if (flags & kFtz)
    a = flushHalf<H>(a), b = flushHalf<H>(b);
  return finishHalf<H>(F::template apply<H>(H::widen(a), H::widen(b), flags), flags);
}
template <typename H> uint16_t applyFma(uint16_t a, uint16_t b, uint16_t c, uint32_t flags) {
  if (flags & kFtz)
    a = flushHalf<H>(a), b = flushHalf<H>(b), c = flushHalf<H>(c);
  double sum = addToOdd(double(H::widen(a)) * double(H::widen(b)), H::widen(c));
  return finishHalf<H>(narrowOnce<H>(sum), flags);
}

template <typename H, typename F> void halfBinary(Warp &w, const Instruction &i, Mask m) {
  const uint16_t *a = w.reg<uint16_t>(i.a), *b = w.reg<uint16_t>(i.b);
  storeLanes(w.reg<uint16_t>(i.dst), m,
             [&](unsigned lane) { return applyBinary<H, F>(a[lane], b[lane], i.flags); });
}
template <typename H, typename F> void pairBinary(Warp &w, const Instruction &i, Mask m) {
  const uint32_t *a = w.reg<uint32_t>(i.a), *b = w.reg<uint32_t>(i.b);
  storeLanes(w.reg<uint32_t>(i.dst), m, [&](unsigned lane) {
    uint32_t low = applyBinary<H, F>(a[lane], b[lane], i.flags);
    uint32_t high = applyBinary<H, F>(a[lane] >> 16, b[lane] >> 16, i.flags);
    return low | high << 16;
  });
}
template <typename H> void halfFma(Warp &w, const Instruction &i, Mask m) {
  const uint16_t *a = w.reg<uint16_t>(i.a), *b = w.reg<uint16_t>(i.b), *c = w.reg<uint16_t>(i.c);
  storeLanes(w.reg<uint16_t>(i.dst), m,
             [&](unsigned lane) { return applyFma<H>(a[lane], b[lane], c[lane], i.flags); });
}
template <typename H> void pairFma(Warp &w, const Instruction &i, Mask m) {
  const uint32_t *a = w.reg<uint32_t>(i.a), *b = w.reg<uint32_t>(i.b), *c = w.reg<uint32_t>(i.c);
  storeLanes(w.reg<uint32_t>(i.dst), m, [&](unsigned lane) {
    uint32_t low = applyFma<H>(a[lane], b[lane], c[lane], i.flags);
    uint32_t high = applyFma<H>(a[lane] >> 16, b[lane] >> 16, c[lane] >> 16, i.flags);
    return low | high << 16;
  });
}

template <typename H, double (*function)(double)> uint16_t elementary(uint16_t a) {
  return H::narrow(static_cast<float>(function(H::widen(a))));
}
uint16_t absolute(uint16_t a) { return a & 0x7fff; }
uint16_t negative(uint16_t a) { return a ^ 0x8000; }

using Function = uint16_t (*)(uint16_t);
template <Function function> void halfUnary(Warp &w, const Instruction &i, Mask m) {
  const uint16_t *a = w.reg<uint16_t>(i.a);
  storeLanes(w.reg<uint16_t>(i.dst), m, [&](unsigned lane) { return function(a[lane]); });
}
template <Function function> void pairUnary(Warp &w, const Instruction &i, Mask m) {
  const uint32_t *a = w.reg<uint32_t>(i.a);
  storeLanes(w.reg<uint32_t>(i.dst), m, [&](unsigned lane) {
    return uint32_t(function(a[lane])) | uint32_t(function(a[lane] >> 16)) << 16;
  });
}

double base2Exponential(double x) { return std::exp2(x); }
double hyperbolicTangent(double x) { return std::tanh(x); }

bool isPair(Type type) { return type == Type::F16x2 || type == Type::BF16x2; }
bool isBFloat(Type type) { return type == Type::BF16 || type == Type::BF16x2; }

template <typename F> Handler binaryOf(Type type) {
  if (isBFloat(type))
    return isPair(type) ? pairBinary<BFloat, F> : halfBinary<BFloat, F>;
  return isPair(type) ? pairBinary<Half, F> : halfBinary<Half, F>;
}

} // namespace

void simt::decodeHalfBinary(Decoder &d) {
  bool extremum = d.opcode == "min" || d.opcode == "max";
  uint32_t flags = 0;
  d.accept("rn");
  flags |= d.accept("ftz") ? kFtz : 0;
  flags |= !extremum && d.accept("sat") ? kSat : 0;
  flags |= extremum && d.accept("NaN") ? kNaN : 0;
  if (extremum && d.accept("xorsign")) {
    if (!d.accept("abs"))
      d.unknown();
    flags |= kXorSign;
  }
  Type type = d.type();
  d.arithmetic(type, OpClass::Half, 2);
  d.i.flags = flags;
  d.i.run = d.opcode == "add"   ? binaryOf<HalfPlus>(type)
            : d.opcode == "sub" ? binaryOf<HalfMinus>(type)
            : d.opcode == "mul" ? binaryOf<HalfTimes>(type)
            : d.opcode == "min" ? binaryOf<HalfExtremum<false>>(type)
                                : binaryOf<HalfExtremum<true>>(type);
}

void simt::decodeHalfFma(Decoder &d) {
  uint32_t flags = 0;
  if (!d.accept("rn"))
    d.unknown();
  flags |= d.accept("ftz") ? kFtz : 0;
  flags |= d.accept("sat") ? kSat : 0;
  flags |= d.accept("relu") ? kRelu : 0;
  Type type = d.type();
  d.arithmetic(type, OpClass::Half, 3);
  d.i.flags = flags;
  if (isBFloat(type))
    d.i.run = isPair(type) ? pairFma<BFloat> : halfFma<BFloat>;
  else
    d.i.run = isPair(type) ? pairFma<Half> : halfFma<Half>;
}

void simt::decodeHalfUnary(Decoder &d) {
  bool sign = d.opcode == "abs" || d.opcode == "neg";
  if (!sign && !d.accept("approx"))
    d.unknown();
  bool flushes = d.accept("ftz");
  Type type = d.type();
  if (flushes && sign)
    d.unknown(); // not emitted by compilers
  d.arithmetic(type, OpClass::Half, 1);
  bool pair = isPair(type), b = isBFloat(type);
  if (d.opcode == "abs")
    d.i.run = pair ? pairUnary<absolute> : halfUnary<absolute>;
  else if (d.opcode == "neg")
    d.i.run = pair ? pairUnary<negative> : halfUnary<negative>;
  else if (d.opcode == "ex2" && b)
    d.i.run = pair ? pairUnary<elementary<BFloat, base2Exponential>>
                   : halfUnary<elementary<BFloat, base2Exponential>>;
  else if (d.opcode == "ex2")
    d.i.run = pair ? pairUnary<elementary<Half, base2Exponential>>
                   : halfUnary<elementary<Half, base2Exponential>>;
  else if (d.opcode == "tanh" && b)
    d.i.run = pair ? pairUnary<elementary<BFloat, hyperbolicTangent>>
                   : halfUnary<elementary<BFloat, hyperbolicTangent>>;
  else if (d.opcode == "tanh")
    d.i.run = pair ? pairUnary<elementary<Half, hyperbolicTangent>>
                   : halfUnary<elementary<Half, hyperbolicTangent>>;
  else
    d.unknown();
}
