//===- ModelWeights.h - The constants that a model reads --------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What equant-materialize-weights has to write, each different constant once.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_WEIGHTS_MODELWEIGHTS_H
#define EASYQUANT_WEIGHTS_MODELWEIGHTS_H

#include "easyquant/Numerics/Rope.h"
#include "easyquant/Weights/ConstantWeights.h"

#include "llvm/ADT/StringMap.h"

#include <deque>

namespace easyquant::equant {

/// An op that reads a weight that is packed: a linear or an embedding.
struct WeightUse {
  mlir::Operation *op;
  const ConstantWeight *weight;
};

/// A constant that stays float: a norm weight, a bias, the weight of a float linear, a table.
struct FloatConstant {
  std::vector<ConstantTensor> parts; ///< several for the bias of fused linears, and for ranks
  std::string site;                  ///< what reads it first, for messages
  mlir::Location loc;
  mlir::RankedTensorType type;
  llvm::SmallVector<mlir::OpOperand *> readers{};
  std::optional<numerics::RopeParams> rope{}; ///< of a rotation table, which is computed
  std::optional<ColumnPieces> columns{};      ///< that are taken of the parts; none: all

  /// The least type that holds each of its values and that its readers take: F16 or BF16 where
  /// embeddings alone read it, as the model's file has it; else F32.
  formats::DType leastType() const;
};

/// Others point into it: it stays where it is.
class ModelWeights {
public:
  ModelWeights() = default;
  ModelWeights(const ModelWeights &) = delete;
  ModelWeights &operator=(const ModelWeights &) = delete;

  /// Looks through what makes the constants of a rank. Fails with a diagnostic.
  mlir::LogicalResult collect(mlir::ModuleOp module, int64_t rank);
  /// Are all tensors of the model and of methods there, with the shapes that the IR gives them?
  /// Fails with a diagnostic.
  mlir::LogicalResult check(mlir::ModuleOp module, const ConstantReader &reader) const;

  /// In the order of first use.
  const std::deque<ConstantWeight> &packed() const { return weights; }
  const std::deque<FloatConstant> &floats() const { return constants; }
  llvm::ArrayRef<WeightUse> uses() const { return readers; }
  llvm::MutableArrayRef<WeightUse> uses() { return readers; }

private:
  mlir::LogicalResult collectWeights(mlir::ModuleOp module, const ConstantMatcher &matcher);
  mlir::LogicalResult collectWeight(const ConstantMatcher &matcher, mlir::Operation *op,
                                    mlir::Value weight, llvm::ArrayRef<llvm::StringRef> sites);
  ConstantWeight *intern(ConstantWeight weight);
  mlir::LogicalResult collectFloats(mlir::ModuleOp module, const ConstantMatcher &matcher);
  mlir::LogicalResult collectFloat(const ConstantMatcher &matcher, mlir::OpOperand &reader);

  std::deque<ConstantWeight> weights;
  std::deque<FloatConstant> constants;
  llvm::StringMap<ConstantWeight *> weightByKey;
  llvm::StringMap<FloatConstant *> constantByKey;
  llvm::SmallVector<WeightUse> readers;
};

} // namespace easyquant::equant

#endif // EASYQUANT_WEIGHTS_MODELWEIGHTS_H
