//===- LegalizeActivations.cpp - Forms in which linears read activations --===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Dialect/Equant/Transforms/Passes.h"

#include "mlir/IR/Builders.h"

namespace easyquant::equant {
#define GEN_PASS_DEF_LEGALIZEACTIVATIONS
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"
} // namespace easyquant::equant

using namespace mlir;
using namespace easyquant::equant;

namespace {
struct LegalizeActivations : easyquant::equant::impl::LegalizeActivationsBase<LegalizeActivations> {
  void runOnOperation() override {
    getOperation().walk([](LinearOp linear) {
      SchemeAttr scheme = linear.getInputSchemeAttr();
      if (!scheme || scheme.isInteger())
        return;
      linear.getInputMutable().assign(roundedInput(linear, scheme));
      linear.removeInputSchemeAttr();
      linear.removeInputScaleAttr();
    });
  }

  /// The input as its codes give it back, by an op that is there already if there is one.
  static Value roundedInput(LinearOp linear, SchemeAttr scheme) {
    Value input = linear.getInput();
    for (Operation *user : input.getUsers())
      if (auto known = dyn_cast<FakeQuantizeOp>(user);
          known && known.getScheme() == scheme &&
          known.getScaleAttr() == linear.getInputScaleAttr())
        return known;
    // As early as possible, so that it comes before all who read it.
    OpBuilder builder(linear);
    builder.setInsertionPointAfterValue(input);
    return FakeQuantizeOp::create(builder, linear.getLoc(), input.getType(), input, scheme,
                                  linear.getInputScaleAttr());
  }
};
} // namespace
