//===- EmitPTX.h - Kernels to PTX -------------------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_EMIT_EMITPTX_H
#define EASYQUANT_EMIT_EMITPTX_H

#include "easyquant/Codegen/GPU/Chip.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Pass/PassManager.h"

#include <string>

namespace easyquant::gpu {

/// Says that the kernels are for that chip: #nvvm.target<chip = ...>.
void setTarget(mlir::gpu::GPUModuleOp kernels, const Chip &chip);
/// gpu, scf, arith, math and vector of every gpu.module of a module to the LLVM and NVVM dialects,
/// for the chip that its target names.
void buildLowerToNVVMPipeline(mlir::OpPassManager &pm);

/// Makes the dialect translations that emitPTX needs known to the context.
void registerTranslations(mlir::DialectRegistry &registry);

/// Kernels in the NVVM dialect as PTX text for `chip`. What goes wrong is a diagnostic at the
/// module.
mlir::FailureOr<std::string> emitPTX(mlir::gpu::GPUModuleOp module, const Chip &chip);

} // namespace easyquant::gpu

#endif // EASYQUANT_EMIT_EMITPTX_H
