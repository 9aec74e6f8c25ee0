//===- Awq.cpp - Search AWQ's scales and ranges, layer by layer -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Layers see activations of the float model. A layer is run before its weights are scaled: a run
// that goes on where another one ended sees the same bits.
//
//===----------------------------------------------------------------------===//

#include "AwqSearch.h"

#include "easyquant/Dialect/Equant/Analysis/NothingToDo.h"
#include "easyquant/Dialect/Equant/Analysis/RecipePlans.h"
#include "easyquant/Execution/SubgraphPass.h"
#include "easyquant/Methods/MethodRun.h"
#include "easyquant/Methods/Passes.h"
#include "easyquant/Methods/RoundedSites.h"
#include "easyquant/Support/ProgressAction.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace easyquant::methods {
#define GEN_PASS_DEF_AWQ
#include "easyquant/Methods/Passes.h.inc"
} // namespace easyquant::methods

using namespace mlir;
using namespace easyquant;
using namespace easyquant::methods;
using equant::FoldPoint;
using equant::QuantizableOpInterface;
using formats::ComputedTensor;

namespace {

constexpr llvm::StringLiteral kAwq = "awq";
/// The part of its files that has ranges.
constexpr llvm::StringLiteral kClip = "clip";

struct Awq : SubgraphPass<methods::impl::AwqBase<Awq>> {
  using SubgraphPass::SubgraphPass;
  LogicalResult run() override;
};

} // namespace

//===----------------------------------------------------------------------===//
// What is clipped
//===----------------------------------------------------------------------===//

/// Linears that make queries and keys: clipping their weights moves every score of a token.
static llvm::SmallPtrSet<Operation *, 4> queriesAndKeys(func::FuncOp layer) {
  llvm::SmallPtrSet<Operation *, 4> found;
  layer.walk([&](lm::AttentionOp attention) {
    found = sitesMaking({attention.getQuery(), attention.getKey()});
  });
  return found;
}

/// Ranges are for round to nearest; GPTQ and distillation choose theirs from the weights they make.
/// The search runs a site on rows of tokens, of which experts have some each: theirs are those of
/// their rule.
static SmallVector<PlannedSite> clippedSites(func::FuncOp layer, bool clip) {
  auto skipped = queriesAndKeys(layer);
  SmallVector<PlannedSite> sites;
  for (const SiteGroup &group : siteGroups(layer))
    for (PlannedSite site : group.sites) {
      auto granularity = site.scheme().granularity;
      bool isLast = !site.plan.getMethods().empty() &&
                    cast<StringAttr>(site.plan.getMethods().getValue().back()) == kAwq;
      if (isLast && !site.offsets() && site.plan.optionOr(recipe::option::clip, clip) &&
          !skipped.contains(site.op) &&
          (granularity == numerics::Granularity::Channel ||
           granularity == numerics::Granularity::Group))
        sites.push_back(site);
    }
  return sites;
}

static std::string scaleName(const FoldPoint &point) {
  return QuantizableOpInterface(point.readers.front()).getSite().str() + ".awq_scale";
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

/// Are its rows what experts have made of theirs, one for each choice of a token?
static bool isMadeByExperts(const FoldPoint &point) {
  QuantizableOpInterface reader = point.readers.front();
  auto linear = dyn_cast<lm::LinearOp>(reader.getOperation());
  return linear && linear.getExperts() && linear.getInput() == point.activation;
}

/// The activations of each layer that sites whose plans name the method read, and whose rows are
/// tokens; notes all of them in the module's `equant.transforms`.
static llvm::MapVector<Operation *, std::vector<const FoldPoint *>>
plannedPoints(ModuleOp module, ArrayRef<FoldPoint> points) {
  llvm::MapVector<Operation *, std::vector<const FoldPoint *>> pointsOf;
  for (const FoldPoint &point : points) {
    if (llvm::none_of(point.readers, [](QuantizableOpInterface op) {
          equant::PlanAttr plan = equant::getPlan(op);
          return plan && plan.names(kAwq);
        }))
      continue;
    equant::recordTransform(module, kAwq, point);
    if (isMadeByExperts(point))
      continue;
    pointsOf[QuantizableOpInterface(point.readers.front())->getParentOp()].push_back(&point);
  }
  return pointsOf;
}

/// The factors of layer `i`, one vector a point: those of an earlier run, or found now and written.
static FailureOr<std::vector<std::vector<float>>> findFactors(const MethodRun &run, int64_t i,
                                                              ArrayRef<const FoldPoint *> points,
                                                              AwqSearch &search) {
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
                                AwqSearch &search) {
  std::vector<numerics::QParams> found;
  for (const PlannedSite &site : sites) {
    auto result = search.searchClip(site, divisors.lookup(site.activation()));
    if (failed(result))
      return failure();
    found.push_back(std::move(result->params));
  }
  if (auto done = writeScales(run.work(), run.file(i, kClip), run.stamp(i), sites, found); !done)
    return run.fail(done.error());
  return success();
}

LogicalResult Awq::run() {
  ModuleOp module = getOperation();
  SmallVector<FoldPoint> points = equant::findFoldPoints(module);
  auto pointsOf = plannedPoints(module, points);
  if (pointsOf.empty())
    return equant::reportNotPlanned(module, getArgument(), kAwq, requireSites);
  if (searchSamples < 1)
    return emitError(module.getLoc())
           << "search-samples must be at least 1, found " << searchSamples.getValue();
  FailureOr<MethodRun> opened = MethodRun::open(module, {.method = kAwq,
                                                         .revision = "5",
                                                         .options = optionValues(),
                                                         .samples = searchSamples,
                                                         .tokens = kTokensOfMeans,
                                                         .sharesSamples = true});
  if (failed(opened))
    return failure();
  MethodRun &run = *opened;
  auto isDone = [&](int64_t i) {
    return !pointsOf.contains(run.layer(i)) || (run.has(i) && run.has(i, kClip));
  };
  const int64_t missing = run.layersToRun(isDone);
  FailureOr<HiddenStates> states = failure();
  if (missing > 0 && failed(states = run.runner().embed()))
    return failure();

  for (int64_t i = 0; i < run.layerCount(); ++i) {
    ProgressAction::report(&getContext(), kAwq, i, run.layerCount());
    func::FuncOp layer = run.layer(i);
    std::vector<const FoldPoint *> all = pointsOf.lookup(layer), asked;
    llvm::copy_if(all, std::back_inserter(asked), [](auto *point) { return point->producer; });
    AwqSearch search(run.runner(), run.ranks(), layer, all, searchSamples, threads);
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
    if (failed(declareScales(module, run.work(), run.file(i, kClip), run.stamp(i), sites)))
      return failure();
  }
  ProgressAction::report(&getContext(), kAwq, run.layerCount(), run.layerCount());
  return success();
}
