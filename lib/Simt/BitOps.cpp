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
#include <type_traits>

using namespace easyquant;
using namespace easyquant::simt;

namespace {

template <typename T> struct And {
  T operator()(T a, T b) const { return a & b; }
};
template <typename T> struct Or {
  T operator()(T a, T b) const { return a | b; }
};
template <typename T> struct Xor {
  T operator()(T a, T b) const { return a ^ b; }
};
template <typename T> struct Not {
  T operator()(T a) const { return ~a; }
};
template <typename T> struct LogicalNot {
  T operator()(T a) const { return a == 0; }
};
/// Shift amounts beyond the width give zero, or the sign.
template <typename T> struct ShiftLeft {
  T operator()(T a, uint32_t n) const {
    constexpr uint32_t bits = 8 * sizeof(T);
    return n >= bits ? T(0) : T(std::make_unsigned_t<T>(a) << (n & (bits - 1)));
  }
};
template <typename T> struct ShiftRight {
  T operator()(T a, uint32_t n) const {
    constexpr uint32_t bits = 8 * sizeof(T);
    if (std::is_signed_v<T>)
      return T(a >> std::min(n, bits - 1));
    return n >= bits ? T(0) : T(a >> (n & (bits - 1)));
  }
};
template <bool left, bool wrap> struct Funnel {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    uint32_t n = wrap ? c & 31 : std::min(c, 32u);
    uint64_t pair = uint64_t(b) << 32 | a;
    return left ? uint32_t((pair << n) >> 32) : uint32_t(pair >> n);
  }
};
template <typename T> struct PopCount {
  uint32_t operator()(T a) const { return std::popcount(a); }
};
template <typename T> struct LeadingZeros {
  uint32_t operator()(T a) const { return std::countl_zero(a); }
};
template <typename T> struct Reverse {
  T operator()(T a) const {
    uint64_t v = a;
    v = (v & 0x5555555555555555) << 1 | (v >> 1 & 0x5555555555555555);
    v = (v & 0x3333333333333333) << 2 | (v >> 2 & 0x3333333333333333);
    v = (v & 0x0f0f0f0f0f0f0f0f) << 4 | (v >> 4 & 0x0f0f0f0f0f0f0f0f);
    return T(__builtin_bswap64(v) >> (64 - 8 * sizeof(T)));
  }
};
/// Position of the highest bit that is no sign; all ones: there is none.
template <typename T, bool shiftAmount> struct FindBit {
  uint32_t operator()(T a) const {
    using U = std::make_unsigned_t<T>;
    U bits = std::is_signed_v<T> && a < 0 ? ~U(a) : U(a);
    if (!bits)
      return ~0u;
    uint32_t position = 8 * sizeof(T) - 1 - std::countl_zero(bits);
    return shiftAmount ? 8 * sizeof(T) - 1 - position : position;
  }
};
template <typename T> struct ExtractField {
  T operator()(T a, uint32_t b, uint32_t c) const {
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
};
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
template <bool clamp> struct BitMask {
  uint32_t operator()(uint32_t position, uint32_t length) const {
    if (!clamp)
      position &= 31, length &= 31;
    if (position >= 32 || length == 0)
      return 0;
    uint32_t ones = length >= 32 ? ~0u : (1u << length) - 1;
    return ones << position;
  }
};
template <typename T, bool clamp> struct SignZeroExtend {
  T operator()(T a, uint32_t n) const {
    if (!clamp)
      n &= 31;
    if (n >= 32)
      return a;
    if (n == 0)
      return 0;
    return T(uint32_t(a) << (32 - n)) >> (32 - n);
  }
};

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

template <typename F> void predicateLogic(Warp &w, const Instruction &i, Mask m) {
  w.setPredicate(i.dst, m, F()(w.predicate(i.a), i.b == kNoSlot ? 0 : w.predicate(i.b)));
}
struct NotFirst {
  Mask operator()(Mask a, Mask) const { return ~a; }
};

template <template <typename> class F> void decodeLogic(Decoder &d) {
  Type type = d.type();
  d.i.dst = d.write(type);
  d.i.a = d.read(type);
  d.i.b = d.read(type);
  d.i.opClass = OpClass::Integer;
  switch (type) {
  case Type::Pred:
    d.i.run = predicateLogic<F<Mask>>;
    break;
  case Type::B16:
    d.i.run = mapBinary<uint16_t, uint16_t, uint16_t, F<uint16_t>>;
    break;
  case Type::B32:
    d.i.run = mapBinary<uint32_t, uint32_t, uint32_t, F<uint32_t>>;
    break;
  case Type::B64:
    d.i.run = mapBinary<uint64_t, uint64_t, uint64_t, F<uint64_t>>;
    break;
  default:
    d.unknown();
  }
}

template <typename T, template <typename> class F>
constexpr Handler shift = mapBinary<T, T, uint32_t, F<T>>;

void decodeShift(Decoder &d) {
  bool left = d.opcode == "shl";
  Type type = d.type();
  d.i.dst = d.write(type);
  d.i.a = d.read(type);
  d.i.b = d.read(Type::U32);
  d.i.opClass = OpClass::Integer;
  if (left && !isBits(type))
    d.unknown();
  switch (type) {
  case Type::B16:
  case Type::U16:
    d.i.run = left ? shift<uint16_t, ShiftLeft> : shift<uint16_t, ShiftRight>;
    break;
  case Type::B32:
  case Type::U32:
    d.i.run = left ? shift<uint32_t, ShiftLeft> : shift<uint32_t, ShiftRight>;
    break;
  case Type::B64:
  case Type::U64:
    d.i.run = left ? shift<uint64_t, ShiftLeft> : shift<uint64_t, ShiftRight>;
    break;
  case Type::S16:
    d.i.run = shift<int16_t, ShiftRight>;
    break;
  case Type::S32:
    d.i.run = shift<int32_t, ShiftRight>;
    break;
  case Type::S64:
    d.i.run = shift<int64_t, ShiftRight>;
    break;
  default:
    d.unknown();
  }
}

template <template <typename> class F> void decodeCount(Decoder &d) {
  Type type = d.type();
  d.i.dst = d.write(Type::U32);
  d.i.a = d.read(type);
  d.i.opClass = OpClass::Integer;
  if (type == Type::B32)
    d.i.run = mapUnary<uint32_t, uint32_t, F<uint32_t>>;
  else if (type == Type::B64)
    d.i.run = mapUnary<uint32_t, uint64_t, F<uint64_t>>;
  else
    d.unknown();
}

template <bool shiftAmount> Handler findBit(Decoder &d, Type type) {
  switch (type) {
  case Type::U32:
    return mapUnary<uint32_t, uint32_t, FindBit<uint32_t, shiftAmount>>;
  case Type::S32:
    return mapUnary<uint32_t, int32_t, FindBit<int32_t, shiftAmount>>;
  case Type::U64:
    return mapUnary<uint32_t, uint64_t, FindBit<uint64_t, shiftAmount>>;
  case Type::S64:
    return mapUnary<uint32_t, int64_t, FindBit<int64_t, shiftAmount>>;
  default:
    d.unknown();
  }
}

template <typename T>
constexpr Handler extract = mapTernary<T, T, uint32_t, uint32_t, ExtractField<T>>;

void ternary32(Decoder &d) {
  d.i.opClass = OpClass::Integer;
  d.i.dst = d.write(Type::B32);
  d.i.a = d.read(Type::B32);
  d.i.b = d.read(Type::B32);
  d.i.c = d.read(Type::B32);
}

/// One operand of any width; `ofPredicates` is null where there is no such instruction.
template <template <typename> class F> void decodeUnary(Decoder &d, Handler ofPredicates) {
  Type type = d.type();
  d.i.dst = d.write(type);
  d.i.a = d.read(type);
  d.i.opClass = OpClass::Integer;
  switch (type) {
  case Type::Pred:
    d.i.run = ofPredicates;
    break;
  case Type::B16:
    d.i.run = mapUnary<uint16_t, uint16_t, F<uint16_t>>;
    break;
  case Type::B32:
    d.i.run = mapUnary<uint32_t, uint32_t, F<uint32_t>>;
    break;
  case Type::B64:
    d.i.run = mapUnary<uint64_t, uint64_t, F<uint64_t>>;
    break;
  default:
    break;
  }
  if (!d.i.run)
    d.unknown();
}

} // namespace

void simt::addBitOps(OpcodeTable &table) {
  table["and"] = decodeLogic<And>;
  table["or"] = decodeLogic<Or>;
  table["xor"] = decodeLogic<Xor>;
  table["not"] = [](Decoder &d) { decodeUnary<Not>(d, predicateLogic<NotFirst>); };
  table["cnot"] = [](Decoder &d) { decodeUnary<LogicalNot>(d, nullptr); };
  table["shl"] = decodeShift;
  table["shr"] = decodeShift;
  table["shf"] = [](Decoder &d) {
    int side = d.acceptAny({"l", "r"}), mode = d.acceptAny({"clamp", "wrap"});
    if (side < 0 || mode < 0 || !d.accept("b32"))
      d.unknown();
    ternary32(d);
    using U = uint32_t;
    if (side == 0)
      d.i.run = mode ? mapTernary<U, U, U, U, Funnel<true, true>>
                     : mapTernary<U, U, U, U, Funnel<true, false>>;
    else
      d.i.run = mode ? mapTernary<U, U, U, U, Funnel<false, true>>
                     : mapTernary<U, U, U, U, Funnel<false, false>>;
  };
  table["lop3"] = [](Decoder &d) {
    if (!d.accept("b32")) // .BoolOp with a predicate is not taken
      d.unknown();
    ternary32(d);
    d.i.flags = d.immediate() & 0xff;
    d.i.run = lop3;
  };
  table["prmt"] = [](Decoder &d) {
    if (!d.accept("b32"))
      d.unknown();
    d.i.flags = 1 + d.acceptAny({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
    ternary32(d);
    d.i.run = prmt;
  };
  table["popc"] = decodeCount<PopCount>;
  table["clz"] = decodeCount<LeadingZeros>;
  table["brev"] = [](Decoder &d) {
    Type type = d.type();
    d.i.dst = d.write(type);
    d.i.a = d.read(type);
    d.i.opClass = OpClass::Integer;
    if (type == Type::B32)
      d.i.run = mapUnary<uint32_t, uint32_t, Reverse<uint32_t>>;
    else if (type == Type::B64)
      d.i.run = mapUnary<uint64_t, uint64_t, Reverse<uint64_t>>;
    else
      d.unknown();
  };
  table["bfind"] = [](Decoder &d) {
    bool shiftAmount = d.accept("shiftamt");
    Type type = d.type();
    d.i.dst = d.write(Type::U32);
    d.i.a = d.read(type);
    d.i.opClass = OpClass::Integer;
    d.i.run = shiftAmount ? findBit<true>(d, type) : findBit<false>(d, type);
  };
  table["bfe"] = [](Decoder &d) {
    Type type = d.type();
    d.i.dst = d.write(type);
    d.i.a = d.read(type);
    d.i.b = d.read(Type::U32);
    d.i.c = d.read(Type::U32);
    d.i.opClass = OpClass::Integer;
    switch (type) {
    case Type::U32:
      d.i.run = extract<uint32_t>;
      break;
    case Type::S32:
      d.i.run = extract<int32_t>;
      break;
    case Type::U64:
      d.i.run = extract<uint64_t>;
      break;
    case Type::S64:
      d.i.run = extract<int64_t>;
      break;
    default:
      d.unknown();
    }
  };
  table["bfi"] = [](Decoder &d) {
    Type type = d.type();
    d.i.dst = d.write(type);
    d.i.a = d.read(type);
    d.i.b = d.read(type);
    d.i.c = d.read(Type::U32);
    d.i.d = d.read(Type::U32);
    d.i.opClass = OpClass::Integer;
    if (type != Type::B32 && type != Type::B64)
      d.unknown();
    d.i.run = type == Type::B32 ? bitFieldInsert<uint32_t> : bitFieldInsert<uint64_t>;
  };
  table["bmsk"] = [](Decoder &d) {
    int mode = d.acceptAny({"clamp", "wrap"});
    if (mode < 0 || !d.accept("b32"))
      d.unknown();
    d.i.dst = d.write(Type::B32);
    d.i.a = d.read(Type::B32);
    d.i.b = d.read(Type::B32);
    d.i.opClass = OpClass::Integer;
    d.i.run = mode == 0 ? mapBinary<uint32_t, uint32_t, uint32_t, BitMask<true>>
                        : mapBinary<uint32_t, uint32_t, uint32_t, BitMask<false>>;
  };
  table["szext"] = [](Decoder &d) {
    int mode = d.acceptAny({"clamp", "wrap"});
    Type type = d.type();
    if (mode < 0 || !isInteger(type) || sizeOf(type) != 4)
      d.unknown();
    d.i.dst = d.write(type);
    d.i.a = d.read(type);
    d.i.b = d.read(Type::U32);
    d.i.opClass = OpClass::Integer;
    if (type == Type::S32)
      d.i.run = mode == 0 ? mapBinary<int32_t, int32_t, uint32_t, SignZeroExtend<int32_t, true>>
                          : mapBinary<int32_t, int32_t, uint32_t, SignZeroExtend<int32_t, false>>;
    else
      d.i.run = mode == 0
                    ? mapBinary<uint32_t, uint32_t, uint32_t, SignZeroExtend<uint32_t, true>>
                    : mapBinary<uint32_t, uint32_t, uint32_t, SignZeroExtend<uint32_t, false>>;
  };
  table["fns"] = [](Decoder &d) {
    if (!d.accept("b32"))
      d.unknown();
    ternary32(d);
    d.i.run = fns;
  };
}
