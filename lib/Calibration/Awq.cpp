//===- Awq.cpp - Search AWQ's scales and ranges, layer by layer -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The enclosing block of q, k, v and o ends with the residual sum behind attention, that of gate,
// up and down with the one behind the MLP: the next place where the layer can be cut. Its output
// differs from the block's by the residual, which no candidate changes, so that their errors agree.
//
// Layers see activations of the float model. A layer is run before its weights are scaled: a run
// that goes on where another one ended sees the same bits.
//
//===----------------------------------------------------------------------===//

#include "MethodRun.h"

#include "easyquant/Numerics/Awq.h"

#include "easyquant/Calibration/Passes.h"
#include "easyquant/Dialect/Equant/Analysis/Recipe.h"
#include "easyquant/Dialect/Equant/Transforms/FoldScale.h"
#include "easyquant/Numerics/Statistics.h"
#include "easyquant/Support/ProgressAction.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace easyquant::calibration {
#define GEN_PASS_DEF_AWQ
#include "easyquant/Calibration/Passes.h.inc"
} // namespace easyquant::calibration

using namespace mlir;
using namespace easyquant;
using namespace easyquant::calibration;
using equant::FoldPoint;
using equant::QuantizableOpInterface;
using formats::ComputedTensor;
using numerics::ConstMatrix;
using numerics::Matrix;

namespace {

constexpr llvm::StringLiteral kMethod = "awq";
/// The part of its files that has ranges.
constexpr llvm::StringLiteral kClip = "clip";

struct Awq : calibration::impl::AwqBase<Awq> {
  using AwqBase::AwqBase;
  void runOnOperation() override {
    if (failed(run()))
      signalPassFailure();
  }
  LogicalResult run();
  void getDependentDialects(DialectRegistry &registry) const override {
    AwqBase::getDependentDialects(registry);
    SliceCompiler::getDependentDialects(registry);
  }
};

/// Rows of some samples: what the search looks at.
struct KeptRows {
  int64_t columns = 0;
  std::vector<std::vector<float>> samples;
  Matrix sample(int64_t i) {
    return {samples[i].data(), static_cast<int64_t>(samples[i].size()) / columns, columns};
  }
};

/// One layer: its fold points, what its activations look like, and what is found.
class LayerSearch {
public:
  LayerSearch(LayerRunner &runner, func::FuncOp layer, std::vector<const FoldPoint *> points,
              int64_t searchSamples, unsigned threads)
      : runner(runner), layer(layer), points(std::move(points)), threads(threads),
        kept(std::min(searchSamples, runner.tokens().samples())) {}

  /// Takes `states` through the layer; with `gather` the activations are looked at on the way.
  LogicalResult runLayer(HiddenStates &states, bool gather);
  /// The factors of a point.
  FailureOr<std::vector<float>> searchScales(const FoldPoint &point);
  /// Scales and zero points of a site whose weight has been scaled; `factors` divide its input.
  FailureOr<numerics::AwqClipResult> searchClip(const PlannedSite &site, ArrayRef<float> factors);

private:
  Value nextCut(Operation *op);

  LayerRunner &runner;
  func::FuncOp layer;
  std::vector<const FoldPoint *> points;
  unsigned threads;
  int64_t kept;
  llvm::MapVector<Value, numerics::MeanAbs> means;
  llvm::MapVector<Value, KeptRows> rows; ///< activations, cuts, and the layer's input
};

} // namespace

static PlannedSite planned(QuantizableOpInterface op) { return {op, equant::getPlan(op)}; }

/// The first cut behind the readers of a point.
Value LayerSearch::nextCut(Operation *op) {
  Value before = lastCut(layer, op);
  for (Operation *next = op->getNextNode(); next; next = next->getNextNode())
    if (Value cut = lastCut(layer, next); cut != before)
      return cut;
  return layer.front().getTerminator()->getOperand(0);
}

LogicalResult LayerSearch::runLayer(HiddenStates &states, bool gather) {
  Value input = layer.getArgument(0), output = layer.front().getTerminator()->getOperand(0);
  llvm::SetVector<Value> wanted;
  if (gather)
    for (const FoldPoint *point : points) {
      wanted.insert(point->activation);
      means.insert({point->activation, numerics::MeanAbs(point->columns())});
      Operation *reader = QuantizableOpInterface(point->readers.front());
      for (Value cut : {lastCut(layer, reader), nextCut(reader)})
        if (cut != input)
          wanted.insert(cut);
    }
  wanted.insert(output);
  Slice slice{{input}, llvm::to_vector(wanted)};
  slice.observers = false;
  FailureOr<SliceProgram> program = runner.compiler().compile(slice);
  if (failed(program) || failed(program->load(runner.constants())))
    return failure();
  if (gather)
    rows[input].columns = states.columns();
  for (Value value : wanted)
    if (gather)
      rows[value].columns = lm::columns(value);

  std::vector<std::vector<float>> made;
  for (Value value : wanted)
    made.emplace_back(runner.tokens().maxLength() * lm::columns(value));
  const int64_t skipped = runner.tokens().skipped();
  for (int64_t i = 0; i < states.samples(); ++i) {
    Matrix in = states.sample(i);
    SmallVector<Matrix> outputs;
    for (auto [value, memory] : llvm::zip_equal(wanted, made))
      outputs.push_back(Matrix(memory.data(), in.rows, lm::columns(value)));
    if (gather && i < kept)
      rows[input].samples.emplace_back(in.data, in.data + in.rows * in.columns);
    Result<void> done = runner.runSample(*program, layer.getSymName(), i, ConstMatrix(in), outputs);
    for (auto [value, out] : llvm::zip_equal(wanted, outputs)) {
      if (auto mean = means.find(value); done && mean != means.end())
        done = mean->second.update(out.middleRows(skipped, out.rows - skipped));
      if (gather && i < kept)
        rows[value].samples.emplace_back(out.data, out.data + out.rows * out.columns);
      if (value == output)
        std::copy_n(out.data, out.rows * out.columns, in.data);
    }
    if (!done)
      return emitError(layer.getLoc()) << done.error().message;
  }
  return success();
}

FailureOr<std::vector<float>> LayerSearch::searchScales(const FoldPoint &point) {
  Operation *reader = QuantizableOpInterface(point.readers.front());
  Value base = lastCut(layer, reader), cut = nextCut(reader);
  Slice slice{{point.activation}, {cut}};
  if (base != point.activation)
    slice.inputs.push_back(base); // the residual
  slice.observers = false;
  FailureOr<SliceProgram> program = runner.compiler().compile(slice);
  if (failed(program) || failed(program->load(runner.constants())))
    return failure();
  std::vector<std::pair<PlannedSite, WeightValues>> weights;
  for (QuantizableOpInterface op : point.readers)
    if (PlannedSite site = planned(op); site.plan) {
      FailureOr<WeightValues> weight = readWeight(runner.constants(), site);
      if (failed(weight))
        return failure();
      weights.emplace_back(site, std::move(*weight));
    }

  std::vector<float> made(runner.tokens().maxLength() * lm::columns(cut));
  const int64_t skipped = runner.tokens().skipped();
  auto loss = [&](std::span<const float> scales) -> Result<double> {
    for (auto &[site, weight] : weights)
      for (const SliceWeight &place : program->weights())
        if (place.value == site.weight())
          if (auto done =
                  numerics::fakeQuantizeScaled(weight.view(), scales, site.scheme(), site.rule(),
                                               threads, program->weight(place.global));
              !done)
            return makeError(done.error().code, "site '{}': {}", site.name(), done.error().message);
    double sum = 0, count = 0;
    for (int64_t i = 0; i < kept; ++i) {
      SmallVector<ConstMatrix> inputs;
      for (Value value : slice.inputs)
        inputs.push_back(rows.find(value)->second.sample(i));
      Matrix expected = rows.find(cut)->second.sample(i);
      Matrix found(made.data(), expected.rows, expected.columns);
      if (auto done = program->run(inputs, {found}); !done)
        return Unexpected(done.error());
      for (int64_t r = skipped; r < found.rows; ++r)
        for (int64_t c = 0; c < found.columns; ++c) {
          double difference = static_cast<double>(found(r, c)) - expected(r, c);
          sum += difference * difference;
        }
      count += static_cast<double>((found.rows - skipped) * found.columns);
    }
    return sum / std::max(count, 1.0);
  };
  auto found = numerics::searchAwqScales(means.find(point.activation)->second.means(), loss);
  if (!found)
    return emitError(reader->getLoc())
           << "site '" << QuantizableOpInterface(point.readers.front()).getSite()
           << "': " << found.error().message;
  return std::move(found->scales);
}

FailureOr<numerics::AwqClipResult> LayerSearch::searchClip(const PlannedSite &site,
                                                           ArrayRef<float> factors) {
  FailureOr<WeightValues> weight = readWeight(runner.constants(), site);
  if (failed(weight))
    return failure();
  KeptRows &activation = rows.find(site.activation())->second;
  const int64_t skipped = runner.tokens().skipped();
  std::vector<float> inputs;
  for (int64_t i = 0; i < kept; ++i) {
    Matrix sample = activation.sample(i);
    for (int64_t r = skipped; r < sample.rows; ++r)
      for (int64_t c = 0; c < sample.columns; ++c)
        inputs.push_back(factors.empty() ? sample(r, c) : sample(r, c) / factors[c]);
  }
  ConstMatrix view(inputs.data(), static_cast<int64_t>(inputs.size()) / weight->columns,
                   weight->columns);
  auto found = numerics::searchAwqClip(weight->view(), view, site.scheme(), threads);
  if (!found)
    return emitError(site.loc()) << "site '" << site.name() << "': " << found.error().message;
  return std::move(*found);
}

//===----------------------------------------------------------------------===//
// What is clipped
//===----------------------------------------------------------------------===//

/// Linears that make queries and keys: clipping their weights moves every score of a token.
static llvm::SmallPtrSet<Operation *, 4> queriesAndKeys(func::FuncOp layer) {
  llvm::SmallPtrSet<Operation *, 4> found;
  layer.walk([&](lm::AttentionOp attention) {
    SmallVector<Value> worklist = {attention.getQuery(), attention.getKey()};
    while (!worklist.empty()) {
      Operation *op = worklist.pop_back_val().getDefiningOp();
      if (!op)
        continue;
      if (isa<QuantizableOpInterface>(op))
        found.insert(op);
      else
        llvm::append_range(worklist, op->getOperands());
    }
  });
  return found;
}

/// Ranges are for round to nearest; GPTQ and distillation choose theirs from the weights they make.
static SmallVector<PlannedSite> clippedSites(func::FuncOp layer, bool clip) {
  auto skipped = queriesAndKeys(layer);
  SmallVector<PlannedSite> sites;
  for (const SiteGroup &group : siteGroups(layer))
    for (PlannedSite site : group.sites) {
      auto granularity = site.scheme().granularity;
      bool isLast = !site.plan.getMethods().empty() &&
                    cast<StringAttr>(site.plan.getMethods().getValue().back()) == kMethod;
      if (isLast && site.plan.optionOr("clip", clip) && !skipped.contains(site.op) &&
          (granularity == numerics::Granularity::Channel ||
           granularity == numerics::Granularity::Group))
        sites.push_back(site);
    }
  return sites;
}

static std::string scaleName(const FoldPoint &point) {
  return QuantizableOpInterface(point.readers.front()).getSite().str() + ".awq_scale";
}

static void declareClip(ModuleOp module, StringRef file, StringRef stamp,
                        ArrayRef<PlannedSite> sites) {
  Builder builder(module.getContext());
  for (PlannedSite site : sites) {
    SmallVector<int64_t, 2> shape = site.plan.getWeight().getScaleShape(
        cast<RankedTensorType>(site.weight().getType()).getShape());
    auto declare = [&](StringRef suffix, Type element) {
      return FlatSymbolRefAttr::get(equant::declareComputed(module, site.name() + suffix.str(),
                                                            RankedTensorType::get(shape, element),
                                                            file, stamp)
                                        .getSymNameAttr());
    };
    FlatSymbolRefAttr scale = declare(".weight_scale", builder.getF32Type()), zero;
    if (!site.plan.getWeight().getSymmetric())
      zero = declare(".weight_zero_point", builder.getI32Type());
    site.op->setAttr(equant::kPlanAttr, site.plan.withResults({}, scale, zero));
  }
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

/// The activations of each layer that sites whose plans name the method read; notes them in the
/// module's `equant.transforms`.
static llvm::MapVector<Operation *, std::vector<const FoldPoint *>>
plannedPoints(ModuleOp module, ArrayRef<FoldPoint> points) {
  llvm::MapVector<Operation *, std::vector<const FoldPoint *>> pointsOf;
  for (const FoldPoint &point : points) {
    if (llvm::none_of(point.readers, [](QuantizableOpInterface op) {
          equant::PlanAttr plan = equant::getPlan(op);
          return plan && plan.names(kMethod);
        }))
      continue;
    equant::recordTransform(module, kMethod, point);
    pointsOf[QuantizableOpInterface(point.readers.front())->getParentOp()].push_back(&point);
  }
  return pointsOf;
}

/// The factors of layer `i`, one vector a point: those of an earlier run, or found now and written.
static FailureOr<std::vector<std::vector<float>>> findFactors(const MethodRun &run, int64_t i,
                                                              ArrayRef<const FoldPoint *> points,
                                                              LayerSearch &search) {
  std::vector<std::vector<float>> factors;
  if (run.has(i)) {
    for (const FoldPoint *point : points) {
      std::vector<float> &known = factors.emplace_back(point->columns());
      if (auto done = run.work().readRows({run.file(i),
                                           run.stamp(i),
                                           scaleName(*point),
                                           formats::DType::F32,
                                           {point->columns()}},
                                          0, point->columns(), known);
          !done)
        return run.fail(done.error());
    }
    return factors;
  }
  for (const FoldPoint *point : points) {
    FailureOr<std::vector<float>> found = search.searchScales(*point);
    if (failed(found))
      return failure();
    factors.push_back(std::move(*found));
  }
  std::vector<ComputedTensor> tensors;
  for (auto [point, found] : llvm::zip_equal(points, factors))
    tensors.push_back(ComputedTensor::floats(scaleName(*point), {point->columns()}, found));
  if (auto done = run.work().write(run.file(i), run.stamp(i), tensors); !done)
    return run.fail(done.error());
  return factors;
}

/// Finds the ranges of the sites of layer `i` and writes them; `divisors` divide their inputs.
static LogicalResult findRanges(const MethodRun &run, int64_t i, ArrayRef<PlannedSite> sites,
                                const llvm::DenseMap<Value, ArrayRef<float>> &divisors,
                                LayerSearch &search) {
  std::vector<ComputedTensor> tensors; // that borrow from `found`
  std::vector<numerics::QParams> found;
  found.reserve(sites.size());
  for (const PlannedSite &site : sites) {
    auto result = search.searchClip(site, divisors.lookup(site.activation()));
    if (failed(result))
      return failure();
    numerics::QParams &params = found.emplace_back(std::move(result->params));
    std::vector<int64_t> shape = {params.rows, params.groups};
    tensors.push_back(ComputedTensor::floats(site.name() + ".weight_scale", shape, params.scales));
    if (!params.zeroPoints.empty())
      tensors.push_back(
          ComputedTensor::integers(site.name() + ".weight_zero_point", shape, params.zeroPoints));
  }
  if (auto done = run.work().write(run.file(i, kClip), run.stamp(i), tensors); !done)
    return run.fail(done.error());
  return success();
}

LogicalResult Awq::run() {
  ModuleOp module = getOperation();
  SmallVector<FoldPoint> points = equant::findFoldPoints(module);
  auto pointsOf = plannedPoints(module, points);
  if (pointsOf.empty())
    return success();
  if (searchSamples < 1)
    return emitError(module.getLoc())
           << "search-samples must be at least 1, found " << searchSamples.getValue();
  FailureOr<MethodRun> opened = MethodRun::open(
      module,
      {kMethod,
       fmt::format("awq 1 search-samples={} clip={}", searchSamples.getValue(), clip.getValue()),
       tokensFile, workFolder, threads});
  if (failed(opened))
    return failure();
  MethodRun &run = *opened;
  Builder b(&getContext());
  equant::recordOptions(module,
                        {b.getNamedAttr("search_samples", b.getI64IntegerAttr(searchSamples)),
                         b.getNamedAttr("clip", b.getBoolAttr(clip))});
  auto isDone = [&](int64_t i) {
    return !pointsOf.contains(run.layer(i)) || (run.has(i) && run.has(i, kClip));
  };
  const int64_t missing = run.layersToRun(isDone);
  FailureOr<HiddenStates> states = failure();
  if (missing > 0 && failed(states = run.runner().embed()))
    return failure();

  for (int64_t i = 0; i < run.layerCount(); ++i) {
    ProgressAction::report(&getContext(), kMethod, i, run.layerCount());
    func::FuncOp layer = run.layer(i);
    std::vector<const FoldPoint *> all = pointsOf.lookup(layer), asked;
    llvm::copy_if(all, std::back_inserter(asked), [](auto *point) { return point->producer; });
    LayerSearch search(run.runner(), layer, all, searchSamples, threads);
    if (i < missing && failed(search.runLayer(*states, !isDone(i))))
      return failure();
    if (all.empty())
      continue;
    auto factors = findFactors(run, i, asked, search);
    if (failed(factors))
      return failure();
    llvm::DenseMap<Value, ArrayRef<float>> divisors;
    for (auto [point, found] : llvm::zip_equal(asked, *factors)) {
      auto type = RankedTensorType::get({point->columns()}, Float32Type::get(&getContext()));
      divisors[point->activation] = found;
      equant::foldScale(*point, equant::declareComputed(module, scaleName(*point), type,
                                                        run.file(i), run.stamp(i)));
    }
    SmallVector<PlannedSite> sites = clippedSites(layer, clip);
    if (!run.has(i, kClip) && failed(findRanges(run, i, sites, divisors, search)))
      return failure();
    declareClip(module, run.file(i, kClip), run.stamp(i), sites);
  }
  ProgressAction::report(&getContext(), kMethod, run.layerCount(), run.layerCount());
  return success();
}
