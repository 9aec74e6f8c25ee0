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

#include <fmt/ranges.h>

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

/// How many dimensions of a head are rotated. transformers rounds down.
static void readPartialRotation(FieldReader &fields, ModelConfig &config) {
  if (!fields.find("partial_rotary_factor"))
    return;
  const double factor = positive(fields, "partial_rotary_factor", 1.0);
  if (factor != 1.0 && !config.architecture->rotatesPart)
    return fields.failInWords(ErrorCode::Unsupported,
                              "partial_rotary_factor: {} is not supported for {}; expected 1",
                              factor, config.architecture->name);
  const double dims = factor * static_cast<double>(config.headDim);
  if (factor > 1.0 || dims < 2.0)
    return fields.failInWords(
        ErrorCode::Corrupt,
        "partial_rotary_factor: expected a part of 1 that gives at least 2 of "
        "the {} dimensions of a head, found {}",
        config.headDim, factor);
  config.rope.dims = static_cast<int64_t>(dims);
}

/// A divisor for each pair that is rotated.
static std::vector<float> readDivisors(FieldReader &scaling, const char *name,
                                       const ModelConfig &config) {
  std::vector<double> numbers;
  scaling.required(name, numbers, Numbers::Positive);
  if (!scaling.failed() && std::ssize(numbers) != config.rope.dims / 2)
    scaling.failInWords(ErrorCode::Corrupt,
                        "{}: found {} numbers, expected one for each of {} pairs of rotated "
                        "dimensions",
                        name, numbers.size(), config.rope.dims / 2);
  const std::vector<float> divisors(numbers.begin(), numbers.end());
  for (size_t i = 0; i < divisors.size(); ++i)
    if (!std::isnormal(divisors[i]))
      scaling.failInWords(ErrorCode::Corrupt,
                          "{}: expected positive numbers in the range of f32, "
                          "found {}",
                          name, numbers[i]);
  return divisors;
}

/// "longrope": the lists are for contexts of up to `original` tokens, and for longer ones.
static void readLongRope(FieldReader &scaling, int64_t original, ModelConfig &config) {
  numerics::RopeParams &rope = config.rope;
  rope.scaling = numerics::RopeScaling::LongRope;
  rope.originalPositions = original;
  rope.divisors = readDivisors(scaling, "short_factor", config);
  config.longDivisors = readDivisors(scaling, "long_factor", config);
  const double factor = positive(
      scaling, "factor", static_cast<double>(config.maxContext) / static_cast<double>(original));
  if (factor > 1.0 && original < 2)
    return scaling.failInWords(ErrorCode::Corrupt,
                               "original_max_position_embeddings: expected at least 2, found {}",
                               original);
  rope.attentionFactor =
      positive(scaling, "attention_factor", numerics::longRopeAttentionFactor(factor, original));
}

/// The frequencies that rope_scaling of transformers 4, or rope_parameters of 5, asks for.
/// `outside`: the original_max_position_embeddings beside it, which comes before that in it.
static void readRopeScaling(FieldReader &scaling, std::optional<int64_t> outside,
                            ModelConfig &config) {
  numerics::RopeParams &rope = config.rope;
  rope.theta = positive(scaling, "rope_theta", rope.theta);
  readPartialRotation(scaling, config);
  std::string kind =
      word(scaling, "rope_type", word(scaling, "type", "default")); // "type" of old files
  auto original = [&] {
    return outside ? *outside
                   : integer(scaling, "original_max_position_embeddings", kLargestContext,
                             config.maxContext);
  };
  // The first files of Phi-3 called it so.
  if (kind == "su" || (kind == "yarn" && scaling.find("short_factor")))
    kind = "longrope";
  auto need = [&](const char *name) {
    if (!scaling.find(name))
      scaling.failInWords(ErrorCode::Corrupt, "{}: missing; RoPE scaling {} needs it", name,
                          quote(kind));
    return positive(scaling, name, 1.0);
  };
  constexpr std::array<std::string_view, 6> kinds = {"default", "linear", "dynamic",
                                                     "llama3",  "yarn",   "longrope"};
  if (std::ranges::find(kinds, kind) == kinds.end())
    return scaling.failInWords(
        ErrorCode::Unsupported,
        "RoPE scaling {} is not supported; expected \"default\", \"linear\", "
        "\"dynamic\", \"llama3\", \"yarn\" or \"longrope\"",
        quote(kind));
  if (kind == "longrope")
    return readLongRope(scaling, original(), config);
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
    rope.originalPositions =
        outside ? *outside : static_cast<int64_t>(need("original_max_position_embeddings"));
    if (rope.lowFrequencyFactor >= rope.highFrequencyFactor)
      scaling.failInWords(ErrorCode::Corrupt,
                          "low_freq_factor {} must be below high_freq_factor {}",
                          rope.lowFrequencyFactor, rope.highFrequencyFactor);
  } else if (kind == "yarn") {
    rope.scaling = numerics::RopeScaling::Yarn;
    rope.originalPositions = original();
    rope.betaFast = positive(scaling, "beta_fast", 32.0);
    rope.betaSlow = positive(scaling, "beta_slow", 1.0);
    rope.truncate = flag(scaling, "truncate", true);
    double factor = numerics::yarnAttentionFactor(rope.factor);
    if (scaling.find("mscale") && scaling.find("mscale_all_dim"))
      factor = numerics::yarnAttentionFactor(rope.factor, positive(scaling, "mscale", 1.0)) /
               numerics::yarnAttentionFactor(rope.factor, positive(scaling, "mscale_all_dim", 1.0));
    rope.attentionFactor = positive(scaling, "attention_factor", factor);
    if (const NumberField &gain = config.architecture->lateGain; gain && scaling.find(gain.key))
      rope.lateGain = positive(scaling, gain.key, 0.0);
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
  if (kind == "dynamic" && original() != config.maxContext)
    scaling.failInWords(ErrorCode::Unsupported,
                        "RoPE scaling \"dynamic\" with original_max_position_embeddings other than "
                        "max_position_embeddings is not supported");
  for (const char *name : {"mrope_section", "short_factor", "long_factor"})
    if (scaling.find(name))
      scaling.failInWords(ErrorCode::Unsupported, "{} is not supported with rope_type {}", name,
                          quote(kind));
  if (const char *key = "llama_4_scaling_beta"; scaling.find(key) && rope.lateGain == 0.0)
    scaling.failInWords(ErrorCode::Unsupported, "{} is not supported with rope_type {} in {}", key,
                        quote(kind), config.architecture->name);
}

/// rope_parameters of transformers 5 where kinds of layers have their own.
static void readRopeOfKinds(FieldReader &kinds, std::optional<int64_t> original,
                            ModelConfig &config) {
  if (kinds.find("full_attention"))
    kinds.object("full_attention",
                 [&](FieldReader &found) { readRopeScaling(found, original, config); });
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
    readPartialRotation(found, config);
  });
}

static void readRope(FieldReader &fields, ModelConfig &config) {
  const Architecture &architecture = *config.architecture;
  config.rope.dims = config.headDim;
  config.rope.theta = positive(fields, "rope_theta", architecture.ropeTheta);
  readPartialRotation(fields, config);
  std::optional<int64_t> original;
  if (const char *key = "original_max_position_embeddings"; fields.find(key))
    original = integer(fields, key, kLargestContext);
  if (const NumberField &theta = architecture.windowedRopeTheta) {
    config.windowedRope = numerics::RopeParams{.dims = config.headDim};
    config.windowedRope->theta = positive(fields, theta.key, theta.otherwise);
  } else if (architecture.scalesUnwindowedRope) {
    config.windowedRope = numerics::RopeParams{.dims = config.headDim, .theta = config.rope.theta};
  }
  const Json *scaling = fields.find("rope_scaling"), *parameters = fields.find("rope_parameters");
  if (scaling && parameters && *scaling != *parameters)
    return fields.failInWords(ErrorCode::Corrupt,
                              "rope_scaling and rope_parameters say different things; remove one");
  if (architecture.lateGain && !parameters && !scaling)
    return fields.failInWords(ErrorCode::Corrupt,
                              "rope_parameters: missing; {} has no positions without it",
                              architecture.name);
  if (parameters || scaling)
    fields.object(parameters ? "rope_parameters" : "rope_scaling", [&](FieldReader &found) {
      if (config.windowedRope && (found.find("full_attention") || found.find("sliding_attention")))
        readRopeOfKinds(found, original, config);
      else
        readRopeScaling(found, original, config);
    });
  // One form for each meaning.
  if (architecture.scalesUnwindowedRope && config.windowedRope == config.rope)
    config.windowedRope.reset();
}

/// The layers of LFM2 that have no attention; the width of their convolutions; and the size of the
/// MLP, which is not the one that the file names but two thirds of it, rounded up.
static void readConvolutions(FieldReader &fields, ModelConfig &config) {
  config.convolutionWidth = integer(fields, "conv_L_cache", kWidestConvolution, 3);
  config.convolutionBias = flag(fields, "conv_bias", false);
  if (config.convolutionWidth < 2)
    return fields.failInWords(ErrorCode::Unsupported,
                              "conv_L_cache: a convolution of one token is not supported; expected "
                              "2 to {}",
                              kWidestConvolution);
  const std::vector<bool> none(static_cast<size_t>(config.numLayers), false);
  config.convolvedLayers = none;
  if (fields.find("layer_types")) {
    std::vector<std::string> types;
    fields.required("layer_types", types);
    if (!fields.failed() && types.size() != none.size())
      fields.failInWords(ErrorCode::Corrupt,
                         "layer_types: found {} kinds, expected one for each of "
                         "{} layers",
                         types.size(), none.size());
    for (size_t layer = 0; !fields.failed() && layer < types.size(); ++layer) {
      if (types[layer] != "conv" && types[layer] != "full_attention")
        return fields.failInWords(ErrorCode::Unsupported,
                                  "layer_types: expected \"conv\" or \"full_attention\", found {}",
                                  quote(types[layer]));
      config.convolvedLayers[layer] = types[layer] == "conv";
    }
  } else if (fields.find("full_attn_idxs")) {
    std::vector<int64_t> attending;
    fields.required("full_attn_idxs", attending, Bounds{0, config.numLayers - 1});
    config.convolvedLayers.flip();
    for (size_t i = 0; !fields.failed() && i < attending.size(); ++i)
      config.convolvedLayers[static_cast<size_t>(attending[i])] = false;
  }
  if (config.convolvedLayers == none)
    config.convolvedLayers.clear(); // one form for each meaning

  int64_t &inner = config.intermediateSize;
  inner = integer(fields, "block_ff_dim", kLargestWidth, inner);
  if (flag(fields, "block_auto_adjust_ff_dim", true)) {
    const int64_t unit = integer(fields, "block_multiple_of", kLargestWidth, 256);
    inner = static_cast<int64_t>(positive(fields, "block_ffn_dim_multiplier", 1.0) *
                                 static_cast<double>(2 * inner / 3));
    inner = std::max<int64_t>(1, (inner + unit - 1) / unit) * unit;
    if (inner > kLargestWidth)
      fields.failInWords(ErrorCode::Corrupt, "block_ff_dim: an MLP of {} is too wide", inner);
  }
  config.tieWordEmbeddings = flag(fields, "tie_embedding", config.tieWordEmbeddings);
}

/// In all layers; what the architecture has if nothing is said, none if null.
static void readWindow(FieldReader &fields, ModelConfig &config) {
  const int64_t otherwise = config.architecture->windowOtherwise;
  const bool isThere = fields.find("sliding_window");
  if (!isThere && (fields.names("sliding_window") || otherwise == 0))
    return;
  config.slidingWindow = integer(fields, "sliding_window", kLargestContext, otherwise);
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

/// The experts in place of MLPs. What some layers alone have is not read as what all have.
static void readExperts(FieldReader &fields, ModelConfig &config) {
  const ExpertFields &experts = config.architecture->experts;
  if (!experts)
    return;
  config.experts = integer(fields, experts.count.key, kMostExperts, experts.count.otherwise);
  config.expertsPerRow =
      integer(fields, experts.chosen.key, kMostExperts, experts.chosen.otherwise);
  config.expertSize = experts.size.key
                          ? integer(fields, experts.size.key, kLargestWidth, experts.size.otherwise)
                          : config.intermediateSize;
  config.renormalizesExperts =
      !experts.renormalizesKey || flag(fields, experts.renormalizesKey, false);
  const int64_t step = integer(fields, "decoder_sparse_step", kMostLayers, 1);
  const Json *without = fields.find("mlp_only_layers");
  if (step != 1 || (without && !(without->isArray() && without->size() == 0)))
    fields.failInWords(ErrorCode::Unsupported,
                       "{}: layers without experts are not supported for {}; expected {}",
                       step != 1 ? "decoder_sparse_step" : "mlp_only_layers",
                       config.architecture->name, step != 1 ? "1" : "an empty list");
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
  readExperts(fields, config);
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
  if (architecture.layerKinds == LayerKinds::Convolution)
    readConvolutions(fields, config);
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

/// The architecture of the text part of a model that has other parts, too; null if it has none.
static const Architecture *textPart(FieldReader &fields, std::string_view modelType) {
  std::vector<const Architecture *> known;
  for (const Architecture &architecture : architectures())
    if (architecture.withOtherParts && modelType == architecture.withOtherParts)
      known.push_back(&architecture);
  if (known.empty())
    return nullptr;
  std::string name = known.front()->name; // transformers leaves out what is the default
  fields.object("text_config", [&](FieldReader &part) { name = word(part, "model_type", name); });
  const auto found = std::ranges::find(known, std::string_view(name), &Architecture::name);
  if (found != known.end())
    return *found;
  std::vector<std::string_view> names;
  for (const Architecture *architecture : known)
    names.emplace_back(architecture->name);
  fields.failInWords(ErrorCode::Unsupported,
                     "text_config.model_type: found {}, expected of {} one of {}", quote(name),
                     quote(modelType), fmt::join(names, ", "));
  return nullptr;
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
  const Architecture *architecture = textPart(fields, modelType);
  const bool isTextPart = architecture != nullptr;
  if (fields.failed())
    return Unexpected(fields.result().error());
  if (!isTextPart)
    architecture = findArchitecture(modelType);
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
