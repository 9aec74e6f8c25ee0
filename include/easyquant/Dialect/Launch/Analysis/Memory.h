//===- Memory.h - What launches read and write ------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_LAUNCH_ANALYSIS_MEMORY_H
#define EASYQUANT_DIALECT_LAUNCH_ANALYSIS_MEMORY_H

#include "easyquant/Dialect/Launch/IR/Launch.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace easyquant::launch {

/// What a launch does with an operand that is memory.
struct Access {
  mlir::Value memory;
  bool isWrite;
  bool isShare;         ///< each thread touches its share of it only
  bool isFirst = false; ///< the first thread touches it only, for all
};

/// What a launch.kernel, launch.host, launch.collective or launch.wait touches; other ops: nothing.
llvm::SmallVector<Access> accessesOf(mlir::Operation *op);

/// The memory that `memory` is a part of: a buffer, scratch, counters, a constant, an argument.
mlir::Value rootOf(mlir::Value memory);

/// Bytes of a buffer for calls of the most rows of its step, or more than kMaxBytes.
int64_t bufferBytes(BufferOp buffer);

/// May launch `b`, which comes after `a`, not begin before `a` is done? It reads what `a` writes,
/// or writes what `a` reads or writes. Buffers are compared as they are placed.
bool dependsOn(mlir::Operation *b, mlir::Operation *a);

/// What launches have touched since all threads of a team met.
class Pending {
public:
  /// Must the threads meet before `op`? It depends on a launch that is pending, through memory of
  /// which the two do not have the same shares.
  bool mustMeet(mlir::Operation *op) const;
  void add(mlir::Operation *op);
  /// The threads have met.
  void clear() { accesses.clear(); }

private:
  llvm::SmallVector<Access> accesses;
};

} // namespace easyquant::launch

#endif // EASYQUANT_DIALECT_LAUNCH_ANALYSIS_MEMORY_H
