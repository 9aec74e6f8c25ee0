//===- AttentionCache.h - A layer's cache in device memory ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Attention.h (the public one) lays the cache out; here are its places as IR, what fills it, and
// how keys and values are read.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_ATTENTIONCACHE_H
#define EASYQUANT_LIB_CODEGEN_GPU_ATTENTIONCACHE_H

#include "StepTables.h"

#include "easyquant/Codegen/GPU/Attention.h"

namespace easyquant::gpu {

//===- Numbers that descriptions and emitters share -----------------------===//

/// How the queries of one kv head (M tokens of `group` heads) are dealt out to blocks. Query u of a
/// block is head u mod group of token u / group. A token with more heads than a tile takes several
/// blocks, `chunks`.
struct QueryCut {
  QueryCut(const AttentionSpec &spec, const AttentionTile &tile)
      : group(spec.heads / spec.kvHeads), tokens(std::max<int64_t>(1, tile.queries / group)),
        chunks(divideCeil(group, tile.queries)) {}
  int64_t group, tokens, chunks;
};

/// The first token of tile 0, perhaps negative. Tiles of a cache of codes begin where groups do: a
/// multiple of a tile behind the sinks.
int64_t firstTileToken(const AttentionSpec &spec, const AttentionTile &tile);

/// The floats of a place for partial sums, a row's: for every head the maximum of scores and the
/// sum of weights, then the sums of weighted values of the first head, of the second one, ...
struct PartialPlace {
  explicit PartialPlace(const AttentionSpec &spec);
  int64_t values, stride;
  int64_t bytes() const { return stride * 4; }
};

/// Places in the shared memory of an attention kernel, in bytes.
struct AttentionShared {
  AttentionShared(const AttentionSpec &spec, const AttentionTile &tile, bool split);
  int64_t rowBytes = 0;         ///< of a token's key or value
  int64_t keys = 0, values = 0; ///< of floats those of the first stage
  int64_t stageBytes = 0;       ///< of keys, or values, from one stage to the next
  int64_t coded = 0;            ///< codes of keys and values of the first stage, RawTile
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

/// A tile of one head of a cache of codes as it lies there, in bytes: codes, then slices, of keys,
/// then the same of values.
struct RawTile {
  RawTile(const CodeCache &cache, const AttentionSpec &spec, int64_t tokens);
  /// Does a tile have whole groups of channels, or a part of one?
  static bool fits(const AttentionSpec &spec, int64_t tokens) {
    return spec.kv->group % tokens == 0 || tokens % spec.kv->group == 0;
  }
  int64_t codes; ///< of keys, and of values
  int64_t keySlices, valueSlices;
  int64_t bytes() const { return 2 * codes + keySlices + valueSlices; }
  int64_t begin(bool keys) const { return keys ? 0 : codes + keySlices; }
  int64_t slices(bool keys) const { return keys ? keySlices : valueSlices; }
};

/// Threads of the kernels that fill a cache.
inline constexpr uint32_t kCacheThreads = 128;

//===- The cache ----------------------------------------------------------===//

/// x, beyond the range of f16 saturated; NaN stays.
mlir::Value saturateToHalf(KernelBuilder &b, mlir::Value x);
/// x as a cache of codes keeps it: what is not finite becomes finite, for it must not spoil the
/// codes of its neighbours.
mlir::Value finiteHalf(KernelBuilder &b, mlir::Value x);

/// The pages of a sequence.
mlir::Value pagesOf(KernelBuilder &b, const KernelArguments &arguments,
                    const StepSequence &sequence);

/// Places in the pages of a float cache. A page is looked up once for all of its tokens.
class FloatCache {
public:
  FloatCache(KernelBuilder &b, const AttentionSpec &spec, const KernelArguments &arguments,
             const StepSequence &sequence)
      : b(b), spec(spec), cache(arguments["cache"]), pages(pagesOf(b, arguments, sequence)) {}
  /// The layer's part of the page that a token is in.
  mlir::Value page(mlir::Value token);
  /// The D elements (f16) of a token's key or value there.
  mlir::Value row(bool keys, mlir::Value page, mlir::Value head, mlir::Value token);

private:
  KernelBuilder &b;
  const AttentionSpec &spec;
  mlir::Value cache, pages;
};

/// Places of a cache of codes.
class CodePlaces {
public:
  CodePlaces(KernelBuilder &b, const AttentionSpec &spec, const KernelArguments &arguments,
             const StepSequence &sequence);
  /// The D elements (f16) of a token in the window or among the sinks.
  mlir::Value floatRow(bool keys, mlir::Value head, mlir::Value token);
  /// The layer's part of the page that number i is in.
  mlir::Value page(mlir::Value i);
  /// There, the codes of token number i; minimum and scale of its first slice, the next ones
  /// follow.
  mlir::Value codeRow(bool keys, mlir::Value page, mlir::Value head, mlir::Value i);
  mlir::Value tokenSlices(bool keys, mlir::Value page, mlir::Value head, mlir::Value i);
  /// Minima of the channels of the group of key i; scales lie D further on.
  mlir::Value channelSlices(mlir::Value page, mlir::Value head, mlir::Value i);
  /// Tokens below it are codes (but sinks) for a call at `position`: Numerics/KVCache.h.
  mlir::Value firstFloat(bool keys, mlir::Value position);
  bool slicesPerToken(bool keys) const {
    return !keys || layout.kv.keys == numerics::KeySlices::Token;
  }
  /// Minima and scales of eight dimensions of a token, as pairs of f16.
  struct Slices {
    KernelBuilder::Values minima, scales;
  };
  Slices slices(bool keys, mlir::Value page, mlir::Value head, mlir::Value i, mlir::Value dim) {
    return slicesAt(keys, firstSlice(keys, page, head, i), dim);
  }
  /// Where slices of token number i are: its own, or those of its group.
  mlir::Value firstSlice(bool keys, mlir::Value page, mlir::Value head, mlir::Value i) {
    return slicesPerToken(keys) ? tokenSlices(keys, page, head, i) : channelSlices(page, head, i);
  }
  /// From there, in the cache or (not `constant`) in shared memory.
  Slices slicesAt(bool keys, mlir::Value first, mlir::Value dim, bool constant = true);
  /// Eight f16, as words, of a row of codes, likewise.
  mlir::Value dequantize(mlir::Value codeRow, mlir::Value dim, const Slices &slices,
                         bool constant = true);

  const CodeCache layout;

private:
  /// Byte `at` of a head's part of a page.
  mlir::Value place(mlir::Value page, mlir::Value head, int64_t at);
  /// Pairs of f16 1024 + code.
  KernelBuilder::Values biasedCodes(mlir::Value row, mlir::Value dim, bool constant);

  KernelBuilder &b;
  const AttentionSpec &spec;
  mlir::Value cache, pages, window;
};

/// Keys and values of one head, as the rows of a sequence see them.
class CacheReader {
public:
  CacheReader(KernelBuilder &b, const AttentionSpec &spec, const KernelArguments &arguments,
              mlir::Value head, const StepSequence &sequence);
  /// The page of tokens from `first` on, as many as a tile has. In a cache of codes it is the page
  /// of those that are codes.
  mlir::Value page(mlir::Value first);
  /// `count` dimensions from `dim` on, as f16: a divisor of headDim up to 8; 8 of codes.
  mlir::Value read(bool keys, mlir::Value page, mlir::Value token, mlir::Value dim, int64_t count);
  /// The row of a token in a float cache.
  mlir::Value row(bool keys, mlir::Value page, mlir::Value token) {
    return floats.row(keys, page, head, token);
  }

  /// In a cache of codes: tokens first .. first + count - 1 are all codes (i1).
  mlir::Value allCodes(bool keys, mlir::Value first, int64_t count);
  CodePlaces &codePlaces() { return *codes; }

private:
  mlir::Value readCodes(bool keys, mlir::Value page, mlir::Value token, mlir::Value dim);

  KernelBuilder &b;
  const AttentionSpec &spec;
  const KernelArguments &arguments;
  mlir::Value head;
  const StepSequence &sequence;
  FloatCache floats;
  std::optional<CodePlaces> codes;
  mlir::Value firstFloat[2]; ///< of values, of keys
};

/// The row of the step that a token of the step has.
mlir::Value rowOfToken(KernelBuilder &b, const StepSequence &sequence, mlir::Value token);
/// `count` floats of a row of the step as the cache keeps them, f16.
mlir::Value readStepRow(KernelBuilder &b, const AttentionSpec &spec,
                        const KernelArguments &arguments, bool keys, mlir::Value head,
                        mlir::Value row, mlir::Value dim, int64_t count);

/// Writes the rows of a step's tokens to a float cache.
void emitAppend(KernelBuilder &b, const AttentionSpec &spec, const KernelArguments &arguments);
/// Makes codes of the tokens that the next step sees as codes and this one did not, and brings the
/// rows of the step to the places that they leave in the window.
void emitQuantize(KernelBuilder &b, const AttentionSpec &spec, const KernelArguments &arguments);
void emitRestore(KernelBuilder &b, const AttentionSpec &spec, const KernelArguments &arguments);

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_ATTENTIONCACHE_H
