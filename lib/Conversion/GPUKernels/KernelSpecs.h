//===- KernelSpecs.h - The kernels of ops -----------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CONVERSION_GPUKERNELS_KERNELSPECS_H
#define EASYQUANT_LIB_CONVERSION_GPUKERNELS_KERNELSPECS_H

#include "easyquant/Codegen/GPU/Attention.h"
#include "easyquant/Codegen/GPU/Embedding.h"
#include "easyquant/Codegen/GPU/Kernels.h"
#include "easyquant/Codegen/GPU/WeightOnly.h"
#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Dialect/LM/IR/LM.h"

#include <optional>

namespace easyquant {

/// Float activations of linears on a GPU: as wide a range as f32.
inline constexpr gpu::Float kHalves = gpu::Float::BF16;

/// Columns of an activation or a table.
int64_t columnsOf(mlir::Value matrix);

/// The linear on int8 activations that there are kernels for, if `op` is one.
std::optional<gpu::LinearSpec> linearSpec(equant::LinearOp op);

/// The linear on float activations that there are kernels for, if `op` is one: weight-only, or of
/// an lm.linear, whose weights are kHalves too.
std::optional<gpu::WeightOnlySpec> weightOnlySpec(mlir::Operation *op);

/// The row operation that `op` is, without what follows it, if it is one.
std::optional<gpu::RowSpec> rowSpec(mlir::Operation *op);

/// Of an lm.attention or equant.attention.
gpu::AttentionSpec gpuAttentionSpec(mlir::Operation *attention);

/// Rotation and norm of heads.
gpu::HeadsSpec headsSpec(lm::RopeOp op);
gpu::HeadsSpec headsSpec(lm::HeadRmsNormOp op);

} // namespace easyquant

#endif // EASYQUANT_LIB_CONVERSION_GPUKERNELS_KERNELSPECS_H
