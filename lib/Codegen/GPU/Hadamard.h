//===- Hadamard.h - Columns in a rotated basis ------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_HADAMARD_H
#define EASYQUANT_LIB_CODEGEN_GPU_HADAMARD_H

#include "KernelBuilder.h"

namespace easyquant::gpu {

/// The stages of Numerics/Hadamard.h, to the bit, on columns that a warp has in registers. Lanes
/// are taken `lanes` together (a power of two), and lane l of them has vectors of W values: element
/// i of vector v is column (v * lanes + l) * W + i. Blocks of `block` columns are whole within the
/// vectors, or several of them lie in one vector of all lanes.
void emitHadamard(KernelBuilder &b, mlir::MutableArrayRef<KernelBuilder::Values> vectors,
                  mlir::Value lane, int64_t lanes, int64_t block);

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_HADAMARD_H
