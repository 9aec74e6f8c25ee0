//===- ScalarMath.h - Elementary functions on f32 ---------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_SCALARMATH_H
#define EASYQUANT_LIB_CODEGEN_GPU_SCALARMATH_H

#include "KernelBuilder.h"

namespace easyquant::gpu {

/// e^x, relative error below 2^-21 + |x| 2^-23; 0 and infinity beyond the range.
mlir::Value exp(KernelBuilder &b, mlir::Value x);
/// 1 / (1 + e^-x).
mlir::Value logistic(KernelBuilder &b, mlir::Value x);
/// The same with the bits of kernels for CPUs (Codegen/CPU/VectorMath.h), where what follows is a
/// choice: within 3 ulp.
mlir::Value logisticOfCPUs(KernelBuilder &b, mlir::Value x);
/// e^x, x <= 0, to an ulp; NaN stays NaN.
mlir::Value preciseExp(KernelBuilder &b, mlir::Value x);
/// The gate and up of gpt-oss: g / (1 + e^(-1.702 g)) * (u + 1), g being the gate up to 7, u being
/// up between -7 and 7 (kGateClamp, kGateSlope).
mlir::Value clampedGate(KernelBuilder &b, mlir::Value gate, mlir::Value up);
/// bound * tanh(x / bound)
mlir::Value softCap(KernelBuilder &b, mlir::Value x, double bound);
/// The distribution function of the standard normal distribution.
mlir::Value normalCdf(KernelBuilder &b, mlir::Value x);

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_SCALARMATH_H
