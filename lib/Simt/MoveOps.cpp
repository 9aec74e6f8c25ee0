//===- MoveOps.cpp - Moves, packing, address conversion -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"
#include "Lanes.h"

#include <functional>

using namespace easyquant;
using namespace easyquant::simt;

namespace {

void movePredicate(Warp &w, const Instruction &i, Mask m) {
  w.setPredicate(i.dst, m, w.predicate(i.a));
}
void moveWide(Warp &w, const Instruction &i, Mask m) {
  forEachLane(m, [&](size_t lane) {
    std::memmove(w.reg<std::byte>(i.dst) + 16 * lane, w.reg<std::byte>(i.a) + 16 * lane, 16);
  });
}

/// d = {parts}, the first in the low bits; i.count parts of i.width bytes.
void packParts(Warp &w, const Instruction &i, Mask m) {
  const Slot *parts = w.launch.decoded.slots.data() + i.extra;
  const size_t whole = size_t(i.count) * i.width;
  std::byte packed[kLanes * 16];
  for (size_t k = 0; k < i.count; ++k) {
    const std::byte *part = w.reg<std::byte>(parts[k]);
    for (size_t lane = 0; lane < kLanes; ++lane)
      std::memcpy(packed + lane * whole + k * i.width, part + lane * i.width, i.width);
  }
  std::byte *d = w.reg<std::byte>(i.dst);
  forEachLane(m, [&](size_t lane) { std::memcpy(d + lane * whole, packed + lane * whole, whole); });
}
void unpackParts(Warp &w, const Instruction &i, Mask m) {
  const Slot *parts = w.launch.decoded.slots.data() + i.extra;
  const size_t whole = size_t(i.count) * i.width;
  std::byte packed[kLanes * 16];
  std::memcpy(packed, w.reg<std::byte>(i.a), kLanes * whole);
  for (size_t k = 0; k < i.count; ++k) {
    std::byte *part = w.reg<std::byte>(parts[k]);
    forEachLane(m, [&](size_t lane) {
      std::memcpy(part + lane * i.width, packed + lane * whole + k * i.width, i.width);
    });
  }
}

/// The common case of two parts, as vector code.
template <typename D, typename P> void packPair(Warp &w, const Instruction &i, Mask m) {
  const Slot *parts = w.launch.decoded.slots.data() + i.extra;
  const P *low = w.reg<P>(parts[0]), *high = w.reg<P>(parts[1]);
  storeLanes(w.reg<D>(i.dst), m,
             [&](unsigned lane) -> D { return low[lane] | D(high[lane]) << 8 * sizeof(P); });
}
template <typename D, typename P> void unpackPair(Warp &w, const Instruction &i, Mask m) {
  const Slot *parts = w.launch.decoded.slots.data() + i.extra;
  D whole[kLanes];
  std::memcpy(whole, w.reg<D>(i.a), sizeof(whole));
  storeLanes(w.reg<P>(parts[0]), m, [&](unsigned lane) { return P(whole[lane]); });
  storeLanes(w.reg<P>(parts[1]), m, [&](unsigned lane) { return P(whole[lane] >> 8 * sizeof(P)); });
}

void decodeMov(Decoder &d) {
  Type type = d.type();
  d.i.opClass = OpClass::Move;
  const ast::Operand &to = d.operand(), &from = d.operand();
  bool packs = from.kind == ast::Operand::Vector, unpacks = to.kind == ast::Operand::Vector;
  if (!packs && !unpacks) {
    d.i.dst = d.write(to, type);
    bool negated = false;
    d.i.a = type == Type::Pred ? d.readPredicate(from, negated) : d.read(from, type);
    if (negated)
      d.unknown();
    if (type == Type::Pred)
      d.i.run = movePredicate;
    else if (type == Type::B128)
      d.i.run = moveWide;
    else
      d.i.run = handlerFor<Type::B8, Type::B16, Type::B32, Type::B64>(
          d, bitsOf(sizeOf(type)), []<typename T>(T) { return mapUnary<std::identity{}, T>; });
    return;
  }
  size_t parts = packs ? from.items.size() : to.items.size();
  if (packs == unpacks || !(parts == 2 || parts == 4) || sizeOf(type) % parts || type == Type::Pred)
    d.fail("a vector stands for {} equal parts of the other operand", parts);
  d.i.count = parts;
  d.i.width = sizeOf(type) / parts;
  Type part = bitsOf(d.i.width);
  if (packs) {
    d.i.dst = d.write(to, type);
    d.i.extra = d.readVector(from, part, parts);
    d.i.run = parts != 2          ? packParts
              : sizeOf(type) == 4 ? packPair<uint32_t, uint16_t>
              : sizeOf(type) == 8 ? packPair<uint64_t, uint32_t>
                                  : packParts;
  } else {
    d.i.a = d.read(from, type);
    d.i.extra = d.writeVector(to, part, parts);
    d.i.run = parts != 2          ? unpackParts
              : sizeOf(type) == 4 ? unpackPair<uint32_t, uint16_t>
              : sizeOf(type) == 8 ? unpackPair<uint64_t, uint32_t>
                                  : unpackParts;
  }
}

/// The space that `cvta` and `isspacep` name.
Space namedSpace(Decoder &d) {
  Space space = d.acceptSpace();
  if (space == Space::Generic)
    d.unknown();
  return space;
}

/// i.offset is added to the address.
void convertAddress(Warp &w, const Instruction &i, Mask m) {
  const uint64_t *a = w.reg<uint64_t>(i.a);
  storeLanes(w.reg<uint64_t>(i.dst), m,
             [&](unsigned lane) { return a[lane] + uint64_t(i.offset); });
}

void isInSpace(Warp &w, const Instruction &i, Mask m) {
  const uint64_t *a = w.reg<uint64_t>(i.a);
  Mask result = 0;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    uint64_t at = a[lane] & ~(kWindowBytes - 1);
    bool inWindow = at == kSharedWindow || at == kLocalWindow || at == kParameterWindow;
    result |= Mask(i.offset ? at == uint64_t(i.offset) : !inWindow) << lane;
  }
  if (i.flags) { // .const: constant variables are among the allocations
    forEachLane(result & m, [&](unsigned lane) {
      const Allocation *found = w.launch.memory.find(a[lane]);
      if (!found || !found->readOnly)
        result &= ~(1u << lane);
    });
  }
  w.setPredicate(i.dst, m, result);
}

} // namespace

void simt::addMoveOps(OpcodeTable &table) {
  table["mov"] = decodeMov;
  table["cvta"] = [](Decoder &d) {
    bool to = d.accept("to");
    uint64_t base = windowOf(namedSpace(d));
    d.expect("u64");
    d.arithmetic(Type::U64, OpClass::Move, 1);
    d.i.offset = static_cast<int64_t>(to ? -base : base);
    d.i.run = convertAddress;
  };
  table["isspacep"] = [](Decoder &d) {
    Space space = namedSpace(d);
    d.operate(OpClass::Compare, Type::Pred, {Type::U64});
    d.i.offset = static_cast<int64_t>(windowOf(space));
    d.i.flags = space == Space::Const;
    d.i.run = isInSpace;
  };
}
