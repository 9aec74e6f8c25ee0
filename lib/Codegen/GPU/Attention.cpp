//===- Attention.cpp - The launches of attention --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionBlock.h"

#include "easyquant/Codegen/GPU/Emit.h"

using namespace mlir;

namespace easyquant::gpu {

/// A launch is what its name begins with.
static void emitLaunch(KernelBuilder &b, const AttentionSpec &spec, const AttentionKernel &kernel,
                       StringRef name, const KernelArguments &arguments) {
  if (name.starts_with("kv_append_") || name.starts_with("kv_window_"))
    return emitAppend(b, spec, arguments);
  if (name.starts_with("kv_quantize_"))
    return emitQuantize(b, spec, arguments);
  if (name.starts_with("attention_combine_"))
    return emitCombine(b, spec, kernel.splits, arguments);
  if (kernel.tile.matrix)
    return emitMatrixAttention(b, spec, kernel, arguments);
  emitScalarAttention(b, spec, kernel, arguments);
}

std::vector<mlir::gpu::GPUFuncOp> getOrEmitAttention(mlir::gpu::GPUModuleOp module,
                                                     const AttentionSpec &spec,
                                                     const AttentionKernel &kernel, const Chip &) {
  std::vector<mlir::gpu::GPUFuncOp> functions;
  for (const Description &launch : kernel.launches)
    functions.push_back(
        getOrEmitKernel(module, launch, [&](KernelBuilder &b, const KernelArguments &arguments) {
          emitLaunch(b, spec, kernel, launch.name, arguments);
        }));
  return functions;
}

mlir::gpu::GPUFuncOp getOrEmitRestore(mlir::gpu::GPUModuleOp module, const AttentionSpec &spec,
                                      const Chip &chip) {
  return getOrEmitKernel(
      module, describeRestore(spec, chip),
      [&](KernelBuilder &b, const KernelArguments &arguments) { emitRestore(b, spec, arguments); });
}

} // namespace easyquant::gpu
