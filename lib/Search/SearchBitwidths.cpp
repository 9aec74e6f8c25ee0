//===- SearchBitwidths.cpp - Formats that are worth their bytes -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelTimes.h"
#include "LossSensitivity.h"
#include "SearchEntropy.h"
#include "SearchReport.h"

#include "easyquant/Execution/SubgraphPass.h"
#include "easyquant/Search/Passes.h"
#include "easyquant/Support/AttributeJson.h"
#include "easyquant/Support/Checksum.h"
#include "easyquant/Support/ProgressAction.h"
#include "easyquant/Support/WriteFile.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "llvm/ADT/StringExtras.h"

#include <fmt/ranges.h>

#include <cmath>
#include <limits>
#include <numeric>

namespace easyquant::search {
#define GEN_PASS_DEF_SEARCHBITWIDTHS
#include "easyquant/Search/Passes.h.inc"
} // namespace easyquant::search

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;
using namespace easyquant::methods;
using namespace easyquant::search;
using numerics::FormatChoice;
using numerics::FormatTable;
using numerics::Milliseconds;
using numerics::Stage;

namespace {

constexpr llvm::StringLiteral kSearch = "search";
constexpr int64_t kGroupSizes[] = {32, 64, 128};

const char *optionOf(Stage stage) {
  return stage == Stage::Decode ? "max-decode-ms" : "max-prefill-ms";
}

enum class Strategy { Grid, Entropy, Greedy, Learned };

struct SearchBitwidths : SubgraphPass<search::impl::SearchBitwidthsBase<SearchBitwidths>> {
  using SubgraphPass::SubgraphPass;
  LogicalResult run() override;

private:
  InFlightDiagnostic fail() { return emitError(getOperation().getLoc()); }
  LogicalResult readOptions();
  LogicalResult readBudgets(const SearchSpace &space);
  LogicalResult readTimes(SearchSpace &space, const MethodRun *run);
  LogicalResult checkTimes(const SearchSpace &space, const SearchPoint &point);
  Result<void> agree(const MethodRun &run) const;
  bool isByLoss() const { return sensitivity == "loss"; }
  double limitOf(Stage stage) const { return stage == Stage::Decode ? maxDecodeMs : maxPrefillMs; }
  SmallVector<Stage> timedStages() const;
  Milliseconds allowedMilliseconds(const SearchSpace &space) const;
  SearchSpaceRequest spaceRequest() const;
  std::string stampText() const;
  FailureOr<SearchTable> tableOfEntropy(const SearchSpace &space);
  LogicalResult choose(const SearchSpace &space, const SearchTable &table, SearchRun *run);
  LogicalResult finish(const SearchSpace &space, const SearchTable &table, const SearchRun *run);
  LogicalResult runOnWeights();

  Strategy way = Strategy::Grid;
  Objective aim = Objective::KL;
  std::vector<const targets::Family *> families;
  std::vector<SearchPoint> points;
};

/// Chooses within one budget, by the strategies that run whole models.
class PointSearch {
public:
  PointSearch(const SearchSpace &space, const SearchTable &table, SearchRun *run,
              int64_t evaluations, const Milliseconds &limits)
      : space(space), table(table), run(run), evaluations(evaluations), limits(limits) {}

  /// Runs what the table says is best within each budget, dealt out to the ranks.
  LogicalResult verifyAhead(ArrayRef<SearchPoint> points) const;
  LogicalResult grid(SearchPoint &point);
  LogicalResult greedy(SearchPoint &point);
  LogicalResult learned(SearchPoint &point);

private:
  Result<FormatChoice> best(const FormatTable &costs, const SearchPoint &point) const;
  FailureOr<FormatChoice> bestByTable(const SearchPoint &point) const;
  LogicalResult settle(SearchPoint &point, const FormatChoice &choice);
  LogicalResult fail(const Error &error) const {
    return emitError(space.groups.front().activation.getLoc()) << error.message;
  }

  const SearchSpace &space;
  const SearchTable &table;
  SearchRun *run; ///< null: nothing runs
  int64_t evaluations;
  Milliseconds limits; ///< of what groups may take
};

} // namespace

//===----------------------------------------------------------------------===//
// Strategies
//===----------------------------------------------------------------------===//

/// The bytes that groups may take; with lambda any number.
static int64_t budgetOf(const SearchSpace &space, const SearchPoint &point) {
  if (point.budget == "lambda")
    return std::numeric_limits<int64_t>::max();
  return point.budget == "avg_bits"
             ? static_cast<int64_t>(point.value * static_cast<double>(space.weights()) / 8)
             : static_cast<int64_t>(point.value) - space.fixedBytes;
}

/// Chooses for groups within a budget. The choice by a penalty has a size of its own.
static numerics::ChoiceRule ruleOf(const SearchSpace &space, const SearchPoint &point) {
  if (point.budget == "lambda") {
    const double lossPerByte = point.value * 8 / static_cast<double>(space.weights());
    return [=](const FormatTable &costs, double lossWeight) -> Result<FormatChoice> {
      return numerics::leastPenalized(costs, lossWeight * lossPerByte);
    };
  }
  const int64_t budget = budgetOf(space, point);
  return [=](const FormatTable &costs, double) { return numerics::leastLoss(costs, budget); };
}

Result<FormatChoice> PointSearch::best(const FormatTable &costs, const SearchPoint &point) const {
  return numerics::withinTime(costs, limits, ruleOf(space, point));
}

FailureOr<FormatChoice> PointSearch::bestByTable(const SearchPoint &point) const {
  Result<FormatChoice> found = best(table.costs, point);
  if (!found)
    return fail(found.error());
  return std::move(*found);
}

LogicalResult PointSearch::settle(SearchPoint &point, const FormatChoice &choice) {
  point.candidates = table.candidatesOf(choice.formats);
  point.bytes = choice.bytes;
  point.predicted = numerics::costOf(table.costs, choice.formats).loss;
  if (!run)
    return success();
  FailureOr<ModelLosses> verified = run->lossesOf(point.candidates);
  if (failed(verified))
    return failure();
  point.verified = *verified;
  ++point.evaluations;
  return success();
}

LogicalResult PointSearch::verifyAhead(ArrayRef<SearchPoint> points) const {
  std::vector<std::vector<size_t>> choices;
  for (const SearchPoint &point : points) {
    FailureOr<FormatChoice> found = bestByTable(point);
    if (failed(found))
      return failure();
    choices.push_back(table.candidatesOf(found->formats));
  }
  return run->runChoices(choices);
}

LogicalResult PointSearch::grid(SearchPoint &point) {
  FailureOr<FormatChoice> found = bestByTable(point);
  return failed(found) ? failure() : settle(point, *found);
}

LogicalResult PointSearch::greedy(SearchPoint &point) {
  FailureOr<FormatChoice> start = bestByTable(point);
  if (failed(start))
    return failure();
  const int64_t budget = point.budget == "lambda" ? start->bytes : budgetOf(space, point);
  bool isReported = false; // the diagnostic of a run that failed
  auto objective = [&](std::span<const size_t> formats) -> Result<double> {
    FailureOr<ModelLosses> losses = run->lossesOf(table.candidatesOf(formats));
    if (succeeded(losses))
      return losses->objective;
    isReported = true;
    return makeError(ErrorCode::Corrupt, "a whole model cannot be run");
  };
  auto found =
      numerics::descend(table.costs, budget, start->formats, evaluations, objective, limits);
  if (!found)
    return isReported ? failure() : fail(found.error());
  point.evaluations = found->evaluations - 1; // settle counts the last one
  point.isLocalOptimum = found->isLocalOptimum;
  return settle(point, found->choice);
}

LogicalResult PointSearch::learned(SearchPoint &point) {
  FailureOr<FormatChoice> first = bestByTable(point);
  if (failed(first))
    return failure();
  // Two evaluations are for what is chosen, without and with what is learned.
  auto samples =
      numerics::sampleChoices(table.costs, first->bytes, std::max<int64_t>(evaluations - 2, 1));
  if (!samples)
    return fail(samples.error());
  samples->insert(samples->begin(), *first);
  std::vector<std::vector<size_t>> choices;
  for (const FormatChoice &sample : *samples)
    choices.push_back(table.candidatesOf(sample.formats));
  if (failed(run->runChoices(choices)))
    return failure();
  std::vector<double> losses;
  for (const std::vector<size_t> &choice : choices) {
    FailureOr<ModelLosses> found = run->lossesOf(choice);
    if (failed(found))
      return failure();
    losses.push_back(found->objective);
  }
  std::map<std::string, size_t> kinds;
  std::vector<size_t> kindOfGroup;
  for (const SearchGroup &group : space.groups)
    kindOfGroup.push_back(kinds.try_emplace(kindOf(group), kinds.size()).first->second);
  auto weights = numerics::fitKinds(table.costs, kindOfGroup, *samples, losses);
  if (!weights)
    return fail(weights.error());
  FormatTable learned = table.costs;
  for (auto [costs, kind] : llvm::zip_equal(learned, kindOfGroup))
    for (numerics::FormatCost &cost : costs)
      cost.loss *= (*weights)[kind];
  Result<FormatChoice> second = best(learned, point);
  if (!second)
    return fail(second.error());
  if (failed(settle(point, *second)))
    return failure();
  point.predicted = second->loss;
  point.evaluations += static_cast<int64_t>(samples->size());
  for (const auto &[kind, number] : kinds)
    point.weights[kind] = (*weights)[number];
  if (point.verified->objective <= losses.front())
    return success();
  const int64_t asked = point.evaluations - 1;
  if (failed(settle(point, *first)))
    return failure();
  point.evaluations = asked + 1;
  return success();
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

LogicalResult SearchBitwidths::readOptions() {
  const std::pair<llvm::StringLiteral, Strategy> ways[] = {{"grid", Strategy::Grid},
                                                           {"entropy", Strategy::Entropy},
                                                           {"greedy", Strategy::Greedy},
                                                           {"learned", Strategy::Learned}};
  const auto *named = llvm::find_if(ways, [&](const auto &w) { return w.first == strategy; });
  if (named == std::end(ways))
    return fail() << "unknown strategy '" << strategy.getValue()
                  << "'; expected grid, entropy, greedy or learned";
  way = named->second;
  if (objective != "kl" && objective != "loss")
    return fail() << "unknown objective '" << objective.getValue() << "'; expected kl or loss";
  aim = objective == "kl" ? Objective::KL : Objective::Loss;
  if (way == Strategy::Learned && aim == Objective::Loss)
    return fail() << "strategy learned fits relative errors, and a loss less the float model's may "
                     "be 0: take objective kl";
  if (sensitivity != "blocks" && sensitivity != "loss")
    return fail() << "unknown sensitivity '" << sensitivity.getValue()
                  << "'; expected blocks or loss";
  if (isByLoss() && (way == Strategy::Entropy || aim == Objective::Loss))
    return fail() << "sensitivity=loss predicts the divergence of the model: give objective=kl, "
                     "and a strategy other than entropy";
  if (isByLoss() && Ranks::of(&getContext()).size() > 1)
    return fail() << "sensitivity=loss is computed by one rank; found "
                  << Ranks::of(&getContext()).size() << " ranks: start it without a launcher";
  if (searchHead && !avgBits.empty())
    return fail() << "avg-bits counts the layers' weights alone, so that it says nothing about the "
                     "output head: give max-bytes or lambda, or search-head=false";
  if (searchHead && way == Strategy::Entropy)
    return fail() << "strategy entropy knows no losses of the output head: give search-head=false";
  if (formats.empty())
    return fail() << "no formats to choose from: give formats=SCHEME,SCHEME,... or formats=all";
  for (Stage stage : numerics::kStages)
    if (!(limitOf(stage) >= 0) || !std::isfinite(limitOf(stage)))
      return fail() << optionOf(stage) << " must be a number above 0, or 0 for any time, found "
                    << limitOf(stage);
  Result<std::vector<const targets::Family *>> found = targets::findFamilies(kernelTargets);
  if (!found)
    return fail() << found.error().message;
  families = std::move(*found);
  if (SmallVector<Stage> timed = timedStages();
      !timed.empty() && !kernelTargets.empty() &&
      !canTimeKernels(*families.front(), kernelTargets[0]))
    return fail() << optionOf(timed.front())
                  << " is measured on this machine's CPU, and the first target, '"
                  << kernelTargets[0]
                  << "', is code for another processor: search for target cpu, or give a budget of "
                     "bytes alone";
  for (const std::string &name : fit)
    if (const recipe::MethodInfo *method = recipe::findMethod(name);
        !method || method->stage == recipe::Stage::Base)
      return fail() << "fit: '" << name << "' is no method that fits weights; take awq, gptq, "
                    << "signround or lkd";
  if (searchSamples < 1 || evaluations < 1)
    return fail() << "search-samples and evaluations must be at least 1, found "
                  << searchSamples.getValue() << " and " << evaluations.getValue();
  return success();
}

SearchSpaceRequest SearchBitwidths::spaceRequest() const {
  SearchSpaceRequest request;
  request.schemes.assign(formats.begin(), formats.end());
  request.groupSizes.assign(groupSizes.begin(), groupSizes.end());
  if (groupSizes.empty())
    request.groupSizes.assign(std::begin(kGroupSizes), std::end(kGroupSizes));
  request.bases.assign(activationBases.begin(), activationBases.end());
  request.activationGroupSizes.assign(activationGroupSizes.begin(), activationGroupSizes.end());
  if (activationGroupSizes.empty())
    request.activationGroupSizes = {0};
  request.families = families;
  request.fit.assign(fit.begin(), fit.end());
  request.perSite = perSite;
  request.head = searchHead;
  return request;
}

/// What all candidates cost but for losses: bytes, and times once those are measured.
static FormatTable costsOf(const SearchSpace &space) {
  FormatTable table;
  for (const SearchGroup &group : space.groups) {
    std::vector<numerics::FormatCost> &costs = table.emplace_back();
    for (const FormatCandidate &candidate : group.candidates)
      costs.push_back({candidate.bytes, 0, candidate.milliseconds});
  }
  return table;
}

/// Budgets that cannot be met are said before anything is measured.
LogicalResult SearchBitwidths::readBudgets(const SearchSpace &space) {
  for (double bits : avgBits)
    points.push_back({.budget = "avg_bits", .value = bits});
  for (int64_t bytes : maxBytes)
    points.push_back({.budget = "max_bytes", .value = static_cast<double>(bytes)});
  for (double lambda : lambdas)
    points.push_back({.budget = "lambda", .value = lambda});
  if (points.empty())
    return fail() << "no budget: give avg-bits, max-bytes or lambda";
  const int64_t least = numerics::leastBytes(costsOf(space));
  const double leastBits = 8.0 * static_cast<double>(least) / static_cast<double>(space.weights());
  constexpr llvm::StringLiteral remedy =
      "; give a larger budget, formats of fewer bits, or larger groups";
  for (const SearchPoint &point : points) {
    if (!(point.value > 0) || !std::isfinite(point.value))
      return fail() << "a budget must be a number above 0, found " << point.value;
    if (point.budget == "avg_bits" &&
        point.value * static_cast<double>(space.weights()) / 8 < static_cast<double>(least))
      return fail() << fmt::format("a budget of {} bits a weight cannot be met: the smallest "
                                   "formats take {:.3f} bits{}",
                                   point.value, std::ceil(leastBits * 1000) / 1000, remedy.str());
    if (point.budget == "max_bytes" && point.value < static_cast<double>(least + space.fixedBytes))
      return fail() << fmt::format("a budget of {:.0f} bytes cannot be met: with the smallest "
                                   "formats the weights take {} bytes, {} of them outside of what "
                                   "is searched{}",
                                   point.value, least + space.fixedBytes, space.fixedBytes,
                                   remedy.str());
  }
  return success();
}

SmallVector<Stage> SearchBitwidths::timedStages() const {
  SmallVector<Stage> stages;
  llvm::copy_if(numerics::kStages, std::back_inserter(stages),
                [&](Stage stage) { return limitOf(stage) > 0; });
  return stages;
}

Milliseconds SearchBitwidths::allowedMilliseconds(const SearchSpace &space) const {
  Milliseconds allowed = numerics::kAnyTime;
  for (Stage stage : timedStages())
    allowed[stage] = limitOf(stage) - space.fixedMilliseconds[stage];
  return allowed;
}

static std::string inWords(Stage stage, double milliseconds) {
  const double shown = std::ceil(milliseconds * 1e4) / 1e4; // a limit of that can be met
  return stage == Stage::Decode
             ? fmt::format("{:.4f} ms a token", shown)
             : fmt::format("{:.4f} ms for {} tokens", shown, numerics::rowsOf(stage));
}

/// What cannot be met is said before losses are measured.
LogicalResult SearchBitwidths::readTimes(SearchSpace &space, const MethodRun *run) {
  if (timedStages().empty())
    return success();
  auto progress = [&](int64_t done, int64_t all) {
    ProgressAction::report(&getContext(), "kernels", done, all);
  };
  if (failed(measureKernelTimes(getOperation(), space, timedStages(), threads, run, progress)))
    return failure();
  for (const SearchPoint &point : points)
    if (failed(checkTimes(space, point)))
      return failure();
  return success();
}

LogicalResult SearchBitwidths::checkTimes(const SearchSpace &space, const SearchPoint &point) {
  const FormatTable costs = costsOf(space);
  const numerics::ChoiceRule rule = ruleOf(space, point);
  const Milliseconds allowed = allowedMilliseconds(space), fixed = space.fixedMilliseconds;
  const bool isFree = point.budget == "lambda";
  auto least = numerics::leastTimes(costs, allowed, rule);
  if (!least)
    return fail() << least.error().message;
  const std::string fastest =
      fmt::format("the fastest formats{} take", isFree ? "" : " within the budget of bytes");
  const std::string remedy =
      fmt::format("; allow more time{}", isFree ? "" : ", or a larger budget");
  for (Stage stage : timedStages())
    if (least->alone[stage] > allowed[stage])
      return fail() << fmt::format("{} {} cannot be met: {} {} on this machine, {:.4f} of them "
                                   "outside of what is searched{}",
                                   optionOf(stage), limitOf(stage), fastest,
                                   inWords(stage, least->alone[stage] + fixed[stage]), fixed[stage],
                                   remedy);
  if (numerics::withinTime(costs, allowed, rule))
    return success();
  auto beside = [&](Stage stage) {
    return fmt::format("with {} {} {} {}", optionOf(numerics::otherThan(stage)),
                       limitOf(numerics::otherThan(stage)), fastest,
                       inWords(stage, least->beside[stage] + fixed[stage]));
  };
  return fail() << fmt::format("max-decode-ms {} and max-prefill-ms {} cannot be met together: {}, "
                               "{}{}",
                               limitOf(Stage::Decode), limitOf(Stage::Prefill),
                               beside(Stage::Decode), beside(Stage::Prefill), remedy);
}

/// What measurements depend on, beside model, plans and tokens.
std::string SearchBitwidths::stampText() const {
  const SearchSpaceRequest request = spaceRequest();
  std::string familyNames;
  for (const targets::Family *family : families)
    familyNames += (familyNames.empty() ? "" : " ") + family->name;
  std::string timed; // what is faster is measured, too; and how losses are
  for (Stage stage : timedStages())
    timed += fmt::format(" timed={}", numerics::rowsOf(stage));
  if (isByLoss())
    timed += " sensitivity=loss 1";
  return fmt::format("3 samples={} formats={} group-sizes= {} bases={} activation-group-sizes= {} "
                     "targets={} objective={} per-site={} search-head={}{}",
                     searchSamples.getValue(), llvm::join(request.schemes, " "),
                     fmt::join(request.groupSizes, " "), llvm::join(request.bases, " "),
                     fmt::join(request.activationGroupSizes, " "), familyNames,
                     objective.getValue(), perSite.getValue(), searchHead.getValue(), timed);
}

/// What ranks must have in common, beside what MethodRun compares.
Result<void> SearchBitwidths::agree(const MethodRun &run) const {
  std::string budgets = fmt::format(
      "strategy={} evaluations={} max-decode-ms={:a} max-prefill-ms={:a}", strategy.getValue(),
      evaluations.getValue(), limitOf(Stage::Decode), limitOf(Stage::Prefill));
  for (const SearchPoint &point : points)
    budgets += fmt::format(" {}={:a}", point.budget, point.value);
  Result<std::string> found = statistics.empty() ? std::string() : checksumOfFile(statistics);
  const std::string histograms = found ? *found : "";
  const comm::Agreed subjects[] = {comm::Agreed::of("the budgets of the search", budgets),
                                   comm::Agreed::of("the statistics", histograms)};
  return run.ranks().agree(subjects);
}

FailureOr<SearchTable> SearchBitwidths::tableOfEntropy(const SearchSpace &space) {
  ModuleOp module = getOperation();
  std::string path = statistics;
  if (auto known = module->getAttrOfType<StringAttr>(equant::kStatisticsAttr);
      known && path.empty())
    path = known.str();
  if (path.empty())
    return fail() << "strategy entropy needs histograms of activations: give statistics=FILE, or "
                     "run equant-calibrate with observers of histogram before";
  FailureOr<ModelConstants> constants = ModelConstants::open(module);
  if (failed(constants))
    return failure();
  auto file = formats::StatisticsFile::open(path);
  if (!file)
    return fail() << file.error().message;
  auto hash = constants->source().hash();
  if (!hash)
    return fail() << hash.error().message;
  if (auto ok = file->checkModel(*hash); !ok)
    return fail() << ok.error().message;
  FailureOr<FormatTable> costs = entropyTable(*constants, space, *file, [&](size_t i) {
    ProgressAction::report(&getContext(), kSearch, static_cast<int64_t>(i),
                           std::ssize(space.groups));
  });
  if (failed(costs))
    return failure();
  SearchTable table{std::move(*costs), {}};
  for (const auto &group : table.costs) {
    std::vector<size_t> &all = table.candidates.emplace_back(group.size());
    std::iota(all.begin(), all.end(), size_t(0));
  }
  return table;
}

LogicalResult SearchBitwidths::choose(const SearchSpace &space, const SearchTable &table,
                                      SearchRun *run) {
  PointSearch search(space, table, run, evaluations, allowedMilliseconds(space));
  if (run && way != Strategy::Greedy && failed(search.verifyAhead(points)))
    return failure();
  for (auto [i, point] : llvm::enumerate(points)) {
    ProgressAction::report(&getContext(), "choose", static_cast<int64_t>(i), std::ssize(points));
    LogicalResult done = way == Strategy::Greedy    ? search.greedy(point)
                         : way == Strategy::Learned ? search.learned(point)
                                                    : search.grid(point);
    if (failed(done))
      return failure();
  }
  ProgressAction::report(&getContext(), "choose", std::ssize(points), std::ssize(points));
  return success();
}

LogicalResult SearchBitwidths::finish(const SearchSpace &space, const SearchTable &table,
                                      const SearchRun *run) {
  ModuleOp module = getOperation();
  Json::Object found = reportOf(module, space, run, table, points);
  found["strategy"] = strategy.getValue();
  found["objective"] = objective.getValue();
  DictionaryAttr recipe = recipeOf(module, space, points.front().candidates);
  auto write = [&](const std::string &path, const Json &value) -> LogicalResult {
    if (path.empty() || Ranks::of(&getContext()).rank() != 0)
      return success();
    if (auto done = writeFile(path, value.document()); !done)
      return fail() << done.error().message;
    return success();
  };
  if (failed(write(output, toJson(recipe))) || failed(write(report, std::move(found))))
    return failure();
  module->setAttr(equant::kRecipeAttr, recipe);
  for (auto [group, chosen] : llvm::zip_equal(space.groups, points.front().candidates))
    for (auto [site, plan] : llvm::zip_equal(group.sites, group.candidates[chosen].plans))
      PlannedSite(site).op->setAttr(equant::kPlanAttr, plan);
  return success();
}

/// Without tokens nothing runs.
LogicalResult SearchBitwidths::runOnWeights() {
  ModuleOp module = getOperation();
  SmallVector<func::FuncOp> layers;
  for (auto function : module.getOps<func::FuncOp>())
    if (function.isPrivate())
      layers.push_back(function);
  FailureOr<SearchSpace> space = findSearchSpace(module, layers, spaceRequest());
  if (failed(space) || failed(readBudgets(*space)) || failed(readTimes(*space, nullptr)))
    return failure();
  FailureOr<SearchTable> table = tableOfEntropy(*space);
  if (failed(table) || failed(choose(*space, *table, nullptr)))
    return failure();
  return finish(*space, *table, nullptr);
}

LogicalResult SearchBitwidths::run() {
  ModuleOp module = getOperation();
  if (failed(readOptions()))
    return failure();
  if (way == Strategy::Entropy && tokensFile.empty())
    return runOnWeights();
  FailureOr<MethodRun> opened =
      MethodRun::open(module, {kSearch, stampText(), optionValues(), searchSamples});
  if (failed(opened))
    return failure();
  FailureOr<SearchSpace> space = findSearchSpace(module, opened->runner().layers(), spaceRequest());
  if (failed(space) || failed(readBudgets(*space)) ||
      (isByLoss() && failed(checkFloatActivations(*space))) || failed(readTimes(*space, &*opened)))
    return failure();
  if (auto same = agree(*opened); !same)
    return fail() << same.error().message;
  SearchRun measured(*opened, *space, aim, {isByLoss(), isByLoss() ? statistics.getValue() : ""},
                     threads);
  if (way == Strategy::Entropy) {
    FailureOr<SearchTable> table = tableOfEntropy(*space);
    if (failed(table) || failed(choose(*space, *table, &measured)))
      return failure();
    return finish(*space, *table, &measured);
  }
  const int64_t layers = opened->layerCount();
  if (failed(measured.measure(
          [&](int64_t i) { ProgressAction::report(&getContext(), kSearch, i, layers); })))
    return failure();
  ProgressAction::report(&getContext(), kSearch, layers, layers);
  const SearchTable table = measured.table();
  if (failed(choose(*space, table, &measured)))
    return failure();
  return finish(*space, table, &measured);
}
