//===- HuggingFaceConfig.cpp - Reading config.json ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which fields there are, and what is meant where one is missing, the description of the
// architecture says (Architectures.cpp).
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/ModelConfig.h"
#include "easyquant/Support/FieldReader.h"

#include "ConfigChecks.h"
#include "Text.h"

#include <algorithm>
#include <array>
#include <cmath>

using namespace easyquant;
using namespace easyquant::formats;

//===----------------------------------------------------------------------===//
// Fields with the defaults of transformers, where null is as good as nothing
//===----------------------------------------------------------------------===//

static int64_t integer(FieldReader &fields, const char *key, int64_t largest,
                       std::optional<int64_t> otherwise = {}) {
  int64_t value = otherwise.value_or(1);
  if (otherwise)
    fields.optional(key, value, Bounds{1, largest});
  else
    fields.required(key, value, Bounds{1, largest});
  return value;
}

/// An integer that may be 0.
static int64_t count(FieldReader &fields, const char *key, int64_t largest, int64_t otherwise) {
  fields.optional(key, otherwise, Bounds{0, largest});
  return otherwise;
}

static double positive(FieldReader &fields, const char *key, double otherwise) {
  fields.optional(key, otherwise, Numbers::Positive);
  return otherwise;
}

static bool flag(FieldReader &fields, const char *key, bool otherwise) {
  fields.optional(key, otherwise);
  return otherwise;
}

static std::string word(FieldReader &fields, const char *key, std::string otherwise) {
  fields.optional(key, otherwise);
  return otherwise;
}

/// A token id or a list of them.
static std::vector<int64_t> tokens(FieldReader &fields, const char *key) {
  const Bounds bounds{0, kLargestVocabulary};
  std::vector<int64_t> ids;
  const Json *value = fields.find(key);
  if (value && value->isArray()) {
    fields.required(key, ids, bounds);
  } else if (value) {
    ids.resize(1);
    fields.required(key, ids.front(), bounds);
  }
  return ids;
}

static void refusePartialRotation(FieldReader &fields) {
  if (positive(fields, "partial_rotary_factor", 1.0) != 1.0)
    fields.failInWords(ErrorCode::Unsupported,
                       "partial_rotary_factor other than 1 is not supported");
}

/// The frequencies that rope_scaling of transformers 4, or rope_parameters of 5, asks for.
static void readRopeScaling(FieldReader &scaling, ModelConfig &config) {
  numerics::RopeParams &rope = config.rope;
  rope.theta = positive(scaling, "rope_theta", rope.theta);
  const std::string kind =
      word(scaling, "rope_type", word(scaling, "type", "default")); // "type" of old files
  auto need = [&](const char *name) {
    if (!scaling.find(name))
      scaling.failInWords(ErrorCode::Corrupt, "{}: missing; RoPE scaling {} needs it", name,
                          quote(kind));
    return positive(scaling, name, 1.0);
  };
  constexpr std::array<std::string_view, 5> kinds = {"default", "linear", "dynamic", "llama3",
                                                     "yarn"};
  if (std::ranges::find(kinds, kind) == kinds.end())
    return scaling.failInWords(
        ErrorCode::Unsupported,
        "RoPE scaling {} is not supported; expected \"default\", \"linear\", "
        "\"dynamic\", \"llama3\" or \"yarn\"",
        quote(kind));
  // "dynamic" (NTK) changes the base beyond max_position_embeddings tokens, where no context goes.
  if (kind != "default" && kind != "dynamic")
    rope.factor = need("factor");
  if (rope.factor < 1.0)
    scaling.failInWords(ErrorCode::Corrupt, "factor: expected a number from 1 on, found {}",
                        rope.factor);

  if (kind == "linear") {
    rope.scaling = numerics::RopeScaling::Linear;
  } else if (kind == "llama3") {
    rope.scaling = numerics::RopeScaling::Llama3;
    rope.lowFrequencyFactor = need("low_freq_factor");
    rope.highFrequencyFactor = need("high_freq_factor");
    rope.originalPositions = static_cast<int64_t>(need("original_max_position_embeddings"));
    if (rope.lowFrequencyFactor >= rope.highFrequencyFactor)
      scaling.failInWords(ErrorCode::Corrupt,
                          "low_freq_factor {} must be below high_freq_factor {}",
                          rope.lowFrequencyFactor, rope.highFrequencyFactor);
  } else if (kind == "yarn") {
    rope.scaling = numerics::RopeScaling::Yarn;
    rope.originalPositions =
        integer(scaling, "original_max_position_embeddings", kLargestContext, config.maxContext);
    rope.betaFast = positive(scaling, "beta_fast", 32.0);
    rope.betaSlow = positive(scaling, "beta_slow", 1.0);
    rope.truncate = flag(scaling, "truncate", true);
    double factor = numerics::yarnAttentionFactor(rope.factor);
    if (scaling.find("mscale") && scaling.find("mscale_all_dim"))
      factor = numerics::yarnAttentionFactor(rope.factor, positive(scaling, "mscale", 1.0)) /
               numerics::yarnAttentionFactor(rope.factor, positive(scaling, "mscale_all_dim", 1.0));
    rope.attentionFactor = positive(scaling, "attention_factor", factor);
    if (rope.betaSlow >= rope.betaFast)
      scaling.failInWords(ErrorCode::Corrupt, "beta_slow {} must be below beta_fast {}",
                          rope.betaSlow, rope.betaFast);
    if (rope.theta <= 1.0)
      scaling.failInWords(ErrorCode::Corrupt, "rope_theta {}: \"yarn\" needs one above 1",
                          rope.theta);
    // Qwen's instructions add the scaling and leave max_position_embeddings as it was.
    const double extended = rope.factor * static_cast<double>(rope.originalPositions);
    if (extended <= static_cast<double>(kLargestContext))
      config.maxContext = std::max(config.maxContext, static_cast<int64_t>(std::llround(extended)));
  }
  if (kind == "dynamic" && integer(scaling, "original_max_position_embeddings", kLargestContext,
                                   config.maxContext) != config.maxContext)
    scaling.failInWords(ErrorCode::Unsupported,
                        "RoPE scaling \"dynamic\" with original_max_position_embeddings other than "
                        "max_position_embeddings is not supported");
  for (const char *name : {"mrope_section", "short_factor", "long_factor"})
    if (scaling.find(name))
      scaling.failInWords(ErrorCode::Unsupported, "{} is not supported", name);
  refusePartialRotation(scaling);
}

/// rope_parameters of transformers 5 where kinds of layers have their own.
static void readRopeOfKinds(FieldReader &kinds, ModelConfig &config) {
  if (kinds.find("full_attention"))
    kinds.object("full_attention", [&](FieldReader &found) { readRopeScaling(found, config); });
  if (!kinds.find("sliding_attention"))
    return;
  kinds.object("sliding_attention", [&](FieldReader &found) {
    const std::string kind = word(found, "rope_type", "default");
    if (kind != "default")
      found.failInWords(ErrorCode::Unsupported,
                        "RoPE scaling {} in layers with a window is not supported; expected "
                        "\"default\"",
                        quote(kind));
    config.windowedRope->theta = positive(found, "rope_theta", config.windowedRope->theta);
    refusePartialRotation(found);
  });
}

static void readRope(FieldReader &fields, ModelConfig &config) {
  const Architecture &architecture = *config.architecture;
  config.rope.headDim = config.headDim;
  config.rope.theta = positive(fields, "rope_theta", architecture.ropeTheta);
  refusePartialRotation(fields);
  if (const NumberField &theta = architecture.windowedRopeTheta) {
    config.windowedRope = numerics::RopeParams{.headDim = config.headDim};
    config.windowedRope->theta = positive(fields, theta.key, theta.otherwise);
  }
  const Json *scaling = fields.find("rope_scaling"), *parameters = fields.find("rope_parameters");
  if (scaling && parameters && *scaling != *parameters)
    return fields.failInWords(ErrorCode::Corrupt,
                              "rope_scaling and rope_parameters say different things; remove one");
  if (parameters || scaling)
    fields.object(parameters ? "rope_parameters" : "rope_scaling", [&](FieldReader &found) {
      if (config.windowedRope && (found.find("full_attention") || found.find("sliding_attention")))
        readRopeOfKinds(found, config);
      else
        readRopeScaling(found, config);
    });
}

/// In all layers, 4096 tokens if nothing is said, none if null.
static void readWindow(FieldReader &fields, ModelConfig &config) {
  if (fields.names("sliding_window") && !fields.find("sliding_window"))
    return;
  config.slidingWindow = integer(fields, "sliding_window", kLargestContext, 4096);
}

/// layer_types, where it is there.
static void readLayerTypes(FieldReader &fields, ModelConfig &config) {
  const Json *types = fields.find("layer_types");
  if (!types)
    return;
  if (!types->isArray() || types->size() != static_cast<size_t>(config.numLayers))
    return fields.failInWords(
        ErrorCode::Corrupt, "layer_types: expected a list of {} kinds of layers", config.numLayers);
  config.windowedLayers.resize(types->size());
  for (size_t layer = 0; layer < types->size(); ++layer) {
    const Json &type = (*types)[layer];
    if (!type.is("full_attention") && !type.is("sliding_attention"))
      return fields.failInWords(
          ErrorCode::Unsupported,
          "layer_types: expected \"full_attention\" or \"sliding_attention\", "
          "found {}",
          type.describe());
    config.windowedLayers[layer] = type.is("sliding_attention");
  }
}

/// In the layers that layer_types names, else in all but every sliding_window_pattern-th.
static void readWindowPattern(FieldReader &fields, ModelConfig &config) {
  readWindow(fields, config);
  int64_t pattern = config.architecture->windowPattern;
  // The second name is that of files that transformers 4.5x wrote.
  for (const char *key : {"sliding_window_pattern", "_sliding_window_pattern"})
    pattern = integer(fields, key, kMostLayers, pattern);
  config.windowedLayers = windowedLayers(pattern, config.numLayers);
  readLayerTypes(fields, config);
  normalizeWindows(config);
}

/// In the layers that layer_types names, else in those from max_window_layers on, and only if
/// use_sliding_window says so.
static void readWindowOfSomeLayers(FieldReader &fields, ModelConfig &config) {
  if (!flag(fields, "use_sliding_window", false))
    return;
  readWindow(fields, config);
  if (config.slidingWindow == 0)
    return;
  const int64_t first = count(fields, "max_window_layers", kMostLayers, 28);
  for (int64_t layer = 0; layer < config.numLayers; ++layer)
    config.windowedLayers.push_back(layer >= first);
  readLayerTypes(fields, config);
  normalizeWindows(config);
}

/// The factors and bounds of values and of products of queries and keys.
static void readFactors(FieldReader &fields, ModelConfig &config) {
  const Architecture &architecture = *config.architecture;
  auto number = [&](const NumberField &field, double otherwise) {
    return field ? positive(fields, field.key, field.otherwise) : otherwise;
  };
  auto bound = [&](const NumberField &field) { // null: none
    return field && fields.names(field.key) && !fields.find(field.key) ? 0.0 : number(field, 0.0);
  };
  config.embeddingFactor = number(architecture.embeddingFactor, embeddingFactor(config));
  config.residualFactor = number(architecture.residualFactor, 1.0);
  config.logitDivisor = number(architecture.logitDivisor, 1.0);
  config.attentionScale = number(
      architecture.attentionFactor,
      1.0 / std::sqrt(number(architecture.attentionWidth, static_cast<double>(config.headDim))));
  config.attentionBound = bound(architecture.attentionBound);
  config.logitBound = bound(architecture.logitBound);
}

static void readSizes(FieldReader &fields, ModelConfig &config) {
  const Architecture &architecture = *config.architecture;
  for (const ConfigSize &size : configSizes()) {
    const SizeField &field = architecture.*size.field;
    const bool isThere = field.key && fields.find(field.key);
    if (!isThere && field.otherwise == SizeField::HiddenPerHead &&
        config.hiddenSize % config.numHeads != 0)
      fields.failInWords(ErrorCode::Corrupt, "{} {} is not a multiple of {} {}{}",
                         architecture.hiddenSize.key, config.hiddenSize, architecture.numHeads.key,
                         config.numHeads,
                         field.key ? fmt::format(" and {} is missing", field.key) : std::string());
    int64_t &value = config.*size.member;
    const int64_t otherwise = defaultSize(field.otherwise, config);
    value = !field.key ? otherwise
                       : integer(fields, field.key, size.largest,
                                 field.otherwise == SizeField::Required ? std::nullopt
                                                                        : std::optional(otherwise));
  }
}

static void readActivation(FieldReader &fields, ModelConfig &config) {
  const Architecture &architecture = *config.architecture;
  const std::string name =
      word(fields, architecture.activationKey, architecture.activations.front().name);
  std::string expected;
  for (size_t i = 0; i < architecture.activations.size(); ++i) {
    const ActivationName &known = architecture.activations[i];
    if (name == known.name) {
      config.activation = known.activation;
      return;
    }
    expected += (i == 0                                    ? ""
                 : i + 1 < architecture.activations.size() ? ", "
                                                           : " or ") +
                quote(known.name);
  }
  fields.failInWords(ErrorCode::Unsupported, "{} {} is not supported for {}; expected {}",
                     architecture.activationKey, quote(name), architecture.name, expected);
}

/// no_rope_layers: a 1 for each layer that is rotated, else a 0; or every no_rope_layer_interval-th
/// is not.
static void readRotatedLayers(FieldReader &fields, ModelConfig &config) {
  const int64_t every =
      integer(fields, "no_rope_layer_interval", kMostLayers, config.architecture->unrotatedEvery);
  config.rotatedLayers = rotatedLayers(every, config.numLayers);
  if (!fields.find("no_rope_layers"))
    return;
  std::vector<int64_t> listed;
  fields.required("no_rope_layers", listed, Bounds{0, 1});
  if (!fields.failed() && listed.size() < static_cast<size_t>(config.numLayers))
    return fields.failInWords(
        ErrorCode::Corrupt, "no_rope_layers: found {} numbers, expected one for each of {} layers",
        listed.size(), config.numLayers);
  listed.resize(static_cast<size_t>(config.numLayers), 1);
  config.rotatedLayers.assign(listed.begin(), listed.end());
  if (std::ranges::find(listed, 0) == listed.end())
    config.rotatedLayers.clear(); // one form for each meaning
}

static void readModel(FieldReader &fields, ModelConfig &config) {
  const Architecture &architecture = *config.architecture;
  config.vocabSize = integer(fields, "vocab_size", kLargestVocabulary);
  readSizes(fields, config);
  config.normEpsilon = positive(fields, architecture.epsilonKey, architecture.epsilon);
  if (architecture.isRotary())
    readRope(fields, config);
  if (architecture.unrotatedEvery != 0)
    readRotatedLayers(fields, config);
  readActivation(fields, config);
  for (const FixedFlag &fixed : architecture.fixedFlags)
    if (flag(fields, fixed.key, fixed.value) != fixed.value)
      fields.failInWords(ErrorCode::Unsupported, "{}: {} is not supported for {}", fixed.key,
                         !fixed.value, architecture.name);
  for (const char *key : architecture.fixedNulls)
    if (const Json *found = fields.find(key))
      fields.failInWords(ErrorCode::Unsupported, "{}: {} is not supported for {}; expected null",
                         key, found->describe(), architecture.name);
  config.tieWordEmbeddings = flag(fields, "tie_word_embeddings", architecture.tiesHead);
  auto hasBias = [&](const BiasRule &rule) {
    return rule.key ? flag(fields, rule.key, false) : rule.always;
  };
  config.qkvBias = hasBias(architecture.qkvBias);
  config.outputBias = hasBias(architecture.outputBias);
  config.mlpBias = hasBias(architecture.mlpBias);
  if (architecture.window == WindowKind::AllLayers)
    readWindow(fields, config);
  else if (architecture.window == WindowKind::SomeLayers)
    readWindowOfSomeLayers(fields, config);
  else if (architecture.window == WindowKind::Pattern)
    readWindowPattern(fields, config);
  readFactors(fields, config);
}

/// What configurations say of parts that no architecture here has.
struct NewField {
  const char *key, *meaning;
};
static constexpr NewField kNewFields[] = {
    {"num_experts", "a mixture of experts"},
    {"num_local_experts", "a mixture of experts"},
    {"n_routed_experts", "a mixture of experts"},
    {"linear_conv_kernel_dim", "gated delta nets"},
    {"conv_L_cache", "short convolutions"},
    {"mamba_d_state", "state spaces"},
    {"state_size", "state spaces"},
    {"kv_lora_rank", "latent attention"},
    {"hidden_size_per_layer_input", "embeddings of layers"},
    {"mtp_num_hidden_layers", "a head that drafts"},
    {"num_nextn_predict_layers", "a head that drafts"},
    {"vision_config", "a part for pictures"},
    {"audio_config", "a part for sound"},
};

/// What is new in a configuration of an unknown architecture: "; new in it: num_experts (a mixture
/// of experts)"; empty if nothing is known to be. The text part of a model has its own object.
static std::string newFields(FieldReader &fields) {
  std::string found;
  auto look = [&](FieldReader &part) {
    for (const NewField &field : kNewFields)
      if (part.find(field.key))
        found += fmt::format("{}{} ({})", found.empty() ? "; new in it: " : ", ", field.key,
                             field.meaning);
  };
  look(fields);
  if (const Json *text = fields.find("text_config"); text && text->isObject())
    fields.object("text_config", look);
  return found;
}

Result<ModelConfig> formats::parseHuggingFaceConfig(std::string_view text,
                                                    std::string_view fileName) {
  Result<Json> object = Json::parseObject(text, fileName);
  if (!object)
    return Unexpected(object.error());
  FieldReader fields(*object, fileName, {.nullIsAbsent = true});

  std::string modelType;
  fields.required("model_type", modelType);
  if (fields.failed())
    return Unexpected(fields.result().error());
  const Architecture *architecture = findArchitecture(modelType);
  const auto multimodal = std::ranges::find_if(architectures(), [&](const Architecture &known) {
    return known.withOtherParts && modelType == known.withOtherParts;
  });
  const bool isTextPart = multimodal != architectures().end();
  if (isTextPart)
    architecture = &*multimodal;
  if (!architecture) {
    Error error = unsupportedArchitecture(fileName, modelType, &Architecture::name);
    error.message += newFields(fields);
    return Unexpected(std::move(error));
  }

  ModelConfig config;
  config.architecture = architecture;
  config.isTextPart = isTextPart;
  auto readTokens = [&](FieldReader &part) {
    if (std::vector<int64_t> bos = tokens(part, "bos_token_id"); !bos.empty())
      config.bosTokenId = bos.front();
    if (std::vector<int64_t> eos = tokens(part, "eos_token_id"); !eos.empty())
      config.eosTokenIds = std::move(eos);
  };
  if (isTextPart)
    fields.object("text_config", [&](FieldReader &part) {
      readModel(part, config);
      readTokens(part);
    });
  else
    readModel(fields, config);
  readTokens(fields);
  if (fields.failed())
    return Unexpected(fields.result().error());
  if (Result<void> checked = checkConsistency(config, fileName); !checked)
    return Unexpected(checked.error());
  return config;
}

Result<std::vector<int64_t>> formats::parseEosTokenIds(std::string_view text,
                                                       std::string_view fileName) {
  Result<Json> object = Json::parseObject(text, fileName);
  if (!object)
    return Unexpected(object.error());
  FieldReader fields(*object, fileName, {.nullIsAbsent = true});
  std::vector<int64_t> ids = tokens(fields, "eos_token_id");
  if (fields.failed())
    return Unexpected(fields.result().error());
  return ids;
}
