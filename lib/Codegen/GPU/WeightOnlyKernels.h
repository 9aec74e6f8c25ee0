//===- WeightOnlyKernels.h - The forms of linears on floats -----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_WEIGHTONLYKERNELS_H
#define EASYQUANT_LIB_CODEGEN_GPU_WEIGHTONLYKERNELS_H

#include "KernelBuilder.h"

#include "easyquant/Codegen/GPU/WeightOnly.h"

namespace easyquant::gpu {

/// Bodies of WeightOnlyKernel::Stream and WeightOnlyKernel::Matrix.
void emitStreamLinear(KernelBuilder &b, const WeightOnlySpec &spec, const StreamShape &shape,
                      const KernelArguments &arguments);
void emitMatrixLinear(KernelBuilder &b, const WeightOnlySpec &spec, const GemmTile &tile,
                      const KernelArguments &arguments);

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_WEIGHTONLYKERNELS_H
