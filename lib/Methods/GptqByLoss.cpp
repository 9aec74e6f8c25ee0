//===- GptqByLoss.cpp - GPTQ in the metric of the model's loss ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GptqByLoss.h"
#include "SharedRows.h"

#include "easyquant/Execution/LossGradients.h"
#include "easyquant/Execution/SampleSum.h"
#include "easyquant/Methods/RoundedSites.h"
#include "easyquant/Numerics/Gradients.h"
#include "easyquant/Numerics/Statistics.h"
#include "easyquant/Support/Parallel.h"
#include "easyquant/Support/ProgressAction.h"

#include <cmath>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::methods;
using numerics::ConstMatrix;
using numerics::Matrix;
using Rows = TrainedLayer::Rows;

/// Shares of the mean of diag(Hout) that may be added to it.
static constexpr double kDampings[] = {0.1, 1, 3};

/// One sample in so many judges dampings.
static constexpr int64_t kHeldOutShare = 8;

namespace {

/// The Hessians of one site.
struct SiteHessians {
  numerics::Gram inputs, outputs;

  void merge(const SiteHessians &other) {
    inputs.merge(other.inputs);
    outputs.merge(other.outputs);
  }
  template <typename Visit> void fields(Visit &&visit) { visit(inputs), visit(outputs); }
};

struct LayerHessians {
  std::vector<SiteHessians> sites;

  void merge(const LayerHessians &other) {
    for (auto [mine, theirs] : llvm::zip_equal(sites, other.sites))
      mine.merge(theirs);
  }
  template <typename Visit> void fields(Visit &&visit) {
    for (SiteHessians &site : sites)
      site.fields(visit);
  }
};

/// Sums over held-out tokens, by site and damping.
struct HeldOutErrors {
  std::vector<double> sums;

  void merge(const HeldOutErrors &other) {
    for (auto [mine, theirs] : llvm::zip_equal(sums, other.sums))
      mine += theirs;
  }
  template <typename Visit> void fields(Visit &&visit) { visit(sums); }
};

/// Rows of a site of one sample, kept.
struct KeptRows {
  int64_t sample = 0;
  std::vector<float> input, gradient;
};

class LossRounder {
public:
  LossRounder(MethodRun &run, GptqOptionsOf optionsOf, bool both)
      : run(run), tokens(run.runner().tokens()), optionsOf(optionsOf), both(both),
        heldOut(both ? std::max<int64_t>(1, tokens.allSamples() / kHeldOutShare) : 0) {}

  LogicalResult roundLayer(LossGradients &gradients, int64_t layer);

private:
  /// The last samples of all are held out.
  bool isHeldOut(int64_t sample) const {
    return tokens.firstSample() + sample >= tokens.allSamples() - heldOut;
  }
  Result<void> add(LayerHessians &sum, ArrayRef<Rows> rows);
  LogicalResult solve(ArrayRef<PlannedSite> sites, LayerHessians hessians, QuantizedWeights &codes);
  Result<double> judge(const KeptRows &rows, ConstMatrix difference) const;

  MethodRun &run;
  const CalibrationTokens &tokens;
  GptqOptionsOf optionsOf;
  bool both;
  int64_t heldOut;
  std::vector<std::vector<KeptRows>> kept; ///< by site
  std::vector<float> weighted;
};

} // namespace

Result<void> LossRounder::add(LayerHessians &sum, ArrayRef<Rows> rows) {
  for (auto [site, values] : llvm::zip_equal(sum.sites, rows)) {
    const ConstMatrix x = values.input, g = values.gradient;
    weighted.resize(x.rows * x.columns);
    for (int64_t i = 0; i < x.rows; ++i) {
      double square = 0;
      for (int64_t j = 0; j < g.columns; ++j)
        square += static_cast<double>(g(i, j)) * g(i, j);
      const auto norm = static_cast<float>(std::sqrt(square));
      for (int64_t j = 0; j < x.columns; ++j)
        weighted[i * x.columns + j] = norm * x(i, j);
    }
    const unsigned threads = run.runner().compiler().options().threads;
    if (auto done = site.inputs.update({weighted.data(), x.rows, x.columns}, threads); !done)
      return done;
    if (both)
      if (auto done = site.outputs.update(g, threads); !done)
        return done;
  }
  return {};
}

/// The sum over tokens of (g^T D x)^2.
Result<double> LossRounder::judge(const KeptRows &rows, ConstMatrix difference) const {
  const int64_t columns = difference.columns,
                count = static_cast<int64_t>(rows.input.size()) / columns;
  std::vector<float> product(count * columns);
  numerics::linearInputGradient({rows.gradient.data(), count, difference.rows}, difference,
                                Matrix(product.data(), count, columns), /*threads=*/1);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    double dot = 0;
    for (int64_t j = 0; j < columns; ++j)
      dot += static_cast<double>(product[i * columns + j]) * rows.input[i * columns + j];
    sum += dot * dot;
  }
  return sum;
}

LogicalResult LossRounder::solve(ArrayRef<PlannedSite> sites, LayerHessians hessians,
                                 QuantizedWeights &codes) {
  struct Candidate {
    Result<numerics::GptqResult> result = numerics::GptqResult{};
    std::vector<float> difference;
  };
  const size_t dampings = both ? std::size(kDampings) : 1;
  std::vector<WeightValues> weights;
  std::vector<numerics::GptqFactor> factors;
  std::vector<std::vector<float>> outputs;
  const unsigned threads = run.runner().compiler().options().threads;
  for (auto [site, sums] : llvm::zip_equal(sites, hessians.sites)) {
    FailureOr<WeightValues> weight = readWeight(run.runner().constants(), site);
    if (failed(weight))
      return failure();
    const std::vector<float> hessian = std::move(sums.inputs).takeHessian();
    auto factor = numerics::factorHessian({hessian.data(), weight->columns, weight->columns},
                                          optionsOf(site));
    if (!factor)
      return emitError(site.loc()) << "site '" << site.name() << "': " << factor.error().message;
    weights.push_back(std::move(*weight));
    factors.push_back(std::move(*factor));
    outputs.push_back(std::move(sums.outputs).takeHessian());
  }
  std::vector<Candidate> candidates(sites.size() * dampings);
  parallelFor(std::ssize(candidates), threads, [&](int64_t index) {
    const size_t at = index / dampings;
    const PlannedSite &site = sites[at];
    const int64_t rows = weights[at].rows, columns = weights[at].columns;
    Candidate &candidate = candidates[index];
    numerics::GptqOptions options = optionsOf(site);
    options.threads = 1;
    Result<numerics::RowFactor> rowFactor = numerics::RowFactor{};
    if (both) {
      rowFactor =
          numerics::factorRows({outputs[at].data(), rows, rows}, kDampings[index % dampings], 1);
      if (!rowFactor) {
        candidate.result = Unexpected(rowFactor.error());
        return;
      }
      options.rowFactor = &*rowFactor;
    }
    auto round = [&](const numerics::Scheme &scheme) {
      return numerics::gptq(weights[at].view(), factors[at], scheme, site.rule(), options);
    };
    candidate.result = round(site.scheme());
    if (!candidate.result && candidate.result.error().code == ErrorCode::OutOfRange &&
        site.plan.mayWidenScales())
      candidate.result = round(numerics::withWideScales(site.scheme()));
    if (!candidate.result || !both)
      return;
    candidate.difference.resize(rows * columns);
    numerics::dequantize(candidate.result->weight,
                         Matrix(candidate.difference.data(), rows, columns));
    for (int64_t i = 0; i < rows * columns; ++i)
      candidate.difference[i] = weights[at].values[i] - candidate.difference[i];
  });
  for (auto [index, candidate] : llvm::enumerate(candidates))
    if (!candidate.result)
      return emitError(sites[index / dampings].loc())
             << "site '" << sites[index / dampings].name()
             << "': " << candidate.result.error().message;

  std::vector<double> errors(candidates.size());
  if (both) {
    SampleSum<HeldOutErrors> sum(run.ranks(), tokens, [&] {
      return HeldOutErrors{std::vector<double>(candidates.size())};
    });
    for (size_t k = 0; k < kept.front().size(); ++k) {
      std::vector<double> &own = sum.of(kept.front()[k].sample).sums;
      parallelFor(std::ssize(candidates), threads, [&](int64_t index) {
        const size_t at = index / dampings;
        own[index] += *judge(kept[at][k], {candidates[index].difference.data(), weights[at].rows,
                                          weights[at].columns});
      });
    }
    Result<HeldOutErrors> all = sum.finish();
    if (!all)
      return run.fail(all.error());
    errors = std::move(all->sums);
  }
  for (auto [at, site] : llvm::enumerate(sites)) {
    auto first = errors.begin() + at * dampings;
    size_t best = std::min_element(first, first + dampings) - errors.begin();
    if (getenv("EQ_DAMP"))
      best = at * dampings + atoi(getenv("EQ_DAMP"));
    if (getenv("EQ_DEBUG_LOSS"))
      llvm::errs() << site.name() << " damping " << kDampings[best % dampings] << " errors "
                   << errors[at * dampings] << " " << errors[at * dampings + 1 % dampings] << " "
                   << errors[at * dampings + 2 % dampings] << "\n";
    codes[site.weight()] = std::move(candidates[best].result->weight);
  }
  return success();
}

LogicalResult LossRounder::roundLayer(LossGradients &gradients, int64_t layer) {
  SmallVector<PlannedSite> sites = sitesNaming(run.layer(layer), "gptq");
  SmallVector<Value> weights =
      llvm::map_to_vector(sites, [](const PlannedSite &site) { return site.weight(); });
  const bool isDone = sites.empty() || run.has(layer);
  if (isDone)
    return gradients.backward({}, [](int64_t, ArrayRef<Rows>) -> Result<void> { return {}; });
  SampleSum<LayerHessians> sum(run.ranks(), tokens, [&] {
    LayerHessians none;
    for (Value weight : weights) {
      auto type = cast<RankedTensorType>(weight.getType());
      none.sites.push_back(
          {numerics::Gram(type.getDimSize(1)), numerics::Gram(both ? type.getDimSize(0) : 0)});
    }
    return none;
  });
  kept.assign(sites.size(), {});
  auto visit = [&](int64_t sample, ArrayRef<Rows> rows) -> Result<void> {
    if (getenv("EQ_DEBUG_LOSS") && sample == 0)
      for (auto [site, values] : llvm::zip_equal(sites, rows)) {
        std::vector<double> sq;
        double all = 0;
        for (int64_t i = 0; i < values.gradient.rows; ++i) {
          double s = 0;
          for (int64_t j = 0; j < values.gradient.columns; ++j)
            s += double(values.gradient(i, j)) * values.gradient(i, j);
          sq.push_back(s);
          all += s;
        }
        double zero = sq[0];
        std::sort(sq.rbegin(), sq.rend());
        double ten = 0;
        for (int i = 0; i < 10; ++i)
          ten += sq[i];
        llvm::errs() << site.name() << " all " << all << " first token " << zero / all << " top " << sq[0] / all << " ten " << ten / all << "\n";
      }
    if (!isHeldOut(sample))
      return add(sum.of(sample), rows);
    for (auto [of, values] : llvm::zip_equal(kept, rows)) {
      const ConstMatrix x = values.input, g = values.gradient;
      of.push_back({sample,
                    {x.data, x.data + x.rows * x.columns},
                    {g.data, g.data + g.rows * g.columns}});
    }
    return {};
  };
  if (failed(gradients.backward(weights, visit)))
    return failure();
  Result<LayerHessians> hessians = sum.finish();
  if (!hessians)
    return run.fail(hessians.error());
  QuantizedWeights codes;
  if (failed(solve(sites, std::move(*hessians), codes)))
    return failure();
  if (auto done = writeRounded(run.work(), run.file(layer), run.stamp(layer), sites, codes); !done)
    return run.fail(done.error());
  return success();
}

LogicalResult easyquant::methods::roundByLoss(MethodRun &run, GptqOptionsOf optionsOf, bool both) {
  LayerRunner &runner = run.runner();
  const int64_t layers = run.layerCount();
  int64_t first = 0;
  while (first < layers && (sitesNaming(run.layer(first), "gptq").empty() || run.has(first)))
    ++first;
  if (first == layers)
    return success();
  FailureOr<LossGradients> gradients =
      LossGradients::create(runner, runner.compiler().options().threads);
  if (failed(gradients))
    return failure();
  LossRounder rounder(run, optionsOf, both);
  for (int64_t layer = layers - 1; layer >= first; --layer) {
    ProgressAction::report(run.layer(layer).getContext(), "gptq", layers - 1 - layer, layers);
    if (failed(rounder.roundLayer(*gradients, layer)))
      return failure();
  }
  return success();
}
