//===- LinearTimer.h - How long a linear's kernel takes ---------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compiles the kernels that an artifact for this machine's CPU would have, and runs them with
// weights that no cache holds, as the layers before leave them.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_EXECUTION_LINEARTIMER_H
#define EASYQUANT_EXECUTION_LINEARTIMER_H

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Support/MappedMemory.h"

#include "mlir/IR/BuiltinTypes.h"

#include <string>

namespace easyquant::execution {

/// A linear as it is compiled.
struct TimedLinear {
  mlir::RankedTensorType weight; ///< N x K
  equant::SchemeAttr scheme;
  equant::SchemeAttr input; ///< null: float activations
  /// What it reads comes in the basis of the weight; else its activations are rotated before.
  bool comesRotated = false;
};

class LinearTimer {
public:
  /// `threads`: 0 is one per core. Errors: Unsupported (this CPU runs none of the instruction
  /// sets), OutOfRange (no memory to empty caches with).
  static Result<LinearTimer> create(unsigned threads);

  /// Milliseconds of y = x Ŵᵀ for x of each of these numbers of rows, rotating and quantizing x
  /// included: the least of several calls, which other programs disturb least. Fails with a
  /// diagnostic.
  mlir::FailureOr<llvm::SmallVector<double>>
  millisecondsOf(mlir::Location loc, const TimedLinear &linear, llvm::ArrayRef<int64_t> rows);

  unsigned threads() const { return threadCount; }
  const std::string &isa() const { return instructions; }

private:
  LinearTimer() = default;
  void emptyCaches();

  unsigned threadCount = 0;
  std::string instructions;
  Buffer other; ///< what is read between two calls
};

} // namespace easyquant::execution

#endif // EASYQUANT_EXECUTION_LINEARTIMER_H
