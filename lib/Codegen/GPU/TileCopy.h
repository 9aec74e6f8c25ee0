//===- TileCopy.h - Slabs from global to shared memory ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The part that matrix products share: copies of slabs by cp.async in chunks of 16 bytes, and where
// a chunk lies in shared memory.
//
// Activations are rows of slabBytes, in which chunk c of row r lies at place c xor swizzle(r): the
// eight rows that one phase of ldmatrix reads, and the eight chunks that a quarter of a warp
// copies, are then in eight different groups of four banks. Weights are blocks as
// Numerics/FragmentPacking.h has them, read 16 or 8 bytes a lane: no conflict to avoid.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_TILECOPY_H
#define EASYQUANT_LIB_CODEGEN_GPU_TILECOPY_H

#include "KernelBuilder.h"

namespace easyquant::gpu {

/// Rows of a matrix in shared memory, swizzled.
struct SwizzledRows {
  int64_t bytes; ///< of a row: 32, 64 or 128
  int64_t chunks() const { return bytes / 16; }
  /// Offset of chunk `chunk` of row `row`.
  mlir::Value offset(KernelBuilder &b, Int row, Int chunk) const {
    mlir::Value turn = b.rem(b.div(row, 8 / chunks()), chunks());
    return b.add(b.mul(row, bytes), b.mul(b.xori(chunk, turn), 16));
  }
};

/// Copies a tile of rows, a slab of each, by all threads of a block. Rows past `rowCount` and bytes
/// past `rowBytes` of a row arrive as zeros; `slabs` slabs of a row are asked for.
class RowCopy {
public:
  /// source: row 0 of the matrix, whose rows are `stride` bytes apart, a multiple of 16. firstRow:
  /// the tile's first row.
  RowCopy(KernelBuilder &b, SwizzledRows layout, int64_t tileRows, int64_t threads,
          mlir::Value source, Int stride, int64_t rowBytes, int64_t slabs, mlir::Value firstRow,
          mlir::Value rowCount);
  /// Starts the copy of slab `slab` (i32) to `shared`.
  void copy(mlir::Value slab, mlir::Value shared);

private:
  struct Chunk {
    mlir::Value source, target; ///< of slab 0; offset in the stage
    mlir::Value valid;          ///< i1; null: always
    mlir::Value mine;           ///< i1: this thread has a chunk here; null: always
  };
  KernelBuilder &b;
  SwizzledRows layout;
  int64_t rowBytes;
  bool beyondEnd;     ///< slabs go beyond the rows
  mlir::Value column; ///< byte in the slab that this thread's chunks begin at
  llvm::SmallVector<Chunk> chunks;
};

/// Copies the weight blocks of a tile: rowBlocks block rows of slabBlocks blocks.
class BlockCopy {
public:
  BlockCopy(KernelBuilder &b, int bits, int64_t rowBlocks, int64_t slabBlocks, int64_t threads,
            mlir::Value source, mlir::Value firstRowBlock, int64_t totalRowBlocks,
            int64_t totalColumnBlocks, int64_t slabs);
  void copy(mlir::Value slab, mlir::Value shared);

private:
  struct Chunk {
    mlir::Value source, target, valid, mine;
    mlir::Value block; ///< in the slab
  };
  KernelBuilder &b;
  int64_t slabBlocks, totalColumnBlocks, blockBytes;
  bool beyondEnd;
  llvm::SmallVector<Chunk> chunks;
};

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_TILECOPY_H
