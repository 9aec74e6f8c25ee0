//===- FloatPrefix.cpp - Layers trained on what the float model has them see ===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FloatPrefix.h"

#include "ExpertInputs.h"

#include "easyquant/Execution/ExpertRows.h"
#include "easyquant/Execution/TrainedLayer.h"
#include "easyquant/Support/ProgressAction.h"

#include <algorithm>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::methods;
using formats::ComputedConstants;
using numerics::ConstMatrix;

namespace {

/// A compiled layer on the hidden states before it.
class HiddenLayer : public numerics::DifferentiableLayer {
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

namespace {
/// What training a layer brought: the error of its output on held-out samples.
struct Gain {
  double before, after;
};
} // namespace

/// Says once for all layers how much of their errors training has left.
static void report(MethodRun &run, ModuleOp module, StringRef method, ArrayRef<int64_t> layers,
                   ArrayRef<Gain> gains) {
  auto left = [](const Gain &gain) { return gain.before > 0 ? gain.after / gain.before : 1; };
  auto [least, most] = std::minmax_element(gains.begin(), gains.end(),
                                           [&](auto &a, auto &b) { return left(a) < left(b); });
  auto describe = [&](const Gain *gain) {
    func::FuncOp layer = run.layer(layers[gain - gains.begin()]);
    return fmt::format("{:.3g} before, {:.3g} after in '{}'", gain->before, gain->after,
                       layer.getSymName().str());
  };
  emitRemark(module.getLoc()) << method << ": error of the output of " << layers.size()
                              << " layers on held-out samples, from " << describe(least) << " to "
                              << describe(most);
}

static FailureOr<Gain> trainLayer(LayerRunner &runner, func::FuncOp layer,
                                  ArrayRef<PlannedSite> sites, const HiddenStates &before,
                                  const HiddenStates &after, const ComputedConstants &work,
                                  LayerTrainer train, QuantizedWeights &codes) {
  SmallVector<Value> weights =
      llvm::map_to_vector(sites, [](const PlannedSite &site) { return site.weight(); });
  FailureOr<TrainedLayer> compiled = TrainedLayer::create(runner.compiler(), layer, weights);
  if (failed(compiled) || failed(compiled->load(runner.constants())))
    return failure();
  std::vector<numerics::TrainedSite> trained;
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
  auto result = train(hidden, trained, targets);
  if (!result)
    return emitError(layer.getLoc())
           << "function '" << layer.getSymName() << "': " << result.error().message;
  for (auto [weight, quantized] : llvm::zip_equal(weights, result->weights))
    codes[weight] = std::move(quantized);
  return Gain{result->before, result->after};
}

/// Gives every rank the layers that the others have trained. Collective.
static LogicalResult shareLayers(MethodRun &run, ArrayRef<int64_t> layers,
                                 std::vector<Gain> &gains) {
  const Ranks &ranks = run.ranks();
  Result<std::vector<Bytes>> gathered = ranks.gather(bytesOf(gains));
  if (!gathered)
    return run.fail(gathered.error());
  for (auto [turn, layer] : llvm::enumerate(layers)) {
    const int trainer = ranks.inTurn(turn);
    if (trainer != ranks.rank()) {
      std::vector<Gain> theirs;
      ByteReader reader((*gathered)[trainer]);
      reader(theirs);
      gains[turn] = theirs.at(turn);
    }
    if (!run.has(layer))
      return run.fail({ErrorCode::IO,
                       fmt::format("rank {} did not give its file {}", trainer, run.file(layer))});
  }
  return success();
}

/// Takes `states` through the layer; the rows that choose experts of it.
static FailureOr<ExpertRows> runLayer(LayerRunner &runner, func::FuncOp layer,
                                      HiddenStates &states) {
  FailureOr<ExpertCounts> counts = runCounting(runner, layer, states);
  if (failed(counts))
    return failure();
  ExpertRows rows;
  SmallVector<Mixture> mixtures = mixturesOf(layer);
  for (auto [mixture, ofSamples] : llvm::zip_equal(mixtures, *counts))
    for (lm::LinearOp linear : mixture) {
      std::vector<int32_t> &sums = rows[linear.getWeight()];
      sums.resize(lm::expertCount(linear.getExperts()));
      for (auto [i, count] : llvm::enumerate(ofSamples))
        sums[i % sums.size()] += count;
    }
  return rows;
}

LogicalResult easyquant::methods::trainLayers(ModuleOp module, MethodRun &run, StringRef method,
                                              LayerTrainer train) {
  LayerRunner &runner = run.runner();
  SmallVector<int64_t> layers; ///< that are not trained yet
  for (int64_t i = 0; i < run.layerCount(); ++i)
    if (!sitesNaming(run.layer(i), method).empty() && !run.has(i))
      layers.push_back(i);
  if (!layers.empty()) {
    FailureOr<HiddenStates> before = runner.embed(), after = runner.allocate();
    if (failed(before) || failed(after))
      return failure();
    std::vector<Gain> gains(layers.size());
    // Each rank takes the float model through all layers, which is cheap, and trains its own.
    for (int64_t i = 0; i <= layers.back(); ++i) {
      ProgressAction::report(module.getContext(), method, i, run.layerCount());
      numerics::Matrix in = before->all(), out = after->all();
      std::copy_n(in.data, in.rows * in.columns, out.data);
      FailureOr<ExpertRows> rows = runLayer(runner, run.layer(i), *after);
      if (failed(rows))
        return failure();
      const auto turn = static_cast<size_t>(llvm::find(layers, i) - layers.begin());
      if (turn < layers.size() && run.ranks().inTurn(turn) == run.ranks().rank()) {
        SmallVector<PlannedSite> sites = sitesNaming(run.layer(i), method);
        QuantizedWeights codes;
        FailureOr<Gain> gain =
            trainLayer(runner, run.layer(i), sites, *before, *after, run.work(), train, codes);
        if (failed(gain))
          return failure();
        gains[turn] = *gain;
        if (auto done = writeRounded(run.work(), run.file(i), run.stamp(i), sites, codes, *rows);
            !done)
          return run.fail(done.error());
      }
      std::swap(*before, *after);
    }
    if (failed(shareLayers(run, layers, gains)))
      return failure();
    report(run, module, method, layers, gains);
  }
  ProgressAction::report(module.getContext(), method, run.layerCount(), run.layerCount());
  SparseExperts untrained(method, SparseOutcome::Untrained);
  for (int64_t i = 0; i < run.layerCount(); ++i) {
    const SmallVector<PlannedSite> sites = sitesNaming(run.layer(i), method);
    auto enough = [](const PlannedSite &) { return int64_t(1); };
    if (failed(declareRounded(module, run.work(), run.file(i), run.stamp(i), sites)) ||
        failed(untrained.add(run.work(), run.file(i), run.stamp(i), sites, enough)))
      return failure();
  }
  untrained.report(module);
  return success();
}
