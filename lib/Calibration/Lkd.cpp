//===- Lkd.cpp - Distill layer by layer -----------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FloatPrefix.h"

#include "easyquant/Calibration/Passes.h"
#include "easyquant/Calibration/SubgraphPass.h"
#include "easyquant/Dialect/Equant/Analysis/NothingToDo.h"
#include "easyquant/Dialect/Equant/Analysis/RecipePlans.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"

namespace easyquant::calibration {
#define GEN_PASS_DEF_LKD
#include "easyquant/Calibration/Passes.h.inc"
} // namespace easyquant::calibration

using namespace mlir;
using namespace easyquant;
using namespace easyquant::calibration;

namespace {

constexpr llvm::StringLiteral kLkd = "lkd";

struct Lkd : SubgraphPass<calibration::impl::LkdBase<Lkd>> {
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
