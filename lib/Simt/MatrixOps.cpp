//===- MatrixOps.cpp - mma.sync -------------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MatrixCore.h"

#include <algorithm>

using namespace easyquant;
using namespace easyquant::simt;

namespace {

/// PTX ISA, "Matrix Fragments for mma": a quad of lanes holds a row of A or C, or a column of B:
/// each lane a word of A or B, two elements of C. Further registers repeat this 8 rows on, and then
/// further along the line.
MatrixLayout layoutOf(Fragment fragment, MatrixShape s, Type type) {
  MatrixLayout layout{type, 0, fragment == Fragment::B ? s.n : s.m, {}};
  unsigned per = elementsPerRegister(type);
  unsigned words = (fragment == Fragment::C ? s.n : s.k) / per; // of a line
  unsigned together = fragment == Fragment::C ? 2 / per : 1;    // of a line in a lane
  for (unsigned word = 0; word < words; ++word)
    for (unsigned line = 0; line < layout.lines; ++line) {
      unsigned lane = line % 8 * 4 + word / together % 4;
      unsigned repeat = word / together / 4 * (layout.lines / 8) + line / 8;
      unsigned reg = repeat * together + word % together;
      layout.words.push_back(static_cast<uint16_t>(reg * kLanes + lane));
    }
  layout.registers = layout.words.size() / kLanes;
  return layout;
}

/// The shapes of the PTX manual for each element type.
bool exists(const MatrixProduct &p) {
  auto is = [&](std::initializer_list<MatrixShape> shapes) {
    return std::find(shapes.begin(), shapes.end(), p.shape) != shapes.end();
  };
  auto accumulates = [&](std::initializer_list<Type> types) {
    return p.c.type == p.d.type && std::find(types.begin(), types.end(), p.d.type) != types.end();
  };
  auto bothOf = [&](Type x, Type y) {
    return (p.a.type == x || p.a.type == y) && (p.b.type == x || p.b.type == y);
  };
  if (bothOf(Type::F16, Type::F16))
    return is({{16, 8, 8}, {16, 8, 16}}) && (p.d.type == Type::F16 || p.d.type == Type::F32) &&
           (p.c.type == Type::F16 || p.c.type == Type::F32);
  if (bothOf(Type::BF16, Type::BF16))
    return is({{16, 8, 8}, {16, 8, 16}}) && accumulates({Type::F32});
  if (bothOf(Type::TF32, Type::TF32))
    return is({{16, 8, 4}, {16, 8, 8}}) && accumulates({Type::F32});
  if (bothOf(Type::E4M3, Type::E5M2))
    return is({{16, 8, 16}, {16, 8, 32}}) && accumulates({Type::F16, Type::F32});
  if (bothOf(Type::E2M1, Type::E2M1))
    return p.isScaled && is({{16, 8, 64}}) && accumulates({Type::F32});
  if (bothOf(Type::F64, Type::F64))
    return is({{8, 8, 4}, {16, 8, 4}, {16, 8, 8}, {16, 8, 16}}) && accumulates({Type::F64});
  if (bothOf(Type::S8, Type::U8))
    return is({{8, 8, 16}, {16, 8, 16}, {16, 8, 32}}) && accumulates({Type::S32});
  if (bothOf(Type::S4, Type::U4))
    return is({{8, 8, 32}, {16, 8, 32}, {16, 8, 64}}) && accumulates({Type::S32});
  if (bothOf(Type::B1, Type::B1))
    return is({{8, 8, 128}, {16, 8, 128}, {16, 8, 256}}) && accumulates({Type::S32});
  return false;
}

void decodeMma(Decoder &d) {
  d.expect("sync", "aligned");
  // The kind stands before the shape or behind the layouts.
  bool isScaled = d.accept("kind::mxf4nvf4");
  if (isScaled)
    d.expect("block_scale", "scale_vec::4X");
  auto shape = parseMatrixShape(d.takeModifier());
  if (!shape || !d.accept("row") || !d.accept("col"))
    d.unknown();
  MatrixProduct p;
  p.shape = *shape;
  if (!isScaled && (isScaled = d.accept("kind::mxf4nvf4")))
    d.expect("block_scale", "scale_vec::4X");
  p.isScaled = isScaled;
  p.saturate = d.accept("satfinite");
  for (MatrixLayout *matrix : {&p.d, &p.a, &p.b, &p.c})
    matrix->type = d.type();
  if (!exists(p) || (isScaled && (p.a.type != Type::E2M1 || !d.accept("ue4m3"))))
    d.unknown();
  if (p.a.type == Type::B1) {
    int operation = d.acceptAny({"xor", "and"});
    if (operation < 0 || !d.accept("popc"))
      d.unknown();
    p.isXor = operation == 0;
  }
  p.d = layoutOf(Fragment::C, *shape, p.d.type);
  p.a = layoutOf(Fragment::A, *shape, p.a.type);
  p.b = layoutOf(Fragment::B, *shape, p.b.type);
  p.c = layoutOf(Fragment::C, *shape, p.c.type);
  decodeProduct(d, std::move(p));
}

} // namespace

void simt::addMatrixOps(OpcodeTable &table) { table["mma"] = decodeMma; }
