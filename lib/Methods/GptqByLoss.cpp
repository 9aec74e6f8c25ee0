//===- GptqByLoss.cpp - GPTQ in the metric of the model's loss ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GptqByLoss.h"
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

/// Shares of the mean of diag(Hout) that may be added to it.
static constexpr double kDampings[] = {0.1, 1, 3};

namespace {

/// What it takes to round the weight of a site.
struct SiteProblem {
  PlannedSite site;
  WeightValues weight;
  numerics::GptqFactor columns;
  std::vector<float> outputs; ///< Hout, N x N; empty without feedback over rows
  double damping = kDampings[0];
};

class LossRounder {
public:
  LossRounder(MethodRun &run, GptqOptionsOf optionsOf)
      : run(run), threads(run.runner().compiler().options().threads), optionsOf(optionsOf) {}

  /// Rounds sites of a layer and writes its file.
  LogicalResult roundLayer(int64_t layer, ArrayRef<PlannedSite> sites,
                           std::vector<SiteLoss> losses);

private:
  FailureOr<std::vector<SiteProblem>> problemsOf(ArrayRef<PlannedSite> sites,
                                                 std::vector<HessianPair> hessians);
  FailureOr<std::vector<numerics::QuantizedMatrix>> solve(std::vector<SiteProblem> &problems);
  FailureOr<std::vector<double>> chooseDampings(ArrayRef<PlannedSite> sites,
                                                ArrayRef<SiteLoss> losses);

  MethodRun &run;
  unsigned threads;
  GptqOptionsOf optionsOf;
};

} // namespace

FailureOr<std::vector<SiteProblem>> LossRounder::problemsOf(ArrayRef<PlannedSite> sites,
                                                            std::vector<HessianPair> hessians) {
  std::vector<SiteProblem> problems;
  for (auto [site, pair] : llvm::zip_equal(sites, hessians)) {
    FailureOr<WeightValues> weight = readWeight(run.runner().constants(), site);
    if (failed(weight))
      return failure();
    numerics::GptqOptions options = optionsOf(site);
    options.threads = threads;
    FailureOr<numerics::GptqFactor> factor =
        factorFor(site, {pair.inputs.data(), weight->columns, weight->columns}, options);
    if (failed(factor))
      return failure();
    problems.push_back({site, std::move(*weight), std::move(*factor), std::move(pair.outputs)});
  }
  return problems;
}

static Result<numerics::QuantizedMatrix> solveSite(SiteProblem &p, numerics::GptqOptions options) {
  options.threads = 1; // sites share them
  Result<numerics::RowFactor> rows = numerics::RowFactor();
  if (!p.outputs.empty()) {
    rows = numerics::factorRows({p.outputs.data(), p.weight.rows, p.weight.rows}, p.damping, 1);
    if (!rows)
      return Unexpected(rows.error());
    options.rowFactor = &*rows;
  }
  auto round = [&](const numerics::Scheme &scheme) {
    return numerics::gptq(p.weight.view(), p.columns, scheme, p.site.rule(), options);
  };
  Result<numerics::GptqResult> rounded = round(p.site.scheme());
  if (!rounded && rounded.error().code == ErrorCode::OutOfRange && p.site.plan.mayWidenScales())
    rounded = round(numerics::withWideScales(p.site.scheme()));
  if (!rounded)
    return Unexpected(rounded.error());
  return std::move(rounded->weight);
}

FailureOr<std::vector<numerics::QuantizedMatrix>>
LossRounder::solve(std::vector<SiteProblem> &problems) {
  std::vector<Result<numerics::QuantizedMatrix>> results(problems.size(),
                                                         numerics::QuantizedMatrix());
  std::vector<numerics::GptqOptions> options;
  for (const SiteProblem &problem : problems)
    options.push_back(optionsOf(problem.site));
  parallelFor(std::ssize(problems), threads,
              [&](int64_t i) { results[i] = solveSite(problems[i], options[i]); });
  std::vector<numerics::QuantizedMatrix> rounded;
  for (auto [problem, result] : llvm::zip_equal(problems, results)) {
    if (!result)
      return emitError(problem.site.loc())
             << "site '" << problem.site.name() << "': " << result.error().message;
    rounded.push_back(std::move(*result));
  }
  return rounded;
}

FailureOr<std::vector<double>> LossRounder::chooseDampings(ArrayRef<PlannedSite> sites,
                                                           ArrayRef<SiteLoss> losses) {
  std::vector<HessianPair> hessians;
  for (const SiteLoss &loss : losses)
    hessians.push_back(loss.used());
  FailureOr<std::vector<SiteProblem>> problems = problemsOf(sites, std::move(hessians));
  if (failed(problems))
    return failure();
  std::vector<double> chosen(problems->size()), least(problems->size());
  for (double damping : kDampings) {
    for (SiteProblem &problem : *problems)
      problem.damping = damping;
    FailureOr<std::vector<numerics::QuantizedMatrix>> rounded = solve(*problems);
    if (failed(rounded))
      return failure();
    for (size_t i = 0; i < problems->size(); ++i) {
      const WeightValues &weight = (*problems)[i].weight;
      std::vector<float> error(weight.rows * weight.columns);
      numerics::dequantize((*rounded)[i], Matrix(error.data(), weight.rows, weight.columns));
      for (size_t at = 0; at < error.size(); ++at)
        error[at] = weight.values[at] - error[at];
      const double cost =
          costOf(losses[i].heldOut, {error.data(), weight.rows, weight.columns}, threads);
      if (chosen[i] == 0 || cost < least[i])
        chosen[i] = damping, least[i] = cost;
    }
  }
  return chosen;
}

LogicalResult LossRounder::roundLayer(int64_t layer, ArrayRef<PlannedSite> sites,
                                      std::vector<SiteLoss> losses) {
  std::vector<double> dampings;
  if (losses.front().heldOut.tokens > 0) {
    FailureOr<std::vector<double>> chosen = chooseDampings(sites, losses);
    if (failed(chosen))
      return failure();
    dampings = std::move(*chosen);
  }
  std::vector<HessianPair> hessians;
  for (SiteLoss &loss : losses)
    hessians.push_back(std::move(loss.all));
  FailureOr<std::vector<SiteProblem>> problems = problemsOf(sites, std::move(hessians));
  if (failed(problems))
    return failure();
  for (auto [problem, damping] : llvm::zip(*problems, dampings))
    problem.damping = damping;
  FailureOr<std::vector<numerics::QuantizedMatrix>> rounded = solve(*problems);
  if (failed(rounded))
    return failure();
  QuantizedWeights codes;
  for (auto [site, result] : llvm::zip_equal(sites, *rounded))
    codes[site.weight()] = std::move(result);
  if (auto done = writeRounded(run.work(), run.file(layer), run.stamp(layer), sites, codes); !done)
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
  LossRounder rounder(run, optionsOf);
  for (int64_t layer = layers - 1; layer >= first; --layer) {
    ProgressAction::report(run.layer(layer).getContext(), "gptq", layers - 1 - layer, layers);
    SmallVector<PlannedSite> sites;
    if (!isDone(layer))
      sites = sitesNaming(run.layer(layer), "gptq");
    FailureOr<std::vector<SiteLoss>> losses = source->of(opsOf(sites), request);
    if (failed(losses) ||
        (!sites.empty() && failed(rounder.roundLayer(layer, sites, std::move(*losses)))))
      return failure();
  }
  return success();
}
