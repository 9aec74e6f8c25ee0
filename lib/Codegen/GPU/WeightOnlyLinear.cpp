//===- WeightOnlyLinear.cpp - Linears on float activations ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "WeightOnlyKernels.h"

#include "easyquant/Codegen/GPU/Emit.h"

namespace easyquant::gpu {

mlir::gpu::GPUFuncOp getOrEmitLinear(mlir::gpu::GPUModuleOp module, const WeightOnlySpec &spec,
                                     const WeightOnlyKernel &kernel, const Chip &) {
  return getOrEmitKernel(module, kernel.description,
                         [&](KernelBuilder &b, const KernelArguments &arguments) {
                           if (kernel.form == WeightOnlyKernel::Matrix)
                             emitMatrixLinear(b, spec, kernel.tile, arguments);
                           else
                             emitStreamLinear(b, spec, kernel.stream, arguments);
                         });
}

} // namespace easyquant::gpu
