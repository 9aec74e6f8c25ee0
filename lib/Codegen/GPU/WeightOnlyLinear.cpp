//===- WeightOnlyLinear.cpp - Linears on float activations ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GemmTiles.h"
#include "LinearKernels.h"

#include "easyquant/Numerics/FragmentPacking.h"

#include <algorithm>

namespace easyquant::gpu {

static std::string symbolName(const WeightOnlySpec &spec) {
  std::string name = fmt::format("linear_{}x{}_", spec.n, spec.k);
  name += spec.isFloat() ? nameOf(spec.input) : nameOf(static_cast<const WeightCodec &>(spec));
  name += fmt::format("_{}", nameOf(spec.input));
  name += spec.bias ? "_bias" : "";
  name += spec.accumulate ? "_accumulate" : "";
  if (spec.experts)
    name += fmt::format("_of{}", spec.experts);
  return name + fmt::format("_{}", nameOf(spec.output));
}

static std::vector<Parameter> parametersOf(const WeightOnlySpec &spec, bool splits) {
  return Parameters()
      .readsRows("x")
      .constants("w")
      .constants("wscales", !spec.isFloat())
      .constants("wzeros", spec.zeroPoints)
      .constants("wminima", spec.minima)
      .constants("wouter", spec.outer)
      .constants("codebook", spec.isTable())
      .constants("bias", spec.bias)
      .writesRows("y")
      .writes("partials", splits)
      .writes("counters", splits)
      .reads("items", spec.experts > 0)
      .rows();
}

//===- Few rows -----------------------------------------------------------===//

/// Registers of a lane for the words and scales of two units and for sums.
static int64_t streamRegisters(const WeightOnlySpec &spec, const StreamShape &shape) {
  int64_t bytes = shape.columns * numerics::kFragmentColumns * spec.bits / 8;
  int64_t sums = divideCeil(shape.rows, 8) * 8 * shape.columns / 32;
  int64_t words = shape.unit * bytes / (32 * 4);
  if (spec.groups() == 1)
    return 2 * words + sums;
  int64_t groups = divideCeil(shape.unit * numerics::kFragmentColumns, spec.groupSize);
  if (spec.minima)
    groups *= 2;
  return 2 * (words + groups * shape.columns / 8 + sums);
}

static StreamShape streamShape(const WeightOnlySpec &spec, int64_t rows, const Chip &chip) {
  // Blocks that keep every multiprocessor of a large chip busy, warps that keep its schedulers so.
  constexpr int64_t kEnoughBlocks = 96, kMostWarps = 16, kLeastWarps = 4, kMostSplits = 8,
                    kMostUnit = 4;
  constexpr int64_t kMostSharedBytes = 48 * 1024;
  const int64_t mostRegisters = chip.streamRegisters();
  int64_t columnBlocks = divideCeil(spec.k, numerics::kFragmentColumns);
  StreamShape shape{};
  shape.rows = rows;
  // An mma takes 16 rows of weights.
  shape.columns = std::max<int64_t>(16, numerics::fragmentRows(spec.bits));
  const int64_t blocks = divideCeil(spec.n, shape.columns);
  shape.warps = kMostWarps;
  while (shape.sharedBytes() > kMostSharedBytes)
    shape.warps /= 2;
  // Where there are more blocks than run at a time, smaller ones: some load while others add up.
  while (shape.warps > kLeastWarps && blocks * shape.warps > kMostWarps * chip.multiprocessors)
    shape.warps /= 2;
  auto fits = [&] {
    if (streamRegisters(spec, shape) > mostRegisters)
      return false;
    if (spec.groups() == 1) // no warp shall be idle while others have several blocks
      return divideCeil(columnBlocks, shape.unit) >= shape.warps;
    // Scales are applied where units end: groups are whole units, or units whole groups.
    const int64_t unit = shape.unit * numerics::kFragmentColumns;
    return unit % spec.groupSize == 0 || spec.groupSize % unit == 0;
  };
  shape.unit = kMostUnit;
  while (shape.unit > 1 && !fits())
    --shape.unit;
  int64_t units = divideCeil(columnBlocks, shape.unit);
  while (shape.warps > kLeastWarps && shape.warps / 2 >= units)
    shape.warps /= 2;
  shape.splits = 1;
  while (shape.splits < kMostSplits && blocks * shape.splits < kEnoughBlocks &&
         units >= 4 * shape.splits * shape.warps)
    shape.splits *= 2;
  return shape;
}

static WeightOnlyKernel streamKernel(const WeightOnlySpec &spec, int64_t rows, const Chip &chip) {
  WeightOnlyKernel kernel;
  kernel.form = WeightOnlyKernel::Stream;
  kernel.maxRows = rows;
  kernel.stream = streamShape(spec, rows, chip);
  Description &description = kernel.description;
  description.name = fmt::format("{}_stream_{}", symbolName(spec), rows);
  description.parameters = parametersOf(spec, kernel.stream.splits > 1);
  description.grid[0].factor = divideCeil(spec.n, kernel.stream.columns);
  description.grid[1].factor = kernel.stream.splits;
  description.grid[2].rowsPerBlock = rows;
  description.threads = static_cast<uint32_t>(32 * kernel.stream.warps);
  description.blocksPerSM = 16 / kernel.stream.warps;
  return kernel;
}

int64_t WeightOnlyKernel::counterCount(int64_t rows) const {
  if (form == Matrix)
    return tileCounters(description, tile, rows);
  if (stream.splits == 1)
    return 0;
  return description.grid[0].factor * divideCeil(rows, stream.rows);
}

int64_t WeightOnlyKernel::partialBytes(int64_t rows) const {
  if (form == Matrix)
    return tilePartialBytes(description, tile, rows);
  return counterCount(rows) * stream.splits * stream.rows * stream.columns * 4;
}

//===- Tiles --------------------------------------------------------------===//

static constexpr int64_t kElementBytes = 2; // of activations

/// The slab and the number of stages that the shared memory of a chip has room for: long slabs, as
/// there are fewer barriers then, if at least three of them fit.
static void fitRing(GemmTile &tile, const WeightOnlySpec &spec, const Chip &chip) {
  constexpr int64_t kMostStages = 4;
  const int64_t bytes = chip.sharedBytesOf(tile.blocksPerSM);
  // Float weights fill most of a slab's bytes. A long slab of them takes twice the copies a thread,
  // more addresses than the largest tile has registers for.
  bool onlyShort = spec.isFloat() && tile.rows > 64;
  for (int64_t slab : {64, 32}) {
    if (onlyShort && slab > 32)
      continue;
    tile.slab = slab;
    tile.stages = std::min(kMostStages, bytes / slabBytes(tile, kElementBytes, spec.bits));
    // Groups shorter than a block of weights end within a slab, a short one.
    const bool isShort = spec.groupSize < numerics::kFragmentColumns;
    bool endsGroups = spec.groups() == 1 || spec.groupSize % slab == 0 ||
                      (isShort && slab == numerics::kFragmentColumns);
    if (tile.stages >= 3 && endsGroups)
      return;
  }
}

static WeightOnlyKernel matrixKernel(const WeightOnlySpec &spec, const GemmTile &tile,
                                     int64_t maxRows) {
  WeightOnlyKernel kernel;
  kernel.form = WeightOnlyKernel::Matrix;
  kernel.maxRows = maxRows;
  kernel.tile = tile;
  kernel.description = describeTile(symbolName(spec), parametersOf(spec, tile.splits > 1), spec.n,
                                    tile, slabBytes(tile, kElementBytes, spec.bits));
  return kernel;
}

WeightOnlyKernel shareColumns(const WeightOnlySpec &spec, WeightOnlyKernel kernel, int64_t splits) {
  kernel.tile.splits = splits;
  shareSums(kernel.tile, numerics::fragmentRows(spec.bits));
  return matrixKernel(spec, kernel.tile, kernel.maxRows);
}

/// Takes a tile to whole blocks of weights, and to the slabs that a chip has room for.
static void fit(GemmTile &tile, const WeightOnlySpec &spec, const Chip &chip) {
  giveWholeBlocks(tile, numerics::fragmentRows(spec.bits));
  // Sixty-four rows of unpacked weights, and sums twice: too many registers for two blocks.
  if (spec.groups() > 1 && numerics::fragmentRows(spec.bits) == 64 && tile.threads() > 64)
    tile.blocksPerSM = 1;
  fitRing(tile, spec, chip);
}

//===- Choice -------------------------------------------------------------===//

static std::vector<WeightOnlyKernel> expertKernels(const WeightOnlySpec &spec, const Chip &chip) {
  std::vector<WeightOnlyKernel> kernels;
  for (const ItemList &list : itemLists(floatTiles(), spec.experts)) {
    GemmTile tile = spec.groups() > 1 ? list.tiles->grouped : list.tiles->plain;
    fillChip(tile, list, spec.n, numerics::fragmentRows(spec.bits), chip);
    fit(tile, spec, chip);
    kernels.push_back(matrixKernel(spec, tile, list.maxChoices));
    describeExperts(kernels.back().description, tile, chip);
  }
  return kernels;
}

/// The tile for up to so many rows: the one whose blocks fill the chip, or one with blocks that
/// share K where the model of time says that this is clearly faster.
static GemmTile chooseTile(const WeightOnlySpec &spec, const TileChoice &choice, const Chip &chip) {
  const int64_t blockRows = numerics::fragmentRows(spec.bits);
  auto fitted = [&](GemmTile tile) {
    fit(tile, spec, chip);
    deepenRing(tile, spec.k, slabBytes(tile, kElementBytes, spec.bits), chip);
    return tile;
  };
  const GemmTile &whole = spec.groups() > 1 ? choice.grouped : choice.plain;
  GemmTile usual = whole;
  fillChip(usual, choice.maxRows, spec.n, blockRows, chip);
  // Minima of a row are added once, with the sums of all of it.
  const bool maySplit = !spec.oneOrder && (spec.groups() > 1 || !spec.minima);
  if (choice.shared.rows == 0 || !maySplit)
    return fitted(usual);
  return fastestTile({usual, whole, choice.shared, blockRows, spec.groupSize, fitted},
                     {choice.maxRows, spec.n, spec.k, spec.bits, kElementBytes}, chip);
}

/// Are up to 16 rows a matter of the kernel without shared memory?
static bool takesStream(const WeightOnlySpec &spec, const StreamShape &shape, const Chip &chip) {
  if (!splitsOver(divideCeil(spec.n, shape.columns), chip))
    return false;
  // Each warp a unit of K at a time, and the next one under way; nothing is in shared memory.
  const int64_t slab = shape.warps * shape.unit * numerics::kFragmentColumns;
  const GemmTile stream{kMatrixRows, shape.columns, slab, 0, 0, 2, 16 / shape.warps, shape.splits};
  return !isFaster(chooseTile(spec, floatTiles().front(), chip), stream,
                   {kMatrixRows, spec.n, spec.k, spec.bits, kElementBytes}, chip);
}

std::vector<WeightOnlyKernel> weightOnlyKernels(const WeightOnlySpec &spec, const Chip &chip) {
  if (spec.experts)
    return expertKernels(spec, chip);
  std::vector<WeightOnlyKernel> kernels;
  const WeightOnlyKernel most = streamKernel(spec, kMatrixRows, chip);
  const bool splits = !spec.oneOrder && takesStream(spec, most.stream, chip);
  if (!spec.oneOrder)
    for (int64_t rows : {1, 8})
      kernels.push_back(streamKernel(spec, rows, chip));
  if (splits)
    kernels.push_back(most);
  for (const TileChoice &choice : floatTiles()) {
    if (splits && choice.maxRows <= kMatrixRows)
      continue;
    const GemmTile &tile = spec.groups() > 1 ? choice.grouped : choice.plain;
    // Several rows of blocks read the weights as often: too often for floats, where one row of
    // blocks fills the chip.
    const bool isLast = &choice == &floatTiles().back();
    if (spec.isFloat() && !isLast && choice.maxRows > tile.rows &&
        divideCeil(spec.n, tile.columns) >= chip.multiprocessors)
      continue;
    kernels.push_back(matrixKernel(spec, chooseTile(spec, choice, chip), choice.maxRows));
  }
  return kernels;
}

Description getOrEmit(mlir::gpu::GPUModuleOp module, const WeightOnlySpec &spec,
                      const WeightOnlyKernel &kernel) {
  if (kernel.form == WeightOnlyKernel::Matrix)
    return getOrEmitKernel(
        module, kernel.description, [&](KernelBuilder &b, const KernelArguments &arguments) {
          if (spec.experts)
            emitExpertLinear(b, spec, kernel, arguments);
          else
            emitMatrixLinear(b, spec, kernel.tile, arguments, ownTile(b, kernel.tile));
        });
  KernelBuilder::Values first;
  return getOrEmitKernel(
      module, kernel.description,
      [&](KernelBuilder &b, const KernelArguments &arguments) {
        emitStreamLinear(b, spec, kernel.stream, arguments, first);
      },
      [&](KernelBuilder &b, const KernelArguments &arguments) {
        first = loadFirstWeights(b, spec, kernel.stream, arguments);
      });
}

} // namespace easyquant::gpu
