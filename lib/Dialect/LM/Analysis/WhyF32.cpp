//===- WhyF32.cpp - Linears that decide -----------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/LM/Analysis/WhyF32.h"

#include "easyquant/Dialect/LM/Analysis/ExpertWeights.h"
#include "easyquant/Dialect/LM/IR/LM.h"

using namespace mlir;
using namespace easyquant;

StringRef easyquant::lm::whyF32(Operation *op) {
  if (!isa<LinearOp>(op))
    return "";
  Value result = op->getResult(0);
  if (weighExperts(result))
    return "weighs experts";
  for (Operation *user : result.getUsers()) {
    if (auto delta = dyn_cast<GatedDeltaOp>(user);
        delta && (delta.getDecay() == result || delta.getStrength() == result))
      return "sets decays";
    if (auto mask = dyn_cast<MaskClustersOp>(user); mask && mask.getScores() == result)
      return "chooses among tokens";
  }
  return "";
}
