//===- Launch.h - The launch dialect ----------------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_LAUNCH_IR_LAUNCH_H
#define EASYQUANT_DIALECT_LAUNCH_IR_LAUNCH_H

#include "easyquant/Formats/Cache.h"
#include "easyquant/Formats/Collective.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "easyquant/Dialect/Launch/IR/LaunchDialect.h.inc"
#include "easyquant/Dialect/Launch/IR/LaunchEnums.h.inc"

#define GET_OP_CLASSES
#include "easyquant/Dialect/Launch/IR/LaunchOps.h.inc"

namespace easyquant::launch {

/// The steps of a module: @forward, and what runs before the next call of a session that went back,
/// and the head that drafts, if there are such things.
inline constexpr llvm::StringLiteral kForward = "forward";
inline constexpr llvm::StringLiteral kRestore = "forward.restore";
inline constexpr llvm::StringLiteral kDraft = "draft";
/// The gpu.module of kernels.
inline constexpr llvm::StringLiteral kKernels = "kernels";

/// A module's target, for which its kernels are (avx2, sm_80, ...).
inline constexpr llvm::StringLiteral kTargetAttr = "launch.target";
/// A step's cache, the fields of formats::Cache.
inline constexpr llvm::StringLiteral kCacheAttr = "launch.cache";
/// A constant's first byte in the weights of the artifact, an i64 of its global.
inline constexpr llvm::StringLiteral kOffsetAttr = "launch.offset";
/// What an argument of a step is (an Argument's name).
inline constexpr llvm::StringLiteral kArgumentAttr = "launch.argument";
/// Most rows of a call of a step, an i64.
inline constexpr llvm::StringLiteral kMaxRowsAttr = "launch.max_rows";
/// A step whose buffers are placed has the bytes of all buffers, of all scratch (of a thread, on a
/// CPU), and of the counters, i64s.
inline constexpr llvm::StringLiteral kArenaBytesAttr = "launch.arena_bytes";
inline constexpr llvm::StringLiteral kScratchBytesAttr = "launch.scratch_bytes";
inline constexpr llvm::StringLiteral kCounterBytesAttr = "launch.counter_bytes";
/// A kernel has the names of its parameters, strings, and the numbers of those that it writes, an
/// array of i64s. A launch of such a kernel says that it writes the same.
inline constexpr llvm::StringLiteral kParametersAttr = "launch.parameters";
inline constexpr llvm::StringLiteral kWritesAttr = "launch.writes";
/// A kernel on a GPU has its grid (three times factor, rows per block; Codegen/GPU/Kernels.h), the
/// threads of a block, and its dynamic shared memory in bytes.
inline constexpr llvm::StringLiteral kGridAttr = "launch.grid";
inline constexpr llvm::StringLiteral kThreadsAttr = "launch.threads";
inline constexpr llvm::StringLiteral kSharedBytesAttr = "launch.shared_bytes";

/// Most tokens of one call.
constexpr int64_t kMaxRows = int64_t(1) << 20;
/// Most bytes of an arena or a cache: what a process can address.
constexpr int64_t kMaxBytes = int64_t(1) << 47;
/// Buffers start at multiples of a cache line.
constexpr int64_t kAlignment = 64;
constexpr int64_t alignUp(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// The cache that `attribute`, a kCacheAttr, describes; std::nullopt where it is not one.
std::optional<formats::Cache> cacheOf(mlir::Attribute attribute);

/// What a sequence keeps for layers with a recurrent state, f32 numbers, in a step that has an
/// argument for it; std::nullopt where it has none.
std::optional<int64_t> recurrentValuesOf(mlir::func::FuncOp step);

/// Adds to `collectives` what the one at hand, whose number is the next, asks of a caller.
mlir::LogicalResult addCollective(CollectiveOp op, std::vector<formats::Collective> &collectives);

/// Bytes of one row (an index of the first dimension) of memory whose other dimensions are static.
int64_t rowBytes(mlir::MemRefType type);

} // namespace easyquant::launch

#endif // EASYQUANT_DIALECT_LAUNCH_IR_LAUNCH_H
