//===- MatrixMoveOps.cpp - ldmatrix, stmatrix, movmatrix ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"
#include "Lanes.h"

using namespace easyquant;
using namespace easyquant::simt;

namespace {

/// Lanes 0-7 give the rows of the first matrix, 8-15 those of the second, ...
Mask addressLanes(unsigned matrices) {
  return matrices == 4 ? kAllLanes : (1u << 8 * matrices) - 1;
}

/// A matrix in a register is its rows one after the other, each in four lanes of two elements.
constexpr unsigned kRows = 8, kLanesPerRow = kLanes / kRows, kRowBytes = 16;

/// `a` and `result` may be the same.
void transpose(const uint32_t *a, uint32_t *result) {
  uint16_t rows[kRows][kRows], columns[kRows][kRows];
  std::memcpy(rows, a, sizeof(rows));
  for (unsigned row = 0; row < kRows; ++row)
    for (unsigned column = 0; column < kRows; ++column)
      columns[column][row] = rows[row][column];
  std::memcpy(result, columns, sizeof(columns));
}

/// `visit(register, rows in memory)` for each matrix, once the whole warp is here.
template <AccessKind kind, typename Visit>
void eachMatrix(Warp &w, const Instruction &i, Mask m, Visit &&visit) {
  if (!w.convergeWhole(i, m))
    return;
  std::byte *rows[kLanes];
  w.resolve(i, addressLanes(i.count), kind, kRowBytes, rows);
  const Slot *slots = w.launch.decoded.slots.data() + i.extra;
  for (size_t k = 0; k < i.count; ++k)
    visit(w.reg<uint32_t>(slots[k]), rows + kRows * k);
}

void loadMatrices(Warp &w, const Instruction &i, Mask m) {
  eachMatrix<AccessKind::Read>(w, i, m, [&](uint32_t *d, std::byte *const *rows) {
    for (size_t row = 0; row < kRows; ++row)
      std::memcpy(d + kLanesPerRow * row, rows[row], kRowBytes);
    if (i.flags)
      transpose(d, d);
  });
}

void storeMatrices(Warp &w, const Instruction &i, Mask m) {
  eachMatrix<AccessKind::Write>(w, i, m, [&](const uint32_t *s, std::byte *const *rows) {
    uint32_t transposed[kLanes];
    if (i.flags)
      transpose(s, transposed);
    for (size_t row = 0; row < kRows; ++row)
      std::memcpy(rows[row], (i.flags ? transposed : s) + kLanesPerRow * row, kRowBytes);
  });
}

void transposeMatrix(Warp &w, const Instruction &i, Mask m) {
  if (w.convergeWhole(i, m))
    transpose(w.reg<uint32_t>(i.a), w.reg<uint32_t>(i.dst));
}

void head(Decoder &d) {
  d.expect("sync", "aligned", "m8n8");
  int matrices = d.acceptAny({"x1", "x2", "x4"});
  d.i.flags = d.accept("trans");
  if (matrices < 0)
    d.unknown();
  d.i.count = 1 << matrices;
  d.i.opClass = OpClass::MatrixMove;
  if (d.acceptAny({"shared", "shared::cta"}) < 0 || !d.accept("b16"))
    d.unknown();
}

} // namespace

void simt::addMatrixMoveOps(OpcodeTable &table) {
  table["ldmatrix"] = [](Decoder &d) {
    head(d);
    d.i.extra = d.writeVector(d.operand(), Type::B32, d.i.count);
    d.address(d.operand(), Space::Shared);
    d.i.run = loadMatrices;
  };
  table["stmatrix"] = [](Decoder &d) {
    head(d);
    d.address(d.operand(), Space::Shared);
    d.i.extra = d.readVector(d.operand(), Type::B32, d.i.count);
    d.i.run = storeMatrices;
  };
  table["movmatrix"] = [](Decoder &d) {
    d.expect("sync", "aligned", "m8n8", "trans", "b16");
    d.i.opClass = OpClass::MatrixMove;
    d.i.dst = d.write(Type::B32);
    d.i.a = d.read(Type::B32);
    d.i.run = transposeMatrix;
  };
}
