//===- Emit.h - GPU kernels as IR -------------------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// getOrEmit*(module, spec, chip) returns the kernel of that spec (Kernels.h, WeightOnly.h) in the
// gpu.module, building it the first time it is asked for. Kernels are gpu, scf, arith, math,
// vector, llvm and nvvm IR.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CODEGEN_GPU_EMIT_H
#define EASYQUANT_CODEGEN_GPU_EMIT_H

#include "easyquant/Codegen/GPU/Attention.h"
#include "easyquant/Codegen/GPU/Embedding.h"
#include "easyquant/Codegen/GPU/Kernels.h"
#include "easyquant/Codegen/GPU/WeightOnly.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace easyquant::gpu {

/// The dialects that kernels are made of.
void registerKernelDialects(mlir::DialectRegistry &registry);

mlir::gpu::GPUFuncOp getOrEmitRowOp(mlir::gpu::GPUModuleOp module, const RowSpec &spec,
                                    const Chip &chip);
mlir::gpu::GPUFuncOp getOrEmitAdvance(mlir::gpu::GPUModuleOp module, const AdvanceSpec &spec,
                                      const Chip &chip);
mlir::gpu::GPUFuncOp getOrEmitLinear(mlir::gpu::GPUModuleOp module, const LinearSpec &spec,
                                     const LinearKernel &kernel, const Chip &chip);
mlir::gpu::GPUFuncOp getOrEmitLinear(mlir::gpu::GPUModuleOp module, const WeightOnlySpec &spec,
                                     const WeightOnlyKernel &kernel, const Chip &chip);
mlir::gpu::GPUFuncOp getOrEmitRescale(mlir::gpu::GPUModuleOp module, const RescaleSpec &spec,
                                      const Chip &chip);
mlir::gpu::GPUFuncOp getOrEmitEmbedding(mlir::gpu::GPUModuleOp module, const EmbeddingSpec &spec,
                                        const Chip &chip);
mlir::gpu::GPUFuncOp getOrEmitPositionEmbedding(mlir::gpu::GPUModuleOp module,
                                                const PositionEmbeddingSpec &spec,
                                                const Chip &chip);
mlir::gpu::GPUFuncOp getOrEmitGather(mlir::gpu::GPUModuleOp module, const GatherSpec &spec,
                                     const Chip &chip);
mlir::gpu::GPUFuncOp getOrEmitHeads(mlir::gpu::GPUModuleOp module, const HeadsSpec &spec,
                                    const Chip &chip);
/// All launches of `kernel`, in their order.
std::vector<mlir::gpu::GPUFuncOp> getOrEmitAttention(mlir::gpu::GPUModuleOp module,
                                                     const AttentionSpec &spec,
                                                     const AttentionKernel &kernel,
                                                     const Chip &chip);
mlir::gpu::GPUFuncOp getOrEmitRestore(mlir::gpu::GPUModuleOp module, const AttentionSpec &spec,
                                      const Chip &chip);

} // namespace easyquant::gpu

#endif // EASYQUANT_CODEGEN_GPU_EMIT_H
