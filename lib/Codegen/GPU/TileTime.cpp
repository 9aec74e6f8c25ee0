//===- TileTime.cpp - How long a product by tiles takes -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The model of `easyquant predict` (docs/guide/predict.md), as far as it tells tiles apart: an
// estimate, with the constants of python/easyquant/prediction/chips.py in cycles of an H200. Issue
// slots are left out.
//
//===----------------------------------------------------------------------===//

#include "GemmTiles.h"

#include <algorithm>
#include <cmath>

namespace easyquant::gpu {

static constexpr double kAskedBytes = 22.8; // a cycle that a multiprocessor can ask for
static constexpr double kCopyShare = 0.85;  // of the bandwidth of memory that a copy reaches
static constexpr double kSharedBytes = 128; // a cycle of shared memory
static constexpr double kLatency = 1280;    // of memory, 0.7 us
static constexpr double kCacheTrip = 275;   // to the second-level cache, 0.15 us
static constexpr double kTrips = 3;         // of who adds up: sums, a counter, sums of others
static constexpr double kLaunch = 4575;     // a launch and a latency, 2.5 us

double tileCycles(const GemmTile &tile, const ProductSize &size, const Chip &chip) {
  const int64_t down = divideCeil(size.rows, tile.rows), across = divideCeil(size.n, tile.columns);
  const auto blocks = static_cast<double>(down * across * tile.splits);
  const auto multiprocessors = static_cast<double>(chip.multiprocessors);
  const auto sums = static_cast<double>(tile.rows * tile.columns * 4);
  const int64_t slabs = divideCeil(divideCeil(size.k, tile.slab), tile.splits);
  const int64_t columns = std::min(slabs * tile.slab, size.k); // of K
  // Bytes that a column has: activations and packed weights.
  const auto activations = static_cast<double>(tile.rows * size.elementBytes);
  const double packed = static_cast<double>(tile.columns * size.bits) / 8;
  double asked = static_cast<double>(columns) * (activations + packed);
  if (tile.splits > 1)
    asked += sums;
  // One multiprocessor has most blocks, as many at a time as the tile is designed for.
  const double busiest = std::ceil(blocks / multiprocessors);
  const double rounds = busiest / std::min(busiest, static_cast<double>(tile.blocksPerSM));
  // Warps side by side read the same activations, those above one another the same weights.
  const double shared =
      static_cast<double>(columns) * (activations * static_cast<double>(tile.warpColumns + 1) +
                                      packed * static_cast<double>(tile.warpRows + 1));
  const auto products = static_cast<double>(columns * tile.rows * tile.columns * size.elementBytes);
  const auto weights = static_cast<double>(size.n * size.k * size.bits / 8);
  // The first slabs, as many as are under way, come in the latency that every launch has.
  const double waits =
      std::max(0.0, static_cast<double>(slabs) / static_cast<double>(tile.stages - 1) - 1);
  double cycles = kLaunch;
  cycles += std::max(
      {asked * blocks / std::min(blocks, multiprocessors) / kAskedBytes,
       busiest * shared / kSharedBytes, busiest * products / static_cast<double>(chip.byteProducts),
       rounds * waits * kLatency, weights / multiprocessors / (kCopyShare * chip.memoryBytes)});
  if (tile.splits > 1)
    cycles += kTrips * kCacheTrip + static_cast<double>(tile.splits - 1) * sums / kAskedBytes;
  return cycles;
}

/// The part of another tile's time below which a tile takes its place.
static constexpr double kClearly = 0.95;

bool isFaster(const GemmTile &tile, const GemmTile &other, const ProductSize &size,
              const Chip &chip) {
  return tileCycles(tile, size, chip) < kClearly * tileCycles(other, size, chip);
}

GemmTile fastestTile(const TileSearch &search, const ProductSize &size, const Chip &chip) {
  constexpr int64_t kMostSplits = 8, kLeastSlabs = 4, kLeastColumns = 32;
  GemmTile best = search.fitted(search.usual);
  double least = kClearly * tileCycles(best, size, chip);
  for (int64_t columns = std::max(search.whole.columns, search.shared.columns);
       columns >= std::max(kLeastColumns, search.blockRows); columns /= 2) {
    for (int64_t splits = 1; splits <= (search.shared.rows > 0 ? kMostSplits : 1); ++splits) {
      GemmTile tile = splits > 1 ? search.shared : search.whole;
      if (columns > tile.columns)
        continue;
      narrow(tile, columns);
      tile = search.fitted(tile);
      tile.splits = splits;
      // Every part has slabs, some to fill the ring.
      const int64_t slabs = divideCeil(size.k, tile.slab);
      const int64_t units = divideCeil(size.k, std::max(tile.slab, search.unitColumns));
      if (splits > 1 &&
          (slabs < kLeastSlabs * splits || divideCeil(units, splits) * (splits - 1) >= units))
        continue;
      shareSums(tile, search.blockRows);
      if (const double cycles = tileCycles(tile, size, chip); cycles < least) {
        least = cycles;
        best = tile;
      }
    }
  }
  return best;
}

void deepenRing(GemmTile &tile, int64_t k, int64_t stageBytes, const Chip &chip) {
  constexpr int64_t kUnderWay = 32 * 1024, kMostStages = 12;
  const int64_t room = chip.sharedBytesOf(tile.blocksPerSM);
  const int64_t most = std::min(kMostStages, divideCeil(k, tile.slab));
  while (tile.stages < most && (tile.stages - 1) * stageBytes < kUnderWay &&
         (tile.stages + 1) * stageBytes <= room)
    ++tile.stages;
}

} // namespace easyquant::gpu
