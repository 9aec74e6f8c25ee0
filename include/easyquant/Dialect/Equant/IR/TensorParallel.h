//===- TensorParallel.h - Ranks that share a model ---------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_EQUANT_IR_TENSORPARALLEL_H
#define EASYQUANT_DIALECT_EQUANT_IR_TENSORPARALLEL_H

#include "easyquant/Dialect/LM/IR/LM.h"

#include "mlir/Dialect/Shard/IR/ShardDialect.h"
#include "mlir/Dialect/Shard/IR/ShardOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace easyquant::equant {

/// The grid of the ranks that share a model, of one axis.
inline constexpr llvm::StringLiteral kGrid = "tensor_parallel";

/// Each rank has files of its own.
inline constexpr int64_t kMaxRanks = 4096;

/// How many ranks share the module's model; 1 where it has no such grid.
inline int64_t degreeOf(mlir::ModuleOp module) {
  auto grid = module.lookupSymbol<mlir::shard::GridOp>(kGrid);
  bool isKnown = grid && grid.getShape().size() == 1 && grid.getShape()[0] >= 1 &&
                 grid.getShape()[0] <= kMaxRanks;
  return isKnown ? grid.getShape()[0] : 1;
}

/// Whether ranks have `value` in parts of which the sum is meant, be it behind what adds up the
/// results of experts.
inline bool isReduced(mlir::Value value) {
  return llvm::any_of(value.getUsers(), [&](mlir::Operation *user) {
    if (auto combine = mlir::dyn_cast<lm::CombineOp>(user)) {
      mlir::OperandRange shared = combine.getShared();
      const bool isTerm =
          combine.getInput() == value || (!shared.empty() && shared.front() == value);
      return isTerm && isReduced(combine.getOutput());
    }
    return mlir::isa<mlir::shard::AllReduceOp>(user);
  });
}

} // namespace easyquant::equant

#endif // EASYQUANT_DIALECT_EQUANT_IR_TENSORPARALLEL_H
