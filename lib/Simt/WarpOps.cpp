//===- WarpOps.cpp - Shuffles, votes and other exchanges within a warp ----===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Checks.h"
#include "Decoder.h"
#include "FloatLanes.h"

#include <algorithm>
#include <functional>

using namespace easyquant;
using namespace easyquant::simt;

namespace {

/// Lets the members meet, and reports members that disagree. False: try again later.
bool gather(Warp &w, const Instruction &i, Mask m, Slot membersSlot) {
  const uint32_t *members = w.reg<uint32_t>(membersSlot);
  Mask wanted = members[std::countr_zero(m)];
  forEachLane(m, [&](unsigned lane) {
    if (!(members[lane] >> lane & 1))
      w.stop(Finding::BadOperand, i, 1u << lane,
             fmt::format("is not in its own member mask {:#010x}", members[lane]));
    wanted |= members[lane];
  });
  return w.converge(i, wanted, m);
}

enum Mode { Up, Down, Butterfly, Index };

void shuffle(Warp &w, const Instruction &i, Mask m) {
  if (!gather(w, i, m, i.d))
    return;
  const uint32_t *a = w.reg<uint32_t>(i.a), *b = w.reg<uint32_t>(i.b), *c = w.reg<uint32_t>(i.c);
  uint32_t result[kLanes];
  Mask valid = 0, absent = 0;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    int by = b[lane] & 31, clamp = c[lane] & 31, segment = c[lane] >> 8 & 31, self = lane;
    int limit = (self & segment) | (clamp & ~segment), from;
    bool inside = false;
    switch (i.flags) {
    case Up:
      from = self - by, inside = from >= limit;
      break;
    case Down:
      from = self + by, inside = from <= limit;
      break;
    case Butterfly:
      from = self ^ by, inside = from <= limit;
      break;
    default:
      from = (self & segment) | (by & ~segment), inside = from <= limit;
    }
    if (!inside)
      from = self;
    valid |= Mask(inside) << lane;
    result[lane] = a[from & 31];
    absent |= Mask(!(m >> (from & 31) & 1)) << lane;
  }
  if (w.launch.checker && (absent & m))
    w.report(Finding::Uninitialised, i, std::countr_zero(absent & m),
             "takes the value of a lane that does not take part");
  storeLanes(w.reg<uint32_t>(i.dst), m, [&](unsigned lane) { return result[lane]; });
  if (i.extra != kNoSlot)
    w.setPredicate(i.extra, m, valid);
}

enum VoteMode { All, Any, Uniform, Ballot };

void vote(Warp &w, const Instruction &i, Mask m) {
  if (!gather(w, i, m, i.b))
    return;
  Mask votes = (w.predicate(i.a) ^ (i.extra ? kAllLanes : 0)) & m;
  if (i.flags == Ballot) {
    storeLanes(w.reg<uint32_t>(i.dst), m, [&](unsigned) { return votes; });
    return;
  }
  bool yes = i.flags == All ? votes == m : i.flags == Any ? votes != 0 : votes == m || votes == 0;
  w.setPredicate(i.dst, m, yes ? kAllLanes : 0);
}

template <typename T> void match(Warp &w, const Instruction &i, Mask m) {
  if (!gather(w, i, m, i.b))
    return;
  const T *a = w.reg<T>(i.a);
  uint32_t result[kLanes] = {};
  bool same = true;
  forEachLane(m, [&](unsigned lane) {
    forEachLane(m, [&](unsigned other) { result[lane] |= uint32_t(a[lane] == a[other]) << other; });
    same &= result[lane] == m;
  });
  if (i.flags) { // .all
    storeLanes(w.reg<uint32_t>(i.dst), m, [&](unsigned) { return same ? m : 0; });
    if (i.c != kNoSlot)
      w.setPredicate(i.c, m, same ? kAllLanes : 0);
  } else {
    storeLanes(w.reg<uint32_t>(i.dst), m, [&](unsigned lane) { return result[lane]; });
  }
}

template <typename T, auto f> void reduce(Warp &w, const Instruction &i, Mask m) {
  if (!gather(w, i, m, i.b))
    return;
  const T *a = w.reg<T>(i.a);
  unsigned first = std::countr_zero(m);
  T result = a[first];
  forEachLane(m & (m - 1), [&](unsigned lane) { result = f(result, a[lane]); });
  storeLanes(w.reg<T>(i.dst), m, [&](unsigned) { return result; });
}
constexpr auto least = [](auto a, auto b) { return std::min(a, b); };
constexpr auto greatest = [](auto a, auto b) { return std::max(a, b); };
template <bool maximum, bool absolute, bool nan> float extremum(float a, float b) {
  if (absolute)
    a = std::fabs(a), b = std::fabs(b);
  if (a != a || b != b)
    return nan || (a != a && b != b) ? std::bit_cast<float>(0x7fffffffu) : a != a ? b : a;
  return (a < b || (a == b && std::signbit(a))) == maximum ? b : a;
}

Handler floatReduction(bool maximum, bool absolute, bool nan) {
  static constexpr Handler table[] = {
      reduce<float, extremum<false, false, false>>, reduce<float, extremum<false, false, true>>,
      reduce<float, extremum<false, true, false>>,  reduce<float, extremum<false, true, true>>,
      reduce<float, extremum<true, false, false>>,  reduce<float, extremum<true, false, true>>,
      reduce<float, extremum<true, true, false>>,   reduce<float, extremum<true, true, true>>};
  return table[maximum * 4 + absolute * 2 + nan];
}

void decodeRedux(Decoder &d) {
  d.expect("sync");
  int op = d.expectAny({"add", "min", "max", "and", "or", "xor"});
  bool absolute = d.accept("abs"), nan = d.accept("NaN");
  Type type = d.type();
  d.operate(OpClass::Shuffle, type, {type, Type::B32});
  using U = uint32_t;
  if (type == Type::F32 && (op == 1 || op == 2)) {
    d.i.run = floatReduction(op == 2, absolute, nan);
    return;
  }
  static constexpr Handler ofUnsigned[] = {reduce<U, std::plus<>{}>, reduce<U, least>,
                                           reduce<U, greatest>};
  static constexpr Handler ofSigned[] = {reduce<U, std::plus<>{}>, reduce<int32_t, least>,
                                         reduce<int32_t, greatest>};
  static constexpr Handler ofBits[] = {reduce<U, std::bit_and<>{}>, reduce<U, std::bit_or<>{}>,
                                       reduce<U, std::bit_xor<>{}>};
  if (absolute || nan || (op < 3 ? type != Type::U32 && type != Type::S32 : type != Type::B32))
    d.unknown();
  d.i.run = op >= 3 ? ofBits[op - 3] : isSigned(type) ? ofSigned[op] : ofUnsigned[op];
}

} // namespace

void simt::addWarpOps(OpcodeTable &table) {
  table["shfl"] = [](Decoder &d) {
    d.expect("sync");
    int mode = d.expectAny({"up", "down", "bfly", "idx"});
    d.expect("b32");
    d.i.opClass = OpClass::Shuffle;
    d.i.extra = kNoSlot;
    d.i.dst = d.writePair(Type::B32, d.i.extra);
    d.i.a = d.read(Type::B32);
    d.i.b = d.read(Type::B32);
    d.i.c = d.read(Type::B32);
    d.i.d = d.read(Type::B32);
    d.i.flags = mode;
    d.i.run = shuffle;
  };
  table["vote"] = [](Decoder &d) {
    d.expect("sync");
    int mode = d.expectAny({"all", "any", "uni", "ballot"});
    d.expect(mode == Ballot ? "b32" : "pred");
    d.i.opClass = OpClass::Shuffle;
    d.i.dst = d.write(mode == Ballot ? Type::B32 : Type::Pred);
    bool negated = false;
    d.i.a = d.readPredicate(d.operand(), negated);
    d.i.b = d.read(Type::B32);
    d.i.extra = negated;
    d.i.flags = mode;
    d.i.run = vote;
  };
  table["match"] = [](Decoder &d) {
    int mode = d.expectAny({"any", "all"});
    d.expect("sync");
    Type type = d.type();
    d.i.opClass = OpClass::Shuffle;
    d.i.dst = mode == 1 ? d.writePair(Type::B32, d.i.c) : d.write(Type::B32);
    d.i.a = d.read(type);
    d.i.b = d.read(Type::B32);
    d.i.flags = mode;
    d.i.run = handlerFor<Type::B32, Type::B64>(d, type, []<typename T>(T) { return match<T>; });
  };
  table["activemask"] = [](Decoder &d) {
    d.expect("b32");
    d.operate(OpClass::Shuffle, Type::B32, {});
    d.i.run = [](Warp &w, const Instruction &i, Mask m) {
      storeLanes(w.reg<uint32_t>(i.dst), m, [&](unsigned) { return m; });
    };
  };
  table["redux"] = decodeRedux;
  table["elect"] = [](Decoder &d) {
    d.expect("sync");
    d.i.opClass = OpClass::Shuffle;
    d.i.dst = d.writePair(Type::B32, d.i.c);
    if (d.i.c == kNoSlot)
      d.fail("elect.sync has a register and a predicate as destination");
    d.i.b = d.read(Type::B32);
    d.i.run = [](Warp &w, const Instruction &i, Mask m) {
      if (!gather(w, i, m, i.b))
        return;
      uint32_t leader = std::countr_zero(m);
      storeLanes(w.reg<uint32_t>(i.dst), m, [&](unsigned) { return leader; });
      w.setPredicate(i.c, m, 1u << leader);
    };
  };
}
