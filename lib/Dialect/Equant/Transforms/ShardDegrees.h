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

/// What is cut of a model.
struct Sharing {
  llvm::DenseMap<mlir::Operation *, Split> linears;
  llvm::DenseSet<mlir::Value> apart; ///< columns of these activations are a rank's own
};

/// Is what the linear of experts gives a term of lm.combine, behind which the terms of ranks are
/// added?
bool isSummedLater(mlir::Operation *linear);

/// How `degree` ranks share the model. Fails with a diagnostic that names the site and the legal
/// degrees where they cannot.
mlir::FailureOr<Sharing> checkDegree(mlir::ModuleOp module, int64_t degree);

} // namespace easyquant::equant

#endif // EASYQUANT_LIB_DIALECT_EQUANT_TRANSFORMS_SHARDDEGREES_H
