//===- SimQuantKV.cpp - Keep keys and values of the past as codes ---------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/Analysis/Recipe.h"
#include "easyquant/Dialect/Equant/Transforms/Passes.h"

#include "mlir/IR/Builders.h"

namespace easyquant::equant {
#define GEN_PASS_DEF_SIMQUANTKV
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"
} // namespace easyquant::equant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

namespace {

struct SimQuantKV : equant::impl::SimQuantKVBase<SimQuantKV> {
  using SimQuantKVBase::SimQuantKVBase;

  void runOnOperation() override {
    auto kvScheme = getScheme();
    if (failed(kvScheme))
      return signalPassFailure();
    SmallVector<lm::AttentionOp> attentions;
    getOperation().walk([&](lm::AttentionOp op) { attentions.push_back(op); });
    if (attentions.empty()) {
      emitError(getOperation().getLoc())
          << "there is no lm.attention whose cache could be quantized";
      return signalPassFailure();
    }
    for (lm::AttentionOp op : attentions)
      if (failed(quantize(op, *kvScheme)))
        return signalPassFailure();
    Builder b(&getContext());
    Attribute options =
        b.getDictionaryAttr({b.getNamedAttr("group", b.getI64IntegerAttr(group)),
                             b.getNamedAttr("key_scales", b.getStringAttr(keyScales)),
                             b.getNamedAttr("keys", b.getStringAttr(keys)),
                             b.getNamedAttr("residual", b.getI64IntegerAttr(residual)),
                             b.getNamedAttr("scheme", b.getStringAttr(scheme)),
                             b.getNamedAttr("sinks", b.getI64IntegerAttr(sinks))});
    recordOptions(getOperation(), b.getNamedAttr("kv", options));
  }

private:
  FailureOr<KVSchemeAttr> getScheme();
  LogicalResult quantize(lm::AttentionOp op, KVSchemeAttr kvScheme);
  InFlightDiagnostic unknown(StringRef what, StringRef found, StringRef expected) {
    return emitError(getOperation().getLoc())
           << "unknown " << what << " '" << found << "'; legal are " << expected;
  }
};

} // namespace

FailureOr<KVSchemeAttr> SimQuantKV::getScheme() {
  unsigned bits =
      llvm::StringSwitch<unsigned>(scheme).Case("int8", 8).Case("int4", 4).Case("int2", 2).Default(
          0);
  if (bits == 0)
    return unknown("KV scheme", scheme, "int8, int4 and int2");
  if (keys != "post-rope" && keys != "pre-rope")
    return unknown("place of KV keys", keys, "post-rope and pre-rope");
  auto granularity = symbolizeGranularity(keyScales);
  if (granularity != Granularity::Channel && granularity != Granularity::Token)
    return unknown("scales of KV keys", keyScales, "channel and token");
  auto attribute =
      KVSchemeAttr::getChecked([&] { return emitError(getOperation().getLoc()); }, &getContext(),
                               IntegerType::get(&getContext(), bits), group.getValue(),
                               residual.getValue(), sinks.getValue(), *granularity);
  if (!attribute)
    return failure();
  return attribute;
}

LogicalResult SimQuantKV::quantize(lm::AttentionOp op, KVSchemeAttr kvScheme) {
  // Said of the model; the op's verifier would speak of IR.
  if (auto ok = numerics::checkKVScheme(kvScheme.toNumerics(), op.getHeadDim()); !ok)
    return emitError(op.getLoc()) << ok.error().message;
  Value key = op.getKey(), table;
  auto rope = key.getDefiningOp<lm::RopeOp>();
  if (keys == "pre-rope") {
    if (!rope || rope.getPosition() != op.getPosition() || rope.getHeadDim() != op.getHeadDim())
      return emitError(op.getLoc())
             << "keys=pre-rope: layer " << op.getLayer()
             << " has no keys that lm.rope rotates by their position; take keys=post-rope";
    key = rope.getInput();
    table = rope.getTable();
  }
  OpBuilder builder(op);
  auto quantized = equant::AttentionOp::create(
      builder, op.getLoc(), op.getOutput().getType(), op.getQuery(), key, op.getValue(),
      op.getCache(), op.getPosition(), table, op.getLayer(), op.getNumHeads(), op.getNumKvHeads(),
      op.getHeadDim(), op.getScale(), op.getWindow(), kvScheme);
  op.replaceAllUsesWith(quantized.getOutput());
  op.erase();
  if (table && rope.use_empty())
    rope.erase();
  return success();
}
