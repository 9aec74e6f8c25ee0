//===- MatrixOps.cpp - mma.sync -------------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"
#include "Execution.h"
#include "MatrixCore.h"

#include <algorithm>
#include <memory>
#include <mutex>

using namespace easyquant;
using namespace easyquant::simt;

namespace {

/// What an instruction multiplies, with its fragments as tables. Shared by equal instructions.
struct Multiply {
  MatrixShape shape;
  Type a, b, c, d;
  bool saturate = false, bitwise = false, isXor = false;
  unsigned aRegisters, bRegisters, cRegisters, dRegisters;
  std::vector<FragmentPlace> aPlaces, bPlaces, cPlaces, dPlaces; ///< B: column after column.

  bool same(const Multiply &o) const {
    return shape == o.shape && a == o.a && b == o.b && c == o.c && d == o.d &&
           saturate == o.saturate && bitwise == o.bitwise && isXor == o.isXor;
  }
};

struct Catalogue {
  std::mutex mutex;
  std::vector<std::unique_ptr<Multiply>> known;
};
Catalogue &catalogue() {
  static Catalogue instance;
  return instance;
}

unsigned accumulatorBits(Type type) { return type == Type::F16 ? 16 : type == Type::F64 ? 64 : 32; }
unsigned registersFor(unsigned elements, unsigned bits) {
  return elements * std::min(bits, 32u) / 32 / 32;
}

uint32_t enter(Multiply wanted) {
  Catalogue &all = catalogue();
  std::lock_guard lock(all.mutex);
  for (uint32_t k = 0; k < all.known.size(); ++k)
    if (all.known[k]->same(wanted))
      return k;
  MatrixShape s = wanted.shape;
  unsigned aBits = elementBits(wanted.a), bBits = elementBits(wanted.b);
  wanted.aRegisters = registersFor(s.m * s.k, aBits);
  wanted.bRegisters = registersFor(s.k * s.n, bBits);
  wanted.cRegisters = registersFor(s.m * s.n, accumulatorBits(wanted.c));
  wanted.dRegisters = registersFor(s.m * s.n, accumulatorBits(wanted.d));
  for (unsigned i = 0; i < s.m; ++i)
    for (unsigned k = 0; k < s.k; ++k)
      wanted.aPlaces.push_back(placeOf(Fragment::A, s, aBits, i, k));
  for (unsigned j = 0; j < s.n; ++j)
    for (unsigned k = 0; k < s.k; ++k)
      wanted.bPlaces.push_back(placeOf(Fragment::B, s, bBits, k, j));
  for (unsigned i = 0; i < s.m; ++i)
    for (unsigned j = 0; j < s.n; ++j) {
      wanted.cPlaces.push_back(placeOf(Fragment::C, s, accumulatorBits(wanted.c), i, j));
      wanted.dPlaces.push_back(placeOf(Fragment::C, s, accumulatorBits(wanted.d), i, j));
    }
  all.known.push_back(std::make_unique<Multiply>(std::move(wanted)));
  return all.known.size() - 1;
}

uint64_t bitsAt(Warp &w, const Slot *slots, FragmentPlace place, Type type) {
  if (type == Type::F64)
    return w.reg<uint64_t>(slots[place.reg])[place.lane];
  return w.reg<uint32_t>(slots[place.reg])[place.lane] >> place.shift;
}

template <typename Value, typename Decode>
void gather(Warp &w, const Slot *slots, const std::vector<FragmentPlace> &places, Type type,
            Value *out, Decode &&decode) {
  for (size_t k = 0; k < places.size(); ++k)
    out[k] = decode(bitsAt(w, slots, places[k], type), type);
}

void scatter(Warp &w, const Slot *slots, FragmentPlace place, Type type, uint64_t bits) {
  if (type == Type::F64) {
    w.reg<uint64_t>(slots[place.reg])[place.lane] = bits;
    return;
  }
  uint32_t &word = w.reg<uint32_t>(slots[place.reg])[place.lane];
  if (type == Type::F16)
    word = (word & ~(0xffffu << place.shift)) | static_cast<uint32_t>(bits & 0xffff) << place.shift;
  else
    word = static_cast<uint32_t>(bits);
}

/// Slots: d, a, b, c.
void multiply(Warp &w, const Instruction &i, Mask m) {
  if (!w.converge(i, kAllLanes & w.alive, m))
    return;
  if (m != kAllLanes)
    w.stop(Finding::DivergentBarrier, i, m, "needs all 32 lanes of the warp");
  const Multiply &op = *reinterpret_cast<const Multiply *>(i.offset);
  const Slot *d = w.launch.program.slots.data() + i.extra;
  const Slot *a = d + op.dRegisters, *b = a + op.aRegisters, *c = b + op.bRegisters;
  if (op.d == Type::S32) {
    static thread_local std::array<int32_t, 16 * 256> av, bv;
    std::array<int32_t, 16 * 16> cv;
    gather(w, a, op.aPlaces, op.a, av.data(), decodeInteger);
    gather(w, b, op.bPlaces, op.b, bv.data(), decodeInteger);
    gather(w, c, op.cPlaces, op.c, cv.data(), decodeInteger);
    if (op.bitwise)
      multiplyBits(op.shape, av.data(), bv.data(), cv.data(), op.isXor);
    else
      multiplyIntegers(op.shape, av.data(), bv.data(), cv.data(), op.saturate);
    for (size_t k = 0; k < op.dPlaces.size(); ++k)
      scatter(w, d, op.dPlaces[k], op.d, static_cast<uint32_t>(cv[k]));
    return;
  }
  static thread_local std::array<double, 16 * 64> av, bv;
  std::array<double, 16 * 16> cv;
  gather(w, a, op.aPlaces, op.a, av.data(), decodeFloat);
  gather(w, b, op.bPlaces, op.b, bv.data(), decodeFloat);
  gather(w, c, op.cPlaces, op.c, cv.data(), decodeFloat);
  multiplyFloats(op.shape, av.data(), bv.data(), cv.data());
  for (size_t k = 0; k < op.dPlaces.size(); ++k)
    scatter(w, d, op.dPlaces[k], op.d, encodeFloat(cv[k], op.d));
}

/// The shapes of the PTX manual for each element type.
bool exists(const Multiply &op) {
  auto is = [&](std::initializer_list<MatrixShape> shapes) {
    return std::find(shapes.begin(), shapes.end(), op.shape) != shapes.end();
  };
  auto accumulates = [&](std::initializer_list<Type> types) {
    return op.c == op.d && std::find(types.begin(), types.end(), op.d) != types.end();
  };
  auto bothOf = [&](Type x, Type y) {
    return (op.a == x || op.a == y) && (op.b == x || op.b == y);
  };
  if (bothOf(Type::F16, Type::F16))
    return is({{16, 8, 8}, {16, 8, 16}}) && (op.d == Type::F16 || op.d == Type::F32) &&
           (op.c == Type::F16 || op.c == Type::F32);
  if (bothOf(Type::BF16, Type::BF16))
    return is({{16, 8, 8}, {16, 8, 16}}) && accumulates({Type::F32});
  if (bothOf(Type::TF32, Type::TF32))
    return is({{16, 8, 4}, {16, 8, 8}}) && accumulates({Type::F32});
  if (bothOf(Type::E4M3, Type::E5M2))
    return is({{16, 8, 16}, {16, 8, 32}}) && accumulates({Type::F16, Type::F32});
  if (bothOf(Type::F64, Type::F64))
    return is({{8, 8, 4}, {16, 8, 4}, {16, 8, 8}, {16, 8, 16}}) && accumulates({Type::F64});
  if (bothOf(Type::S8, Type::U8))
    return is({{8, 8, 16}, {16, 8, 16}, {16, 8, 32}}) && accumulates({Type::S32});
  if (bothOf(Type::S4, Type::U4))
    return is({{8, 8, 32}, {16, 8, 32}, {16, 8, 64}}) && accumulates({Type::S32});
  if (bothOf(Type::B1, Type::B1))
    return is({{8, 8, 128}, {16, 8, 128}, {16, 8, 256}}) && accumulates({Type::S32}) && op.bitwise;
  return false;
}

Type registerType(Type element) { return element == Type::F64 ? Type::F64 : Type::B32; }

void decodeMma(Decoder &d) {
  if (!d.accept("sync") || !d.accept("aligned"))
    d.unknown();
  Multiply op{};
  auto shape = parseMatrixShape(d.takeModifier());
  if (!shape || !d.accept("row") || !d.accept("col"))
    d.unknown();
  op.shape = *shape;
  op.saturate = d.accept("satfinite");
  op.d = d.type();
  op.a = d.type();
  op.b = d.type();
  op.c = d.type();
  if (int bits = d.acceptAny({"xor", "and"}); bits >= 0) {
    op.bitwise = d.accept("popc");
    op.isXor = bits == 0;
  }
  if (!exists(op))
    d.unknown();
  Catalogue &all = catalogue();
  uint32_t index = enter(op);
  const Multiply &known = *all.known[index];
  d.i.opClass = OpClass::Matrix;
  d.i.offset = reinterpret_cast<int64_t>(&known);
  d.i.extra = d.writeVector(d.operand(), registerType(op.d), known.dRegisters);
  d.readVector(d.operand(), registerType(op.a), known.aRegisters);
  d.readVector(d.operand(), registerType(op.b), known.bRegisters);
  d.readVector(d.operand(), registerType(op.c), known.cRegisters);
  d.i.run = multiply;
}

} // namespace

void simt::addMatrixOps(OpcodeTable &table) { table["mma"] = decodeMma; }
