//===- ModelConfig.cpp - Hyperparameters of a model -----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/ModelConfig.h"

#include "easyquant/Support/DidYouMean.h"

#include "ConfigChecks.h"
#include "Text.h"

#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

using namespace easyquant;
using namespace easyquant::formats;

static constexpr ConfigSize kSizes[] = {
    {&ModelConfig::hiddenSize, &Architecture::hiddenSize, kLargestWidth, "embedding_length"},
    {&ModelConfig::intermediateSize, &Architecture::intermediateSize, kLargestWidth,
     "feed_forward_length"},
    {&ModelConfig::numLayers, &Architecture::numLayers, kMostLayers, "block_count"},
    {&ModelConfig::numHeads, &Architecture::numHeads, kMostHeads, "attention.head_count"},
    {&ModelConfig::numKVHeads, &Architecture::numKVHeads, kMostHeads, "attention.head_count_kv"},
    {&ModelConfig::headDim, &Architecture::headDim, kLargestWidth, "attention.key_length"},
    {&ModelConfig::maxContext, &Architecture::maxContext, kLargestContext, "context_length"}};

std::span<const ConfigSize> formats::configSizes() { return kSizes; }

std::string ModelConfig::layerPrefix(int64_t layer) const {
  return layer < numLayers
             ? fmt::format("{}{}.", architecture->layerPrefix, layer)
             : fmt::format("{}{}.", architecture->draft.layerPrefix, layer - numLayers);
}

int64_t formats::defaultSize(int64_t rule, const ModelConfig &config) {
  switch (rule) {
  case SizeField::NumHeads:
    return config.numHeads;
  case SizeField::HiddenPerHead:
    return std::max<int64_t>(1, config.hiddenSize / config.numHeads);
  case SizeField::FourTimesHidden:
    return 4 * config.hiddenSize;
  default:
    return rule;
  }
}

Error formats::unsupportedArchitecture(std::string_view fileName, std::string_view name,
                                       const char *Architecture::*names, std::string_view details) {
  std::vector<std::string_view> known;
  for (const Architecture &architecture : architectures())
    if (std::ranges::find(known, architecture.*names) == known.end())
      known.push_back(architecture.*names);
  return {ErrorCode::Unsupported,
          fmt::format("{}: architecture {} is not supported; supported: {}{}{}", fileName,
                      quote(name), fmt::join(known, ", "), details, didYouMean(name, known))};
}

Result<void> formats::checkConsistency(const ModelConfig &config, std::string_view fileName) {
  for (int64_t kvHeads : {config.numKVHeads, config.fullKVHeads})
    if (kvHeads != 0 && config.numHeads % kvHeads != 0)
      return makeError(ErrorCode::Corrupt,
                       "{}: {} attention heads cannot share {} key-value heads: expected a divisor",
                       fileName, config.numHeads, kvHeads);
  for (auto [dims, headDim] :
       {std::pair(config.rope.dims, config.ropeHeadDim()),
        std::pair(config.windowedRope ? config.windowedRope->dims : 2, config.headDim)})
    if (config.architecture->isRotary() && (dims % 2 != 0 || dims < 2))
      return makeError(ErrorCode::Corrupt,
                       "{}: {} rotated dimensions of a head of {}: rotary position embedding turns "
                       "pairs, so that their number must be even, and not 0",
                       fileName, dims, headDim);
  if (config.recurrentBefore(config.numLayers) == config.numLayers)
    return makeError(ErrorCode::Unsupported, "{}: no layer has attention; expected one at least",
                     fileName);
  const DeltaSizes &delta = config.delta;
  if (delta.keyHeads != 0 && delta.valueHeads % delta.keyHeads != 0)
    return makeError(ErrorCode::Corrupt,
                     "{}: {} value heads of gated delta nets cannot share {} key heads: expected a "
                     "multiple",
                     fileName, delta.valueHeads, delta.keyHeads);
  if (delta.columns() > kLargestWidth)
    return makeError(ErrorCode::Corrupt,
                     "{}: gated delta nets with {} key heads of {} and {} value heads of {} are "
                     "too wide",
                     fileName, delta.keyHeads, delta.keyDim, delta.valueHeads, delta.valueDim);
  for (int64_t layer = 0; layer < config.numLayers; ++layer)
    if (config.queryColumns(layer) > kLargestWidth)
      return makeError(ErrorCode::Corrupt, "{}: {} heads of dimension {} are too wide", fileName,
                       config.numHeads, config.headDimOf(layer));
  if (config.layerInputSize > kLargestWidth / config.numLayers)
    return makeError(ErrorCode::Corrupt,
                     "{}: embeddings of {} columns for each of {} layers are "
                     "too wide",
                     fileName, config.layerInputSize, config.numLayers);
  for (int64_t layer = config.numLayers - config.sharedKVLayers; layer < config.numLayers; ++layer)
    if (config.sourceOf(layer) < 0)
      return makeError(
          ErrorCode::Corrupt,
          "{}: layer {} reads the keys and values of the last layer {} a window before "
          "layer {}, and there is none",
          fileName, layer, config.windowOf(layer) != 0 ? "with" : "without",
          config.numLayers - config.sharedKVLayers);
  if (config.expertsPerRow > config.experts)
    return makeError(
        ErrorCode::Corrupt,
        "{}: each token chooses {} experts, but there are {}; expected at most as many", fileName,
        config.expertsPerRow, config.experts);
  if (config.experts != 0 && config.denseLayers >= config.numLayers)
    return makeError(ErrorCode::Corrupt,
                     "{}: the first {} layers have no experts, and there are {} layers; expected "
                     "fewer than all",
                     fileName, config.denseLayers, config.numLayers);
  if (config.experts * std::max(config.expertSize, config.hiddenSize) > kLargestStack)
    return makeError(ErrorCode::Corrupt, "{}: {} experts of {} columns are too many", fileName,
                     config.experts, config.expertSize);
  // What f32 rounds to 0 or infinity would make logits that are not finite.
  for (auto [what, value] : {std::pair("factor of embeddings", config.embeddingFactor),
                             std::pair("factor of the residual stream", config.residualFactor),
                             std::pair("factor of logits", 1.0 / config.logitDivisor),
                             std::pair("scale of attention", config.attentionScale),
                             std::pair("scale of experts", config.expertScale),
                             std::pair("gain of late queries", config.rope.lateGain),
                             std::pair("soft cap of attention", config.attentionBound),
                             std::pair("soft cap of logits", config.logitBound)})
    if (value != 0.0 && !std::isnormal(static_cast<float>(value)))
      return makeError(ErrorCode::Corrupt, "{}: {} {}: expected a number that f32 holds", fileName,
                       what, value);
  auto checkToken = [&](int64_t id, const char *what) -> Result<void> {
    if (id < 0 || id >= config.vocabSize)
      return makeError(ErrorCode::Corrupt, "{}: {} token id {} lies outside the vocabulary of {}",
                       fileName, what, id, config.vocabSize);
    return {};
  };
  if (config.bosTokenId)
    if (Result<void> checked = checkToken(*config.bosTokenId, "begin-of-text"); !checked)
      return checked;
  for (int64_t id : config.eosTokenIds)
    if (Result<void> checked = checkToken(id, "end-of-text"); !checked)
      return checked;
  return {};
}

double formats::embeddingFactor(const ModelConfig &config) {
  return config.architecture->scalesEmbedding ? std::sqrt(static_cast<float>(config.hiddenSize))
                                              : 1.0;
}

double formats::ggufAttentionWidth(const ModelConfig &config) {
  if (const NumberField &width = config.architecture->attentionWidth;
      !width && width.otherwise != 0)
    return width.otherwise;
  const bool isWide = config.numLayers == config.architecture->wideAttentionLayers;
  return static_cast<double>(isWide ? config.hiddenSize : config.headDim) /
         static_cast<double>(isWide ? config.numHeads : 1);
}

std::vector<bool> formats::everyButNth(int64_t n, int64_t layers) {
  std::vector<bool> flags;
  for (int64_t layer = 1; layer <= layers; ++layer)
    flags.push_back(layer % n != 0);
  return flags;
}

std::vector<bool> formats::windowedLayers(int64_t pattern, int64_t layers) {
  return pattern > 0 ? everyButNth(pattern, layers) : std::vector<bool>();
}

void formats::normalizeWindows(ModelConfig &config) {
  std::vector<bool> &windowed = config.windowedLayers;
  if (config.architecture->lastSeesAll && !windowed.empty())
    windowed.back() = false;
  if (!windowed.empty() && std::ranges::find(windowed, true) == windowed.end())
    config.slidingWindow = 0;
  if (config.slidingWindow == 0 || std::ranges::find(windowed, false) == windowed.end())
    windowed.clear();
  if (config.slidingWindow == 0)
    config.windowedRope.reset();
}

std::vector<bool> formats::rotatedLayers(int64_t unrotatedEvery, int64_t layers) {
  return unrotatedEvery > 0 && unrotatedEvery <= layers ? everyButNth(unrotatedEvery, layers)
                                                        : std::vector<bool>();
}
