//===- GemmRing.h - Tiles and slabs of the matrix products ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The part that products on mma.sync share, whatever their elements: a block computes a tile of y,
// whose parts its warps have as a grid. A ring of slabs of K fills by cp.async while the slabs
// before are multiplied; one barrier a slab both publishes the slab that has arrived and frees the
// one read last. Activations come into registers by ldmatrix, weights packed.
//
// A slab is a tile of swizzled rows of activations (TileCopy.h), behind it blocks of packed weights
// (Numerics/FragmentPacking.h). A step of an mma is 32 bytes of a row: 32 codes or 16 floats of 16
// bits, or 64 codes of 4 bits.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_GEMMRING_H
#define EASYQUANT_LIB_CODEGEN_GPU_GEMMRING_H

#include "TileCopy.h"

#include "easyquant/Numerics/FragmentPacking.h"

namespace easyquant::gpu {

/// Which tile of y a block computes: down and across, in tiles; and which part of its slabs, where
/// blocks share them (null: all).
struct TilePlace {
  mlir::Value row, column;
  mlir::Value part = {};
};

/// The sizes of a product: y is N columns wide.
struct GemmShape {
  int64_t n, k;
  int bits;             ///< of the packed weights
  int64_t groupSize;    ///< of their scales; a slab ends where a group does
  int64_t groups;       ///< 1: scales are applied once, in the end
  int64_t elementBytes; ///< of activations
  int64_t perByte = 1;  ///< or so many of them in a byte

  bool grouped() const { return groups > 1; }
};

class GemmRing {
public:
  using Values = KernelBuilder::Values;
  /// accumulators(slab, stage, accumulators): those with the slab's products added.
  using Multiply =
      llvm::function_ref<Values(mlir::Value slab, mlir::Value stage, Values accumulators)>;
  static constexpr int64_t kM = 16, kN = 8; ///< of an mma
  static constexpr int64_t kStepBytes = 32; ///< of a row of activations
  /// Loop values before the accumulators: slab, offset of the stage to read, of the one to fill.
  static constexpr int64_t kState = 3;

  /// Rows of activations are `stride` bytes apart, `rowBytes` of each are there. Places lanes, and
  /// starts the copies of the first slabs.
  GemmRing(KernelBuilder &b, const GemmShape &shape, const GemmTile &tile, mlir::Value activations,
           Int stride, int64_t rowBytes, mlir::Value weights, mlir::Value rows, TilePlace place);

  //===- How a tile is shared -----------------------------------------------===//
  int64_t mTiles() const { return warpRows() / kM; }
  int64_t nTiles() const { return warpColumns() / kN; }
  /// Registers of the accumulators; that of register `r` of tile (i, j).
  int64_t registers() const { return mTiles() * nTiles() * 4; }
  int64_t at(int64_t i, int64_t j, int64_t r) const { return (i * nTiles() + j) * 4 + r; }
  /// This thread's rows of y: `half` 0 or 1 of tile i.
  mlir::Value rowOf(int64_t i, int64_t half) { return b.add(firstRow, i * kM + half * 8); }
  /// The first of this thread's two columns of tile j.
  mlir::Value columnOf(int64_t j) { return b.add(firstColumn, j * kN); }
  bool columnsAreWhole() const { return shape.n % tile.columns == 0; }
  /// Column `n`, or the last `width` ones that scales are padded to.
  mlir::Value paddedColumn(mlir::Value n, int64_t width);
  /// body(i, half, row) where that row is there.
  void forRows(llvm::function_ref<void(int64_t i, int64_t half, mlir::Value row)> body);

  //===- Slabs --------------------------------------------------------------===//
  int64_t slabs() const {
    return shape.grouped() ? shape.groups * slabsOfGroup() : divideCeil(shape.k, tile.slab);
  }
  int64_t slabsOfGroup() const { return shape.groupSize / tile.slab; }
  /// Where blocks share K, a part has whole groups.
  int64_t slabsOfUnit() const { return shape.grouped() ? slabsOfGroup() : 1; }
  int64_t unitsOfPart() const { return divideCeil(slabs() / slabsOfUnit(), tile.splits); }
  /// The first slab of the block.
  mlir::Value firstOfBlock() { return firstSlab; }
  /// Slabs of the block: those of its part, which the last ones may have none of.
  mlir::Value slabsOfBlock() { return b.sub(endSlab, firstSlab); }
  int64_t steps() const { return activations.bytes / kStepBytes; }
  /// Blocks of packed weights side by side in a slab, and above one another for a warp.
  int64_t blocksAcross() const { return tile.slab / numerics::kFragmentColumns; }
  int64_t blocksDown() const { return warpColumns() / blockRows(); }

  /// The loop values before the first slab.
  Values begin();
  /// Multiplies `count` slabs. carried: kState loop values, accumulators.
  Values multiply(Int count, mlir::ValueRange carried, Multiply body);
  /// Copies of the last, empty groups are complete; none outlives the block.
  void end() { b.waitForCopies(0); }

  /// ldmatrix of step `step` of the rows of tile i.
  Values loadActivations(mlir::Value stage, int64_t i, int64_t step);
  /// Block (down, across) of the warp's packed weights.
  mlir::Value weightBlock(mlir::Value stage, int64_t down, int64_t across);

  const mlir::Value rows;
  mlir::Value lane;
  /// The warp's first column. This lane has the packed weights of column
  /// columnOfWarp + j * kN + quad in tile j.
  mlir::Value columnOfWarp, quad;

private:
  int64_t warpRows() const { return tile.rows / tile.warpRows; }
  int64_t warpColumns() const { return tile.columns / tile.warpColumns; }
  int64_t blockRows() const { return numerics::fragmentRows(shape.bits); }
  int64_t blockBytes() const { return numerics::fragmentBytes(shape.bits); }
  int64_t activationBytes() const { return tile.rows * activations.bytes; }
  int64_t stageBytes() const {
    return activationBytes() + tile.columns / blockRows() * blocksAcross() * blockBytes();
  }
  void startCopy(mlir::Value slab, mlir::Value stage);
  Values step(mlir::ValueRange carried, Multiply body);

  KernelBuilder &b;
  const GemmShape shape;
  const GemmTile &tile;
  const SwizzledRows activations;
  mlir::Value shared;
  std::optional<RowCopy> rowCopy;
  std::optional<BlockCopy> blockCopy;
  mlir::Value firstSlab, endSlab; ///< of the block
  mlir::Value firstRow, firstColumn;
  Values activationOffsets; ///< of this lane for ldmatrix, one a step
  mlir::Value weightOffset; ///< of this warp
};

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_GEMMRING_H
