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

enum class Compare : uint8_t {
  Eq,
  Ne,
  Lt,
  Le,
  Gt,
  Ge, // ordered: false if an operand is NaN (ne too)
  Equ,
  Neu,
  Ltu,
  Leu,
  Gtu,
  Geu,
  Num,
  Nan
};
enum class Combine : uint8_t { None, And, Or, Xor };
enum { kNegateC = 1, kFtz = 2 };

template <Compare op, typename T> bool compare(T a, T b) {
  bool nan = a != a || b != b;
  switch (op) {
  case Compare::Eq:
    return a == b;
  case Compare::Ne:
    return !nan && a != b;
  case Compare::Lt:
    return a < b;
  case Compare::Le:
    return a <= b;
  case Compare::Gt:
    return a > b;
  case Compare::Ge:
    return a >= b;
  case Compare::Equ:
    return nan || a == b;
  case Compare::Neu:
    return nan || a != b;
  case Compare::Ltu:
    return !(a >= b);
  case Compare::Leu:
    return !(a > b);
  case Compare::Gtu:
    return !(a <= b);
  case Compare::Geu:
    return !(a < b);
  case Compare::Num:
    return !nan;
  case Compare::Nan:
    return nan;
  }
}

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
template <Compare op, typename View> Mask compareLanes(Warp &w, const Instruction &i) {
  const auto *a = w.reg<typename View::Element>(i.a), *b = w.reg<typename View::Element>(i.b);
  Mask result = 0;
  for (unsigned lane = 0; lane < kLanes; ++lane)
    result |= Mask(compare<op>(View::value(a, lane), View::value(b, lane))) << lane;
  return result;
}

template <typename View>
constexpr Comparer comparers[] = {
    compareLanes<Compare::Eq, View>,  compareLanes<Compare::Ne, View>,
    compareLanes<Compare::Lt, View>,  compareLanes<Compare::Le, View>,
    compareLanes<Compare::Gt, View>,  compareLanes<Compare::Ge, View>,
    compareLanes<Compare::Equ, View>, compareLanes<Compare::Neu, View>,
    compareLanes<Compare::Ltu, View>, compareLanes<Compare::Leu, View>,
    compareLanes<Compare::Gtu, View>, compareLanes<Compare::Geu, View>,
    compareLanes<Compare::Num, View>, compareLanes<Compare::Nan, View>};

Mask combined(Warp &w, const Instruction &i, Mask result, Combine combine) {
  if (combine == Combine::None)
    return result;
  Mask c = w.predicate(i.c) ^ (i.flags & kNegateC ? kAllLanes : 0);
  return combine == Combine::And ? result & c : combine == Combine::Or ? result | c : result ^ c;
}

/// p = (a op b) [combine c], q = !(a op b) [combine c]; i.extra indexes the comparer.
template <const Comparer *table> void setp(Warp &w, const Instruction &i, Mask m) {
  Mask result = table[i.extra](w, i);
  auto combine = static_cast<Combine>(i.flags >> 8);
  Mask p = combined(w, i, result, combine), q = combined(w, i, ~result, combine);
  w.setPredicate(i.dst, m, p);
  if (i.d != kNoSlot)
    w.setPredicate(i.d, m, q);
}
template <const Comparer *low, const Comparer *high>
void setpPair(Warp &w, const Instruction &i, Mask m) {
  auto combine = static_cast<Combine>(i.flags >> 8);
  Mask p = combined(w, i, low[i.extra](w, i), combine);
  Mask q = combined(w, i, high[i.extra](w, i), combine);
  w.setPredicate(i.dst, m, p);
  if (i.d != kNoSlot)
    w.setPredicate(i.d, m, q);
}

/// d = all ones or zero; 1.0 or 0.0 for a float destination.
template <const Comparer *table> void set(Warp &w, const Instruction &i, Mask m) {
  Mask result = combined(w, i, table[i.extra](w, i), static_cast<Combine>(i.flags >> 8));
  if (i.width == 2) {
    auto yes = static_cast<uint16_t>(i.offset);
    storeLanes(w.reg<uint16_t>(i.dst), m,
               [&](unsigned lane) { return result >> lane & 1 ? yes : uint16_t(0); });
    return;
  }
  auto yes = static_cast<uint32_t>(i.offset);
  storeLanes(w.reg<uint32_t>(i.dst), m,
             [&](unsigned lane) { return result >> lane & 1 ? yes : 0u; });
}
template <const Comparer *low, const Comparer *high>
void setPair(Warp &w, const Instruction &i, Mask m) {
  auto combine = static_cast<Combine>(i.flags >> 8);
  Mask p = combined(w, i, low[i.extra](w, i), combine);
  Mask q = combined(w, i, high[i.extra](w, i), combine);
  auto yes = static_cast<uint32_t>(i.offset);
  storeLanes(w.reg<uint32_t>(i.dst), m, [&](unsigned lane) {
    return (p >> lane & 1 ? yes : 0) | (q >> lane & 1 ? yes << 16 : 0);
  });
}

struct Picked {
  Handler setp, set;
  bool pair = false;
};
template <typename View> constexpr Picked pick() {
  return {setp<comparers<View>>, set<comparers<View>>};
}
template <typename H> constexpr Picked pickPair() {
  return {setpPair<comparers<PairPart<H, 0>>, comparers<PairPart<H, 1>>>,
          setPair<comparers<PairPart<H, 0>>, comparers<PairPart<H, 1>>>, true};
}

Picked handlers(Decoder &d, Type type, bool flushes) {
  switch (type) {
  case Type::B16:
  case Type::U16:
    return pick<Plain<uint16_t>>();
  case Type::S16:
    return pick<Plain<int16_t>>();
  case Type::B32:
  case Type::U32:
    return pick<Plain<uint32_t>>();
  case Type::S32:
    return pick<Plain<int32_t>>();
  case Type::B64:
  case Type::U64:
    return pick<Plain<uint64_t>>();
  case Type::S64:
    return pick<Plain<int64_t>>();
  case Type::F32:
    return flushes ? pick<Flushed>() : pick<Plain<float>>();
  case Type::F64:
    return pick<Plain<double>>();
  case Type::F16:
    return pick<Narrow<Half>>();
  case Type::BF16:
    return pick<Narrow<BFloat>>();
  case Type::F16x2:
    return pickPair<Half>();
  case Type::BF16x2:
    return pickPair<BFloat>();
  default:
    d.unknown();
  }
}

Compare comparison(Decoder &d) {
  static const std::unordered_map<std::string_view, Compare> table = {
      {"eq", Compare::Eq},   {"ne", Compare::Ne},   {"lt", Compare::Lt},   {"le", Compare::Le},
      {"gt", Compare::Gt},   {"ge", Compare::Ge},   {"lo", Compare::Lt},   {"ls", Compare::Le},
      {"hi", Compare::Gt},   {"hs", Compare::Ge},   {"equ", Compare::Equ}, {"neu", Compare::Neu},
      {"ltu", Compare::Ltu}, {"leu", Compare::Leu}, {"gtu", Compare::Gtu}, {"geu", Compare::Geu},
      {"num", Compare::Num}, {"nan", Compare::Nan}};
  auto found = table.find(d.takeModifier());
  if (found == table.end())
    d.unknown();
  return found->second;
}

/// Integers have no NaN; `ne` of theirs is the plain one, which Compare::Ne is then too.
void decodeSetp(Decoder &d) {
  Compare op = comparison(d);
  auto combine = static_cast<Combine>(1 + d.acceptAny({"and", "or", "xor"}));
  bool flushes = d.accept("ftz");
  Type type = d.type();
  d.i.opClass = OpClass::Compare;
  const ast::Operand &destination = d.operand();
  if (destination.kind == ast::Operand::Pair) {
    d.i.dst = d.write(destination.items[0], Type::Pred);
    d.i.d = d.write(destination.items[1], Type::Pred);
  } else {
    d.i.dst = d.write(destination, Type::Pred);
  }
  d.i.a = d.read(type);
  d.i.b = d.read(type);
  bool negated = false;
  if (combine != Combine::None)
    d.i.c = d.readPredicate(d.operand(), negated);
  d.i.flags = (negated ? kNegateC : 0) | static_cast<uint32_t>(combine) << 8;
  d.i.extra = static_cast<uint32_t>(op);
  d.i.run = handlers(d, type, flushes).setp;
}

void decodeSet(Decoder &d) {
  Compare op = comparison(d);
  auto combine = static_cast<Combine>(1 + d.acceptAny({"and", "or", "xor"}));
  bool flushes = d.accept("ftz");
  Type to = d.type(), from = d.type();
  d.i.opClass = OpClass::Compare;
  d.i.dst = d.write(to);
  d.i.a = d.read(from);
  d.i.b = d.read(from);
  bool negated = false;
  if (combine != Combine::None)
    d.i.c = d.readPredicate(d.operand(), negated);
  d.i.flags = (negated ? kNegateC : 0) | static_cast<uint32_t>(combine) << 8;
  d.i.extra = static_cast<uint32_t>(op);
  d.i.width = sizeOf(to);
  Picked picked = handlers(d, from, flushes);
  if (picked.pair) {
    d.i.offset = to == Type::F16x2 ? 0x3c00 : to == Type::BF16x2 ? 0x3f80 : 0xffff;
    if (sizeOf(to) != 4)
      d.unknown();
  } else {
    d.i.offset = to == Type::F32                      ? 0x3f800000
                 : to == Type::F16                    ? 0x3c00
                 : to == Type::BF16                   ? 0x3f80
                 : to == Type::U32 || to == Type::S32 ? 0xffffffff
                 : to == Type::U16 || to == Type::S16 ? 0xffff
                                                      : -1;
    if (d.i.offset < 0)
      d.unknown();
  }
  d.i.run = picked.set;
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
  table["setp"] = decodeSetp;
  table["set"] = decodeSet;
  table["selp"] = [](Decoder &d) {
    Type type = d.type();
    d.i.opClass = OpClass::Move;
    d.i.dst = d.write(type);
    d.i.a = d.read(type);
    d.i.b = d.read(type);
    bool negated = false;
    d.i.c = d.readPredicate(d.operand(), negated);
    if (negated)
      std::swap(d.i.a, d.i.b);
    d.i.run = sizeOf(type) == 8   ? selp<uint64_t>
              : sizeOf(type) == 4 ? selp<uint32_t>
                                  : selp<uint16_t>;
    if (type == Type::Pred || sizeOf(type) == 1 || sizeOf(type) == 16)
      d.unknown();
  };
  table["slct"] = [](Decoder &d) {
    d.accept("ftz"); // the sign of a subnormal decides as that of its zero, except for -0 itself
    Type type = d.type(), by = d.type();
    d.i.opClass = OpClass::Move;
    d.i.dst = d.write(type);
    d.i.a = d.read(type);
    d.i.b = d.read(type);
    d.i.c = d.read(by);
    bool f = by == Type::F32;
    if (!f && by != Type::S32)
      d.unknown();
    switch (sizeOf(type)) {
    case 2:
      d.i.run = f ? slct<uint16_t, float> : slct<uint16_t, int32_t>;
      break;
    case 4:
      d.i.run = f ? slct<uint32_t, float> : slct<uint32_t, int32_t>;
      break;
    case 8:
      d.i.run = f ? slct<uint64_t, float> : slct<uint64_t, int32_t>;
      break;
    default:
      d.unknown();
    }
  };
}
