//===- MeasureBounds.cpp - Errors of a model beside their bounds ----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All samples go through the float layers, one layer after the other; the first few also through
// the quantized layers, from the exact hidden states h and from those of the quantized prefix, g.
// With Q a quantized layer, L the float one, and the largest element of a difference as its size,
//
//      |Q(g) - L(h)|  <=  |Q(h) - L(h)| + |Q(g) - Q(h)|  =  local error + gain |g - h|
//
// whose gain |Q(g) - Q(h)| / |g - h| is measured on this text: a gain for all texts would need the
// norms of all Jacobians, and attention has none that is finite. The bound behind a layer is what
// numerics::compoundedErrors makes of the gains and local errors up to it.
//
//===----------------------------------------------------------------------===//

#include "FloatRun.h"
#include "QuantizedLayer.h"
#include "SiteBounds.h"

#include "easyquant/Calibration/Passes.h"
#include "easyquant/Dialect/Equant/Transforms/FoldScale.h"
#include "easyquant/Execution/SubgraphPass.h"
#include "easyquant/Numerics/Metrics.h"
#include "easyquant/Support/ProgressAction.h"
#include "easyquant/Support/WriteFile.h"

#include "llvm/ADT/SetVector.h"

namespace easyquant::calibration {
#define GEN_PASS_DEF_MEASUREBOUNDS
#include "easyquant/Calibration/Passes.h.inc"
} // namespace easyquant::calibration

using namespace mlir;
using namespace easyquant;
using namespace easyquant::calibration;
using equant::FoldPoint;
using equant::QuantizableOpInterface;
using numerics::ConstMatrix;
using numerics::Matrix;

namespace {

struct MeasureBounds : SubgraphPass<calibration::impl::MeasureBoundsBase<MeasureBounds>> {
  using SubgraphPass::SubgraphPass;
  LogicalResult run() override;
};

/// Hidden states of one sample, by sample.
using SampleRows = std::vector<std::vector<float>>;

class Measurement {
public:
  Measurement(LayerRunner &runner, int64_t samples, int64_t rows, unsigned threads)
      : runner(runner), model(runner, samples, rows),
        sites(runner.constants(), runner.tokens().samples(), threads, report) {}

  LogicalResult run(ModuleOp module, llvm::function_ref<void(int64_t)> progress);
  Json::Object takeReport();

private:
  LogicalResult runLayer(func::FuncOp layer, ArrayRef<const FoldPoint *> points);
  LogicalResult runQuantized(func::FuncOp layer, SampleRows &local, SampleRows &grown);
  void addGrowth(const SampleRows &local, const SampleRows &grown);
  LogicalResult runHead(ModuleOp module);
  LogicalResult addSites(ArrayRef<SiteGroup> groups);

  LayerRunner &runner;
  FloatRun model;
  SampleRows prefix; ///< behind the layers so far, all of them quantized
  Growth growth;
  BoundsReport report;
  SiteBounds sites;
};

} // namespace

/// The greatest difference of two lists of rows.
static double largestDifference(ConstMatrix a, ConstMatrix b) {
  double largest = 0;
  for (int64_t r = 0; r < a.rows; ++r)
    largest = std::max(largest, numerics::maxAbsError(a.row(r), b.row(r), a.columns));
  return largest;
}

/// Takes the hidden states of the float model and those of the prefix through the quantized layer,
/// before the float layer replaces the former.
LogicalResult Measurement::runQuantized(func::FuncOp layer, SampleRows &local, SampleRows &grown) {
  FailureOr<QuantizedLayer> quantized = QuantizedLayer::create(runner, layer);
  if (failed(quantized))
    return failure();
  for (int64_t i = 0; i < model.samples(); ++i) {
    const ConstMatrix exact = model.hiddenStates(i);
    auto through = [&](ConstMatrix from, std::vector<float> &to) {
      to.resize(from.rows * from.columns);
      return quantized->run(i, from, Matrix(to.data(), from.rows, from.columns));
    };
    Result<void> done = through(exact, local.emplace_back());
    if (done)
      done = through({prefix[i].data(), exact.rows, exact.columns}, grown.emplace_back());
    if (!done)
      return emitError(layer.getLoc()) << done.error().message;
  }
  return success();
}

void Measurement::addGrowth(const SampleRows &local, const SampleRows &grown) {
  double localError = 0, error = 0, stretched = 0;
  for (int64_t i = 0; i < model.samples(); ++i) {
    const ConstMatrix exact = model.hiddenStates(i);
    auto counted = [&](const std::vector<float> &rows) {
      return model.counted({rows.data(), exact.rows, exact.columns});
    };
    localError = std::max(localError, largestDifference(counted(local[i]), model.counted(exact)));
    error = std::max(error, largestDifference(counted(grown[i]), model.counted(exact)));
    stretched = std::max(stretched, largestDifference(counted(grown[i]), counted(local[i])));
  }
  const double before = growth.measured.empty() ? 0 : growth.measured.back();
  growth.measured.push_back(error);
  growth.local.push_back(localError);
  growth.gain.push_back(before > 0 ? stretched / before : 0);
}

LogicalResult Measurement::addSites(ArrayRef<SiteGroup> groups) {
  for (const SiteGroup &group : groups) {
    const ActivationSummary &activation = model.summary(group.activation);
    sites.addSampling(group, activation);
    if (failed(sites.addLinears(group, activation)))
      return failure();
  }
  return success();
}

LogicalResult Measurement::runLayer(func::FuncOp layer, ArrayRef<const FoldPoint *> points) {
  SampleRows local, grown;
  if (failed(runQuantized(layer, local, grown)))
    return failure();

  SmallVector<SiteGroup> groups = siteGroups(layer);
  llvm::SetVector<Value> observed;
  for (const SiteGroup &group : groups)
    observed.insert(group.activation);
  for (const FoldPoint *point : points)
    observed.insert(point->activation);
  lm::AttentionOp attention;
  layer.walk([&](lm::AttentionOp op) { attention = op; });
  if (failed(model.run(layer, layer.getArgument(0), layer.front().getTerminator()->getOperand(0),
                       observed.getArrayRef(), attention)))
    return failure();

  const int64_t index = std::ssize(growth.measured);
  addGrowth(local, grown);
  prefix = std::move(grown);
  if (attention && failed(sites.addCache(attention, index, model.cachedRows())))
    return failure();
  if (failed(addSites(groups)))
    return failure();
  for (const FoldPoint *point : points)
    if (failed(sites.addSmoothing(*point, model.summary(point->activation))))
      return failure();
  return success();
}

/// What is behind the layers: sites of @forward itself.
LogicalResult Measurement::runHead(ModuleOp module) {
  func::FuncOp forward;
  Value last;
  func::FuncOp layer = runner.layers().back();
  module.walk([&](func::CallOp call) {
    if (call.getCallee() == layer.getSymName()) {
      last = call.getResult(0);
      forward = call->getParentOfType<func::FuncOp>();
    }
  });
  SmallVector<SiteGroup> groups = siteGroups(forward);
  if (groups.empty())
    return success();
  SmallVector<Value> observed;
  for (const SiteGroup &group : groups) {
    observed.push_back(group.activation);
    for (const PlannedSite &site : group.sites)
      if (failed(checkRoundsToNearest(site)))
        return failure();
  }
  if (failed(model.run(forward, last, /*output=*/Value(), observed, lm::AttentionOp())))
    return failure();
  return addSites(groups);
}

/// By layer: where factors could go on activations that a plan quantizes.
static llvm::DenseMap<Operation *, SmallVector<const FoldPoint *>>
smoothablePoints(ArrayRef<FoldPoint> points) {
  auto isQuantized = [](QuantizableOpInterface op) {
    equant::PlanAttr plan = equant::getPlan(op);
    return plan && plan.getInput();
  };
  llvm::DenseMap<Operation *, SmallVector<const FoldPoint *>> pointsOf;
  for (const FoldPoint &point : points)
    if (point.producer && llvm::any_of(point.readers, isQuantized))
      pointsOf[QuantizableOpInterface(point.readers.front())->getParentOp()].push_back(&point);
  return pointsOf;
}

LogicalResult Measurement::run(ModuleOp module, llvm::function_ref<void(int64_t)> progress) {
  if (failed(model.start()))
    return failure();
  for (int64_t i = 0; i < model.samples(); ++i) {
    Matrix rows = model.hiddenStates(i);
    prefix.emplace_back(rows.data, rows.data + rows.rows * rows.columns);
  }
  SmallVector<FoldPoint> points = equant::findFoldPoints(module);
  auto pointsOf = smoothablePoints(points);
  for (auto [index, layer] : llvm::enumerate(runner.layers())) {
    progress(index);
    if (failed(runLayer(layer, pointsOf.lookup(layer))))
      return failure();
  }
  return runHead(module);
}

Json::Object Measurement::takeReport() {
  report.addLayers(growth);
  return report.take(Json::Object{{"format", "easyquant-bounds"},
                                  {"format_version", 1},
                                  {"samples", model.samples()},
                                  {"all_samples", runner.tokens().samples()},
                                  {"rows", model.pickedRows()},
                                  {"risk", kSamplingRisk}});
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

LogicalResult MeasureBounds::run() {
  ModuleOp module = getOperation();
  auto fail = [&](const Twine &message) { return emitError(module.getLoc()) << message; };
  if (tokensFile.empty())
    return fail("equant-measure-bounds needs calibration tokens: give tokens=FILE");
  if (output.empty())
    return fail("option output is missing: the JSON file to write");
  if (samples < 1 || rows < 1)
    return fail("samples and rows must be at least 1, found ")
           << samples.getValue() << " and " << rows.getValue();
  auto isPlanned = [](QuantizableOpInterface op) {
    return equant::getPlan(op) ? WalkResult::interrupt() : WalkResult::advance();
  };
  if (!module.walk(isPlanned).wasInterrupted())
    return fail("no site has a plan: run equant-absmax or another pass that plans first");
  FailureOr<ModelConstants> constants = ModelConstants::open(module);
  if (failed(constants))
    return failure();
  auto tokens =
      CalibrationTokens::read(tokensFile.getValue(), constants->source().config().vocabSize);
  if (!tokens)
    return fail(tokens.error().message);
  EngineOptions engine;
  engine.threads = threads;
  FailureOr<LayerRunner> runner = LayerRunner::create(module, *tokens, engine);
  if (failed(runner))
    return failure();
  const int64_t layers = static_cast<int64_t>(runner->layers().size());
  Measurement measurement(*runner, samples, rows, threads);
  if (failed(measurement.run(
          module, [&](int64_t i) { ProgressAction::report(&getContext(), "bounds", i, layers); })))
    return failure();
  ProgressAction::report(&getContext(), "bounds", layers, layers);
  const Json report = measurement.takeReport();
  if (auto done = writeFile(output.getValue(), report.document()); !done)
    return fail(done.error().message);
  markAllAnalysesPreserved();
  return success();
}
