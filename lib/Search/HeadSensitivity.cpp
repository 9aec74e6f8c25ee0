//===- HeadSensitivity.cpp - What formats do to the output head -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "HeadSensitivity.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;
using namespace easyquant::methods;
using namespace easyquant::search;
using equant::PlanAttr;
using numerics::Matrix;

FailureOr<HeadSensitivity> HeadSensitivity::create(LayerRunner &runner, const SearchGroup &group,
                                                   ModelLoss &loss, unsigned threads) {
  auto input = HiddenStates::allocate(runner.tokens(), lm::columns(group.activation));
  if (!input)
    return emitError(group.activation.getLoc()) << input.error().message;
  auto keep = [&](int64_t sample, ArrayRef<Matrix> rows) -> Result<void> {
    std::copy_n(rows.front().data, rows.front().rows * rows.front().columns,
                input->sample(sample).data);
    return {};
  };
  FailureOr<CompiledSubgraph> program = ModelLoss::compileHead(runner, group.linears());
  if (failed(program) || failed(runner.runHead(loss.floatStates(), group.activation, keep)))
    return failure();
  return HeadSensitivity(runner, group, loss, threads, std::move(*input), std::move(*program));
}

const SubgraphWeight &HeadSensitivity::placeOf(const PlannedSite &site) const {
  return *llvm::find_if(program.weights(), [&](const SubgraphWeight &weight) {
    return weight.value == site.weight();
  });
}

LogicalResult HeadSensitivity::round(ArrayRef<PlanAttr> plans) {
  GroupInputs inputs(input, runner->tokens().skipped(), GroupInputs::Ranges::Fine, threads);
  auto learned = withLearnedTables(runner->constants(), group->sites, plans, inputs, threads);
  if (failed(learned))
    return failure();
  program.roundInput(0, activationsOf(plans.front()));
  for (auto [site, plan] : llvm::zip_equal(group->sites, *learned))
    if (failed(roundInto(runner->constants(), site, plan, &inputs, threads, program)))
      return failure();
  return success();
}

FailureOr<HiddenStates> HeadSensitivity::embed() {
  return runner->embed([&](const SubgraphWeight &table, ArrayRef<int32_t> tokens, Matrix rows) {
    for (const PlannedSite &site : group->sites) {
      const SubgraphWeight &place = placeOf(site);
      if (place.global != table.global)
        continue;
      const Matrix rounded = program.weight(place.global);
      for (auto [row, token] : llvm::enumerate(tokens))
        std::copy_n(rounded.row(token), rows.columns, rows.row(row));
      sharesTable = true;
    }
  });
}

FailureOr<float> HeadSensitivity::lossOf(const HiddenStates &states) {
  FailureOr<std::vector<float>> found = loss->of({&states}, program);
  if (failed(found))
    return failure();
  return found->front();
}

FailureOr<float> HeadSensitivity::lossOf(ArrayRef<PlanAttr> plans) {
  if (failed(round(plans)))
    return failure();
  FailureOr<HiddenStates> states = embed();
  if (failed(states))
    return failure();
  if (!sharesTable)
    return lossOf(loss->floatStates());
  for (size_t i = 0; i < runner->layers().size(); ++i)
    if (failed(runner->runLayer(i, *states)))
      return failure();
  return lossOf(*states);
}

FailureOr<LayerFindings> HeadSensitivity::measure() {
  LayerFindings findings;
  GroupFindings &found = findings.groups.emplace_back();
  GroupInputs inputs(input, runner->tokens().skipped(), GroupInputs::Ranges::Coarse, threads);
  FailureOr<std::vector<float>> weighted =
      weightErrors(runner->constants(), *group, inputs, threads);
  if (failed(weighted))
    return failure();
  found.weightErrors = *weighted;
  found.errors.assign(group->candidates.size(), kDropped);
  for (size_t kept : worthMeasuring(*group, *weighted)) {
    FailureOr<float> measured = lossOf(group->candidates[kept].plans);
    if (failed(measured))
      return failure();
    found.errors[kept] = std::max(*measured, 0.0f);
  }
  // Errors are losses already.
  found.found = 1;
  findings.losses = {1};
  return findings;
}
