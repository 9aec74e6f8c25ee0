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

bool together(Warp &w, const Instruction &i, Mask m) {
  if (!w.converge(i, w.alive, m))
    return false;
  if (m != kAllLanes)
    w.stop(Finding::DivergentBarrier, i, m, "needs all 32 lanes of the warp");
  return true;
}

/// Lane l holds elements 2(l % 4) and the next of row l / 4; transposed: of column l / 4.
void loadMatrices(Warp &w, const Instruction &i, Mask m) {
  if (!together(w, i, m))
    return;
  std::byte *rows[kLanes];
  w.resolve(i, addressLanes(i.count), AccessKind::Read, 16, rows);
  const Slot *slots = w.launch.program.slots.data() + i.extra;
  for (unsigned k = 0; k < i.count; ++k) {
    uint16_t matrix[8][8];
    for (unsigned row = 0; row < 8; ++row)
      std::memcpy(matrix[row], rows[8 * k + row], 16);
    uint32_t *d = w.reg<uint32_t>(slots[k]);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      unsigned a = lane / 4, b = 2 * (lane % 4);
      d[lane] = i.flags ? matrix[b][a] | uint32_t(matrix[b + 1][a]) << 16
                        : matrix[a][b] | uint32_t(matrix[a][b + 1]) << 16;
    }
  }
}

void storeMatrices(Warp &w, const Instruction &i, Mask m) {
  if (!together(w, i, m))
    return;
  std::byte *rows[kLanes];
  w.resolve(i, addressLanes(i.count), AccessKind::Write, 16, rows);
  const Slot *slots = w.launch.program.slots.data() + i.extra;
  for (unsigned k = 0; k < i.count; ++k) {
    const uint32_t *s = w.reg<uint32_t>(slots[k]);
    for (unsigned lane = 0; lane < kLanes; ++lane)
      for (unsigned half = 0; half < 2; ++half) {
        auto value = static_cast<uint16_t>(s[lane] >> 16 * half);
        unsigned a = lane / 4, b = 2 * (lane % 4) + half;
        unsigned row = i.flags ? b : a, column = i.flags ? a : b;
        std::memcpy(rows[8 * k + row] + 2 * column, &value, 2);
      }
  }
}

void transposeMatrix(Warp &w, const Instruction &i, Mask m) {
  if (!together(w, i, m))
    return;
  const uint32_t *a = w.reg<uint32_t>(i.a);
  auto element = [&](unsigned row, unsigned column) {
    return a[row * 4 + column / 2] >> 16 * (column % 2) & 0xffff;
  };
  uint32_t result[kLanes];
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    unsigned row = lane / 4, column = 2 * (lane % 4);
    result[lane] = element(column, row) | element(column + 1, row) << 16;
  }
  std::memcpy(w.reg<uint32_t>(i.dst), result, sizeof(result));
}

void head(Decoder &d) {
  if (!d.accept("sync") || !d.accept("aligned") || !d.accept("m8n8"))
    d.unknown();
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
    if (!d.accept("sync") || !d.accept("aligned") || !d.accept("m8n8") || !d.accept("trans") ||
        !d.accept("b16"))
      d.unknown();
    d.i.opClass = OpClass::MatrixMove;
    d.i.dst = d.write(Type::B32);
    d.i.a = d.read(Type::B32);
    d.i.run = transposeMatrix;
  };
}
