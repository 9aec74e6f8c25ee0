//===- ChoiceRun.cpp - Whole models in chosen formats ---------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What rounding takes from activations, GPTQ's Hessians and the weights of errors, is of float
// ones, as where formats were measured: then the float model runs beside the quantized one.
//
//===----------------------------------------------------------------------===//

#include "ChoiceRun.h"

#include "HeadSensitivity.h"

#include "easyquant/Support/Checksum.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::calibration;
using namespace easyquant::search;
using formats::ComputedTensor;

static constexpr char kLosses[] = "losses";

LogicalResult ChoiceRun::runLayer(size_t index, std::span<const size_t> choice,
                                  const HiddenStates *exact, HiddenStates &states) {
  func::FuncOp layer = runner.layers()[index];
  Subgraph subgraph{{layer.getArgument(0)}, {layer.front().getTerminator()->getOperand(0)}};
  subgraph.observers = false;
  FailureOr<CompiledSubgraph> program = runner.compiler().compile(subgraph);
  if (failed(program) || failed(program->load(runner.constants())))
    return failure();
  SmallVector<Value> read;
  for (const SearchGroup &group : space.groups)
    if (group.layer == index)
      read.push_back(group.activation);
  std::optional<LayerActivations> activations;
  if (exact) {
    FailureOr<LayerActivations> found = LayerActivations::gather(runner, layer, *exact, read);
    if (failed(found))
      return failure();
    activations.emplace(std::move(*found));
  }
  for (auto [group, chosen] : llvm::zip_equal(space.groups, choice)) {
    if (group.layer != index)
      continue;
    std::optional<GroupInputs> inputs;
    if (activations)
      inputs.emplace(activations->of(group.activation), runner.tokens().skipped(), threads);
    for (auto [site, plan] : llvm::zip_equal(group.sites, group.candidates[chosen].plans))
      if (failed(roundInto(runner.constants(), site, plan, inputs ? &*inputs : nullptr, threads,
                           *program)))
        return failure();
  }
  FailureOr<HiddenStates> after = runner.allocate();
  if (failed(after) || failed(runner.run(*program, layer.getSymName(), {&states}, {&*after})))
    return failure();
  states = std::move(*after);
  return success();
}

FailureOr<ModelLosses> ChoiceRun::measure(std::span<const size_t> choice) {
  const bool needsExact = llvm::any_of(llvm::zip_equal(space.groups, choice), [](auto chosen) {
    auto [group, candidate] = chosen;
    return readsInputs(group.candidates[candidate].plans.front());
  });
  FailureOr<ModelLoss *> objective = loss();
  if (failed(objective))
    return failure();
  std::optional<HeadSensitivity> head;
  if (const SearchGroup *group = space.head()) {
    FailureOr<HeadSensitivity> made = HeadSensitivity::create(runner, *group, **objective, threads);
    if (failed(made) || failed(made->round(group->candidates[choice.back()].plans)))
      return failure();
    head.emplace(std::move(*made));
  }
  FailureOr<HiddenStates> states = head ? head->embed() : runner.embed();
  if (failed(states))
    return failure();
  std::optional<HiddenStates> exact;
  if (needsExact) {
    FailureOr<HiddenStates> embedded = runner.embed();
    if (failed(embedded))
      return failure();
    exact = std::move(*embedded);
  }
  for (size_t i = 0; i < runner.layers().size(); ++i)
    if (failed(runLayer(i, choice, exact ? &*exact : nullptr, *states)) ||
        (exact && failed(runner.runLayer(i, *exact))))
      return failure();
  if (head)
    return head->lossesOf(*states);
  return (*objective)->allOf(*states);
}

std::string ChoiceRun::stampOf(std::span<const size_t> choice) const {
  Checksum checksum;
  checksum.update(kLosses, sizeof(kLosses)); // what the file holds
  checksum.update(stamp.data(), stamp.size());
  for (auto [group, chosen] : llvm::zip_equal(space.groups, choice)) {
    const std::string name = space.formats[group.candidates[chosen].format].name() + "\n";
    checksum.update(name.data(), name.size());
  }
  return checksum.hex();
}

FailureOr<ModelLosses> ChoiceRun::run(std::span<const size_t> choice) {
  const formats::ComputedConstants &work = method.work();
  const std::string own = stampOf(choice), file = fileOf(own);
  float found[3] = {};
  if (work.has(file, own)) {
    if (auto done = work.readRows({file, own, kLosses, formats::DType::F32, {3}}, 0, 3,
                                  std::span<float>(found));
        !done)
      return emitError(runner.finalState().getLoc()) << done.error().message;
    return ModelLosses{found[0], found[1], found[2]};
  }
  FailureOr<ModelLosses> measured = measure(choice);
  if (failed(measured))
    return failure();
  const float losses[] = {measured->objective, measured->nextToken, measured->floatNextToken};
  const std::vector<ComputedTensor> tensors = {
      ComputedTensor::floats(kLosses, {3}, std::span<const float>(losses))};
  if (auto done = work.write(file, own, tensors); !done)
    return emitError(runner.finalState().getLoc()) << done.error().message;
  return measured;
}
