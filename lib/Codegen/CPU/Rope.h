//===- Rope.h - Rotation of a row's heads -----------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_CPU_ROPE_H
#define EASYQUANT_LIB_CODEGEN_CPU_ROPE_H

#include "KernelBuilder.h"

namespace easyquant::cpu {

/// Rotates one row of x in place, by the angles that the table has for `position`.
void emitRotation(KernelBuilder &b, const RopeSpec &spec, mlir::Value x, mlir::Value table,
                  mlir::Value row, mlir::Value position);
/// memref<positions x D/2 x 2 x f32>, of (cos, sin).
mlir::Type rotationTable(mlir::Builder &b, int64_t positions, int64_t headDim);

} // namespace easyquant::cpu

#endif // EASYQUANT_LIB_CODEGEN_CPU_ROPE_H
