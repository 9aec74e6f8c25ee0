//===- AttentionTile.h - A few queries against a stretch of tokens -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Attention with online softmax (Milakov and Gimelshein, 2018; Dao et al., FlashAttention, 2022). A
// tile is a handful of queries, rows r = token * heads + head, of query heads that read the same kv
// head. Over kStep cached tokens at a time,
//
//   S = Q K^T            rows x kStep, register tiles of rows x tokens, K being stored transposed
//   m' = max(m, max S)   per row
//   P = 2^(S - m')       Q carries scale * log2(e), so that exponentials are powers of two
//   l = l 2^(m - m') + sum P;   O = O 2^(m - m') + P V
//
// leaves O, m and l of these tokens in scratch. `finish` combines the O, m and l of several
// stretches of tokens, weighted by 2^(m - max m), and writes O / l.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_CPU_ATTENTIONTILE_H
#define EASYQUANT_LIB_CODEGEN_CPU_ATTENTIONTILE_H

#include "KernelBuilder.h"

namespace easyquant::cpu {

/// The extents of a tile and of its register blocks.
struct AttentionTile {
  /// Cached tokens between two updates of the running maximum.
  static constexpr int64_t kStep = 64;

  /// A tile of `tokens` queries of AttentionTile::headsOf(spec) heads each.
  AttentionTile(const AttentionSpec &spec, const Target &target, int64_t tokens);

  /// Query heads done together: those that share a kv head, or, where these are many, an equal part
  /// of them.
  static int64_t headsOf(const AttentionSpec &spec);

  AttentionSpec spec;
  int64_t tokens, heads;
  int64_t rows;      ///< tokens * heads and up to a multiple of microRows; the rest repeat the last
  int64_t microRows; ///< rows of a register block
  int64_t scoreVectors; ///< vectors of tokens in a register block of S
  int64_t valueVectors; ///< vectors of dimensions in a register block of O

  // Places in scratch, in bytes from the tile's offset.
  int64_t queries, scores, output, maxima, decays, sums;
  int64_t bytes; ///< all of it, a multiple of 64
};

/// The elements of a cache: f32 or f16.
mlir::Type cacheElement(KernelBuilder &b, const AttentionSpec &spec);

/// attend(q, keys, values, position, scratch, offset, first, head, begin, end): the queries of
/// tokens first .. of the tile's heads head * heads .. against the cached tokens [begin, end).
/// begin is a multiple of 16; end may cut off only tokens that some query must not see, or lie a
/// multiple of kStep behind begin.
mlir::func::FuncOp getOrEmitAttendTile(mlir::ModuleOp module, const AttentionTile &tile,
                                       const Target &target);

/// finish(y, scratch, offset, parts, first, head): combines `parts` tiles that lie behind each
/// other in scratch and writes their rows of y.
mlir::func::FuncOp getOrEmitFinishTile(mlir::ModuleOp module, const AttentionTile &tile,
                                       const Target &target);

} // namespace easyquant::cpu

#endif // EASYQUANT_LIB_CODEGEN_CPU_ATTENTIONTILE_H
