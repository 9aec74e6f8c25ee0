//===- Linear.cpp - Linears on codes of activations -----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GemmTiles.h"
#include "LinearKernels.h"
#include "ResultWriter.h"
#include "SharedSums.h"
#include "WeightParams.h"

#include "easyquant/Numerics/FragmentPacking.h"

using namespace mlir;

namespace easyquant::gpu {

static std::string symbolName(const LinearSpec &spec) {
  std::string name = fmt::format("linear_{}x{}_{}", spec.n, spec.k,
                                 nameOf(static_cast<const WeightCodec &>(spec)));
  name += spec.inputZeroPoints ? "_q_zp" : "_q";
  if (spec.inputGroup)
    name += fmt::format("{}", spec.inputGroup);
  name += spec.bias ? "_bias" : "";
  name += spec.accumulate ? "_accumulate" : "";
  if (spec.experts)
    name += fmt::format("_of{}", spec.experts);
  if (spec.isPartial)
    return name + "_i32";
  return name + fmt::format("_{}", nameOf(spec.output));
}

static std::vector<Parameter> parametersOf(const LinearSpec &spec, bool splits) {
  return Parameters()
      .reads("codes")
      .reads("scales", !spec.isPartial)
      .reads("sums", spec.readsSums())
      .reads("zeros", spec.inputZeroPoints)
      .constants("w")
      .constants("wscales", !spec.isPartial)
      .constants("wzeros", spec.zeroPoints)
      .constants("wminima", spec.minima)
      .constants("wsums", spec.inputZeroPoints && !spec.sumsWeights())
      .constants("codebook", spec.isTable())
      .constants("bias", spec.bias)
      .writesRows("y")
      .writes("partials", splits)
      .writes("counters", splits)
      .reads("items", spec.experts > 0)
      .rows();
}

static LinearKernel matrixKernel(const LinearSpec &spec, GemmTile tile, int64_t maxRows) {
  LinearKernel kernel;
  kernel.form = LinearKernel::Matrix;
  kernel.maxRows = maxRows;
  kernel.tile = tile;
  kernel.description = describeTile(symbolName(spec), parametersOf(spec, tile.splits > 1), spec.n,
                                    tile, slabBytes(tile, /*elementBytes=*/1, spec.bits));
  return kernel;
}

LinearKernel shareColumns(const LinearSpec &spec, LinearKernel kernel, int64_t splits) {
  kernel.tile.splits = splits;
  shareSums(kernel.tile, numerics::fragmentRows(spec.bits));
  LinearKernel shared = matrixKernel(spec, kernel.tile, kernel.maxRows);
  shared.converts = kernel.converts;
  return shared;
}

int64_t LinearKernel::counterCount(int64_t rows) const {
  return tileCounters(description, tile, rows);
}

int64_t LinearKernel::partialBytes(int64_t rows) const {
  return tilePartialBytes(description, tile, rows);
}

static LinearKernel dotKernel(const LinearSpec &spec, int64_t rows) {
  LinearKernel kernel;
  kernel.form = LinearKernel::Dot;
  kernel.maxRows = rows;
  kernel.rows = rows;
  Description &description = kernel.description;
  description.name = fmt::format("{}_dot_{}", symbolName(spec), rows);
  description.parameters = parametersOf(spec, /*splits=*/false);
  description.grid[0].factor = divideCeil(spec.n, numerics::fragmentRows(spec.bits));
  description.grid[1].rowsPerBlock = rows;
  description.threads = kDotThreads;
  // There are few blocks, so that registers are worth more than room for others: left to itself,
  // ptxas makes do with the 32 of a full multiprocessor, and waits for every load.
  description.blocksPerSM = 2;
  return kernel;
}

/// Sums of a thread of which there may be three sets.
static constexpr int64_t kMostNested = 32;

/// What a tile begins with.
static GemmTile tileOf(const LinearSpec &spec, const TileChoice &choice, const Chip &chip) {
  // Where several groups of activations share one of the weights, there are sums of both.
  const bool isNested = spec.groups() > 1 && spec.dotsOfGroup() > 1;
  GemmTile tile = spec.dotGroups() > 1 ? choice.grouped : choice.plain;
  if (isNested && tile.rows * tile.columns / tile.threads() > kMostNested)
    tile = integerTiles(chip)[2].grouped;
  return tile;
}

/// Takes a tile to whole blocks of weights, and slabs of which one ends where a group does.
static void fit(GemmTile &tile, const LinearSpec &spec) {
  giveWholeBlocks(tile, numerics::fragmentRows(spec.bits));
  if (spec.dotGroups() > 1 && spec.dotGroup() % tile.slab != 0)
    tile.slab = numerics::kFragmentColumns;
}

/// May blocks share K? One group of integers is exact in any order; floats are not.
static bool maySplit(const LinearSpec &spec) {
  return spec.dotGroups() == 1 && !spec.sharesGroups() && spec.experts == 0;
}

/// The tile for up to so many rows: the one whose blocks fill the chip, or a wider one with blocks
/// that share K, or a narrower one, where the model of time says that this is clearly faster.
static GemmTile chooseTile(const LinearSpec &spec, const TileChoice &choice, const Chip &chip) {
  const int64_t blockRows = numerics::fragmentRows(spec.bits);
  auto fitted = [&](GemmTile tile) {
    fit(tile, spec);
    deepenRing(tile, spec.k, slabBytes(tile, /*elementBytes=*/1, spec.bits), chip);
    return tile;
  };
  GemmTile usual = tileOf(spec, choice, chip);
  const GemmTile shared = maySplit(spec) ? choice.shared : GemmTile{};
  const GemmTile whole = maySplit(spec) ? choice.shared : usual;
  fillChip(usual, choice.maxRows, spec.n, blockRows, chip);
  if (choice.shared.rows == 0)
    return fitted(usual);
  return fastestTile({usual, whole, shared, blockRows, 0, fitted},
                     {choice.maxRows, spec.n, spec.k, spec.bits, /*elementBytes=*/1}, chip);
}

static std::vector<LinearKernel> expertKernels(const LinearSpec &spec, const Chip &chip) {
  std::vector<LinearKernel> kernels;
  for (const ItemList &list : itemLists(integerTiles(chip), spec.experts)) {
    GemmTile tile = tileOf(spec, *list.tiles, chip);
    fillChip(tile, list, spec.n, numerics::fragmentRows(spec.bits), chip);
    fit(tile, spec);
    kernels.push_back(matrixKernel(spec, tile, list.maxChoices));
    describeExperts(kernels.back().description, tile, chip);
  }
  return kernels;
}

/// Are up to 16 rows a matter of the kernel without shared memory?
static bool takesDotMatrix(const LinearSpec &spec, const Chip &chip) {
  const int64_t blockRows = numerics::fragmentRows(spec.bits);
  if (spec.isFP8())
    return true;
  if (!splitsOver(divideCeil(spec.n, blockRows), chip))
    return false;
  if (spec.dotGroups() > 1)
    return true;
  // Each warp some blocks of weights at a time; nothing is in shared memory.
  const GemmTile dot{kMatrixRows, blockRows, kDotColumns, 0, 0, 2, 2};
  const GemmTile tile = chooseTile(spec, integerTiles(chip).front(), chip);
  const ProductSize size{kMatrixRows, spec.n, spec.k, spec.bits, /*elementBytes=*/1};
  return !isFaster(tile, dot, size, chip);
}

static std::vector<LinearKernel> denseKernels(const LinearSpec &spec, const Chip &chip) {
  std::vector<LinearKernel> kernels;
  if (!spec.isFP8()) // dp4a
    for (int64_t rows : {1, 4})
      kernels.push_back(dotKernel(spec, rows));
  const bool splits = takesDotMatrix(spec, chip);
  if (splits)
    kernels.push_back(dotKernel(spec, kMatrixRows));
  for (const TileChoice &choice : integerTiles(chip)) {
    if (splits && choice.maxRows <= kMatrixRows)
      continue;
    kernels.push_back(matrixKernel(spec, chooseTile(spec, choice, chip), choice.maxRows));
  }
  return kernels;
}

std::vector<LinearKernel> linearKernels(const LinearSpec &spec, const Chip &chip) {
  std::vector<LinearKernel> kernels =
      spec.experts ? expertKernels(spec, chip) : denseKernels(spec, chip);
  for (LinearKernel &kernel : kernels)
    kernel.converts = spec.isFP8() && !chip.multipliesFP8();
  return kernels;
}

Description getOrEmit(mlir::gpu::GPUModuleOp module, const LinearSpec &spec,
                      const LinearKernel &kernel) {
  return getOrEmitKernel(module, kernel.description,
                         [&](KernelBuilder &b, const KernelArguments &arguments) {
                           if (spec.experts)
                             emitExpertLinear(b, spec, kernel, arguments);
                           else if (kernel.form == LinearKernel::Matrix)
                             emitMatrixLinear(b, spec, kernel, arguments, ownTile(b, kernel.tile));
                           else
                             emitDotLinear(b, spec, kernel, arguments);
                         });
}

Description getOrEmit(mlir::gpu::GPUModuleOp module, const RescaleSpec &spec, const Chip &) {
  constexpr int64_t kThreads = 128; // of a row
  Description kernel;
  kernel.name =
      fmt::format("rescale_{}_{}", spec.n, nameOf(static_cast<const WeightCodec &>(spec)));
  kernel.name += spec.bias ? "_bias" : "";
  kernel.name += spec.accumulate ? "_accumulate" : "";
  kernel.threads = kThreads;
  kernel.grid[0].rowsPerBlock = 1;
  kernel.parameters = Parameters()
                          .readsRows("sums")
                          .reads("scales")
                          .constants("wscales")
                          .constants("bias", spec.bias)
                          .writesRows("y")
                          .rows();
  return getOrEmitKernel(module, kernel, [&](KernelBuilder &b, const KernelArguments &arguments) {
    const int64_t width = spec.n % 2 == 0 ? 2 : 1;
    Type type = width == 1 ? b.i32() : Type(b.vec(width, b.i32()));
    WeightParams params(b, spec, spec.n, /*columns=*/1, arguments);
    ResultWriter writer(b, {spec.n, spec.bias, spec.accumulate, Float::F32}, arguments, width);
    writer.columnsAreWhole = true;
    Value m = b.block(0);
    Value row = b.rowOf(arguments["sums"], m, arguments["sums_stride"], b.i32());
    Value rowScale = b.load(b.advance(arguments["scales"], m, b.f32()), b.f32(), true);
    b.forLoop(b.mul(b.thread(), width), spec.n, kThreads * width, [&](Value n) {
      Value sums = b.load(b.advance(row, n, b.i32()), type, /*constant=*/true);
      KernelBuilder::Values values = params.scales(0, n, width);
      for (auto [i, value] : llvm::enumerate(values)) {
        value = b.mulf(value, b.toFloat(b.extract(sums, i)));
        value = b.mulf(rowScale, value);
      }
      writer.write(m, n, values);
    });
  });
}

} // namespace easyquant::gpu
