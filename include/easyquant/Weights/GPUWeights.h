//===- GPUWeights.h - Where a GPU's weights lie -----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What equant-materialize-weights says of a global whose bytes are in the weights for GPUs, too.
// The type of the global is the CPU's; what a GPU reads is laid out as its kernels want it
// (easyquant/Numerics/FragmentPacking.h).
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_WEIGHTS_GPUWEIGHTS_H
#define EASYQUANT_WEIGHTS_GPUWEIGHTS_H

#include "llvm/ADT/StringRef.h"

namespace easyquant::equant {

/// First byte in the data sections of the weights for GPUs.
inline constexpr llvm::StringLiteral kGPUOffsetAttr = "equant.gpu_offset";
/// Of packed codes: "bytes" or "halves", the order of their fragments.
inline constexpr llvm::StringLiteral kGPUOrderAttr = "equant.gpu_order";
/// Of a float weight that linears read: where it lies as fragments of bf16, which an embedding tied
/// to it reads as well. What else reads it finds it in f32 at kGPUOffsetAttr.
inline constexpr llvm::StringLiteral kGPUHalvesAttr = "equant.gpu_halves_offset";
/// On the module: how many bytes all sections have.
inline constexpr llvm::StringLiteral kGPUBytesAttr = "equant.gpu_bytes";

} // namespace easyquant::equant

#endif // EASYQUANT_WEIGHTS_GPUWEIGHTS_H
