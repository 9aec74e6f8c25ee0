//===- ShardDegrees.h - What ranks can share ---------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How the linears of a model are cut, and by how many ranks. Private to the passes.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_DIALECT_EQUANT_TRANSFORMS_SHARDDEGREES_H
#define EASYQUANT_LIB_DIALECT_EQUANT_TRANSFORMS_SHARDDEGREES_H

#include "easyquant/Dialect/Equant/IR/Equant.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace easyquant::equant {

enum class Split {
  None,
  Columns,    ///< output features; results are a rank's own
  Rows,       ///< input features; results of the ranks are added, of experts behind lm.combine
  Vocabulary, ///< output features; results of the ranks are gathered
};

/// Widths of columns that lie side by side, of each of which a rank has its share: queries, keys
/// and values of one linear; heads that come in turns.
using ColumnParts = llvm::SmallVector<int64_t, 3>;

/// How ranks share a module.
struct Sharing {
  llvm::DenseMap<mlir::Operation *, Split> linears;
  llvm::DenseSet<mlir::Value> sharded;            ///< columns of these are a rank's own
  llvm::DenseMap<mlir::Value, ColumnParts> parts; ///< of activations that have several

  ColumnParts partsOf(mlir::Value activation) const;
};

/// Is what the linear of experts gives a term of lm.combine, behind which the terms of ranks are
/// added?
bool isSummedLater(mlir::Operation *linear);

/// How `degree` ranks share the module. Fails with a diagnostic that names the site and the legal
/// degrees where they cannot.
mlir::FailureOr<Sharing> checkDegree(mlir::ModuleOp module, int64_t degree);

/// Does column c of the result follow from column c of each operand that has as many alone, or from
/// those of its head? Ranks compute such an op on their columns.
bool isByColumn(mlir::Operation *op);

} // namespace easyquant::equant

#endif // EASYQUANT_LIB_DIALECT_EQUANT_TRANSFORMS_SHARDDEGREES_H
