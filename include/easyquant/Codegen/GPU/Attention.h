//===- Attention.h - Heads, the key/value cache, attention ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Conventions: easyquant/Codegen/GPU/Kernels.h. A launch is for all sequences of a step. What it
// has to know of them is in tables in device memory (Formats/GpuStep.h), which a replayed launch
// reads anew: `sequences` are eq_sequences, `row_places` a RowPlace for each row, `pieces` a number
// of Pieces, then these. Grids depend on `rows` only. q, k and v are f32, rows * stride apart:
// columns of one fused matrix if need be.
//
// A sequence's tokens lie in pages of P = cacheBytes(spec).pageTokens tokens of all layers,
// anywhere in the memory of a cache: its page n begins at byte pages[first_page + n], `pages` being
// int64s. `cache` points to the layer's part of a page at byte
// 0. There is a page for every token, those of the step included. Sequences may share pages: the
// kernels write only the tokens of the step to a float cache, and only tokens that leave the window
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
//           kvSlices. In the sequence's own window, number `window` of its table, which for the
//           layer is at `windows` + window * `window_bytes`, H = kvHeads:
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
#include "easyquant/Formats/GpuStep.h"
#include "easyquant/Numerics/KVCache.h"

#include <optional>

namespace easyquant::gpu {

//===- Heads --------------------------------------------------------------===//

/// Prepares queries and keys for attention, in place. Every head (headDim consecutive columns of x)
/// is divided by its root mean square and multiplied with a weight (`norm`: headDim floats;
/// `plainNorm`: there is no weight). Then
/// its first R dimensions are rotated by the angles of its token's position (`positions` > 0: table
/// is positions x R/2 x 2 floats (cos, sin); dimension i pairs with i + R/2). Keys that lie behind
/// the queries in the row can go along: `keyHeads` more heads, with a weight of their own. With
/// `hadamard` it is then rotated in blocks of so many columns, to the bit of
/// numerics::rotateActivation. With `append` the keys go to a float cache instead (AttentionSpec),
/// and so do as many heads of values behind them. Parameters:
///   x, x_stride, [weight, [key_weight]], [table], [row_places], [sequences, cache, pages], rows
struct HeadsSpec {
  int64_t heads = 0, keyHeads = 0, headDim = 0;
  bool norm = false;
  double epsilon = 0.0;
  int64_t positions = 0; ///< of the rotation table; 0: no rotation
  bool append = false;
  int64_t hadamard = 0; ///< columns of a block of Numerics/Hadamard.h; 0: no basis of heads
  int64_t dims = 0;     ///< R; 0: all of a head, as a basis of heads needs it
  bool plainNorm = false;

  int64_t rotated() const { return dims > 0 ? dims : headDim; }
  bool hasWeight() const { return norm && !plainNorm; }
  int64_t allHeads() const { return heads + (append ? 2 : 1) * keyHeads; }
};
Description getOrEmit(mlir::gpu::GPUModuleOp module, const HeadsSpec &spec, const Chip &chip);

//===- Attention ----------------------------------------------------------===//

/// Appends k and v of the step's rows to the cache and attends causally: a row of a sequence sees
/// its tokens up to the row's position (with a window W > 0 only the last W of them). Query head h
/// reads kv head h / (heads / kvHeads).
struct AttentionSpec {
  int64_t heads = 0, kvHeads = 0, headDim = 0;
  double scale = 0.0; ///< usually 1 / sqrt(headDim)
  int64_t window = 0; ///< 0: none
  double bound = 0.0; ///< > 0: scaled products are bound * tanh(product / bound)
  /// Each softmax of a head has one product more, which has no value: its element of sink_logits,
  /// floats.
  bool sinkLogits = false;
  Float output = Float::F32;
  /// What is made of the result's rows, by the block that is the last of a row, if there is
  /// something: codes. The result is f32 then, and only that block reads it. With heads of up to
  /// kMostCodedHeadDim dimensions.
  std::optional<RowSpec> codes = std::nullopt;
  /// Codes, if there. numerics::checkKVScheme says what is legal. Queries and keys come in the
  /// basis of its keys (HeadsSpec::hadamard), and nothing more is done about it.
  std::optional<numerics::KVScheme> kv = std::nullopt;
  /// For a cache of codes; > 0: keys come and are kept before their rotation, and are rotated as
  /// they are read, by a table of so many positions. Queries come rotated.
  int64_t keyPositions = 0;
  /// For a float cache: the step's tokens are brought there by HeadsSpec::append, so that there is
  /// no launch `before`.
  bool appended = false;
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
  /// Warps that share the dimensions of a result, of heads so wide that one has too few registers
  /// for them.
  int64_t columnWarps = 1;
  /// Tiles of cached tokens that are in shared memory or on their way there, in the matrix form.
  /// Codes are there as they are in the cache. 1: keys and values come one after the other.
  int64_t stages = 1;
  int64_t threads() const { return 32 * warps; }
};

/// One way of attending, for the sequences that `cut` takes.
struct AttentionKernel {
  enum Form {
    Split,  ///< few rows: the cached tokens are cut, and parts combined by who ends the last one
    Blocked ///< more rows: a block does all for its queries
  };
  Form form = Blocked;
  AttentionTile tile{};
  formats::PieceCut cut;
  int64_t partialBytes = 0;    ///< of a place for partial sums, of contents undefined; 0: no such
  int64_t partialCounters = 0; ///< int32s of it, zero before and after the launch
  Description launch;
};

/// The launches that compute a spec: those `before`, those of all kernels, those `behind`. Their
/// parameters have the same meaning under the same name (each has those that it needs):
///   q, q_stride, k, k_stride, v, v_stride   f32; strides in elements
///   cache, pages                            of this layer, of all sequences
///   windows, window_bytes                   for a cache of codes; bytes of all layers' windows
///   sequences, row_places, pieces           the tables of the step; pieces by the kernel's cut
///   sink_logits                             heads floats; if sinkLogits
///   table                                   keyPositions x R/2 x 2 floats; if keyPositions > 0
///   partials, partial_counters              memory for the places that the pieces say
///   y, y_stride                             M x heads * D of `output`; if not codes
///   x, x_stride, ...                        the same as f32 for those, and the other parameters of
///                                           their RowSpec
///   row_counters                            for codes: an int32 a row of the step, zero before and
///                                           after the launch
///   rows
struct AttentionLaunches {
  std::vector<Description> before, behind;
  std::vector<AttentionKernel> kernels;
};

/// Wider heads do not fit: of 512 dimensions, keys and queries fill the shared memory of the chips
/// that have least of it.
inline constexpr int64_t kMostHeadDim = 512;

/// The widest heads whose attention has registers for codes of its rows, too.
inline constexpr int64_t kMostCodedHeadDim = 128;

/// The kernels are for sequences with ever more rows. Unsupported for heads of more than
/// kMostHeadDim dimensions.
Result<AttentionLaunches> attentionLaunches(const AttentionSpec &spec, const Chip &chip);
void getOrEmit(mlir::gpu::GPUModuleOp module, const AttentionSpec &spec,
               const AttentionLaunches &launches);

/// For a cache of codes: the launch before a step in which sequences go back to `position` from
/// `held` tokens. Later tokens have taken the place of some that the float window should hold.
/// These are filled in again from codes. Parameters:
///   cache, pages, windows, window_bytes, sequences, row_places
Description getOrEmitRestore(mlir::gpu::GPUModuleOp module, const AttentionSpec &spec);

} // namespace easyquant::gpu

#endif // EASYQUANT_CODEGEN_GPU_ATTENTION_H
