//===- SearchRun.cpp - What a search for formats measures -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The loss of the whole model with a block rounded as planned, over the sum of its groups' errors
// so rounded, says what an error is worth behind that block: the loss of small errors is a
// quadratic form of them, and errors of different formats have much the same directions.
//
//===----------------------------------------------------------------------===//

#include "SearchRun.h"

#include "HeadSensitivity.h"
#include "LossSensitivity.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;
using namespace easyquant::methods;
using namespace easyquant::search;
using formats::ComputedTensor;
using formats::DType;

std::vector<size_t> SearchTable::candidatesOf(std::span<const size_t> formats) const {
  std::vector<size_t> chosen;
  for (auto [known, format] : llvm::zip_equal(candidates, formats))
    chosen.push_back(known[format]);
  return chosen;
}

SearchRun::SearchRun(MethodRun &run, const SearchSpace &space, Objective objective,
                     Sensitivity sensitivity, unsigned threads)
    : run(run), space(space), objective(objective), sensitivity(std::move(sensitivity)),
      threads(threads) {
  auto module = run.layer(0)->getParentOfType<ModuleOp>();
  module.walk([&](equant::QuantizableOpInterface op) {
    oneForward += static_cast<double>(
        cast<RankedTensorType>(op.getWeightOperand().get().getType()).getNumElements());
  });
  oneForward *= static_cast<double>(run.runner().tokens().count());
}

std::vector<const SearchGroup *> SearchRun::groupsOf(size_t layer) const {
  std::vector<const SearchGroup *> found;
  for (const SearchGroup &group : space.groups)
    if (group.layer == layer)
      found.push_back(&group);
  return found;
}

//===----------------------------------------------------------------------===//
// The journal
//===----------------------------------------------------------------------===//

static std::string tensorName(size_t group, StringRef what) {
  return fmt::format("group_{}.{}", group, what.str());
}

LogicalResult SearchRun::write(int64_t layer, const LayerFindings &findings) {
  std::vector<ComputedTensor> tensors;
  auto add = [&](std::string name, std::span<const float> values) {
    tensors.push_back(ComputedTensor::floats(std::move(name), {std::ssize(values)}, values));
  };
  for (auto [i, group] : llvm::enumerate(findings.groups)) {
    add(tensorName(i, "weight_errors"), group.weightErrors);
    add(tensorName(i, "errors"), group.errors);
    add(tensorName(i, "found"), std::span(&group.found, 1));
  }
  add("losses", findings.losses);
  const float pair[] = {static_cast<float>(findings.checkedGroup),
                        static_cast<float>(findings.checkedCandidate), findings.checked};
  add("checked", pair);
  if (auto done = run.work().write(run.file(layer), stampOf(layer), tensors); !done)
    return run.fail(done.error());
  return success();
}

FailureOr<LayerFindings> SearchRun::read(int64_t layer) {
  LayerFindings findings;
  Result<void> all;
  auto take = [&](std::string name, std::span<float> values) {
    if (!all)
      return;
    all = run.work().readRows(
        {run.file(layer), stampOf(layer), std::move(name), DType::F32, {std::ssize(values)}}, 0,
        std::ssize(values), values);
  };
  for (auto [i, group] : llvm::enumerate(groupsOf(layer))) {
    GroupFindings &found = findings.groups.emplace_back();
    found.weightErrors.resize(group->candidates.size());
    found.errors.resize(group->candidates.size());
    take(tensorName(i, "weight_errors"), found.weightErrors);
    take(tensorName(i, "errors"), found.errors);
    take(tensorName(i, "found"), std::span(&found.found, 1));
  }
  size_t blocks = 0;
  for (const SearchGroup *group : groupsOf(layer))
    blocks = std::max(blocks, group->block + 1);
  findings.losses.resize(blocks);
  take("losses", findings.losses);
  float pair[3] = {};
  take("checked", pair);
  if (!all)
    return run.fail(all.error());
  findings.checkedGroup = static_cast<int64_t>(pair[0]);
  findings.checkedCandidate = static_cast<int64_t>(pair[1]);
  findings.checked = pair[2];
  return findings;
}

//===----------------------------------------------------------------------===//
// Measuring
//===----------------------------------------------------------------------===//

/// The float model is run when something has to be compared with it.
FailureOr<ModelLoss *> SearchRun::modelLoss() {
  if (loss)
    return &*loss;
  FailureOr<HiddenStates> states = run.runner().embed();
  if (failed(states))
    return failure();
  for (int64_t i = 0; i < run.layerCount(); ++i)
    if (failed(run.runner().runLayer(i, *states)))
      return failure();
  FailureOr<ModelLoss> made =
      ModelLoss::create(run.runner(), std::move(*states), objective, threads);
  if (failed(made))
    return failure();
  loss.emplace(std::move(*made));
  return &*loss;
}

/// Layers, and the head behind them.
LogicalResult SearchRun::measure(llvm::function_ref<void(int64_t)> progress) {
  const int64_t places = run.layerCount() + (space.head() ? 1 : 0);
  SmallVector<int64_t> open; ///< that nobody has measured
  for (int64_t i = 0; i < places; ++i)
    if (!groupsOf(i).empty() && !run.has(run.file(i), stampOf(i)))
      open.push_back(i);
  if (failed(sensitivity.isByLoss ? measureByLoss(open, progress) : measureOwn(open, progress)))
    return failure();
  for (int64_t i = 0; i < places; ++i) {
    if (llvm::is_contained(open, i) && !run.has(run.file(i), stampOf(i)))
      return run.fail(
          {ErrorCode::IO, run.file(i) + " did not come from the rank that measured it"});
    FailureOr<LayerFindings> found = LayerFindings();
    if (!groupsOf(i).empty() && failed(found = read(i)))
      return failure();
    layers.push_back(std::move(*found));
  }
  return success();
}

/// Measures this rank's part, for which it takes the float model through all layers.
LogicalResult SearchRun::measureOwn(ArrayRef<int64_t> places,
                                    llvm::function_ref<void(int64_t)> progress) {
  if (places.empty())
    return success();
  FailureOr<HiddenStates> states = failure();
  if (failed(modelLoss()) || failed(states = run.runner().embed()))
    return failure();
  int64_t layer = 0;
  for (auto [turn, place] : llvm::enumerate(places)) {
    const bool isHead = place == run.layerCount();
    for (; layer < place && !isHead; ++layer)
      if (failed(run.runner().runLayer(layer, *states)))
        return failure();
    progress(place);
    if (!isOwn(turn))
      continue;
    FailureOr<LayerFindings> found =
        isHead ? measureHead()
               : LayerSensitivity(run.runner(), place, groupsOf(place), threads)
                     .measure(*states, *loss);
    if (failed(found) || failed(write(place, *found)))
      return failure();
  }
  return success();
}

/// Gradients come from behind: the last layer is the first one. The head's losses are measured.
LogicalResult SearchRun::measureByLoss(ArrayRef<int64_t> places,
                                       llvm::function_ref<void(int64_t)> progress) {
  if (places.empty())
    return success();
  const int64_t last = run.layerCount() - 1;
  if (places.front() <= last) {
    FailureOr<LossSource> source =
        LossSource::open(run.runner(), run.ranks(), sensitivity.hessians, threads);
    if (failed(source))
      return failure();
    for (int64_t layer = last; layer >= places.front(); --layer) {
      progress(last - layer);
      std::vector<const SearchGroup *> groups;
      if (llvm::is_contained(places, layer))
        groups = groupsOf(layer);
      FailureOr<LayerLoss> losses = source->of(opsOf(groups), {.rows = true, .heldOut = false});
      if (failed(losses))
        return failure();
      if (groups.empty())
        continue;
      FailureOr<LayerFindings> found =
          findingsByLoss(run.runner().constants(), groups, losses->sites, threads);
      if (failed(found) || failed(write(layer, *found)))
        return failure();
    }
  }
  if (places.back() <= last)
    return success();
  if (failed(modelLoss()))
    return failure();
  FailureOr<LayerFindings> found = measureHead();
  return success(succeeded(found) && succeeded(write(places.back(), *found)));
}

FailureOr<LayerFindings> SearchRun::measureHead() {
  FailureOr<HeadSensitivity> head =
      HeadSensitivity::create(run.runner(), *space.head(), *loss, threads);
  if (failed(head))
    return failure();
  return head->measure();
}

/// The stamp of a layer. That of the head also has the ops around the layers.
std::string SearchRun::stampOf(int64_t layer) const {
  if (layer < run.layerCount())
    return stamp();
  Value activation = space.head()->activation;
  return layerStamp(activation.getParentRegion()->getParentOfType<func::FuncOp>(), stamp());
}

FailureOr<ModelLosses> SearchRun::lossesOf(std::span<const size_t> candidates) {
  auto made = [&] { return modelLoss(); };
  FailureOr<std::vector<ModelLosses>> found =
      ChoiceRun(run, space, made, stamp(), threads)
          .run(Choice(candidates.begin(), candidates.end()));
  if (failed(found))
    return failure();
  return found->front();
}

LogicalResult SearchRun::runChoices(ArrayRef<Choice> choices) {
  auto made = [&] { return modelLoss(); };
  ChoiceRun whole(run, space, made, stamp(), threads);
  std::vector<Choice> open, own;
  for (const Choice &choice : choices)
    if (!llvm::is_contained(open, choice) && !whole.isKnown(choice))
      open.push_back(choice);
  for (auto [turn, choice] : llvm::enumerate(open))
    if (isOwn(turn))
      own.push_back(choice);
  if (failed(whole.run(own)))
    return failure();
  for (const Choice &choice : open)
    if (!whole.isKnown(choice))
      return run.fail(
          {ErrorCode::IO, "losses of a whole model did not come from the rank that ran it"});
  return success();
}

//===----------------------------------------------------------------------===//
// Losses
//===----------------------------------------------------------------------===//

/// By group. Where the loss of a block did not grow, which happens to the loss of the next token
/// but not to a divergence, its errors count as those of the block where they matter least.
std::vector<double> SearchRun::lossesPerError() const {
  std::map<std::pair<size_t, size_t>, double> errors; // by layer and block
  std::vector<size_t> next(layers.size());
  for (const SearchGroup &group : space.groups)
    errors[{group.layer, group.block}] += layers[group.layer].groups[next[group.layer]++].found;
  std::map<std::pair<size_t, size_t>, double> factors;
  double least = 0;
  for (auto [place, error] : errors) {
    const double factor =
        error > 0 ? std::max(0.0, layers[place.first].losses[place.second] / error) : 0;
    if (factor > 0 && (least == 0 || factor < least))
      least = factor;
    factors[place] = factor;
  }
  std::vector<double> result;
  for (const SearchGroup &group : space.groups) {
    const double factor = factors[{group.layer, group.block}];
    result.push_back(factor > 0 ? factor : least);
  }
  return result;
}

SearchTable SearchRun::table() const {
  const std::vector<double> factors = lossesPerError();
  SearchTable table;
  std::vector<size_t> next(layers.size()); // group of the layer
  for (auto [index, group] : llvm::enumerate(space.groups)) {
    const GroupFindings &found = layers[group.layer].groups[next[group.layer]++];
    std::vector<numerics::FormatCost> &costs = table.costs.emplace_back();
    std::vector<size_t> &candidates = table.candidates.emplace_back();
    for (auto [i, error] : llvm::enumerate(found.errors))
      if (error >= 0) {
        costs.push_back(
            {group.candidates[i].bytes, factors[index] * error, group.candidates[i].milliseconds});
        candidates.push_back(i);
      }
  }
  return table;
}

std::vector<CheckedPair> SearchRun::checkedPairs() const {
  const std::vector<double> factors = lossesPerError();
  std::vector<CheckedPair> pairs;
  size_t first = 0; // group of the layer
  for (const LayerFindings &layer : layers) {
    if (layer.checkedGroup >= 0) {
      const float error = layer.groups[layer.checkedGroup].errors[layer.checkedCandidate];
      pairs.push_back({first + static_cast<size_t>(layer.checkedGroup),
                       static_cast<size_t>(layer.checkedCandidate),
                       factors[first + static_cast<size_t>(layer.checkedGroup)] * error,
                       layer.checked});
    }
    first += layer.groups.size();
  }
  return pairs;
}
