//===- LearnTables.cpp - Tables of values from weights and inputs ---------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/StatisticsFile.h"
#include "easyquant/Methods/LearnedTables.h"
#include "easyquant/Methods/Passes.h"
#include "easyquant/Recipe/PassOptions.h"
#include "easyquant/Support/ProgressAction.h"

#include "llvm/ADT/MapVector.h"

namespace easyquant::methods {
#define GEN_PASS_DEF_LEARNTABLES
#include "easyquant/Methods/Passes.h.inc"
} // namespace easyquant::methods

using namespace mlir;
using namespace easyquant;
using namespace easyquant::methods;
using formats::StatisticsFile;

namespace {

struct LearnTables : recipe::WithOptionValues<methods::impl::LearnTablesBase<LearnTables>> {
  using WithOptionValues::WithOptionValues;
  void runOnOperation() override;
};

} // namespace

/// Sites that read one activation and have one plan, whose table is to be learned.
static SmallVector<SmallVector<PlannedSite>> groupsToLearn(ModuleOp module) {
  SmallVector<SmallVector<PlannedSite>> groups;
  for (auto function : module.getOps<func::FuncOp>()) {
    if (function.isExternal())
      continue;
    for (const SiteGroup &group : siteGroups(function)) {
      llvm::MapVector<Attribute, SmallVector<PlannedSite>> byPlan;
      for (const PlannedSite &site : group.sites)
        if (isToBeLearned(site.plan))
          byPlan[site.plan].push_back(site);
      for (auto &[plan, sites] : byPlan)
        groups.push_back(std::move(sites));
    }
  }
  return groups;
}

/// Embeddings that are sites of their own.
static SmallVector<lm::EmbeddingOp> embeddingsToLearn(ModuleOp module) {
  SmallVector<lm::EmbeddingOp> embeddings;
  module.walk([&](lm::EmbeddingOp op) {
    if (equant::PlanAttr plan = equant::getPlan(op); plan && isToBeLearned(plan))
      embeddings.push_back(op);
  });
  return embeddings;
}

/// E[x^2] of what the sites read, by channel, under the name of whichever of them has it.
static FailureOr<std::vector<float>> meanSquaresOf(const StatisticsFile &statistics,
                                                   ArrayRef<PlannedSite> sites) {
  const PlannedSite *known = llvm::find_if(
      sites, [&](const PlannedSite &site) { return statistics.has(site.name() + "/moments"); });
  const PlannedSite &site = known == sites.end() ? sites.front() : *known;
  const int64_t columns = lm::columns(site.activation());
  auto moments = statistics.floats(site.name() + "/moments", std::array<int64_t, 2>{2, columns});
  if (!moments)
    return emitError(site.loc()) << "site '" << site.name() << "': " << moments.error().message;
  std::vector<float> squares(columns);
  for (int64_t j = 0; j < columns; ++j) // from mean and variance
    squares[j] = (*moments)[j] * (*moments)[j] + (*moments)[columns + j];
  return squares;
}

void LearnTables::runOnOperation() {
  ModuleOp module = getOperation();
  const SmallVector<SmallVector<PlannedSite>> groups = groupsToLearn(module);
  const SmallVector<lm::EmbeddingOp> embeddings = embeddingsToLearn(module);
  if (groups.empty() && embeddings.empty())
    return;
  FailureOr<ModelConstants> constants = ModelConstants::open(module);
  if (failed(constants))
    return signalPassFailure();
  std::optional<StatisticsFile> statistics;
  if (auto path = module->getAttrOfType<StringAttr>(equant::kStatisticsAttr)) {
    Result<StatisticsFile> opened = StatisticsFile::open(path.str());
    if (!opened) {
      emitError(module.getLoc()) << opened.error().message;
      return signalPassFailure();
    }
    statistics.emplace(std::move(*opened));
  }
  for (auto [done, sites] : llvm::enumerate(groups)) {
    ProgressAction::report(&getContext(), "tables", done, groups.size());
    FailureOr<std::vector<float>> squares = std::vector<float>();
    equant::QuantizableOpInterface first = sites.front().op;
    auto linear = dyn_cast<lm::LinearOp>(first.getOperation());
    const bool isObserved = !linear || !linear.getExperts();
    if (statistics && isObserved)
      squares = meanSquaresOf(*statistics, sites);
    if (failed(squares))
      return signalPassFailure();
    FailureOr<equant::PlanAttr> plan =
        withLearnedTable(*constants, weightsToLearn(sites), sites.front().plan, *squares, threads);
    if (failed(plan))
      return signalPassFailure();
    for (const PlannedSite &site : sites)
      equant::QuantizableOpInterface(site.op)->setAttr(equant::kPlanAttr, *plan);
  }
  for (lm::EmbeddingOp op : embeddings) { // which reads tokens, no activations
    const WeightToLearn table{op.getTable(), equant::embeddingSite(op.getTable()).str(),
                              op.getLoc()};
    FailureOr<equant::PlanAttr> plan =
        withLearnedTable(*constants, table, equant::getPlan(op), {}, threads);
    if (failed(plan))
      return signalPassFailure();
    op->setAttr(equant::kPlanAttr, *plan);
  }
  ProgressAction::report(&getContext(), "tables", groups.size(), groups.size());
}
