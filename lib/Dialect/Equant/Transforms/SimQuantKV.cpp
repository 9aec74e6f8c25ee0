//===- SimQuantKV.cpp - Keep keys and values of the past as codes ---------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/Analysis/RecipePlans.h"
#include "easyquant/Dialect/Equant/Transforms/Passes.h"
#include "easyquant/Numerics/Hadamard.h"
#include "easyquant/Recipe/PassOptions.h"

#include "mlir/IR/Builders.h"

namespace easyquant::equant {
#define GEN_PASS_DEF_SIMQUANTKV
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"
} // namespace easyquant::equant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

namespace {

struct SimQuantKV : recipe::WithOptionValues<equant::impl::SimQuantKVBase<SimQuantKV>> {
  using WithOptionValues::WithOptionValues;

  void runOnOperation() override {
    if (kvScheme == "none")
      return;
    FailureOr<KVSchemeAttr> asked = getScheme();
    if (failed(asked))
      return signalPassFailure();
    SmallVector<lm::AttentionOp> attentions;
    getOperation().walk([&](lm::AttentionOp op) { attentions.push_back(op); });
    if (attentions.empty()) {
      emitError(getOperation().getLoc())
          << "there is no lm.attention whose cache could be quantized";
      return signalPassFailure();
    }
    for (lm::AttentionOp op : attentions)
      if (failed(quantize(op, *asked)))
        return signalPassFailure();
    recipe::OptionValues recorded = optionValues();
    if (kvKeys == "hadamard")
      recorded.set(recipe::option::kvKeyScales, std::string("token"));
    recordOptions(getOperation(), recorded);
  }

private:
  FailureOr<KVSchemeAttr> getScheme();
  LogicalResult quantize(lm::AttentionOp op, KVSchemeAttr kvScheme);
};

} // namespace

FailureOr<KVSchemeAttr> SimQuantKV::getScheme() {
  recipe::OptionValues values = optionValues();
  for (const recipe::OptionInfo &option : recipe::options())
    if (const recipe::OptionValue *value =
            option.kind == recipe::Kind::Choice ? values.find(option) : nullptr)
      if (auto ok = checkValue(option, *value); !ok)
        return emitError(getOperation().getLoc()) << ok.error().message;
  unsigned bits = llvm::StringSwitch<unsigned>(kvScheme).Case("int8", 8).Case("int4", 4).Default(2);
  auto attribute = KVSchemeAttr::getChecked(
      [&] { return emitError(getOperation().getLoc()); }, &getContext(),
      IntegerType::get(&getContext(), bits), kvGroup.getValue(), kvResidual.getValue(),
      kvSinks.getValue(),
      kvKeys == "hadamard" ? Granularity::Token : *symbolizeGranularity(kvKeyScales),
      /*hadamard=*/int64_t(0));
  if (!attribute)
    return failure();
  return attribute;
}

LogicalResult SimQuantKV::quantize(lm::AttentionOp op, KVSchemeAttr kvScheme) {
  if (auto name = dyn_cast<NameLoc>(op.getLoc()); op.getAppended())
    return emitError(op.getLoc()) << (name ? "'" + name.getName().str() + "' " : "")
                                  << "reads the keys and values of another layer, for which there "
                                     "is no cache of codes yet; leave --kv-scheme out";
  if (kvKeys == "hadamard") {
    const int64_t block = numerics::hadamardBlock(op.getHeadDim());
    if (block == 0)
      return emitError(op.getLoc())
             << "keys=hadamard: layer " << op.getLayer() << " has heads of " << op.getHeadDim()
             << " dimensions, which are no whole blocks of " << numerics::kLeastHadamard
             << "; take keys=post-rope";
    kvScheme =
        KVSchemeAttr::get(&getContext(), kvScheme.getCode(), kvScheme.getGroup(),
                          kvScheme.getResidual(), kvScheme.getSinks(), kvScheme.getKeys(), block);
  }
  // Said of the model; the op's verifier would speak of IR.
  if (auto ok = numerics::checkKVScheme(kvScheme.toNumerics(), op.getHeadDim()); !ok)
    return emitError(op.getLoc()) << "layer " << op.getLayer() << ": " << ok.error().message;
  Value key = op.getKey(), table;
  auto rope = key.getDefiningOp<lm::RopeOp>();
  if (kvKeys == "pre-rope") {
    if (!rope || rope.getBatch() != op.getBatch() || rope.getHeadDim() != op.getHeadDim())
      return emitError(op.getLoc())
             << "keys=pre-rope: layer " << op.getLayer()
             << " has no keys that lm.rope rotates by their position; take keys=post-rope";
    key = rope.getInput();
    table = rope.getTable();
    if (auto ok = numerics::checkKeysBeforeRotation(lm::rotatedDims(table)); !ok)
      return emitError(op.getLoc())
             << "keys=pre-rope: layer " << op.getLayer() << ": " << ok.error().message;
  }
  OpBuilder builder(op);
  auto quantized = equant::AttentionOp::create(
      builder, op.getLoc(), op.getOutput().getType(), op.getQuery(), key, op.getValue(),
      op.getCache(), op.getBatch(), table, op.getSinkLogits(), op.getLayer(), op.getNumHeads(),
      op.getNumKvHeads(), op.getHeadDim(), op.getScale(), op.getWindow(), op.getBound(), kvScheme);
  op.replaceAllUsesWith(quantized.getOutput());
  op.erase();
  if (table && rope.use_empty())
    rope.erase();
  return success();
}
