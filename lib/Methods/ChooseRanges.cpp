//===- ChooseRanges.cpp - Ranges by what weights are multiplied by --------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One pass of the float model, transforms included, gathers E[x^2] of what the sites read. In the
// metric of the loss a pass backward comes before it, and gathers the diagonal of H = sum |g|^2 x
// x^T, with g the gradient of the loss at the linear's output.
//
//===----------------------------------------------------------------------===//

#include "ExpertInputs.h"
#include "SharedRows.h"

#include "easyquant/Dialect/Equant/Analysis/RecipePlans.h"
#include "easyquant/Execution/LossStatistics.h"
#include "easyquant/Execution/SampleSum.h"
#include "easyquant/Execution/SubgraphPass.h"
#include "easyquant/Methods/MethodRun.h"
#include "easyquant/Methods/Passes.h"
#include "easyquant/Methods/RoundedSites.h"
#include "easyquant/Numerics/Statistics.h"
#include "easyquant/Support/Parallel.h"
#include "easyquant/Support/ProgressAction.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"

namespace easyquant::methods {
#define GEN_PASS_DEF_CHOOSERANGES
#include "easyquant/Methods/Passes.h.inc"
} // namespace easyquant::methods

using namespace mlir;
using namespace easyquant;
using namespace easyquant::methods;
using numerics::ConstMatrix;
using numerics::Matrix;

namespace {

constexpr llvm::StringLiteral kName = "choose-ranges";
/// The part of the files that has the sites behind the layers.
constexpr llvm::StringLiteral kHead = "head";
/// Rows of a weight that one thread takes at a time.
constexpr int64_t kBlockRows = 32;

struct ChooseRanges : SubgraphPass<methods::impl::ChooseRangesBase<ChooseRanges>> {
  using SubgraphPass::SubgraphPass;
  LogicalResult run() override;
};

/// E[x^2] of an activation over all rows, or over those that chose each expert.
struct ExpertMoments {
  std::vector<numerics::Moments> experts;

  void merge(const ExpertMoments &later) {
    for (auto [own, other] : llvm::zip_equal(experts, later.experts))
      own.merge(other);
  }
  template <typename Visit> void fields(Visit &&visit) {
    for (numerics::Moments &own : experts)
      visit(own);
  }
};

/// An activation, and where the rows of each expert begin that reads it; null: rows are tokens.
using Input = std::pair<Value, Value>;
using MeanSquares = llvm::MapVector<Input, SampleSum<ExpertMoments>>;

/// What rows of a weight are weighed by, for each expert.
struct ColumnWeights {
  std::vector<std::vector<float>> experts;
  std::vector<int32_t> rows; ///< that chose each
};

} // namespace

/// The sites of a function whose ranges are still to be chosen. GPTQ has weights of its own.
static SmallVector<PlannedSite> openSites(func::FuncOp function) {
  SmallVector<PlannedSite> sites;
  for (const SiteGroup &group : siteGroups(function))
    for (const PlannedSite &site : group.sites)
      if (site.plan.getRule() == equant::ScaleRule::HessianDiagonal && !site.plan.getScale() &&
          !site.plan.names("gptq"))
        sites.push_back(site);
  return sites;
}

/// What weighs the columns of sites, by their names, in place of E[x^2].
using LossWeights = llvm::StringMap<ColumnWeights>;

/// Weights of experts that few rows chose are filled up, by those of the rows of all experts, or as
/// if all columns were alike.
static void fillUp(ColumnWeights &weights, bool shareColumns) {
  std::vector<float> ofAll;
  if (shareColumns) {
    std::vector<double> sums(weights.experts.front().size());
    double count = 0;
    for (auto [own, rows] : llvm::zip_equal(weights.experts, weights.rows)) {
      for (size_t j = 0; j < sums.size(); ++j)
        sums[j] += static_cast<double>(own[j]) * rows;
      count += rows;
    }
    for (double sum : sums)
      ofAll.push_back(static_cast<float>(sum / std::max(count, 1.0)));
  }
  for (auto [own, rows] : llvm::zip_equal(weights.experts, weights.rows))
    numerics::fillUp(own, std::ssize(own), rows, kRowsOfMeans, ofAll);
}

/// The diagonal of H.
static std::vector<float> diagonalOf(const HessianPair &hessians, int64_t columns) {
  std::vector<float> diagonal(columns);
  for (int64_t j = 0; j < columns; ++j)
    diagonal[j] = hessians.inputs[j * columns + j];
  return diagonal;
}

/// The diagonals of the loss's Hessians at a site.
static FailureOr<ColumnWeights> weightsByLoss(const PlannedSite &site, size_t number,
                                              const LayerLoss &losses) {
  ColumnWeights weights;
  const int64_t columns = lm::columns(site.activation());
  if (!site.offsets()) {
    weights.experts.push_back(diagonalOf(losses.sites[number].all, columns));
    return weights;
  }
  for (int64_t expert = 0; expert < site.experts(); ++expert) {
    FailureOr<SiteLoss> loss = losses.ofExpert(number, expert);
    if (failed(loss))
      return failure();
    // Rows that the loss does not depend on are as good as none.
    weights.rows.push_back(loss->all.isReached() ? static_cast<int32_t>(loss->all.tokens) : 0);
    weights.experts.push_back(diagonalOf(loss->all, columns));
  }
  if (llvm::all_of(weights.rows, [](int32_t count) { return count == 0; }))
    return failUnreached(site.op);
  fillUp(weights, readsTokens(site.linear()));
  return weights;
}

/// The diagonals at the sites of all layers that are not done. The head has none.
static FailureOr<LossWeights> weightsByLoss(MethodRun &run,
                                            llvm::function_ref<bool(int64_t)> isDone,
                                            StringRef statistics, unsigned threads) {
  int64_t first = 0;
  while (first < run.layerCount() && isDone(first))
    ++first;
  LossWeights weights;
  if (first == run.layerCount())
    return weights;
  FailureOr<LossSource> source = LossSource::open(run.runner(), run.ranks(), statistics, threads);
  if (failed(source))
    return failure();
  for (int64_t layer = run.layerCount() - 1; layer >= first; --layer) {
    ProgressAction::report(run.layer(layer).getContext(), kName, run.layerCount() - 1 - layer,
                           run.layerCount());
    SmallVector<PlannedSite> sites;
    if (!isDone(layer))
      sites = openSites(run.layer(layer));
    FailureOr<LayerLoss> losses = source->of(opsOf(sites), {.rows = false, .heldOut = false});
    if (failed(losses))
      return failure();
    for (auto [i, site] : llvm::enumerate(sites)) {
      FailureOr<ColumnWeights> own = weightsByLoss(site, i, *losses);
      if (failed(own))
        return failure();
      weights[site.name()] = std::move(*own);
    }
  }
  return weights;
}

static Input inputOf(const PlannedSite &site) { return {site.activation(), site.offsets()}; }

static MeanSquares activationsOf(const MethodRun &run, ArrayRef<PlannedSite> sites) {
  MeanSquares squares;
  for (const PlannedSite &site : sites)
    squares.insert({inputOf(site),
                    SampleSum<ExpertMoments>(
                        run.ranks(), run.runner().tokens(),
                        [columns = lm::columns(site.activation()), experts = site.experts()] {
                          return ExpertMoments{
                              std::vector<numerics::Moments>(experts, numerics::Moments(columns))};
                        })});
  return squares;
}

/// Takes `states` through the layer and gathers on the way what `sites` read.
static LogicalResult runLayer(LayerRunner &runner, func::FuncOp layer, HiddenStates &states,
                              ArrayRef<PlannedSite> sites, MeanSquares &squares) {
  Subgraph subgraph = Subgraph::whole(layer);
  llvm::StringMap<Input> ofExperts; ///< by the site that is observed
  for (auto &[input, moments] : squares) {
    if (!input.second) {
      if (!llvm::is_contained(subgraph.outputs, input.first))
        subgraph.outputs.push_back(input.first);
      continue;
    }
    const PlannedSite &reader =
        *llvm::find_if(sites, [&](const PlannedSite &site) { return inputOf(site) == input; });
    subgraph.observed.push_back(ChoiceRows::inputOf(reader.linear()));
    ofExperts[reader.name()] = input;
  }
  auto observe = [&](const Observation &observation, int64_t sample,
                     const ObservedRows &seen) -> Result<void> {
    ExpertMoments &moments =
        squares.find(ofExperts.lookup(observation.sites.front()))->second.of(sample);
    for (auto [expert, own] : llvm::enumerate(moments.experts))
      if (auto done = own.update(seen.rows.middleRows(
              seen.offsets[expert], seen.offsets[expert + 1] - seen.offsets[expert]));
          !done)
        return done;
    return {};
  };
  FailureOr<CompiledSubgraph> program = runner.load(subgraph);
  if (failed(program))
    return failure();
  const int64_t skipped = runner.tokens().skipped();
  return runner.run(
      layer.getLoc(), *program, layer.getSymName(), states, subgraph.outputs,
      [&](int64_t i, ArrayRef<Matrix> outputs) {
        Result<void> done;
        for (auto [value, out] : llvm::zip_equal(subgraph.outputs, outputs))
          if (auto *found = squares.find({value, Value()}); done && found != squares.end())
            done = found->second.of(i).experts.front().update(
                out.middleRows(skipped, out.rows - skipped));
        std::copy_n(outputs.front().data, outputs.front().rows * outputs.front().columns,
                    states.sample(i).data);
        return done;
      },
      observe);
}

/// What weighs the columns of each expert's weight.
static ColumnWeights weightsOf(const ExpertMoments &moments, bool areOfExperts, bool shareColumns) {
  ColumnWeights weights;
  for (const numerics::Moments &own : moments.experts) {
    weights.experts.push_back(own.meanSquares());
    weights.rows.push_back(static_cast<int32_t>(own.tokens()));
  }
  if (areOfExperts)
    fillUp(weights, shareColumns);
  return weights;
}

/// Blocks of some rows, and what they give put together.
static Result<numerics::QParams> chooseParams(ConstMatrix weight, numerics::RowRange range,
                                              const numerics::Scheme &scheme,
                                              const numerics::ScaleRule &rule, unsigned threads) {
  if (scheme.granularity == numerics::Granularity::Tensor)
    return numerics::chooseQParams(weight, scheme, rule);
  const float outer = numerics::outerScale(numerics::absMaxOf(weight), scheme);
  const int64_t blocks = (range.count + kBlockRows - 1) / kBlockRows;
  std::vector<Result<numerics::QParams>> found(blocks, numerics::QParams());
  parallelFor(blocks, threads, [&](int64_t b) {
    const int64_t first = b * kBlockRows, rows = std::min(kBlockRows, range.count - first);
    found[b] =
        numerics::chooseQParams(weight.middleRows(range.first + first, rows), scheme, rule, outer);
  });
  numerics::QParams all;
  all.groups = numerics::groupCount(weight.columns, scheme.groupSize);
  for (Result<numerics::QParams> &block : found) {
    if (!block)
      return block;
    all.rows += block->rows;
    all.groups = block->groups;
    llvm::append_range(all.scales, block->scales);
    llvm::append_range(all.zeroPoints, block->zeroPoints);
    llvm::append_range(all.minima, block->minima);
    all.outer = block->outer;
  }
  return all;
}

/// Ranks share the rows. `part`: "expert 3 of ", before the site's name.
static FailureOr<numerics::QParams> chooseRange(const MethodRun &run, const PlannedSite &site,
                                                ConstMatrix weight,
                                                const std::vector<float> &weights, unsigned threads,
                                                const std::string &part = "") {
  numerics::ScaleRule rule = site.rule();
  rule.weights = weights;
  const Ranks &ranks = run.ranks();
  auto rowsOf = [&](int rank) {
    return numerics::partOfRows(weight.rows, kBlockRows, rank, ranks.size());
  };
  auto found = roundOnAll<numerics::QParams>(
      ranks, site.scheme(), site.plan.mayWidenScales(), [&](const numerics::Scheme &scheme) {
        return chooseParams(weight, rowsOf(ranks.rank()), scheme, rule, threads);
      });
  if (!found)
    return emitError(site.loc()) << part << "site '" << site.name()
                                 << "': " << found.error().message;
  if (site.scheme().granularity != numerics::Granularity::Tensor)
    if (auto done = gatherRows(ranks, *found, site.scheme(), weight.rows, rowsOf); !done)
      return emitError(site.loc()) << done.error().message;
  return std::move(*found);
}

/// The ranges of a site, which are those of each expert.
static FailureOr<numerics::QParams> chooseRanges(const MethodRun &run, const PlannedSite &site,
                                                 const ColumnWeights &weights, unsigned threads) {
  FailureOr<WeightValues> weight = readWeight(run.runner().constants(), site);
  if (failed(weight))
    return failure();
  if (!site.offsets())
    return chooseRange(run, site, weight->view(), weights.experts.front(), threads);
  if (site.scheme().granularity == numerics::Granularity::Tensor)
    return emitError(site.loc()) << "site '" << site.name()
                                 << "' has one scale for all experts, whose ranges rule "
                                    "hessian-diagonal chooses one by one: take another observer";
  const int64_t rows = weight->rows / site.experts();
  numerics::QParams all;
  for (auto [expert, own] : llvm::enumerate(weights.experts)) {
    FailureOr<numerics::QParams> found =
        chooseRange(run, site, weight->view().middleRows(static_cast<int64_t>(expert) * rows, rows),
                    own, threads, fmt::format("expert {} of ", expert));
    if (failed(found))
      return failure();
    appendRows(all, *found, rows, site.scheme());
  }
  return all;
}

/// Chooses the ranges of sites of a function and writes them.
static LogicalResult chooseAndWrite(MethodRun &run, ArrayRef<PlannedSite> sites,
                                    MeanSquares &squares, const LossWeights &byLoss, StringRef file,
                                    StringRef stamp, unsigned threads) {
  llvm::MapVector<Input, ExpertMoments> moments;
  for (auto &[input, sum] : squares) {
    Result<ExpertMoments> all = sum.finish();
    if (!all)
      return run.fail(all.error());
    moments[input] = std::move(*all);
  }
  std::vector<numerics::QParams> found;
  ExpertRows rows;
  for (const PlannedSite &site : sites) {
    const bool areOfExperts = bool(site.offsets());
    ColumnWeights weights = weightsOf(moments.find(inputOf(site))->second, areOfExperts,
                                      areOfExperts && readsTokens(site.linear()));
    if (auto found = byLoss.find(site.name()); found != byLoss.end())
      weights = found->second;
    FailureOr<numerics::QParams> params = chooseRanges(run, site, weights, threads);
    if (failed(params))
      return failure();
    found.push_back(std::move(*params));
    if (areOfExperts)
      rows[site.weight()] = weights.rows;
  }
  if (auto done = writeScales(run.work(), file, stamp, sites, found, rows); !done)
    return run.fail(done.error());
  return success();
}

LogicalResult ChooseRanges::run() {
  ModuleOp module = getOperation();
  SmallVector<func::FuncOp> functions(module.getOps<func::FuncOp>());
  if (llvm::all_of(functions,
                   [](func::FuncOp f) { return f.isExternal() || openSites(f).empty(); }))
    return success();
  const bool isByLoss = StringRef(hessian).starts_with("loss");
  if (!isByLoss && !lossStatistics.empty())
    return emitError(module.getLoc())
           << "equant-choose-ranges: statistics=" << lossStatistics
           << " is for hessian=loss and loss-both, found hessian=" << hessian;
  // Hessians that a file gives differ in their last bits.
  const char *revision = !isByLoss                ? "5"
                         : lossStatistics.empty() ? "5 by loss"
                                                  : "5 by loss, from a file";
  const bool takesAll = isByLoss || expertTokens > 0;
  FailureOr<MethodRun> opened = MethodRun::open(module, {.method = kName,
                                                         .revision = revision,
                                                         .options = optionValues(),
                                                         .tokens = takesAll ? 0 : kTokensOfMeans,
                                                         .sharesSamples = true});
  if (failed(opened))
    return failure();
  if (isByLoss) { // the option of another method, which a recipe has to have
    recipe::OptionValues recorded;
    recorded.set(recipe::option::hessian, std::string(hessian));
    equant::recordOptions(module, recorded);
  }
  MethodRun &run = *opened;
  auto isDone = [&](int64_t i) { return openSites(run.layer(i)).empty() || run.has(i); };

  // The head reads what the last layer makes.
  auto forward = module.lookupSymbol<func::FuncOp>("forward");
  const SmallVector<PlannedSite> headSites = openSites(forward);
  const std::string headFile = (kName + "_" + kHead + ".safetensors").str(),
                    headStamp = layerStamp(forward, run.stamp(run.layerCount() - 1));
  const bool isHeadOpen =
      !headSites.empty() && !equant::isIntact(forward.getLoc(), run.work(), headFile, headStamp);
  const int64_t missing = isHeadOpen ? run.layerCount() : run.layersToRun(isDone);

  if (missing > 0) {
    LossWeights byLoss;
    if (isByLoss) {
      FailureOr<LossWeights> found = weightsByLoss(run, isDone, lossStatistics, threads);
      if (failed(found))
        return failure();
      byLoss = std::move(*found);
    }
    FailureOr<HiddenStates> states = run.runner().embed();
    if (failed(states))
      return failure();
    for (int64_t i = 0; i < missing; ++i) {
      ProgressAction::report(&getContext(), kName, i, run.layerCount());
      SmallVector<PlannedSite> sites;
      if (!isDone(i))
        sites = openSites(run.layer(i));
      MeanSquares squares = activationsOf(run, sites);
      if (failed(runLayer(run.runner(), run.layer(i), *states, sites, squares)))
        return failure();
      if (!sites.empty() &&
          failed(chooseAndWrite(run, sites, squares, byLoss, run.file(i), run.stamp(i), threads)))
        return failure();
    }
    if (isHeadOpen) {
      MeanSquares squares = activationsOf(run, headSites);
      const int64_t skipped = run.runner().tokens().skipped();
      SmallVector<Value> activations;
      for (auto &[input, moments] : squares)
        activations.push_back(input.first);
      auto gather = [&](int64_t sample, ArrayRef<Matrix> rows) -> Result<void> {
        for (auto [activation, x] : llvm::zip_equal(activations, rows))
          if (auto done = squares.find({activation, Value()})
                              ->second.of(sample)
                              .experts.front()
                              .update(x.middleRows(skipped, x.rows - skipped));
              !done)
            return done;
        return {};
      };
      if (failed(run.runner().runHead(*states, activations, gather)) ||
          failed(chooseAndWrite(run, headSites, squares, byLoss, headFile, headStamp, threads)))
        return failure();
    }
  }
  ProgressAction::report(&getContext(), kName, run.layerCount(), run.layerCount());
  SparseExperts sparse("hessian-diagonal", SparseOutcome::FilledUp);
  auto enough = [](const PlannedSite &) { return kRowsOfMeans; };
  for (int64_t i = 0; i < run.layerCount(); ++i) {
    SmallVector<PlannedSite> sites = openSites(run.layer(i));
    if (failed(declareScales(module, run.work(), run.file(i), run.stamp(i), sites)) ||
        failed(sparse.add(run.work(), run.file(i), run.stamp(i), sites, enough)))
      return failure();
  }
  sparse.report(module);
  return declareScales(module, run.work(), headFile, headStamp, headSites);
}
