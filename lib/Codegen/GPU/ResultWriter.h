//===- ResultWriter.h - What linears do with their sums ---------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_RESULTWRITER_H
#define EASYQUANT_LIB_CODEGEN_GPU_RESULTWRITER_H

#include "KernelBuilder.h"

namespace easyquant::gpu {

/// y, which the kernel's arguments y and y_stride are.
struct ResultSpec {
  int64_t n;       ///< columns
  bool bias;       ///< the argument bias
  bool accumulate; ///< y has something to add to
  Float output;
};

/// Writes y[m, n ..] = values (+ bias) (+ y), in this order, rounded to the output's type.
class ResultWriter {
public:
  /// `width` columns at a time: 1 or 2, then n is even.
  ResultWriter(KernelBuilder &b, const ResultSpec &spec, const KernelArguments &arguments,
               int64_t width)
      : b(b), spec(spec), arguments(arguments), width(width) {}

  /// f32 values of row m (which is there), columns n .. as far as they are below N.
  void write(mlir::Value m, mlir::Value n, mlir::ValueRange values);
  /// All columns that are written are below N.
  bool columnsAreWhole = false;

private:
  void writeColumns(mlir::Value row, mlir::Value n, mlir::ValueRange values);

  KernelBuilder &b;
  ResultSpec spec;
  const KernelArguments &arguments;
  int64_t width;
};

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_RESULTWRITER_H
