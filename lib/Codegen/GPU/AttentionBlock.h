//===- AttentionBlock.h - What a block of attention does --------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Blocks take turns with the pieces of a step (Formats/GpuStep.h), each once for every kv head. A
// block attends with a tile of queries of one kv head to the tokens of a piece, a tile of them at a
// time:
//
//   softmax is online: a running maximum m, sum l of weights and sum o of weighted values; scores
//   are in units of log2 e, so that weights are powers of two.
//
// AttentionMatrix.cpp does so by mma.sync, AttentionScalar.cpp by fma. KeyValueTiles brings tiles
// to shared memory, from whatever the cache is. Where a row's tokens are in several pieces, the
// block that ends the last one of them combines their sums (AttentionCombine.cpp).
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_ATTENTIONBLOCK_H
#define EASYQUANT_LIB_CODEGEN_GPU_ATTENTIONBLOCK_H

#include "AttentionCache.h"
#include "KernelBuilder.h"

namespace easyquant::gpu {

/// Lower than all scores, and still a number: what is masked is minus infinity.
inline constexpr double kLeastMaximum = -1e30;

/// One piece for one kv head.
class AttentionBlock {
public:
  AttentionBlock(KernelBuilder &b, const AttentionSpec &spec, const AttentionKernel &kernel,
                 const KernelArguments &arguments, mlir::Value item);

  struct Query {
    mlir::Value token, head; ///< its row in the piece, its head among those that share the kv head
    mlir::Value valid;       ///< i1; where it is false, token and head are those of query 0
    mlir::Value first, end;  ///< the cached tokens that it sees; none where it is not valid
  };
  Query query(mlir::Value u);
  /// Its headDim floats.
  mlir::Value queryRow(const Query &query);
  /// The factor of queries, by which scores are exponents of two.
  double queryScale() const;
  /// A score within the bound of the spec.
  mlir::Value bounded(mlir::Value score);
  /// What a query's sums of weighted values of all tokens are multiplied by: 1 / the sum of
  /// weights, in which the head's sink logit has its part, if there is one. `maximum` is that of
  /// the scores.
  mlir::Value normalizer(const Query &query, mlir::Value maximum, mlir::Value sum);

  mlir::Value firstToken(mlir::Value tile); ///< may be negative where codes are
  /// Tiles hold tokens before the first one that a query sees.
  bool masksFirst() const { return spec.window > 0 || kernel.cut.origin < 0; }

  /// body(false) where the sums are of all tokens that the queries see, body(true) where they are
  /// of a part of them.
  void forResult(llvm::function_ref<void(bool isPart)> body);
  /// A query's headDim elements of the result.
  mlir::Value outputRow(const Query &query);
  /// A query's sums of weighted values of a part, and its maximum and sum of weights there, two
  /// floats.
  mlir::Value partialRow(const Query &query, mlir::Value part);
  mlir::Value partialMerge(const Query &query, mlir::Value part);

  StepPiece piece;
  StepSequence sequence;
  mlir::Value kvHead;
  mlir::Value counter;            ///< of the parts that are done
  mlir::Value firstTile, endTile; ///< of the piece
  mlir::Value position;           ///< of the piece's first row
  const AttentionSpec &spec;
  const AttentionKernel &kernel;
  const KernelArguments &arguments;

private:
  mlir::Value headOf(const Query &query);
  mlir::Value partialPlace(const Query &query, mlir::Value part);
  KernelBuilder &b;
  QueryCut cut;
  mlir::Value firstHead;
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

  /// Where there are several stages: the page of a tile, which is looked up before its keys and
  /// values are brought to a stage, i1 `there`: if it is there at all. What is brought counts as
  /// one group of copies.
  mlir::Value page(mlir::Value firstToken) { return cache.page(firstToken); }
  void bring(mlir::Value page, mlir::Value firstToken, mlir::Value stage, mlir::Value there);
  /// Makes floats of what was brought, and brings what is no code. Barriers.
  void unpack(mlir::Value firstToken, mlir::Value stage);

private:
  static constexpr int64_t kRun = 8; ///< dimensions that a thread has at once
  void rotate(mlir::Value firstToken);
  void start(bool keys, mlir::Value firstToken);
  // `page` is that of all tokens of the tile.
  void copyFloats(bool keys, mlir::Value page, mlir::Value firstToken, mlir::Value to);
  void convert(bool keys, mlir::Value page, mlir::Value firstToken, mlir::Value to);
  void convertCodes(bool keys, mlir::Value page, mlir::Value firstToken, mlir::Value to);
  /// From `rows` of the cache or (not `constant`) of shared memory; firstOf(row) has its slices.
  void convertRows(bool keys, mlir::Value rows,
                   llvm::function_ref<mlir::Value(mlir::Value)> firstOf, mlir::Value to,
                   bool constant);
  void copyCodes(bool keys, mlir::Value page, mlir::Value firstToken, mlir::Value to);
  mlir::Value codedStage(mlir::Value stage);
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

/// All pieces, for all kv heads.
void emitAttention(KernelBuilder &b, const AttentionSpec &spec, const AttentionKernel &kernel,
                   const KernelArguments &arguments);
void emitMatrixAttention(KernelBuilder &b, const AttentionSpec &spec, const AttentionKernel &kernel,
                         const KernelArguments &arguments, mlir::Value item);
void emitScalarAttention(KernelBuilder &b, const AttentionSpec &spec, const AttentionKernel &kernel,
                         const KernelArguments &arguments, mlir::Value item);
/// Behind a part, whose sums all threads have written; `shared` is memory that nobody reads any
/// more.
void emitCombine(KernelBuilder &b, AttentionBlock &block, mlir::Value shared);
/// Behind an item, whose rows of the result all threads have written: codes of those rows to which
/// nothing is missing any more.
void emitRowCodes(KernelBuilder &b, const AttentionSpec &spec, const AttentionKernel &kernel,
                  const KernelArguments &arguments, mlir::Value item);
/// The dynamic shared memory for it, in bytes.
int64_t bytesForCodes(const AttentionSpec &spec, const AttentionTile &tile);

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_ATTENTIONBLOCK_H
