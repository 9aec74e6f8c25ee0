//===- SharedSums.cpp - Sums of blocks that share K -----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A thread's sums are vectors of four. In memory vector v of all threads of a part comes behind
// vector v - 1 of all threads, so that a warp reads and writes whole lines.
//
//===----------------------------------------------------------------------===//

#include "SharedSums.h"

using namespace mlir;

namespace easyquant::gpu {

Value SharedSums::vectorsOf(Int part) {
  Value row = b.add(b.mul(number, tile.splits), part);
  Value vectors = b.rowOf(arguments["partials"], row, tile.rows * tile.columns, b.i32());
  return b.advance(vectors, b.mul(b.thread(), kVector), b.i32());
}

Value SharedSums::vectorAt(Value vectors, int64_t number) {
  return b.advance(vectors, number * tile.threads() * kVector, b.i32());
}

SharedSums::Values SharedSums::load(Int part, Type element) {
  const int64_t count = tile.rows * tile.columns / tile.threads() / kVector;
  Value vectors = vectorsOf(part);
  Values sums;
  for (int64_t v = 0; v < count; ++v)
    llvm::append_range(sums, b.elements(b.load(vectorAt(vectors, v), b.vec(kVector, element))));
  return sums;
}

void SharedSums::add(ValueRange own, llvm::function_ref<void(ValueRange)> body) {
  number = b.add(b.mul(place.row, across), place.column);
  Type element = own.front().getType();
  Value vectors = vectorsOf(place.part);
  for (int64_t v = 0; v < std::ssize(own) / kVector; ++v)
    b.store(b.join(own.slice(v * kVector, kVector)), vectorAt(vectors, v));
  Value counter = b.advance(arguments["counters"], number, b.i32());
  b.ifLastBlock(tile.splits - 1, counter, b.sharedMemory(4), [&] {
    const bool inOrder = element != b.i32();
    // The part after the block's own is the first of the others.
    Values sums = inOrder ? load(0, element) : Values(own);
    body(b.forLoop(1, tile.splits, 1, sums, [&](Value i, ValueRange carried) {
      Value part = i;
      if (!inOrder) {
        part = b.add(place.part, i);
        part = b.select(b.less(part, tile.splits), part, b.sub(part, tile.splits));
      }
      Values added;
      for (auto [sum, other] : llvm::zip_equal(carried, load(part, element)))
        added.push_back(inOrder ? b.addf(sum, other) : b.add(sum, other));
      return added;
    }));
  });
}

} // namespace easyquant::gpu
