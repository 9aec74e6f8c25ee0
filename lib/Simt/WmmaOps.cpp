//===- WmmaOps.cpp - wmma: load, multiply, store --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// PTX does not say which lane holds which element of a wmma fragment; programs may only apply the
// same function to all elements. Here element e of a matrix of T elements, counted along its
// contraction axis (C and D: along rows), is in lane e / (T / 32). Where fragments have more room
// than elements (f16), every element is there more than once.
//
//===----------------------------------------------------------------------===//

#include "Execution.h"
#include "MatrixCore.h"

using namespace easyquant;
using namespace easyquant::simt;

namespace {

/// One of the matrices of an instruction, as it lies in registers.
struct Tile {
  Fragment fragment;
  MatrixShape shape;
  Type type;

  unsigned rows() const { return fragment == Fragment::B ? shape.k : shape.m; }
  unsigned columns() const { return fragment == Fragment::A ? shape.k : shape.n; }
  unsigned perLane() const { return rows() * columns() / kLanes; }
  unsigned bits() const { return elementBits(type); }
  unsigned perRegister() const { return elementsPerRegister(type); }
  unsigned registers() const {
    if (type == Type::F16 && fragment != Fragment::C)
      return 8;
    return perLane() / perRegister();
  }
  unsigned copies() const { return registers() * perRegister() / perLane(); }
  MatrixLayout layout() const {
    MatrixLayout result{type, registers(), fragment == Fragment::B ? shape.n : shape.m, {}};
    unsigned wordsPerLane = perLane() / perRegister();
    unsigned wordsPerLine = wordsPerLane * kLanes / result.lines;
    for (unsigned word = 0; word < wordsPerLine; ++word)
      for (unsigned line = 0; line < result.lines; ++line) {
        unsigned k = line * wordsPerLine + word;
        result.words.push_back(static_cast<uint16_t>(k % wordsPerLane * kLanes + k / wordsPerLane));
      }
    return result;
  }
};

// A Tile in the flags of an instruction, which is all that handlers see.
uint32_t packTile(const Tile &t) {
  return static_cast<uint32_t>(t.fragment) | t.shape.m << 2 | t.shape.n << 9 | t.shape.k << 16 |
         static_cast<uint32_t>(t.type) << 23;
}
Tile unpackTile(uint32_t bits) {
  return {static_cast<Fragment>(bits & 3),
          {bits >> 2 & 127, bits >> 9 & 127, bits >> 16 & 127},
          static_cast<Type>(bits >> 23)};
}

uint64_t readElement(Warp &w, const Slot *slots, const Tile &t, unsigned lane, unsigned slot) {
  unsigned reg = slot / t.perRegister(), shift = slot % t.perRegister() * t.bits();
  if (t.type == Type::F64)
    return w.reg<uint64_t>(slots[reg])[lane];
  uint32_t word = w.reg<uint32_t>(slots[reg])[lane] >> shift;
  return t.bits() >= 32 ? word : word & ((1u << t.bits()) - 1);
}
void writeElement(Warp &w, const Slot *slots, const Tile &t, unsigned lane, unsigned slot,
                  uint64_t bits) {
  for (unsigned copy = 0; copy < t.copies(); ++copy, slot += t.perLane()) {
    unsigned reg = slot / t.perRegister(), shift = slot % t.perRegister() * t.bits();
    if (t.type == Type::F64) {
      w.reg<uint64_t>(slots[reg])[lane] = bits;
      continue;
    }
    uint32_t &word = w.reg<uint32_t>(slots[reg])[lane];
    uint32_t mask = t.bits() >= 32 ? ~0u : ((1u << t.bits()) - 1) << shift;
    word = (word & ~mask) | (static_cast<uint32_t>(bits) << shift & mask);
  }
}

/// b: the leading dimension in elements; flags: the tile; offset2: 1 for .col.
void move(Warp &w, const Instruction &i, Mask m) {
  if (!w.convergeWhole(i, m))
    return;
  Tile t = unpackTile(i.flags);
  bool stores = i.opClass == OpClass::Store, byColumns = i.offset2;
  uint64_t base[kLanes];
  w.addresses(i.a, i.wideAddress, i.offset, base);
  unsigned bytes = t.bits() / 8;
  uint64_t stride = i.b == kNoSlot ? (byColumns ? t.rows() : t.columns()) : w.reg<uint32_t>(i.b)[0];
  const Slot *slots = w.launch.decoded.slots.data() + i.extra;
  for (unsigned slot = 0; slot < t.perLane(); ++slot) {
    uint64_t at[kLanes];
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      unsigned e = lane * t.perLane() + slot;
      unsigned row = t.fragment == Fragment::B ? e % t.shape.k : e / t.columns();
      unsigned column = t.fragment == Fragment::B ? e / t.shape.k : e % t.columns();
      at[lane] = base[0] + bytes * (byColumns ? column * stride + row : row * stride + column);
    }
    std::byte *pointers[kLanes];
    w.resolve(i, m, stores ? AccessKind::Write : AccessKind::Read, bytes, at, i.space, pointers);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      uint64_t bits = stores ? readElement(w, slots, t, lane, slot) : 0;
      if (stores) {
        std::memcpy(pointers[lane], &bits, bytes);
      } else {
        std::memcpy(&bits, pointers[lane], bytes);
        writeElement(w, slots, t, lane, slot, bits);
      }
    }
  }
}

bool exists(const Tile &t) {
  MatrixShape s = t.shape;
  bool large =
      s == MatrixShape{16, 16, 16} || s == MatrixShape{32, 8, 16} || s == MatrixShape{8, 32, 16};
  bool accumulator = t.fragment == Fragment::C;
  switch (t.type) {
  case Type::F16:
    return large;
  case Type::BF16:
  case Type::S8:
  case Type::U8:
    return large && !accumulator;
  case Type::S32:
    return large && accumulator;
  case Type::F32:
    return accumulator && (large || s == MatrixShape{16, 16, 8});
  case Type::TF32:
    return !accumulator && s == MatrixShape{16, 16, 8};
  case Type::F64:
    return s == MatrixShape{8, 8, 4};
  default:
    return false;
  }
}

MatrixShape shape(Decoder &d) {
  auto found = parseMatrixShape(d.takeModifier());
  if (!found)
    d.unknown();
  return *found;
}

void decodeMove(Decoder &d, bool stores) {
  Instruction &i = d.i;
  int which = stores ? (d.accept("d") ? 2 : -1) : d.acceptAny({"a", "b", "c"});
  if (which < 0 || !d.accept("sync") || !d.accept("aligned"))
    d.unknown();
  int layout = d.acceptAny({"row", "col"});
  Tile tile{static_cast<Fragment>(which), shape(d), Type::F16};
  Space space = d.acceptSpace();
  tile.type = d.type();
  if (layout < 0 || !exists(tile))
    d.unknown();
  i.opClass = stores ? OpClass::Store : OpClass::Load;
  if (stores) {
    d.address(d.operand(), space);
    i.extra = d.readVector(d.operand(), registerType(tile.type), tile.registers());
  } else {
    i.extra = d.writeVector(d.operand(), registerType(tile.type), tile.registers());
    d.address(d.operand(), space);
  }
  if (d.hasOperand())
    i.b = d.read(Type::U32);
  i.flags = packTile(tile);
  i.offset2 = layout;
  i.run = move;
}

void decodeMultiply(Decoder &d) {
  if (!d.accept("sync") || !d.accept("aligned") || d.acceptAny({"row", "col"}) < 0 ||
      d.acceptAny({"row", "col"}) < 0)
    d.unknown();
  MatrixProduct p;
  p.shape = shape(d);
  d.accept("rn");
  Type first = d.type(), second = d.type();
  Tile tiles[] = {{Fragment::C, p.shape, first},
                  {Fragment::A, p.shape, Type::F16},
                  {Fragment::B, p.shape, Type::F16},
                  {Fragment::C, p.shape, second}};
  if (auto third = d.acceptType()) { // .dtype.atype.btype.ctype; f16 leaves out the middle
    tiles[1].type = second;
    tiles[2].type = *third;
    tiles[3].type = d.type();
  }
  p.saturate = d.accept("satfinite");
  Type element = tiles[1].type;
  bool integer = first == Type::S32;
  bool fits = (element == Type::S8 || element == Type::U8) == integer &&
              (first == Type::F64) == (element == Type::F64) && element == tiles[2].type &&
              (tiles[3].type == first || (element == Type::F16 && !integer));
  for (const Tile &tile : tiles)
    fits &= exists(tile);
  if (!fits || (p.saturate && !integer))
    d.unknown();
  p.d = tiles[0].layout();
  p.a = tiles[1].layout();
  p.b = tiles[2].layout();
  p.c = tiles[3].layout();
  decodeProduct(d, std::move(p));
}

} // namespace

void simt::addWmmaOps(OpcodeTable &table) {
  table["wmma"] = [](Decoder &d) {
    switch (d.acceptAny({"load", "store", "mma"})) {
    case 0:
      return decodeMove(d, false);
    case 1:
      return decodeMove(d, true);
    case 2:
      return decodeMultiply(d);
    default:
      d.unknown();
    }
  };
}
