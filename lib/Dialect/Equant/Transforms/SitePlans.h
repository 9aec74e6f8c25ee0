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

#include "easyquant/Dialect/Equant/Analysis/Recipe.h"

#include "mlir/IR/BuiltinOps.h"

namespace easyquant::equant {

/// Sets `equant.plan` on every site that is to be quantized, and `equant.recipe` on the module; one
/// without any site stays as it is, with a warning of `pass`. Fails with a diagnostic if the recipe
/// is an error, or asks for what there is not: a pattern that names no site, two rules for one
/// site, a scheme, ...
mlir::LogicalResult planSites(mlir::ModuleOp module, llvm::StringRef pass,
                              const Result<Recipe> &recipe, bool requireSites);

/// A plan pass with options, BaseT being its generated class.
template <typename BaseT> struct PlanPass : BaseT {
  using BaseT::BaseT;

protected:
  mlir::LogicalResult planSites(const Result<Recipe> &recipe) {
    return equant::planSites(this->getOperation(), this->getArgument(), recipe, this->requireSites);
  }
  /// The recipe that the options mean.
  Result<Recipe> recipeFor(llvm::StringRef base) {
    Recipe recipe;
    Result<MethodExpression> method = makeMethod(base, *this->methods);
    if (!method)
      return Unexpected(method.error());
    recipe.request.method = *method;
    recipe.request.scheme = this->scheme;
    if (this->groupSize != -1)
      recipe.request.groupSize = this->groupSize;
    recipe.request.activations = this->activations;
    recipe.request.weightObserver = this->weightObserver;
    if (this->weightObserver == "percentile" || this->percentile.hasValue())
      recipe.request.percentile = this->percentile;
    recipe.head = this->head;
    recipe.ignore.assign(this->ignore.begin(), this->ignore.end());
    recipe.targets.assign(this->targets.begin(), this->targets.end());
    return recipe;
  }
};

} // namespace easyquant::equant

#endif // EASYQUANT_LIB_DIALECT_EQUANT_TRANSFORMS_SITEPLANS_H
