//===- ModelTensors.cpp - The weights of an architecture ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/ModelTensors.h"

#include "easyquant/Support/Result.h"

#include <algorithm>
#include <array>

using namespace easyquant;
using namespace easyquant::formats;

namespace {

/// The weights of one model, module by module.
class TensorList {
public:
  explicit TensorList(const ModelConfig &config) : config(config) {}

  std::vector<ExpectedTensor> tensors;

  void matrix(const ModuleName &module, int64_t rows, int64_t columns) {
    add(module, ".weight", {rows, columns});
  }
  void norm(const ModuleName &module, int64_t width) {
    if (!module)
      return;
    add(module, ".weight", {width});
    tensors.back().offset = config.architecture->normOffset;
    if (config.architecture->norm == NormKind::Layer)
      add(module, ".bias", {width});
  }
  /// Numbers that Hugging Face has under the module's own name.
  void vector(const ModuleName &module, int64_t count) {
    add(module, "", {count});
    tensors.back().ggufName += ".weight";
  }
  void linear(const ModuleName &module, int64_t rows, int64_t columns, bool bias,
              const RowOrder &order = {}, const RowOrder &ggufOrder = {}) {
    if (!module)
      return;
    add(module, ".weight", {rows, columns});
    tensors.back().isConv1D = config.architecture->conv1D;
    tensors.back().rows = order;
    tensors.back().ggufRows = ggufOrder;
    if (!bias)
      return;
    add(module, ".bias", {rows});
    tensors.back().rows = order;
    tensors.back().ggufRows = ggufOrder;
  }
  /// One of `parts` modules whose experts are in one stack, if they are in any.
  void experts(const ModuleName &module, int64_t rows, int64_t columns, const char *stack,
               int64_t parts, int64_t part) {
    if (!module)
      return;
    auto addAll = [&](const char *kind, std::vector<int64_t> shape, const char *behind) {
      add(module, kind, std::move(shape));
      ExpectedTensor &added = tensors.back();
      added.experts = config.experts;
      if (stack) {
        added.stack = prefix + stack + behind;
        added.stackParts = parts;
        added.stackPart = part;
        added.stacksRows = config.architecture->layer.stacksRows;
      }
    };
    addAll(".weight", {config.experts * rows, columns}, "");
    if (config.architecture->experts.biases)
      addAll(".bias", {config.experts * rows}, "_bias");
  }
  void mixture();
  void convolution(int64_t width);
  void delta();
  void attention(int64_t index);
  void layer(int64_t index);
  void draftHead();
  void assistant(const Assistant &head, int64_t backbone);

private:
  void add(const ModuleName &module, const char *kind, std::vector<int64_t> shape) {
    tensors.push_back(
        {prefix + module.name + kind, std::move(shape), ggufPrefix + module.gguf + kind});
  }

  const ModelConfig &config;
  std::string prefix, ggufPrefix;
};

} // namespace

void TensorList::convolution(int64_t width) {
  const LayerModules &layer = config.architecture->layer;
  const int64_t hidden = config.hiddenSize;
  linear(layer.convolutionIn, 3 * hidden, hidden, config.convolutionBias);
  matrix(layer.convolution, hidden, width);
  tensors.back().isDepthwise = true;
  if (config.convolutionBias)
    add(layer.convolution, ".bias", {hidden});
  linear(layer.convolutionOut, hidden, hidden, config.convolutionBias);
}

void TensorList::delta() {
  const DeltaModules &modules = config.architecture->layer.delta;
  const DeltaSizes &sizes = config.delta;
  const int64_t hidden = config.hiddenSize, heads = sizes.valueHeads;
  // Hugging Face has the value heads of a key head side by side, GGUF in turns.
  const int64_t shared = heads / sizes.keyHeads;
  RowOrder grouped = {.outer = sizes.isTiled ? shared : 1, .inner = sizes.keyHeads};
  RowOrder tiled = {.outer = sizes.keyHeads, .inner = sizes.isTiled ? 1 : shared};
  auto valueRows = [&](int64_t kept, int64_t unit) {
    grouped.kept = tiled.kept = kept;
    grouped.unit = tiled.unit = unit;
    tensors.back().rows = grouped;
    tensors.back().ggufRows = tiled;
  };
  linear(modules.in, sizes.columns(), hidden, false);
  valueRows(2 * sizes.keys(), sizes.valueDim);
  linear(modules.gate, sizes.values(), hidden, false);
  valueRows(0, sizes.valueDim);
  for (const ModuleName &module : {ModuleName(modules.strength), ModuleName(modules.decay)}) {
    linear(module, heads, hidden, false);
    valueRows(0, 1);
  }
  matrix(modules.convolution, sizes.columns(), config.convolutionWidth);
  valueRows(2 * sizes.keys(), sizes.valueDim);
  tensors.back().isDepthwise = true;
  for (const ModuleName &vector : {ModuleName(modules.rate), ModuleName(modules.bias)}) {
    add(vector, "", {heads});
    valueRows(0, 1);
    tensors.back().isLogarithm = vector.name == modules.rate.name;
  }
  add(modules.norm, ".weight", {sizes.valueDim});
  linear(modules.out, hidden, sizes.values(), false);
  valueRows(0, sizes.valueDim);
  std::swap(tensors.back().rows, tensors.back().columns);
  std::swap(tensors.back().ggufRows, tensors.back().ggufColumns);
}

void TensorList::mixture() {
  const LayerModules &layer = config.architecture->layer;
  const int64_t hidden = config.hiddenSize, size = config.expertSize,
                shared = config.sharedExpertSize;
  const char *gateUp = layer.expertGateUp;
  linear(layer.router, config.experts, hidden, config.architecture->experts.biases);
  if (layer.routerScale)
    add(layer.routerScale, "", {hidden});
  if (layer.expertFactors)
    add(layer.expertFactors, "", {config.experts});
  if (config.biasesChoices)
    add(layer.choiceBias, "", {config.experts});
  for (const auto &[module, part] :
       {std::pair(ModuleName(layer.expertGate), 0), {ModuleName(layer.expertUp), 1}}) {
    experts(module, size, hidden, gateUp, 2, part);
    if (config.architecture->experts.biases)
      continue; // whose stack has another name
    tensors.back().ggufStack = ggufPrefix + kExpertGateUpInGGUF + ".weight";
    tensors.back().isSecondInGGUF = part == 1;
  }
  experts(layer.expertDown, hidden, size, gateUp ? layer.expertDown.name : nullptr, 1, 0);
  if (shared == 0)
    return;
  linear(layer.sharedRouter, 1, hidden, false);
  tensors.back().isVectorInGGUF = true;
  linear(layer.sharedGate, shared, hidden, false);
  linear(layer.sharedUp, shared, hidden, false);
  linear(layer.sharedDown, hidden, shared, false);
}

void TensorList::attention(int64_t index) {
  const Architecture &architecture = *config.architecture;
  const LayerModules &layer = architecture.layer;
  const int64_t hidden = config.hiddenSize;
  const int64_t headDim = config.headDimOf(index);
  const int64_t q = config.numHeads * headDim, kv = config.kvHeadsOf(index) * headDim;
  // GGUF may have the two dimensions that a rotation turns side by side, and all checkpoints have
  // the gates of a head behind its queries.
  const RowOrder pairs = {.outer = architecture.rotatesNeighbours ? 2 : 1, .inner = headDim / 2};
  const RowOrder gates = {.outer = 2, .inner = config.numHeads, .unit = headDim};
  const RowOrder queries = architecture.gatesAttention ? gates : RowOrder();
  const bool wholeNorm = architecture.qkNorm == QKNorm::WholeProjection;

  linear(layer.qkv, q + 2 * kv, hidden, config.qkvBias);
  linear(layer.q, config.queryColumns(index), hidden, config.qkvBias, queries,
         architecture.gatesAttention ? gates : pairs);
  if (!config.sharesKV(index))
    linear(layer.k, kv, hidden, config.qkvBias, {}, pairs);
  if (!config.sharesKV(index) && !config.sharesProjectionIn(index))
    linear(layer.v, kv, hidden, config.qkvBias);
  norm(layer.qNorm, wholeNorm ? q : headDim);
  if (!config.sharesKV(index))
    norm(layer.kNorm, wholeNorm ? kv : headDim);
  if (layer.sinks)
    vector(layer.sinks, config.numHeads);
  linear(layer.o, hidden, q, config.outputBias);
}

void TensorList::layer(int64_t index) {
  const Architecture &architecture = *config.architecture;
  const LayerModules &layer = architecture.layer;
  prefix = config.layerPrefix(index);
  ggufPrefix = fmt::format("blk.{}.", index);
  const int64_t hidden = config.hiddenSize, inner = config.intermediateOf(index);

  norm(layer.attentionNorm, hidden);
  if (!config.isRecurrent(index))
    attention(index);
  else if (layer.delta.in)
    delta();
  else
    convolution(config.convolutionWidth);
  norm(layer.attentionOutputNorm, hidden);
  norm(layer.mlpNorm, hidden);
  if (config.hasMlp(index)) {
    linear(layer.gateUp, 2 * inner, hidden, config.mlpBias);
    linear(layer.gate, inner, hidden, config.mlpBias);
    linear(layer.up, inner, hidden, config.mlpBias);
    linear(layer.down, hidden, inner, config.mlpBias);
  }
  if (config.hasExperts(index)) {
    norm(layer.denseOutputNorm, hidden);
    norm(layer.expertNorm, hidden);
    mixture();
    norm(layer.expertOutputNorm, hidden);
  }
  norm(layer.mlpOutputNorm, hidden);
  if (const int64_t inputs = config.layerInputSize; inputs != 0) {
    linear(layer.inputGate, inputs, hidden, /*bias=*/false);
    linear(layer.inputProjection, hidden, inputs, /*bias=*/false);
    norm(layer.inputProjectionNorm, hidden);
  }
  if (layer.scalar)
    vector(layer.scalar, 1);
  prefix = ggufPrefix = "";
}

void TensorList::draftHead() {
  const DraftModules &draft = config.architecture->draft;
  const int64_t hidden = config.hiddenSize;
  prefix = draft.prefix;
  ggufPrefix = fmt::format("blk.{}.", config.numLayers);
  norm(draft.embeddingNorm, hidden);
  norm(draft.hiddenNorm, hidden);
  linear(draft.fc, hidden, 2 * hidden, /*bias=*/false);
  norm(draft.norm, hidden);
  layer(config.numLayers);
}

/// The list's configuration is the assistant's. Its names are alike in all containers.
void TensorList::assistant(const Assistant &head, int64_t backbone) {
  const int64_t hidden = config.hiddenSize, vocabulary = config.vocabSize;
  matrix({kPreProjection, ""}, hidden, 2 * backbone);
  for (int64_t index = 0; index < config.numLayers; ++index)
    layer(index);
  norm(config.architecture->finalNorm, hidden);
  matrix({kPostProjection, ""}, backbone, hidden);
  matrix({config.tieWordEmbeddings ? config.architecture->embedding.name : kAssistantHead, ""},
         vocabulary, hidden);
  if (head.clusters != 0) {
    matrix({kCentroids, ""}, head.clusters, hidden);
    add({kTokenClusters, ""}, "", {vocabulary});
  }
  for (ExpectedTensor &tensor : tensors)
    tensor.ggufName = tensor.name;
}

std::vector<ExpectedTensor> formats::expectedTensors(const ModelConfig &config) {
  const Architecture &architecture = *config.architecture;
  TensorList list(config);
  list.matrix(architecture.embedding, config.vocabSize, config.hiddenSize);
  if (architecture.positions)
    list.matrix(architecture.positions, config.maxContext, config.hiddenSize);
  if (const int64_t inputs = config.layerInputSize; inputs != 0) {
    list.matrix(architecture.layerEmbedding, config.vocabSize, config.numLayers * inputs);
    list.matrix(architecture.layerProjection, config.numLayers * inputs, config.hiddenSize);
    list.norm(architecture.layerProjectionNorm, inputs);
  }
  for (int64_t layer = 0; layer < config.numLayers; ++layer)
    list.layer(layer);
  list.norm(architecture.finalNorm, config.hiddenSize);
  if (!config.tieWordEmbeddings)
    list.matrix({kHeadModule, "output"}, config.vocabSize, config.hiddenSize);
  if (config.hasDraftHead)
    list.draftHead();
  if (const auto &assistant = config.assistant) {
    TensorList head(*assistant->config);
    head.assistant(*assistant, config.hiddenSize);
    std::ranges::move(head.tensors, std::back_inserter(list.tensors));
  }
  return std::move(list.tensors);
}

void ExpectedTensor::takeGGUFStack(const std::function<bool(const std::string &)> &isThere) {
  if (ggufStack.empty() || !isThere(ggufStack) || isThere(ggufName))
    return;
  ggufName = ggufStack;
  ggufParts = 2;
}

std::vector<int64_t> ExpectedTensor::ggufShape() const {
  if (isVectorInGGUF)
    return {shape[1]};
  if (experts == 0)
    return shape;
  std::vector<int64_t> stacked = shape;
  stacked[0] = stacked[0] / experts * ggufParts;
  stacked.insert(stacked.begin(), experts);
  return stacked;
}

std::vector<int64_t> ExpectedTensor::partShape() const {
  if (!stack.empty()) {
    const int64_t rows = shape[0] / experts * stackParts;
    if (shape.size() == 1)
      return {experts, rows};
    return stacksRows ? std::vector{experts, rows, shape[1]} : std::vector{experts, shape[1], rows};
  }
  std::vector<int64_t> part = shape;
  if (isConv1D)
    std::ranges::reverse(part);
  if (isDepthwise)
    part.insert(part.begin() + 1, 1);
  if (experts != 0)
    part[0] /= experts;
  return part;
}

std::vector<std::string> ExpectedTensor::parts() const {
  if (!stack.empty())
    return {stack};
  if (experts == 0)
    return {name};
  std::vector<std::string> names;
  for (int64_t expert = 0; expert < experts; ++expert)
    names.push_back(expertName(name, expert));
  return names;
}

std::string formats::expertName(std::string_view name, int64_t expert) {
  const size_t module = name.rfind('.', name.rfind('.') - 1);
  return fmt::format("{}.{}{}", name.substr(0, module), expert, name.substr(module));
}

/// Whether a tensor is of heads that draft and are left out.
static bool isOfDraftHead(const ModelConfig &config, std::string_view name) {
  return config.draftLayers != 0 && !config.hasDraftHead &&
         (name.starts_with("mtp.") || name.starts_with("model.mtp."));
}

/// Whether a tensor is of keys or values of a layer that reads those of another: files may have
/// them, and nothing reads them.
static bool isOfUnreadKeys(const ModelConfig &config, std::string_view name, bool isGGUF) {
  const LayerModules &modules = config.architecture->layer;
  for (int64_t layer = config.numLayers - config.sharedKVLayers; layer < config.numLayers; ++layer)
    for (const ModuleName &module :
         {ModuleName(modules.k), ModuleName(modules.v), ModuleName(modules.kNorm)})
      if (name.starts_with(isGGUF ? fmt::format("blk.{}.{}.", layer, module.gguf)
                                  : fmt::format("{}{}.", config.layerPrefix(layer), module.name)))
        return true;
  return false;
}

bool formats::isRedundant(const ModelConfig &config, std::string_view name) {
  if (name == "lm_head.weight")
    return config.tieWordEmbeddings;
  if (isOfDraftHead(config, name) || isOfUnreadKeys(config, name, /*isGGUF=*/false))
    return true;
  return std::ranges::any_of(config.architecture->redundantSuffixes,
                             [&](std::string_view suffix) { return name.ends_with(suffix); });
}

bool formats::canDraft(const ModelConfig &config) {
  return config.architecture->draft.prefix && config.draftLayers == 1;
}

bool formats::holdsDraftHead(const ModelConfig &config, bool isGGUF,
                             const std::function<bool(const std::string &)> &isThere) {
  const DraftModules &draft = config.architecture->draft;
  const std::string prefix =
      isGGUF ? fmt::format("blk.{}.", config.numLayers) : std::string(draft.prefix);
  const auto names = isGGUF
                         ? std::array{draft.fc.gguf, "nextn.embed_tokens", "nextn.shared_head_head"}
                         : std::array{draft.fc.name, "embed_tokens", "lm_head"};
  auto has = [&](const char *name) { return isThere(fmt::format("{}{}.weight", prefix, name)); };
  return has(names[0]) && !has(names[1]) && !has(names[2]);
}

bool formats::isRedundantInGGUF(const ModelConfig &config, std::string_view name) {
  for (int64_t layer = config.allLayers(); layer < config.numLayers + config.draftLayers; ++layer)
    if (name.starts_with(fmt::format("blk.{}.", layer)))
      return true;
  return isOfUnreadKeys(config, name, /*isGGUF=*/true);
}
