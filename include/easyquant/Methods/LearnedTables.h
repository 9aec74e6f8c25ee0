//===- LearnedTables.h - Tables of values at sites --------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_METHODS_LEARNEDTABLES_H
#define EASYQUANT_METHODS_LEARNEDTABLES_H

#include "easyquant/Execution/LayerSites.h"

namespace easyquant::methods {

using namespace execution;

/// Does the plan have a table that is still to be learned?
bool isToBeLearned(equant::PlanAttr plan);

/// The weight of a site, or the table of an embedding that is one.
struct WeightToLearn {
  mlir::Value value;
  std::string site;
  mlir::Location loc;
};
llvm::SmallVector<WeightToLearn> weightsToLearn(llvm::ArrayRef<PlannedSite> sites);

/// The plan with a table learned from weights that are multiplied by one activation, whose mean
/// squares by column are given (empty: ones), from some rows of each, evenly spread
/// (numerics::learnTable). A plan without one to be learned is given back. Fails with a diagnostic
/// that names the first site.
mlir::FailureOr<equant::PlanAttr>
withLearnedTable(const ModelConstants &constants, llvm::ArrayRef<WeightToLearn> weights,
                 equant::PlanAttr plan, std::span<const float> meanSquares, unsigned threads);

} // namespace easyquant::methods

#endif // EASYQUANT_METHODS_LEARNEDTABLES_H
