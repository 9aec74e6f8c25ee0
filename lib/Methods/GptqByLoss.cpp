//===- GptqByLoss.cpp - GPTQ in the metric of the model's loss ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GptqByLoss.h"
#include "ExpertInputs.h"
#include "SharedRows.h"

#include "easyquant/Execution/LossStatistics.h"
#include "easyquant/Methods/RoundedSites.h"
#include "easyquant/Support/Parallel.h"
#include "easyquant/Support/ProgressAction.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::methods;
using numerics::ConstMatrix;
using numerics::Matrix;

/// Shares of the mean of diag(Hout) that may be added to it, and the one of weights that no sample
/// held out judges.
static constexpr double kDampings[] = {0.1, 1, 3}, kUnjudgedDamping = 1;

/// So many experts have their Hessians in memory, and are rounded in parallel.
static constexpr int64_t kExpertsAtATime = 8;

namespace {

/// A weight to round, that of a site or of one of its experts, and what the loss says of it.
struct LossTarget {
  PlannedSite site;
  std::string part = {}; ///< "expert 3 of ", before the site's name
  WeightValues weight = {};
  HessianPair all = {};
  HessianPair used = {};             ///< without the samples held out, to choose a damping by
  HessianPair heldOut = {};          ///< of no token, where no sample judges
  double damping = kUnjudgedDamping; ///< of Hout
};

/// What it takes to round it.
struct RoundingProblem {
  const LossTarget *target;
  numerics::GptqFactor columns;
  ConstMatrix outputs; ///< Hout, N x N; empty without feedback over rows
  double damping;
};

class LossRounder {
public:
  LossRounder(MethodRun &run, GptqOptionsOf optionsOf, bool both)
      : run(run), threads(run.runner().compiler().options().threads), optionsOf(optionsOf),
        both(both) {}

  /// Rounds sites of a layer and writes its file.
  LogicalResult roundLayer(int64_t layer, ArrayRef<PlannedSite> sites, LayerLoss losses);

private:
  FailureOr<LossTarget> expertOf(const PlannedSite &site, size_t number, int64_t expert,
                                 const LayerLoss &losses, std::optional<SiteLoss> &ofAll);
  LogicalResult roundExperts(const PlannedSite &site, size_t number, const LayerLoss &losses,
                             QuantizedWeights &codes, ExpertRows &rows);
  FailureOr<std::vector<RoundingProblem>> problemsOf(ArrayRef<LossTarget *> targets,
                                                     HessianPair LossTarget::*hessians);
  FailureOr<std::vector<numerics::QuantizedMatrix>> solve(std::vector<RoundingProblem> &problems);
  LogicalResult chooseDampings(ArrayRef<LossTarget *> targets);
  FailureOr<std::vector<numerics::QuantizedMatrix>> round(MutableArrayRef<LossTarget> targets);

  MethodRun &run;
  unsigned threads;
  GptqOptionsOf optionsOf;
  bool both; ///< do errors go to later rows, too?
};

} // namespace

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

FailureOr<std::vector<RoundingProblem>> LossRounder::problemsOf(ArrayRef<LossTarget *> targets,
                                                                HessianPair LossTarget::*hessians) {
  std::vector<RoundingProblem> problems;
  for (const LossTarget *target : targets) {
    const HessianPair &pair = target->*hessians;
    const int64_t rows = target->weight.rows, columns = target->weight.columns;
    numerics::GptqOptions options = optionsOf(target->site);
    options.threads = threads;
    FailureOr<numerics::GptqFactor> factor =
        factorFor(target->site, {pair.inputs.data(), columns, columns}, options, target->part);
    if (failed(factor))
      return failure();
    const ConstMatrix outputs = both ? ConstMatrix(pair.outputs.data(), rows, rows) : ConstMatrix();
    problems.push_back({target, std::move(*factor), outputs, target->damping});
  }
  return problems;
}

static Result<numerics::QuantizedMatrix> solveProblem(const RoundingProblem &p,
                                                      numerics::GptqOptions options) {
  options.threads = 1; // problems share them
  Result<numerics::RowFactor> rows = numerics::RowFactor();
  if (p.outputs.rows > 0) {
    rows = numerics::factorRows(p.outputs, p.damping, 1);
    if (!rows)
      return Unexpected(rows.error());
    options.rowFactor = &*rows;
  }
  const PlannedSite &site = p.target->site;
  const WeightValues &weight = p.target->weight;
  auto round = [&](const numerics::Scheme &scheme) {
    return numerics::gptq({weight.values.data(), weight.rows, weight.columns}, p.columns, scheme,
                          site.rule(), options);
  };
  Result<numerics::GptqResult> rounded = round(site.scheme());
  if (!rounded && rounded.error().code == ErrorCode::OutOfRange && site.plan.mayWidenScales())
    rounded = round(numerics::withWideScales(site.scheme()));
  if (!rounded)
    return Unexpected(rounded.error());
  return std::move(rounded->weight);
}

FailureOr<std::vector<numerics::QuantizedMatrix>>
LossRounder::solve(std::vector<RoundingProblem> &problems) {
  std::vector<Result<numerics::QuantizedMatrix>> results(problems.size(),
                                                         numerics::QuantizedMatrix());
  std::vector<numerics::GptqOptions> options;
  for (const RoundingProblem &problem : problems)
    options.push_back(optionsOf(problem.target->site));
  parallelFor(std::ssize(problems), threads,
              [&](int64_t i) { results[i] = solveProblem(problems[i], options[i]); });
  std::vector<numerics::QuantizedMatrix> rounded;
  for (auto [problem, result] : llvm::zip_equal(problems, results)) {
    const LossTarget &target = *problem.target;
    if (!result)
      return emitError(target.site.loc())
             << target.part << "site '" << target.site.name() << "': " << result.error().message;
    rounded.push_back(std::move(*result));
  }
  return rounded;
}

/// Each target has the damping of least cost by the samples held out.
LogicalResult LossRounder::chooseDampings(ArrayRef<LossTarget *> targets) {
  FailureOr<std::vector<RoundingProblem>> problems = problemsOf(targets, &LossTarget::used);
  if (failed(problems))
    return failure();
  std::vector<double> least(targets.size());
  for (double damping : kDampings) {
    for (RoundingProblem &problem : *problems)
      problem.damping = damping;
    FailureOr<std::vector<numerics::QuantizedMatrix>> rounded = solve(*problems);
    if (failed(rounded))
      return failure();
    for (auto [i, target] : llvm::enumerate(targets)) {
      const WeightValues &weight = target->weight;
      std::vector<float> error(weight.rows * weight.columns);
      numerics::dequantize((*rounded)[i], Matrix(error.data(), weight.rows, weight.columns));
      for (size_t at = 0; at < error.size(); ++at)
        error[at] = weight.values[at] - error[at];
      const double cost =
          costOf(target->heldOut, {error.data(), weight.rows, weight.columns}, threads);
      if (damping == kDampings[0] || cost < least[i])
        target->damping = damping, least[i] = cost;
    }
  }
  return success();
}

FailureOr<std::vector<numerics::QuantizedMatrix>>
LossRounder::round(MutableArrayRef<LossTarget> targets) {
  SmallVector<LossTarget *> all, judged;
  for (LossTarget &target : targets) {
    all.push_back(&target);
    if (target.heldOut.tokens > 0)
      judged.push_back(&target);
  }
  if (both && failed(chooseDampings(judged)))
    return failure();
  for (LossTarget &target : targets)
    target.used = {};
  FailureOr<std::vector<RoundingProblem>> problems = problemsOf(all, &LossTarget::all);
  if (failed(problems))
    return failure();
  return solve(*problems);
}

//===----------------------------------------------------------------------===//
// Experts
//===----------------------------------------------------------------------===//

/// sum of n_e H_e over the experts by the sum of the n_e: H of the rows of all of them.
static FailureOr<SiteLoss> inputsOfAll(const PlannedSite &site, size_t number,
                                       const LayerLoss &losses) {
  SiteLoss all;
  std::vector<double> sums, sumsHeldOut;
  auto add = [](const HessianPair &own, std::vector<double> &sums, HessianPair &all) {
    sums.resize(own.inputs.size());
    for (size_t i = 0; i < sums.size(); ++i)
      sums[i] += static_cast<double>(own.inputs[i]) * static_cast<double>(own.tokens);
    all.tokens += own.tokens;
  };
  for (int64_t expert = 0; expert < site.experts(); ++expert) {
    FailureOr<SiteLoss> own = losses.ofExpert(number, expert);
    if (failed(own))
      return failure();
    add(own->all, sums, all.all);
    add(own->heldOut, sumsHeldOut, all.heldOut);
  }
  for (auto [sums, pair] : {std::pair(&sums, &all.all), {&sumsHeldOut, &all.heldOut}})
    for (double sum : *sums)
      pair->inputs.push_back(
          static_cast<float>(sum / static_cast<double>(std::max<int64_t>(pair->tokens, 1))));
  return all;
}

/// An expert whose Hessians few rows made has them filled up (ExpertInputs.h): H by that of all
/// experts' rows, `ofAll`, or if it is empty as if all columns were alike, and Hout as if all rows
/// were alike. Rows that the loss does not depend on are as good as none.
static void fill(HessianPair &own, const LossTarget &target, const std::vector<float> &ofAll) {
  if (!own.isReached())
    own.tokens = 0;
  const int64_t rows = target.weight.rows, columns = target.weight.columns;
  numerics::fillUp(own.inputs, columns, own.tokens, columns, ofAll);
  if (!own.outputs.empty())
    numerics::fillUp(own.outputs, rows, own.tokens, rows, {});
}

/// `ofAll` is kept for the experts that come next.
FailureOr<LossTarget> LossRounder::expertOf(const PlannedSite &site, size_t number, int64_t expert,
                                            const LayerLoss &losses,
                                            std::optional<SiteLoss> &ofAll) {
  LossTarget target{site, fmt::format("expert {} of ", expert)};
  const int64_t rows = site.rowsOfExpert(), columns = lm::columns(site.activation());
  target.weight = {std::vector<float>(rows * columns), rows, columns};
  FailureOr<SiteLoss> loss = losses.ofExpert(number, expert);
  if (failed(loss) || failed(run.runner().constants().readRows(
                          site.weight(), site.name(), expert * rows, target.weight.values)))
    return failure();
  if (both)
    target.used = loss->used();
  target.all = std::move(loss->all);
  target.heldOut = std::move(loss->heldOut);
  auto lacks = [&](const HessianPair &own) { return own.tokens < columns || !own.isReached(); };
  if (!ofAll && readsTokens(site.linear()) && (lacks(target.all) || (both && lacks(target.used)))) {
    FailureOr<SiteLoss> found = inputsOfAll(site, number, losses);
    if (failed(found))
      return failure();
    ofAll = std::move(*found);
  }
  fill(target.all, target, ofAll ? ofAll->all.inputs : std::vector<float>());
  if (both)
    fill(target.used, target, ofAll ? ofAll->used().inputs : std::vector<float>());
  return target;
}

LogicalResult LossRounder::roundExperts(const PlannedSite &site, size_t number,
                                        const LayerLoss &losses, QuantizedWeights &codes,
                                        ExpertRows &rows) {
  const int64_t experts = site.experts();
  numerics::QuantizedMatrix &all = codes[site.weight()] =
      numerics::QuantizedMatrix{site.scheme(), 0, lm::columns(site.activation()), {}, {}};
  std::optional<SiteLoss> ofAll;
  for (int64_t first = 0; first < experts; first += kExpertsAtATime) {
    std::vector<LossTarget> targets;
    for (int64_t expert = first; expert < std::min(first + kExpertsAtATime, experts); ++expert) {
      FailureOr<LossTarget> target = expertOf(site, number, expert, losses, ofAll);
      if (failed(target))
        return failure();
      rows[site.weight()].push_back(static_cast<int32_t>(target->all.tokens));
      targets.push_back(std::move(*target));
    }
    FailureOr<std::vector<numerics::QuantizedMatrix>> rounded = round(targets);
    if (failed(rounded))
      return failure();
    for (const numerics::QuantizedMatrix &part : *rounded)
      appendRows(all, part);
  }
  if (llvm::all_of(rows[site.weight()], [](int32_t count) { return count == 0; }))
    return failUnreached(site.op);
  return success();
}

//===----------------------------------------------------------------------===//
// Layers
//===----------------------------------------------------------------------===//

LogicalResult LossRounder::roundLayer(int64_t layer, ArrayRef<PlannedSite> sites,
                                      LayerLoss losses) {
  std::vector<LossTarget> targets;
  for (auto [site, loss] : llvm::zip_equal(sites, losses.sites)) {
    if (site.offsets())
      continue;
    FailureOr<WeightValues> weight = readWeight(run.runner().constants(), site);
    if (failed(weight))
      return failure();
    LossTarget &target = targets.emplace_back(LossTarget{site, "", std::move(*weight)});
    if (both)
      target.used = loss.used();
    target.all = std::move(loss.all);
    target.heldOut = std::move(loss.heldOut);
  }
  FailureOr<std::vector<numerics::QuantizedMatrix>> rounded = round(targets);
  if (failed(rounded))
    return failure();
  QuantizedWeights codes;
  for (auto [target, result] : llvm::zip_equal(targets, *rounded))
    codes[target.site.weight()] = std::move(result);
  targets.clear();
  ExpertRows rows;
  for (auto [i, site] : llvm::enumerate(sites))
    if (site.offsets() && failed(roundExperts(site, i, losses, codes, rows)))
      return failure();
  if (auto done = writeRounded(run.work(), run.file(layer), run.stamp(layer), sites, codes, rows);
      !done)
    return run.fail(done.error());
  return success();
}

LogicalResult easyquant::methods::roundByLoss(MethodRun &run, GptqOptionsOf optionsOf, bool both,
                                              StringRef statistics) {
  LayerRunner &runner = run.runner();
  const unsigned threads = runner.compiler().options().threads;
  if (both && runner.tokens().allSamples() < 2)
    return run.fail({ErrorCode::InvalidArgument,
                     "equant-gptq: 1 sample of calibration text, of which hessian=loss-both holds "
                     "one back to judge by: give two or more, or hessian=loss"});
  const int64_t layers = run.layerCount();
  auto isDone = [&](int64_t i) { return sitesNaming(run.layer(i), "gptq").empty() || run.has(i); };
  int64_t first = 0;
  while (first < layers && isDone(first))
    ++first;
  if (first == layers)
    return success();
  FailureOr<LossSource> source = LossSource::open(runner, run.ranks(), statistics, threads);
  if (failed(source))
    return failure();
  const LossRequest request{.rows = both, .heldOut = both};
  LossRounder rounder(run, optionsOf, both);
  for (int64_t layer = layers - 1; layer >= first; --layer) {
    ProgressAction::report(run.layer(layer).getContext(), "gptq", layers - 1 - layer, layers);
    SmallVector<PlannedSite> sites;
    if (!isDone(layer))
      sites = sitesNaming(run.layer(layer), "gptq");
    FailureOr<LayerLoss> losses = source->of(opsOf(sites), request);
    if (failed(losses) ||
        (!sites.empty() && failed(rounder.roundLayer(layer, sites, std::move(*losses)))))
      return failure();
  }
  return success();
}
