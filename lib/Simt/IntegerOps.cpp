//===- IntegerOps.cpp - Integer arithmetic --------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"
#include "Lanes.h"

#include <algorithm>
#include <limits>
#include <type_traits>

using namespace easyquant;
using namespace easyquant::simt;

namespace {

// Everything wraps: arithmetic is done without sign.
template <typename T>
using Wrap = std::conditional_t<sizeof(T) < 4, uint32_t, std::make_unsigned_t<T>>;
template <typename T>
using Twice = std::conditional_t<
    sizeof(T) == 8, std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>,
    std::conditional_t<std::is_signed_v<T>, std::conditional_t<sizeof(T) == 4, int64_t, int32_t>,
                       std::conditional_t<sizeof(T) == 4, uint64_t, uint32_t>>>;

constexpr auto add = []<typename T>(T a, T b) { return T(Wrap<T>(a) + Wrap<T>(b)); };
constexpr auto sub = []<typename T>(T a, T b) { return T(Wrap<T>(a) - Wrap<T>(b)); };
int32_t saturate(int64_t v) {
  using Limits = std::numeric_limits<int32_t>;
  return int32_t(std::clamp<int64_t>(v, Limits::min(), Limits::max()));
}
constexpr auto addSat = [](int32_t a, int32_t b) { return saturate(int64_t(a) + b); };
constexpr auto subSat = [](int32_t a, int32_t b) { return saturate(int64_t(a) - b); };

constexpr auto mulLo = []<typename T>(T a, T b) { return T(Wrap<T>(a) * Wrap<T>(b)); };
constexpr auto mulWide = []<typename T>(T a, T b) { return Twice<T>(a) * Twice<T>(b); };
constexpr auto mulHi = []<typename T>(T a, T b) { return T(mulWide(a, b) >> (8 * sizeof(T))); };
constexpr auto madLo = []<typename T>(T a, T b, T c) { return add(mulLo(a, b), c); };
constexpr auto madHi = []<typename T>(T a, T b, T c) { return add(mulHi(a, b), c); };
constexpr auto madHiSat = [](int32_t a, int32_t b, int32_t c) {
  return saturate(int64_t(mulHi(a, b)) + c);
};
constexpr auto madWide = []<typename T>(T a, T b, Twice<T> c) { return add(mulWide(a, b), c); };

/// 24-bit products of 32-bit operands.
template <typename T> int64_t product24(T a, T b) {
  auto low = [](T v) { return int64_t(T(Wrap<T>(v) << 8) >> 8); };
  return low(a) * low(b);
}
constexpr auto mul24Lo = []<typename T>(T a, T b) { return T(product24(a, b)); };
constexpr auto mul24Hi = []<typename T>(T a, T b) { return T(product24(a, b) >> 16); };
constexpr auto mad24Lo = []<typename T>(T a, T b, T c) { return add(mul24Lo(a, b), c); };
constexpr auto mad24Hi = []<typename T>(T a, T b, T c) { return add(mul24Hi(a, b), c); };

constexpr auto sad = []<typename T>(T a, T b, T c) {
  return add(a < b ? sub(b, a) : sub(a, b), c);
};
// Division by zero gives all ones and the dividend, as the machine does; PTX leaves it open.
constexpr auto quotientOf = []<typename T>(T a, T b) {
  if (b == 0)
    return T(-1);
  if (std::is_signed_v<T> && b == T(-1))
    return T(-Wrap<T>(a));
  return T(a / b);
};
constexpr auto moduloOf = []<typename T>(T a, T b) {
  if (b == 0)
    return a;
  return std::is_signed_v<T> && b == T(-1) ? T(0) : T(a % b);
};
constexpr auto negative = []<typename T>(T a) { return T(-Wrap<T>(a)); };
constexpr auto absolute = []<typename T>(T a) { return a < 0 ? negative(a) : a; };
constexpr auto least = []<typename T>(T a, T b) { return std::min(a, b); };
constexpr auto greatest = []<typename T>(T a, T b) { return std::max(a, b); };
constexpr auto leastRelu = [](int32_t a, int32_t b) { return std::max(std::min(a, b), 0); };
constexpr auto greatestRelu = [](int32_t a, int32_t b) { return std::max(std::max(a, b), 0); };

/// A pair of 16-bit integers.
template <typename T, auto f> uint32_t halves(uint32_t a, uint32_t b) {
  auto low = uint16_t(f(T(uint16_t(a)), T(uint16_t(b))));
  auto high = uint16_t(f(T(uint16_t(a >> 16)), T(uint16_t(b >> 16))));
  return low | uint32_t(high) << 16;
}

/// handlerFor() of all integer types.
template <typename Make> Handler integers(const Decoder &d, Type type, Make &&make) {
  return handlerFor<Type::U16, Type::S16, Type::U32, Type::S32, Type::U64, Type::S64>(d, type,
                                                                                      make);
}
template <auto f> Handler integerBinary(const Decoder &d, Type type) {
  if (type == Type::U16x2)
    return mapBinary<halves<uint16_t, f>, uint32_t>;
  if (type == Type::S16x2)
    return mapBinary<halves<int16_t, f>, uint32_t>;
  return integers(d, type, []<typename T>(T) { return mapBinary<f, T>; });
}
template <auto f> Handler integerTernary(const Decoder &d, Type type) {
  return integers(d, type, []<typename T>(T) { return mapTernary<f, T>; });
}
template <auto f> Handler signedUnary(const Decoder &d, Type type) {
  return handlerFor<Type::S16, Type::S32, Type::S64>(d, type,
                                                     []<typename T>(T) { return mapUnary<f, T>; });
}

/// The type twice as wide.
Type twice(Decoder &d, Type type) {
  switch (type) {
  case Type::U16:
    return Type::U32;
  case Type::S16:
    return Type::S32;
  case Type::U32:
    return Type::U64;
  case Type::S32:
    return Type::S64;
  default:
    d.unknown();
  }
}
/// handlerFor() of the types that have one twice as wide.
template <typename Make> Handler widened(const Decoder &d, Type type, Make &&make) {
  return handlerFor<Type::U16, Type::S16, Type::U32, Type::S32>(d, type, make);
}

// ---- carry chains ------------------------------------------------------------------------------

enum CarryFlags : uint32_t { kCarryOut = 1, kCarryIn = 2, kSubtract = 4, kHigh = 8, kProduct = 16 };

template <typename T> void carryChain(Warp &w, const Instruction &i, Mask m) {
  const T *a = w.reg<T>(i.a), *b = w.reg<T>(i.b);
  const T *c = i.flags & kProduct ? w.reg<T>(i.c) : nullptr;
  T *d = w.reg<T>(i.dst);
  forEachLane(m, [&](unsigned lane) {
    using Wide = unsigned __int128;
    T x = a[lane], y = b[lane];
    if (i.flags & kProduct) {
      Wide product = i.type == Type::S32   ? Wide(__int128(int32_t(x)) * int32_t(y))
                     : i.type == Type::S64 ? Wide(__int128(int64_t(x)) * int64_t(y))
                                           : Wide(x) * y;
      x = T(i.flags & kHigh ? product >> 8 * sizeof(T) : product);
      y = c[lane];
    }
    Wide in = i.flags & kCarryIn ? w.carry >> lane & 1 : 0;
    Wide sum;
    if (i.flags & kSubtract) // the flag is the borrow
      sum = Wide(x) - y - in;
    else
      sum = Wide(x) + y + in;
    d[lane] = T(sum);
    if (i.flags & kCarryOut)
      w.carry = (w.carry & ~(1u << lane)) | Mask(sum >> 8 * sizeof(T) & 1) << lane;
  });
}

void decodeCarry(Decoder &d, uint32_t flags) {
  if (d.accept("cc"))
    flags |= kCarryOut;
  Type type = d.type();
  if (sizeOf(type) != 4 && sizeOf(type) != 8)
    d.unknown();
  d.arithmetic(type, OpClass::Integer, flags & kProduct ? 3 : 2);
  d.i.flags = flags;
  d.i.run = sizeOf(type) == 4 ? carryChain<uint32_t> : carryChain<uint64_t>;
}

// ---- dot products ------------------------------------------------------------------------------

/// c + a · b, where a word has `count` elements of A and, from element `first` on, as many of B.
template <typename A, typename B, unsigned count, unsigned first>
uint32_t dot(uint32_t a, uint32_t b, uint32_t c) {
  for (unsigned k = 0; k < count; ++k)
    c += uint32_t(int32_t(A(a >> 8 * sizeof(A) * k)) * int32_t(B(b >> 8 * (first + k))));
  return c;
}

void decodeDot(Decoder &d) {
  bool two = d.opcode == "dp2a", high = two && d.expectAny({"lo", "hi"});
  Type aType = d.type(), bType = d.type();
  d.arithmetic(Type::B32, OpClass::Dot, 3);
  d.i.run = handlerFor<Type::U32, Type::S32>(d, aType, [&]<typename A>(A) {
    return handlerFor<Type::U32, Type::S32>(d, bType, [&]<typename B>(B) {
      using Byte = std::conditional_t<std::is_signed_v<B>, int8_t, uint8_t>;
      using First = std::conditional_t<std::is_signed_v<A>, int8_t, uint8_t>;
      using Half = std::conditional_t<std::is_signed_v<A>, int16_t, uint16_t>;
      return !two   ? mapTernary<dot<First, Byte, 4, 0>, uint32_t>
             : high ? mapTernary<dot<Half, Byte, 2, 2>, uint32_t>
                    : mapTernary<dot<Half, Byte, 2, 0>, uint32_t>;
    });
  });
}

} // namespace

// Opcodes that floats have too (add, mul, ...) come here from the float families for integer types.
void simt::decodeIntegerAdd(Decoder &d) {
  bool subtract = d.opcode == "sub";
  if (d.peekModifier() == "cc")
    return decodeCarry(d, subtract ? kSubtract : 0);
  bool sat = d.accept("sat");
  Type type = d.type();
  if (sat && type != Type::S32)
    d.unknown();
  d.arithmetic(type, OpClass::Integer, 2);
  if (sat)
    d.i.run = subtract ? mapBinary<subSat, int32_t> : mapBinary<addSat, int32_t>;
  else
    d.i.run = subtract ? integerBinary<sub>(d, type) : integerBinary<add>(d, type);
}

void simt::decodeIntegerMul(Decoder &d) {
  int half = d.expectAny({"lo", "hi", "wide"});
  Type type = d.type();
  if (type == Type::U16x2 || type == Type::S16x2)
    d.unknown();
  d.operate(OpClass::Integer, half == 2 ? twice(d, type) : type, {type, type});
  if (half == 2)
    d.i.run = widened(d, type, []<typename T>(T) { return mapBinary<mulWide, Twice<T>, T>; });
  else
    d.i.run = half ? integerBinary<mulHi>(d, type) : integerBinary<mulLo>(d, type);
}

void simt::decodeIntegerMad(Decoder &d) {
  int half = d.expectAny({"lo", "hi", "wide"});
  if (half < 2 && d.peekModifier() == "cc")
    return decodeCarry(d, kProduct | (half ? kHigh : 0));
  bool sat = d.accept("sat");
  Type type = d.type();
  if (sat && (half != 1 || type != Type::S32))
    d.unknown();
  Type wide = half == 2 ? twice(d, type) : type;
  d.operate(OpClass::Integer, wide, {type, type, wide});
  if (half == 2)
    d.i.run = widened(d, type, []<typename T>(T) { return mapTernary<madWide, Twice<T>, T>; });
  else
    d.i.run = sat    ? mapTernary<madHiSat, int32_t>
              : half ? integerTernary<madHi>(d, type)
                     : integerTernary<madLo>(d, type);
}

/// Only single integers, no pairs.
template <auto f> static void decodeDivision(Decoder &d) {
  Type type = d.type();
  d.arithmetic(type, OpClass::Integer, 2);
  if (!isInteger(type))
    d.unknown();
  d.i.run = integerBinary<f>(d, type);
}
void simt::decodeIntegerDiv(Decoder &d) { decodeDivision<quotientOf>(d); }

void simt::decodeIntegerMinMax(Decoder &d) {
  bool min = d.opcode == "min", relu = d.accept("relu");
  Type type = d.type();
  d.arithmetic(type, OpClass::Integer, 2);
  if (relu && type != Type::S32)
    d.unknown();
  if (relu)
    d.i.run = min ? mapBinary<leastRelu, int32_t> : mapBinary<greatestRelu, int32_t>;
  else
    d.i.run = min ? integerBinary<least>(d, type) : integerBinary<greatest>(d, type);
}

void simt::decodeIntegerUnary(Decoder &d) {
  Type type = d.type();
  d.arithmetic(type, OpClass::Integer, 1);
  d.i.run = d.opcode == "abs" ? signedUnary<absolute>(d, type) : signedUnary<negative>(d, type);
}

void simt::addIntegerOps(OpcodeTable &table) {
  table["rem"] = decodeDivision<moduloOf>;
  table["sad"] = [](Decoder &d) {
    Type type = d.type();
    d.arithmetic(type, OpClass::Integer, 3);
    d.i.run = integerTernary<sad>(d, type);
  };
  table["addc"] = [](Decoder &d) { decodeCarry(d, kCarryIn); };
  table["subc"] = [](Decoder &d) { decodeCarry(d, kCarryIn | kSubtract); };
  table["madc"] = [](Decoder &d) {
    decodeCarry(d, kCarryIn | kProduct | (d.expectAny({"lo", "hi"}) ? kHigh : 0));
  };
  table["mul24"] = [](Decoder &d) {
    bool high = d.expectAny({"lo", "hi"});
    Type type = d.type();
    d.arithmetic(type, OpClass::Integer, 2);
    d.i.run = handlerFor<Type::U32, Type::S32>(d, type, [&]<typename T>(T) {
      return high ? mapBinary<mul24Hi, T> : mapBinary<mul24Lo, T>;
    });
  };
  table["mad24"] = [](Decoder &d) {
    bool high = d.expectAny({"lo", "hi"});
    Type type = d.type();
    d.arithmetic(type, OpClass::Integer, 3);
    d.i.run = handlerFor<Type::U32, Type::S32>(d, type, [&]<typename T>(T) {
      return high ? mapTernary<mad24Hi, T> : mapTernary<mad24Lo, T>;
    });
  };
  table["dp4a"] = decodeDot;
  table["dp2a"] = decodeDot;
}
