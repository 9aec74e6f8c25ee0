//===- OpChecks.h - What verifiers share -------------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An op and the ops of its gradients take the same attributes. Private to lib/Dialect/LM/IR.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_DIALECT_LM_IR_OPCHECKS_H
#define EASYQUANT_LIB_DIALECT_LM_IR_OPCHECKS_H

#include "easyquant/Dialect/LM/IR/LM.h"

namespace easyquant::lm {

/// The first dimension of a matrix or vector.
inline int64_t extent(mlir::Value constant) {
  return mlir::cast<mlir::RankedTensorType>(constant.getType()).getDimSize(0);
}

/// A norm's epsilon must keep the square root real and the quotient finite.
mlir::LogicalResult verifyEpsilon(mlir::Operation *op, llvm::APFloat epsilon);
/// Rows of heads of as many columns as the weight has elements.
mlir::LogicalResult verifyNormWeight(mlir::Operation *op, mlir::Value input, mlir::Value weight,
                                     llvm::APFloat epsilon);
/// The same where the weight may be missing, and head_dim says how many then.
template <typename OpT> mlir::LogicalResult verifyHeadNorm(OpT op) {
  if (bool(op.getWeight()) == bool(op.getHeadDim()))
    return op.emitOpError("expected a weight or head_dim, and not both");
  if (op.getWeight())
    return verifyNormWeight(op, op.getInput(), op.getWeight(), op.getEpsilon());
  if (columns(op.getInput()) % op.columnsOfHead() != 0)
    return op.emitOpError("input has ") << columns(op.getInput()) << " columns, which are no heads "
                                        << "of head_dim " << op.columnsOfHead();
  return verifyEpsilon(op, op.getEpsilon());
}
/// Are the parts as wide together?
bool addUpTo(int64_t width, mlir::ValueRange parts);
/// Columns that are heads of `headDim`, and a table for them.
mlir::LogicalResult verifyRope(mlir::Operation *op, mlir::Value rows, mlir::Value table,
                               int64_t headDim);
/// Heads that fit the operands, a finite and positive scale, a bound that is such or 0.
mlir::LogicalResult verifyHeads(mlir::Operation *op, mlir::Value query, mlir::Value key,
                                int64_t heads, int64_t kvHeads, int64_t headDim, double scale,
                                double bound);
/// A positive number of f32.
mlir::LogicalResult verifyPositive(mlir::Operation *op, llvm::StringRef name, double value);

} // namespace easyquant::lm

#endif // EASYQUANT_LIB_DIALECT_LM_IR_OPCHECKS_H
