//===- LinearKernels.h - The forms of linears -------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_LINEARKERNELS_H
#define EASYQUANT_LIB_CODEGEN_GPU_LINEARKERNELS_H

#include "GemmRing.h"
#include "GemmTiles.h"

#include "easyquant/Codegen/GPU/BlockScaled.h"
#include "easyquant/Codegen/GPU/Experts.h"

namespace easyquant::gpu {

/// Bodies of LinearKernel::Matrix and LinearKernel::Dot.
void emitMatrixLinear(KernelBuilder &b, const LinearSpec &spec, const LinearKernel &kernel,
                      const KernelArguments &arguments, TilePlace place);
void emitDotLinear(KernelBuilder &b, const LinearSpec &spec, const LinearKernel &kernel,
                   const KernelArguments &arguments);

/// Bodies of BlockScaledKernel::Matrix and BlockScaledKernel::Dot.
void emitMatrixLinear(KernelBuilder &b, const BlockScaledSpec &spec, const GemmTile &tile,
                      const KernelArguments &arguments, TilePlace place);
void emitDotLinear(KernelBuilder &b, const BlockScaledSpec &spec, const KernelArguments &arguments);

/// Bodies of WeightOnlyKernel::Stream and WeightOnlyKernel::Matrix.
void emitStreamLinear(KernelBuilder &b, const WeightOnlySpec &spec, const StreamShape &shape,
                      const KernelArguments &arguments, mlir::ValueRange firstWeights);
/// The weights that a warp of such a kernel begins with.
KernelBuilder::Values loadFirstWeights(KernelBuilder &b, const WeightOnlySpec &spec,
                                       const StreamShape &shape, const KernelArguments &arguments);
void emitMatrixLinear(KernelBuilder &b, const WeightOnlySpec &spec, const GemmTile &tile,
                      const KernelArguments &arguments, TilePlace place);

/// The tile of the block's numbers in the grid.
inline TilePlace ownTile(KernelBuilder &b, const GemmTile &tile) {
  return {b.block(0), b.block(1), tile.splits > 1 ? b.block(2) : mlir::Value()};
}

//===- Experts (Experts.h) ------------------------------------------------===//

/// A list of items, the tile of which a kernel for it begins with, and up to how many choices it is
/// taken.
struct ItemList {
  int64_t number, maxChoices;
  const TileChoice *tiles;
};
/// All lists, for ever more choices.
llvm::SmallVector<ItemList> itemLists(std::span<const TileChoice> tiles, int64_t experts);
/// Narrows the tile of the list for few rows, until few items keep the chip busy.
void fillChip(GemmTile &tile, const ItemList &list, int64_t n, int64_t blockRows, const Chip &chip);
/// Makes of a kernel by tiles one that takes items of experts.
void describeExperts(Description &description, const GemmTile &tile, const Chip &chip);
/// The body of LinearKernel::Matrix and of those of the other kinds, for each item and tile of
/// columns that the block takes.
void emitExpertLinear(KernelBuilder &b, const LinearSpec &spec, const LinearKernel &kernel,
                      const KernelArguments &arguments);
void emitExpertLinear(KernelBuilder &b, const WeightOnlySpec &spec, const WeightOnlyKernel &kernel,
                      const KernelArguments &arguments);
void emitExpertLinear(KernelBuilder &b, const BlockScaledSpec &spec,
                      const BlockScaledKernel &kernel, const KernelArguments &arguments);

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_LINEARKERNELS_H
