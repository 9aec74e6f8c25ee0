//===- ModelTensors.cpp - The weights of an architecture ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/ModelTensors.h"

#include "easyquant/Support/Result.h"

#include <algorithm>

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
  void linear(const ModuleName &module, int64_t rows, int64_t columns, bool bias,
              int64_t ropeHeads = 0) {
    if (!module)
      return;
    add(module, ".weight", {rows, columns}, config.architecture->conv1D, ropeHeads);
    if (bias)
      add(module, ".bias", {rows}, false, ropeHeads);
  }
  void experts(const ModuleName &module, int64_t rows, int64_t columns) {
    if (!module)
      return;
    add(module, ".weight", {config.experts * rows, columns});
    tensors.back().experts = config.experts;
  }
  void convolution(int64_t width);
  void attention();
  void layer(int64_t index);

private:
  void add(const ModuleName &module, const char *kind, std::vector<int64_t> shape,
           bool conv1D = false, int64_t ropeHeads = 0) {
    tensors.push_back({prefix + module.name + kind, std::move(shape),
                       ggufPrefix + module.gguf + kind, conv1D, ropeHeads});
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

void TensorList::attention() {
  const Architecture &architecture = *config.architecture;
  const LayerModules &layer = architecture.layer;
  const int64_t hidden = config.hiddenSize;
  const int64_t q = config.numHeads * config.headDim, kv = config.numKVHeads * config.headDim;
  const int64_t permuted = architecture.rotatesNeighbours;
  const bool wholeNorm = architecture.qkNorm == QKNorm::WholeProjection;

  linear(layer.qkv, q + 2 * kv, hidden, config.qkvBias);
  linear(layer.q, q, hidden, config.qkvBias, permuted * config.numHeads);
  linear(layer.k, kv, hidden, config.qkvBias, permuted * config.numKVHeads);
  linear(layer.v, kv, hidden, config.qkvBias);
  norm(layer.qNorm, wholeNorm ? q : config.headDim);
  norm(layer.kNorm, wholeNorm ? kv : config.headDim);
  linear(layer.o, hidden, q, config.outputBias);
}

void TensorList::layer(int64_t index) {
  const Architecture &architecture = *config.architecture;
  const LayerModules &layer = architecture.layer;
  prefix = fmt::format("{}{}.", architecture.layerPrefix, index);
  ggufPrefix = fmt::format("blk.{}.", index);
  const int64_t hidden = config.hiddenSize, inner = config.intermediateSize;

  norm(layer.attentionNorm, hidden);
  if (config.convolves(index))
    convolution(config.convolutionWidth);
  else
    attention();
  norm(layer.attentionOutputNorm, hidden);
  norm(layer.mlpNorm, hidden);
  linear(layer.gateUp, 2 * inner, hidden, config.mlpBias);
  linear(layer.gate, inner, hidden, config.mlpBias);
  linear(layer.up, inner, hidden, config.mlpBias);
  linear(layer.down, hidden, inner, config.mlpBias);
  linear(layer.router, config.experts, hidden, false);
  experts(layer.expertGate, config.expertSize, hidden);
  experts(layer.expertUp, config.expertSize, hidden);
  experts(layer.expertDown, hidden, config.expertSize);
  norm(layer.mlpOutputNorm, hidden);
  prefix = ggufPrefix = "";
}

std::vector<ExpectedTensor> formats::expectedTensors(const ModelConfig &config) {
  const Architecture &architecture = *config.architecture;
  TensorList list(config);
  list.matrix(architecture.embedding, config.vocabSize, config.hiddenSize);
  if (architecture.positions)
    list.matrix(architecture.positions, config.maxContext, config.hiddenSize);
  for (int64_t layer = 0; layer < config.numLayers; ++layer)
    list.layer(layer);
  list.norm(architecture.finalNorm, config.hiddenSize);
  if (!config.tieWordEmbeddings)
    list.matrix({kHeadModule, "output"}, config.vocabSize, config.hiddenSize);
  return std::move(list.tensors);
}

std::vector<int64_t> ExpectedTensor::ggufShape() const {
  if (experts == 0)
    return shape;
  return {experts, shape[0] / experts, shape[1]};
}

std::vector<int64_t> ExpectedTensor::partShape() const {
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

bool formats::isRedundant(const ModelConfig &config, std::string_view name) {
  if (name == "lm_head.weight")
    return config.tieWordEmbeddings;
  return std::ranges::any_of(config.architecture->redundantSuffixes,
                             [&](std::string_view suffix) { return name.ends_with(suffix); });
}

int64_t formats::ggufRow(int64_t row, int64_t headDim) {
  int64_t head = row / headDim, dimension = row % headDim, half = headDim / 2;
  return head * headDim + dimension % half * 2 + dimension / half;
}
