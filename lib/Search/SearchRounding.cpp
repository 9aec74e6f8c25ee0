//===- SearchRounding.cpp - Weights as a candidate rounds them ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SearchRounding.h"

#include "easyquant/Methods/LearnedTables.h"
#include "easyquant/Numerics/FormatChoice.h"
#include "easyquant/Numerics/Hadamard.h"
#include "easyquant/Numerics/Statistics.h"
#include "easyquant/Recipe/OptionValues.h"
#include "easyquant/Support/Parallel.h"

#include <mutex>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;
using namespace easyquant::methods;
using namespace easyquant::search;
using equant::PlanAttr;
using numerics::ConstMatrix;
using numerics::Matrix;
namespace option = easyquant::recipe::option;

/// Rows of a weight from which its error is estimated before anything runs.
static constexpr int64_t kSampledRows = 64;
/// Rows that are rounded by one thread at a time.
static constexpr int64_t kPieceRows = 32;

Result<void>
GroupInputs::forRows(int64_t hadamard,
                     llvm::function_ref<Result<void>(numerics::ConstMatrix)> use) const {
  std::vector<float> rotated;
  for (int64_t i = 0; i < rows->samples(); ++i) {
    Matrix sample = rows->sample(i);
    sample = sample.middleRows(skipped, sample.rows - skipped);
    if (hadamard != 0) {
      rotated.assign(sample.data, sample.data + sample.rows * sample.columns);
      numerics::rotateConstant(rotated, hadamard);
      sample.data = rotated.data();
    }
    if (auto done = use(sample); !done)
      return done;
  }
  return {};
}

std::span<const float> GroupInputs::meanSquares(int64_t hadamard) {
  std::vector<float> &known = squares[hadamard];
  if (!known.empty() || !areKnown())
    return known;
  if (!rows) {
    const std::vector<float> &found = **hessian(hadamard); // rotating cannot fail
    for (int64_t i = 0; i < columns; ++i)
      known.push_back(found[i * columns + i] / 2);
    return known;
  }
  std::vector<double> sums(columns);
  int64_t count = 0;
  auto add = [&](ConstMatrix sample) -> Result<void> {
    count += sample.rows;
    for (int64_t r = 0; r < sample.rows; ++r)
      for (int64_t c = 0; c < sample.columns; ++c)
        sums[c] += static_cast<double>(sample(r, c)) * sample(r, c);
    return {};
  };
  (void)forRows(hadamard, add);
  for (double sum : sums)
    known.push_back(static_cast<float>(sum / static_cast<double>(std::max<int64_t>(count, 1))));
  return known;
}

Result<const std::vector<float> *> GroupInputs::hessian(int64_t hadamard) {
  std::vector<float> &known = hessians[hadamard];
  if (!known.empty())
    return &known;
  if (!rows) {
    known = hessians[0];
    numerics::rotateConstant(known, columns, hadamard, hadamard, /*firstRow=*/0);
    return &known;
  }
  numerics::Gram gram(columns);
  auto add = [&](ConstMatrix sample) { return gram.update(sample, threads); };
  if (auto done = forRows(hadamard, add); !done)
    return Unexpected(done.error());
  known = std::move(gram).takeHessian();
  return &known;
}

Result<const numerics::GptqFactor *> GroupInputs::factor(const numerics::GptqOptions &options,
                                                         int64_t hadamard) {
  const std::tuple key(hadamard, options.actOrder, options.damping);
  if (auto factored = factors.find(key); factored != factors.end())
    return &factored->second;
  Result<const std::vector<float> *> known = hessian(hadamard);
  if (!known)
    return Unexpected(known.error());
  auto found = numerics::factorHessian({(*known)->data(), columns, columns}, options);
  if (!found)
    return Unexpected(found.error());
  return &factors.emplace(key, std::move(*found)).first->second;
}

static numerics::GptqOptions gptqOptionsOf(PlanAttr plan, unsigned threads) {
  const recipe::OptionValues defaults;
  return {.actOrder = plan.optionOr(option::actOrder, defaults[option::actOrder]),
          .staticGroups = plan.optionOr(option::staticGroups, defaults[option::staticGroups]),
          .damping = plan.optionOr(option::damping, defaults[option::damping]),
          .threads = threads};
}

static Result<void> roundByGptq(const PlannedSite &site, ConstMatrix weight, GroupInputs &inputs,
                                unsigned threads, Matrix out) {
  const numerics::GptqOptions options = gptqOptionsOf(site.plan, threads);
  auto factor = inputs.factor(options, site.plan.getWeight().getHadamard());
  if (!factor)
    return Unexpected(factor.error());
  auto round = [&](const numerics::Scheme &scheme) {
    return numerics::gptq(weight, **factor, scheme, site.rule(), options);
  };
  auto rounded = round(site.scheme());
  if (!rounded && rounded.error().code == ErrorCode::OutOfRange && site.plan.mayWidenScales())
    rounded = round(numerics::withWideScales(site.scheme()));
  if (!rounded)
    return Unexpected(rounded.error());
  numerics::dequantize(rounded->weight, out);
  return {};
}

bool easyquant::search::readsInputs(PlanAttr plan) {
  return plan.names("gptq") || plan.getRule() == equant::ScaleRule::HessianDiagonal ||
         isToBeLearned(plan);
}

equant::SchemeAttr easyquant::search::activationsOf(PlanAttr plan) {
  equant::SchemeAttr input = plan.getInput();
  return input && numerics::roundsTokens(input.toNumerics()) ? input : equant::SchemeAttr();
}

FailureOr<SmallVector<PlanAttr>>
easyquant::search::withLearnedTables(const ModelConstants &constants, ArrayRef<PlannedSite> sites,
                                     ArrayRef<PlanAttr> plans, GroupInputs &inputs,
                                     unsigned threads) {
  SmallVector<PlanAttr> learned(plans);
  if (!isToBeLearned(learned.front())) // sites of a group have one format
    return learned;
  llvm::MapVector<Value, SmallVector<size_t>> byActivation;
  for (auto [number, site] : llvm::enumerate(sites))
    byActivation[site.activation()].push_back(number);
  for (const auto &[activation, numbers] : byActivation) {
    const PlanAttr plan = learned[numbers.front()];
    auto own = llvm::map_to_vector(numbers, [&](size_t number) { return sites[number]; });
    const numerics::Codebook *&table = inputs.tables[{own.front().op, plan.withWideScales()}];
    if (!table) {
      FailureOr<PlanAttr> found =
          withLearnedTable(constants, weightsToLearn(own), plan, inputs.meanSquares(0), threads);
      if (failed(found))
        return failure();
      table = found->getWeight().getCodebook().toNumerics();
    }
    for (size_t number : numbers)
      learned[number] = plan.withCodebook(*table);
  }
  return learned;
}

Result<numerics::QuantizedMatrix> easyquant::search::roundToNearest(const PlannedSite &site,
                                                                    PlanAttr plan, ConstMatrix rows,
                                                                    GroupInputs *inputs) {
  const PlannedSite planned{site.op, plan};
  numerics::ScaleRule rule = planned.rule();
  if (rule.kind == numerics::ScaleRuleKind::HessianDiagonal && inputs) {
    rule.weights = inputs->meanSquares(plan.getWeight().getHadamard());
    rule.coarse = inputs->areRangesCoarse();
    if (!inputs->areKnown())
      rule.kind = numerics::ScaleRuleKind::Mse;
  }
  auto rounded = numerics::quantize(rows, planned.scheme(), rule);
  if (!rounded && rounded.error().code == ErrorCode::OutOfRange && plan.mayWidenScales())
    rounded = numerics::quantize(rows, numerics::withWideScales(planned.scheme()), rule);
  return rounded;
}

static Result<void> roundRows(const PlannedSite &site, ConstMatrix weight, GroupInputs *inputs,
                              unsigned threads, Matrix out) {
  if (inputs && readsInputs(site.plan))
    inputs->meanSquares(site.plan.getWeight().getHadamard()); // before threads ask for them
  // An outer scale is of all rows.
  const int64_t piece = site.scheme().outer ? weight.rows : kPieceRows;
  std::mutex mutex;
  Result<void> all;
  parallelFor((weight.rows + piece - 1) / piece, threads, [&](int64_t i) {
    const int64_t first = i * piece, count = std::min(piece, weight.rows - first);
    auto rounded = roundToNearest(site, site.plan, weight.middleRows(first, count), inputs);
    if (rounded)
      return numerics::dequantize(*rounded, out.middleRows(first, count));
    std::lock_guard lock(mutex);
    all = Unexpected(rounded.error());
  });
  return all;
}

LogicalResult easyquant::search::roundWeight(const ModelConstants &constants,
                                             const PlannedSite &site, PlanAttr plan,
                                             GroupInputs *inputs, unsigned threads, Matrix out) {
  const PlannedSite planned{site.op, plan};
  FailureOr<WeightValues> weight = readWeight(constants, site);
  if (failed(weight))
    return failure();
  const int64_t block = plan.getWeight().getHadamard();
  if (block != 0)
    numerics::rotateConstant(weight->values, block);
  Result<void> done = plan.names("gptq") && inputs->areKnown()
                          ? roundByGptq(planned, weight->view(), *inputs, threads, out)
                          : roundRows(planned, weight->view(), inputs, threads, out);
  if (!done)
    return emitError(site.loc()) << "site '" << site.name() << "': " << done.error().message;
  if (block != 0)
    numerics::rotateConstant({out.data, weight->values.size()}, block);
  return success();
}

LogicalResult easyquant::search::roundInto(const ModelConstants &constants, const PlannedSite &site,
                                           PlanAttr plan, GroupInputs *inputs, unsigned threads,
                                           CompiledSubgraph &program) {
  for (const SubgraphWeight &place : program.weights())
    if (place.value == site.weight() &&
        failed(roundWeight(constants, site, plan, inputs, threads, program.weight(place.global))))
      return failure();
  return success();
}

std::vector<size_t> easyquant::search::worthMeasuring(const SearchGroup &group,
                                                      ArrayRef<float> weightErrors) {
  llvm::MapVector<equant::SchemeAttr, std::vector<size_t>> byActivations;
  for (auto [i, candidate] : llvm::enumerate(group.candidates))
    byActivations[candidate.plans.front().getInput()].push_back(i);
  std::vector<size_t> kept;
  for (const auto &[input, candidates] : byActivations) {
    std::vector<numerics::FormatCost> costs;
    for (size_t i : candidates)
      costs.push_back(
          {group.candidates[i].bytes, weightErrors[i], group.candidates[i].milliseconds});
    for (size_t i : numerics::undominatedInTime(costs))
      kept.push_back(candidates[i]);
  }
  return kept;
}

/// Do both round weights alike?
static bool roundAlike(PlanAttr a, PlanAttr b) {
  return a.getWeight() == b.getWeight() && a.getRule() == b.getRule() &&
         a.getPercentile() == b.getPercentile();
}

FailureOr<std::vector<float>> easyquant::search::weightErrors(const ModelConstants &constants,
                                                              const SearchGroup &group,
                                                              GroupInputs &inputs,
                                                              unsigned threads) {
  std::vector<SmallVector<PlanAttr>> plans;
  std::vector<size_t> first; // candidate that rounds its weights alike
  for (const FormatCandidate &candidate : group.candidates) {
    auto learned = withLearnedTables(constants, group.sites, candidate.plans, inputs, threads);
    if (failed(learned))
      return failure();
    plans.push_back(std::move(*learned));
    first.push_back(llvm::find_if(plans,
                                  [&](const SmallVector<PlanAttr> &known) {
                                    return roundAlike(known.front(), plans.back().front());
                                  }) -
                    plans.begin());
  }
  std::vector<double> sums(group.candidates.size());
  for (auto [number, site] : llvm::enumerate(group.sites)) {
    FailureOr<WeightValues> weight = readWeight(constants, site);
    if (failed(weight))
      return failure();
    const int64_t count = std::min(kSampledRows, weight->rows), columns = weight->columns;
    std::vector<float> plain(count * columns), rounded(count * columns);
    for (int64_t i = 0; i < count; ++i)
      std::copy_n(weight->view().row(i * weight->rows / count), columns,
                  plain.data() + i * columns);
    std::map<int64_t, std::vector<float>> inBasis = {{0, plain}};
    const double scale = static_cast<double>(weight->rows) / static_cast<double>(count);
    for (auto [i, own] : llvm::enumerate(plans)) {
      if (first[i] != i)
        continue;
      const int64_t block = own[number].getWeight().getHadamard();
      auto [known, isNew] = inBasis.try_emplace(block, plain);
      if (isNew)
        numerics::rotateConstant(known->second, block);
      const std::vector<float> &rows = known->second;
      const std::span<const float> squares = inputs.meanSquares(block);
      auto moment = [&](int64_t column) { return squares.empty() ? 1.0f : squares[column]; };
      auto codes = roundToNearest(site, own[number], {rows.data(), count, columns}, &inputs);
      if (!codes)
        return emitError(site.loc()) << "site '" << site.name() << "': " << codes.error().message;
      numerics::dequantize(*codes, {rounded.data(), count, columns});
      for (int64_t j = 0; j < count * columns; ++j) {
        const double error = static_cast<double>(rows[j]) - rounded[j];
        sums[i] += scale * moment(j % columns) * error * error;
      }
    }
  }
  std::vector<float> errors;
  for (size_t known : first)
    errors.push_back(static_cast<float>(sums[known]));
  return errors;
}
