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
constexpr auto plus = []<typename H>(H, float a, float b, uint32_t) {
  return narrowOnce<H>(addToOdd(a, b));
};
constexpr auto minus = []<typename H>(H, float a, float b, uint32_t) {
  return narrowOnce<H>(addToOdd(a, -double(b)));
};
constexpr auto times = []<typename H>(H, float a, float b, uint32_t) {
  return narrowOnce<H>(double(a) * double(b));
};
template <bool maximum>
constexpr auto extremum = []<typename H>(H, float a, float b, uint32_t flags) {
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
};

/// f of the values, under the flags.
template <auto f>
constexpr auto binary = []<typename H>(H half, uint16_t a, uint16_t b, uint32_t flags) {
  if (flags & kFtz)
    a = flushHalf<H>(a), b = flushHalf<H>(b);
  return finishHalf<H>(f(half, H::widen(a), H::widen(b), flags), flags);
};
constexpr auto multiplyAdd = []<typename H>(H, uint16_t a, uint16_t b, uint16_t c, uint32_t flags) {
  if (flags & kFtz)
    a = flushHalf<H>(a), b = flushHalf<H>(b), c = flushHalf<H>(c);
  double sum = addToOdd(double(H::widen(a)) * double(H::widen(b)), H::widen(c));
  return finishHalf<H>(narrowOnce<H>(sum), flags);
};
template <auto f>
constexpr auto elementary = []<typename H>(H, uint16_t a, uint32_t) {
  return H::narrow(static_cast<float>(f(double(H::widen(a)))));
};
constexpr auto absolute = [](auto, uint16_t a, uint32_t) { return uint16_t(a & 0x7fff); };
constexpr auto negative = [](auto, uint16_t a, uint32_t) { return uint16_t(a ^ 0x8000); };

/// f of the codes in registers R: one in 16 bits, two in 32.
template <typename R, typename H, unsigned sources, auto f>
void mapHalves(Warp &w, const Instruction &i, Mask m) {
  const R *a = w.reg<R>(i.a), *b = sources > 1 ? w.reg<R>(i.b) : nullptr,
          *c = sources > 2 ? w.reg<R>(i.c) : nullptr;
  auto part = [&](unsigned lane, unsigned shift) -> uint32_t {
    if constexpr (sources == 1)
      return f(H(), a[lane] >> shift, i.flags);
    else if constexpr (sources == 2)
      return f(H(), a[lane] >> shift, b[lane] >> shift, i.flags);
    else
      return f(H(), a[lane] >> shift, b[lane] >> shift, c[lane] >> shift, i.flags);
  };
  storeLanes(w.reg<R>(i.dst), m, [&](unsigned lane) -> R {
    if constexpr (sizeof(R) == 2)
      return part(lane, 0);
    else
      return part(lane, 0) | part(lane, 16) << 16;
  });
}

template <unsigned sources, auto f> Handler halfHandler(Type type) {
  bool isPair = type == Type::F16x2 || type == Type::BF16x2;
  if (type == Type::BF16 || type == Type::BF16x2)
    return isPair ? mapHalves<uint32_t, BFloat, sources, f>
                  : mapHalves<uint16_t, BFloat, sources, f>;
  return isPair ? mapHalves<uint32_t, Half, sources, f> : mapHalves<uint16_t, Half, sources, f>;
}

} // namespace

void simt::decodeHalfBinary(Decoder &d) {
  bool isExtremum = d.opcode == "min" || d.opcode == "max";
  uint32_t flags = 0;
  d.accept("rn");
  if (d.peekModifier() == "f32")
    return decodeMixed(d);
  flags |= d.accept("ftz") ? kFtz : 0;
  flags |= !isExtremum && d.accept("sat") ? kSat : 0;
  flags |= isExtremum && d.accept("NaN") ? kNaN : 0;
  if (isExtremum && d.accept("xorsign")) {
    d.expect("abs");
    flags |= kXorSign;
  }
  Type type = d.type();
  d.arithmetic(type, OpClass::Half, 2);
  d.i.flags = flags;
  d.i.run = d.opcode == "add"   ? halfHandler<2, binary<plus>>(type)
            : d.opcode == "sub" ? halfHandler<2, binary<minus>>(type)
            : d.opcode == "mul" ? halfHandler<2, binary<times>>(type)
            : d.opcode == "min" ? halfHandler<2, binary<extremum<false>>>(type)
                                : halfHandler<2, binary<extremum<true>>>(type);
}

void simt::decodeHalfFma(Decoder &d) {
  uint32_t flags = 0;
  d.expect("rn");
  if (d.peekModifier() == "f32")
    return decodeMixed(d);
  flags |= d.accept("ftz") ? kFtz : 0;
  flags |= d.accept("sat") ? kSat : 0;
  flags |= d.accept("relu") ? kRelu : 0;
  Type type = d.type();
  d.arithmetic(type, OpClass::Half, 3);
  d.i.flags = flags;
  d.i.run = halfHandler<3, multiplyAdd>(type);
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
  if (d.opcode == "abs")
    d.i.run = halfHandler<1, absolute>(type);
  else if (d.opcode == "neg")
    d.i.run = halfHandler<1, negative>(type);
  else if (d.opcode == "ex2")
    d.i.run = halfHandler<1, elementary<[](double x) { return std::exp2(x); }>>(type);
  else if (d.opcode == "tanh")
    d.i.run = halfHandler<1, elementary<[](double x) { return std::tanh(x); }>>(type);
  else
    d.unknown();
}
