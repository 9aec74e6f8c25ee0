//===- ImportModel.h - Models on disk to lm IR ----------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_IMPORT_IMPORTMODEL_H
#define EASYQUANT_IMPORT_IMPORTMODEL_H

#include "easyquant/Formats/ModelSource.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace easyquant {

/// The global of the rotation table, which is computed rather than read.
constexpr llvm::StringLiteral kRopeTableName = "rope.cos_sin";
/// The table of layers with a window, where they have one of their own.
constexpr llvm::StringLiteral kWindowedRopeTableName = "rope.windowed.cos_sin";
/// The table of queries, where they have another than keys.
constexpr llvm::StringLiteral kQueryRopeTableName = "rope.queries.cos_sin";

/// Writes the model as `lm` IR, by the conventions of docs/Architecture.md. No weight is read: the
/// globals name them, and `lm.source` is the source's path. Same source, same IR.
///
///   @forward(%tokens, %batch, %rows, %cache)
///     lm.embedding, [lm.position_embedding], call @layer_0 .. @layer_{L-1},
///     lm.rows at %rows, the final norm, lm.linear of site "lm_head"
///   @layer_i(%x, %batch, %cache): one transformer block
///
/// With `drafts`, if the source has a head that drafts: @forward also returns what the final norm
/// gives, its hidden states, and
///
///   @draft(%tokens, %hidden, %batch, %rows, %cache): the head, for tokens and the hidden states of
///     those before them; logits at %rows, and hidden states that take the place of the model's
///   @layer_L, its layer
///
/// If it has an assistant, @draft is that, and has no keys and values: each of its rows reads what
/// the cache has before the row's position, and `lm.assistant` is the assistant's path. @layer_L
/// and what follows are its layers, %x, %batch and %cache their arguments.
///
/// A tied head reads the embedding's global. Tables of positions are for `longestContext` tokens;
/// 0: for the context of the model. Null after a diagnostic that names the source, where the
/// dialect cannot take the model or the model such a context.
mlir::OwningOpRef<mlir::ModuleOp> importModel(mlir::MLIRContext &context,
                                              const formats::ModelSource &source,
                                              int64_t longestContext = 0, bool drafts = false);

} // namespace easyquant

#endif // EASYQUANT_IMPORT_IMPORTMODEL_H
