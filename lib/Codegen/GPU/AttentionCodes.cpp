//===- AttentionCodes.cpp - Codes of the rows that attention makes --------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A row of the result is made by several blocks, one for each kv head and part of the tokens. The
// one that ends last, whichever that is, makes the codes of the whole row, as the kernel over rows
// makes them, to the bit.
//
//===----------------------------------------------------------------------===//

#include "AttentionBlock.h"
#include "RowEmitter.h"

using namespace mlir;

namespace easyquant::gpu {

/// The part of shared memory that tells all threads whether the block is the last.
static constexpr int64_t kLastBytes = 16;

int64_t bytesForCodes(const AttentionSpec &spec, const AttentionTile &tile) {
  return kLastBytes + RowEmitter::sharedBytes(*spec.codes, rowShape(*spec.codes, tile.threads()));
}

void emitRowCodes(KernelBuilder &b, const AttentionSpec &spec, const AttentionKernel &kernel,
                  const KernelArguments &arguments, Value item) {
  const int64_t items = spec.kvHeads * QueryCut(spec, kernel.tile).chunks;
  const StepPiece piece(b, arguments, b.div(item, items));
  Value shared = b.dynamicSharedMemory(), last = b.sub(b.mul(piece.parts, items), 1);
  Value counter = b.advance(arguments["row_counters"], piece.row, b.i32());
  b.ifLastBlock(last, counter, shared, [&] {
    b.forLoop(0, piece.rows, 1, [&](Value row) {
      RowEmitter(b, *spec.codes, arguments, kernel.tile.threads())
          .emitMadeRow(b.add(piece.row, row), b.advance(shared, kLastBytes, b.i8()));
      b.barrier(); // all are through with shared memory
    });
  });
}

} // namespace easyquant::gpu
