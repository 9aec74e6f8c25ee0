//===- AttentionTile.h - Few queries against some tokens --------*- C++ -*-===//
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
// leaves O, m and l of these tokens in scratch.
//
// The order of these sums is fixed. A sequence's tokens are cut, from its first one on, into parts
// of kPart and these into steps of kStep. A score is one chain of FMAs over dimensions. In a step,
// the sum over P has a lane for tokens that are as many lanes apart, and O one chain of FMAs over
// tokens. Parts begin with O = l = 0, and are added up from the first one on:
//
//   m' = max(m, m_i);  l = l 2^(m - m') + l_i 2^(m_i - m');  O = O 2^(m - m') + O_i 2^(m_i - m')
//
// Where heads have sink logits, one is added behind all parts, as a part of its own without O.
//
// Tokens that a row must not see add nothing. So its bits follow from its own tokens, whatever
// other rows are in its tile or call, and whatever threads there are. A cache of codes keeps that
// order for one token; a call of more also has float rows, which later calls see as codes.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_CPU_ATTENTIONTILE_H
#define EASYQUANT_LIB_CODEGEN_CPU_ATTENTIONTILE_H

#include "AttentionPages.h"

#include "easyquant/Numerics/KVCache.h"

#include "llvm/Support/MathExtras.h"

namespace easyquant::cpu {

/// Rows (queries x heads) of a tile when there are many tokens: enough that each key and value that
/// is loaded serves many products, few enough for scores and output to stay in the first-level
/// cache.
constexpr int64_t kPrefillRows = 24;
/// Cached tokens whose sums are added up before those of others.
constexpr int64_t kPart = 256;
/// Parts of one token's heads, all heads together (at least one each), that are in scratch at a
/// time: work for many threads.
constexpr int64_t kDecodeTiles = 48;

/// The extents of a tile and of its register blocks.
struct AttentionTile {
  /// Cached tokens between two updates of the running maximum.
  static constexpr int64_t kStep = numerics::kPageTokens;

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

/// How a spec is cut up into tiles for many tokens and for one.
template <typename Tile> struct AttentionTiling {
  AttentionTiling(const AttentionSpec &spec, const Target &target)
      : prefill(spec, target, std::max<int64_t>(1, kPrefillRows / AttentionTile::headsOf(spec))),
        decode(spec, target, 1), heads(spec.heads / AttentionTile::headsOf(spec)),
        parts(llvm::divideCeil(kDecodeTiles, heads)) {}
  /// Tiles that decode in scratch: the sum of the parts so far is one a head.
  int64_t decodeTiles() const { return heads * (parts + 1); }
  Tile prefill, decode;
  int64_t heads; ///< tiles side by side
  int64_t parts; ///< of a head when decoding that all threads attend to at a time
};

/// What a tile has in scratch: dense matrices as flat memrefs, so that the distance between rows of
/// a register block is a constant in the address.
struct TileViews {
  TileViews(KernelBuilder &b, const AttentionTile &tile, mlir::Value scratch, mlir::Value offset);
  mlir::Value queries, scores, output, maxima, decays, sums;
};

/// The oldest token that the token at `at` sees.
mlir::Value oldestSeen(KernelBuilder &b, const AttentionSpec &spec, mlir::Value at);

/// The elements of a cache: f32 or f16.
mlir::Type cacheElement(KernelBuilder &b, const AttentionSpec &spec);
/// To the cache's type; f16 saturates.
mlir::Value toCache(KernelBuilder &b, const AttentionSpec &spec, mlir::Value x);
/// To f32.
mlir::Value fromCache(KernelBuilder &b, mlir::Value x);

/// The parts of a step, on float keys and values.
class TileEmitter {
public:
  using Values = KernelBuilder::Values;

  /// The queries of tokens first .. of the call, heads head * tile.heads ...
  TileEmitter(KernelBuilder &b, const AttentionTile &tile, mlir::Value queries,
              mlir::Value position, mlir::Value scratch, mlir::Value offset, mlir::Value first,
              mlir::Value head);

  /// A step's tokens: elements of f32 or f16, the first token's from `start` on.
  struct Source {
    mlir::Value elements, start;
    /// From what is read to what to fetch meanwhile, as what is read next, and to what comes after
    /// that, which is brought but to the second level: hardware sees no stream across pages. Null:
    /// nothing.
    mlir::Value distance = nullptr, later = nullptr;
  };

  /// Q times scale * log2(e), and O, m and l of no tokens.
  void emitQueries();
  /// S of the step's tokens begin .. count, in blocks of 16 x columns transposed, and of some
  /// before and behind them: mask those.
  void emitScores(Source keys, Index begin, mlir::Value count);
  /// Bounds the scores, if the spec says so, and masks the step's tokens, the first of which is
  /// `token`, where they must not be seen or lie behind `end`.
  void emitMask(mlir::Value token, mlir::Value end);
  void emitSoftmax();
  /// O = O 2^(m - m') + P V over the step's tokens begin .. count, values lying in rows of
  /// `columns` from the step's token 0 on; without `decayed` O = O + P V.
  void emitValues(Source values, Index begin, mlir::Value count, bool decayed = true);

  /// sums[r, v] + scalar(r) * vector(v), one step of a register block of microRows x vectors.
  Values emitOuterProduct(mlir::ValueRange sums, int64_t vectors,
                          llvm::function_ref<mlir::Value(int64_t)> scalar,
                          llvm::function_ref<mlir::Value(int64_t)> vector);
  /// The token, counted in this call, that a row belongs to. Rows beyond the last query repeat it.
  mlir::Value tokenOf(mlir::Value row);

  KernelBuilder &b;
  const AttentionTile &tile;
  const int64_t lanes, columns;
  mlir::Value position, first, head;
  TileViews at;
  mlir::Value lastToken, kvHead;

private:
  void emitBound();
  void emitValueBlock(Source values, Index begin, mlir::Value count, mlir::Value row,
                      mlir::Value column, llvm::ArrayRef<int64_t> widths, bool decayed);
  void prefetch(const Source &source, mlir::Value index, int64_t v);
  mlir::Value q;
};

/// Calls attend(q, cache, pages, layer, position, scratch, offset, first, head, begin, end): the
/// queries of tokens first .. of the tile's heads head * heads .. against the cached tokens [begin,
/// end). begin is a multiple of kStep; end may cut off only tokens that some query must not see, or
/// be a multiple of kStep.
void emitAttendTile(KernelBuilder &b, mlir::ModuleOp module, const AttentionTile &tile,
                    mlir::ValueRange operands);

/// What a kernel does for one sequence, whatever its cache holds.
class AttentionSequence {
public:
  AttentionSequence(KernelBuilder &b, mlir::ModuleOp module, const KernelArguments &in,
                    const Team &team, const Sequence &sequence, const AttentionTile &prefill,
                    const AttentionTile &decode, int64_t heads, int64_t parts, int64_t threadBytes)
      : b(b), module(module), team(team), sequence(sequence), prefill(prefill), decode(decode),
        heads(heads), mostParts(parts), threadBytes(threadBytes), q(sequence.rowsOf(b, in["q"])),
        k(in.find("k") ? sequence.rowsOf(b, in["k"]) : nullptr),
        v(in.find("v") ? sequence.rowsOf(b, in["v"]) : nullptr), scratch(in["scratch"]),
        table(in.find("table")), sinkLogits(in.find("sink_logits")) {}
  virtual ~AttentionSequence() = default;

protected:
  /// The tokens [begin, end) in parts: `count` of them, the first of which is number `first` of the
  /// sequence.
  struct Parts {
    mlir::Value begin, end, first, count;
  };
  Parts cut(mlir::Value begin, mlir::Value end);
  /// Where part 0 .. count - 1 begins and ends.
  std::pair<mlir::Value, mlir::Value> part(const Parts &parts, mlir::Value number);

  /// What a sequence of one token sees, in parts and items of work, of each head so many; items are
  /// added up in their order.
  virtual Parts decodeParts() = 0;
  virtual mlir::Value itemsOf(const Parts &parts) = 0;
  virtual void attendItem(const Parts &parts, mlir::Value offset, mlir::Value head,
                          mlir::Value item) = 0;
  /// All threads attend, and meet in the midst of it.
  void decodeTogether();
  void decodeHead(mlir::Value head);
  /// The calling thread does all items of a tile: attend(offset, item), then finish.
  void attendAlone(const AttentionTile &tile, mlir::Value items, mlir::Value first,
                   mlir::Value head, llvm::function_ref<void(mlir::Value, mlir::Value)> attend);
  /// Adds the `count` - 1 tiles behind the one at `offset` to it.
  void addUp(const AttentionTile &tile, mlir::Value offset, mlir::Value count);
  /// Writes a tile's rows of y.
  void finish(const AttentionTile &tile, mlir::Value offset, mlir::Value first, mlir::Value head);
  mlir::Value prefillTiles() {
    return b.div(b.add(sequence.rows, prefill.tokens - 1), prefill.tokens);
  }
  mlir::Value ownScratch() { return b.mul(team.thread, threadBytes); }
  mlir::Value isOneToken() { return b.less(sequence.rows, 2); }

  KernelBuilder &b;
  mlir::ModuleOp module;
  const Team &team;
  const Sequence &sequence;
  const AttentionTile &prefill, &decode;
  const int64_t heads, mostParts, threadBytes; ///< as AttentionTiling has; scratch of a thread
  mlir::Value q, k, v, y, scratch, table, sinkLogits;
};

/// The kernel of a spec whose cache holds codes: AttentionQuantized.cpp.
mlir::func::FuncOp getOrEmitQuantizedAttention(mlir::ModuleOp module, const Description &kernel,
                                               const AttentionSpec &spec, const Target &target);
int64_t quantizedScratchBytes(const AttentionSpec &spec, const Target &target);

} // namespace easyquant::cpu

#endif // EASYQUANT_LIB_CODEGEN_CPU_ATTENTIONTILE_H
