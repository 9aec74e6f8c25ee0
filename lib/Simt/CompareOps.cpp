//===- CompareOps.cpp - Comparisons and selections ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"
#include "FloatLanes.h"
#include "Half.h"

using namespace easyquant;
using namespace easyquant::simt;

namespace {

enum class Combine : uint8_t { None, And, Or, Xor };
enum { kNegateC = 1, kFtz = 2 };

// How the elements of a register are read.
template <typename T> struct Plain {
  using Element = T;
  static T value(const Element *p, unsigned lane) { return p[lane]; }
};
struct Flushed {
  using Element = float;
  static float value(const float *p, unsigned lane) { return flush(p[lane]); }
};
template <typename H> struct Narrow {
  using Element = uint16_t;
  static float value(const uint16_t *p, unsigned lane) { return H::widen(p[lane]); }
};
template <typename H, unsigned part> struct PairPart {
  using Element = uint32_t;
  static float value(const uint32_t *p, unsigned lane) { return H::widen(p[lane] >> 16 * part); }
};

using Comparer = Mask (*)(Warp &, const Instruction &);
template <typename View, auto compare> Mask compareLanes(Warp &w, const Instruction &i) {
  const auto *a = w.reg<typename View::Element>(i.a), *b = w.reg<typename View::Element>(i.b);
  Mask result = 0;
  for (unsigned lane = 0; lane < kLanes; ++lane)
    result |= Mask(compare(View::value(a, lane), View::value(b, lane))) << lane;
  return result;
}

constexpr auto anyNaN = [](auto a, auto b) { return a != a || b != b; };

/// In the order of the names in decodeComparison. Ordered ones are false if an operand is NaN, ne
/// too; integers have none, so that theirs is the plain one.
template <typename View>
constexpr Comparer comparers[] = {
    compareLanes<View, [](auto a, auto b) { return a == b; }>,
    compareLanes<View, [](auto a, auto b) { return !anyNaN(a, b) && a != b; }>,
    compareLanes<View, [](auto a, auto b) { return a < b; }>,
    compareLanes<View, [](auto a, auto b) { return a <= b; }>,
    compareLanes<View, [](auto a, auto b) { return a > b; }>,
    compareLanes<View, [](auto a, auto b) { return a >= b; }>,
    compareLanes<View, [](auto a, auto b) { return anyNaN(a, b) || a == b; }>,
    compareLanes<View, [](auto a, auto b) { return anyNaN(a, b) || a != b; }>,
    compareLanes<View, [](auto a, auto b) { return !(a >= b); }>,
    compareLanes<View, [](auto a, auto b) { return !(a > b); }>,
    compareLanes<View, [](auto a, auto b) { return !(a <= b); }>,
    compareLanes<View, [](auto a, auto b) { return !(a < b); }>,
    compareLanes<View, [](auto a, auto b) { return !anyNaN(a, b); }>,
    compareLanes<View, anyNaN>};

Mask combined(Warp &w, const Instruction &i, Mask result) {
  auto combine = static_cast<Combine>(i.flags >> 8);
  if (combine == Combine::None)
    return result;
  Mask c = w.predicate(i.c) ^ (i.flags & kNegateC ? kAllLanes : 0);
  return combine == Combine::And ? result & c : combine == Combine::Or ? result | c : result ^ c;
}

/// (a op b) [combine c] and !(a op b) [combine c], or both halves of pairs; i.extra indexes the
/// comparers.
template <const Comparer *low, const Comparer *high>
std::pair<Mask, Mask> compareBoth(Warp &w, const Instruction &i) {
  Mask p = low[i.extra](w, i), q = ~p;
  if constexpr (high != nullptr)
    q = high[i.extra](w, i);
  return {combined(w, i, p), combined(w, i, q)};
}

template <const Comparer *low, const Comparer *high>
void setp(Warp &w, const Instruction &i, Mask m) {
  auto [p, q] = compareBoth<low, high>(w, i);
  w.setPredicate(i.dst, m, p);
  if (i.d != kNoSlot)
    w.setPredicate(i.d, m, q);
}

/// d = all ones or zero; 1.0 or 0.0 for a float destination.
template <const Comparer *low, const Comparer *high>
void set(Warp &w, const Instruction &i, Mask m) {
  auto [p, q] = compareBoth<low, high>(w, i);
  auto yes = static_cast<uint32_t>(i.offset);
  if (i.width == 2)
    storeLanes(w.reg<uint16_t>(i.dst), m,
               [&](unsigned lane) { return uint16_t(p >> lane & 1 ? yes : 0); });
  else if (high == nullptr)
    storeLanes(w.reg<uint32_t>(i.dst), m, [&](unsigned lane) { return p >> lane & 1 ? yes : 0u; });
  else
    storeLanes(w.reg<uint32_t>(i.dst), m, [&](unsigned lane) {
      return (p >> lane & 1 ? yes : 0) | (q >> lane & 1 ? yes << 16 : 0);
    });
}

template <bool sets, const Comparer *low, const Comparer *high = nullptr>
constexpr Handler comparing = sets ? set<low, high> : setp<low, high>;
template <bool sets, typename H>
constexpr Handler comparingPairs =
    comparing<sets, comparers<PairPart<H, 0>>, comparers<PairPart<H, 1>>>;

template <bool sets> Handler handlerOf(Decoder &d, Type type, bool flushes) {
  switch (type) {
  case Type::F16:
    return comparing<sets, comparers<Narrow<Half>>>;
  case Type::BF16:
    return comparing<sets, comparers<Narrow<BFloat>>>;
  case Type::F16x2:
    return comparingPairs<sets, Half>;
  case Type::BF16x2:
    return comparingPairs<sets, BFloat>;
  default:
    if (type == Type::F32 && flushes)
      return comparing<sets, comparers<Flushed>>;
    return handlerFor<Type::B16, Type::U16, Type::S16, Type::B32, Type::U32, Type::S32, Type::B64,
                      Type::U64, Type::S64, Type::F32, Type::F64>(
        d, type, []<typename T>(T) { return comparing<sets, comparers<Plain<T>>>; });
  }
}

template <bool sets> void decodeComparison(Decoder &d) {
  Instruction &i = d.i;
  int op = d.acceptAny(
      {"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"});
  i.extra = op >= 0 ? op : 2 + d.expectAny({"lo", "ls", "hi", "hs"}); // lt to ge, of unsigned ones
  int combine = 1 + d.acceptAny({"and", "or", "xor"});
  bool flushes = d.accept("ftz");
  Type to = sets ? d.type() : Type::Pred, from = d.type();
  i.opClass = OpClass::Compare;
  i.dst = sets ? d.write(to) : d.writePair(to, i.d);
  i.a = d.read(from);
  i.b = d.read(from);
  bool negated = false;
  if (combine)
    i.c = d.readPredicate(d.operand(), negated);
  i.flags = (negated ? kNegateC : 0) | static_cast<uint32_t>(combine) << 8;
  i.width = sizeOf(to);
  i.run = handlerOf<sets>(d, from, flushes);
  if (!sets)
    return;
  if (from == Type::F16x2 || from == Type::BF16x2) {
    i.offset = to == Type::F16x2 ? 0x3c00 : to == Type::BF16x2 ? 0x3f80 : 0xffff;
    if (sizeOf(to) != 4)
      d.unknown();
  } else {
    i.offset = to == Type::F32                      ? 0x3f800000
               : to == Type::F16                    ? 0x3c00
               : to == Type::BF16                   ? 0x3f80
               : to == Type::U32 || to == Type::S32 ? 0xffffffff
               : to == Type::U16 || to == Type::S16 ? 0xffff
                                                    : -1;
    if (i.offset < 0)
      d.unknown();
  }
}

template <typename T> void selp(Warp &w, const Instruction &i, Mask m) {
  const T *a = w.reg<T>(i.a), *b = w.reg<T>(i.b);
  Mask c = w.predicate(i.c);
  storeLanes(w.reg<T>(i.dst), m, [&](unsigned lane) { return c >> lane & 1 ? a[lane] : b[lane]; });
}
/// a where c >= 0, else b.
template <typename T, typename C> void slct(Warp &w, const Instruction &i, Mask m) {
  const T *a = w.reg<T>(i.a), *b = w.reg<T>(i.b);
  const C *c = w.reg<C>(i.c);
  storeLanes(w.reg<T>(i.dst), m, [&](unsigned lane) { return c[lane] >= 0 ? a[lane] : b[lane]; });
}

} // namespace

void simt::addCompareOps(OpcodeTable &table) {
  table["setp"] = decodeComparison<false>;
  table["set"] = decodeComparison<true>;
  table["selp"] = [](Decoder &d) {
    Type type = d.type();
    d.operate(OpClass::Move, type, {type, type});
    bool negated = false;
    d.i.c = d.readPredicate(d.operand(), negated);
    if (negated)
      std::swap(d.i.a, d.i.b);
    d.i.run = handlerFor<Type::B16, Type::B32, Type::B64>(d, bitsOf(sizeOf(type)),
                                                          []<typename T>(T) { return selp<T>; });
  };
  table["slct"] = [](Decoder &d) {
    d.accept("ftz"); // the sign of a subnormal decides as that of its zero, except for -0 itself
    Type type = d.type(), by = d.type();
    d.operate(OpClass::Move, type, {type, type, by});
    d.i.run =
        handlerFor<Type::B16, Type::B32, Type::B64>(d, bitsOf(sizeOf(type)), [&]<typename T>(T) {
          return handlerFor<Type::S32, Type::F32>(d, by, []<typename C>(C) { return slct<T, C>; });
        });
  };
}
