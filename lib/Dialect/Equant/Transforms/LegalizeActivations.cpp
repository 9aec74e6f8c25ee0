//===- LegalizeActivations.cpp - How linears read activations -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Dialect/Equant/Transforms/Passes.h"
#include "easyquant/Dialect/LM/Analysis/WhyF32.h"
#include "easyquant/Target/Target.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/DenseMap.h"

namespace easyquant::equant {
#define GEN_PASS_DEF_LEGALIZEACTIVATIONS
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"
} // namespace easyquant::equant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using targets::ActivationForm;

namespace {
struct LegalizeActivations : easyquant::equant::impl::LegalizeActivationsBase<LegalizeActivations> {
  using LegalizeActivationsBase::LegalizeActivationsBase;

  void runOnOperation() override {
    Result<const targets::Family *> found = targets::findFamily(target);
    if (!found) {
      getOperation().emitError() << found.error().message;
      return signalPassFailure();
    }
    family = *found;
    known.clear();
    getOperation().walk([&](Operation *op) {
      if (auto linear = dyn_cast<PackedLinearOp>(op))
        legalize(linear);
      else if (auto linear = dyn_cast<lm::LinearOp>(op);
               linear && lm::whyF32(linear).empty() &&
               family->activationForm({}, {}, target) == ActivationForm::BF16)
        linear.getInputMutable().assign(halved(linear, linear.getInput()));
    });
  }

private:
  void legalize(PackedLinearOp linear) {
    SchemeAttr scheme = linear.getInputSchemeAttr();
    if (linear.getRows())
      return;
    switch (family->activationForm(linear.getWeight().getType().getScheme(), scheme, target)) {
    case ActivationForm::AsIs: // of a scheme that the kernels do not take, their library says so
      return;
    case ActivationForm::BF16:
      linear.getInputMutable().assign(halved(linear, linear.getInput()));
      return;
    case ActivationForm::Rounded: {
      Value values = rounded(linear, scheme);
      const bool isHalf = family->activationForm({}, {}, target) == ActivationForm::BF16;
      linear.getInputMutable().assign(isHalf ? halved(linear, values) : values);
      break;
    }
    case ActivationForm::Codes:
      linear.getInputMutable().assign(quantized(linear, scheme));
      linear.getOnlineMutable().clear();
      linear.removeInputZeroPointAttr();
      break;
    }
    linear.removeInputSchemeAttr();
    linear.removeInputScaleAttr();
  }

  /// What is made of `input` before the first linear that reads it so, which `key` says.
  template <typename OpT>
  OpT shared(Operation *linear, Value input, ArrayRef<Attribute> key,
             llvm::function_ref<OpT(OpBuilder &)> make) {
    Operation *&op = known[{input, ArrayAttr::get(&getContext(), key)}];
    if (!op || op->getBlock() != linear->getBlock()) {
      OpBuilder builder(linear);
      op = make(builder);
    }
    return cast<OpT>(op);
  }

  Value halved(Operation *linear, Value input) {
    if (!cast<RankedTensorType>(input.getType()).getElementType().isF32())
      return input;
    return shared<arith::TruncFOp>(linear, input, {}, [&](OpBuilder &b) {
      auto type = cast<RankedTensorType>(input.getType()).clone(b.getBF16Type());
      return arith::TruncFOp::create(b, linear->getLoc(), type, input);
    });
  }

  Value rounded(PackedLinearOp linear, SchemeAttr scheme) {
    Value input = linear.getInput();
    FloatAttr scale = linear.getInputScaleAttr();
    SmallVector<Attribute> key = {scheme};
    if (scale)
      key.push_back(scale);
    return shared<FakeQuantizeOp>(linear, input, key, [&](OpBuilder &b) {
      return FakeQuantizeOp::create(b, linear.getLoc(), input.getType(), input, scheme, scale);
    });
  }

  Value quantized(PackedLinearOp linear, SchemeAttr scheme) {
    FloatAttr scale = linear.getInputScaleAttr();
    IntegerAttr zeroPoint = linear.getInputZeroPointAttr();
    Value online = linear.getOnline();
    SchemeAttr weight = linear.getWeight().getType().getScheme();
    const int64_t group = sumsGroup(weight, scheme);
    SmallVector<Attribute> key = {scheme, OpBuilder(linear).getI64IntegerAttr(group)};
    if (scale)
      key.push_back(scale);
    if (zeroPoint)
      key.push_back(zeroPoint);
    if (auto site = online ? online.getDefiningOp<OnlineScaleOp>() : OnlineScaleOp())
      key.push_back(site.getIndexAttr());
    auto typeOf = [&](std::optional<int64_t> sums) {
      return RowsType::get(lm::columns(linear.getInput()), scheme, sums);
    };
    auto codes = shared<QuantizeRowsOp>(linear, linear.getInput(), key, [&](OpBuilder &b) {
      return QuantizeRowsOp::create(b, linear.getLoc(), typeOf(std::nullopt), linear.getInput(),
                                    online, /*absmax=*/Value(), scale, zeroPoint);
    });
    if (family->readsSums(weight))
      codes.getRows().setType(typeOf(group));
    return codes.getRows();
  }

  const targets::Family *family = nullptr;
  llvm::DenseMap<std::pair<Value, ArrayAttr>, Operation *> known;
};
} // namespace
