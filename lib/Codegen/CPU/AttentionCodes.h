//===- AttentionCodes.h - Queries against a cache of codes ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step's keys and values come to the float tile in one of two ways.
//
// Panels: keys (transposed in blocks of 16, rotated where they are kept before their rotation) and
// values are written as f32 into scratch. Many queries read them there: what dequantizing costs is
// shared. Float rows, of the window and of the call itself, always come this way.
//
// In registers, for one token's queries: slices are applied to what the codes are multiplied with.
// With K^ = m + s q per channel and V^ = m + s q per token,
//
//   S[t] = <q, m> + sum_d (q_d s_d) q[d, t]         O[d] = sum_t p_t m_t + sum_t (p_t s_t) q[t, d]
//
// and a code k fields up in its word is not shifted down: it counts 2^(bits k) times as much, and
// the scale so much less.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_CPU_ATTENTIONCODES_H
#define EASYQUANT_LIB_CODEGEN_CPU_ATTENTIONCODES_H

#include "AttentionCache.h"
#include "AttentionTile.h"

namespace easyquant::cpu {

/// A tile against codes, and its places in the scratch of a thread.
struct CodesTile {
  CodesTile(const AttentionSpec &spec, const Target &target, int64_t tokens);

  CacheLayout layout;
  AttentionTile tile;
  int64_t paddedColumns; ///< dimensions that a key's words have fields for
  int64_t codeVectors;   ///< vectors of tokens or dimensions in a register block on codes

  // In bytes from a thread's offset.
  int64_t keyPanel, valuePanel, scaledQueries, weights, bias;
  int64_t bytes; ///< all of it, a multiple of 64

  /// Are keys read in registers?
  bool directKeys() const {
    return tile.tokens == 1 && !layout.kv.keysPerToken && layout.kv.ropePositions == 0;
  }
};

/// Fills the panels of a thread: keys, kStep tokens in blocks of 16 x columns transposed; values,
/// kStep rows. What lies behind the step's tokens is undefined.
class PanelEmitter {
public:
  PanelEmitter(KernelBuilder &b, const CodesTile &tile, CacheViews &cache, mlir::Value kvHead,
               mlir::Value scratch, mlir::Value offset);

  /// Eight elements of row t of the step, from dimension dim on.
  using LoadRow = llvm::function_ref<mlir::Value(mlir::Value t, mlir::Value dim)>;
  void emitKeyRows(mlir::Value count, LoadRow load);
  void emitValueRows(Index begin, mlir::Value count, LoadRow load);
  /// Keys, respectively values, number i .. of the codes, of one page.
  void emitKeyCodes(CodesPage &page, mlir::Value i, mlir::Value count);
  void emitValueCodes(CodesPage &page, mlir::Value i, mlir::Value count);
  /// Brings keys to the basis in which the scheme keeps them, and to the cache's type.
  void emitKeyBasis(mlir::Value count);
  /// Rotates keys, the first of which is token `token`.
  void emitRope(mlir::Value table, mlir::Value token, mlir::Value count);

  mlir::Value keys, values;

private:
  void emitKeyWord(CodesPage &page, mlir::Value i, mlir::Value block, mlir::Value word,
                   int64_t fields);
  mlir::Value keyAt(mlir::Value t, Index dim);
  mlir::Value broadcastSlice(mlir::Value at, int64_t lanes);

  KernelBuilder &b;
  const CodesTile &tile;
  CacheViews &cache;
  mlir::Value kvHead;
  int64_t columns;
};

// What the functions that are called below take first:
//   q, k, v, CachePlace, table (absent without rotation), position, scratch, offset (of the tile),
//   panels (offset of the thread's), first, head

/// Calls start(...): the queries, and nothing seen.
void emitStartTile(KernelBuilder &b, mlir::ModuleOp module, const CodesTile &tile,
                   mlir::ValueRange operands);
/// Calls rows(..., begin, end): the tokens [begin, end), which lie in consecutive float rows of the
/// cache, or (`ofCall`) in k and v.
void emitAttendRows(KernelBuilder &b, mlir::ModuleOp module, const CodesTile &tile, bool ofCall,
                    mlir::ValueRange operands);
/// Calls codes(..., begin, end): the keys number [begin, end) of the codes, and the values of the
/// same tokens, be they codes or still in the window. begin is a multiple of AttentionTile::kStep.
void emitAttendCodes(KernelBuilder &b, mlir::ModuleOp module, const CodesTile &tile,
                     mlir::ValueRange operands);

} // namespace easyquant::cpu

#endif // EASYQUANT_LIB_CODEGEN_CPU_ATTENTIONCODES_H
