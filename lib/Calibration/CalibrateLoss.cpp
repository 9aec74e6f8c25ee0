//===- CalibrateLoss.cpp - What errors of weights cost a model ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "WalkStamp.h"

#include "easyquant/Calibration/Passes.h"
#include "easyquant/Execution/LossStatistics.h"
#include "easyquant/Execution/SubgraphPass.h"
#include "easyquant/Support/ProgressAction.h"
#include "easyquant/Weights/ConstantTensors.h"

namespace easyquant::calibration {
#define GEN_PASS_DEF_CALIBRATELOSS
#include "easyquant/Calibration/Passes.h.inc"
} // namespace easyquant::calibration

using namespace mlir;
using namespace easyquant;
using namespace easyquant::calibration;

namespace {

struct CalibrateLoss : SubgraphPass<calibration::impl::CalibrateLossBase<CalibrateLoss>> {
  using SubgraphPass::SubgraphPass;
  LogicalResult run() override;

private:
  LogicalResult runLayer(LossGradients &gradients, const Ranks &ranks, const LayerRunner &runner,
                         std::vector<FoundTensor> &tensors);
  LogicalResult fail(const Error &error) {
    return emitError(getOperation().getLoc()) << error.message;
  }
};

} // namespace

static FoundTensor found(LossTensor tensor) {
  FoundTensor kept{{std::move(tensor.name)}, formats::DType::F32, std::move(tensor.shape), {}};
  if (std::holds_alternative<std::vector<int64_t>>(tensor.values))
    kept.dtype = formats::DType::I64;
  std::visit(
      [&](const auto &values) {
        auto bytes = std::as_bytes(std::span(values));
        kept.bytes.assign(bytes.begin(), bytes.end());
      },
      tensor.values);
  return kept;
}

/// The statistics are of the model as it is; who reads them takes them to another basis.
static LogicalResult checkIsPlain(equant::QuantizableOpInterface site) {
  Operation *weight = site.getWeightOperand().get().getDefiningOp();
  if (!weight || weight->getNumOperands() == 0)
    return success();
  return emitError(site.getLoc()) << "site '" << site.getSite() << "': its weight has gone through "
                                  << weight->getName()
                                  << "; run equant-calibrate-loss before what transforms weights";
}

LogicalResult CalibrateLoss::runLayer(LossGradients &gradients, const Ranks &ranks,
                                      const LayerRunner &runner,
                                      std::vector<FoundTensor> &tensors) {
  func::FuncOp layer = runner.layers()[gradients.next()];
  SmallVector<equant::QuantizableOpInterface> sites;
  layer.walk([&](equant::QuantizableOpInterface op) { sites.push_back(op); });
  FailureOr<LayerLoss> losses = gatherLoss(gradients, ranks, runner, sites, {}, threads);
  if (failed(losses))
    return failure();
  for (auto [i, site] : llvm::enumerate(sites)) {
    FailureOr<std::vector<LossTensor>> own = tensorsOf(site, i, *losses);
    if (failed(own))
      return failure();
    for (LossTensor &tensor : *own)
      tensors.push_back(found(std::move(tensor)));
  }
  return success();
}

LogicalResult CalibrateLoss::run() {
  ModuleOp module = getOperation();
  const Ranks ranks = Ranks::of(&getContext());
  FailureOr<ModelConstants> constants = ModelConstants::open(module);
  if (failed(constants))
    return failure();
  if (tokensFile.empty() || statistics.empty())
    return emitError(module.getLoc())
           << getArgument()
           << " needs tokens=FILE, of calibration tokens, and statistics=FILE to write";
  WalkResult plain = module.walk([](equant::QuantizableOpInterface site) {
    return failed(checkIsPlain(site)) ? WalkResult::interrupt() : WalkResult::advance();
  });
  if (plain.wasInterrupted())
    return failure();
  Result<CalibrationTokens> tokens = CalibrationTokens::readOnAll(
      ranks, tokensFile.getValue(), constants->source().config().vocabSize);
  if (!tokens)
    return fail(tokens.error());
  tokens->keepPart(ranks.rank(), ranks.size());
  EngineOptions options;
  options.threads = threads;
  FailureOr<LayerRunner> runner = LayerRunner::create(module, *tokens, options);
  if (failed(runner))
    return failure();
  FailureOr<Stamp> stamp = walkStamp(module, *runner, ranks);
  FailureOr<std::string> work = equant::getWorkFolder(module, workFolder);
  if (failed(stamp) || failed(work))
    return failure();
  (*stamp)["statistics"] = "loss 3";
  FailureOr<std::optional<Journal>> journalOrDone =
      openJournal(module, *runner, ranks, statistics.getValue(), *work, *stamp);
  if (failed(journalOrDone))
    return failure();
  std::optional<Journal> &journal = *journalOrDone;
  if (!journal)
    return success();
  const auto steps = static_cast<int64_t>(runner->layers().size());
  int64_t done = 0, total = 0; // samples that have gone through a subgraph
  runner->onSample = [&] {
    ProgressAction::report(&getContext(), "calibrate", std::min(++done, total - 1), total);
  };
  // Forward through the embedding and every layer, then back.
  total = (2 * steps + 1 - journal->next()) * tokens->samples();
  FailureOr<LossGradients> gradients = LossGradients::create(*runner, threads);
  if (failed(gradients))
    return failure();
  if (journal->next() != 0) {
    if (auto read = journal->readStates(gradients->slopes()); !read)
      return fail(read.error());
    gradients->skip(journal->next());
  }
  for (int64_t step = journal->next(); step < steps; ++step) {
    std::vector<FoundTensor> tensors;
    if (failed(runLayer(*gradients, ranks, *runner, tensors)))
      return failure();
    if (auto kept = journal->record(step, tensors, gradients->slopes()); !kept)
      return fail(kept.error());
  }
  if (auto written = journal->merge(steps, statistics.getValue(), *stamp); !written)
    return fail(written.error());
  journal->remove(steps);
  ProgressAction::report(&getContext(), "calibrate", total, total);
  return success();
}
