//===- Calibrate.cpp - What a model's activations are like ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "WalkStamp.h"
#include "easyquant/Calibration/Journal.h"
#include "easyquant/Calibration/Passes.h"
#include "easyquant/Execution/LayerSites.h"
#include "easyquant/Execution/SampleSum.h"
#include "easyquant/Execution/SubgraphPass.h"
#include "easyquant/Numerics/Blas.h"
#include "easyquant/Numerics/SiteStatistics.h"
#include "easyquant/Support/Checksum.h"
#include "easyquant/Support/ProgressAction.h"
#include "easyquant/Weights/ConstantTensors.h"

namespace easyquant::calibration {
#define GEN_PASS_DEF_CALIBRATE
#include "easyquant/Calibration/Passes.h.inc"
} // namespace easyquant::calibration

using namespace mlir;
using namespace easyquant;
using namespace easyquant::calibration;
using equant::ObserveOp;
using numerics::ExpertStatistics;
namespace fs = std::filesystem;

namespace {

struct Calibrate : SubgraphPass<calibration::impl::CalibrateBase<Calibrate>> {
  using SubgraphPass::SubgraphPass;
  LogicalResult run() override;

private:
  FailureOr<CalibrationTokens> readTokens(const Ranks &ranks);
  void findBases();
  LogicalResult runStep(LayerRunner &runner, size_t step, HiddenStates &states,
                        std::vector<FoundTensor> &found);
  LogicalResult fail(const Error &error) {
    return emitError(getOperation().getLoc()) << error.message;
  }

  llvm::StringMap<SmallVector<int64_t>> basisOf; ///< of sites that transforms have changed
};

/// The statistics of the sites of a step, in the order of the observers.
struct StepStatistics {
  std::vector<std::pair<Observation, ExpertStatistics>> sites;

  /// The statistics of an observation, which are made if they are missing.
  Result<ExpertStatistics *> find(const Observation &observation) {
    auto it = llvm::find_if(
        sites, [&](const auto &entry) { return entry.first.sites == observation.sites; });
    if (it == sites.end()) {
      auto created = ExpertStatistics::create(observation.sites.front(), observation.columns,
                                              observation.statistics, observation.experts);
      if (!created)
        return Unexpected(created.error());
      it = sites.insert(it, {observation, std::move(*created)});
    }
    return &it->second;
  }
  void merge(const StepStatistics &later) {
    for (const auto &[observation, statistics] : later.sites)
      if (auto own = find(observation))
        (void)(*own)->merge(statistics); // of one observation: they fit
  }
  template <typename Visit> void fields(Visit &&visit) {
    uint64_t count = sites.size();
    visit(count);
    for (uint64_t i = 0; i < count; ++i) {
      Observation observation = i < sites.size() ? sites[i].first : Observation();
      visit(observation.sites), visit(observation.statistics), visit(observation.columns),
          visit(observation.experts);
      if (observation.sites.empty()) // bytes that are none
        return;
      if (auto statistics = find(observation))
        visit(**statistics);
    }
  }
};

} // namespace

FailureOr<CalibrationTokens> Calibrate::readTokens(const Ranks &ranks) {
  ModuleOp module = getOperation();
  if (tokensFile.empty())
    return emitError(module.getLoc()) << "option tokens is missing: the file of calibration tokens";
  if (!module.walk([](ObserveOp) { return WalkResult::interrupt(); }).wasInterrupted())
    return emitError(module.getLoc()) << "nothing is observed: run equant-insert-observers first";
  auto model = module->getAttrOfType<DictionaryAttr>(lm::kModelAttr);
  auto vocabulary = model ? model.getAs<IntegerAttr>("vocab_size") : IntegerAttr();
  if (!vocabulary)
    return emitError(module.getLoc()) << "module has no " << lm::kModelAttr << " with vocab_size";
  Result<CalibrationTokens> tokens =
      CalibrationTokens::readOnAll(ranks, tokensFile.getValue(), vocabulary.getInt());
  if (!tokens)
    return fail(tokens.error());
  if (tokens->samples() < samples || tokens->maxLength() < length)
    return emitError(module.getLoc())
           << tokensFile << ": has " << tokens->samples() << " samples of up to "
           << tokens->maxLength() << " tokens, fewer than the " << samples.getValue() << " x "
           << length.getValue() << " asked for";
  return std::move(*tokens);
}

void Calibrate::findBases() {
  basisOf.clear();
  getOperation().walk([&](equant::QuantizableOpInterface op) {
    if (SmallVector<int64_t> steps = equant::columnSteps(op.getWeightOperand().get());
        !steps.empty())
      basisOf[op.getSite()] = std::move(steps);
  });
}

LogicalResult Calibrate::runStep(LayerRunner &runner, size_t step, HiddenStates &states,
                                 std::vector<FoundTensor> &found) {
  SampleSum<StepStatistics> sum(Ranks::of(&getContext()), runner.tokens(),
                                [] { return StepStatistics(); });
  unsigned threadCount = runner.compiler().options().threads;
  auto observe = [&](const Observation &observation, int64_t sample,
                     const ObservedRows &seen) -> Result<void> {
    Result<ExpertStatistics *> statistics = sum.of(sample).find(observation);
    if (!statistics)
      return Unexpected(statistics.error());
    return (*statistics)->update(seen.rows, seen.offsets, seen.position, threadCount);
  };
  bool isHead = step == runner.layers().size();
  if (failed(isHead ? runner.observeHead(states, observe) : runner.runLayer(step, states, observe)))
    return failure();
  Result<StepStatistics> collected = sum.finish();
  if (!collected)
    return fail(collected.error());

  for (auto &[observation, statistics] : collected->sites)
    for (numerics::StatisticTensor &tensor : std::move(statistics).finish()) {
      // Sites that read the same activations have the same statistics.
      FoundTensor &kept = found.emplace_back();
      StringRef statistic = StringRef(tensor.name).rsplit('/').second;
      for (const std::string &site : observation.sites)
        kept.names.push_back(site + "/" + statistic.str());
      kept.shape = tensor.shape;
      kept.dtype = std::holds_alternative<std::vector<float>>(tensor.values) ? formats::DType::F32
                                                                             : formats::DType::I64;
      std::visit(
          [&](const auto &values) {
            auto bytes = std::as_bytes(std::span(values));
            kept.bytes.assign(bytes.begin(), bytes.end());
          },
          tensor.values);
    }
  for (auto &[observation, statistics] : collected->sites)
    for (const std::string &site : observation.sites)
      if (auto basis = basisOf.find(site); basis != basisOf.end()) {
        FoundTensor &kept = found.emplace_back();
        kept.names.push_back(site + "/basis");
        kept.shape.push_back(std::ssize(basis->second));
        kept.dtype = formats::DType::I64;
        auto bytes = std::as_bytes(std::span<const int64_t>(basis->second));
        kept.bytes.assign(bytes.begin(), bytes.end());
      }
  return success();
}

LogicalResult Calibrate::run() {
  ModuleOp module = getOperation();
  const Ranks ranks = Ranks::of(&getContext());
  FailureOr<CalibrationTokens> tokens = readTokens(ranks);
  if (failed(tokens))
    return failure();
  EngineOptions options;
  options.threads = threads;
  options.maxRows = layerRows;
  tokens->keepPart(ranks.rank(), ranks.size());
  FailureOr<LayerRunner> runner = LayerRunner::create(module, *tokens, options);
  if (failed(runner))
    return failure();
  recordCalibration(module, *tokens);
  findBases();
  FailureOr<Stamp> stamp = walkStamp(module, *runner, ranks);
  FailureOr<std::string> work = equant::getWorkFolder(module, workFolder);
  if (failed(stamp) || failed(work))
    return failure();

  fs::path path =
      statistics.empty() ? fs::path(*work) / file.getValue() : fs::path(statistics.getValue());
  module->setAttr(equant::kStatisticsAttr, StringAttr::get(&getContext(), path.string()));
  FailureOr<std::optional<Journal>> journalOrDone =
      openJournal(module, *runner, ranks, path, *work, *stamp);
  if (failed(journalOrDone))
    return failure();
  std::optional<Journal> &journal = *journalOrDone;
  if (!journal)
    return success();
  size_t steps = runner->layers().size() + 1; // the last one is the head
  int64_t total = static_cast<int64_t>(steps) * tokens->samples();
  int64_t done = journal->next() * tokens->samples();
  ProgressAction::report(&getContext(), "calibrate", done, total);
  FailureOr<HiddenStates> states = journal->next() == 0 ? runner->embed() : runner->allocate();
  if (failed(states))
    return failure();
  if (journal->next() != 0)
    if (auto read = journal->readStates(*states); !read)
      return fail(read.error());
  runner->onSample = [&] {
    ProgressAction::report(&getContext(), "calibrate", std::min(++done, total - 1), total);
  };
  for (size_t step = journal->next(); step < steps; ++step) {
    std::vector<FoundTensor> found;
    if (failed(runStep(*runner, step, *states, found)))
      return failure();
    if (auto kept = journal->record(static_cast<int64_t>(step), found, *states); !kept)
      return fail(kept.error());
  }
  if (auto written = journal->merge(static_cast<int64_t>(steps), path, *stamp); !written)
    return fail(written.error());
  journal->remove(static_cast<int64_t>(steps));
  ProgressAction::report(&getContext(), "calibrate", total, total);
  return success();
}
