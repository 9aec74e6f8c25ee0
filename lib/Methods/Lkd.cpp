//===- Lkd.cpp - Distill layer by layer -----------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FloatPrefix.h"

#include "easyquant/Dialect/Equant/Analysis/NothingToDo.h"
#include "easyquant/Dialect/Equant/Analysis/RecipePlans.h"
#include "easyquant/Execution/SubgraphPass.h"
#include "easyquant/Methods/Passes.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"

namespace easyquant::methods {
#define GEN_PASS_DEF_LKD
#include "easyquant/Methods/Passes.h.inc"
} // namespace easyquant::methods

using namespace mlir;
using namespace easyquant;
using namespace easyquant::methods;

namespace {

constexpr llvm::StringLiteral kLkd = "lkd";

struct Lkd : SubgraphPass<methods::impl::LkdBase<Lkd>> {
  using SubgraphPass::SubgraphPass;
  LogicalResult run() override;
};

} // namespace

LogicalResult Lkd::run() {
  ModuleOp module = getOperation();
  if (!isPlanned(module, kLkd))
    return equant::reportNotPlanned(module, getArgument(), kLkd, requireSites);
  FailureOr<MethodRun> opened = MethodRun::open(
      module, {kLkd, fmt::format("2 learning-rate={:a}", learningRate.getValue()), optionValues()});
  if (failed(opened))
    return failure();
  const numerics::LkdOptions options{.epochs = epochs,
                                     .learningRate = learningRate,
                                     .skippedRows = opened->runner().tokens().skipped(),
                                     .threads = threads};
  return trainLayers(module, *opened, kLkd, [&](auto &layer, auto sites, auto targets) {
    return numerics::distill(layer, sites, targets, options);
  });
}
