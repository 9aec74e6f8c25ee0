//===- FoldScale.h - Factors on channels, folded into weights ---*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Equivalence transforms divide channel j of an activation by s_j and multiply column j of every
// weight that reads it by s_j. The division goes to constants of the op that makes the activation,
// where it costs nothing, or through that op to an activation before it. Ops say themselves which:
// lm::ScaleFoldableOpInterface.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_EQUANT_TRANSFORMS_FOLDSCALE_H
#define EASYQUANT_DIALECT_EQUANT_TRANSFORMS_FOLDSCALE_H

#include "easyquant/Dialect/Equant/IR/Equant.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/IR/BuiltinOps.h"

#include <string>

namespace easyquant::equant {

/// Attribute of the module: what equivalence transforms scaled, and what they had to skip.
inline constexpr llvm::StringLiteral kTransformsAttr = "equant.transforms";

/// All that reads one activation, experts through what gathers their rows, and where a division of
/// its channels can go.
struct FoldPoint {
  mlir::Value activation;
  llvm::SmallVector<QuantizableOpInterface> readers; ///< in program order
  /// The op whose constants take the division; null: none can, and `obstacle` says why.
  mlir::Operation *producer = nullptr;
  std::string obstacle; ///< "its input is made by lm.gelu, ..."

  /// Channels of the activation.
  int64_t columns() const;
  /// The sites of the readers.
  llvm::SmallVector<llvm::StringRef> sites() const;
};

/// Every activation of the module that a quantizable op reads, in program order.
llvm::SmallVector<FoldPoint> findFoldPoints(mlir::ModuleOp module);

/// Multiplies the columns of the readers' weights by `factor`, a vector of columns() elements, and
/// divides what the producer adds and multiplies by it: equant.scale on the loads that they have
/// now. `point` has a producer.
void foldScale(const FoldPoint &point, mlir::ml_program::GlobalOp factor);

/// Records in the module's `equant.transforms` that `method` scaled what these sites read, or, with
/// an obstacle, that it did not; `details` are kept with it.
void recordTransform(mlir::ModuleOp module, llvm::StringRef method, const FoldPoint &point,
                     mlir::NamedAttrList details = {});
/// Adds an entry to `equant.transforms`: a method, sites, and what it says of them.
void recordTransform(mlir::ModuleOp module, mlir::NamedAttrList entry);

} // namespace easyquant::equant

#endif // EASYQUANT_DIALECT_EQUANT_TRANSFORMS_FOLDSCALE_H
