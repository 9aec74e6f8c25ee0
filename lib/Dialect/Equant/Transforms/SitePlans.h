//===- SitePlans.h - What the plan passes share -----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A plan pass turns its options into a recipe, and a recipe gives every site its plan. Private to
// the passes.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_DIALECT_EQUANT_TRANSFORMS_SITEPLANS_H
#define EASYQUANT_LIB_DIALECT_EQUANT_TRANSFORMS_SITEPLANS_H

#include "easyquant/Dialect/Equant/Analysis/RecipePlans.h"
#include "easyquant/Recipe/PassOptions.h"

#include "mlir/IR/BuiltinOps.h"

namespace easyquant::equant {

/// Sets `equant.plan` on every site that is to be quantized, and `equant.recipe` on the module; one
/// without any site stays as it is, with a warning of `pass`. Fails with a diagnostic if the recipe
/// is an error, or asks for what there is not: a pattern that names no site, two rules for one
/// site, a scheme, ...
mlir::LogicalResult planSites(mlir::ModuleOp module, llvm::StringRef pass,
                              const Result<recipe::Recipe> &recipe, bool requireSites);

/// The pass `equant-METHOD` of a method that only chooses scales: it plans what its options mean
/// and computes nothing. BaseT is its generated class.
template <typename BaseT> struct PlanPass : recipe::WithOptionValues<BaseT> {
  using recipe::WithOptionValues<BaseT>::WithOptionValues;

  void runOnOperation() override {
    llvm::StringRef method = this->getArgument();
    method.consume_front("equant-");
    if (failed(planSites(this->getOperation(), this->getArgument(), recipeFor(method),
                         this->requireSites)))
      this->signalPassFailure();
  }

private:
  Result<recipe::Recipe> recipeFor(llvm::StringRef base) {
    namespace option = recipe::option;
    recipe::Recipe recipe;
    Result<recipe::MethodExpression> method = recipe::makeMethod(base, *this->methods);
    if (!method)
      return Unexpected(method.error());
    recipe.request.method = *method;
    recipe::OptionValues &values = recipe.request.options = this->optionValues();
    // It is of all sites, as in a recipe.
    recipe.options.set(option::observer, values[option::observer]);
    values.reset(option::observer);
    // Without a range by percentile, its default says nothing.
    if (values[option::weightObserver] != "percentile" &&
        values[option::weightPercentile] == recipe::OptionValues()[option::weightPercentile])
      values.reset(option::weightPercentile);
    return recipe;
  }
};

} // namespace easyquant::equant

#endif // EASYQUANT_LIB_DIALECT_EQUANT_TRANSFORMS_SITEPLANS_H
