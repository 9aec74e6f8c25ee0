//===- TileCopy.cpp - Slabs from global to shared memory ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TileCopy.h"

#include "easyquant/Numerics/FragmentPacking.h"

using namespace mlir;

namespace easyquant::gpu {

RowCopy::RowCopy(KernelBuilder &b, SwizzledRows layout, int64_t tileRows, int64_t threads,
                 Value source, Int stride, int64_t rowBytes, int64_t slabs, Value firstRow,
                 Value rowCount)
    : b(b), layout(layout), rowBytes(rowBytes), beyondEnd(slabs * layout.bytes > rowBytes) {
  int64_t perRow = layout.chunks(), total = tileRows * perRow;
  assert(threads % perRow == 0 && "a thread has the same column in each of its rows");
  Value thread = b.thread();
  Value chunk = b.rem(thread, perRow);
  column = b.mul(chunk, 16);
  for (int64_t i = 0; i < divideCeil(total, threads); ++i) {
    Value row = b.add(b.div(thread, perRow), i * threads / perRow);
    Chunk c;
    if ((i + 1) * threads > total)
      c.mine = b.less(row, tileRows);
    Value inMatrix = b.add(firstRow, row);
    c.valid = b.less(inMatrix, rowCount);
    c.source = b.advance(b.rowOf(source, inMatrix, stride, b.i8()), column, b.i8());
    c.target = layout.offset(b, row, chunk);
    chunks.push_back(c);
  }
}

void RowCopy::copy(Value slab, Value shared) {
  Value first = b.mul(slab, layout.bytes), left, inside;
  if (beyondEnd) {
    left = b.sub(rowBytes, b.add(first, column));
    inside = b.less(0, left);
  }
  bool splitsChunk = rowBytes % 16 != 0;
  for (const Chunk &c : chunks)
    b.ifThen(c.mine, [&] {
      Value target = b.advance(shared, c.target, b.i8());
      Value source = b.advance(c.source, first, b.i8()), valid = b.both(c.valid, inside);
      if (splitsChunk)
        b.copyAsync(target, source, b.select(valid, b.min(left, 16), b.i32(0)));
      else
        b.copyAsync16(target, source, valid);
    });
}

BlockCopy::BlockCopy(KernelBuilder &b, int bits, int64_t rowBlocks, int64_t slabBlocks,
                     int64_t threads, Value source, Value firstRowBlock, int64_t totalRowBlocks,
                     int64_t totalColumnBlocks, int64_t slabs)
    : b(b), slabBlocks(slabBlocks), totalColumnBlocks(totalColumnBlocks),
      blockBytes(numerics::fragmentBytes(bits)), beyondEnd(slabs * slabBlocks > totalColumnBlocks) {
  int64_t perBlock = blockBytes / 16, perRow = slabBlocks * perBlock, total = rowBlocks * perRow;
  Value thread = b.thread();
  for (int64_t i = 0; i < divideCeil(total, threads); ++i) {
    Value index = b.add(thread, i * threads);
    Value row = b.div(index, perRow), rest = b.rem(index, perRow);
    Chunk c;
    if ((i + 1) * threads > total)
      c.mine = b.less(index, total);
    Value inMatrix = b.add(firstRowBlock, row);
    if (totalRowBlocks % rowBlocks != 0)
      c.valid = b.less(inMatrix, totalRowBlocks);
    c.block = b.div(rest, perBlock);
    c.source = b.advance(b.rowOf(source, inMatrix, totalColumnBlocks * blockBytes, b.i8()),
                         b.mul(rest, 16), b.i8());
    c.target = b.mul(index, 16);
    chunks.push_back(c);
  }
}

void BlockCopy::copy(Value slab, Value shared) {
  Value firstBlock = b.mul(slab, slabBlocks);
  Value first = b.mul(firstBlock, blockBytes);
  for (const Chunk &c : chunks) {
    Value valid = c.valid;
    if (beyondEnd)
      valid = b.both(valid, b.less(b.add(firstBlock, c.block), totalColumnBlocks));
    b.ifThen(c.mine, [&] {
      b.copyAsync16(b.advance(shared, c.target, b.i8()), b.advance(c.source, first, b.i8()), valid);
    });
  }
}

} // namespace easyquant::gpu
