//===- Attention.h - Heads, the key/value cache, attention ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Conventions: easyquant/Codegen/GPU/Kernels.h. `position`, the number of tokens before this call,
// is one int32 in device memory, so that a launch can be replayed; grids depend on `rows` only.
// q, k and v are f32, rows * stride apart: columns of one fused matrix if need be.
//
// A sequence's tokens lie in pages of P = cacheBytes(spec).pageTokens tokens of all layers,
// anywhere in the memory of a cache: page n begins at byte pages[n], `pages` being int64 in device
// memory, which a replayed launch reads anew. `cache` points to the layer's part of a page at byte
// 0. There is a page for every token, those of the call included. Sequences may share pages: the
// kernels write only the tokens of the call to a float cache, and only tokens that leave the window
// to a cache of codes. They read nothing that no token has written, so the cache need not be
// zeroed. Elements are f16: inputs are rounded to nearest even, finite values beyond 65504
// saturate.
//
// clang-format off
//   float   in page t / P, for each kv head one after the other (D = headDim):
//           f16 keys          P x D
//           f16 values        P x D
//   codes   easyquant/Numerics/KVCache.h defines codes, slices, and which tokens are float. Token
//           t >= S (sinks) is number i = t - S of the codes; R = residual, G = group, V =
//           kvSlices. In the sequence's own window, which for the layer is at `windows` + *`window`
//           (an int64 in device memory), H = kvHeads:
//           f16 float keys    H x (S + R) x D: the sinks, then token t in row S + i mod R
//           f16 float values  the same, from the next multiple of 64 bytes on
//           in page i / P, for each kv head, from a multiple of 64 bytes on:
//           u8  key codes     P x D * bits / 8: a byte for each dimension with 8 bits. With fewer,
//                             `bits` bytes hold eight dimensions, and dimension 2 r + i of them
//                             begins at bit 4 bits i + bits r
//           u8  value codes   the same
//           f16 value slices  P x V x 2: (minimum, scale)
//           f16 key slices    per channel P/G x 2 x D: minima, then scales; per token as those of
//                             values
// clang-format on
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CODEGEN_GPU_ATTENTION_H
#define EASYQUANT_CODEGEN_GPU_ATTENTION_H

#include "easyquant/Codegen/GPU/Kernels.h"
#include "easyquant/Numerics/KVCache.h"

#include <optional>

namespace easyquant::gpu {

//===- Heads --------------------------------------------------------------===//

/// Prepares queries and keys for attention, in place. Every head (headDim consecutive columns of x)
/// is divided by its root mean square and multiplied with a weight (`norm`: headDim floats). Then
/// its first R dimensions are rotated by the angles of its token's position (`positions` > 0: table
/// is positions x R/2 x 2 floats (cos, sin); dimension i pairs with i + R/2). Keys that lie behind
/// the queries in the row can go along: `keyHeads` more heads, with a weight of their own. With
/// `hadamard` it is then rotated in blocks of so many columns, to the bit of
/// numerics::rotateActivation. With `append` the keys go to a float cache instead (AttentionSpec),
/// and so do as many heads of values behind them. Parameters:
///   x, x_stride, [weight, [key_weight]], [table], [position], [cache, pages], rows
struct HeadsSpec {
  int64_t heads = 0, keyHeads = 0, headDim = 0;
  bool norm = false;
  double epsilon = 0.0;
  int64_t positions = 0; ///< of the rotation table; 0: no rotation
  bool append = false;
  int64_t hadamard = 0; ///< columns of a block of Numerics/Hadamard.h; 0: no basis of heads
  int64_t dims = 0;     ///< R; 0: all of a head, as a basis of heads needs it

  int64_t rotated() const { return dims > 0 ? dims : headDim; }
  int64_t allHeads() const { return heads + (append ? 2 : 1) * keyHeads; }
};
Description getOrEmit(mlir::gpu::GPUModuleOp module, const HeadsSpec &spec, const Chip &chip);

//===- Attention ----------------------------------------------------------===//

/// Appends k and v (M tokens at `position`) to the cache and attends causally: token m sees tokens
/// 0 .. position + m (with a window W > 0 only the last W of them). Query head h reads kv head
/// h / (heads / kvHeads).
struct AttentionSpec {
  int64_t heads = 0, kvHeads = 0, headDim = 0;
  double scale = 0.0; ///< usually 1 / sqrt(headDim)
  int64_t window = 0; ///< 0: none
  double bound = 0.0; ///< of scaled products; 0: none, which is all that there are kernels for
  Float output = Float::F32;
  /// Codes, if there. numerics::checkKVScheme says what is legal. Queries and keys come in the
  /// basis of its keys (HeadsSpec::hadamard), and nothing more is done about it.
  std::optional<numerics::KVScheme> kv = std::nullopt;
  /// For a cache of codes; > 0: keys come and are kept before their rotation, and are rotated as
  /// they are read, by a table of so many positions. Queries come rotated.
  int64_t keyPositions = 0;
  /// For a float cache: the call's tokens are there already (HeadsSpec::append).
  bool appended = false;
  /// Ranks that have as many heads each. Tokens are cut as they are for one rank with all heads, so
  /// that sums are the same.
  int64_t ranks = 1;
  int64_t rotatedDims = 0; ///< of a head, the dimensions that the table turns; 0: all

  int64_t rotated() const { return rotatedDims > 0 ? rotatedDims : headDim; }
};

/// One layer's part of a cache, in bytes that are multiples of 64.
struct CacheBytes {
  int64_t pageTokens = 0; ///< P
  int64_t page = 0;       ///< of a page
  int64_t window = 0;     ///< of codes: what a sequence has beside its pages
};
CacheBytes cacheBytes(const AttentionSpec &spec);

/// How attention is cut. A block takes `queries` queries (of one kv head: tokens times the heads
/// that share it) and a tile of cached tokens at a time.
struct AttentionTile {
  int64_t queries, tokens, warps;
  bool matrix; ///< mma.sync on f16; else fma on f32
  int64_t threads() const { return 32 * warps; }
};

/// One way of computing a spec: launches one after the other, whose parameters have the same
/// meaning under the same name (each has those that it needs):
///   q, q_stride, k, k_stride, v, v_stride   f32; strides in elements
///   cache, pages                            of this layer, of the sequence
///   windows, window                         the same, for a cache of codes
///   table                                   keyPositions x R/2 x 2 floats; if keyPositions > 0
///   position                                pointer to an int32
///   scratch                                 rows * scratchBytesPerRow bytes, contents undefined
///   y, y_stride                             M x heads * D of `output`
///   rows
/// `maxRows` says up to which M it is the one to take.
struct AttentionKernel {
  enum Form {
    Split,  ///< few tokens: the cached tokens are shared out among blocks, results then combined
    Blocked ///< more tokens: a block does all for its queries
  };
  Form form = Blocked;
  int64_t maxRows = 0;
  AttentionTile tile{};
  int64_t splits = 1;
  int64_t scratchBytesPerRow = 0;
  std::vector<Description> launches;
};

/// Wider heads do not fit: of 512 dimensions, keys and queries fill the shared memory of the chips
/// that have least of it.
inline constexpr int64_t kMostHeadDim = 512;

/// The ways of a spec, for ever more rows; the last one takes any number. Unsupported for heads of
/// more than kMostHeadDim dimensions, and with a bound.
Result<std::vector<AttentionKernel>> attentionKernels(const AttentionSpec &spec, const Chip &chip);
/// All launches of `kernel`, in their order.
std::vector<Description> getOrEmit(mlir::gpu::GPUModuleOp module, const AttentionSpec &spec,
                                   const AttentionKernel &kernel);

/// For a cache of codes: the launch before the next call when a session goes back to `position`
/// from `held` tokens (pointers to an int32 each). Later tokens have taken the place of some that
/// the float window should hold. These are filled in again from codes. Parameters:
///   cache, pages, windows, window, position, held
Description getOrEmitRestore(mlir::gpu::GPUModuleOp module, const AttentionSpec &spec);

} // namespace easyquant::gpu

#endif // EASYQUANT_CODEGEN_GPU_ATTENTION_H
