//===- GemmRing.cpp - Tiles and slabs of the matrix products --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GemmRing.h"

using namespace mlir;

namespace easyquant::gpu {

GemmRing::GemmRing(KernelBuilder &b, const GemmShape &shape, const GemmTile &tile, Value source,
                   Int stride, int64_t rowBytes, Value weights, Value rows, TilePlace place)
    : rows(rows), b(b), shape(shape), tile(tile),
      activations{tile.slab * shape.elementBytes / shape.perByte}, shared(b.dynamicSharedMemory()) {
  Value warp = b.div(b.thread(), 32);
  lane = b.rem(b.thread(), 32);
  Value warpRow = b.div(warp, tile.warpColumns), warpColumn = b.rem(warp, tile.warpColumns);
  Value blockRow = b.mul(place.row, tile.rows), blockColumn = b.mul(place.column, tile.columns);

  int64_t down = tile.columns / blockRows();
  rowCopy.emplace(b, activations, tile.rows, tile.threads(), source, stride, rowBytes, slabs(),
                  blockRow, rows);
  blockCopy.emplace(b, shape.bits, down, blocksAcross(), tile.threads(), weights,
                    b.mul(place.column, down), divideCeil(shape.n, blockRows()),
                    divideCeil(shape.k, numerics::kFragmentColumns), slabs());
  firstSlab = b.i32(0);
  endSlab = b.i32(slabs());
  if (place.part) {
    const int64_t most = unitsOfPart() * slabsOfUnit();
    firstSlab = b.mul(place.part, most);
    endSlab = b.min(b.add(firstSlab, most), slabs());
  }
  for (int64_t stage = 0; stage < tile.stages - 1; ++stage)
    startCopy(b.add(firstSlab, stage), b.i32(stage * stageBytes()));

  // Lanes 0 .. 15 name the rows of the left 16 bytes, the others those of the right ones. A warp's
  // first row is a multiple of 16, which the swizzle does not see.
  Value row = b.rem(lane, 16), right = b.div(lane, 16);
  Value warpOffset = b.mul(warpRow, warpRows() * activations.bytes);
  for (int64_t step = 0; step < steps(); ++step)
    activationOffsets.push_back(
        b.add(warpOffset, activations.offset(b, row, b.add(right, 2 * step))));
  weightOffset = b.mul(warpColumn, blocksDown() * blocksAcross() * blockBytes());

  quad = b.div(lane, 4);
  columnOfWarp = b.add(blockColumn, b.mul(warpColumn, warpColumns()));
  firstRow = b.add(b.add(blockRow, b.mul(warpRow, warpRows())), quad);
  firstColumn = b.add(columnOfWarp, b.mul(b.rem(lane, 4), 2));
}

Value GemmRing::paddedColumn(Value n, int64_t width) {
  if (columnsAreWhole())
    return n;
  // Scales are padded to 64 columns, a tile may reach further.
  return b.min(n, numerics::fragmentScaleRows(shape.n) - width);
}

void GemmRing::forRows(llvm::function_ref<void(int64_t, int64_t, Value)> body) {
  for (int64_t i = 0; i < mTiles(); ++i)
    for (int64_t half = 0; half < 2; ++half) {
      Value row = rowOf(i, half);
      b.ifThen(b.less(row, rows), [&] { body(i, half, row); });
    }
}

void GemmRing::startCopy(Value slab, Value stage) {
  b.ifThen(b.less(slab, endSlab), [&] {
    rowCopy->copy(slab, b.advance(shared, stage, b.i8()));
    blockCopy->copy(slab, b.advance(shared, b.add(stage, activationBytes()), b.i8()));
  });
  // An empty group keeps the count of groups under way the same to the end.
  b.commitCopies();
}

GemmRing::Values GemmRing::begin() {
  return {firstSlab, b.i32(0), b.i32((tile.stages - 1) * stageBytes())};
}

/// Waits for the next slab, starts another copy, multiplies.
GemmRing::Values GemmRing::step(ValueRange carried, Multiply body) {
  Value slab = carried[0], read = carried[1], fill = carried[2];
  b.waitForCopies(tile.stages - 2);
  b.barrier();
  startCopy(b.add(slab, tile.stages - 1), fill);
  Values accumulators = body(slab, read, Values(carried.drop_front(kState)));
  auto next = [&](Value offset) {
    Value after = b.add(offset, stageBytes());
    return b.select(b.equal(after, tile.stages * stageBytes()), b.i32(0), after);
  };
  Values results = {b.add(slab, 1), next(read), next(fill)};
  llvm::append_range(results, accumulators);
  return results;
}

GemmRing::Values GemmRing::multiply(Int count, ValueRange carried, Multiply body) {
  return b.forLoop(0, count, 1, carried,
                   [&](Value, ValueRange carried) { return step(carried, body); });
}

GemmRing::Values GemmRing::loadActivations(Value stage, int64_t i, int64_t step) {
  Value pointer = b.advance(shared, b.add(stage, activationOffsets[step]), b.i8());
  return b.loadMatrix4(b.advance(pointer, i * kM * activations.bytes, b.i8()));
}

Value GemmRing::weightBlock(Value stage, int64_t down, int64_t across) {
  Value pointer = b.advance(shared, b.add(stage, weightOffset), b.i8());
  int64_t block = down * blocksAcross() + across;
  return b.advance(pointer, activationBytes() + block * blockBytes(), b.i8());
}

} // namespace easyquant::gpu
