//===- WeightParams.h - Scales and zero points of weights -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How kernels read the scales, minima and zero points of packed weights
// (Numerics/FragmentPacking.h). Those of neighbouring rows of weights come by one load. Scales
// become f32, zero points i32.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_WEIGHTPARAMS_H
#define EASYQUANT_LIB_CODEGEN_GPU_WEIGHTPARAMS_H

#include "KernelBuilder.h"

namespace easyquant::gpu {

/// The first row of an expert's weights, a multiple of 64.
inline constexpr llvm::StringLiteral kFirstWeightRow = "first_weight_row";

class WeightParams {
public:
  using Values = KernelBuilder::Values;

  /// The weights are `rows` x `columns`. Rows n below count from kFirstWeightRow on, an argument
  /// that kernels of experts give their body.
  WeightParams(KernelBuilder &b, const WeightCodec &codec, int64_t rows, int64_t columns,
               const KernelArguments &arguments);

  //===- Scales -------------------------------------------------------------===//
  /// The scales of group `group` of rows n .. n + count - 1; count is 1 or 2, and divides n, which
  /// is below N rounded up to 64.
  Values scales(Int group, mlir::Value n, int64_t count) const;
  Values minima(Int group, mlir::Value n, int64_t count) const;
  /// The outer scales of such rows.
  Values outer(mlir::Value n, int64_t count) const;
  /// Row n of the weights.
  mlir::Value rowOf(mlir::Value n) const { return first ? b.add(first, n) : n; }

  //===- Zero points --------------------------------------------------------===//
  /// The zero points of such rows.
  Values zeros(Int group, mlir::Value n, int64_t count) const;
  /// Words (i32) that hold the zero points of rows n + row + 8 i, i < count, which a lane has. n is
  /// a multiple of 8 count, row below 8.
  Values zeroWords(Int group, mlir::Value n, mlir::Value row, int64_t count) const;
  Values zerosOf(mlir::ValueRange words, mlir::Value row, int64_t count) const;

private:
  /// A plane of numbers, one a row, of 64 rows each.
  struct Plane {
    int bits;                                   ///< of a field
    int64_t offset;                             ///< bytes before it in those of 64 rows
    int64_t rowsBytes;                          ///< bytes of 64 rows, all planes
    int64_t fields() const { return 8 / bits; } ///< of a byte
  };
  static llvm::SmallVector<Plane> planesOf(int bits);
  /// Where the field of row n is, which is the first of its byte.
  mlir::Value fieldsAt(mlir::Value group, const Plane &plane, mlir::Value n) const;
  /// The numbers of rows n .. n + count - 1, of `bits` bits.
  Values numbers(mlir::Value group, int bits, mlir::Value n, int64_t count) const;
  /// `count` floats of the format of the scales.
  Values load(mlir::StringRef name, mlir::Value index, int64_t count, ScaleFormat format) const;
  mlir::Value widen(mlir::Value bits, ScaleFormat format) const;
  mlir::Value group(mlir::StringRef name, int bits, Int group, int64_t offset = 0) const;
  mlir::Value centred(mlir::Value zero) const {
    return b.sub(zero, int64_t{1} << (codec.bits - 1));
  }

  KernelBuilder &b;
  const WeightCodec codec;
  const int64_t padded, groups;
  const KernelArguments &arguments;
  const mlir::Value first; ///< null: 0
};

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_WEIGHTPARAMS_H
