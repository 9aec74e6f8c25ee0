//===- Instructions.h - Machine instructions of a processor -----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What KernelBuilder's machine instructions are on each processor; its comments say what they mean.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_CPU_INSTRUCTIONS_H
#define EASYQUANT_LIB_CODEGEN_CPU_INSTRUCTIONS_H

#include "KernelBuilder.h"

namespace easyquant::cpu::x86 {
mlir::Value dotU8S8(KernelBuilder &b, mlir::Value acc, mlir::Value u8, mlir::Value s8);
mlir::Value dotPairs(KernelBuilder &b, mlir::Value a, mlir::Value c);
mlir::Value lookup(KernelBuilder &b, mlir::Value table, mlir::Value index);
mlir::Value lookupBytes(KernelBuilder &b, mlir::Value table, mlir::Value index);
} // namespace easyquant::cpu::x86

namespace easyquant::cpu::arm {
mlir::Value dotS8S8(KernelBuilder &b, mlir::Value acc, mlir::Value a, mlir::Value c);
/// smmla: acc, 8 lanes of i32, has of outputs 0 and 1 two of row 0, then of row 1, and the same of
/// outputs 2 and 3; to these it adds the products of eight columns of both rows (16 bytes) with
/// those of the four outputs (32 bytes).
mlir::Value dotMatrix(KernelBuilder &b, mlir::Value acc, mlir::Value rows, mlir::Value outputs);
mlir::Value dotPairs(KernelBuilder &b, mlir::Value a, mlir::Value c);
mlir::Value lookup(KernelBuilder &b, mlir::Value table, mlir::Value index);
mlir::Value lookupBytes(KernelBuilder &b, mlir::Value table, mlir::Value index);
} // namespace easyquant::cpu::arm

#endif // EASYQUANT_LIB_CODEGEN_CPU_INSTRUCTIONS_H
