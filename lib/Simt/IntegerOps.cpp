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

template <typename T> struct Add {
  T operator()(T a, T b) const { return T(Wrap<T>(a) + Wrap<T>(b)); }
};
template <typename T> struct Sub {
  T operator()(T a, T b) const { return T(Wrap<T>(a) - Wrap<T>(b)); }
};
template <typename T> T saturate(int64_t v) {
  return T(std::min<int64_t>(std::max<int64_t>(v, std::numeric_limits<T>::min()),
                             std::numeric_limits<T>::max()));
}
template <typename T> struct AddSat {
  T operator()(T a, T b) const { return saturate<T>(int64_t(a) + int64_t(b)); }
};
template <typename T> struct SubSat {
  T operator()(T a, T b) const { return saturate<T>(int64_t(a) - int64_t(b)); }
};
template <typename T> struct MulLo {
  T operator()(T a, T b) const { return T(Wrap<T>(a) * Wrap<T>(b)); }
};
template <typename T> struct MulHi {
  T operator()(T a, T b) const { return T((Twice<T>(a) * Twice<T>(b)) >> (8 * sizeof(T))); }
};
template <typename T> struct MulWide {
  Twice<T> operator()(T a, T b) const { return Twice<T>(a) * Twice<T>(b); }
};
template <typename T> struct MadLo {
  T operator()(T a, T b, T c) const { return T(Wrap<T>(a) * Wrap<T>(b) + Wrap<T>(c)); }
};
template <typename T> struct MadHi {
  T operator()(T a, T b, T c) const { return T(Wrap<T>(MulHi<T>()(a, b)) + Wrap<T>(c)); }
};
struct MadHiSat {
  int32_t operator()(int32_t a, int32_t b, int32_t c) const {
    return saturate<int32_t>(int64_t(MulHi<int32_t>()(a, b)) + c);
  }
};
template <typename T> struct MadWide {
  Twice<T> operator()(T a, T b, Twice<T> c) const {
    using W = Wrap<Twice<T>>;
    return Twice<T>(W(Twice<T>(a) * Twice<T>(b)) + W(c));
  }
};
/// 24-bit products of 32-bit operands.
template <typename T> int64_t product24(T a, T b) {
  auto low = [](T v) { return int64_t(T(Wrap<T>(v) << 8) >> 8); };
  return low(a) * low(b);
}
template <typename T> struct Mul24Lo {
  T operator()(T a, T b) const { return T(product24(a, b)); }
};
template <typename T> struct Mul24Hi {
  T operator()(T a, T b) const { return T(product24(a, b) >> 16); }
};
template <typename T> struct Mad24Lo {
  T operator()(T a, T b, T c) const { return T(uint32_t(product24(a, b)) + uint32_t(c)); }
};
template <typename T> struct Mad24Hi {
  T operator()(T a, T b, T c) const { return T(uint32_t(product24(a, b) >> 16) + uint32_t(c)); }
};
template <typename T> struct Sad {
  T operator()(T a, T b, T c) const {
    return T(Wrap<T>(c) + (a < b ? Wrap<T>(b) - Wrap<T>(a) : Wrap<T>(a) - Wrap<T>(b)));
  }
};
// Division by zero gives all ones and the dividend, as the machine does; PTX leaves it open.
template <typename T> struct Div {
  T operator()(T a, T b) const {
    if (b == 0)
      return T(-1);
    if (std::is_signed_v<T> && b == T(-1))
      return T(-Wrap<T>(a));
    return a / b;
  }
};
template <typename T> struct Rem {
  T operator()(T a, T b) const {
    if (b == 0)
      return a;
    return std::is_signed_v<T> && b == T(-1) ? T(0) : T(a % b);
  }
};
template <typename T> struct Abs {
  T operator()(T a) const { return a < 0 ? T(-Wrap<T>(a)) : a; }
};
template <typename T> struct Neg {
  T operator()(T a) const { return T(-Wrap<T>(a)); }
};
template <typename T> struct Min {
  T operator()(T a, T b) const { return std::min(a, b); }
};
template <typename T> struct Max {
  T operator()(T a, T b) const { return std::max(a, b); }
};
struct MinRelu {
  int32_t operator()(int32_t a, int32_t b) const { return std::max(std::min(a, b), 0); }
};
struct MaxRelu {
  int32_t operator()(int32_t a, int32_t b) const { return std::max(std::max(a, b), 0); }
};
/// A pair of 16-bit integers.
template <typename T, template <typename> class F> struct Halves {
  uint32_t operator()(uint32_t a, uint32_t b) const {
    uint16_t low = uint16_t(F<T>()(T(uint16_t(a)), T(uint16_t(b))));
    uint16_t high = uint16_t(F<T>()(T(uint16_t(a >> 16)), T(uint16_t(b >> 16))));
    return low | uint32_t(high) << 16;
  }
};

template <typename T, template <typename> class F>
constexpr Handler binary = mapBinary<T, T, T, F<T>>;

/// Handlers of all integer types of F.
template <template <typename> class F> Handler integerBinary(Decoder &d, Type type) {
  switch (type) {
  case Type::U16:
    return binary<uint16_t, F>;
  case Type::S16:
    return binary<int16_t, F>;
  case Type::U32:
    return binary<uint32_t, F>;
  case Type::S32:
    return binary<int32_t, F>;
  case Type::U64:
    return binary<uint64_t, F>;
  case Type::S64:
    return binary<int64_t, F>;
  case Type::U16x2:
    return mapBinary<uint32_t, uint32_t, uint32_t, Halves<uint16_t, F>>;
  case Type::S16x2:
    return mapBinary<uint32_t, uint32_t, uint32_t, Halves<int16_t, F>>;
  default:
    d.unknown();
  }
}
template <template <typename> class F> Handler integerTernary(Decoder &d, Type type) {
  switch (type) {
  case Type::U16:
    return mapTernary<uint16_t, uint16_t, uint16_t, uint16_t, F<uint16_t>>;
  case Type::S16:
    return mapTernary<int16_t, int16_t, int16_t, int16_t, F<int16_t>>;
  case Type::U32:
    return mapTernary<uint32_t, uint32_t, uint32_t, uint32_t, F<uint32_t>>;
  case Type::S32:
    return mapTernary<int32_t, int32_t, int32_t, int32_t, F<int32_t>>;
  case Type::U64:
    return mapTernary<uint64_t, uint64_t, uint64_t, uint64_t, F<uint64_t>>;
  case Type::S64:
    return mapTernary<int64_t, int64_t, int64_t, int64_t, F<int64_t>>;
  default:
    d.unknown();
  }
}
template <template <typename> class F> Handler signedUnary(Decoder &d, Type type) {
  switch (type) {
  case Type::S16:
    return mapUnary<int16_t, int16_t, F<int16_t>>;
  case Type::S32:
    return mapUnary<int32_t, int32_t, F<int32_t>>;
  case Type::S64:
    return mapUnary<int64_t, int64_t, F<int64_t>>;
  default:
    d.unknown();
  }
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
template <template <typename> class F> Handler wideBinary(Decoder &d, Type type) {
  switch (type) {
  case Type::U16:
    return mapBinary<uint32_t, uint16_t, uint16_t, F<uint16_t>>;
  case Type::S16:
    return mapBinary<int32_t, int16_t, int16_t, F<int16_t>>;
  case Type::U32:
    return mapBinary<uint64_t, uint32_t, uint32_t, F<uint32_t>>;
  case Type::S32:
    return mapBinary<int64_t, int32_t, int32_t, F<int32_t>>;
  default:
    d.unknown();
  }
}
template <template <typename> class F> Handler wideTernary(Decoder &d, Type type) {
  switch (type) {
  case Type::U16:
    return mapTernary<uint32_t, uint16_t, uint16_t, uint32_t, F<uint16_t>>;
  case Type::S16:
    return mapTernary<int32_t, int16_t, int16_t, int32_t, F<int16_t>>;
  case Type::U32:
    return mapTernary<uint64_t, uint32_t, uint32_t, uint64_t, F<uint32_t>>;
  case Type::S32:
    return mapTernary<int64_t, int32_t, int32_t, int64_t, F<int32_t>>;
  default:
    d.unknown();
  }
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
  if (flags & kProduct) {
    if (d.accept("hi"))
      flags |= kHigh;
    else if (!d.accept("lo"))
      d.unknown();
  }
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

template <bool aSigned, bool bSigned> struct Dot4 {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    for (unsigned k = 0; k < 4; ++k) {
      int32_t x = aSigned ? int8_t(a >> 8 * k) : uint8_t(a >> 8 * k);
      int32_t y = bSigned ? int8_t(b >> 8 * k) : uint8_t(b >> 8 * k);
      c += uint32_t(x * y);
    }
    return c;
  }
};
template <bool aSigned, bool bSigned, unsigned first> struct Dot2 {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    for (unsigned k = 0; k < 2; ++k) {
      int32_t x = aSigned ? int16_t(a >> 16 * k) : uint16_t(a >> 16 * k);
      int32_t y = bSigned ? int8_t(b >> 8 * (first + k)) : uint8_t(b >> 8 * (first + k));
      c += uint32_t(x * y);
    }
    return c;
  }
};
template <typename F> constexpr Handler dot = mapTernary<uint32_t, uint32_t, uint32_t, uint32_t, F>;

void decodeDot(Decoder &d) {
  bool two = d.opcode == "dp2a", high = two && d.accept("hi");
  if (two && !high && !d.accept("lo"))
    d.unknown();
  Type a = d.type(), b = d.type();
  if (sizeOf(a) != 4 || !isInteger(a) || sizeOf(b) != 4 || !isInteger(b))
    d.unknown();
  d.arithmetic(Type::B32, OpClass::Dot, 3);
  int kind = 2 * isSigned(a) + isSigned(b);
  static constexpr Handler four[] = {dot<Dot4<false, false>>, dot<Dot4<false, true>>,
                                     dot<Dot4<true, false>>, dot<Dot4<true, true>>};
  static constexpr Handler low[] = {dot<Dot2<false, false, 0>>, dot<Dot2<false, true, 0>>,
                                    dot<Dot2<true, false, 0>>, dot<Dot2<true, true, 0>>};
  static constexpr Handler upper[] = {dot<Dot2<false, false, 2>>, dot<Dot2<false, true, 2>>,
                                      dot<Dot2<true, false, 2>>, dot<Dot2<true, true, 2>>};
  d.i.run = !two ? four[kind] : high ? upper[kind] : low[kind];
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
    d.i.run = subtract ? binary<int32_t, SubSat> : binary<int32_t, AddSat>;
  else
    d.i.run = subtract ? integerBinary<Sub>(d, type) : integerBinary<Add>(d, type);
}

void simt::decodeIntegerMul(Decoder &d) {
  int half = d.acceptAny({"lo", "hi", "wide"});
  Type type = d.type();
  d.i.type = type;
  d.i.opClass = OpClass::Integer;
  if (half < 0 || type == Type::U16x2 || type == Type::S16x2)
    d.unknown();
  d.i.dst = d.write(half == 2 ? twice(d, type) : type);
  d.i.a = d.read(type);
  d.i.b = d.read(type);
  d.i.run = half == 2   ? wideBinary<MulWide>(d, type)
            : half == 1 ? integerBinary<MulHi>(d, type)
                        : integerBinary<MulLo>(d, type);
}

void simt::decodeIntegerMad(Decoder &d) {
  int half = d.acceptAny({"lo", "hi", "wide"});
  if (half < 0)
    d.unknown();
  if (d.peekModifier() == "cc") {
    uint32_t flags = kProduct | kCarryOut | (half == 1 ? kHigh : 0);
    d.accept("cc");
    Type type = d.type();
    d.arithmetic(type, OpClass::Integer, 3);
    d.i.flags = flags;
    d.i.run = sizeOf(type) == 8 ? carryChain<uint64_t> : carryChain<uint32_t>;
    return;
  }
  bool sat = d.accept("sat");
  Type type = d.type();
  if (sat && (half != 1 || type != Type::S32))
    d.unknown();
  d.i.type = type;
  d.i.opClass = OpClass::Integer;
  Type wide = half == 2 ? twice(d, type) : type;
  d.i.dst = d.write(wide);
  d.i.a = d.read(type);
  d.i.b = d.read(type);
  d.i.c = d.read(wide);
  d.i.run = sat         ? mapTernary<int32_t, int32_t, int32_t, int32_t, MadHiSat>
            : half == 2 ? wideTernary<MadWide>(d, type)
            : half == 1 ? integerTernary<MadHi>(d, type)
                        : integerTernary<MadLo>(d, type);
}

void simt::decodeIntegerDiv(Decoder &d) {
  Type type = d.type();
  d.arithmetic(type, OpClass::Integer, 2);
  if (!isInteger(type))
    d.unknown();
  d.i.run = integerBinary<Div>(d, type);
}

void simt::decodeIntegerMinMax(Decoder &d) {
  bool min = d.opcode == "min", relu = d.accept("relu");
  Type type = d.type();
  d.arithmetic(type, OpClass::Integer, 2);
  if (relu && type != Type::S32)
    d.unknown();
  if (relu)
    d.i.run = min ? mapBinary<int32_t, int32_t, int32_t, MinRelu>
                  : mapBinary<int32_t, int32_t, int32_t, MaxRelu>;
  else
    d.i.run = min ? integerBinary<Min>(d, type) : integerBinary<Max>(d, type);
}

void simt::decodeIntegerUnary(Decoder &d) {
  Type type = d.type();
  d.arithmetic(type, OpClass::Integer, 1);
  d.i.run = d.opcode == "abs" ? signedUnary<Abs>(d, type) : signedUnary<Neg>(d, type);
}

void simt::addIntegerOps(OpcodeTable &table) {
  table["rem"] = [](Decoder &d) {
    Type type = d.type();
    d.arithmetic(type, OpClass::Integer, 2);
    if (!isInteger(type))
      d.unknown();
    d.i.run = integerBinary<Rem>(d, type);
  };
  table["sad"] = [](Decoder &d) {
    Type type = d.type();
    d.arithmetic(type, OpClass::Integer, 3);
    d.i.run = integerTernary<Sad>(d, type);
  };
  table["addc"] = [](Decoder &d) { decodeCarry(d, kCarryIn); };
  table["subc"] = [](Decoder &d) { decodeCarry(d, kCarryIn | kSubtract); };
  table["madc"] = [](Decoder &d) { decodeCarry(d, kCarryIn | kProduct); };
  table["mul24"] = [](Decoder &d) {
    int half = d.acceptAny({"lo", "hi"});
    Type type = d.type();
    if (half < 0 || sizeOf(type) != 4 || !isInteger(type))
      d.unknown();
    d.arithmetic(type, OpClass::Integer, 2);
    if (isSigned(type))
      d.i.run = half ? binary<int32_t, Mul24Hi> : binary<int32_t, Mul24Lo>;
    else
      d.i.run = half ? binary<uint32_t, Mul24Hi> : binary<uint32_t, Mul24Lo>;
  };
  table["mad24"] = [](Decoder &d) {
    int half = d.acceptAny({"lo", "hi"});
    Type type = d.type();
    if (half < 0 || sizeOf(type) != 4 || !isInteger(type))
      d.unknown();
    d.arithmetic(type, OpClass::Integer, 3);
    if (isSigned(type))
      d.i.run = half ? mapTernary<int32_t, int32_t, int32_t, int32_t, Mad24Hi<int32_t>>
                     : mapTernary<int32_t, int32_t, int32_t, int32_t, Mad24Lo<int32_t>>;
    else
      d.i.run = half ? mapTernary<uint32_t, uint32_t, uint32_t, uint32_t, Mad24Hi<uint32_t>>
                     : mapTernary<uint32_t, uint32_t, uint32_t, uint32_t, Mad24Lo<uint32_t>>;
  };
  table["dp4a"] = decodeDot;
  table["dp2a"] = decodeDot;
}
