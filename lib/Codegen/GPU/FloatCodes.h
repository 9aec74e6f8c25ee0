//===- FloatCodes.h - Values of FP8 and FP4 ---------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What Numerics/Quantize.h defines for codes that are no integers, to the bit.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_FLOATCODES_H
#define EASYQUANT_LIB_CODEGEN_GPU_FLOATCODES_H

#include "KernelBuilder.h"

namespace easyquant::gpu {

/// The nearest value of a format, ties to even; what is too large becomes the largest.
mlir::Value roundTo(KernelBuilder &b, const numerics::FloatFormat &format, mlir::Value x);
/// The code of a value of f8E4M3FN, an f32, in the low byte of an i32; the rest is 0.
mlir::Value fp8CodeOf(KernelBuilder &b, mlir::Value value);
/// The code of a value of f4E2M1FN, an f32, in the low four bits of an i32; the rest is 0.
mlir::Value fp4CodeOf(KernelBuilder &b, mlir::Value value);
/// What a slice that counts as zero has (Numerics/Quantize.h), or else `scale`.
mlir::Value unlessZero(KernelBuilder &b, mlir::Value absMax, mlir::Value zero, mlir::Value scale);
/// The scale of a slice by its largest magnitude.
mlir::Value ownScale(KernelBuilder &b, const numerics::FloatFormat &format, mlir::Value absMax);

/// The scale of a group whose scales are f8E4M3FN in units of an outer one.
struct BlockScale {
  mlir::Value inner; ///< in these units, an f32 that is a value of the format
  mlir::Value whole; ///< inner times the unit, rounded
};
BlockScale blockScale(KernelBuilder &b, const numerics::FloatFormat &format, mlir::Value absMax,
                      mlir::Value outer);

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_FLOATCODES_H
