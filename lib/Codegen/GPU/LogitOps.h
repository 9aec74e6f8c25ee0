//===- LogitOps.h - Logits, their order and their weights -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_GPU_LOGITOPS_H
#define EASYQUANT_LIB_CODEGEN_GPU_LOGITOPS_H

#include "KernelBuilder.h"

#include "easyquant/Formats/TokenChoice.h"

namespace easyquant::gpu {

constexpr int64_t blocksOfLogits(int64_t vocabulary) {
  return divideCeil(vocabulary, formats::kLogitBlock);
}

/// Bits that are greater, as unsigned ones, for the greater float; 0 and -0 have the same.
mlir::Value orderedBits(KernelBuilder &b, mlir::Value x);
/// The float of such bits.
mlir::Value floatOfOrderedBits(KernelBuilder &b, mlir::Value bits);
/// a >= b, unsigned.
mlir::Value reaches(KernelBuilder &b, mlir::Value x, mlir::Value y);

/// A bit for each lane of the warp where the condition holds.
mlir::Value ballot(KernelBuilder &b, mlir::Value condition);
/// What lane number `lane` has, f32 or i32.
mlir::Value fromLane(KernelBuilder &b, mlir::Value value, mlir::Value lane);
mlir::Value countBits(KernelBuilder &b, mlir::Value bits);
/// The sum of all lanes, i64.
mlir::Value warpSumWide(KernelBuilder &b, mlir::Value value);
mlir::Value toDouble(KernelBuilder &b, mlir::Value x);

/// A choice, and what its row is weighed by.
struct ChoiceOfRow {
  /// Reads `choices`, `settings` and `greatest` of a kernel.
  ChoiceOfRow(KernelBuilder &b, const KernelArguments &arguments, mlir::Value row);

  mlir::Value slot, drawLow, drawHigh;
  mlir::Value top, scale; ///< f32
  mlir::Value least;      ///< of min_p, f32
  mlir::Value topK, topP; ///< i32, f64
  mlir::Value hasTopK;    ///< i1
  mlir::Value isWhole;    ///< i1: neither top_k nor top_p takes tokens out

  /// (x - top) * scale
  mlir::Value exponent(KernelBuilder &b, mlir::Value x) const;
  /// The bits of LogitBlocks' weigh with numerics::exponentialInRange.
  mlir::Value weight(KernelBuilder &b, mlir::Value x, mlir::Value least) const;
};

/// The two logits of a lane in a block of a kept row.
struct LogitPair {
  LogitPair(KernelBuilder &b, mlir::Value row, mlir::Value block, mlir::Value lane,
            int64_t vocabulary);
  mlir::Value token[2], isThere[2]; ///< i32; i1, null where all are
  mlir::Value x[2];                 ///< -infinity where none is there
};

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_CODEGEN_GPU_LOGITOPS_H
