//===- AttentionBlock.h - What a block of attention does --------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A block attends with a tile of queries of one kv head to a stretch of the cached tokens, a tile
// of them at a time:
//
//   softmax is online: a running maximum m, sum l of weights and sum o of weighted values; scores
//   are in units of log2 e, so that weights are powers of two.
//
// AttentionMatrix.cpp does so by mma.sync, AttentionScalar.cpp by fma. KeyValueTiles brings tiles
// to shared memory, from whatever the cache is.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_ATTENTIONBLOCK_H
#define EASYQUANT_LIB_CODEGEN_GPU_ATTENTIONBLOCK_H

#include "AttentionCache.h"
#include "KernelBuilder.h"

namespace easyquant::gpu {

/// Lower than all scores, and still a number: what is masked is minus infinity.
inline constexpr double kLeastMaximum = -1e30;

class AttentionBlock {
public:
  AttentionBlock(KernelBuilder &b, const AttentionSpec &spec, const AttentionKernel &kernel,
                 const KernelArguments &arguments);

  struct Query {
    mlir::Value token, head; ///< its token in the call, its head among those that share the kv head
    mlir::Value valid;       ///< i1; where it is false, token and head are those of query 0
    mlir::Value first, end;  ///< the cached tokens that it sees; none where it is not valid
  };
  Query query(mlir::Value u);
  /// Its headDim floats.
  mlir::Value queryRow(const Query &query);
  /// The factor of queries, by which scores are exponents of two.
  double queryScale() const;

  mlir::Value firstToken(mlir::Value tile); ///< may be negative where codes are
  /// Tiles hold tokens before the first one that a query sees.
  bool masksFirst() const { return spec.window > 0 || origin() < 0; }

  bool final() const { return kernel.splits == 1; }
  /// A query's sum of weighted values: divided by the sum of weights in the end, as it is before.
  mlir::Value outputRow(const Query &query);
  /// In a split: writes maximum and sum of weights.
  void storeMerge(const Query &query, mlir::Value maximum, mlir::Value sum);

  mlir::Value kvHead, position, rows;
  mlir::Value firstTile, endTile; ///< of the stretch
  mlir::Value end;                ///< of what any query of the block sees
  const AttentionSpec &spec;
  const AttentionKernel &kernel;
  const KernelArguments &arguments;

private:
  /// The first token of tile 0. Tiles of a cache of codes begin where groups do: a multiple of a
  /// tile behind the sinks.
  int64_t origin() const {
    int64_t tokens = kernel.tile.tokens, sinks = spec.kv ? spec.kv->sinks % tokens : 0;
    return sinks == 0 ? 0 : sinks - tokens;
  }
  mlir::Value mergeIndex(const Query &query);
  KernelBuilder &b;
  QueryCut cut;
  mlir::Value firstQueryToken, firstHead, split;
};

/// Tiles of keys and values in shared memory: rows of AttentionShared::rowBytes, f16 for the matrix
/// form, f32 for the other.
class KeyValueTiles {
public:
  KeyValueTiles(KernelBuilder &b, const AttentionBlock &block, const AttentionShared &places,
                mlir::Value shared);
  /// Starts to bring keys or values of a tile; the threads must be through with what was there.
  void startKeys(mlir::Value firstToken) { start(/*keys=*/true, firstToken); }
  void startValues(mlir::Value firstToken) { start(/*keys=*/false, firstToken); }
  /// All that was started is there, for all threads. A barrier; after keys, they are rotated too.
  void finishKeys(mlir::Value firstToken);
  void finishValues();

private:
  static constexpr int64_t kRun = 8; ///< dimensions that a thread has at once
  void rotate(mlir::Value firstToken);
  void start(bool keys, mlir::Value firstToken);
  // `page` is that of all tokens of the tile.
  void copyFloats(bool keys, mlir::Value page, mlir::Value firstToken, mlir::Value to);
  void convert(bool keys, mlir::Value page, mlir::Value firstToken, mlir::Value to);
  void convertCodes(bool keys, mlir::Value page, mlir::Value firstToken, mlir::Value to);
  /// Elements of f16, to where they belong.
  void store(mlir::Value x, mlir::Value row, mlir::Value dim, mlir::Value to);

  KernelBuilder &b;
  const AttentionBlock &block;
  const AttentionShared &places;
  mlir::Value shared;
  CacheReader cache;
};

/// The largest of a warp's values, f32, in each lane.
mlir::Value warpMax(KernelBuilder &b, mlir::Value value);

void emitMatrixAttention(KernelBuilder &b, const AttentionSpec &spec, const AttentionKernel &kernel,
                         const KernelArguments &arguments);
void emitScalarAttention(KernelBuilder &b, const AttentionSpec &spec, const AttentionKernel &kernel,
                         const KernelArguments &arguments);
void emitCombine(KernelBuilder &b, const AttentionSpec &spec, int64_t splits,
                 const KernelArguments &arguments);

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_ATTENTIONBLOCK_H
