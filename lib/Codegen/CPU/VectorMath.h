//===- VectorMath.h - Elementary functions as vector IR ---------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Elementary functions of f32 vectors of any length, built inline out of multiplications, FMAs and
// integer arithmetic on the exponent: no table, no branch, no call, no undefined behaviour on any
// input. The bounds are tested in test/Codegen/CPU/VectorMathTest.cpp; ulp(y) is that of the
// result.
//
// Exponentials flush results below 2^-126 to zero, so that no denormal slows down what follows.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_CPU_VECTORMATH_H
#define EASYQUANT_LIB_CODEGEN_CPU_VECTORMATH_H

#include "KernelBuilder.h"

namespace easyquant::cpu {

/// e^x, within 1 ulp; +inf above ln(FLT_MAX).
mlir::Value exp(KernelBuilder &b, mlir::Value x);

/// 2^x for x <= 0 (-inf included), within 1 ulp: the exponential of softmax.
mlir::Value exp2NonPositive(KernelBuilder &b, mlir::Value x);

/// 1 / (1 + e^-x), within 3 ulp.
mlir::Value logistic(KernelBuilder &b, mlir::Value x);

/// log(1 + x) for x in [0, 1], within 3 ulp.
mlir::Value log1p(KernelBuilder &b, mlir::Value x);

/// bound * tanh(x / bound), within 2^-20 of it.
mlir::Value softCap(KernelBuilder &b, mlir::Value x, double bound);

/// The distribution function of the standard normal, (1 + erf(x / sqrt(2))) / 2; its relative error
/// is at most 2^-20 + x^2 2^-23.
mlir::Value normalCdf(KernelBuilder &b, mlir::Value x);

} // namespace easyquant::cpu

#endif // EASYQUANT_LIB_CODEGEN_CPU_VECTORMATH_H
