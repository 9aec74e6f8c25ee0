//===- ChooseRanges.cpp - Ranges by what weights are multiplied by --------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One pass of the float model, transforms included, gathers E[x^2] of what the sites read.
//
//===----------------------------------------------------------------------===//

#include "SharedRows.h"

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

/// E[x^2] of activations.
using MeanSquares = llvm::MapVector<Value, SampleSum<numerics::Moments>>;

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

static MeanSquares activationsOf(const MethodRun &run, ArrayRef<PlannedSite> sites) {
  MeanSquares squares;
  for (const PlannedSite &site : sites)
    squares.insert(
        {site.activation(), SampleSum<numerics::Moments>(run.ranks(), run.runner().tokens(),
                                                         [n = lm::columns(site.activation())] {
                                                           return numerics::Moments(n);
                                                         })});
  return squares;
}

/// Takes `states` through the layer and gathers on the way.
static LogicalResult runLayer(LayerRunner &runner, func::FuncOp layer, HiddenStates &states,
                              MeanSquares &squares) {
  Subgraph subgraph = Subgraph::whole(layer);
  for (auto &[activation, moments] : squares)
    if (!llvm::is_contained(subgraph.outputs, activation))
      subgraph.outputs.push_back(activation);
  FailureOr<CompiledSubgraph> program = runner.load(subgraph);
  if (failed(program))
    return failure();
  const int64_t skipped = runner.tokens().skipped();
  return runner.run(
      layer.getLoc(), *program, layer.getSymName(), states, subgraph.outputs,
      [&](int64_t i, ArrayRef<Matrix> outputs) {
        Result<void> done;
        for (auto [value, out] : llvm::zip_equal(subgraph.outputs, outputs))
          if (auto *found = squares.find(value); done && found != squares.end())
            done = found->second.of(i).update(out.middleRows(skipped, out.rows - skipped));
        std::copy_n(outputs.front().data, outputs.front().rows * outputs.front().columns,
                    states.sample(i).data);
        return done;
      });
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

/// Ranks share the rows.
static FailureOr<numerics::QParams> chooseRange(const MethodRun &run, const PlannedSite &site,
                                                const std::vector<float> &weights,
                                                unsigned threads) {
  FailureOr<WeightValues> weight = readWeight(run.runner().constants(), site);
  if (failed(weight))
    return failure();
  numerics::ScaleRule rule = site.rule();
  rule.weights = weights;
  const Ranks &ranks = run.ranks();
  auto rowsOf = [&](int rank) {
    return numerics::partOfRows(weight->rows, kBlockRows, rank, ranks.size());
  };
  auto found = roundOnAll<numerics::QParams>(
      ranks, site.scheme(), site.plan.mayWidenScales(), [&](const numerics::Scheme &scheme) {
        return chooseParams(weight->view(), rowsOf(ranks.rank()), scheme, rule, threads);
      });
  if (!found)
    return emitError(site.loc()) << "site '" << site.name() << "': " << found.error().message;
  if (site.scheme().granularity != numerics::Granularity::Tensor)
    if (auto done = gatherRows(ranks, *found, site.scheme(), weight->rows, rowsOf); !done)
      return emitError(site.loc()) << done.error().message;
  return std::move(*found);
}

/// Chooses the ranges of sites of a function and writes them.
static LogicalResult chooseAndWrite(MethodRun &run, ArrayRef<PlannedSite> sites,
                                    MeanSquares &squares, StringRef file, StringRef stamp,
                                    unsigned threads) {
  llvm::MapVector<Value, std::vector<float>> weights;
  for (auto &[activation, sum] : squares) {
    Result<numerics::Moments> moments = sum.finish();
    if (!moments)
      return run.fail(moments.error());
    weights[activation] = moments->meanSquares();
  }
  std::vector<numerics::QParams> found;
  for (const PlannedSite &site : sites) {
    FailureOr<numerics::QParams> params =
        chooseRange(run, site, weights.find(site.activation())->second, threads);
    if (failed(params))
      return failure();
    found.push_back(std::move(*params));
  }
  if (auto done = writeScales(run.work(), file, stamp, sites, found); !done)
    return run.fail(done.error());
  return success();
}

LogicalResult ChooseRanges::run() {
  ModuleOp module = getOperation();
  SmallVector<func::FuncOp> functions(module.getOps<func::FuncOp>());
  if (llvm::all_of(functions,
                   [](func::FuncOp f) { return f.isExternal() || openSites(f).empty(); }))
    return success();
  FailureOr<MethodRun> opened = MethodRun::open(module, {.method = kName,
                                                         .revision = "3",
                                                         .options = optionValues(),
                                                         .tokens = kTokensOfMeans,
                                                         .sharesSamples = true});
  if (failed(opened))
    return failure();
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
    FailureOr<HiddenStates> states = run.runner().embed();
    if (failed(states))
      return failure();
    for (int64_t i = 0; i < missing; ++i) {
      ProgressAction::report(&getContext(), kName, i, run.layerCount());
      SmallVector<PlannedSite> sites;
      if (!isDone(i))
        sites = openSites(run.layer(i));
      MeanSquares squares = activationsOf(run, sites);
      if (failed(runLayer(run.runner(), run.layer(i), *states, squares)))
        return failure();
      if (!sites.empty() &&
          failed(chooseAndWrite(run, sites, squares, run.file(i), run.stamp(i), threads)))
        return failure();
    }
    if (isHeadOpen) {
      MeanSquares squares = activationsOf(run, headSites);
      const int64_t skipped = run.runner().tokens().skipped();
      SmallVector<Value> activations;
      for (auto &[activation, moments] : squares)
        activations.push_back(activation);
      auto gather = [&](int64_t sample, ArrayRef<Matrix> rows) -> Result<void> {
        for (auto [activation, x] : llvm::zip_equal(activations, rows))
          if (auto done = squares.find(activation)
                              ->second.of(sample)
                              .update(x.middleRows(skipped, x.rows - skipped));
              !done)
            return done;
        return {};
      };
      if (failed(run.runner().runHead(*states, activations, gather)) ||
          failed(chooseAndWrite(run, headSites, squares, headFile, headStamp, threads)))
        return failure();
    }
  }
  ProgressAction::report(&getContext(), kName, run.layerCount(), run.layerCount());
  for (int64_t i = 0; i < run.layerCount(); ++i)
    if (failed(
            declareScales(module, run.work(), run.file(i), run.stamp(i), openSites(run.layer(i)))))
      return failure();
  return declareScales(module, run.work(), headFile, headStamp, headSites);
}
