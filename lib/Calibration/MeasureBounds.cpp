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

#include "BoundsReport.h"
#include "QuantizedLayer.h"

#include "easyquant/Calibration/Passes.h"
#include "easyquant/Dialect/Equant/Transforms/FoldScale.h"
#include "easyquant/Numerics/Metrics.h"
#include "easyquant/Support/ProgressAction.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

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
namespace json = llvm::json;

namespace {

/// Floats of a weight that are in memory at a time, where its scheme allows to cut it.
constexpr int64_t kChunkFloats = int64_t(1) << 22;
/// What Hoeffding's bound may fail with.
constexpr double kRisk = 0.05;
/// Scales of the mean over samples are those of int8 activations.
constexpr numerics::CodeRange kInputCodes = numerics::codeRange(8, /*symmetric=*/true);

struct MeasureBounds : calibration::impl::MeasureBoundsBase<MeasureBounds> {
  using MeasureBoundsBase::MeasureBoundsBase;
  void runOnOperation() override {
    if (failed(run()))
      signalPassFailure();
  }
  LogicalResult run();
  void getDependentDialects(DialectRegistry &registry) const override {
    MeasureBoundsBase::getDependentDialects(registry);
    SliceCompiler::getDependentDialects(registry);
  }
};

/// What is gathered of an activation that sites read.
struct Activation {
  explicit Activation(int64_t columns) : peaks(columns), moments(columns) {}
  numerics::AbsMax peaks;
  numerics::Moments moments;
  std::vector<double> scales; ///< of each sample by itself
  std::vector<float> picked;  ///< rows on which outputs are compared
};

class Measurement {
public:
  Measurement(LayerRunner &runner, int64_t samples, int64_t rows, unsigned threads)
      : runner(runner), samples(std::min(samples, runner.tokens().samples())), threads(threads),
        order(randomOrder(runner.tokens().samples())) {
    pickTokens(rows);
  }

  LogicalResult run(ModuleOp module, llvm::function_ref<void(int64_t)> progress);
  json::Object takeReport();

private:
  void pickTokens(int64_t rows);
  LogicalResult runLayer(int64_t index, ArrayRef<const FoldPoint *> points);
  LogicalResult runHead(ModuleOp module);
  /// Takes all samples from `input` through `function` to its values; `output` replaces the states.
  LogicalResult runFloat(func::FuncOp function, Value input, Value output,
                         lm::AttentionOp attention, ArrayRef<Value> observed);
  LogicalResult seeCache(lm::AttentionOp attention, ArrayRef<std::vector<float>> keys,
                         ArrayRef<std::vector<float>> values);
  LogicalResult seeSites(const SiteGroup &group, Activation &activation);
  LogicalResult seeSmoothing(const FoldPoint &point);
  void seeSampling(const SiteGroup &group);
  LogicalResult visitRows(QuantizableOpInterface op, bool whole,
                          llvm::function_ref<Result<void>(ConstMatrix)> visit);
  /// The rows of a sample that count.
  ConstMatrix counted(ConstMatrix rows) const {
    const int64_t skipped = runner.tokens().skipped();
    return rows.middleRows(skipped, rows.rows - skipped);
  }
  LogicalResult fail(Location loc, const Error &error) { return emitError(loc) << error.message; }

  LayerRunner &runner;
  int64_t samples;
  unsigned threads;
  std::vector<int64_t> order;
  std::vector<std::vector<int64_t>> picks;        ///< by sample: rows on which outputs are compared
  std::optional<HiddenStates> states;             ///< of the float model
  std::vector<std::vector<float>> prefix;         ///< of the quantized one, by sample
  llvm::MapVector<Value, Activation> activations; ///< of the layer at hand
  Growth growth;
  BoundsReport report;
};

} // namespace

static BoundsReport::Sites namesOf(const SiteGroup &group) {
  BoundsReport::Sites names;
  for (const PlannedSite &site : group.sites)
    names.push_back(site.name());
  return names;
}

/// The greatest difference of two lists of rows of samples, over rows that count.
static double largestDifference(ConstMatrix a, ConstMatrix b) {
  double largest = 0;
  for (int64_t r = 0; r < a.rows; ++r)
    largest = std::max(largest, numerics::maxAbsError(a.row(r), b.row(r), a.columns));
  return largest;
}

void Measurement::pickTokens(int64_t rows) {
  const CalibrationTokens &tokens = runner.tokens();
  std::vector<std::pair<int64_t, int64_t>> all;
  for (int64_t i = 0; i < samples; ++i)
    for (int64_t r = tokens.skipped(); r < static_cast<int64_t>(tokens.sample(i).size()); ++r)
      all.emplace_back(i, r);
  const int64_t count = static_cast<int64_t>(all.size());
  picks.resize(samples);
  for (int64_t j = 0; j < std::min(rows, count); ++j) {
    auto [sample, row] = all[j * count / std::min(rows, count)];
    picks[sample].push_back(row);
  }
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

LogicalResult Measurement::runFloat(func::FuncOp function, Value input, Value output,
                                    lm::AttentionOp attention, ArrayRef<Value> observed) {
  activations.clear();
  llvm::SetVector<Value> wanted(observed.begin(), observed.end());
  for (Value value : observed)
    activations.insert({value, Activation(lm::columns(value))});
  if (attention) {
    wanted.insert(attention.getKey());
    wanted.insert(attention.getValue());
  }
  if (output)
    wanted.insert(output);
  Slice slice{{input}, llvm::to_vector(wanted)};
  slice.observers = false;
  FailureOr<SliceProgram> program = runner.compiler().compile(slice);
  if (failed(program) || failed(program->load(runner.constants())))
    return failure();
  std::vector<std::vector<float>> keys, values;
  for (int64_t i = 0; i < runner.tokens().samples(); ++i) {
    Matrix in = states->sample(i);
    std::vector<std::vector<float>> memory;
    SmallVector<Matrix> made;
    for (Value value : wanted) {
      const int64_t columns = lm::columns(value);
      made.push_back({memory.emplace_back(in.rows * columns).data(), in.rows, columns});
    }
    if (auto done = runner.runSample(*program, function.getSymName(), i, ConstMatrix(in), made);
        !done)
      return fail(function.getLoc(), done.error());
    for (auto [value, rows, kept] : llvm::zip_equal(wanted, made, memory)) {
      if (auto it = activations.find(value); it != activations.end()) {
        Activation &activation = it->second;
        numerics::AbsMax peak(rows.columns);
        Result<void> done = peak.update(counted(rows));
        if (done)
          done = activation.moments.update(counted(rows));
        if (!done)
          return fail(function.getLoc(), done.error());
        activation.peaks.merge(peak);
        activation.scales.push_back(numerics::scaleFromAbsMax(peak.tensor(), kInputCodes.max));
        if (i < samples)
          for (int64_t row : picks[i])
            activation.picked.insert(activation.picked.end(), rows.row(row),
                                     rows.row(row) + rows.columns);
      }
      if (value == output)
        std::copy_n(rows.data, rows.rows * rows.columns, in.data);
      if (attention && i < samples && value == attention.getKey())
        keys.push_back(kept);
      if (attention && i < samples && value == attention.getValue())
        values.push_back(kept);
    }
  }
  return attention ? seeCache(attention, keys, values) : success();
}

LogicalResult Measurement::runLayer(int64_t index, ArrayRef<const FoldPoint *> points) {
  func::FuncOp layer = runner.layers()[index];
  std::vector<std::vector<float>> local(samples), grown(samples);
  {
    FailureOr<QuantizedLayer> quantized = QuantizedLayer::create(runner, layer);
    if (failed(quantized))
      return failure();
    for (int64_t i = 0; i < samples; ++i) {
      Matrix exact = states->sample(i);
      auto through = [&](ConstMatrix from, std::vector<float> &to) {
        to.resize(from.rows * from.columns);
        return quantized->run(i, from, Matrix(to.data(), from.rows, from.columns));
      };
      Result<void> done = through(exact, local[i]);
      if (done)
        done = through(Matrix(prefix[i].data(), exact.rows, exact.columns), grown[i]);
      if (!done)
        return fail(layer.getLoc(), done.error());
    }
  }

  SmallVector<SiteGroup> groups = siteGroups(layer);
  llvm::SetVector<Value> observed;
  for (const SiteGroup &group : groups)
    observed.insert(group.activation);
  for (const FoldPoint *point : points)
    observed.insert(point->activation);
  lm::AttentionOp attention;
  layer.walk([&](lm::AttentionOp op) { attention = op; });
  if (failed(runFloat(layer, layer.getArgument(0), layer.front().getTerminator()->getOperand(0),
                      attention, observed.getArrayRef())))
    return failure();

  double localError = 0, error = 0, stretched = 0;
  for (int64_t i = 0; i < samples; ++i) {
    Matrix exact = states->sample(i);
    auto view = [&](std::vector<float> &rows) {
      return counted(ConstMatrix(rows.data(), exact.rows, exact.columns));
    };
    localError = std::max(localError, largestDifference(view(local[i]), counted(exact)));
    error = std::max(error, largestDifference(view(grown[i]), counted(exact)));
    stretched = std::max(stretched, largestDifference(view(grown[i]), view(local[i])));
  }
  const double before = growth.measured.empty() ? 0 : growth.measured.back();
  growth.measured.push_back(error);
  growth.local.push_back(localError);
  growth.gain.push_back(before > 0 ? stretched / before : 0);
  prefix = std::move(grown);

  for (const SiteGroup &group : groups) {
    seeSampling(group);
    if (failed(seeSites(group, activations.find(group.activation)->second)))
      return failure();
  }
  for (const FoldPoint *point : points)
    if (failed(seeSmoothing(*point)))
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
  if (failed(runFloat(forward, last, /*output=*/Value(), lm::AttentionOp(), observed)))
    return failure();
  for (const SiteGroup &group : groups) {
    seeSampling(group);
    if (failed(seeSites(group, activations.find(group.activation)->second)))
      return failure();
  }
  return success();
}

LogicalResult Measurement::run(ModuleOp module, llvm::function_ref<void(int64_t)> progress) {
  FailureOr<HiddenStates> embedded = runner.embed();
  if (failed(embedded))
    return failure();
  states = std::move(*embedded);
  for (int64_t i = 0; i < samples; ++i) {
    Matrix rows = states->sample(i);
    prefix.emplace_back(rows.data, rows.data + rows.rows * rows.columns);
  }
  SmallVector<FoldPoint> points = equant::findFoldPoints(module);
  llvm::DenseMap<Operation *, SmallVector<const FoldPoint *>> pointsOf;
  for (const FoldPoint &point : points) {
    auto isQuantized = [](QuantizableOpInterface op) {
      equant::PlanAttr plan = equant::getPlan(op);
      return plan && plan.getInput();
    };
    if (point.producer && llvm::any_of(point.readers, isQuantized))
      pointsOf[QuantizableOpInterface(point.readers.front())->getParentOp()].push_back(&point);
  }
  for (auto [index, layer] : llvm::enumerate(runner.layers())) {
    progress(index);
    if (failed(runLayer(index, pointsOf.lookup(layer))))
      return failure();
  }
  return runHead(module);
}

//===----------------------------------------------------------------------===//
// Measuring
//===----------------------------------------------------------------------===//

LogicalResult Measurement::visitRows(QuantizableOpInterface op, bool whole,
                                     llvm::function_ref<Result<void>(ConstMatrix)> visit) {
  Value weight = op.getWeightOperand().get();
  auto type = cast<RankedTensorType>(weight.getType());
  const int64_t rows = type.getDimSize(0), columns = type.getDimSize(1);
  const int64_t step = whole ? rows : std::clamp<int64_t>(kChunkFloats / columns, 1, rows);
  std::vector<float> values(step * columns);
  for (int64_t first = 0; first < rows; first += step) {
    const int64_t count = std::min(step, rows - first);
    if (failed(runner.constants().readRows(weight, op.getSite(), first,
                                           std::span(values.data(), count * columns))))
      return failure();
    if (auto done = visit({values.data(), count, columns}); !done)
      return fail(op.getLoc(), done.error());
  }
  return success();
}

LogicalResult Measurement::seeSites(const SiteGroup &group, Activation &activation) {
  for (const PlannedSite &site : group.sites) {
    const bool int8 = static_cast<bool>(site.plan.getInput());
    const int64_t columns = lm::columns(group.activation);
    auto rows = QuantizedRows::make(activation.picked, columns, int8);
    if (!rows)
      return fail(site.loc(), rows.error());
    const numerics::Scheme scheme = site.scheme();
    LinearErrors errors;
    auto visit = [&](ConstMatrix weight) -> Result<void> {
      auto codes = roundToNearest(site, weight);
      if (!codes)
        return Unexpected(codes.error());
      errors.merge(measureLinear(weight, *codes, *rows, threads));
      return {};
    };
    if (failed(visitRows(site.op, scheme.granularity == numerics::Granularity::Tensor, visit)))
      return failure();
    const int64_t features = cast<RankedTensorType>(site.weight().getType()).getDimSize(0);
    report.addSite(site.name(), errors,
                   numerics::movedBytes(features, columns, scheme, int8, /*tokens=*/1));
  }
  return success();
}

LogicalResult Measurement::seeCache(lm::AttentionOp attention, ArrayRef<std::vector<float>> keys,
                                    ArrayRef<std::vector<float>> values) {
  const int64_t headDim = attention.getHeadDim(), columns = lm::columns(attention.getKey());
  const int64_t layer = static_cast<int64_t>(growth.measured.size());
  int64_t shortest = runner.tokens().maxLength();
  for (const std::vector<float> &sample : keys)
    shortest = std::min(shortest, static_cast<int64_t>(sample.size()) / columns);
  for (int bits : {8, 4, 2}) {
    auto scheme = measurableKVScheme(bits, shortest, headDim);
    if (!scheme) {
      if (layer == 0 && bits == 8)
        report.leaveOut("keys and values: " + scheme.error().message);
      return success();
    }
    CacheErrors ofKeys, ofValues;
    for (auto [k, v] : llvm::zip_equal(keys, values)) {
      const int64_t tokens = static_cast<int64_t>(k.size()) / columns;
      auto done = ofKeys.seeKeys({k.data(), tokens, columns}, *scheme, headDim);
      if (done)
        done = ofValues.seeValues({v.data(), tokens, columns}, *scheme, headDim);
      if (!done)
        return fail(attention.getLoc(), done.error());
    }
    report.addCache(layer, "keys", bits, ofKeys);
    report.addCache(layer, "values", bits, ofValues);
  }
  return success();
}

LogicalResult Measurement::seeSmoothing(const FoldPoint &point) {
  const Activation &activation = activations.find(point.activation)->second;
  equant::PlanAttr plan;
  for (QuantizableOpInterface op : point.readers)
    if (equant::PlanAttr other = equant::getPlan(op); !plan && other && other.getInput())
      plan = other;
  const numerics::Scheme scheme = plan.getWeight().toNumerics();
  const numerics::SmoothedCodes codes{.maxActivation =
                                          numerics::codeRange(plan.getInput().toNumerics()).max,
                                      .maxWeight = numerics::codeRange(scheme).max,
                                      .groupSize = scheme.groupSize};
  numerics::AbsMax peaks(point.columns());
  for (QuantizableOpInterface op : point.readers)
    if (failed(visitRows(op, false, [&](ConstMatrix rows) { return peaks.update(rows); })))
      return failure();
  std::vector<float> squares = activation.moments.variances();
  for (size_t j = 0; float mean : activation.moments.means())
    squares[j++] += mean * mean;
  Location loc = QuantizableOpInterface(point.readers.front()).getLoc();
  auto search = numerics::SmoothingSearch::create(activation.peaks.channels(), squares,
                                                  peaks.channels(), codes);
  if (!search)
    return fail(loc, search.error());
  for (QuantizableOpInterface op : point.readers)
    if (failed(visitRows(op, false, [&](ConstMatrix rows) -> Result<void> {
          search->update(rows);
          return {};
        })))
      return failure();
  BoundsReport::Sites names;
  for (StringRef site : point.sites())
    names.push_back(site.str());
  auto found = measureSmoothing(activation.peaks.channels(), peaks.channels(), *search, codes);
  if (found)
    report.addSmoothing(names, *found);
  else
    report.leaveOut("smoothing of what '" + names.front() + "' reads: " + found.error().message);
  return success();
}

void Measurement::seeSampling(const SiteGroup &group) {
  const Activation &activation = activations.find(group.activation)->second;
  report.addSampling(namesOf(group), measureSampling(activation.scales, order, kRisk));
}

json::Object Measurement::takeReport() {
  report.addLayers(growth);
  int64_t rows = 0;
  for (const std::vector<int64_t> &sample : picks)
    rows += static_cast<int64_t>(sample.size());
  return report.take(json::Object{{"format", "easyquant-bounds"},
                                  {"format_version", 1},
                                  {"samples", samples},
                                  {"all_samples", runner.tokens().samples()},
                                  {"rows", rows},
                                  {"risk", kRisk}});
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
  bool isPlanned =
      module
          .walk([](QuantizableOpInterface op) {
            return equant::getPlan(op) ? WalkResult::interrupt() : WalkResult::advance();
          })
          .wasInterrupted();
  if (!isPlanned)
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
  json::Value report(measurement.takeReport());
  if (llvm::Error error =
          llvm::writeToOutput(output.getValue(), [&](llvm::raw_ostream &os) -> llvm::Error {
            os << llvm::formatv("{0:2}\n", report);
            return llvm::Error::success();
          }))
    return fail(output.getValue() + ": " + llvm::toString(std::move(error)));
  markAllAnalysesPreserved();
  return success();
}
