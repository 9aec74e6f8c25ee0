//===- ExpertRows.h - Which experts see how much text -----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_EXECUTION_EXPERTROWS_H
#define EASYQUANT_EXECUTION_EXPERTROWS_H

#include "easyquant/Execution/LayerRunner.h"

namespace easyquant::execution {

/// A mixture of experts of a layer: its linears, whose rows one lm.route sorts.
using Mixture = llvm::SmallVector<lm::LinearOp, 3>;
llvm::SmallVector<Mixture> mixturesOf(mlir::func::FuncOp layer);

/// By mixture, for each sample of this rank the rows that chose each expert: samples x experts.
/// Rows that begin texts do not count.
using ExpertCounts = std::vector<std::vector<int32_t>>;

/// Takes `states` through the layer as LayerRunner::runLayer does, and counts. Fails with a
/// diagnostic.
mlir::FailureOr<ExpertCounts> runCounting(LayerRunner &runner, mlir::func::FuncOp layer,
                                          HiddenStates &states);

} // namespace easyquant::execution

#endif // EASYQUANT_EXECUTION_EXPERTROWS_H
