//===- ApplyRecipe.cpp - Plans per site from a file -----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SitePlans.h"

#include "easyquant/Dialect/Equant/Transforms/Passes.h"

namespace easyquant::equant {
#define GEN_PASS_DEF_APPLYRECIPE
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"
} // namespace easyquant::equant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

namespace {
struct ApplyRecipe : equant::impl::ApplyRecipeBase<ApplyRecipe> {
  using ApplyRecipeBase::ApplyRecipeBase;

  void runOnOperation() override {
    if (file.empty()) {
      emitError(getOperation().getLoc()) << "option file is missing: the recipe to read";
      return signalPassFailure();
    }
    Result<recipe::Recipe> recipe = recipe::readRecipe(file);
    if (recipe && observer.getValue() != recipe::option::observer.info().ownDefault)
      recipe->options.set(recipe::option::observer, observer.getValue()); // that of a command line
    if (failed(planSites(getOperation(), getArgument(), std::move(recipe), requireSites)))
      signalPassFailure();
  }
};
} // namespace
