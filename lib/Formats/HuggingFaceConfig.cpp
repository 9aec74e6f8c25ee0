//===- HuggingFaceConfig.cpp - Reading config.json ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Fields and defaults are those of LlamaConfig, GPT2Config, MistralConfig, Qwen2Config and
// Qwen3Config of the transformers library, which leaves out of config.json what equals a default.
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
  if (positive(scaling, "partial_rotary_factor", 1.0) != 1.0)
    scaling.failInWords(ErrorCode::Unsupported,
                        "partial_rotary_factor other than 1 is not supported");
}

static void readRope(FieldReader &fields, ModelConfig &config) {
  config.rope.headDim = config.headDim;
  config.rope.theta = positive(fields, "rope_theta", 10000.0);
  if (positive(fields, "partial_rotary_factor", 1.0) != 1.0)
    fields.failInWords(ErrorCode::Unsupported,
                       "partial_rotary_factor other than 1 is not supported");
  const Json *scaling = fields.find("rope_scaling"), *parameters = fields.find("rope_parameters");
  if (scaling && parameters && *scaling != *parameters)
    return fields.failInWords(ErrorCode::Corrupt,
                              "rope_scaling and rope_parameters say different things; remove one");
  if (parameters || scaling)
    fields.object(parameters ? "rope_parameters" : "rope_scaling",
                  [&](FieldReader &found) { readRopeScaling(found, config); });
}

/// The window of Mistral: in all layers, 4096 tokens if nothing is said, none if null.
static void readMistralWindow(FieldReader &fields, ModelConfig &config) {
  if (fields.names("sliding_window") && !fields.find("sliding_window"))
    return;
  config.slidingWindow = integer(fields, "sliding_window", kLargestContext, 4096);
}

/// The window of Qwen: in the layers that layer_types names, else in those from max_window_layers
/// on, and only if use_sliding_window says so.
static void readQwenWindow(FieldReader &fields, ModelConfig &config) {
  if (!flag(fields, "use_sliding_window", false) ||
      (fields.names("sliding_window") && !fields.find("sliding_window")))
    return;
  config.slidingWindow = integer(fields, "sliding_window", kLargestContext, 4096);
  const int64_t first = count(fields, "max_window_layers", kMostLayers, 28);
  for (int64_t layer = 0; layer < config.numLayers; ++layer)
    config.windowedLayers.push_back(layer >= first);
  if (const Json *types = fields.find("layer_types")) {
    if (!types->isArray() || types->size() != config.windowedLayers.size())
      return fields.failInWords(ErrorCode::Corrupt,
                                "layer_types: expected a list of {} kinds of layers",
                                config.numLayers);
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
  // One form for each meaning.
  if (std::ranges::find(config.windowedLayers, true) == config.windowedLayers.end())
    config.slidingWindow = 0;
  if (config.slidingWindow == 0 ||
      std::ranges::find(config.windowedLayers, false) == config.windowedLayers.end())
    config.windowedLayers.clear();
}

/// LLaMA and its descendants.
static void readLLaMA(FieldReader &fields, ModelConfig &config) {
  const Architecture architecture = config.architecture;
  const bool isLLaMA = architecture == Architecture::LLaMA;
  const bool isQwen = architecture == Architecture::Qwen2 || architecture == Architecture::Qwen3;
  config.hiddenSize = integer(fields, "hidden_size", kLargestWidth);
  config.intermediateSize = integer(fields, "intermediate_size", kLargestWidth);
  config.numLayers = integer(fields, "num_hidden_layers", kMostLayers);
  config.numHeads = integer(fields, "num_attention_heads", kMostHeads);
  config.numKVHeads = integer(fields, "num_key_value_heads", kMostHeads,
                              isLLaMA  ? config.numHeads
                              : isQwen ? 32
                                       : 8);
  const int64_t headDim = architecture == Architecture::Qwen3
                              ? 128
                              : std::max<int64_t>(1, config.hiddenSize / config.numHeads);
  if (!fields.find("head_dim") && architecture != Architecture::Qwen3 &&
      config.hiddenSize % config.numHeads != 0)
    fields.failInWords(
        ErrorCode::Corrupt,
        "hidden_size {} is not a multiple of num_attention_heads {} and head_dim is missing",
        config.hiddenSize, config.numHeads);
  config.headDim = integer(fields, "head_dim", kLargestWidth, headDim);
  config.maxContext = integer(fields, "max_position_embeddings", kLargestContext,
                              isLLaMA  ? 2048
                              : isQwen ? 32768
                                       : 131072);
  config.normEpsilon = positive(fields, "rms_norm_eps", 1e-6);
  readRope(fields, config);
  if (std::string name = word(fields, "hidden_act", "silu"); name != "silu")
    fields.failInWords(ErrorCode::Unsupported,
                       "hidden_act {} is not supported for {}; expected \"silu\"", quote(name),
                       architectureName(architecture));
  config.activation = Activation::SiLU;
  config.tieWordEmbeddings = flag(fields, "tie_word_embeddings", false);
  // Mistral and Qwen2 have the biases that they have, whatever their configuration says.
  if (isLLaMA || architecture == Architecture::Qwen3)
    config.qkvBias = config.outputBias = flag(fields, "attention_bias", false);
  else
    config.qkvBias = architecture == Architecture::Qwen2;
  if (isLLaMA)
    config.mlpBias = flag(fields, "mlp_bias", false);
  if (architecture == Architecture::Mistral)
    readMistralWindow(fields, config);
  else if (isQwen)
    readQwenWindow(fields, config);
}

static void readGPT2(FieldReader &fields, ModelConfig &config) {
  config.hiddenSize = integer(fields, "n_embd", kLargestWidth);
  config.intermediateSize = integer(fields, "n_inner", kLargestWidth, 4 * config.hiddenSize);
  config.numLayers = integer(fields, "n_layer", kMostLayers);
  config.numHeads = config.numKVHeads = integer(fields, "n_head", kMostHeads);
  if (config.hiddenSize % config.numHeads != 0)
    fields.failInWords(ErrorCode::Corrupt, "n_embd {} is not a multiple of n_head {}",
                       config.hiddenSize, config.numHeads);
  config.headDim = std::max<int64_t>(1, config.hiddenSize / config.numHeads);
  config.maxContext = integer(fields, "n_positions", kLargestContext, 1024);
  config.normEpsilon = positive(fields, "layer_norm_epsilon", 1e-5);
  std::string activation = word(fields, "activation_function", "gelu_new");
  if (activation == "gelu_new" || activation == "gelu_pytorch_tanh")
    config.activation = Activation::GeluTanh;
  else if (activation == "gelu")
    config.activation = Activation::GeluErf;
  else
    fields.failInWords(ErrorCode::Unsupported,
                       "activation_function {} is not supported for gpt2; expected \"gelu_new\", "
                       "\"gelu_pytorch_tanh\" or \"gelu\"",
                       quote(activation));
  for (auto [key, expected] :
       {std::pair("scale_attn_weights", true), std::pair("scale_attn_by_inverse_layer_idx", false),
        std::pair("add_cross_attention", false)})
    if (flag(fields, key, expected) != expected)
      fields.failInWords(ErrorCode::Unsupported, "{}: {} is not supported for gpt2", key,
                         !expected);
  config.tieWordEmbeddings = flag(fields, "tie_word_embeddings", true);
  config.qkvBias = config.outputBias = config.mlpBias = true;
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
  Result<Architecture> architecture = parseArchitecture(modelType, fileName);
  if (!architecture)
    return Unexpected(architecture.error());
  if (const Json *quantization = fields.find("quantization_config")) {
    std::string method = "unknown";
    if (const Json *found = quantization->find("quant_method"); found && found->isString())
      method = found->string();
    return makeError(ErrorCode::Unsupported,
                     "{}: the checkpoint is quantized already (quant_method {}), which is not "
                     "supported; import the float checkpoint that it was made from",
                     fileName, quote(method));
  }

  ModelConfig config;
  config.architecture = *architecture;
  config.vocabSize = integer(fields, "vocab_size", kLargestVocabulary);
  if (config.isLLaMALike())
    readLLaMA(fields, config);
  else
    readGPT2(fields, config);
  if (std::vector<int64_t> bos = tokens(fields, "bos_token_id"); !bos.empty())
    config.bosTokenId = bos.front();
  config.eosTokenIds = tokens(fields, "eos_token_id");
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
