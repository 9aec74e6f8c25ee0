//===- IntegerGemm.cpp - int8 activations times packed weights ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// mma.sync m16n8k32 on signed bytes. A ring of slabs fills by cp.async while the slabs before are
// multiplied; one barrier a slab both publishes the slab that has arrived and frees the one read
// last. Activations come into registers by ldmatrix, weights by one 16-byte load a lane and block.
//
// Weights of fewer bits than eight are unpacked in registers to bytes that are 2^(8 - b) times the
// code (the field moved to the top of its byte, the rest masked): a shift and a mask make four
// signed bytes, which subtracting an offset would not. Sums are then exact multiples of 2^(8 - b).
//
// With scales per group, integer accumulators live for one group and are added to float ones with
// the group's scales, which were fetched when the group began.
//
//===----------------------------------------------------------------------===//

#include "LinearEpilogue.h"
#include "LinearKernels.h"
#include "TileCopy.h"
#include "Unpack.h"

#include "easyquant/Codegen/GPU/Emit.h"
#include "easyquant/Numerics/FragmentPacking.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace easyquant::gpu {
namespace {

class IntegerGemm {
public:
  IntegerGemm(KernelBuilder &b, const LinearSpec &spec, const GemmTile &tile,
              const KernelArguments &arguments)
      : b(b), spec(spec), tile(tile), arguments(arguments), activations{tile.slab},
        epilogue(b, spec, arguments, 2, 8 - spec.bits) {}

  void emit();

private:
  using Values = KernelBuilder::Values;
  static constexpr int64_t kM = 16, kN = 8, kK = 32; ///< of an mma

  int64_t warpTileRows() const { return tile.rows / tile.warpRows; }
  int64_t warpTileColumns() const { return tile.columns / tile.warpColumns; }
  int64_t mTiles() const { return warpTileRows() / kM; }
  int64_t nTiles() const { return warpTileColumns() / kN; }
  int64_t rowsOfBlock() const { return numerics::fragmentRows(spec.bits); }
  int64_t columnBlocks() const { return llvm::divideCeil(spec.k, numerics::kFragmentColumns); }
  int64_t slabs() const {
    if (spec.groups() > 1)
      return spec.groups() * slabsOfGroup();
    return llvm::divideCeil(spec.k, tile.slab);
  }
  int64_t slabsOfGroup() const { return spec.groupSize / tile.slab; }
  int64_t activationBytes() const { return tile.rows * tile.slab; }
  int64_t stageBytes() const {
    return activationBytes() + tile.columns * tile.slab * spec.bits / 8;
  }
  /// Index of accumulator register `r` of tile (i, j).
  int64_t at(int64_t i, int64_t j, int64_t r) const { return (i * nTiles() + j) * 4 + r; }

  void startCopy(Value slab, Value stage);
  Values multiplySlab(Value stage, Values accumulators);
  Values loadActivations(Value stage, int64_t i, int64_t step);
  /// The two registers of each 8-column tile of a block row.
  SmallVector<std::array<Value, 2>> loadWeights(Value stage, int64_t blockRow, int64_t step);
  /// One slab of the ring: waits for it, starts another copy, multiplies. carried: slab, stage
  /// offset to read, stage offset to fill, accumulators.
  Values step(ValueRange carried);
  Value rowOfTile(int64_t i, int64_t half) { return b.add(firstRow, i * kM + half * 8); }
  Value columnOfTile(int64_t j) { return b.add(firstColumn, j * kN); }
  Values addGroup(Value group, ArrayRef<Value> accumulators, ArrayRef<Value> sums,
                  ArrayRef<LinearEpilogue::ColumnTerms> columns);

  KernelBuilder &b;
  const LinearSpec &spec;
  const GemmTile &tile;
  const KernelArguments &arguments;
  SwizzledRows activations;
  LinearEpilogue epilogue;

  std::optional<RowCopy> rowCopy;
  std::optional<BlockCopy> blockCopy;
  Value shared;
  Value rows, lane;
  Value firstRow, firstColumn; ///< this thread's first row and column of y
  Values activationOffsets;    ///< of this lane for ldmatrix, one a step of the slab
  Value weightOffset;          ///< of this lane and warp
  SmallVector<Value> rowZeros; ///< zero points of the thread's rows
};

} // namespace

void IntegerGemm::startCopy(Value slab, Value stage) {
  b.ifThen(b.less(slab, slabs()), [&] {
    rowCopy->copy(slab, b.advance(shared, stage, b.i8()));
    blockCopy->copy(slab, b.advance(shared, b.add(stage, activationBytes()), b.i8()));
  });
  // An empty group keeps the count of groups under way the same to the end.
  b.commitCopies();
}

IntegerGemm::Values IntegerGemm::loadActivations(Value stage, int64_t i, int64_t step) {
  Value offset = b.add(stage, activationOffsets[step]);
  Value pointer = b.advance(b.advance(shared, offset, b.i8()), i * kM * tile.slab, b.i8());
  return b.loadMatrix4(pointer);
}

SmallVector<std::array<Value, 2>> IntegerGemm::loadWeights(Value stage, int64_t blockRow,
                                                           int64_t step) {
  int64_t block = blockRow * (tile.slab / kK) + step;
  Value pointer = b.advance(b.advance(shared, b.add(stage, weightOffset), b.i8()),
                            activationBytes() + block * numerics::kFragmentBytes, b.i8());
  Value words = b.load(pointer, b.vec(4, b.i32()));
  Values four;
  for (int64_t i = 0; i < 4; ++i)
    four.push_back(b.extract(words, i));
  return unpackBytes(b, spec.bits, four);
}

IntegerGemm::Values IntegerGemm::multiplySlab(Value stage, Values accumulators) {
  for (int64_t step = 0; step < tile.slab / kK; ++step) {
    SmallVector<Values> a;
    for (int64_t i = 0; i < mTiles(); ++i)
      a.push_back(loadActivations(stage, i, step));
    SmallVector<std::array<Value, 2>> w;
    for (int64_t block = 0; block < warpTileColumns() / rowsOfBlock(); ++block)
      llvm::append_range(w, loadWeights(stage, block, step));
    for (int64_t i = 0; i < mTiles(); ++i)
      for (int64_t j = 0; j < nTiles(); ++j) {
        Values d = b.multiplyBytes(a[i], w[j], ArrayRef(accumulators).slice(at(i, j, 0), 4));
        llvm::copy(d, accumulators.begin() + at(i, j, 0));
      }
  }
  return accumulators;
}

IntegerGemm::Values IntegerGemm::step(ValueRange carried) {
  Value slab = carried[0], read = carried[1], fill = carried[2];
  b.waitForCopies(tile.stages - 2);
  b.barrier();
  startCopy(b.add(slab, tile.stages - 1), fill);
  Values accumulators = multiplySlab(read, Values(carried.drop_front(3)));
  auto next = [&](Value offset) {
    Value after = b.add(offset, stageBytes());
    return b.select(b.equal(after, tile.stages * stageBytes()), b.i32(0), after);
  };
  Values results = {b.add(slab, 1), next(read), next(fill)};
  llvm::append_range(results, accumulators);
  return results;
}

IntegerGemm::Values IntegerGemm::addGroup(Value group, ArrayRef<Value> accumulators,
                                          ArrayRef<Value> sums,
                                          ArrayRef<LinearEpilogue::ColumnTerms> columns) {
  Values results(sums.begin(), sums.end());
  results.resize(accumulators.size());
  for (int64_t i = 0; i < mTiles(); ++i)
    for (int64_t half = 0; half < 2; ++half) {
      Value m = rowOfTile(i, half);
      Value valid = b.less(m, rows);
      Value rowSum = epilogue.rowSum(m, group, valid);
      Value rowZero = rowZeros.empty() ? Value() : rowZeros[2 * i + half];
      for (int64_t j = 0; j < nTiles(); ++j) {
        int64_t first = at(i, j, 2 * half);
        Values t = epilogue.addGroup(accumulators.slice(first, 2), columns[j], rowSum, rowZero,
                                     sums.empty() ? sums : sums.slice(first, 2));
        llvm::copy(t, results.begin() + first);
      }
    }
  return results;
}

void IntegerGemm::emit() {
  rows = arguments["rows"];
  shared = b.dynamicSharedMemory();
  Value thread = b.thread(), warp = b.div(thread, 32);
  lane = b.rem(thread, 32);
  Value warpRow = b.div(warp, tile.warpColumns), warpColumn = b.rem(warp, tile.warpColumns);
  Value blockRow = b.mul(b.block(0), tile.rows), blockColumn = b.mul(b.block(1), tile.columns);

  int64_t rowBytes = paddedColumns(spec.k);
  rowCopy.emplace(b, activations, tile.rows, tile.threads(), arguments["codes"], rowBytes, rowBytes,
                  slabs(), blockRow, rows);
  blockCopy.emplace(b, spec.bits, tile.columns / rowsOfBlock(), tile.slab / kK, tile.threads(),
                    arguments["w"], b.mul(b.block(1), tile.columns / rowsOfBlock()),
                    llvm::divideCeil(spec.n, rowsOfBlock()), columnBlocks(), slabs());
  for (int64_t stage = 0; stage < tile.stages - 1; ++stage)
    startCopy(b.i32(stage), b.i32(stage * stageBytes()));

  // Lanes 0 .. 15 name the rows of the left 16 bytes, the others those of the right ones. A warp's
  // first row is a multiple of 16, which the swizzle does not see.
  Value row = b.rem(lane, 16), right = b.div(lane, 16);
  Value warpOffset = b.mul(warpRow, warpTileRows() * tile.slab);
  for (int64_t step = 0; step < tile.slab / kK; ++step)
    activationOffsets.push_back(
        b.add(warpOffset, activations.offset(b, row, b.add(right, 2 * step))));
  int64_t blocksOfWarp = warpTileColumns() / rowsOfBlock() * (tile.slab / kK);
  weightOffset = b.add(b.mul(warpColumn, blocksOfWarp * numerics::kFragmentBytes), b.mul(lane, 16));
  firstRow = b.add(b.add(blockRow, b.mul(warpRow, warpTileRows())), b.div(lane, 4));
  firstColumn =
      b.add(b.add(blockColumn, b.mul(warpColumn, warpTileColumns())), b.mul(b.rem(lane, 4), 2));
  if (spec.inputZeroPoints)
    for (int64_t i = 0; i < mTiles(); ++i)
      for (int64_t half = 0; half < 2; ++half) {
        Value m = rowOfTile(i, half);
        rowZeros.push_back(epilogue.rowZero(m, b.less(m, rows)));
      }

  auto columnsOf = [&](Value group) {
    SmallVector<LinearEpilogue::ColumnTerms> columns;
    for (int64_t j = 0; j < nTiles(); ++j) {
      // Scales are padded to 64 columns, a tile may reach further.
      Value n = columnOfTile(j);
      if (spec.n % tile.columns != 0)
        n = b.min(n, numerics::fragmentScaleRows(spec.n) - 2);
      columns.push_back(epilogue.columnTerms(group, n));
    }
    return columns;
  };

  int64_t count = mTiles() * nTiles() * 4;
  Values zeros(count, b.i32(0)), sums;
  Values ring = {b.i32(0), b.i32(0), b.i32((tile.stages - 1) * stageBytes())};
  if (spec.groups() == 1) {
    llvm::append_range(ring, zeros);
    ring = b.forLoop(0, slabs(), 1, ring, [&](Value, ValueRange carried) { return step(carried); });
    sums = addGroup(b.i32(0), ArrayRef(ring).drop_front(3), {}, columnsOf(b.i32(0)));
  } else {
    Values outer = ring;
    outer.append(count, b.zero(b.f32()));
    outer = b.forLoop(0, spec.groups(), 1, outer, [&](Value group, ValueRange carried) {
      auto columns = columnsOf(group);
      Values inner(carried.take_front(3));
      llvm::append_range(inner, zeros);
      inner = b.forLoop(0, slabsOfGroup(), 1, inner,
                        [&](Value, ValueRange carried) { return step(carried); });
      Values results(ArrayRef(inner).take_front(3));
      llvm::append_range(results, addGroup(group, ArrayRef(inner).drop_front(3),
                                           Values(carried.drop_front(3)), columns));
      return results;
    });
    sums = Values(ArrayRef(outer).drop_front(3));
  }
  // Copies of the last, empty groups are complete; none outlives the block.
  b.waitForCopies(0);

  epilogue.writer.columnsAreWhole = spec.n % tile.columns == 0;
  for (int64_t i = 0; i < mTiles(); ++i)
    for (int64_t half = 0; half < 2; ++half) {
      Value m = rowOfTile(i, half);
      b.ifThen(b.less(m, rows), [&] {
        Value scale = epilogue.rowScale(m, Value());
        for (int64_t j = 0; j < nTiles(); ++j)
          epilogue.write(m, columnOfTile(j), scale, ArrayRef(sums).slice(at(i, j, 2 * half), 2));
      });
    }
}

void emitMatrixLinear(KernelBuilder &b, const LinearSpec &spec, const GemmTile &tile,
                      const KernelArguments &arguments) {
  IntegerGemm(b, spec, tile, arguments).emit();
}

} // namespace easyquant::gpu
