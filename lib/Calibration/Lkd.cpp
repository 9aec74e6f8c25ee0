//===- Lkd.cpp - Distill layer by layer -----------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Layers see activations of the float model, and those behind a layer are what it is to give: the
// hidden states before and after it are all that distillation needs.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Lkd.h"

#include "MethodRun.h"
#include "SubgraphPass.h"

#include "easyquant/Calibration/Passes.h"
#include "easyquant/Calibration/RoundedSites.h"
#include "easyquant/Calibration/TrainedLayer.h"
#include "easyquant/Dialect/Equant/Analysis/NothingToDo.h"
#include "easyquant/Dialect/Equant/Analysis/RecipePlans.h"
#include "easyquant/Support/ProgressAction.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"

namespace easyquant::calibration {
#define GEN_PASS_DEF_LKD
#include "easyquant/Calibration/Passes.h.inc"
} // namespace easyquant::calibration

using namespace mlir;
using namespace easyquant;
using namespace easyquant::calibration;
using formats::ComputedConstants;
using numerics::ConstMatrix;

namespace {

constexpr llvm::StringLiteral kLkd = "lkd";

struct Lkd : SubgraphPass<calibration::impl::LkdBase<Lkd>> {
  using SubgraphPass::SubgraphPass;
  LogicalResult run() override;
};

} // namespace

namespace {

/// A compiled layer on the hidden states before it.
class HiddenLayer : public numerics::LkdLayer {
public:
  HiddenLayer(TrainedLayer &layer, const HiddenStates &before) : layer(layer), before(before) {}

  Result<void> setWeight(size_t site, ConstMatrix values) override {
    return layer.setWeight(layer.global(site), values);
  }
  Result<void> forward(size_t sequence, numerics::Matrix y) override {
    return layer.forward(before.sample(static_cast<int64_t>(sequence)), y);
  }
  Result<void> backward(size_t sequence, ConstMatrix dy,
                        std::span<const numerics::Matrix> gradients) override {
    return layer.backward(before.sample(static_cast<int64_t>(sequence)), dy,
                          llvm::ArrayRef(gradients.data(), gradients.size()));
  }

private:
  TrainedLayer &layer;
  const HiddenStates &before;
};

} // namespace

static LogicalResult distillLayer(LayerRunner &runner, func::FuncOp layer,
                                  ArrayRef<PlannedSite> sites, const HiddenStates &before,
                                  const HiddenStates &after, const numerics::LkdOptions &options,
                                  const ComputedConstants &work, QuantizedWeights &codes) {
  SmallVector<Value> weights =
      llvm::map_to_vector(sites, [](const PlannedSite &site) { return site.weight(); });
  FailureOr<TrainedLayer> compiled = TrainedLayer::create(runner.compiler(), layer, weights);
  if (failed(compiled) || failed(compiled->load(runner.constants())))
    return failure();
  std::vector<numerics::LkdSite> trained;
  for (auto [i, site] : llvm::enumerate(sites)) {
    trained.push_back({compiled->weight(compiled->global(i)), site.scheme(), site.rule()});
    if (!site.plan.getScale())
      continue;
    FailureOr<numerics::QuantizedMatrix> chosen = roundAsPlanned(work, runner.constants(), site);
    if (failed(chosen))
      return failure();
    trained.back().params = std::move(chosen->params);
  }
  std::vector<ConstMatrix> targets;
  for (int64_t i = 0; i < after.samples(); ++i)
    targets.push_back(after.sample(i));
  HiddenLayer hidden(*compiled, before);
  auto result = numerics::distill(hidden, trained, targets, options);
  if (!result)
    return emitError(layer.getLoc())
           << "function '" << layer.getSymName() << "': " << result.error().message;
  emitRemark(layer.getLoc()) << "function '" << layer.getSymName()
                             << "': error of the output on held-out samples " << result->before
                             << " before, " << result->after << " after distillation";
  for (auto [weight, quantized] : llvm::zip_equal(weights, result->weights))
    codes[weight] = std::move(quantized);
  return success();
}

LogicalResult Lkd::run() {
  ModuleOp module = getOperation();
  if (!isPlanned(module, kLkd))
    return equant::reportNotPlanned(module, getArgument(), kLkd, requireSites);
  FailureOr<MethodRun> opened =
      MethodRun::open(module, {kLkd,
                               fmt::format("lkd 2 epochs={} learning-rate={:a}", epochs.getValue(),
                                           learningRate.getValue()),
                               tokensFile, workFolder, threads});
  if (failed(opened))
    return failure();
  MethodRun &run = *opened;
  equant::recordOptions(module, optionValues(), kLkd);
  LayerRunner &runner = run.runner();
  const numerics::LkdOptions options{.epochs = epochs,
                                     .learningRate = learningRate,
                                     .skippedRows = runner.tokens().skipped(),
                                     .threads = threads};
  auto isDone = [&](int64_t i) { return sitesNaming(run.layer(i), kLkd).empty() || run.has(i); };

  if (int64_t missing = run.layersToRun(isDone)) {
    FailureOr<HiddenStates> before = runner.embed(), after = runner.allocate();
    if (failed(before) || failed(after))
      return failure();
    for (int64_t i = 0; i < missing; ++i) {
      ProgressAction::report(&getContext(), kLkd, i, run.layerCount());
      numerics::Matrix in = before->all(), out = after->all();
      std::copy_n(in.data, in.rows * in.columns, out.data);
      if (failed(runner.runLayer(i, *after)))
        return failure();
      if (!isDone(i)) {
        SmallVector<PlannedSite> sites = sitesNaming(run.layer(i), kLkd);
        QuantizedWeights codes;
        if (failed(distillLayer(runner, run.layer(i), sites, *before, *after, options, run.work(),
                                codes)))
          return failure();
        if (auto done = writeRounded(run.work(), run.file(i), run.stamp(i), sites, codes); !done)
          return run.fail(done.error());
      }
      std::swap(*before, *after);
    }
  }
  ProgressAction::report(&getContext(), kLkd, run.layerCount(), run.layerCount());
  for (int64_t i = 0; i < run.layerCount(); ++i)
    if (failed(declareRounded(module, run.work(), run.file(i), run.stamp(i),
                              sitesNaming(run.layer(i), kLkd))))
      return failure();
  return success();
}
