//===- LinearUnpack.cpp - Packed weights into the tiles' order ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The unpacked panel is, per tile of C = tileColumns output columns,
//   Widened    i16 [Kp/4][C][4]: the codes themselves, or the values of a table
//   Saturated  u8  [Kp/4][C][4]: code + 2^(b-1)
//   Signed     s8  [Kp/4][C][4]: the codes themselves, those of weights with minima from 0 on, or
//                                the values of a table
//   Matrix     s8  [Kp/8][C][8]: the same
//   Float      f32 [slab][C]:    code - zero point, what else codes stand for, or the weight
//
//===----------------------------------------------------------------------===//

#include "Linear.h"

#include <numeric>

using namespace mlir;

namespace easyquant::cpu {

/// Output columns of the panel that a vector of packed bytes holds.
static constexpr int64_t kPackedColumns = 8;

static void unpackWidened(LinearKernel &k, Value panel, Value slot) {
  KernelBuilder &b = k.b;
  int64_t columns = k.tiling.tileColumns;
  b.forLoop(0, paddedColumns(k.spec.k) / 8, 1, [&](Value index) {
    PackedBlock block =
        k.block(panel, b.mul(index, PackedBlock::bytesOf(k.spec.weights)), kPackedColumns);
    for (int64_t half = 0; half < 2; ++half) {
      block.load(half);
      Value step = b.add(b.mul(index, 2), half);
      for (int64_t v = 0; v < block.vectors(); ++v) {
        Value codes = k.signedBytes(block, half, v);
        for (int64_t part = 0; part < 2; ++part) {
          int64_t column = v * kPackedColumns + part * 4;
          Value wide = b.signExtend(b.slice(codes, part * 16, 16), b.i16());
          b.storeVector(wide, k.unpacked, {slot, column / columns, step, column % columns * 4});
        }
      }
    }
  });
}

static void unpackBytes(LinearKernel &k, Value panel, Value slot) {
  KernelBuilder &b = k.b;
  int64_t columns = k.tiling.tileColumns;
  b.forLoop(0, paddedColumns(k.spec.k) / 8, 1, [&](Value index) {
    PackedBlock block =
        k.block(panel, b.mul(index, PackedBlock::bytesOf(k.spec.weights)), kPackedColumns);
    for (int64_t half = 0; half < 2; ++half) {
      block.load(half);
      for (int64_t v = 0; v < block.vectors(); ++v) {
        int64_t c = v * kPackedColumns;
        b.storeVector(k.tileBytes(block, half, v), k.unpacked,
                      {slot, c / columns, b.add(b.mul(index, 2), half), c % columns * 4});
      }
    }
  });
}

/// Eight columns of x of an output lie side by side: the words of both steps of a block by turns.
static void unpackMatrix(LinearKernel &k, Value panel, Value slot) {
  KernelBuilder &b = k.b;
  const int64_t columns = k.tiling.tileColumns;
  b.forLoop(0, paddedColumns(k.spec.k) / 8, 1, [&](Value index) {
    PackedBlock block =
        k.block(panel, b.mul(index, PackedBlock::bytesOf(k.spec.weights)), kPackedColumns);
    SmallVector<Value> words[2];
    for (int64_t half = 0; half < 2; ++half) {
      block.load(half);
      for (int64_t v = 0; v < block.vectors(); ++v)
        words[half].push_back(
            b.bitcast(k.tileBytes(block, half, v), b.vec(kPackedColumns, b.i32())));
    }
    for (int64_t v = 0; v < block.vectors(); ++v)
      for (int64_t part = 0; part < 2; ++part) {
        SmallVector<int64_t> byTurns;
        for (int64_t i = 0; i < kPackedColumns / 2; ++i)
          byTurns.append({part * kPackedColumns / 2 + i, (part + 2) * kPackedColumns / 2 + i});
        Value four = b.shuffle(words[0][v], words[1][v], byTurns);
        const int64_t c = v * kPackedColumns;
        b.storeVector(b.bitcast(four, b.vec(4 * kPackedColumns, b.i8())), k.unpacked,
                      {slot, c / columns, b.add(b.mul(index, 2), part), c % columns * 4});
      }
  });
}

static void unpackFloatCodes(LinearKernel &k, Value panel, Value slab, Value count) {
  KernelBuilder &b = k.b;
  int64_t columns = k.tiling.tileColumns;
  auto groupOf = [&](Value column) {
    return k.spec.groupSize ? b.div(column, k.spec.groupSize) : b.index(0);
  };
  b.forLoop(0, count, k.tiling.chainColumns, [&](Value at) {
    Value group = groupOf(b.add(slab, at)), chain = b.div(at, k.tiling.chainColumns);
    for (int64_t c = 0; c < kPanelRows; c += kPackedColumns) {
      b.storeVector(loadScales(k, panel, group, c, kPackedColumns), k.slabScales, {chain, c});
      if (k.slabMinima)
        b.storeVector(loadMinima(k, panel, group, c, kPackedColumns), k.slabMinima, {chain, c});
    }
  });
  // Slabs are multiples of 8 columns and so are groups: a block has one zero point per column.
  b.forLoop(0, count, 8, [&](Value at) {
    Value first = b.add(slab, at);
    PackedBlock block =
        k.block(panel, b.mul(first, PackedBlock::bytesOf(k.spec.weights) / 8), kPackedColumns);
    SmallVector<Value> zeros;
    for (int64_t c = 0; c < kPanelRows && (k.wZeros || k.wMinima); c += kPackedColumns)
      zeros.push_back(k.wZeros
                          ? b.toFloat(loadZeroPoints(k, panel, groupOf(first), c, kPackedColumns))
                          : b.constant(b.vec(kPackedColumns, b.f32()), double(k.commonZero())));
    for (int64_t i = 0; i < 8; ++i) {
      if (i % 4 == 0)
        block.loadCodes(i / 4);
      for (int64_t v = 0; v < block.vectors(); ++v) {
        int64_t c = v * kPackedColumns;
        b.storeVector(block.code(i, v, zeros), k.unpacked,
                      {0, c / columns, b.add(at, i), c % columns});
      }
    }
  });
}

static void unpackFloatRows(LinearKernel &k, Value panel, Value slab, Value count) {
  KernelBuilder &b = k.b;
  int64_t columns = k.tiling.tileColumns, n = k.spec.n;
  Value full = b.mul(b.div(count, 8), 8);
  for (int64_t c = 0; c < kPanelRows; c += 8) {
    // Rows beyond N repeat the last one; their products are never stored.
    SmallVector<Value> rows;
    for (int64_t r = 0; r < 8; ++r) {
      Value row = b.add(b.mul(panel, kPanelRows), c + r);
      rows.push_back(n % kPanelRows ? b.min(row, n - 1) : row);
    }
    b.forLoop(0, full, 8, [&](Value at) {
      Value column = b.add(slab, at);
      SmallVector<Value> block;
      for (Value row : rows)
        block.push_back(b.loadVector(8, k.weights, {row, column}));
      for (auto [i, vector] : llvm::enumerate(b.transpose8(block)))
        b.storeVector(vector, k.unpacked, {0, c / columns, b.add(at, i), c % columns});
    });
    if (k.spec.k % 8)
      b.forLoop(full, count, 1, [&](Value at) {
        Value column = b.add(slab, at);
        for (auto [r, row] : llvm::enumerate(rows))
          b.store(b.load(k.weights, {row, column}), k.unpacked,
                  {0, c / columns, at, c % columns + r});
      });
  }
}

void emitUnpack(LinearKernel &k, Value panel, Value slot, Value slab, Value count) {
  switch (k.tiling.dot) {
  case Dot::Widened:
    return unpackWidened(k, panel, slot);
  case Dot::Saturated:
  case Dot::Signed:
    return unpackBytes(k, panel, slot);
  case Dot::Matrix:
    return unpackMatrix(k, panel, slot);
  case Dot::Vnni:
    return; // tiles do it themselves
  case Dot::Float:
    if (k.spec.weights == WeightFormat::F32)
      return unpackFloatRows(k, panel, slab, count);
    return unpackFloatCodes(k, panel, slab, count);
  }
}

static void widenRows(LinearKernel &k, int64_t rows, Value firstRow) {
  KernelBuilder &b = k.b;
  int64_t padded = paddedColumns(k.spec.k), width = padded % 16 ? 8 : 16;
  // The widened row as i16; `widened` reads the same bytes four at a time.
  b.forLoop(0, padded, width, [&](Value column) {
    for (int64_t r = 0; r < rows; ++r) {
      Value codes = b.loadVector(width, k.x, {b.add(firstRow, r), column});
      Value wide = b.bitcast(b.signExtend(codes, b.i16()), b.vec(width / 4, b.i64()));
      b.storeVector(wide, k.widened, {r, b.div(column, 4)});
    }
  });
}

/// -offset times the sums of a chunk's codes, less 1: those of columns 4i and 4i + 1 in the low
/// i16, those of 4i + 2 and 4i + 3 in the high one. They may wrap.
static Value correctionOf(LinearKernel &k, Value row, Value firstStep, int64_t steps) {
  KernelBuilder &b = k.b;
  Value sums;
  for (int64_t first = 0; first < steps * 4; first += 32) {
    const int64_t bytes = std::min<int64_t>(steps * 4 - first, 32);
    Value codes = b.loadVector(bytes, k.x, {row, b.add(b.mul(firstStep, 4), first)});
    if (bytes < 32) {
      SmallVector<int64_t> mask(32, bytes); // the rest: zeros, of the second operand
      std::iota(mask.begin(), mask.begin() + bytes, 0);
      codes = b.shuffle(codes, b.zero(codes.getType()), mask);
    }
    Value offsets = b.constant(codes.getType(), k.offset());
    Value pairs = b.intrinsic("llvm.x86.avx2.pmadd.ub.sw", b.vec(16, b.i16()), {offsets, codes});
    sums = sums ? b.addi(sums, pairs) : pairs;
  }
  for (int64_t lanes = 8; lanes >= 2; lanes /= 2)
    sums = b.addi(b.slice(sums, 0, lanes), b.slice(sums, lanes, lanes));
  Value negative = b.subi(b.constant(cast<VectorType>(sums.getType()), int64_t(-1)), sums);
  return b.extract(b.bitcast(negative, b.vec(1, b.i32())), 0);
}

static void correctRows(LinearKernel &k, int64_t rows, Value firstRow) {
  KernelBuilder &b = k.b;
  const int64_t perChunk = k.correctedSteps();
  auto group = [&](Value g, int64_t steps) {
    Value firstStep = b.mul(g, k.groupSteps()), firstChunk = b.mul(g, k.groupChunks());
    auto chunk = [&](Index c, int64_t count) {
      for (int64_t r = 0; r < rows; ++r)
        b.store(correctionOf(k, b.add(firstRow, r), b.add(firstStep, b.mul(c, perChunk)), count),
                k.corrections, {r, b.add(firstChunk, c)});
    };
    int64_t whole = steps / perChunk, rest = steps % perChunk;
    if (whole)
      b.forLoop(0, whole, 1, [&](Value c) { chunk(c, perChunk); });
    if (rest)
      chunk(whole, rest);
  };
  if (k.fullGroups())
    b.forLoop(0, k.fullGroups(), 1, [&](Value g) { group(g, k.groupSteps()); });
  if (k.lastSteps())
    group(b.index(k.fullGroups()), k.lastSteps());
}

void emitPrepareRows(LinearKernel &k, int64_t rows, Value firstRow, Value slab, Value count) {
  KernelBuilder &b = k.b;
  if (k.tiling.dot == Dot::Widened)
    widenRows(k, rows, firstRow);
  if (k.tiling.dot == Dot::Saturated)
    correctRows(k, rows, firstRow);
  if (k.rowSums)
    b.forLoop(0, count, k.tiling.chainColumns, [&](Value at) {
      Value columns = b.min(b.sub(count, at), k.tiling.chainColumns);
      for (int64_t r = 0; r < rows; ++r)
        b.store(columnSum(k, b.add(firstRow, r), b.add(slab, at), columns), k.rowSums,
                {r, b.div(at, k.tiling.chainColumns)});
    });
}

} // namespace easyquant::cpu
