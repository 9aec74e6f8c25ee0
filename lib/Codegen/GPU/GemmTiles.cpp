//===- GemmTiles.cpp - The tiles of each chip -----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// {rows, columns, slab}, {warps down, warps across}, stages, blocks per multiprocessor. Chosen by
// what fits: shared memory (rows + columns) * slab * stages * blocks, registers of the
// accumulators. The last one of a row is what tiles whose blocks share K are made of.
//
//===----------------------------------------------------------------------===//

#include "GemmTiles.h"

#include <algorithm>
#include <limits>

namespace easyquant::gpu {

static constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

// From so much shared memory a multiprocessor on.
static constexpr int64_t kLargeBytes = 164 * 1024;
static constexpr TileChoice kLarge[] = {
    {16, {16, 128, 128, 1, 4, 4, 2}, {16, 128, 64, 1, 4, 5, 2}, {16, 128, 128, 1, 4, 4, 2}},
    {32, {32, 128, 128, 1, 4, 4, 2}, {32, 128, 64, 1, 4, 5, 2}, {32, 128, 128, 1, 4, 4, 2}},
    {64, {64, 128, 64, 2, 2, 5, 2}, {64, 64, 64, 1, 4, 5, 3}, {64, 128, 64, 2, 2, 5, 2}},
    {128, {64, 128, 64, 2, 2, 5, 2}, {64, 64, 64, 1, 4, 5, 3}, {128, 128, 64, 2, 2, 4, 2}},
    {256, {64, 128, 64, 2, 2, 5, 2}, {64, 64, 64, 1, 4, 5, 3}, {128, 128, 64, 2, 2, 4, 2}},
    {kAny, {128, 128, 64, 2, 2, 4, 2}, {128, 128, 64, 2, 4, 4, 1}, {}},
};
// From 100 KiB on.
static constexpr TileChoice kSmall[] = {
    {16, {16, 128, 64, 1, 4, 4, 2}, {16, 128, 64, 1, 4, 4, 2}, {16, 128, 64, 1, 4, 4, 2}},
    {32, {32, 128, 64, 1, 4, 4, 2}, {32, 128, 64, 1, 4, 4, 2}, {32, 128, 64, 1, 4, 4, 2}},
    {64, {64, 128, 64, 2, 2, 4, 2}, {64, 64, 64, 1, 4, 4, 3}, {64, 128, 64, 2, 2, 4, 2}},
    {128, {64, 128, 64, 2, 2, 4, 2}, {64, 64, 64, 1, 4, 4, 3}, {128, 128, 64, 2, 2, 3, 2}},
    {256, {64, 128, 64, 2, 2, 4, 2}, {64, 64, 64, 1, 4, 4, 3}, {128, 128, 64, 2, 2, 3, 2}},
    {kAny, {128, 128, 64, 2, 2, 3, 2}, {128, 128, 64, 2, 4, 4, 1}, {}},
};

static constexpr TileChoice kFloatTiles[] = {
    {16, {16, 128, 0, 1, 4, 0, 2}, {16, 128, 0, 1, 4, 0, 2}, {16, 128, 0, 1, 4, 0, 2}},
    {32, {32, 64, 0, 1, 2, 0, 4}, {32, 64, 0, 1, 2, 0, 4}, {32, 128, 0, 1, 4, 0, 2}},
    {64, {64, 128, 0, 2, 2, 0, 2}, {64, 64, 0, 1, 4, 0, 3}, {64, 128, 0, 2, 4, 0, 1}},
    {128, {64, 128, 0, 2, 2, 0, 2}, {64, 64, 0, 1, 4, 0, 3}, {64, 128, 0, 2, 4, 0, 1}},
    {256, {64, 128, 0, 2, 2, 0, 2}, {64, 64, 0, 1, 4, 0, 3}, {128, 128, 0, 2, 4, 0, 1}},
    {kAny, {128, 128, 0, 2, 2, 0, 2}, {128, 128, 0, 2, 4, 0, 1}, {}},
};

std::span<const TileChoice> floatTiles() { return kFloatTiles; }

int64_t slabBytes(const GemmTile &tile, int64_t elementBytes, int bits) {
  return tile.rows * tile.slab * elementBytes + tile.columns * tile.slab * bits / 8;
}

Description describeTile(const std::string &linear, std::vector<Parameter> parameters, int64_t n,
                         const GemmTile &tile, int64_t stageBytes) {
  Description description;
  description.name = fmt::format("{}_mma_{}x{}x{}", linear, tile.rows, tile.columns, tile.slab);
  if (tile.splits > 1)
    description.name += fmt::format("_split{}", tile.splits);
  description.parameters = std::move(parameters);
  description.grid[0].rowsPerBlock = tile.rows;
  description.grid[1].factor = divideCeil(n, tile.columns);
  description.grid[2].factor = tile.splits;
  description.beginsNext = tile.rows <= kMatrixRows; // of few rows
  description.threads = static_cast<uint32_t>(tile.threads());
  description.sharedBytes = tile.stages * stageBytes;
  description.blocksPerSM = tile.blocksPerSM;
  return description;
}

int64_t tileCounters(const Description &description, const GemmTile &tile, int64_t rows) {
  return tile.splits > 1 ? description.grid[0].of(rows) * description.grid[1].factor : 0;
}

int64_t tilePartialBytes(const Description &description, const GemmTile &tile, int64_t rows) {
  return tileCounters(description, tile, rows) * tile.splits * tile.rows * tile.columns * 4;
}

void giveWholeBlocks(GemmTile &tile, int64_t blockRows) {
  while (tile.columns / tile.warpColumns % blockRows != 0) {
    tile.warpColumns /= 2;
    if (tile.rows / tile.warpRows > 16)
      tile.warpRows *= 2;
  }
}

void shareSums(GemmTile &tile, int64_t blockRows) {
  constexpr int64_t kMostSums = 64;
  while (tile.splits > 1 && tile.rows * tile.columns > kMostSums * tile.threads()) {
    tile.warpColumns *= 2;
    tile.blocksPerSM = std::max<int64_t>(1, tile.blocksPerSM / 2);
    giveWholeBlocks(tile, blockRows);
  }
}

bool splitsOver(int64_t blocks, const Chip &chip) { return blocks <= 2 * chip.multiprocessors; }

void narrow(GemmTile &tile, int64_t columns) {
  tile.columns = columns;
  while (tile.columns / tile.warpColumns < 16)
    tile.warpColumns /= 2;
}

void fillChip(GemmTile &tile, int64_t rows, int64_t n, int64_t blockRows, const Chip &chip) {
  const int64_t down = rows / tile.rows; // rows are whole tiles
  if (down > chip.multiprocessors)
    return;
  auto blocks = [&](int64_t columns) { return down * divideCeil(n, columns); };
  constexpr int64_t kLeastColumns = 32;
  const int64_t least = std::max(kLeastColumns, blockRows);
  while (tile.columns / 2 >= least && blocks(tile.columns / 2) <= 2 * chip.multiprocessors)
    narrow(tile, tile.columns / 2);
}

std::span<const TileChoice> integerTiles(const Chip &chip) {
  return chip.sharedBytesPerSM >= kLargeBytes ? std::span(kLarge) : std::span(kSmall);
}

} // namespace easyquant::gpu
