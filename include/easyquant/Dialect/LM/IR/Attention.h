//===- Attention.h - What every attention must be ---------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_LM_IR_ATTENTION_H
#define EASYQUANT_DIALECT_LM_IR_ATTENTION_H

#include "easyquant/Dialect/LM/IR/LM.h"

namespace easyquant::lm {

/// Heads that fit the operands, a layer that is in the cache with all that the window reads, a
/// finite and positive scale, a bound that is such or 0, a sink's logit for each head, if there are
/// any.
mlir::LogicalResult verifyAttention(mlir::Operation *op, mlir::Value query, mlir::Value key,
                                    KVCacheType cache, int64_t layer, int64_t heads,
                                    int64_t kvHeads, int64_t headDim, double scale, double bound,
                                    int64_t window, mlir::Value sinkLogits);
/// A rotation table of no more dimensions than a head has.
mlir::LogicalResult verifyRotationTable(mlir::Operation *op, mlir::Value rotation, int64_t headDim);
/// Verifies an op with the operands and attributes of AttentionOp.
template <typename AttentionLike> mlir::LogicalResult verifyAttention(AttentionLike op) {
  return verifyAttention(op, op.getQuery(), op.getKey(), op.getCache().getType(), op.getLayer(),
                         op.getNumHeads(), op.getNumKvHeads(), op.getHeadDim(),
                         op.getScale().convertToDouble(), op.getBound().convertToDouble(),
                         op.getWindow(), op.getSinkLogits());
}

} // namespace easyquant::lm

#endif // EASYQUANT_DIALECT_LM_IR_ATTENTION_H
