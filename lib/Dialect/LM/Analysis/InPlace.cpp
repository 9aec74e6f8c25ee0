//===- InPlace.cpp - What may be overwritten ------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/LM/Analysis/InPlace.h"

#include "easyquant/Dialect/LM/IR/LM.h"

using namespace mlir;
using namespace easyquant;

/// Does anything behind `op` read `value`, or a view of it that is not `except`?
static bool isReadBehind(Operation *op, Value value, Operation *except) {
  return llvm::any_of(value.getUsers(), [&](Operation *inner) {
    Operation *user = op->getBlock()->findAncestorOpInBlock(*inner);
    if (!user || user == op || user == except)
      return !user;
    if (!user->hasTrait<OpTrait::View>())
      return op->isBeforeInBlock(user);
    return llvm::any_of(user->getResults(),
                        [&](Value view) { return isReadBehind(op, view, nullptr); });
  });
}

/// The part of a split that `value` is, through ops that update it in place.
static OpResult partOf(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (isa<lm::SplitOp>(op))
      return cast<OpResult>(value);
    if (!op->hasTrait<OpTrait::InPlace>() || !lm::mayOverwrite(op, op->getOperand(0)))
      break;
    value = op->getOperand(0);
  }
  return nullptr;
}

bool lm::areSideBySide(Value value, Value behind) {
  OpResult part = partOf(value), other = partOf(behind);
  return part && other && part.getOwner() == other.getOwner() &&
         part.getResultNumber() + 1 == other.getResultNumber();
}

bool lm::mayOverwrite(Operation *op, Value value) {
  Operation *view = nullptr;
  while (true) {
    if (isa<BlockArgument>(value) || isReadBehind(op, value, view))
      return false;
    view = value.getDefiningOp();
    if (!view->hasTrait<OpTrait::View>())
      return true;
    value = view->getOperand(0);
  }
}
