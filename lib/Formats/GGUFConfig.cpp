//===- GGUFConfig.cpp - Hyperparameters in GGUF metadata ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Keys and defaults are those of the GGUF specification and of llama.cpp, which reads the same
// files.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/ModelConfig.h"

#include "ConfigChecks.h"
#include "GGUFFields.h"
#include "Text.h"

#include <algorithm>
#include <cmath>

using namespace easyquant;
using namespace easyquant::formats;

/// The scaling of `prefix`.rope.scaling.*.
static void readRope(Metadata &metadata, const GGUFHeader &header, const std::string &prefix,
                     ModelConfig &config) {
  numerics::RopeParams &rope = config.rope;
  rope.theta = metadata.positive(prefix + "rope.freq_base", 10000.0);
  config.rotatedLayers = rotatedLayers(config.architecture->unrotatedEvery, config.numLayers);
  if (const NumberField &theta = config.architecture->windowedRopeTheta) {
    config.windowedRope = numerics::RopeParams{.dims = config.headDim};
    config.windowedRope->theta = metadata.positive(prefix + theta.gguf, theta.otherwise);
  }
  auto readDims = [&](const std::string &dimensions, int64_t headDim) {
    const int64_t dims = metadata.integer(dimensions, kLargestWidth, headDim);
    if (dims != headDim && !config.architecture->rotatesPart)
      metadata.fail(ErrorCode::Unsupported,
                    "metadata {}: rotating {} of {} dimensions is not supported for {}",
                    quote(dimensions), dims, headDim, config.architecture->name);
    if (dims > headDim)
      metadata.fail(ErrorCode::Corrupt,
                    "metadata {}: expected at most the {} dimensions of a head, found {}",
                    quote(dimensions), headDim, dims);
    return dims;
  };
  rope.dims = readDims(prefix + "rope.dimension_count", config.ropeHeadDim());
  if (config.fullHeadDim != 0)
    readDims(prefix + "rope.dimension_count_swa", config.headDim);
  if (config.architecture->scalesUnwindowedRope)
    config.windowedRope = rope;
  const std::string scaling = prefix + "rope.scaling.";
  const GGUFValue *type = metadata.find(scaling + "type");
  auto kind = type ? type->asString().value_or("") : std::string_view("none");
  // Some writers give the tensors alone.
  if (kind == "none" && header.indexByName.contains(kGGUFShortRopeFactors))
    kind = "longrope";
  const double attentionFactor = metadata.positive(scaling + "attn_factor", 1.0);
  if (kind == "linear") {
    rope.scaling = numerics::RopeScaling::Linear;
    rope.factor = metadata.positive(scaling + "factor");
  } else if (kind == "yarn") {
    rope.scaling = numerics::RopeScaling::Yarn;
    rope.truncate = config.architecture->truncatesYarn;
    rope.factor = metadata.positive(scaling + "factor");
    rope.originalPositions =
        metadata.integer(scaling + "original_context_length", kLargestContext, config.maxContext);
    rope.betaFast = metadata.positive(scaling + "yarn_beta_fast", 32.0);
    rope.betaSlow = metadata.positive(scaling + "yarn_beta_slow", 1.0);
    rope.attentionFactor = numerics::yarnAttentionFactor(rope.factor) * attentionFactor;
    if (const NumberField &gain = config.architecture->lateGain; gain) {
      // mscale_all_dim, by which its converter says that rotations are not scaled.
      rope.attentionFactor /= numerics::yarnAttentionFactor(
          rope.factor, metadata.positive(scaling + "yarn_log_multiplier", 1.0));
      if (metadata.find(prefix + gain.gguf))
        rope.lateGain = metadata.positive(prefix + gain.gguf);
    }
    if (rope.betaSlow >= rope.betaFast || rope.theta <= 1.0)
      metadata.fail(
          ErrorCode::Corrupt,
          "YaRN with betas {} and {} and base {}: expected a fast beta above the slow one "
          "and a base above 1",
          rope.betaFast, rope.betaSlow, rope.theta);
  } else if (kind == "longrope") { // the tensors say how
    rope.scaling = numerics::RopeScaling::LongRope;
    rope.originalPositions =
        metadata.integer(scaling + "original_context_length", kLargestContext, config.maxContext);
    rope.attentionFactor = attentionFactor;
  } else if (kind != "none") {
    metadata.fail(ErrorCode::Unsupported,
                  "RoPE scaling {} is not supported; expected none, linear, yarn or longrope",
                  quote(kind));
  }
  if ((kind == "none" || kind == "linear") && attentionFactor != 1.0)
    metadata.fail(ErrorCode::Unsupported, "metadata {}: {} with RoPE scaling {} is not supported",
                  quote(scaling + "attn_factor"), attentionFactor, quote(kind));
  if (rope.factor < 1.0)
    metadata.fail(ErrorCode::Corrupt, "metadata {}: expected a number from 1 on, found {}",
                  quote(scaling + "factor"), rope.factor);
  const bool takesMultiplier = kind == "yarn" && config.architecture->lateGain;
  for (const std::string key : {"yarn_ext_factor", "yarn_attn_factor", "yarn_log_multiplier"})
    if (metadata.find(scaling + key) && !(takesMultiplier && key == "yarn_log_multiplier"))
      metadata.fail(ErrorCode::Unsupported, "metadata {} is not supported", quote(scaling + key));
  if (metadata.find(prefix + "rope.scale_linear"))
    metadata.fail(ErrorCode::Unsupported, "metadata {} is not supported",
                  quote(prefix + "rope.scale_linear"));
  auto refuseBeside = [&](const char *tensor, numerics::RopeScaling expected) {
    if (header.indexByName.contains(tensor) && rope.scaling != expected)
      metadata.fail(ErrorCode::Unsupported,
                    "RoPE scaling {} together with tensor {} is not supported", quote(kind),
                    quote(tensor));
  };
  refuseBeside(kGGUFRopeFactors, numerics::RopeScaling::None);
  for (const char *tensor : {kGGUFShortRopeFactors, kGGUFLongRopeFactors})
    refuseBeside(tensor, numerics::RopeScaling::LongRope);
  if (config.architecture->scalesUnwindowedRope && config.windowedRope == rope)
    config.windowedRope.reset();
}

/// The architecture that the file names. llama.cpp has one name for some that differ in whether
/// there is a window.
static Result<const Architecture *> namedArchitecture(const Metadata &metadata,
                                                      std::string_view fileName) {
  const GGUFValue *value = metadata.find("general.architecture");
  if (!value || !value->asString())
    return makeError(ErrorCode::Corrupt,
                     "{}: metadata \"general.architecture\": missing; expected a string", fileName);
  const std::string name(*value->asString());
  const bool hasWindow = metadata.find(name + ".attention.sliding_window");
  const GGUFValue *experts = metadata.find(name + ".expert_count");
  const bool hasExperts = experts && experts->asInteger() != 0;
  const Architecture *found = nullptr;
  for (const Architecture &known : architectures())
    if (name == known.gguf && (hasExperts == bool(known.experts) || known.experts.enabledKey) &&
        (!found ||
         (hasWindow && found->window == WindowKind::None && known.window != WindowKind::None)))
      found = &known;
  if (found)
    return found;
  if (std::ranges::find(architectures(), name, &Architecture::gguf) != architectures().end())
    return makeError(ErrorCode::Unsupported,
                     "{}: models of architecture {} {} experts are not supported", fileName,
                     quote(name), hasExperts ? "with" : "without");
  if (const Architecture *other = formats::findArchitecture(name))
    return makeError(ErrorCode::Unsupported,
                     "{}: architecture {} is not one of GGUF; there it is {}", fileName,
                     quote(name), quote(other->gguf));
  return Unexpected(unsupportedArchitecture(fileName, name, &Architecture::gguf));
}

/// A layer that convolves has no key-value heads. The number of those of the others.
static int64_t readConvolvedLayers(Metadata &metadata, const std::string &prefix,
                                   const std::string &key, ModelConfig &config) {
  config.convolutionWidth = metadata.integer(prefix + "shortconv.l_cache", kWidestConvolution);
  const GGUFValue *value = metadata.find(key);
  const GGUFArray *array = value ? value->asArray() : nullptr;
  if (!array)
    return metadata.integer(key, kMostHeads, config.numHeads);
  const std::optional<std::vector<int64_t>> heads =
      array->count == static_cast<uint64_t>(config.numLayers) ? integersOf(*array) : std::nullopt;
  int64_t most = 0;
  for (int64_t count : heads.value_or(std::vector<int64_t>()))
    if (count < 0 || count > kMostHeads || (count != 0 && most != 0 && count != most))
      most = -1;
    else if (most >= 0)
      most = std::max(most, count);
  if (!heads || most < 1 || config.convolutionWidth < 2) {
    metadata.fail(
        ErrorCode::Corrupt,
        "metadata {}: expected for each of {} layers the same number of heads, or 0 where "
        "it convolves 2 tokens or more",
        quote(key), config.numLayers);
    return 1;
  }
  for (int64_t count : *heads)
    config.recurrentLayers.push_back(count == 0);
  if (std::ranges::find(config.recurrentLayers, true) == config.recurrentLayers.end())
    config.recurrentLayers.clear(); // one form for each meaning
  return most;
}

/// One flag a layer, as booleans or integers.
static std::optional<std::vector<bool>> flagsOf(const GGUFArray &array) {
  std::vector<bool> flags;
  if (array.elementType == GGUFType::Bool) {
    for (std::byte flag : array.raw)
      flags.push_back(flag != std::byte(0));
    return flags;
  }
  const std::optional<std::vector<int64_t>> integers = integersOf(array);
  if (!integers)
    return std::nullopt;
  flags.assign(integers->begin(), integers->end());
  return flags;
}

/// Layers that draft, which block_count has among the others.
static void readDraftLayers(Metadata &metadata, const std::string &prefix, ModelConfig &config) {
  const std::string key = prefix + "nextn_predict_layers";
  const GGUFValue *value = metadata.find(key);
  const int64_t layers = value ? value->asInteger().value_or(-1) : 0;
  if (layers < 0 || layers >= config.numLayers)
    return metadata.fail(ErrorCode::Corrupt,
                         "metadata {}: expected an integer from 0 to {}, less than the layers",
                         quote(key), config.numLayers - 1);
  config.draftLayers = layers;
  config.numLayers -= layers;
}

/// Layers without attention are those of a list, or all but every so many-th.
static void readGatedDelta(Metadata &metadata, const std::string &prefix, ModelConfig &config) {
  readDraftLayers(metadata, prefix, config);
  config.convolutionWidth = metadata.integer(prefix + "ssm.conv_kernel", kWidestConvolution);
  DeltaSizes &delta = config.delta;
  delta.keyHeads = metadata.integer(prefix + "ssm.group_count", kMostHeads);
  delta.keyDim = metadata.integer(prefix + "ssm.state_size", kLargestWidth);
  delta.valueHeads = metadata.integer(prefix + "ssm.time_step_rank", kMostHeads);
  const int64_t values = metadata.integer(prefix + "ssm.inner_size", kLargestWidth);
  delta.valueDim = std::max<int64_t>(1, values / delta.valueHeads);
  delta.isTiled = delta.valueHeads != delta.keyHeads;
  if (delta.values() != values || config.convolutionWidth < 2)
    metadata.fail(ErrorCode::Corrupt,
                  "gated delta nets with a convolution of {} tokens and {} values in {} heads: "
                  "expected 2 tokens or more and a multiple of the heads",
                  config.convolutionWidth, values, delta.valueHeads);
  const int64_t every = metadata.integer(prefix + "full_attention_interval", kMostLayers, 4);
  config.recurrentLayers = everyButNth(every, config.numLayers);
  const std::string key = prefix + "attention.recurrent_layers";
  if (const GGUFValue *value = metadata.find(key)) {
    const GGUFArray *array = value->asArray();
    std::optional<std::vector<bool>> flags = array ? flagsOf(*array) : std::nullopt;
    if (!flags || std::ssize(*flags) != config.numLayers + config.draftLayers)
      return metadata.fail(ErrorCode::Corrupt, "metadata {}: expected a flag for each of {} layers",
                           quote(key), config.numLayers + config.draftLayers);
    flags->resize(config.numLayers);
    config.recurrentLayers = std::move(*flags);
  }
  if (std::ranges::find(config.recurrentLayers, true) == config.recurrentLayers.end())
    config.recurrentLayers.clear(); // one form for each meaning
}

static void readSizes(Metadata &metadata, const std::string &prefix, ModelConfig &config) {
  for (const ConfigSize &size : configSizes()) {
    std::string key = prefix + size.gguf;
    if (size.field == &Architecture::intermediateSize && config.architecture->sizesExpertsAlone())
      key = prefix + "expert_feed_forward_length";
    if (size.field == &Architecture::numKVHeads &&
        config.architecture->layerKinds == LayerKinds::Convolution) {
      config.numKVHeads = readConvolvedLayers(metadata, prefix, key, config);
      continue;
    }
    std::optional<int64_t> otherwise;
    const bool hasFullLayers = config.architecture->fullHeadDim.key;
    if (size.field == &Architecture::intermediateSize && config.architecture->doubleWidthKey)
      if (const GGUFValue *value = metadata.find(key); value && value->asArray())
        continue; // of each layer, once it is known which have twice the columns
    if (size.field == &Architecture::numKVHeads && hasFullLayers) {
      if (const GGUFValue *value = metadata.find(key); value && value->asArray())
        continue; // of each layer, once it is known which have a window
    }
    if (size.field == &Architecture::headDim && hasFullLayers) {
      config.fullHeadDim = metadata.integer(key, size.largest);
      config.headDim = metadata.integer(key + "_swa", size.largest);
      continue;
    }
    if (size.field == &Architecture::numKVHeads)
      otherwise = config.numHeads;
    if (size.field == &Architecture::headDim) {
      otherwise = defaultSize(SizeField::HiddenPerHead, config);
      if (!metadata.find(key) && config.hiddenSize % config.numHeads != 0)
        metadata.fail(ErrorCode::Corrupt, "embedding length {} is not a multiple of {} heads",
                      config.hiddenSize, config.numHeads);
    }
    config.*size.member = metadata.integer(key, size.largest, otherwise);
  }
  // What its config.json cannot say, no model of the architecture is.
  const Architecture &architecture = *config.architecture;
  if ((!architecture.numKVHeads.key && config.numKVHeads != config.numHeads) ||
      (!architecture.headDim.key && config.headDim * config.numHeads != config.hiddenSize))
    metadata.fail(ErrorCode::Unsupported,
                  "{} with {} heads of {} and {} key-value heads in {} dimensions is not supported",
                  architecture.name, config.numHeads, config.headDim, config.numKVHeads,
                  config.hiddenSize);
  auto checkValues = [&](const char *key, int64_t headDim) {
    const int64_t valueDim = metadata.integer(prefix + key, kLargestWidth, headDim);
    if (valueDim != headDim)
      metadata.fail(
          ErrorCode::Unsupported,
          "keys of {} and values of {} dimensions a head: different lengths are not supported",
          headDim, valueDim);
  };
  checkValues("attention.value_length", config.ropeHeadDim());
  if (config.fullHeadDim != 0)
    checkValues("attention.value_length_swa", config.headDim);
}

/// Layers that read the keys and values of others, perhaps with MLPs of twice the columns, which a
/// list of columns says; and embeddings of layers.
static void readSharedLayers(Metadata &metadata, const std::string &prefix, ModelConfig &config) {
  const Architecture &architecture = *config.architecture;
  auto read = [&](const CountField &field, int64_t largest) -> int64_t {
    const GGUFValue *value = field ? metadata.find(prefix + field.gguf) : nullptr;
    const int64_t number = value ? value->asInteger().value_or(-1) : 0;
    if (number < 0 || number > largest)
      metadata.fail(ErrorCode::Corrupt, "metadata {}: expected an integer from 0 to {}",
                    quote(prefix + field.gguf), largest);
    return number;
  };
  config.sharedKVLayers = read(architecture.sharedKVLayers, config.numLayers - 1);
  config.layerInputSize = read(architecture.layerInputSize, kLargestWidth);
  const std::string key = prefix + "feed_forward_length";
  const GGUFValue *value = metadata.find(key);
  const GGUFArray *array = value && architecture.doubleWidthKey ? value->asArray() : nullptr;
  if (!array || metadata.failure)
    return;
  const std::optional<std::vector<int64_t>> sizes =
      array->count == static_cast<uint64_t>(config.numLayers) ? integersOf(*array) : std::nullopt;
  config.intermediateSize = sizes ? sizes->front() : 0;
  config.widensSharing = sizes && sizes->back() != sizes->front();
  bool isLegal = sizes && sizes->front() >= 1 && sizes->front() <= kLargestWidth;
  for (int64_t layer = 0; isLegal && layer < config.numLayers; ++layer)
    isLegal = (*sizes)[layer] == config.intermediateOf(layer);
  if (!isLegal)
    metadata.fail(ErrorCode::Unsupported,
                  "metadata {}: expected one number for each of {} layers, the same in all, or "
                  "twice as large in the last {}",
                  quote(key), config.numLayers, config.sharedKVLayers);
}

/// Heads of layers that see all tokens, where these have heads of their own: a list of key-value
/// heads, of which one number is that of the layers with a window, and one that of the others.
static void readFullLayers(Metadata &metadata, const GGUFHeader &header, const std::string &prefix,
                           ModelConfig &config) {
  if (!config.architecture->fullHeadDim.key)
    return;
  const std::string key = prefix + "attention.head_count_kv";
  const GGUFValue *value = metadata.find(key);
  config.fullKVHeads = config.numKVHeads;
  const GGUFArray *array = value ? value->asArray() : nullptr;
  const std::optional<std::vector<int64_t>> heads =
      array && array->count == static_cast<uint64_t>(config.numLayers) ? integersOf(*array)
                                                                       : std::nullopt;
  if (array && !heads)
    return metadata.fail(ErrorCode::Corrupt,
                         "metadata {}: expected an integer for each of {} layers", quote(key),
                         config.numLayers);
  if (metadata.failure)
    return;
  for (int64_t layer = 0; layer < config.numLayers; ++layer) {
    const bool isFull = config.windowOf(layer) == 0;
    int64_t &known = isFull ? config.fullKVHeads : config.numKVHeads;
    if (heads && ((*heads)[layer] < 1 || (*heads)[layer] > kMostHeads))
      return metadata.fail(ErrorCode::Corrupt,
                           "metadata {}: expected integers from 1 to {}, found {}", quote(key),
                           kMostHeads, (*heads)[layer]);
    if (heads)
      known = (*heads)[layer];
    config.sharesProjection |=
        isFull && !config.sharesKV(layer) &&
        !header.indexByName.contains(fmt::format("blk.{}.attn_v.weight", layer));
  }
  if (config.numKVHeads == 0 || config.slidingWindow == 0) // all layers are of one kind
    config.numKVHeads = config.fullKVHeads;
  for (int64_t layer = 0; heads && layer < config.numLayers; ++layer)
    if ((*heads)[layer] != config.kvHeadsOf(layer))
      metadata.fail(ErrorCode::Unsupported,
                    "metadata {}: expected one number for all layers with a window, and one for "
                    "those without",
                    quote(key));
  if (config.fullKVHeads != config.numKVHeads && !config.sharesProjection)
    metadata.fail(ErrorCode::Unsupported,
                  "metadata {}: other numbers in layers without a window are not supported for {} "
                  "where these have v",
                  quote(key), config.architecture->name);
}

/// The experts in place of MLPs, as llama.cpp runs them for these architectures: softmax, and
/// weights that sum to 1 in all but some. Whatever else a file asks for is no such router.
static void readExperts(Metadata &metadata, const std::string &prefix, ModelConfig &config) {
  const ExpertFields &experts = config.architecture->experts;
  const GGUFValue *number = metadata.find(prefix + "expert_count");
  if (!experts || (experts.enabledKey && (!number || number->asInteger() == 0)))
    return;
  config.experts = metadata.integer(prefix + "expert_count", kMostExperts);
  config.expertsPerRow = metadata.integer(prefix + "expert_used_count", kMostExperts);
  config.expertSize = experts.size.key
                          ? metadata.integer(prefix + "expert_feed_forward_length", kLargestWidth)
                          : config.intermediateSize;
  config.renormalizesExperts = experts.ggufRenormalizes;
  if (experts.sharedSize.key)
    config.sharedExpertSize =
        metadata.integer(prefix + "expert_shared_feed_forward_length", kLargestWidth);
  if (const NumberField &dense = experts.denseLayers) {
    const GGUFValue *value = metadata.find(prefix + dense.gguf);
    config.denseLayers = value ? value->asInteger().value_or(-1) : 0;
    if (config.denseLayers < 0)
      metadata.fail(ErrorCode::Corrupt, "metadata {}: expected how many layers have no experts",
                    quote(prefix + dense.gguf));
  }
  constexpr int64_t softmax = 1, sigmoid = 2; // of llama_expert_gating_func_type
  for (auto [name, only] : {std::pair("expert_gating_func", experts.sigmoid ? sigmoid : softmax),
                            std::pair("expert_weights_norm", int64_t(experts.ggufRenormalizes)),
                            std::pair("expert_group_count", int64_t(1)),
                            std::pair("expert_shared_count", int64_t(config.sharedExpertSize != 0)),
                            std::pair("expert_weights_scale", int64_t(1))}) {
    const GGUFValue *value = metadata.find(prefix + name);
    const std::optional<double> number = value ? value->asNumber() : std::nullopt;
    if (number && *number != 0 && *number != static_cast<double>(only))
      metadata.fail(ErrorCode::Unsupported, "metadata {}: a router with {} is not supported for {}",
                    quote(prefix + name), *number, config.architecture->name);
  }
}

/// A checkpoint has the biases of a kind in all layers or in none.
static void readBiases(const GGUFHeader &header, ModelConfig &config) {
  const Architecture &architecture = *config.architecture;
  const LayerModules &layer = architecture.layer;
  int64_t attending = 0; // the first layer that has attention, if any
  while (attending + 1 < config.numLayers && config.isRecurrent(attending))
    ++attending;
  auto hasBias = [&](const BiasRule &rule, const ModuleName &module) {
    return rule.key
               ? header.indexByName.contains(fmt::format("blk.{}.{}.bias", attending, module.gguf))
               : rule.always;
  };
  config.qkvBias =
      layer.qkv ? hasBias(architecture.qkvBias, layer.qkv) : hasBias(architecture.qkvBias, layer.q);
  config.outputBias = architecture.outputBias.key == architecture.qkvBias.key &&
                              architecture.outputBias.key // one flag for both
                          ? config.qkvBias
                          : hasBias(architecture.outputBias, layer.o);
  for (int64_t index = 0; index < config.numLayers && !config.convolutionBias; ++index)
    config.convolutionBias =
        config.isRecurrent(index) && layer.convolution &&
        header.indexByName.contains(fmt::format("blk.{}.{}.bias", index, layer.convolution.gguf));
  config.biasesChoices =
      layer.choiceBias && header.indexByName.contains(
                              fmt::format("blk.{}.{}", config.denseLayers, layer.choiceBias.gguf));
  if (!architecture.experts || architecture.experts.besideMlp)
    config.mlpBias = layer.gateUp ? hasBias(architecture.mlpBias, layer.gateUp)
                                  : hasBias(architecture.mlpBias, layer.up);
}

static void readWindow(Metadata &metadata, const std::string &prefix, ModelConfig &config) {
  const std::string window = prefix + "attention.sliding_window";
  const GGUFValue *value = metadata.find(window);
  if (!value || value->asInteger() == 0) // 0: llama.cpp's converter says so of a model without one
    return;
  config.slidingWindow = metadata.integer(window, kLargestContext);
  if (config.architecture->window == WindowKind::None)
    metadata.fail(ErrorCode::Unsupported, "metadata {} is not supported for {}", quote(window),
                  config.architecture->name);
  const std::string key = window + "_pattern";
  if (config.architecture->window != WindowKind::Pattern) {
    if (metadata.find(key))
      metadata.fail(ErrorCode::Unsupported, "metadata {} is not supported", quote(key));
    return;
  }
  config.windowedLayers = windowedLayers(config.architecture->windowPattern, config.numLayers);
  if (const GGUFValue *value = metadata.find(key); value && value->asArray()) {
    // Whether each layer has the window.
    const std::optional<std::vector<bool>> flags = flagsOf(*value->asArray());
    if (!flags || std::ssize(*flags) != config.numLayers)
      metadata.fail(ErrorCode::Corrupt, "metadata {}: expected a flag for each of {} layers",
                    quote(key), config.numLayers);
    else
      config.windowedLayers = *flags;
  } else if (value) {
    config.windowedLayers = windowedLayers(metadata.integer(key, kMostLayers), config.numLayers);
  }
  normalizeWindows(config);
}

/// The factors and bounds of values and of products of queries and keys.
static void readFactors(Metadata &metadata, const std::string &prefix, ModelConfig &config) {
  const Architecture &architecture = *config.architecture;
  auto number = [&](const NumberField &field, double otherwise) {
    return field ? metadata.positive(prefix + field.gguf, field.otherwise) : otherwise;
  };
  config.embeddingFactor = number(architecture.embeddingFactor, embeddingFactor(config));
  config.residualFactor = number(architecture.residualFactor, 1.0);
  config.logitDivisor = number(architecture.logitDivisor, 1.0);
  config.attentionScale =
      number(architecture.attentionFactor, 1.0 / std::sqrt(ggufAttentionWidth(config)));
  config.attentionBound = number(architecture.attentionBound, 0.0);
  config.logitBound = number(architecture.logitBound, 0.0);
}

Result<ModelConfig> formats::parseGGUFConfig(const GGUFHeader &header, std::string_view fileName) {
  Metadata metadata(header, fileName);
  Result<const Architecture *> architecture = namedArchitecture(metadata, fileName);
  if (!architecture)
    return Unexpected(architecture.error());
  if (const GGUFValue *splits = metadata.find("split.count"); splits && splits->asInteger() > 1)
    return makeError(ErrorCode::Unsupported,
                     "{}: a GGUF model split over several files is not supported; merge them with "
                     "llama-gguf-split --merge",
                     fileName);
  auto embedding = header.indexByName.find("token_embd.weight");
  if (embedding == header.indexByName.end())
    return makeError(ErrorCode::NotFound, "{}: tensor \"token_embd.weight\" is missing{}", fileName,
                     header.tensors.empty() ? "; the file holds a vocabulary only" : "");

  ModelConfig config;
  config.architecture = *architecture;
  const std::string prefix = fmt::format("{}.", (*architecture)->gguf);
  const GGUFTensor &table = header.tensors[embedding->second];
  config.vocabSize = metadata.integer(prefix + "vocab_size", kLargestVocabulary,
                                      std::min(table.shape.front(), kLargestVocabulary));
  readSizes(metadata, prefix, config);
  config.normEpsilon = metadata.positive(prefix + ((*architecture)->norm == NormKind::RMS
                                                       ? "attention.layer_norm_rms_epsilon"
                                                       : "attention.layer_norm_epsilon"));
  config.activation = (*architecture)->activations.front().activation;
  config.tieWordEmbeddings = !header.indexByName.contains("output.weight");
  if ((*architecture)->isRotary())
    readRope(metadata, header, prefix, config);
  readExperts(metadata, prefix, config);
  if ((*architecture)->layerKinds == LayerKinds::GatedDelta)
    readGatedDelta(metadata, prefix, config);
  readSharedLayers(metadata, prefix, config);
  readBiases(header, config);
  readWindow(metadata, prefix, config);
  readFullLayers(metadata, header, prefix, config);
  readFactors(metadata, prefix, config);

  config.bosTokenId = metadata.token("tokenizer.ggml.bos_token_id");
  for (const char *key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"})
    if (std::optional<int64_t> id = metadata.token(key);
        id && std::find(config.eosTokenIds.begin(), config.eosTokenIds.end(), *id) ==
                  config.eosTokenIds.end())
      config.eosTokenIds.push_back(*id);
  if (metadata.failure)
    return Unexpected(*metadata.failure);
  if (Result<void> checked = checkConsistency(config, fileName); !checked)
    return Unexpected(checked.error());
  return config;
}
