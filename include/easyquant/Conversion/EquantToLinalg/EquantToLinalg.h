//===- EquantToLinalg.h - Models to upstream ops ----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CONVERSION_EQUANTTOLINALG_EQUANTTOLINALG_H
#define EASYQUANT_CONVERSION_EQUANTTOLINALG_EQUANTTOLINALG_H

#include "easyquant/Support/Real.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace easyquant {

/// Attribute of a global of a plain weight: the names of its parts in the weights file, in the
/// order of its type.
inline constexpr llvm::StringLiteral kTensorsAttr = "equant.tensors";
/// Attribute of an argument: the tensor of the weights file that it stands for.
inline constexpr llvm::StringLiteral kTensorAttr = "equant.tensor";

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "easyquant/Conversion/EquantToLinalg/Passes.h.inc"

/// Gives matmul, batch_matmul, contract and convolutions of linalg their QuantizableOpInterface.
void registerLinalgModels(mlir::DialectRegistry &registry);

/// Takes what `lm` and `equant` say of a module away: other compilers do not know these dialects.
void dropModelAttributes(mlir::ModuleOp module);

/// From a quantized model to upstream ops on weights that are `weights`: "arguments", "constants"
/// or "iree". `output` is the folder of the weights file.
void buildLinalgPipeline(mlir::OpPassManager &pm, llvm::StringRef output, llvm::StringRef weights);

} // namespace easyquant

#endif // EASYQUANT_CONVERSION_EQUANTTOLINALG_EQUANTTOLINALG_H
