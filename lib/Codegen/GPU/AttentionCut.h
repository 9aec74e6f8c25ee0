//===- AttentionCut.h - How attention is cut and kept -----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Numbers that descriptions and emitters of attention share.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_ATTENTIONCUT_H
#define EASYQUANT_LIB_CODEGEN_GPU_ATTENTIONCUT_H

#include "easyquant/Codegen/GPU/Attention.h"

namespace easyquant::gpu {

/// How the queries of one kv head (M tokens of `group` heads) are dealt out to blocks. Query u of a
/// block is head u mod group of token u / group. A token with more heads than a tile takes several
/// blocks, `chunks`.
struct QueryCut {
  QueryCut(const AttentionSpec &spec, const AttentionTile &tile)
      : group(spec.heads / spec.kvHeads), tokens(std::max<int64_t>(1, tile.queries / group)),
        chunks(divideCeil(group, tile.queries)) {}
  int64_t group, tokens, chunks;
};

/// Places in the shared memory of an attention kernel, in bytes.
struct AttentionShared {
  AttentionShared(const AttentionSpec &spec, const AttentionTile &tile, bool split);
  int64_t rowBytes = 0; ///< of a token's key or value
  int64_t keys = 0, values = 0;
  int64_t queries = 0; ///< in the scalar form, and in the matrix form where registers are too few
  int64_t weights = 0; ///< probabilities, in the scalar form
  int64_t merge = 0;   ///< maxima and sums of the warps, in a split of the matrix form
  int64_t bytes = 0;

  /// Heads so wide that fragments of queries are kept in shared memory.
  static bool queriesInRegisters(const AttentionSpec &spec) { return spec.headDim <= 128; }
};

/// Floats between two rows of what the warps of a split merge: a multiple of 8 banks and no more.
constexpr int64_t mergeStride(int64_t headDim) { return headDim + 8; }

/// Bytes of one kv head's keys, or values, in a page of a float cache.
constexpr int64_t floatPageBytes(const AttentionSpec &spec) {
  return numerics::kPageTokens * spec.headDim * 2;
}

/// The parts of a cache of codes, Attention.h; places are in bytes.
struct CodeCache {
  explicit CodeCache(const AttentionSpec &spec);
  numerics::KVScheme kv;
  int64_t floatRows; ///< of one head
  int64_t codeBytes; ///< of one head of a token
  int64_t width;     ///< dimensions of a slice of a token
  int64_t slices;    ///< of one head of a token
  int64_t pageTokens;
  int64_t keyCodes = 0, valueCodes, valueSlices, keySlices; ///< in a head's part of a page
  int64_t headBytes;                                        ///< of a head's part of a page
  int64_t floatKeys = 0, floatValues;                       ///< in a window
  CacheBytes bytes;
};

/// Threads of the kernels that fill a cache.
inline constexpr uint32_t kCacheThreads = 128;

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_ATTENTIONCUT_H
