//===- SiteKinds.cpp - What sites do in a model ---------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SiteKinds.h"

#include "easyquant/Dialect/LM/Analysis/Calls.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using recipe::SiteKind;

SiteKinds::SiteKinds(ModuleOp module) {
  module.walk([&](Operation *op) {
    if (auto cached = dyn_cast<lm::CachedAttentionOp>(op)) {
      addProducers(cached.getQuery());
      addConsumers(cached.getOutput());
    }
    if (!isa<lm::AttentionOp, lm::Conv1dOp, lm::GatedDeltaOp>(op))
      return;
    if (auto layer = op->getParentOfType<func::FuncOp>(); !lm::isOfDraft(layer))
      layers.try_emplace(layer, std::ssize(layers));
    auto attention = dyn_cast<lm::AttentionOp>(op);
    if (!attention)
      return;
    for (Value operand : {attention.getQuery(), attention.getKey(), attention.getValue()})
      addProducers(operand);
    addConsumers(attention.getOutput());
  });
}

void SiteKinds::addProducers(Value value) {
  SmallVector<Value> worklist = {value};
  while (!worklist.empty()) {
    Operation *op = worklist.pop_back_val().getDefiningOp();
    if (!op || !seen.insert(op).second)
      continue;
    if (isa<QuantizableOpInterface>(op))
      producers.insert(op);
    else
      llvm::append_range(worklist, op->getOperands());
  }
}

void SiteKinds::addConsumers(Value value) {
  for (Operation *user : value.getUsers()) {
    if (auto site = dyn_cast<QuantizableOpInterface>(user);
        site && site.getActivationOperand().get() == value)
      consumers.insert(user);
    // Attention may be gated.
    if (auto gate = dyn_cast<lm::GluOp>(user); gate && gate.getUp() == value)
      addConsumers(gate.getOutput());
  }
}

bool SiteKinds::isAttention(QuantizableOpInterface op) const {
  return producers.contains(op) || consumers.contains(op);
}

SiteKind SiteKinds::kindOf(QuantizableOpInterface op) const {
  if (op.getSite() == kHeadSite)
    return SiteKind::Head;
  if (producers.contains(op))
    return SiteKind::QueryKeyValue;
  if (consumers.contains(op))
    return SiteKind::AttentionOutput;
  Operation *made = op.getActivationOperand().get().getDefiningOp();
  // What experts read, gathered.
  if (auto rows = dyn_cast_or_null<lm::RowsOp>(made))
    made = rows.getInput().getDefiningOp();
  // Where norms are behind the blocks, gate and up read the residual sum itself.
  return isa_and_present<lm::RmsNormOp, lm::LayerNormOp, lm::AddOp>(made) ? SiteKind::GateUp
                                                                          : SiteKind::Down;
}

bool SiteKinds::isAtEnd(QuantizableOpInterface op) const {
  auto layer = layers.find(op->getParentOfType<func::FuncOp>());
  if (layer == layers.end())
    return false;
  const int64_t count = std::ssize(layers), atEnd = recipe::layersAtEnd(count);
  return layer->second < atEnd || layer->second >= count - atEnd;
}
