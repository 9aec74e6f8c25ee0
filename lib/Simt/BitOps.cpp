//===- BitOps.cpp - Logic, shifts and bit fields --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"
#include "Lanes.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <type_traits>

using namespace easyquant;
using namespace easyquant::simt;

namespace {

constexpr auto logicalNot = []<typename T>(T a) { return T(a == 0); };
// Shift amounts beyond the width give zero, or the sign.
constexpr auto shiftLeft = []<typename T>(T a, uint32_t n) {
  constexpr uint32_t bits = 8 * sizeof(T);
  return n >= bits ? T(0) : T(a << (n & (bits - 1)));
};
constexpr auto shiftRight = []<typename T>(T a, uint32_t n) {
  constexpr uint32_t bits = 8 * sizeof(T);
  if (std::is_signed_v<T>)
    return T(a >> std::min(n, bits - 1));
  return n >= bits ? T(0) : T(a >> (n & (bits - 1)));
};
template <bool left, bool wrap> uint32_t funnel(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t n = wrap ? c & 31 : std::min(c, 32u);
  uint64_t pair = uint64_t(b) << 32 | a;
  return left ? uint32_t((pair << n) >> 32) : uint32_t(pair >> n);
}
constexpr auto reverse = []<typename T>(T a) {
  uint64_t v = a;
  v = (v & 0x5555555555555555) << 1 | (v >> 1 & 0x5555555555555555);
  v = (v & 0x3333333333333333) << 2 | (v >> 2 & 0x3333333333333333);
  v = (v & 0x0f0f0f0f0f0f0f0f) << 4 | (v >> 4 & 0x0f0f0f0f0f0f0f0f);
  return T(__builtin_bswap64(v) >> (64 - 8 * sizeof(T)));
};
/// Position of the highest bit that is no sign; all ones: there is none.
template <typename T, bool shiftAmount> uint32_t findBit(T a) {
  using U = std::make_unsigned_t<T>;
  U bits = std::is_signed_v<T> && a < 0 ? ~U(a) : U(a);
  if (!bits)
    return ~0u;
  uint32_t position = 8 * sizeof(T) - 1 - std::countl_zero(bits);
  return shiftAmount ? 8 * sizeof(T) - 1 - position : position;
}
template <typename T> T extractField(T a, uint32_t b, uint32_t c) {
  using U = std::make_unsigned_t<T>;
  constexpr uint32_t bits = 8 * sizeof(T);
  uint32_t position = b & 0xff, length = c & 0xff;
  if (length == 0)
    return 0;
  // The sign is the field's top bit, or the operand's where the field goes beyond it.
  uint32_t top = std::min(position + length - 1, bits - 1);
  bool negative = std::is_signed_v<T> && (U(a) >> top & 1);
  U field = position >= bits ? 0 : U(a) >> position;
  uint32_t have = position >= bits ? 0 : std::min(length, bits - position);
  U mask = have == 0 ? 0 : ~U(0) >> (bits - have);
  return T((field & mask) | (negative ? ~mask : 0));
}
template <typename T> T insertField(T a, T b, uint32_t c, uint32_t d) {
  constexpr uint32_t bits = 8 * sizeof(T);
  uint32_t position = c & 0xff, length = d & 0xff;
  if (position >= bits || length == 0)
    return b;
  T mask = (length >= bits ? ~T(0) : (T(1) << length) - 1) << position;
  return (b & ~mask) | ((a << position) & mask);
}
template <typename T> void bitFieldInsert(Warp &w, const Instruction &i, Mask m) {
  const T *a = w.reg<T>(i.a), *b = w.reg<T>(i.b);
  const uint32_t *c = w.reg<uint32_t>(i.c), *n = w.reg<uint32_t>(i.d);
  storeLanes(w.reg<T>(i.dst), m,
             [&](unsigned lane) { return insertField<T>(a[lane], b[lane], c[lane], n[lane]); });
}
template <bool clamp> uint32_t bitMask(uint32_t position, uint32_t length) {
  if (!clamp)
    position &= 31, length &= 31;
  if (position >= 32 || length == 0)
    return 0;
  uint32_t ones = length >= 32 ? ~0u : (1u << length) - 1;
  return ones << position;
}
template <typename T, bool clamp> T signZeroExtend(T a, uint32_t n) {
  if (!clamp)
    n &= 31;
  if (n >= 32)
    return a;
  if (n == 0)
    return 0;
  return T(uint32_t(a) << (32 - n)) >> (32 - n);
}

/// The truth table of lop3, as the terms that it has.
void lop3(Warp &w, const Instruction &i, Mask m) {
  const uint32_t *a = w.reg<uint32_t>(i.a), *b = w.reg<uint32_t>(i.b), *c = w.reg<uint32_t>(i.c);
  uint32_t term[8];
  for (unsigned k = 0; k < 8; ++k)
    term[k] = i.flags >> k & 1 ? ~0u : 0;
  storeLanes(w.reg<uint32_t>(i.dst), m, [&](unsigned lane) {
    uint32_t x = a[lane], y = b[lane], z = c[lane];
    return (term[0] & ~x & ~y & ~z) | (term[1] & ~x & ~y & z) | (term[2] & ~x & y & ~z) |
           (term[3] & ~x & y & z) | (term[4] & x & ~y & ~z) | (term[5] & x & ~y & z) |
           (term[6] & x & y & ~z) | (term[7] & x & y & z);
  });
}

uint32_t permuteByte(uint64_t bytes, uint32_t selector) {
  auto byte = static_cast<uint8_t>(bytes >> 8 * (selector & 7));
  return selector & 8 ? (byte & 0x80 ? 0xff : 0) : byte;
}
/// The selectors that a mode of prmt stands for, by the two low bits of c.
uint32_t permuteSelector(uint32_t mode, uint32_t c) {
  static constexpr uint16_t table[7][4] = {{},
                                           {0x3210, 0x4321, 0x5432, 0x6543},
                                           {0x5670, 0x6701, 0x7012, 0x0123},
                                           {0x0000, 0x1111, 0x2222, 0x3333},
                                           {0x3210, 0x3211, 0x3222, 0x3333},
                                           {0x0000, 0x1110, 0x2210, 0x3210},
                                           {0x1010, 0x3232, 0x1010, 0x3232}};
  return mode ? table[mode][c & 3] : c;
}
void prmt(Warp &w, const Instruction &i, Mask m) {
  const uint32_t *a = w.reg<uint32_t>(i.a), *b = w.reg<uint32_t>(i.b), *c = w.reg<uint32_t>(i.c);
  storeLanes(w.reg<uint32_t>(i.dst), m, [&](unsigned lane) {
    uint64_t bytes = uint64_t(b[lane]) << 32 | a[lane];
    uint32_t selector = permuteSelector(i.flags, c[lane]);
    return permuteByte(bytes, selector) | permuteByte(bytes, selector >> 4) << 8 |
           permuteByte(bytes, selector >> 8) << 16 | permuteByte(bytes, selector >> 12) << 24;
  });
}

/// The offset-th set bit from position base upwards, or downwards if negative.
void fns(Warp &w, const Instruction &i, Mask m) {
  const uint32_t *a = w.reg<uint32_t>(i.a), *b = w.reg<uint32_t>(i.b);
  const int32_t *c = w.reg<int32_t>(i.c);
  forEachLane(m, [&](unsigned lane) {
    uint32_t result = ~0u;
    int64_t at = b[lane], left = c[lane] ? std::abs(int64_t(c[lane])) : 0;
    int step = c[lane] < 0 ? -1 : 1;
    if (left == 0)
      result = at < 32 && a[lane] >> at & 1 ? at : ~0u;
    else
      for (; at >= 0 && at < 32; at += step)
        if (a[lane] >> at & 1 && --left == 0) {
          result = at;
          break;
        }
    w.reg<uint32_t>(i.dst)[lane] = result;
  });
}

// ---- predicates --------------------------------------------------------------------------------

/// One or two operands of any width, also predicates.
template <auto f, unsigned sources> void decodeLogic(Decoder &d) {
  Type type = d.type();
  d.arithmetic(type, OpClass::Integer, sources);
  if (type == Type::Pred)
    d.i.run = [](Warp &w, const Instruction &i, Mask m) {
      if constexpr (sources == 2)
        w.setPredicate(i.dst, m, f(w.predicate(i.a), w.predicate(i.b)));
      else
        w.setPredicate(i.dst, m, f(w.predicate(i.a)));
    };
  else
    d.i.run = handlerFor<Type::B16, Type::B32, Type::B64>(
        d, type, []<typename T>(T) { return mapAll<f, T, sources>; });
}

template <auto f> Handler shift(const Decoder &d, Type type) {
  return handlerFor<Type::B16, Type::U16, Type::B32, Type::U32, Type::B64, Type::U64, Type::S16,
                    Type::S32, Type::S64>(
      d, type, []<typename T>(T) { return mapBinary<f, T, T, uint32_t>; });
}

void decodeShift(Decoder &d) {
  bool left = d.opcode == "shl";
  Type type = d.type();
  d.operate(OpClass::Integer, type, {type, Type::U32});
  if (left && !isBits(type))
    d.unknown();
  d.i.run = left ? shift<shiftLeft>(d, type) : shift<shiftRight>(d, type);
}

/// One operand of 32 or 64 bits; the result has as many, or 32.
template <auto f, bool wide> void decodeBits(Decoder &d) {
  Type type = d.type();
  d.operate(OpClass::Integer, wide ? type : Type::U32, {type});
  d.i.run = handlerFor<Type::B32, Type::B64>(
      d, type, []<typename T>(T) { return mapUnary<f, std::conditional_t<wide, T, uint32_t>, T>; });
}

/// handlerFor() of the integers of 32 and 64 bits.
template <typename Make> Handler wideIntegers(const Decoder &d, Type type, Make &&make) {
  return handlerFor<Type::U32, Type::S32, Type::U64, Type::S64>(d, type, make);
}

} // namespace

void simt::addBitOps(OpcodeTable &table) {
  table["and"] = decodeLogic<std::bit_and<>{}, 2>;
  table["or"] = decodeLogic<std::bit_or<>{}, 2>;
  table["xor"] = decodeLogic<std::bit_xor<>{}, 2>;
  table["not"] = decodeLogic<std::bit_not<>{}, 1>;
  table["cnot"] = [](Decoder &d) {
    if (d.lastType() == Type::Pred)
      d.unknown();
    decodeLogic<logicalNot, 1>(d);
  };
  table["shl"] = decodeShift;
  table["shr"] = decodeShift;
  table["shf"] = [](Decoder &d) {
    int side = d.expectAny({"l", "r"}), mode = d.expectAny({"clamp", "wrap"});
    d.expect("b32");
    d.arithmetic(Type::B32, OpClass::Integer, 3);
    if (side == 0)
      d.i.run = mode ? mapTernary<funnel<true, true>, uint32_t>
                     : mapTernary<funnel<true, false>, uint32_t>;
    else
      d.i.run = mode ? mapTernary<funnel<false, true>, uint32_t>
                     : mapTernary<funnel<false, false>, uint32_t>;
  };
  table["lop3"] = [](Decoder &d) {
    d.expect("b32"); // .BoolOp with a predicate is not taken
    d.arithmetic(Type::B32, OpClass::Integer, 3);
    d.i.flags = d.immediate() & 0xff;
    d.i.run = lop3;
  };
  table["prmt"] = [](Decoder &d) {
    d.expect("b32");
    d.i.flags = 1 + d.acceptAny({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
    d.arithmetic(Type::B32, OpClass::Integer, 3);
    d.i.run = prmt;
  };
  table["popc"] = decodeBits<[]<typename T>(T a) { return std::popcount(a); }, false>;
  table["clz"] = decodeBits<[]<typename T>(T a) { return std::countl_zero(a); }, false>;
  table["brev"] = decodeBits<reverse, true>;
  table["bfind"] = [](Decoder &d) {
    bool shiftAmount = d.accept("shiftamt");
    Type type = d.type();
    d.operate(OpClass::Integer, Type::U32, {type});
    d.i.run = wideIntegers(d, type, [&]<typename T>(T) {
      return shiftAmount ? mapUnary<findBit<T, true>, uint32_t, T>
                         : mapUnary<findBit<T, false>, uint32_t, T>;
    });
  };
  table["bfe"] = [](Decoder &d) {
    Type type = d.type();
    d.operate(OpClass::Integer, type, {type, Type::U32, Type::U32});
    d.i.run = wideIntegers(d, type, []<typename T>(T) {
      return mapTernary<extractField<T>, T, T, uint32_t, uint32_t>;
    });
  };
  table["bfi"] = [](Decoder &d) {
    Type type = d.type();
    d.operate(OpClass::Integer, type, {type, type, Type::U32, Type::U32});
    d.i.run =
        handlerFor<Type::B32, Type::B64>(d, type, []<typename T>(T) { return bitFieldInsert<T>; });
  };
  table["bmsk"] = [](Decoder &d) {
    int mode = d.expectAny({"clamp", "wrap"});
    d.expect("b32");
    d.arithmetic(Type::B32, OpClass::Integer, 2);
    d.i.run = mode == 0 ? mapBinary<bitMask<true>, uint32_t> : mapBinary<bitMask<false>, uint32_t>;
  };
  table["szext"] = [](Decoder &d) {
    int mode = d.expectAny({"clamp", "wrap"});
    Type type = d.type();
    d.operate(OpClass::Integer, type, {type, Type::U32});
    d.i.run = handlerFor<Type::U32, Type::S32>(d, type, [&]<typename T>(T) {
      return mode == 0 ? mapBinary<signZeroExtend<T, true>, T, T, uint32_t>
                       : mapBinary<signZeroExtend<T, false>, T, T, uint32_t>;
    });
  };
  table["fns"] = [](Decoder &d) {
    d.expect("b32");
    d.arithmetic(Type::B32, OpClass::Integer, 3);
    d.i.run = fns;
  };
}
