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
  auto linear = attention.getValue().getDefiningOp<lm::LinearOp>();
  if (!linear || !isOnlyReader(linear.getOutput(), attention))
    return {};
  return {linear, static_cast<int64_t>(attention.getHeadDim())};
}

PlanAttr easyquant::equant::inFittingBasis(QuantizableOpInterface site, PlanAttr plan) {
  const int64_t limit = plan.getWeight().getHadamard();
  if (limit == 0)
    return plan;
  int64_t block = 0;
  if (ValuesOfSite values = valuesOf(site))
    block = numerics::hadamardBlock(values.headDim, limit);
  if (block == 0)
    block = numerics::hadamardBlock(lm::columns(site.getWeightOperand().get()), limit);
  return plan.inBasis(block);
}

int64_t easyquant::equant::rowBlockOf(QuantizableOpInterface site) {
  for (Operation *attention : site->getResult(0).getUsers()) {
    if (!isa<lm::AttentionOp>(attention))
      continue;
    for (Operation *user : attention->getResult(0).getUsers()) {
      auto reader = dyn_cast<QuantizableOpInterface>(user);
      PlanAttr plan = reader ? getPlan(reader) : PlanAttr();
      ValuesOfSite values = plan ? valuesOf(reader) : ValuesOfSite();
      if (values.linear == site && values.takes(plan.getWeight().getHadamard()))
        return plan.getWeight().getHadamard();
    }
  }
  return 0;
}
