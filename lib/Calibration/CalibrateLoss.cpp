//===- CalibrateLoss.cpp - What errors of weights cost a model ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "WalkStamp.h"

#include "easyquant/Calibration/Passes.h"
#include "easyquant/Execution/LossGradients.h"
#include "easyquant/Execution/LossHessians.h"
#include "easyquant/Execution/SampleSum.h"
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
using Rows = TrainedLayer::Rows;

namespace {

struct CalibrateLoss : SubgraphPass<calibration::impl::CalibrateLossBase<CalibrateLoss>> {
  using SubgraphPass::SubgraphPass;
  LogicalResult run() override;

private:
  LogicalResult runLayer(LossGradients &gradients, const Ranks &ranks, const LayerRunner &runner,
                         std::vector<FoundTensor> &found);
  LogicalResult fail(const Error &error) {
    return emitError(getOperation().getLoc()) << error.message;
  }
};

} // namespace

static FoundTensor squareTensor(std::string name, const std::vector<float> &values) {
  const auto size =
      static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(values.size()))));
  auto bytes = std::as_bytes(std::span(values));
  return {{std::move(name)}, formats::DType::F32, {size, size}, {bytes.begin(), bytes.end()}};
}

LogicalResult CalibrateLoss::runLayer(LossGradients &gradients, const Ranks &ranks,
                                      const LayerRunner &runner, std::vector<FoundTensor> &found) {
  func::FuncOp layer = runner.layers()[gradients.next()];
  SmallVector<equant::QuantizableOpInterface> sites;
  layer.walk([&](equant::QuantizableOpInterface op) { sites.push_back(op); });
  SmallVector<Value> weights = llvm::map_to_vector(
      sites, [](equant::QuantizableOpInterface op) { return op.getWeightOperand().get(); });
  SampleSum<LossHessians> sum(ranks, runner.tokens(),
                              [&] { return LossHessians(sites, /*rows=*/true); });
  if (failed(gradients.backward(weights, [&](int64_t sample, ArrayRef<Rows> rows) {
        return sum.of(sample).add(rows, threads);
      })))
    return failure();
  Result<LossHessians> hessians = sum.finish();
  if (!hessians)
    return fail(hessians.error());
  for (auto [i, site] : llvm::enumerate(sites)) {
    Result<LossHessians::Pair> pair = hessians->take(i);
    if (!pair)
      return fail(pair.error());
    found.push_back(squareTensor(site.getSite().str() + "/loss_inputs", pair->inputs));
    found.push_back(squareTensor(site.getSite().str() + "/loss_outputs", pair->outputs));
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
  (*stamp)["statistics"] = "loss";
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
    std::vector<FoundTensor> found;
    if (failed(runLayer(*gradients, ranks, *runner, found)))
      return failure();
    if (auto kept = journal->record(step, found, gradients->slopes()); !kept)
      return fail(kept.error());
  }
  if (auto written = journal->merge(steps, statistics.getValue(), *stamp); !written)
    return fail(written.error());
  journal->remove(steps);
  ProgressAction::report(&getContext(), "calibrate", total, total);
  return success();
}
