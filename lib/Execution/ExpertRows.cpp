//===- ExpertRows.cpp - Which experts see how much text -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Execution/ExpertRows.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;
using numerics::Matrix;

SmallVector<Mixture> easyquant::execution::mixturesOf(func::FuncOp layer) {
  llvm::MapVector<Value, Mixture> mixtures;
  for (auto linear : layer.getOps<lm::LinearOp>())
    if (linear.getExperts())
      mixtures[linear.getExperts()].push_back(linear);
  SmallVector<Mixture> all;
  for (auto &[offsets, mixture] : mixtures)
    all.push_back(std::move(mixture));
  return all;
}

FailureOr<ExpertCounts> easyquant::execution::runCounting(LayerRunner &runner, func::FuncOp layer,
                                                          HiddenStates &states) {
  Subgraph subgraph = Subgraph::whole(layer);
  ExpertCounts counts;
  llvm::StringMap<size_t> numberOf;
  for (Mixture &mixture : mixturesOf(layer)) {
    numberOf[mixture.front().getSite()] = counts.size();
    subgraph.observed.push_back(ChoiceRows::inputOf(mixture.front()));
    counts.emplace_back(states.samples() * lm::expertCount(mixture.front().getExperts()));
  }
  FailureOr<CompiledSubgraph> program = runner.load(subgraph);
  if (failed(program))
    return failure();
  auto keep = [&](int64_t sample, ArrayRef<Matrix> made) -> Result<void> {
    std::copy_n(made[0].data, made[0].rows * made[0].columns, states.sample(sample).data);
    return {};
  };
  auto count = [&](const Observation &observation, int64_t sample,
                   const ObservedRows &seen) -> Result<void> {
    int32_t *rows =
        counts[numberOf.lookup(observation.sites.front())].data() + sample * observation.experts;
    for (int64_t expert = 0; expert < observation.experts; ++expert)
      rows[expert] += seen.offsets[expert + 1] - seen.offsets[expert];
    return {};
  };
  if (failed(runner.run(layer.getLoc(), *program, layer.getSymName(), states, subgraph.outputs,
                        keep, count)))
    return failure();
  return counts;
}
