//===- ScaleMethods.cpp - Methods that only choose scales -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Their passes plan what their options mean and compute nothing, and differ in their names alone.
//
//===----------------------------------------------------------------------===//

#include "SitePlans.h"

#include "easyquant/Dialect/Equant/Transforms/Passes.h"
#include "easyquant/Recipe/PassOptions.h"

namespace easyquant::equant {
#define GEN_PASS_DEF_ABSMAX
#define GEN_PASS_DEF_SYMMETRIC
#define GEN_PASS_DEF_ZEROPOINT
#define GEN_PASS_DEF_ZEROQUANT
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"
} // namespace easyquant::equant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

namespace {

/// BaseT is the generated class of the pass `equant-METHOD`.
template <typename BaseT> struct PlanPass : recipe::WithOptionValues<BaseT> {
  using recipe::WithOptionValues<BaseT>::WithOptionValues;

  void runOnOperation() override {
    StringRef method = this->getArgument();
    method.consume_front("equant-");
    if (failed(planSites(this->getOperation(), this->getArgument(), recipeFor(method),
                         this->requireSites)))
      this->signalPassFailure();
  }

private:
  Result<recipe::Recipe> recipeFor(StringRef base) {
    namespace option = recipe::option;
    recipe::Recipe recipe;
    Result<recipe::MethodExpression> method = recipe::makeMethod(base, *this->methods);
    if (!method)
      return Unexpected(method.error());
    recipe.request.method = *method;
    recipe::OptionValues &values = recipe.request.options = this->optionValues();
    // Without a range by percentile, its default says nothing.
    if (values[option::weightObserver] != "percentile" &&
        values[option::weightPercentile] == recipe::OptionValues()[option::weightPercentile])
      values.reset(option::weightPercentile);
    return recipe;
  }
};

struct AbsMax : PlanPass<equant::impl::AbsMaxBase<AbsMax>> {
  using PlanPass::PlanPass;
};
struct Symmetric : PlanPass<equant::impl::SymmetricBase<Symmetric>> {
  using PlanPass::PlanPass;
};
struct ZeroPoint : PlanPass<equant::impl::ZeroPointBase<ZeroPoint>> {
  using PlanPass::PlanPass;
};
struct ZeroQuant : PlanPass<equant::impl::ZeroQuantBase<ZeroQuant>> {
  using PlanPass::PlanPass;
};

} // namespace
