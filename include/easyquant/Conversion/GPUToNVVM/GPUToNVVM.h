//===- GPUToNVVM.h - GPU kernels to machine code ---------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CONVERSION_GPUTONVVM_GPUTONVVM_H
#define EASYQUANT_CONVERSION_GPUTONVVM_GPUTONVVM_H

#include "mlir/Pass/Pass.h"

namespace easyquant {

/// On a module: what the manifest says of its program for GPUs, a formats::Manifest::Gpu.
inline constexpr llvm::StringLiteral kGPUProgramAttr = "equant.gpu_program";

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "easyquant/Conversion/GPUToNVVM/Passes.h.inc"

} // namespace easyquant

#endif // EASYQUANT_CONVERSION_GPUTONVVM_GPUTONVVM_H
