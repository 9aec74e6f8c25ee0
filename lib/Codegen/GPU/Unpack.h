//===- Unpack.h - Packed weights in registers -------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_UNPACK_H
#define EASYQUANT_LIB_CODEGEN_GPU_UNPACK_H

#include "KernelBuilder.h"

namespace easyquant::gpu {

/// A lane's four words of a block in the order Bytes (Numerics/FragmentPacking.h) as the B operands
/// of m16n8k32, two registers for each tile of eight rows, in order: signed bytes, 2^(8 - bits)
/// times the codes.
llvm::SmallVector<std::array<mlir::Value, 2>> unpackBytes(KernelBuilder &b, int bits,
                                                          llvm::ArrayRef<mlir::Value> words);

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_UNPACK_H
