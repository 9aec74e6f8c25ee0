//===- Gradients.h - Gradients of a layer -----------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_LM_TRANSFORMS_GRADIENTS_H
#define EASYQUANT_DIALECT_LM_TRANSFORMS_GRADIENTS_H

#include "easyquant/Dialect/LM/IR/LM.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace easyquant::lm {

/// On ops of a gradient function: their results are what the way back reads of the way forward,
/// besides the layer's input. Norms and activation functions are computed again.
inline constexpr llvm::StringLiteral kStoredAttr = "lm.stored";

/// A layer with its gradients.
struct GradientFunction {
  /// What the layer computes; takes one argument more, the gradient of the result, and returns the
  /// result and the gradients wanted. In no module.
  mlir::OwningOpRef<mlir::func::FuncOp> function;
  llvm::SmallVector<mlir::Value> wanted; ///< in it, what was wanted of the layer
};

/// Reverse-mode differentiation of `layer`, a function of one block and one result, by `wanted`,
/// its arguments or values in it. Fails with a diagnostic if an op on the way has no gradient,
/// several ops read a weight, or the result does not depend on a wanted value.
mlir::FailureOr<GradientFunction>
buildGradients(mlir::func::FuncOp layer, llvm::ArrayRef<mlir::Value> wanted, llvm::StringRef name);

} // namespace easyquant::lm

#endif // EASYQUANT_DIALECT_LM_TRANSFORMS_GRADIENTS_H
