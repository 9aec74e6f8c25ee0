//===- Limits.h - What sizes the dialects take ------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The verifiers of `lm` and `equant` refuse what is larger, so that no product of two sizes of an
// op overflows and nobody allocates by a number that was not checked. Models are far below.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_LM_IR_LIMITS_H
#define EASYQUANT_DIALECT_LM_IR_LIMITS_H

#include "easyquant/Numerics/Rope.h"

#include "mlir/IR/OpDefinition.h"

namespace easyquant::lm {

/// The largest dimension of a tensor, and most columns of all heads together.
inline constexpr int64_t kMaxExtent = (int64_t(1) << 31) - 1;
/// Most elements of a tensor of static shape: four terabytes of codes.
inline constexpr int64_t kMaxElements = int64_t(1) << 42;
/// Most experts that rows are routed to.
inline constexpr int64_t kMaxExperts = 4096;
/// Most layers of a KV cache.
inline constexpr int64_t kMaxLayers = 4096;
/// Most sites of the state of a sequence, and most numbers of each.
inline constexpr int64_t kMaxStateSites = int64_t(1) << 16;
inline constexpr int64_t kMaxStateFields = 1024;
/// Most numbers of a sequence's recurrent state, and most weights of a column of a convolution.
inline constexpr int64_t kMaxRecurrentValues = int64_t(1) << 32;
inline constexpr int64_t kMaxConvolution = 64;
using numerics::kMaxHeadDim;

/// Fails with a diagnostic that names type and limit if a tensor among operands and results is
/// larger; and if the op is in no function, where a value might be made from itself.
mlir::LogicalResult verifyModelOp(mlir::Operation *op);

} // namespace easyquant::lm

namespace mlir::OpTrait {

/// An op of a model: in a function, its tensors within the limits.
template <typename ConcreteType> class ModelOp : public TraitBase<ConcreteType, ModelOp> {
public:
  static LogicalResult verifyTrait(Operation *op) { return easyquant::lm::verifyModelOp(op); }
};

} // namespace mlir::OpTrait

#endif // EASYQUANT_DIALECT_LM_IR_LIMITS_H
