//===- LegalizeActivations.cpp - How linears read activations -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Dialect/Equant/Transforms/Passes.h"

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

namespace {
struct LegalizeActivations : easyquant::equant::impl::LegalizeActivationsBase<LegalizeActivations> {
  using LegalizeActivationsBase::LegalizeActivationsBase;

  void runOnOperation() override {
    if (target != "cpu" && target != "gpu") {
      getOperation().emitError() << "unknown target '" << target << "'; expected cpu or gpu";
      return signalPassFailure();
    }
    known.clear();
    getOperation().walk([&](Operation *op) {
      if (auto linear = dyn_cast<equant::LinearOp>(op))
        legalize(linear);
      else if (auto linear = dyn_cast<lm::LinearOp>(op); linear && target == "gpu")
        linear.getInputMutable().assign(halved(linear, linear.getInput()));
    });
  }

private:
  void legalize(equant::LinearOp linear) {
    SchemeAttr scheme = linear.getInputSchemeAttr();
    if (linear.readsCodes())
      return;
    if (!scheme) {
      if (target == "gpu")
        linear.getInputMutable().assign(halved(linear, linear.getInput()));
    } else if (!scheme.isInteger()) {
      if (target == "gpu") // has no such products yet; its library says so
        return;
      linear.getInputMutable().assign(rounded(linear, scheme));
      linear.removeInputSchemeAttr();
      linear.removeInputScaleAttr();
    } else if (scheme.getBits() == 8) {
      QuantizeRowsOp codes = quantized(linear, scheme);
      linear.getInputMutable().assign(codes.getCodes());
      linear.getRowScalesMutable().assign(codes.getScales());
      // Kernels for CPUs correct for the offset of their unsigned codes, too.
      if (target == "cpu" || linear.getZeroPoint())
        linear.getRowSumsMutable().assign(codes.getSums());
      if (codes.getZeroPoints())
        linear.getRowZeroPointsMutable().assign(codes.getZeroPoints());
      linear.removeInputScaleAttr();
      linear.removeInputZeroPointAttr();
    }
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

  Value rounded(equant::LinearOp linear, SchemeAttr scheme) {
    Value input = linear.getInput();
    FloatAttr scale = linear.getInputScaleAttr();
    SmallVector<Attribute> key = {scheme};
    if (scale)
      key.push_back(scale);
    return shared<FakeQuantizeOp>(linear, input, key, [&](OpBuilder &b) {
      return FakeQuantizeOp::create(b, linear.getLoc(), input.getType(), input, scheme, scale);
    });
  }

  QuantizeRowsOp quantized(equant::LinearOp linear, SchemeAttr scheme) {
    FloatAttr scale = linear.getInputScaleAttr();
    IntegerAttr zeroPoint = linear.getInputZeroPointAttr();
    // Of online scales, which are an operand then.
    Value online = linear.getRowScales();
    int64_t group = linear.getWeightScheme().getGroupSize();
    SmallVector<Attribute> key = {scheme, OpBuilder(linear).getI64IntegerAttr(group)};
    if (scale)
      key.push_back(scale);
    if (zeroPoint)
      key.push_back(zeroPoint);
    if (auto site = online ? online.getDefiningOp<OnlineScaleOp>() : OnlineScaleOp())
      key.push_back(site.getIndexAttr());
    return shared<QuantizeRowsOp>(linear, linear.getInput(), key, [&](OpBuilder &b) {
      return QuantizeRowsOp::create(b, linear.getLoc(), linear.getInput(), online, scheme, group,
                                    scale, zeroPoint);
    });
  }

  llvm::DenseMap<std::pair<Value, ArrayAttr>, Operation *> known;
};
} // namespace
