//===- SharedSums.h - Sums of blocks that share K ---------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where a tile of y has fewer blocks than a chip has room for, several blocks share its K. Each
// writes the sums of its part to memory, as its threads have them in registers. A counter tells
// which block comes last. It adds the sums of the others to its own, and ends the tile alone.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_SHAREDSUMS_H
#define EASYQUANT_LIB_CODEGEN_GPU_SHAREDSUMS_H

#include "GemmRing.h"

namespace easyquant::gpu {

class SharedSums {
public:
  using Values = KernelBuilder::Values;

  /// The tile at `place` of y, which is `n` columns wide; the kernel's arguments partials and
  /// counters.
  SharedSums(KernelBuilder &b, const GemmTile &tile, int64_t n, TilePlace place,
             const KernelArguments &arguments)
      : b(b), tile(tile), across(divideCeil(n, tile.columns)), place(place), arguments(arguments) {}

  /// body(sums) in all threads of the block that comes last. `own`: the block's sums of this
  /// thread, a multiple of four, all i32 or all f32. Integers are added in any order, which is
  /// exact, floats in that of the parts. All warps of the block have read what they need of shared
  /// memory.
  void add(mlir::ValueRange own, llvm::function_ref<void(mlir::ValueRange sums)> body);

private:
  static constexpr int64_t kVector = 4; ///< sums of an access

  /// Where the vectors of this thread are in part `part`, and vector `number` of them.
  mlir::Value vectorsOf(Int part);
  mlir::Value vectorAt(mlir::Value vectors, int64_t number);
  Values load(Int part, mlir::Type element);

  KernelBuilder &b;
  const GemmTile &tile;
  int64_t across;
  TilePlace place;
  const KernelArguments &arguments;
  mlir::Value number; ///< of the tile
};

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_SHAREDSUMS_H
