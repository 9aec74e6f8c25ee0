//===- ExpertWeights.cpp - What weighs experts ----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/LM/Analysis/ExpertWeights.h"

#include "easyquant/Dialect/LM/IR/LM.h"

using namespace mlir;
using namespace easyquant;

bool easyquant::lm::weighExperts(Value numbers) {
  return llvm::any_of(numbers.getUsers(), [&](Operation *user) {
    if (auto combine = dyn_cast<CombineOp>(user))
      return combine.getShared().size() == 2 && combine.getShared()[1] == numbers;
    return isa<RouteOp>(user) || (isa<MultiplyOp>(user) && weighExperts(user->getResult(0)));
  });
}
