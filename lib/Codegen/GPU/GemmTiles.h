//===- GemmTiles.h - The tiles of each chip ---------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_GEMMTILES_H
#define EASYQUANT_LIB_CODEGEN_GPU_GEMMTILES_H

#include "easyquant/Codegen/GPU/Kernels.h"
#include "easyquant/Numerics/FragmentPacking.h"

#include <span>

namespace easyquant::gpu {

/// Threads of a block of the kernels for few rows: eight warps, each with its share of K.
inline constexpr uint32_t kDotThreads = 256;
/// Blocks of weights that a lane of them has under way, and columns of K that these are.
inline constexpr int64_t kDotUnroll = 4;
inline constexpr int64_t kDotColumns = kDotUnroll * kDotThreads / 32 * numerics::kFragmentColumns;
/// As many rows as an mma has.
inline constexpr int64_t kMatrixRows = 16;

/// The tile for up to maxRows rows. With scales per group there are float accumulators beside the
/// integers, so that a warp's tile is half as large.
struct TileChoice {
  int64_t maxRows;
  GemmTile plain, grouped;
  GemmTile shared; ///< the widest one for blocks that share K; none for any number of rows
};

/// Tiles of the int8 products of a chip, for ever more rows.
std::span<const TileChoice> integerTiles(const Chip &chip);
/// Do so many blocks run at a time, so that they had better split K, each with all of a few rows?
/// Where there are more, activations in shared memory are worth the barriers.
bool splitsOver(int64_t blocks, const Chip &chip);
/// Narrows a tile until the blocks of `rows` rows and `n` columns of y keep the chip's
/// multiprocessors busy: each costs the same few microseconds of latency, whatever its width. It
/// stays as wide as a block of packed weights, `blockRows`.
void fillChip(GemmTile &tile, int64_t rows, int64_t n, int64_t blockRows, const Chip &chip);
/// Narrows a tile to so many columns, of which a warp keeps at least 16.
void narrow(GemmTile &tile, int64_t columns);
/// y is rows x n; elements of activations have elementBytes.
struct ProductSize {
  int64_t rows, n, k;
  int bits; ///< of the weights
  int64_t elementBytes;
};
/// An estimate of the time that a product takes by such tiles, in cycles.
double tileCycles(const GemmTile &tile, const ProductSize &size, const Chip &chip);
/// Which tiles a kernel may have: `usual` fills the chip, all others are narrowed from `whole`, or
/// from `shared` where blocks share K, which none do where that has no rows. Tiles of the same size
/// and number of parts are the same.
struct TileSearch {
  GemmTile usual, whole, shared;
  int64_t blockRows;   ///< rows of a block of packed weights
  int64_t unitColumns; ///< of K, whole ones of which a part has, if that is more than a slab
  /// Takes a tile to whole blocks of weights, and to the slabs and stages that a chip has room for.
  llvm::function_ref<GemmTile(GemmTile)> fitted;
};
/// The fitted tile that takes clearly less time than the usual one, if there is any, else that.
GemmTile fastestTile(const TileSearch &search, const ProductSize &size, const Chip &chip);
/// Does the first kernel take clearly less time than the second one?
bool isFaster(const GemmTile &tile, const GemmTile &other, const ProductSize &size,
              const Chip &chip);
/// Adds stages of so many bytes to a tile's ring, as far as there are slabs and room, until a block
/// alone has enough under way: narrow tiles have small slabs.
void deepenRing(GemmTile &tile, int64_t k, int64_t stageBytes, const Chip &chip);
/// Tiles of the products of 16-bit floats; slab and stages are left to what fits.
std::span<const TileChoice> floatTiles();
/// Bytes of a slab in shared memory: activations as they are, weights packed.
int64_t slabBytes(const GemmTile &tile, int64_t elementBytes, int bits);
/// The kernel that computes N columns of y by such tiles.
Description describeTile(const std::string &linear, std::vector<Parameter> parameters, int64_t n,
                         const GemmTile &tile, int64_t stageBytes);
/// int32s of `counters` and bytes of `partials` of such a kernel; 0 where no blocks share K.
int64_t tileCounters(const Description &description, const GemmTile &tile, int64_t rows);
int64_t tilePartialBytes(const Description &description, const GemmTile &tile, int64_t rows);
/// Gives a tile whose blocks share K more warps, where a thread would have more sums than it can
/// add as many others to.
void shareSums(GemmTile &tile, int64_t blockRows);
/// Regroups the warps of a tile, so that each takes whole blocks of `blockRows` rows of weights.
void giveWholeBlocks(GemmTile &tile, int64_t blockRows);

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_GEMMTILES_H
