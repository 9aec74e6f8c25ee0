//===- AtomicOps.cpp - Atomics and reductions to memory -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"
#include "FloatLanes.h"
#include "Half.h"

#include <algorithm>

using namespace easyquant;
using namespace easyquant::simt;

namespace {

enum class Op : uint8_t { And, Or, Xor, Exch, Add, Inc, Dec, Min, Max, Cas };
constexpr uint32_t kReturns = 1; ///< atom, not red

/// The lanes one after another, as if in the order of their numbers.
template <typename T, typename Update>
void update(Warp &w, const Instruction &i, Mask m, Update &&apply) {
  std::byte *at[kLanes];
  w.resolve(i, m, AccessKind::Atomic, sizeof(T) * i.count, at);
  const Slot *sources = w.launch.decoded.slots.data() + i.extra;
  const T *c = i.c == kNoSlot ? nullptr : w.reg<T>(i.c);
  forEachLane(m, [&](unsigned lane) {
    for (unsigned k = 0; k < i.count; ++k) {
      T old, b = w.reg<T>(sources[k])[lane];
      std::memcpy(&old, at[lane] + k * sizeof(T), sizeof(T));
      T updated = apply(old, b, c ? c[lane] : T(), at[lane]);
      std::memcpy(at[lane] + k * sizeof(T), &updated, sizeof(T));
      if (i.flags & kReturns)
        w.reg<T>(sources[i.count + k])[lane] = old;
    }
  });
}

template <typename T, auto f> void integerAtomic(Warp &w, const Instruction &i, Mask m) {
  update<T>(w, i, m, [](T old, T b, T c, std::byte *) { return f(old, b, c); });
}
/// By Op.
template <typename T, typename U = std::make_unsigned_t<T>>
constexpr Handler integerHandlers[] = {
    integerAtomic<T, [](T old, T b, T) { return T(old & b); }>,
    integerAtomic<T, [](T old, T b, T) { return T(old | b); }>,
    integerAtomic<T, [](T old, T b, T) { return T(old ^ b); }>,
    integerAtomic<T, [](T, T b, T) { return b; }>,
    integerAtomic<T, [](T old, T b, T) { return T(U(old) + U(b)); }>,
    integerAtomic<T, [](T old, T b, T) { return U(old) >= U(b) ? T(0) : T(old + 1); }>,
    integerAtomic<T, [](T old, T b, T) { return old == 0 || U(old) > U(b) ? b : T(old - 1); }>,
    integerAtomic<T, [](T old, T b, T) { return std::min(old, b); }>,
    integerAtomic<T, [](T old, T b, T) { return std::max(old, b); }>,
    integerAtomic<T, [](T old, T b, T c) { return old == b ? c : old; }>};

/// Sums in global memory flush subnormal numbers, those in shared memory do not.
void addSingle(Warp &w, const Instruction &i, Mask m) {
  update<float>(w, i, m, [&](float old, float b, float, std::byte *at) {
    bool isShared = at >= w.block.shared && at < w.block.shared + w.block.sharedBytes;
    return isShared ? finish<false, false>(old + b) : finish<true, false>(flush(old) + flush(b));
  });
}
void addDouble(Warp &w, const Instruction &i, Mask m) {
  update<double>(w, i, m, [](double old, double b, double, std::byte *) { return old + b; });
}
template <typename H> uint16_t halfSum(uint16_t a, uint16_t b) {
  return narrowOnce<H>(addToOdd(H::widen(a), H::widen(b)));
}
template <typename H, bool maximum> uint16_t halfExtremum(uint16_t a, uint16_t b) {
  float x = H::widen(a), y = H::widen(b);
  if (x != x || y != y)
    return x != x && y != y ? H::nan : x != x ? b : a;
  return (x < y) == maximum ? b : a;
}
using HalfFunction = uint16_t (*)(uint16_t, uint16_t);
template <HalfFunction f> void halfAtomic(Warp &w, const Instruction &i, Mask m) {
  update<uint16_t>(w, i, m, [](uint16_t a, uint16_t b, uint16_t, std::byte *) { return f(a, b); });
}
template <HalfFunction f> void pairAtomic(Warp &w, const Instruction &i, Mask m) {
  update<uint32_t>(w, i, m, [](uint32_t a, uint32_t b, uint32_t, std::byte *) {
    return uint32_t(f(a, b)) | uint32_t(f(a >> 16, b >> 16)) << 16;
  });
}

template <typename H> Handler halfHandler(Op op, bool pair) {
  if (op == Op::Add)
    return pair ? pairAtomic<halfSum<H>> : halfAtomic<halfSum<H>>;
  if (op == Op::Min)
    return pair ? pairAtomic<halfExtremum<H, false>> : halfAtomic<halfExtremum<H, false>>;
  if (op == Op::Max)
    return pair ? pairAtomic<halfExtremum<H, true>> : halfAtomic<halfExtremum<H, true>>;
  return nullptr;
}

/// Bits are combined, exchanged or compared. Integers take all but cas, and only .u32 inc and dec.
bool takes(Type type, Op op) {
  bool counting = op == Op::Inc || op == Op::Dec;
  if (type == Type::B16)
    return op == Op::Cas;
  if (isBits(type))
    return op <= Op::Exch || op == Op::Cas;
  return op != Op::Cas && (!counting || type == Type::U32);
}

Handler handlerOf(Op op, Type type) {
  switch (type) {
  case Type::F32:
    return op == Op::Add ? addSingle : nullptr;
  case Type::F64:
    return op == Op::Add ? addDouble : nullptr;
  case Type::F16:
  case Type::F16x2:
    return halfHandler<Half>(op, type == Type::F16x2);
  case Type::BF16:
  case Type::BF16x2:
    return halfHandler<BFloat>(op, type == Type::BF16x2);
  default:
    Handler handler = nullptr;
    if (takes(type, op))
      visitType<Type::B16, Type::B32, Type::B64, Type::U32, Type::S32, Type::U64, Type::S64>(
          type, [&]<typename T>(T) { handler = integerHandlers<T>[static_cast<unsigned>(op)]; });
    return handler;
  }
}

void decodeAtomic(Decoder &d) {
  bool returns = d.opcode == "atom";
  Instruction &i = d.i;
  uint32_t flags = d.acceptSemantics() | kStrongAccess;
  Space space = d.acceptSpace();
  if (space != Space::Generic && space != Space::Global && space != Space::Shared)
    d.unknown();
  int op = d.expectAny({"and", "or", "xor", "exch", "add", "inc", "dec", "min", "max", "cas"});
  bool hasPolicy = false;
  auto hints = [&] {
    d.accept("noftz");
    hasPolicy |= d.peekModifier() == "L2::cache_hint";
    d.skipCacheHints();
  };
  hints();
  int vector = d.acceptAny({"v2", "v4", "v8"});
  i.count = vector < 0 ? 1 : 2 << vector;
  Type type = i.type = d.type();
  hints();
  i.opClass = OpClass::Atomic;
  i.run = handlerOf(static_cast<Op>(op), type);
  if (!i.run || (i.count > 1 && !isFloat(type) && type != Type::F16x2 && type != Type::BF16x2))
    d.unknown();
  const ast::Operand *destination = returns ? &d.operand() : nullptr;
  d.address(d.operand(), space);
  uint32_t first = d.readVector(d.operand(), type, i.count);
  if (op == static_cast<int>(Op::Cas))
    i.c = d.read(type);
  if (returns)
    d.writeVector(*destination, type, i.count); // lies behind the sources
  if (hasPolicy)
    d.read(Type::B64);
  i.extra = first;
  i.flags = flags | (returns ? kReturns : 0);
}

} // namespace

void simt::addAtomicOps(OpcodeTable &table) {
  table["atom"] = decodeAtomic;
  table["red"] = decodeAtomic;
}
