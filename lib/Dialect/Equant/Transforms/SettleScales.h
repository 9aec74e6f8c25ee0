//===- SettleScales.h - Types of scales by the weights ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Private to the passes.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_DIALECT_EQUANT_TRANSFORMS_SETTLESCALES_H
#define EASYQUANT_LIB_DIALECT_EQUANT_TRANSFORMS_SETTLESCALES_H

#include "easyquant/Dialect/Equant/IR/Equant.h"

#include "mlir/IR/BuiltinOps.h"

namespace easyquant::equant {

/// Gives sites that are planned to have scales of f16 by default scales of f32 where f16 does not
/// hold those of the rule with all their bits, with a remark that says so. Reads the weights of
/// these sites, as transforms have left them; does nothing in a module that names no model. Fails
/// with a diagnostic where a weight cannot be read.
mlir::LogicalResult settleScales(mlir::ModuleOp module, llvm::ArrayRef<QuantizableOpInterface> ops,
                                 llvm::ArrayRef<lm::EmbeddingOp> embeddings);

} // namespace easyquant::equant

#endif // EASYQUANT_LIB_DIALECT_EQUANT_TRANSFORMS_SETTLESCALES_H
