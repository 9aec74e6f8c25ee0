//===- RecipePlans.h - Plans and attributes of recipes ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Between easyquant/Recipe and the IR.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_EQUANT_ANALYSIS_RECIPEPLANS_H
#define EASYQUANT_DIALECT_EQUANT_ANALYSIS_RECIPEPLANS_H

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Recipe/Recipe.h"

#include "mlir/IR/BuiltinOps.h"

namespace easyquant::equant {

/// The plan that the request means; null if it leaves the site float. InvalidArgument, in the words
/// of options, on what there is not: a scheme, a group size, an asymmetric scheme for a base
/// without zero points, ...
Result<PlanAttr> makePlan(mlir::MLIRContext *context, const recipe::SiteRequest &request);

/// The recipe as an attribute of the module, `equant.recipe`, whose JSON parseRecipe reads back to
/// the same recipe. What other passes than plan passes read is theirs to record.
mlir::DictionaryAttr toAttribute(mlir::MLIRContext *context, const recipe::Recipe &recipe);

/// Notes in the module's `equant.recipe`, if it has one, what a pass did: its options that recipes
/// have, under their keys. If a method is named, these are the options of that method alone.
void recordOptions(mlir::ModuleOp module, const recipe::OptionValues &values,
                   llvm::StringRef method = "");

} // namespace easyquant::equant

#endif // EASYQUANT_DIALECT_EQUANT_ANALYSIS_RECIPEPLANS_H
