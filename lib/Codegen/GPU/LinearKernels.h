//===- LinearKernels.h - The forms of linears -------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_LINEARKERNELS_H
#define EASYQUANT_LIB_CODEGEN_GPU_LINEARKERNELS_H

#include "KernelBuilder.h"

#include "easyquant/Codegen/GPU/WeightOnly.h"

namespace easyquant::gpu {

/// Bodies of LinearKernel::Matrix and LinearKernel::Dot.
void emitMatrixLinear(KernelBuilder &b, const LinearSpec &spec, const LinearKernel &kernel,
                      const KernelArguments &arguments);
void emitDotLinear(KernelBuilder &b, const LinearSpec &spec, const LinearKernel &kernel,
                   const KernelArguments &arguments);

/// Bodies of WeightOnlyKernel::Stream and WeightOnlyKernel::Matrix.
void emitStreamLinear(KernelBuilder &b, const WeightOnlySpec &spec, const StreamShape &shape,
                      const KernelArguments &arguments, mlir::ValueRange firstWeights);
/// The weights that a warp of such a kernel begins with.
KernelBuilder::Values loadFirstWeights(KernelBuilder &b, const WeightOnlySpec &spec,
                                       const StreamShape &shape, const KernelArguments &arguments);
void emitMatrixLinear(KernelBuilder &b, const WeightOnlySpec &spec, const GemmTile &tile,
                      const KernelArguments &arguments);

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_LINEARKERNELS_H
