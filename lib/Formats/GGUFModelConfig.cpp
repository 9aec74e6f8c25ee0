//===- GGUFModelConfig.cpp - Hyperparameters into GGUF metadata -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Keys are those that GGUFConfig.cpp reads.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/GGUFWriter.h"

#include "ConfigChecks.h"

#include <algorithm>
#include <cmath>

using namespace easyquant;
using namespace easyquant::formats;
using numerics::RopeScaling;

/// Equal in f32, which is what GGUF has.
static bool isClose(double a, double b) { return std::abs(a - b) <= 1e-7 * std::abs(b); }

/// Every so many-th layer has attention, and the others none; 0: it is not so.
static int64_t fullAttentionInterval(const ModelConfig &config) {
  if (config.recurrentLayers.empty())
    return 1;
  const int64_t every =
      std::ranges::find(config.recurrentLayers, false) - config.recurrentLayers.begin() + 1;
  return config.recurrentLayers == everyButNth(every, config.numLayers) ? every : 0;
}

/// What a model has that the keys of its architecture cannot say; empty: nothing.
static std::string unsaidBy(const ModelConfig &config) {
  const Architecture &architecture = *config.architecture;
  if (config.activation != architecture.activations.front().activation)
    return fmt::format("another activation than {}", architecture.activations.front().name);
  if (config.slidingWindow != 0 && architecture.window == WindowKind::SomeLayers)
    return "windows of attention in some layers";
  if (architecture.layerKinds == LayerKinds::GatedDelta && fullAttentionInterval(config) == 0)
    return "gated delta nets in other layers than all but every so many-th";
  if (config.experts != 0 && config.renormalizesExperts != architecture.experts.ggufRenormalizes)
    return config.renormalizesExperts ? "experts whose weights sum to 1"
                                      : "experts whose weights do not sum to 1";
  if (config.expertScale != 1.0)
    return fmt::format("weights of experts times {}", config.expertScale);
  if (architecture.experts.choiceBias && !config.biasesChoices)
    return "choices of experts without a bias";
  ModelConfig usual = config;
  usual.windowedLayers = windowedLayers(architecture.windowPattern, config.numLayers);
  normalizeWindows(usual);
  if (architecture.window == WindowKind::Pattern && !architecture.fullHeadDim.key &&
      config.windowedLayers != usual.windowedLayers)
    return "windows of attention in other layers than its architecture has by default";
  if (!architecture.attentionFactor &&
      !isClose(config.attentionScale, 1.0 / std::sqrt(ggufAttentionWidth(config))))
    return fmt::format("products of queries and keys times {}", config.attentionScale);
  const double windowedTheta = architecture.scalesUnwindowedRope
                                   ? config.rope.theta
                                   : architecture.windowedRopeTheta.otherwise;
  if (config.windowedRope && !architecture.fullHeadDim.key &&
      config.windowedRope->theta != windowedTheta)
    return "another base of rotations in layers with a window than its architecture has by default";
  if (architecture.proportionalPart != 0.0 && config.rope.scaling != RopeScaling::None &&
      config.rope.scaling != RopeScaling::Proportional)
    return "scaled positions";
  if (config.rotatedLayers != rotatedLayers(architecture.unrotatedEvery, config.numLayers))
    return "other layers without rotary positions than its architecture has by default";
  if (config.rope.scaling == RopeScaling::Yarn &&
      config.rope.truncate != architecture.truncatesYarn)
    return config.rope.truncate ? "YaRN with truncated ends" : "YaRN without truncated ends";
  return "";
}

static void addRope(GGUFMetadata &metadata, const std::string &prefix, const ModelConfig &config) {
  const numerics::RopeParams &rope = config.rope;
  const std::string scaling = prefix + "rope.scaling.";
  metadata.add(prefix + "rope.dimension_count", static_cast<uint32_t>(rope.dims));
  metadata.add(prefix + "rope.freq_base", static_cast<float>(rope.theta));
  switch (rope.scaling) {
  case RopeScaling::None:
  case RopeScaling::Llama3: // the tensor says it
  case RopeScaling::Proportional:
    return;
  case RopeScaling::LongRope: // and two tensors
    metadata.add(scaling + "type", std::string_view("longrope"));
    metadata.add(scaling + "original_context_length",
                 static_cast<uint32_t>(rope.originalPositions));
    metadata.add(scaling + "attn_factor", static_cast<float>(rope.attentionFactor));
    return;
  case RopeScaling::Linear:
    metadata.add(scaling + "type", std::string_view("linear"));
    break;
  case RopeScaling::Yarn:
    metadata.add(scaling + "type", std::string_view("yarn"));
    metadata.add(scaling + "original_context_length",
                 static_cast<uint32_t>(rope.originalPositions));
    metadata.add(scaling + "yarn_beta_fast", static_cast<float>(rope.betaFast));
    metadata.add(scaling + "yarn_beta_slow", static_cast<float>(rope.betaSlow));
    if (const NumberField &gain = config.architecture->lateGain) {
      metadata.add(scaling + "yarn_log_multiplier", 1.0f);
      metadata.add(scaling + "attn_factor", static_cast<float>(rope.attentionFactor));
      if (rope.lateGain != 0.0)
        metadata.add(prefix + gain.gguf, static_cast<float>(rope.lateGain));
    } else {
      metadata.add(
          scaling + "attn_factor",
          static_cast<float>(rope.attentionFactor / numerics::yarnAttentionFactor(rope.factor)));
    }
    break;
  }
  metadata.add(scaling + "factor", static_cast<float>(rope.factor));
}

/// llama.cpp asks for the sections of positions in pictures.
static void addGatedDelta(GGUFMetadata &metadata, const std::string &prefix,
                          const ModelConfig &config) {
  const DeltaSizes &delta = config.delta;
  if (config.hasDraftHead)
    metadata.add(prefix + "nextn_predict_layers", uint32_t(1));
  for (auto [key, value] :
       {std::pair("ssm.conv_kernel", config.convolutionWidth),
        std::pair("ssm.group_count", delta.keyHeads), std::pair("ssm.state_size", delta.keyDim),
        std::pair("ssm.time_step_rank", delta.valueHeads),
        std::pair("ssm.inner_size", delta.values()),
        std::pair("full_attention_interval", fullAttentionInterval(config))})
    metadata.add(prefix + key, static_cast<uint32_t>(value));
  const auto pairs = static_cast<int32_t>(config.rope.dims / 2);
  metadata.add(prefix + "rope.dimension_sections",
               std::vector<int32_t>{(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0});
}

/// A layer that convolves has no key-value heads.
static void addConvolutions(GGUFMetadata &metadata, const std::string &prefix,
                            const ModelConfig &config) {
  metadata.add(prefix + "shortconv.l_cache", static_cast<uint32_t>(config.convolutionWidth));
  std::vector<int32_t> heads;
  for (bool convolves : config.recurrentLayers)
    heads.push_back(convolves ? 0 : static_cast<int32_t>(config.numKVHeads));
  if (!heads.empty())
    metadata.add(prefix + "attention.head_count_kv", heads);
}

/// Which layers have a window, the heads of both kinds, and what the last layers read of others;
/// llama.cpp asks for all of it.
static void addFullLayers(GGUFMetadata &metadata, const std::string &prefix,
                          const ModelConfig &config) {
  const Architecture &architecture = *config.architecture;
  for (auto [field, number] : {std::pair(&architecture.sharedKVLayers, config.sharedKVLayers),
                               std::pair(&architecture.layerInputSize, config.layerInputSize)})
    if (*field)
      metadata.add(prefix + field->gguf, static_cast<uint32_t>(number));
  if (config.widensSharing) {
    std::vector<int32_t> sizes;
    for (int64_t layer = 0; layer < config.numLayers; ++layer)
      sizes.push_back(static_cast<int32_t>(config.intermediateOf(layer)));
    metadata.add(prefix + "feed_forward_length", sizes);
  }
  if (!architecture.fullHeadDim.key)
    return;
  std::vector<bool> windowed;
  std::vector<int32_t> kvHeads;
  for (int64_t layer = 0; layer < config.numLayers; ++layer) {
    windowed.push_back(config.windowOf(layer) != 0);
    kvHeads.push_back(static_cast<int32_t>(config.kvHeadsOf(layer)));
  }
  metadata.add(prefix + "attention.head_count_kv", kvHeads);
  metadata.add(prefix + "attention.sliding_window_pattern", windowed);
  if (config.slidingWindow == 0)
    metadata.add(prefix + "attention.sliding_window",
                 static_cast<uint32_t>(architecture.windowOtherwise));
  for (const char *key : {"attention.key_length", "attention.value_length"}) {
    metadata.add(prefix + key, static_cast<uint32_t>(config.fullHeadDim));
    metadata.add(prefix + key + "_swa", static_cast<uint32_t>(config.headDim));
  }
  metadata.add(prefix + "rope.dimension_count_swa", static_cast<uint32_t>(config.headDim));
  const NumberField &theta = architecture.windowedRopeTheta;
  metadata.add(
      prefix + theta.gguf,
      static_cast<float>(config.windowedRope ? config.windowedRope->theta : theta.otherwise));
}

Result<void> formats::addModelConfig(GGUFMetadata &metadata, const ModelConfig &config) {
  const Architecture &architecture = *config.architecture;
  if (const std::string unsaid = unsaidBy(config); !unsaid.empty())
    return makeError(ErrorCode::Unsupported,
                     "GGUF cannot say that a model of the architecture {} has {}; export it to "
                     "another format",
                     architecture.name, unsaid);
  const std::string prefix = std::string(architecture.gguf) + ".";
  metadata.add("general.architecture", std::string_view(architecture.gguf));
  metadata.add(prefix + "vocab_size", static_cast<uint32_t>(config.vocabSize));
  // Some say of each layer how many key-value heads it has.
  const bool hasFullLayers = architecture.fullHeadDim.key;
  const bool listsKVHeads = hasFullLayers || (architecture.layerKinds == LayerKinds::Convolution &&
                                              !config.recurrentLayers.empty());
  for (const ConfigSize &size : configSizes())
    if (!(size.member == &ModelConfig::numKVHeads && listsKVHeads) &&
        !(size.member == &ModelConfig::headDim && hasFullLayers) &&
        !(size.member == &ModelConfig::intermediateSize && config.widensSharing))
      metadata.add(prefix + size.gguf, static_cast<uint32_t>(size.member == &ModelConfig::numLayers
                                                                 ? config.allLayers()
                                                                 : config.*size.member));
  addFullLayers(metadata, prefix, config);
  if (architecture.layerKinds == LayerKinds::Convolution)
    addConvolutions(metadata, prefix, config);
  else if (architecture.layerKinds == LayerKinds::GatedDelta)
    addGatedDelta(metadata, prefix, config);
  if (config.experts != 0) {
    metadata.add(prefix + "expert_count", static_cast<uint32_t>(config.experts));
    metadata.add(prefix + "expert_used_count", static_cast<uint32_t>(config.expertsPerRow));
    metadata.add(prefix + "expert_feed_forward_length", static_cast<uint32_t>(config.expertSize));
    if (architecture.experts.sigmoid)
      metadata.add(prefix + "expert_gating_func", uint32_t(2));
    if (const NumberField &dense = architecture.experts.denseLayers)
      metadata.add(prefix + dense.gguf, static_cast<uint32_t>(config.denseLayers));
    if (config.sharedExpertSize != 0)
      metadata.add(prefix + "expert_shared_feed_forward_length",
                   static_cast<uint32_t>(config.sharedExpertSize));
  }
  if (!hasFullLayers)
    metadata.add(prefix + "attention.value_length", static_cast<uint32_t>(config.headDim));
  metadata.add(prefix + (architecture.norm == NormKind::RMS ? "attention.layer_norm_rms_epsilon"
                                                            : "attention.layer_norm_epsilon"),
               static_cast<float>(config.normEpsilon));
  if (config.slidingWindow != 0)
    metadata.add(prefix + "attention.sliding_window", static_cast<uint32_t>(config.slidingWindow));
  if (architecture.isRotary())
    addRope(metadata, prefix, config);
  for (auto [field, value] : {std::pair(&architecture.embeddingFactor, config.embeddingFactor),
                              std::pair(&architecture.residualFactor, config.residualFactor),
                              std::pair(&architecture.logitDivisor, config.logitDivisor),
                              std::pair(&architecture.attentionFactor, config.attentionScale),
                              std::pair(&architecture.attentionBound, config.attentionBound),
                              std::pair(&architecture.logitBound, config.logitBound)})
    if (*field && (value != 0.0 || field->otherwise != 0.0))
      metadata.add(prefix + field->gguf, static_cast<float>(value));
  return {};
}
