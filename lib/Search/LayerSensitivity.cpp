//===- LayerSensitivity.cpp - What formats do to one layer ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LayerSensitivity.h"

#include "easyquant/Numerics/Metrics.h"

#include "llvm/ADT/SetVector.h"

#include <cmath>
#include <random>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;
using namespace easyquant::methods;
using namespace easyquant::search;
using equant::PlanAttr;
using numerics::ConstMatrix;
using numerics::Matrix;

/// The share of pairs that are run to the end, at most one in a layer.
static constexpr double kCheckedShare = 0.05;

FailureOr<LayerActivations> LayerActivations::gather(LayerRunner &runner, func::FuncOp layer,
                                                     const HiddenStates &before,
                                                     ArrayRef<Value> wanted) {
  LayerActivations kept;
  kept.before = &before;
  Subgraph subgraph{{layer.getArgument(0)}, {}};
  for (Value value : wanted)
    if (value != layer.getArgument(0) && !llvm::is_contained(subgraph.outputs, value))
      subgraph.outputs.push_back(value);
  FailureOr<CompiledSubgraph> program = runner.load(subgraph);
  if (failed(program))
    return failure();
  for (Value value : subgraph.outputs) {
    auto states = HiddenStates::allocate(runner.tokens(), lm::columns(value));
    if (!states)
      return emitError(layer.getLoc()) << states.error().message;
    kept.made.insert({value, std::move(*states)});
  }
  SmallVector<HiddenStates *> outputs;
  for (auto &[value, states] : kept.made)
    outputs.push_back(&states);
  if (failed(runner.run(*program, layer.getSymName(), {&before}, outputs)))
    return failure();
  return std::move(kept);
}

LogicalResult LayerSensitivity::gather(const HiddenStates &before) {
  llvm::SetVector<Value> wanted;
  for (const SearchGroup *group : groups) {
    Operation *reader = group->sites.front().op;
    if (!group->areExperts())
      wanted.insert(group->activation);
    wanted.insert(lastCut(layer, reader));
    wanted.insert(nextCut(layer, reader));
  }
  FailureOr<LayerActivations> found =
      LayerActivations::gather(runner, layer, before, wanted.getArrayRef());
  if (failed(found))
    return failure();
  activations.emplace(std::move(*found));
  for (const SearchGroup *group : groups) {
    void *key = group->activation.getAsOpaquePointer();
    if (group->areExperts())
      inputs.try_emplace(key, GroupInputs::Ranges::Coarse, threads);
    else
      inputs.try_emplace(key, activations->of(group->activation), runner.tokens().skipped(),
                         GroupInputs::Ranges::Coarse, threads);
  }
  return success();
}

LogicalResult LayerSensitivity::round(const SearchGroup &group, ArrayRef<PlanAttr> plans,
                                      size_t rounding, CompiledSubgraph &program) {
  GroupInputs &input = inputs.find(group.activation.getAsOpaquePointer())->second;
  auto learned = withLearnedTables(runner.constants(), group.sites, plans, input, threads);
  if (failed(learned))
    return failure();
  program.roundInput(rounding, activationsOf(plans.front()));
  for (auto [site, plan] : llvm::zip_equal(group.sites, *learned))
    if (failed(roundInto(runner.constants(), site, plan, &input, threads, program)))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// Pairs of a group and a format
//===----------------------------------------------------------------------===//

/// Mean over the tokens that count; a token of zeros has none.
FailureOr<float> LayerSensitivity::blockError(CompiledSubgraph &program, const Subgraph &subgraph) {
  Value output = subgraph.outputs.front();
  const int64_t skipped = runner.tokens().skipped();
  const HiddenStates &expected = activations->of(output);
  std::vector<float> made(runner.tokens().maxLength() * expected.columns());
  double sum = 0;
  for (int64_t i = 0; i < expected.samples(); ++i) {
    SmallVector<ConstMatrix> in;
    for (Value value : subgraph.inputs)
      in.push_back(activations->of(value).sample(i));
    const Matrix exact = expected.sample(i), found(made.data(), exact.rows, exact.columns);
    if (auto done = runner.runSample(program, layer.getSymName(), i, in, {found}); !done)
      return emitError(layer.getLoc()) << done.error().message;
    for (int64_t row = skipped; row < exact.rows; ++row) {
      const double error = numerics::relativeRms(exact.row(row), found.row(row), exact.columns);
      sum += std::isfinite(error) ? error * error : 0;
    }
  }
  return static_cast<float>(sum / static_cast<double>(runner.tokens().counted()));
}

FailureOr<GroupFindings> LayerSensitivity::measure(const SearchGroup &group) {
  GroupFindings findings;
  GroupInputs &input = inputs.find(group.activation.getAsOpaquePointer())->second;
  FailureOr<std::vector<float>> weighted = weightErrors(runner.constants(), group, input, threads);
  if (failed(weighted))
    return failure();
  findings.weightErrors = *weighted;
  findings.errors.assign(group.candidates.size(), kDropped);

  Operation *reader = group.sites.front().op;
  const Value base = lastCut(layer, reader); // the residual
  Subgraph subgraph{{group.areExperts() ? base : group.activation}, {nextCut(layer, reader)}};
  subgraph.roundings = {group.linears()};
  if (base != subgraph.inputs.front())
    subgraph.inputs.push_back(base);
  FailureOr<CompiledSubgraph> program = runner.load(subgraph);
  if (failed(program))
    return failure();
  auto errorOf = [&](ArrayRef<PlanAttr> plans) -> FailureOr<float> {
    if (failed(round(group, plans, /*rounding=*/0, *program)))
      return failure();
    return blockError(*program, subgraph);
  };
  for (size_t kept : worthMeasuring(group, *weighted)) {
    FailureOr<float> error = errorOf(group.candidates[kept].plans);
    if (failed(error))
      return failure();
    findings.errors[kept] = *error;
  }
  SmallVector<PlanAttr> found;
  for (const PlannedSite &site : group.sites)
    found.push_back(site.plan);
  for (auto [candidate, error] : llvm::zip_equal(group.candidates, findings.errors))
    if (candidate.plans == found && error != kDropped) {
      findings.found = error;
      return findings;
    }
  FailureOr<float> error = errorOf(found);
  if (failed(error))
    return failure();
  findings.found = *error;
  return findings;
}

//===----------------------------------------------------------------------===//
// The whole model
//===----------------------------------------------------------------------===//

/// The same pair in every run.
void LayerSensitivity::choosePair(LayerFindings &findings) const {
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (auto [group, found] : llvm::enumerate(findings.groups))
    for (auto [candidate, error] : llvm::enumerate(found.errors))
      if (error != kDropped)
        pairs.emplace_back(group, candidate);
  std::mt19937_64 random(index);
  const double draw = static_cast<double>(random() >> 11) * 0x1p-53;
  if (draw < kCheckedShare * static_cast<double>(pairs.size()))
    std::tie(findings.checkedGroup, findings.checkedCandidate) = pairs[random() % pairs.size()];
}

/// The blocks one after the other, and the pair to check.
std::vector<LayerSensitivity::PlannedGroups>
LayerSensitivity::runsToEnd(const LayerFindings &findings) const {
  std::vector<PlannedGroups> runs;
  for (auto [number, group] : llvm::enumerate(groups)) {
    runs.resize(std::max(runs.size(), group->block + 1));
    auto plans =
        llvm::map_to_vector(group->sites, [](const PlannedSite &site) { return site.plan; });
    runs[group->block].emplace_back(number, std::move(plans));
  }
  if (findings.checkedGroup >= 0) {
    const auto number = static_cast<size_t>(findings.checkedGroup);
    runs.push_back({{number, groups[number]->candidates[findings.checkedCandidate].plans}});
  }
  return runs;
}

LogicalResult LayerSensitivity::runToEnd(LayerFindings &findings, const HiddenStates &before,
                                         ModelLoss &loss) {
  Subgraph subgraph = Subgraph::whole(layer);
  for (const SearchGroup *group : groups)
    subgraph.roundings.push_back(group->linears());
  FailureOr<CompiledSubgraph> program = runner.compiler().compile(subgraph);
  if (failed(program))
    return failure();
  std::vector<HiddenStates> states;
  for (const PlannedGroups &planned : runsToEnd(findings)) {
    FailureOr<HiddenStates> after = runner.allocate();
    if (failed(after) || failed(program->load(runner.constants())))
      return failure();
    for (size_t number = 0; number < groups.size(); ++number)
      program->roundInput(number, {});
    for (const auto &[number, plans] : planned)
      if (failed(round(*groups[number], plans, number, *program)))
        return failure();
    if (failed(runner.run(*program, layer.getSymName(), {&before}, {&*after})))
      return failure();
    states.push_back(std::move(*after));
  }
  SmallVector<HiddenStates *> all;
  for (HiddenStates &each : states)
    all.push_back(&each);
  for (size_t next = index + 1; next < runner.layers().size(); ++next)
    if (failed(runner.runLayer(next, all)))
      return failure();
  FailureOr<std::vector<float>> losses =
      loss.of(SmallVector<const HiddenStates *>(all.begin(), all.end()));
  if (failed(losses))
    return failure();
  findings.losses = std::move(*losses);
  if (findings.checkedGroup >= 0) {
    findings.checked = findings.losses.back();
    findings.losses.pop_back();
  }
  return success();
}

FailureOr<LayerFindings> LayerSensitivity::measure(const HiddenStates &before, ModelLoss &loss) {
  if (failed(gather(before)))
    return failure();
  LayerFindings findings;
  for (const SearchGroup *group : groups) {
    FailureOr<GroupFindings> found = measure(*group);
    if (failed(found))
      return failure();
    findings.groups.push_back(std::move(*found));
  }
  choosePair(findings);
  if (failed(runToEnd(findings, before, loss)))
    return failure();
  return findings;
}
