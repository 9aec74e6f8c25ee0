//===- ChoiceRun.cpp - Whole models in chosen formats ---------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What rounding takes from activations, GPTQ's Hessians and the weights of errors, is of float
// ones, as where formats were measured: then the float model runs beside the quantized ones, once
// for all of them.
//
//===----------------------------------------------------------------------===//

#include "ChoiceRun.h"

#include "easyquant/Support/Checksum.h"

#include <map>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;
using namespace easyquant::methods;
using namespace easyquant::search;
using equant::PlanAttr;
using formats::ComputedTensor;

static constexpr char kLosses[] = "losses";

LogicalResult ChoiceRun::runLayer(size_t index, ArrayRef<const Choice *> choices,
                                  const HiddenStates *exact, std::vector<HiddenStates> &states) {
  func::FuncOp layer = runner.layers()[index];
  Subgraph subgraph = Subgraph::whole(layer);
  SmallVector<Value> read;
  for (const SearchGroup &group : space.groups)
    if (group.layer == index) {
      if (!group.areExperts())
        read.push_back(group.activation);
      subgraph.roundings.push_back(group.linears());
    }
  FailureOr<CompiledSubgraph> program = runner.load(subgraph);
  if (failed(program))
    return failure();
  std::optional<LayerActivations> activations;
  if (exact) {
    FailureOr<LayerActivations> found = LayerActivations::gather(runner, layer, *exact, read);
    if (failed(found))
      return failure();
    activations.emplace(std::move(*found));
  }
  const Choice *before = nullptr; // whose weights the program has
  for (auto [choice, state] : llvm::zip_equal(choices, states)) {
    size_t rounding = 0; // of the layer
    for (auto [i, group] : llvm::enumerate(space.groups)) {
      const size_t chosen = (*choice)[i];
      if (group.layer != index)
        continue;
      program->roundInput(rounding++, activationsOf(group.candidates[chosen].plans.front()));
      if (before && (*before)[i] == chosen)
        continue;
      std::optional<GroupInputs> inputs;
      if (activations && group.areExperts())
        inputs.emplace(GroupInputs::Ranges::Fine, threads);
      else if (activations)
        inputs.emplace(activations->of(group.activation), runner.tokens().skipped(),
                       GroupInputs::Ranges::Fine, threads);
      GroupInputs *own = inputs ? &*inputs : nullptr;
      SmallVector<PlanAttr> plans = group.candidates[chosen].plans;
      if (own) {
        auto learned = withLearnedTables(runner.constants(), group.sites, plans, *own, threads);
        if (failed(learned))
          return failure();
        plans = std::move(*learned);
      }
      for (auto [site, plan] : llvm::zip_equal(group.sites, plans))
        if (failed(roundInto(runner.constants(), site, plan, own, threads, *program)))
          return failure();
    }
    before = choice;
    FailureOr<HiddenStates> after = runner.allocate();
    if (failed(after) || failed(runner.run(*program, layer.getSymName(), {&state}, {&*after})))
      return failure();
    state = std::move(*after);
  }
  return success();
}

FailureOr<std::vector<HiddenStates>> ChoiceRun::embed(ArrayRef<const Choice *> choices,
                                                      HeadSensitivity *head) {
  std::vector<HiddenStates> states;
  for (const Choice *choice : choices) {
    if (head && failed(head->round(space.head()->candidates[choice->back()].plans)))
      return failure();
    FailureOr<HiddenStates> embedded = head ? head->embed() : runner.embed();
    if (failed(embedded))
      return failure();
    states.push_back(std::move(*embedded));
  }
  return states;
}

/// Models with one head go together: its weights are in memory once.
FailureOr<std::vector<ModelLosses>> ChoiceRun::lossesOf(ArrayRef<const Choice *> choices,
                                                        const std::vector<HiddenStates> &states,
                                                        HeadSensitivity *head,
                                                        ModelLoss &objective) {
  std::map<size_t, std::vector<size_t>> byHead;
  for (auto [i, choice] : llvm::enumerate(choices))
    byHead[head ? choice->back() : 0].push_back(i);
  std::vector<ModelLosses> losses(choices.size());
  for (const auto &[candidate, models] : byHead) {
    if (head && failed(head->round(space.head()->candidates[candidate].plans)))
      return failure();
    SmallVector<const HiddenStates *> own;
    for (size_t i : models)
      own.push_back(&states[i]);
    FailureOr<std::vector<ModelLosses>> found = head ? head->lossesOf(own) : objective.allOf(own);
    if (failed(found))
      return failure();
    for (auto [i, loss] : llvm::zip_equal(models, *found))
      losses[i] = loss;
  }
  return losses;
}

FailureOr<std::vector<ModelLosses>> ChoiceRun::measure(ArrayRef<const Choice *> choices) {
  const bool needsExact = llvm::any_of(choices, [&](const Choice *choice) {
    return llvm::any_of(llvm::zip_equal(space.groups, *choice), [](auto chosen) {
      auto [group, candidate] = chosen;
      return readsInputs(group.candidates[candidate].plans.front());
    });
  });
  FailureOr<ModelLoss *> objective = loss();
  if (failed(objective))
    return failure();
  std::optional<HeadSensitivity> head;
  if (const SearchGroup *group = space.head()) {
    FailureOr<HeadSensitivity> made = HeadSensitivity::create(runner, *group, **objective, threads);
    if (failed(made))
      return failure();
    head.emplace(std::move(*made));
  }
  FailureOr<std::vector<HiddenStates>> states = embed(choices, head ? &*head : nullptr);
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
    if (failed(runLayer(i, choices, exact ? &*exact : nullptr, *states)) ||
        (exact && failed(runner.runLayer(i, *exact))))
      return failure();
  return lossesOf(choices, *states, head ? &*head : nullptr, **objective);
}

//===----------------------------------------------------------------------===//
// The journal
//===----------------------------------------------------------------------===//

std::string ChoiceRun::stampOf(const Choice &choice) const {
  Checksum checksum;
  checksum.update(kLosses, sizeof(kLosses)); // what the file holds
  checksum.update(stamp.data(), stamp.size());
  for (auto [group, chosen] : llvm::zip_equal(space.groups, choice)) {
    const std::string name = space.formats[group.candidates[chosen].format].name() + "\n";
    checksum.update(name.data(), name.size());
  }
  return checksum.hex();
}

FailureOr<std::optional<ModelLosses>> ChoiceRun::read(const Choice &choice) const {
  const formats::ComputedConstants &work = method.work();
  const std::string own = stampOf(choice), file = fileOf(own);
  if (!equant::isIntact(runner.finalState().getLoc(), work, file, own))
    return std::optional<ModelLosses>();
  float found[3] = {};
  if (auto done = work.readRows({file, own, kLosses, formats::DType::F32, {3}}, 0, 3,
                                std::span<float>(found));
      !done)
    return emitError(runner.finalState().getLoc()) << done.error().message;
  return std::optional(ModelLosses{found[0], found[1], found[2]});
}

LogicalResult ChoiceRun::write(const Choice &choice, const ModelLosses &measured) const {
  const std::string own = stampOf(choice);
  const float losses[] = {measured.objective, measured.nextToken, measured.floatNextToken};
  const std::vector<ComputedTensor> tensors = {
      ComputedTensor::floats(kLosses, {3}, std::span<const float>(losses))};
  if (auto done = method.work().write(fileOf(own), own, tensors); !done)
    return emitError(runner.finalState().getLoc()) << done.error().message;
  return success();
}

FailureOr<std::vector<ModelLosses>> ChoiceRun::run(ArrayRef<Choice> choices) {
  std::vector<ModelLosses> losses(choices.size());
  std::vector<size_t> open;
  for (auto [i, choice] : llvm::enumerate(choices)) {
    FailureOr<std::optional<ModelLosses>> known = read(choice);
    if (failed(known))
      return failure();
    if (*known)
      losses[i] = **known;
    else
      open.push_back(i);
  }
  for (ArrayRef<size_t> rest = open; !rest.empty();) {
    ArrayRef<size_t> part = rest.take_front(kTogether);
    rest = rest.drop_front(part.size());
    SmallVector<const Choice *> together;
    for (size_t i : part)
      together.push_back(&choices[i]);
    FailureOr<std::vector<ModelLosses>> measured = measure(together);
    if (failed(measured))
      return failure();
    for (auto [i, found] : llvm::zip_equal(part, *measured)) {
      losses[i] = found;
      if (failed(write(choices[i], found)))
        return failure();
    }
  }
  return losses;
}
