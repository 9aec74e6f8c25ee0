//===- FloatByDefault.cpp - Sites that a scheme leaves alone --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/Analysis/FloatByDefault.h"

#include "easyquant/Dialect/LM/Analysis/ExpertWeights.h"
#include "easyquant/Dialect/LM/IR/LM.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

static bool isRouter(QuantizableOpInterface op) {
  return isa<lm::LinearOp>(op) && lm::weighExperts(op->getResult(0));
}

/// Does it make decays and strengths of a gated delta net?
static bool isOfRecurrence(QuantizableOpInterface op) {
  return isa<lm::LinearOp>(op) && llvm::any_of(op->getUsers(), [&](Operation *user) {
           auto delta = dyn_cast<lm::GatedDeltaOp>(user);
           return delta &&
                  (delta.getDecay() == op->getResult(0) || delta.getStrength() == op->getResult(0));
         });
}

/// Does it make what all layers read beside the hidden state?
static bool makesLayerInputs(QuantizableOpInterface op) {
  Operation *made = op;
  while (isa<lm::LinearOp, lm::MultiplyOp, lm::HeadRmsNormOp, lm::AddOp>(made) &&
         made->hasOneUse() && (made == op || !isa<lm::LinearOp>(made)))
    made = *made->user_begin();
  return isa<lm::SplitOp>(made) && llvm::all_of(made->getUsers(), llvm::IsaPred<func::CallOp>);
}

/// Does it choose the tokens that an assistant chooses among?
static bool choosesClusters(QuantizableOpInterface op) {
  return isa<lm::LinearOp>(op) && llvm::any_of(op->getUsers(), [&](Operation *user) {
           auto mask = dyn_cast<lm::MaskClustersOp>(user);
           return mask && mask.getScores() == op->getResult(0);
         });
}

// A router in codes sends rows to other experts, as that of clusters does, errors of decays add up
// along a text, and what makes the inputs of all layers llama.cpp leaves float, too.
StringRef easyquant::equant::whyFloatByDefault(QuantizableOpInterface op) {
  return isRouter(op)           ? "weighs experts"
         : isOfRecurrence(op)   ? "sets decays"
         : makesLayerInputs(op) ? "feeds all layers"
         : choosesClusters(op)  ? "chooses among tokens"
                                : "";
}
