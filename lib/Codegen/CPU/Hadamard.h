//===- Hadamard.h - Rows in a rotated basis ---------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The stages of easyquant/Numerics/Hadamard.h, to the bit: some in each pass over a row, as many as
// registers hold; the row stays in the nearest cache.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_CPU_HADAMARD_H
#define EASYQUANT_LIB_CODEGEN_CPU_HADAMARD_H

#include "KernelBuilder.h"

namespace easyquant::cpu {

/// Columns of one row, a vector of the target's lanes at a time.
struct HadamardRow {
  int64_t columns = 0, block = 0; ///< columns are whole blocks
  int64_t together = 0;           ///< columns of the first pass, a power of two of vectors
  /// What is rotated.
  llvm::function_ref<mlir::Value(mlir::Value column)> load;
  /// Where the result goes, and what is between the stages.
  mlir::Value rotated;
  llvm::function_ref<llvm::SmallVector<Index>(mlir::Value column)> at;
};
void emitHadamard(KernelBuilder &b, const HadamardRow &row);

/// Rotates what lies in memory with a dimension in each vector, of as many independent elements as
/// the target has lanes; at(d) is the place of dimension d. `finish` makes what is stored of a
/// result.
void emitHadamardAcross(KernelBuilder &b, int64_t columns, int64_t block, mlir::Value memory,
                        llvm::function_ref<mlir::Value(mlir::Value dim)> at,
                        llvm::function_ref<mlir::Value(mlir::Value x)> finish);

} // namespace easyquant::cpu

#endif // EASYQUANT_LIB_CODEGEN_CPU_HADAMARD_H
