//===- Linear.cpp - Linears on integer activations ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LinearKernels.h"

#include "easyquant/Codegen/GPU/Emit.h"

namespace easyquant::gpu {

mlir::gpu::GPUFuncOp getOrEmitLinear(mlir::gpu::GPUModuleOp module, const LinearSpec &spec,
                                     const LinearKernel &kernel, const Chip &) {
  return getOrEmitKernel(module, kernel.description,
                         [&](KernelBuilder &b, const KernelArguments &arguments) {
                           if (kernel.form == LinearKernel::Matrix)
                             emitMatrixLinear(b, spec, kernel.tile, arguments);
                           else
                             emitDotLinear(b, spec, kernel.rows, arguments);
                         });
}

} // namespace easyquant::gpu
