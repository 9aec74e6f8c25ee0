//===- WeightParams.h - Scales and zero points of weights -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How kernels read the scales and zero points of packed weights (Numerics/FragmentPacking.h):
// arrays of G x Np elements, of which those of neighbouring rows of weights come by one load.
// Scales become f32, zero points i32.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_WEIGHTPARAMS_H
#define EASYQUANT_LIB_CODEGEN_GPU_WEIGHTPARAMS_H

#include "KernelBuilder.h"

namespace easyquant::gpu {

class WeightParams {
public:
  using Values = KernelBuilder::Values;

  /// For weights of so many bits.
  WeightParams(KernelBuilder &b, int bits, ScaleFormat scales)
      : b(b), bits(bits), scaleFormat(scales) {}

  //===- Scales -------------------------------------------------------------===//
  /// The type of a scale in memory.
  mlir::Type scaleType() { return scaleFormat == ScaleFormat::F16 ? b.getF16Type() : b.f32(); }
  /// `count` scales from `pointer` on.
  Values loadScales(mlir::Value pointer, int64_t count);
  mlir::Value loadScale(mlir::Value pointer) { return loadScales(pointer, 1).front(); }

  //===- Zero points --------------------------------------------------------===//
  /// The zero points of elements index .. index + count - 1; count is 1 or 2, and divides index.
  Values loadZeros(mlir::Value zeros, mlir::Value index, int64_t count);
  /// Words (i32) that hold the zero points of elements index + row + 8 i, i < count, which are the
  /// rows of weights that a lane has. index is a multiple of 8 count, row below 8.
  Values loadZeroWords(mlir::Value zeros, mlir::Value index, mlir::Value row, int64_t count);
  Values zerosOf(mlir::ValueRange words, mlir::Value row, int64_t count);

private:
  /// Elements of a byte.
  int64_t fieldsOfByte() const;
  /// The zero point in the low bits of a word.
  mlir::Value zeroOf(mlir::Value word);

  KernelBuilder &b;
  int bits;
  ScaleFormat scaleFormat;
};

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_WEIGHTPARAMS_H
