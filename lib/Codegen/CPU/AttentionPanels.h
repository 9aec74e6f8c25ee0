//===- AttentionPanels.h - A step's keys and values as f32 ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_CPU_ATTENTIONPANELS_H
#define EASYQUANT_LIB_CODEGEN_CPU_ATTENTIONPANELS_H

#include "AttentionCodes.h"

namespace easyquant::cpu {

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

} // namespace easyquant::cpu

#endif // EASYQUANT_LIB_CODEGEN_CPU_ATTENTIONPANELS_H
