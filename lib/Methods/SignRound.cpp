//===- SignRound.cpp - Learn which way weights are rounded -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FloatPrefix.h"

#include "easyquant/Execution/SubgraphPass.h"
#include "easyquant/Numerics/SignRound.h"

#include "easyquant/Dialect/Equant/Analysis/NothingToDo.h"
#include "easyquant/Dialect/Equant/Analysis/RecipePlans.h"
#include "easyquant/Methods/Passes.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"

namespace easyquant::methods {
#define GEN_PASS_DEF_SIGNROUND
#include "easyquant/Methods/Passes.h.inc"
} // namespace easyquant::methods

using namespace mlir;
using namespace easyquant;
using namespace easyquant::methods;

namespace {

constexpr llvm::StringLiteral kSignRound = "signround";
/// A step is of one sequence: more and shorter ones are more steps for the same work.
constexpr int64_t kLength = 128;
/// Their hidden states are in memory. Four times as many leave the same divergence.
constexpr int64_t kMostSequences = 64;

struct SignRound : SubgraphPass<methods::impl::SignRoundBase<SignRound>> {
  using SubgraphPass::SubgraphPass;
  LogicalResult run() override;
};

} // namespace

/// Before anything is run.
static LogicalResult checkSchemes(ModuleOp module) {
  auto check = [](equant::QuantizableOpInterface op) -> WalkResult {
    equant::PlanAttr plan = equant::getPlan(op);
    if (!plan || !plan.names(kSignRound))
      return WalkResult::advance();
    if (auto ok = numerics::checkRoundingIsLearned(plan.getWeight().toNumerics()); !ok)
      return emitError(op.getLoc()) << "site '" << op.getSite() << "': " << ok.error().message;
    return WalkResult::advance();
  };
  return failure(module.walk(check).wasInterrupted());
}

LogicalResult SignRound::run() {
  ModuleOp module = getOperation();
  if (!isPlanned(module, kSignRound))
    return equant::reportNotPlanned(module, getArgument(), kSignRound, requireSites);
  if (failed(checkSchemes(module)))
    return failure();
  FailureOr<MethodRun> opened = MethodRun::open(module, {.method = kSignRound,
                                                         .revision = "3",
                                                         .options = optionValues(),
                                                         .length = kLength,
                                                         .sequences = kMostSequences});
  if (failed(opened))
    return failure();
  const numerics::SignRoundOptions options{
      .steps = steps, .skippedRows = opened->runner().tokens().skipped(), .threads = threads};
  return trainLayers(module, *opened, kSignRound, [&](auto &layer, auto sites, auto targets) {
    return numerics::learnRounding(layer, sites, targets, options);
  });
}
