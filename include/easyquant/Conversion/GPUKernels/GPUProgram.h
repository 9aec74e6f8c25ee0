//===- GPUProgram.h - A model as a list of launches -------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CONVERSION_GPUKERNELS_GPUPROGRAM_H
#define EASYQUANT_CONVERSION_GPUKERNELS_GPUPROGRAM_H

#include "easyquant/Codegen/GPU/Kernels.h"
#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Formats/LaunchList.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/BuiltinOps.h"

namespace easyquant {

struct GPUProgram {
  formats::LaunchList launches;
  equant::KVSchemeAttr kvScheme; ///< null: the cache is float
  bool rotatesKeys = false;      ///< as it reads them
};

/// The program of a model on weights materialized for GPUs, for calls of at most `maxRows` rows.
/// The kernels that it launches are added to `kernels`. An op without a GPU kernel is an error
/// naming the site.
mlir::FailureOr<GPUProgram> buildGPUProgram(mlir::ModuleOp model, const gpu::Chip &chip,
                                            int64_t maxRows, mlir::gpu::GPUModuleOp kernels);

} // namespace easyquant

#endif // EASYQUANT_CONVERSION_GPUKERNELS_GPUPROGRAM_H
