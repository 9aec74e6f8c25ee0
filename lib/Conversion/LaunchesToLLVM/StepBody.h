//===- StepBody.h - A step as what one thread does --------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A function that every thread of a team runs. It takes
//
//      weights, arena, cache, pages,    kFixedArguments
//      the step's own arguments,
//      the team (Codegen/CPU/Team.h),
//      function and context of the program's caller, if the step calls it,
//      the profiler's hook and its context, if it is entered with an eq_step; null but in thread 0,
//      start and wait of its services, if the step has collectives,
//      memory for the results,
//
// and returns, if it is entered with an eq_step, whether the team was stopped.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CONVERSION_LAUNCHESTOLLVM_STEPBODY_H
#define EASYQUANT_LIB_CONVERSION_LAUNCHESTOLLVM_STEPBODY_H

#include "easyquant/Codegen/CPU/Kernels.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace easyquant {

inline constexpr unsigned kFixedArguments = 4;

struct StepBody {
  mlir::func::FuncOp step, function;
  bool hasCollectives = false;
  /// The step's arguments that are its own, and those for its results.
  llvm::SmallVector<unsigned> own, results;

  /// Where the team is among the function's arguments.
  unsigned teamAt() const { return kFixedArguments + own.size(); }
  /// What an argument of the step is; empty if nothing says so.
  llvm::StringRef nameOf(unsigned argument) const;
};

/// Makes the function of `step`, whose buffers are placed; `isEntered`: with an eq_step.
mlir::FailureOr<StepBody> emitStepBody(mlir::func::FuncOp step, const cpu::Target &target,
                                       bool isEntered);

/// name(step: !llvm.ptr) -> i32, of easyquant/Formats/Step.h. Fails with a diagnostic where the
/// step is not (tokens, batch, rows of the logits, cache) -> logits, or a part of that.
mlir::LogicalResult emitStepEntry(const StepBody &body, llvm::StringRef name);

/// name(arguments of `body`, with the number of threads in place of the team), with a C interface.
void emitCallEntry(const StepBody &body, llvm::StringRef name);

} // namespace easyquant

#endif // EASYQUANT_LIB_CONVERSION_LAUNCHESTOLLVM_STEPBODY_H
