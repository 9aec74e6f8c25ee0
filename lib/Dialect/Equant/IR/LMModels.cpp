//===- LMModels.cpp - QuantizableOpInterface for lm ops -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `lm` says what a model computes and knows nothing of quantization, so the interface is attached
// from here, when the `equant` dialect is loaded.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/IR/Equant.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

#include "easyquant/Dialect/Equant/IR/EquantInterfaces.cpp.inc"

namespace {
struct LinearModel : QuantizableOpInterface::ExternalModel<LinearModel, lm::LinearOp> {
  StringRef getSite(Operation *op) const { return cast<lm::LinearOp>(op).getSite(); }
  OpOperand &getActivationOperand(Operation *op) const {
    return cast<lm::LinearOp>(op).getInputMutable();
  }
  OpOperand &getWeightOperand(Operation *op) const {
    return cast<lm::LinearOp>(op).getWeightMutable();
  }
  Value getBiasValue(Operation *op) const { return cast<lm::LinearOp>(op).getBias(); }
  std::string whyNoLinear(Operation *) const { return ""; }
  Features getFeatures(Operation *op) const {
    auto type = cast<RankedTensorType>(getWeightOperand(op).get().getType());
    return {type.getDimSize(0), type.getDimSize(1)};
  }
  Value buildRows(Operation *op, OpBuilder &) const { return getWeightOperand(op).get(); }
  Value buildQuantized(Operation *op, OpBuilder &builder, Value weight,
                       const QuantizedInput &input) const {
    auto linear = cast<lm::LinearOp>(op);
    return equant::LinearOp::create(builder, op->getLoc(), op->getResult(0).getType(),
                                    linear.getInput(), weight, linear.getBias(),
                                    /*online=*/Value(), linear.getExperts(),
                                    builder.getStrArrayAttr({linear.getSite()}), input.scheme,
                                    input.scale, input.zeroPoint);
  }
};
} // namespace

bool easyquant::equant::isSite(Operation *op) {
  return isa<lm::LinearOp>(op) || op->hasAttr(kSiteAttr);
}

void easyquant::equant::attachLMModels(MLIRContext *context) {
  lm::LinearOp::attachInterface<LinearModel>(*context);
}

SmallVector<QuantizableOpInterface> easyquant::equant::getInputSharers(QuantizableOpInterface op) {
  Value activation = op.getActivationOperand().get();
  SmallVector<QuantizableOpInterface> sharers;
  auto expertsOf = [](Operation *op) {
    auto linear = dyn_cast<lm::LinearOp>(op);
    return linear ? linear.getExperts() : Value();
  };
  for (Operation *user : activation.getUsers()) {
    auto sharer = dyn_cast<QuantizableOpInterface>(user);
    if (sharer && user->getBlock() == op->getBlock() && expertsOf(user) == expertsOf(op) &&
        sharer.getActivationOperand().get() == activation && !llvm::is_contained(sharers, sharer))
      sharers.push_back(sharer);
  }
  llvm::sort(sharers, [](QuantizableOpInterface a, QuantizableOpInterface b) {
    return a->isBeforeInBlock(b);
  });
  return sharers;
}
