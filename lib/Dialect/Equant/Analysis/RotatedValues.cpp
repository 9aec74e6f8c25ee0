//===- RotatedValues.cpp - Values that a cache keeps rotated --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/Analysis/RotatedValues.h"

#include "easyquant/Numerics/Hadamard.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

/// Is `reader` all that computes with the value? Observers only look at it.
static bool isOnlyReader(Value value, Operation *reader) {
  auto isIt = [&](OpOperand &use) { return use.getOwner() == reader; };
  auto looks = [](OpOperand &use) { return isa<ObserveOp>(use.getOwner()); };
  return llvm::count_if(value.getUses(), isIt) == 1 &&
         llvm::all_of(value.getUses(), [&](OpOperand &use) { return isIt(use) || looks(use); });
}

ValuesOfSite easyquant::equant::valuesOf(QuantizableOpInterface site) {
  auto attention = site.getActivationOperand().get().getDefiningOp<lm::AttentionOp>();
  if (!attention || !isOnlyReader(attention.getOutput(), site))
    return {};
  Value values = attention.getValue();
  if (!isOnlyReader(values, attention))
    return {};
  int64_t firstRow = 0;
  if (auto split = values.getDefiningOp<lm::SplitOp>()) {
    Value fused = split.getInput();
    if (values != split.getOutputs().back() || !isOnlyReader(fused, split))
      return {};
    firstRow = lm::columns(fused) - lm::columns(values);
    values = fused;
  }
  auto linear = values.getDefiningOp<lm::LinearOp>();
  if (!linear)
    return {};
  // Codes of the source are as they are.
  if (PlanAttr plan = getPlan(cast<QuantizableOpInterface>(linear.getOperation()));
      plan && isKept(linear, plan))
    return {};
  return {linear, static_cast<int64_t>(attention.getHeadDim()), firstRow};
}

PlanAttr easyquant::equant::inFittingBasis(QuantizableOpInterface site, PlanAttr plan) {
  const int64_t limit = plan.getWeight().getHadamard();
  if (limit == 0)
    return plan;
  int64_t block = 0;
  if (ValuesOfSite values = valuesOf(site))
    block = numerics::hadamardBlock(values.headDim, limit);
  if (block == 0)
    block = numerics::hadamardBlock(site.getFeatures().inputs, limit);
  return plan.inBasis(block);
}

/// Who reads the result of an op, or a part of its columns.
static SmallVector<Operation *> readersOf(Operation *op) {
  SmallVector<Operation *> readers;
  for (Operation *user : op->getUsers())
    if (isa<lm::SplitOp>(user))
      llvm::append_range(readers, user->getUsers());
    else
      readers.push_back(user);
  return readers;
}

RowBlocks easyquant::equant::rowBlocksOf(QuantizableOpInterface site) {
  for (Operation *attention : readersOf(site)) {
    if (!isa<lm::AttentionOp>(attention))
      continue;
    for (Operation *user : attention->getResult(0).getUsers()) {
      auto reader = dyn_cast<QuantizableOpInterface>(user);
      PlanAttr plan = reader ? getPlan(reader) : PlanAttr();
      ValuesOfSite values = plan ? valuesOf(reader) : ValuesOfSite();
      if (values.linear == site && values.takes(plan.getWeight().getHadamard()))
        return {plan.getWeight().getHadamard(), values.firstRow};
    }
  }
  return {};
}
