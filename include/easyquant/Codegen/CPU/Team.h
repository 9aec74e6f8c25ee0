//===- Team.h - The threads that run a step together ------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step is one parallel region. In it every thread of the team calls every kernel with the same
// arguments but its own number, computes its share, and waits at a barrier where a kernel reads or
// overwrites what other threads' shares of the ones before have to do with.
//
// The barrier is ours: a step of 30 layers has 300, and this one also tells whether the step is to
// end, in a way that all threads learn at the same barrier.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CODEGEN_CPU_TEAM_H
#define EASYQUANT_CODEGEN_CPU_TEAM_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace easyquant::cpu {

struct Target;

/// What a function that runs in all threads takes last: (state: !llvm.ptr, thread: index in
/// 0 .. threads - 1, threads: index >= 1).
struct Team {
  mlir::Value state; ///< of the barrier; the same memory in all threads
  mlir::Value thread, threads;

  /// The last three of `arguments`.
  static Team of(mlir::ValueRange arguments);
  static void appendTypes(mlir::MLIRContext *context, llvm::SmallVectorImpl<mlir::Type> &types);
  void append(llvm::SmallVectorImpl<mlir::Value> &arguments) const {
    arguments.append({state, thread, threads});
  }
};

/// Waits for all threads of the team; what they wrote before is seen after it. The result, the same
/// in all threads, tells whether the team has been asked to stop. A team of one does not wait.
mlir::Value emitBarrier(mlir::ImplicitLocOpBuilder &b, mlir::ModuleOp module, const Target &target,
                        const Team &team);

/// Runs `body` in at most `threads` threads, without a parallel region if that is 1. `stop` is the
/// address of an i32 that is nonzero once the team is to stop, or null, itself or when it runs.
void emitTeam(mlir::ImplicitLocOpBuilder &b, mlir::ModuleOp module, mlir::Value threads,
              mlir::Value stop,
              llvm::function_ref<void(mlir::ImplicitLocOpBuilder &, const Team &)> body);

} // namespace easyquant::cpu

#endif // EASYQUANT_CODEGEN_CPU_TEAM_H
