//===- LinearEpilogue.h - From accumulators to y ----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The arithmetic of LinearSpec, shared by the kernels that compute it, on pairs of neighbouring
// columns n, n + 1 (n even) where a thread has pairs, else on single ones.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_LINEAREPILOGUE_H
#define EASYQUANT_LIB_CODEGEN_GPU_LINEAREPILOGUE_H

#include "ResultWriter.h"
#include "WeightParams.h"

namespace easyquant::gpu {

class LinearEpilogue {
public:
  using Values = KernelBuilder::Values;

  /// `width` columns at a time, 1 or 2; `shift`: accumulators are 2^shift times the dot products.
  LinearEpilogue(KernelBuilder &b, const LinearSpec &spec, const KernelArguments &arguments,
                 int64_t width, int64_t shift)
      : writer(b, {spec.n, spec.bias, spec.accumulate, spec.output}, arguments, width), b(b),
        spec(spec), arguments(arguments), params(b, spec, spec.weightRows(), spec.k, arguments),
        width(width), shift(shift) {}

  /// The terms of columns n .. of group g; n may be beyond N, not beyond its padding.
  struct ColumnTerms {
    Values scales, zeros, minima, sums;
  };
  ColumnTerms columnTerms(Int group, mlir::Value n);
  /// The terms of row m in dot group g; 0 where it is not `valid` (null: it is). Null where the
  /// spec has none.
  struct RowTerms {
    mlir::Value sum, scale;
    mlir::Value count; ///< columns of the group, where each of them has a part in a correction
    mlir::Value zero;  ///< where it is the same in all groups, from rowZero
  };
  RowTerms rowTerms(mlir::Value m, Int group, mlir::Value valid);
  mlir::Value rowZero(mlir::Value m, mlir::Value valid);
  /// The scale of a row that has one.
  mlir::Value rowScale(mlir::Value m, mlir::Value valid);

  /// The sums of code - zero point over a dot group, of accumulators of the codes alone.
  Values weightSums(mlir::ValueRange accumulators, const ColumnTerms &columns, mlir::Value count);
  /// Columns of a dot group.
  mlir::Value columnsOf(Int group);

  /// fma(sw, float(dot), t) for each column; t null: 0. For a partial linear it is dot itself, as
  /// the bits of a float.
  Values addGroup(mlir::ValueRange accumulators, const ColumnTerms &columns, const RowTerms &row,
                  mlir::ValueRange t);
  /// With an inputGroup: fma(sx, float(dot), s) for each column; s null: 0. FP8: dot + s. What
  /// minima multiply is summed up likewise, once a row.
  Values addDots(mlir::ValueRange accumulators, const ColumnTerms &columns, const RowTerms &row,
                 mlir::ValueRange s);
  mlir::Value addOnes(const RowTerms &row, mlir::Value ones);
  /// fma(sw, s, t), of all dot groups of a group.
  Values addInputGroups(mlir::ValueRange s, mlir::Value ones, const ColumnTerms &columns,
                        mlir::ValueRange t);
  /// Writes row m (which is there), columns n .. as far as they are below N.
  void write(mlir::Value m, mlir::Value n, mlir::Value rowScale, mlir::ValueRange t);
  ResultWriter writer;

private:
  /// Sums are carried 2^shift times too large and divided at the end, which is exact: once an
  /// element instead of once an element and group. Corrections by zero points need the true dot
  /// products, and sums that are written as integers have no end.
  bool shiftsLast() const { return !spec.readsSums() && !spec.inputZeroPoints && !spec.isPartial; }
  /// What a minimum is multiplied by: the sum of code - zero point.
  mlir::Value onesOf(const RowTerms &row);
  mlir::Value dotOf(mlir::Value accumulator, const ColumnTerms &columns, const RowTerms &row,
                    int64_t column);
  /// float(dot); the sums of FP8 are floats.
  mlir::Value floatOf(mlir::Value dot) { return spec.isFP8() ? dot : b.toFloat(dot); }

  KernelBuilder &b;
  const LinearSpec &spec;
  const KernelArguments &arguments;
  WeightParams params;
  int64_t width, shift;
};

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_LINEAREPILOGUE_H
