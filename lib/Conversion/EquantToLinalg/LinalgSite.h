//===- LinalgSite.h - Ops of linalg as linears ------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A contraction or a convolution multiplies rows of activations with a weight, whatever the order
// of their dimensions. Its indexing maps say which of its loops are what:
//
//   batch    index both operands and the result: linears side by side, each with rows of the
//            weight, and the channels of depthwise convolutions
//   rows     index the result and not the weight: tokens, images, places in them
//   outputs  index the weight and the result: output features
//   inputs   are summed over: input features, and the window of a convolution
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CONVERSION_EQUANTTOLINALG_LINALGSITE_H
#define EASYQUANT_LIB_CONVERSION_EQUANTTOLINALG_LINALGSITE_H

#include "TensorBuilder.h"

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Support/Result.h"

namespace easyquant {

class LinalgSite {
public:
  /// Unsupported, with the reason, for an op that is no linear with a constant weight.
  static Result<LinalgSite> match(mlir::linalg::LinalgOp op);
  /// The same whatever its weight is: does an operand have this as its weight?
  static bool hasConstant(mlir::linalg::LinalgOp op);

  mlir::OpOperand &weight() { return op->getOpOperand(weightIndex); }
  mlir::OpOperand &activation() { return op->getOpOperand(1 - weightIndex); }
  /// N, of all batches, and K.
  equant::Features features() { return {product(batch) * product(outputs), product(inputs)}; }

  /// The weight as N rows of K columns.
  mlir::Value buildRows(mlir::OpBuilder &builder);
  /// What replaces the result.
  mlir::Value buildQuantized(mlir::OpBuilder &builder, mlir::Value weight,
                             const equant::QuantizedInput &input);

private:
  LinalgSite(mlir::linalg::LinalgOp op, unsigned weightIndex) : op(op), weightIndex(weightIndex) {}

  Result<void> sortLoops();
  int64_t extentOf(int64_t loop);
  int64_t product(const Dims &loops);
  /// Loops of the weight in the order of its rows: batch, outputs, inputs.
  Dims weightLoops();
  mlir::AffineMap mapOf(mlir::OpOperand &operand) { return op.getMatchingIndexingMap(&operand); }
  mlir::OpOperand &init() { return op->getOpOperand(2); }
  bool isConvolution() { return !mapOf(activation()).isProjectedPermutation(); }

  mlir::Value buildOnFloats(TensorBuilder &b, mlir::Value weight);
  mlir::Value buildOnCodes(TensorBuilder &b, mlir::Value weight,
                           const equant::QuantizedInput &input);
  mlir::Value gatherRows(TensorBuilder &b, mlir::Value x, mlir::AffineMap map,
                         const Sizes &rowSizes);
  mlir::Value scatterRows(TensorBuilder &b, mlir::Value y, const Sizes &rowSizes);
  mlir::Value addToInit(TensorBuilder &b, mlir::Value y, mlir::Value init, const Dims &loops);

  mlir::linalg::LinalgOp op;
  unsigned weightIndex;
  Dims batch, rows, outputs, inputs; ///< loops
};

} // namespace easyquant

#endif // EASYQUANT_LIB_CONVERSION_EQUANTTOLINALG_LINALGSITE_H
