//===- WeightParams.h - Scales and zero points in registers -----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_CPU_WEIGHTPARAMS_H
#define EASYQUANT_LIB_CODEGEN_CPU_WEIGHTPARAMS_H

#include "KernelBuilder.h"

namespace easyquant::cpu {

/// N x K weights as kernels take them: w, then what its codes stand for.
struct WeightOperand {
  WeightFormat format;
  WeightNumbers numbers;
  int64_t n, k, groupSize;
  bool zeroPoints = false;
  bool scales = true; ///< false: another kernel scales the products
};
/// w, and of packed weights wscales, wzeros, wminima, wouter and codebook, as far as there are any.
void readWeight(Describer &d, const WeightOperand &weight);
/// wscales and wouter of rows that have a scale each.
void readRowScales(Describer &d, const WeightNumbers &numbers, int64_t n);

/// The values of a table as a vector.
mlir::Value loadCodebook(KernelBuilder &b, WeightFormat format, mlir::Value codebook);

/// The same table, of int8 values, as 16 bytes, a shorter one again and again; and the unit of
/// these, an f32 (numerics::Codebook::int8Unit).
struct Int8Codebook {
  mlir::Value bytes, unit;
};
Int8Codebook loadInt8Codebook(KernelBuilder &b, WeightFormat format, mlir::Value codebook);

/// How a format lies in memory: one that LLVM does not know as an integer of its width.
mlir::Type elementOf(mlir::Builder &b, ScaleFormat format);
/// What was loaded so, as f32. Not of UI6, whose scales have two levels.
mlir::Value toF32(KernelBuilder &b, ScaleFormat format, mlir::Value loaded);

/// `lanes` scales as f32, of rows `row` .. of a panel.
mlir::Value loadScales(KernelBuilder &b, ScaleFormat format, int64_t lanes, mlir::Value scales,
                       Index panel, Index group, Index row);
/// As many zero points as i32: 8 or 16 from a multiple of 8 on.
mlir::Value loadZeroPoints(KernelBuilder &b, int64_t bits, int64_t lanes, mlir::Value zeros,
                           Index panel, Index group, Index row);
/// The zero point of one row, an i32.
mlir::Value loadZeroPoint(KernelBuilder &b, int64_t bits, mlir::Value zeros, Index panel,
                          Index group, Index row);

/// f8E4M3FN in the low byte of i32 lanes, above which there may be others, as f32.
mlir::Value decodeF8E4M3FN(KernelBuilder &b, mlir::Value words);

} // namespace easyquant::cpu

#endif // EASYQUANT_LIB_CODEGEN_CPU_WEIGHTPARAMS_H
