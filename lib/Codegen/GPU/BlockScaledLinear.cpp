//===- BlockScaledLinear.cpp - Linears on FP4 with scales of blocks -------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LinearKernels.h"

#include "easyquant/Numerics/FragmentPacking.h"

namespace easyquant::gpu {

bool isBlockScaled(const numerics::Scheme &weight, const numerics::Scheme &input) {
  return numerics::hasScaledBlocks(weight) && numerics::hasScaledBlocks(input) && input.outer;
}

static std::string symbolName(const BlockScaledSpec &spec) {
  std::string name = fmt::format("linear_{}x{}_{}_blocks", spec.n, spec.k,
                                 nameOf(static_cast<const WeightCodec &>(spec)));
  name += spec.bias ? "_bias" : "";
  name += spec.accumulate ? "_accumulate" : "";
  if (spec.experts)
    name += fmt::format("_of{}", spec.experts);
  return name + fmt::format("_{}", nameOf(spec.output));
}

static std::vector<Parameter> parametersOf(const BlockScaledSpec &spec) {
  return Parameters()
      .reads("codes")
      .reads("scales")
      .reads("outer")
      .constants("w")
      .constants("wscales")
      .constants("wouter", spec.outer)
      .constants("bias", spec.bias)
      .writesRows("y")
      .reads("items", spec.experts > 0)
      .rows();
}

static BlockScaledKernel dotKernel(const BlockScaledSpec &spec) {
  BlockScaledKernel kernel;
  kernel.form = BlockScaledKernel::Dot;
  kernel.maxRows = kMatrixRows;
  Description &description = kernel.description;
  description.name = symbolName(spec) + "_dot";
  description.parameters = parametersOf(spec);
  description.grid[0].factor = divideCeil(spec.n, numerics::fragmentRows(spec.bits));
  description.grid[1].rowsPerBlock = kMatrixRows;
  description.threads = kDotThreads;
  description.blocksPerSM = 2;
  return kernel;
}

/// The tiles of int8 products, with as many bytes in a slab, which are twice the columns.
static BlockScaledKernel matrixKernel(const BlockScaledSpec &spec, GemmTile tile, int64_t maxRows) {
  giveWholeBlocks(tile, numerics::fragmentRows(spec.bits));
  tile.slab *= 2;
  BlockScaledKernel kernel;
  kernel.form = BlockScaledKernel::Matrix;
  kernel.maxRows = maxRows;
  kernel.tile = tile;
  const int64_t stageBytes = (tile.rows + tile.columns) * tile.slab * spec.bits / 8;
  kernel.description = describeTile(symbolName(spec), parametersOf(spec), spec.n, tile, stageBytes);
  return kernel;
}

std::vector<BlockScaledKernel> blockScaledKernels(const BlockScaledSpec &spec, const Chip &chip) {
  const int64_t blockRows = numerics::fragmentRows(spec.bits);
  std::vector<BlockScaledKernel> kernels;
  if (spec.experts) {
    for (const ItemList &list : itemLists(integerTiles(chip), spec.experts)) {
      GemmTile tile = list.tiles->plain;
      fillChip(tile, list, spec.n, blockRows, chip);
      kernels.push_back(matrixKernel(spec, tile, list.maxChoices));
      describeExperts(kernels.back().description, kernels.back().tile, chip);
    }
    return kernels;
  }
  kernels.push_back(dotKernel(spec));
  for (const TileChoice &choice : integerTiles(chip)) {
    if (choice.maxRows <= kMatrixRows)
      continue;
    GemmTile tile = choice.plain;
    fillChip(tile, choice.maxRows, spec.n, blockRows, chip);
    kernels.push_back(matrixKernel(spec, tile, choice.maxRows));
  }
  return kernels;
}

Description getOrEmit(mlir::gpu::GPUModuleOp module, const BlockScaledSpec &spec,
                      const BlockScaledKernel &kernel) {
  return getOrEmitKernel(
      module, kernel.description, [&](KernelBuilder &b, const KernelArguments &arguments) {
        if (spec.experts)
          emitExpertLinear(b, spec, kernel, arguments);
        else if (kernel.form == BlockScaledKernel::Matrix)
          emitMatrixLinear(b, spec, kernel.tile, arguments, ownTile(b, kernel.tile));
        else
          emitDotLinear(b, spec, arguments);
      });
}

} // namespace easyquant::gpu
