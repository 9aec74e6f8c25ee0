//===- FloatByDefault.cpp - Sites that a scheme leaves alone --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/Analysis/FloatByDefault.h"

#include "easyquant/Dialect/LM/Analysis/WhyF32.h"
#include "easyquant/Dialect/LM/IR/LM.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

/// Does it make what all layers read beside the hidden state?
static bool makesLayerInputs(QuantizableOpInterface op) {
  Operation *made = op;
  while (isa<lm::LinearOp, lm::MultiplyOp, lm::HeadRmsNormOp, lm::AddOp>(made) &&
         made->hasOneUse() && (made == op || !isa<lm::LinearOp>(made)))
    made = *made->user_begin();
  return isa<lm::SplitOp>(made) && llvm::all_of(made->getUsers(), llvm::IsaPred<func::CallOp>);
}

// Errors of what decides or adds up change a text, and what makes the inputs of all layers
// llama.cpp leaves float, too.
StringRef easyquant::equant::whyFloatByDefault(QuantizableOpInterface op) {
  if (StringRef why = lm::whyF32(op); !why.empty())
    return why;
  return makesLayerInputs(op) ? "feeds all layers" : "";
}
