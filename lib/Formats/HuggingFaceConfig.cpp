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

#include "ConfigChecks.h"
#include "Text.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>

using namespace easyquant;
using namespace easyquant::formats;
using nlohmann::json;

namespace {

/// Reads typed fields and remembers the first that is wrong. A field that is null is absent.
class Fields {
public:
  Fields(const json &object, std::string_view fileName) : object(object), fileName(fileName) {}

  std::optional<Error> failure;

  const json *find(const char *key) const {
    auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }

  /// Whether the field is there, be it null.
  bool has(const char *key) const { return object.contains(key); }

  int64_t integer(const char *key, int64_t largest, std::optional<int64_t> otherwise = {}) {
    return integerFrom(1, key, largest, otherwise);
  }
  /// An integer that may be 0.
  int64_t count(const char *key, int64_t largest, int64_t otherwise) {
    return integerFrom(0, key, largest, otherwise);
  }

  double positive(const char *key, double otherwise) {
    const json *value = find(key);
    if (!value)
      return otherwise;
    double number = value->is_number() ? value->get<double>() : 0.0;
    if (!std::isfinite(number) || number <= 0.0) {
      fail(ErrorCode::Corrupt, "{}: expected a positive number, found {}", key, shown(*value));
      return otherwise;
    }
    return number;
  }

  bool flag(const char *key, bool otherwise) {
    const json *value = find(key);
    if (value && !value->is_boolean())
      fail(ErrorCode::Corrupt, "{}: expected true or false, found {}", key, shown(*value));
    return value && value->is_boolean() ? value->get<bool>() : otherwise;
  }

  std::string string(const char *key, const std::string &otherwise) {
    const json *value = find(key);
    if (value && !value->is_string())
      fail(ErrorCode::Corrupt, "{}: expected a string, found {}", key, shown(*value));
    return value && value->is_string() ? value->get<std::string>() : otherwise;
  }

  /// A token id or a list of them.
  std::vector<int64_t> tokens(const char *key) {
    const json *value = find(key);
    if (!value)
      return {};
    std::vector<int64_t> result;
    for (const json &id : value->is_array() ? *value : json::array({*value})) {
      if (!id.is_number_integer() || id < 0 || id > kLargestVocabulary) {
        fail(ErrorCode::Corrupt, "{}: expected a token id, found {}", key, shown(id));
        return {};
      }
      result.push_back(id.get<int64_t>());
    }
    return result;
  }

  template <typename... Args>
  void fail(ErrorCode code, fmt::format_string<Args...> format, Args &&...args) {
    if (!failure)
      failure = {code,
                 fmt::format("{}: {}", fileName, fmt::format(format, std::forward<Args>(args)...))};
  }

  static std::string shown(const json &value) {
    return quote(value.dump(-1, ' ', true, json::error_handler_t::replace));
  }

private:
  int64_t integerFrom(int64_t least, const char *key, int64_t largest,
                      std::optional<int64_t> otherwise) {
    const json *value = find(key);
    if (!value) {
      if (!otherwise)
        fail(ErrorCode::Corrupt, "{}: missing; expected an integer from {} to {}", key, least,
             largest);
      return otherwise.value_or(1);
    }
    if (!value->is_number_integer() || *value < least || *value > largest) {
      fail(ErrorCode::Corrupt, "{}: expected an integer from {} to {}, found {}", key, least,
           largest, shown(*value));
      return 1;
    }
    return value->get<int64_t>();
  }

  const json &object;
  std::string_view fileName;
};

} // namespace

/// The frequencies that rope_scaling of transformers 4, or rope_parameters of 5, asks for.
static void readRopeScaling(Fields &scaling, ModelConfig &config) {
  numerics::RopeParams &rope = config.rope;
  rope.theta = scaling.positive("rope_theta", rope.theta);
  const std::string kind =
      scaling.string("rope_type", scaling.string("type", "default")); // "type" of old files
  auto need = [&](const char *name) {
    if (!scaling.find(name))
      scaling.fail(ErrorCode::Corrupt, "{}: missing; RoPE scaling {} needs it", name, quote(kind));
    return scaling.positive(name, 1.0);
  };
  constexpr std::array<std::string_view, 5> kinds = {"default", "linear", "dynamic", "llama3",
                                                     "yarn"};
  if (std::ranges::find(kinds, kind) == kinds.end())
    return scaling.fail(ErrorCode::Unsupported,
                        "RoPE scaling {} is not supported; expected \"default\", \"linear\", "
                        "\"dynamic\", \"llama3\" or \"yarn\"",
                        quote(kind));
  // "dynamic" (NTK) changes the base beyond max_position_embeddings tokens, where no context goes.
  if (kind != "default" && kind != "dynamic")
    rope.factor = need("factor");
  if (rope.factor < 1.0)
    scaling.fail(ErrorCode::Corrupt, "factor: expected a number from 1 on, found {}", rope.factor);

  if (kind == "linear") {
    rope.scaling = numerics::RopeScaling::Linear;
  } else if (kind == "llama3") {
    rope.scaling = numerics::RopeScaling::Llama3;
    rope.lowFrequencyFactor = need("low_freq_factor");
    rope.highFrequencyFactor = need("high_freq_factor");
    rope.originalPositions = static_cast<int64_t>(need("original_max_position_embeddings"));
    if (rope.lowFrequencyFactor >= rope.highFrequencyFactor)
      scaling.fail(ErrorCode::Corrupt, "low_freq_factor {} must be below high_freq_factor {}",
                   rope.lowFrequencyFactor, rope.highFrequencyFactor);
  } else if (kind == "yarn") {
    rope.scaling = numerics::RopeScaling::Yarn;
    rope.originalPositions =
        scaling.integer("original_max_position_embeddings", kLargestContext, config.maxContext);
    rope.betaFast = scaling.positive("beta_fast", 32.0);
    rope.betaSlow = scaling.positive("beta_slow", 1.0);
    rope.truncate = scaling.flag("truncate", true);
    double factor = numerics::yarnAttentionFactor(rope.factor);
    if (scaling.find("mscale") && scaling.find("mscale_all_dim"))
      factor = numerics::yarnAttentionFactor(rope.factor, scaling.positive("mscale", 1.0)) /
               numerics::yarnAttentionFactor(rope.factor, scaling.positive("mscale_all_dim", 1.0));
    rope.attentionFactor = scaling.positive("attention_factor", factor);
    if (rope.betaSlow >= rope.betaFast)
      scaling.fail(ErrorCode::Corrupt, "beta_slow {} must be below beta_fast {}", rope.betaSlow,
                   rope.betaFast);
    if (rope.theta <= 1.0)
      scaling.fail(ErrorCode::Corrupt, "rope_theta {}: \"yarn\" needs one above 1", rope.theta);
    // Qwen's instructions add the scaling and leave max_position_embeddings as it was.
    const double extended = rope.factor * static_cast<double>(rope.originalPositions);
    if (extended <= static_cast<double>(kLargestContext))
      config.maxContext = std::max(config.maxContext, static_cast<int64_t>(std::llround(extended)));
  }
  if (kind == "dynamic" && scaling.integer("original_max_position_embeddings", kLargestContext,
                                           config.maxContext) != config.maxContext)
    scaling.fail(ErrorCode::Unsupported,
                 "RoPE scaling \"dynamic\" with original_max_position_embeddings other than "
                 "max_position_embeddings is not supported");
  for (const char *name : {"mrope_section", "short_factor", "long_factor"})
    if (scaling.find(name))
      scaling.fail(ErrorCode::Unsupported, "{} is not supported", name);
  if (scaling.positive("partial_rotary_factor", 1.0) != 1.0)
    scaling.fail(ErrorCode::Unsupported, "partial_rotary_factor other than 1 is not supported");
}

static void readRope(Fields &fields, ModelConfig &config) {
  config.rope.headDim = config.headDim;
  config.rope.theta = fields.positive("rope_theta", 10000.0);
  if (fields.positive("partial_rotary_factor", 1.0) != 1.0)
    fields.fail(ErrorCode::Unsupported, "partial_rotary_factor other than 1 is not supported");
  const json *scaling = fields.find("rope_scaling"), *parameters = fields.find("rope_parameters");
  if (scaling && parameters && *scaling != *parameters)
    return fields.fail(ErrorCode::Corrupt,
                       "rope_scaling and rope_parameters say different things; remove one");
  const json *found = parameters ? parameters : scaling;
  if (!found)
    return;
  const std::string key = parameters ? "rope_parameters" : "rope_scaling";
  if (!found->is_object())
    return fields.fail(ErrorCode::Corrupt, "{}: expected an object, found {}", key,
                       Fields::shown(*found));
  Fields nested(*found, key);
  readRopeScaling(nested, config);
  if (nested.failure)
    fields.fail(nested.failure->code, "{}", nested.failure->message);
}

/// The window of Mistral: in all layers, 4096 tokens if nothing is said, none if null.
static void readMistralWindow(Fields &fields, ModelConfig &config) {
  if (fields.has("sliding_window") && !fields.find("sliding_window"))
    return;
  config.slidingWindow = fields.integer("sliding_window", kLargestContext, 4096);
}

/// The window of Qwen: in the layers that layer_types names, else in those from max_window_layers
/// on, and only if use_sliding_window says so.
static void readQwenWindow(Fields &fields, ModelConfig &config) {
  if (!fields.flag("use_sliding_window", false) ||
      (fields.has("sliding_window") && !fields.find("sliding_window")))
    return;
  config.slidingWindow = fields.integer("sliding_window", kLargestContext, 4096);
  const int64_t first = fields.count("max_window_layers", kMostLayers, 28);
  for (int64_t layer = 0; layer < config.numLayers; ++layer)
    config.windowedLayers.push_back(layer >= first);
  if (const json *types = fields.find("layer_types")) {
    if (!types->is_array() || types->size() != config.windowedLayers.size())
      return fields.fail(ErrorCode::Corrupt, "layer_types: expected a list of {} kinds of layers",
                         config.numLayers);
    for (size_t layer = 0; layer < types->size(); ++layer) {
      const json &type = (*types)[layer];
      if (type != "full_attention" && type != "sliding_attention")
        return fields.fail(ErrorCode::Unsupported,
                           "layer_types: expected \"full_attention\" or \"sliding_attention\", "
                           "found {}",
                           Fields::shown(type));
      config.windowedLayers[layer] = type == "sliding_attention";
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
static void readLLaMA(Fields &fields, ModelConfig &config) {
  const Architecture architecture = config.architecture;
  const bool isLLaMA = architecture == Architecture::LLaMA;
  const bool isQwen = architecture == Architecture::Qwen2 || architecture == Architecture::Qwen3;
  config.hiddenSize = fields.integer("hidden_size", kLargestWidth);
  config.intermediateSize = fields.integer("intermediate_size", kLargestWidth);
  config.numLayers = fields.integer("num_hidden_layers", kMostLayers);
  config.numHeads = fields.integer("num_attention_heads", kMostHeads);
  config.numKVHeads = fields.integer("num_key_value_heads", kMostHeads,
                                     isLLaMA  ? config.numHeads
                                     : isQwen ? 32
                                              : 8);
  const int64_t headDim = architecture == Architecture::Qwen3
                              ? 128
                              : std::max<int64_t>(1, config.hiddenSize / config.numHeads);
  if (!fields.find("head_dim") && architecture != Architecture::Qwen3 &&
      config.hiddenSize % config.numHeads != 0)
    fields.fail(
        ErrorCode::Corrupt,
        "hidden_size {} is not a multiple of num_attention_heads {} and head_dim is missing",
        config.hiddenSize, config.numHeads);
  config.headDim = fields.integer("head_dim", kLargestWidth, headDim);
  config.maxContext = fields.integer("max_position_embeddings", kLargestContext,
                                     isLLaMA  ? 2048
                                     : isQwen ? 32768
                                              : 131072);
  config.normEpsilon = fields.positive("rms_norm_eps", 1e-6);
  readRope(fields, config);
  if (std::string name = fields.string("hidden_act", "silu"); name != "silu")
    fields.fail(ErrorCode::Unsupported, "hidden_act {} is not supported for {}; expected \"silu\"",
                quote(name), architectureName(architecture));
  config.activation = Activation::SiLU;
  config.tieWordEmbeddings = fields.flag("tie_word_embeddings", false);
  // Mistral and Qwen2 have the biases that they have, whatever their configuration says.
  if (isLLaMA || architecture == Architecture::Qwen3)
    config.qkvBias = config.outputBias = fields.flag("attention_bias", false);
  else
    config.qkvBias = architecture == Architecture::Qwen2;
  if (isLLaMA)
    config.mlpBias = fields.flag("mlp_bias", false);
  if (architecture == Architecture::Mistral)
    readMistralWindow(fields, config);
  else if (isQwen)
    readQwenWindow(fields, config);
}

static void readGPT2(Fields &fields, ModelConfig &config) {
  config.hiddenSize = fields.integer("n_embd", kLargestWidth);
  config.intermediateSize = fields.integer("n_inner", kLargestWidth, 4 * config.hiddenSize);
  config.numLayers = fields.integer("n_layer", kMostLayers);
  config.numHeads = config.numKVHeads = fields.integer("n_head", kMostHeads);
  if (config.hiddenSize % config.numHeads != 0)
    fields.fail(ErrorCode::Corrupt, "n_embd {} is not a multiple of n_head {}", config.hiddenSize,
                config.numHeads);
  config.headDim = std::max<int64_t>(1, config.hiddenSize / config.numHeads);
  config.maxContext = fields.integer("n_positions", kLargestContext, 1024);
  config.normEpsilon = fields.positive("layer_norm_epsilon", 1e-5);
  std::string activation = fields.string("activation_function", "gelu_new");
  if (activation == "gelu_new" || activation == "gelu_pytorch_tanh")
    config.activation = Activation::GeluTanh;
  else if (activation == "gelu")
    config.activation = Activation::GeluErf;
  else
    fields.fail(ErrorCode::Unsupported,
                "activation_function {} is not supported for gpt2; expected \"gelu_new\", "
                "\"gelu_pytorch_tanh\" or \"gelu\"",
                quote(activation));
  for (auto [key, expected] :
       {std::pair("scale_attn_weights", true), std::pair("scale_attn_by_inverse_layer_idx", false),
        std::pair("add_cross_attention", false)})
    if (fields.flag(key, expected) != expected)
      fields.fail(ErrorCode::Unsupported, "{}: {} is not supported for gpt2", key, !expected);
  config.tieWordEmbeddings = fields.flag("tie_word_embeddings", true);
  config.qkvBias = config.outputBias = config.mlpBias = true;
}

Result<ModelConfig> formats::parseHuggingFaceConfig(std::string_view text,
                                                    std::string_view fileName) {
  Result<json> object = parseJsonObject(text, fileName);
  if (!object)
    return Unexpected(object.error());
  Fields fields(*object, fileName);

  const json *modelType = fields.find("model_type");
  if (!modelType || !modelType->is_string())
    return makeError(ErrorCode::Corrupt,
                     "{}: model_type: missing; expected the architecture's name", fileName);
  Result<Architecture> architecture = parseArchitecture(modelType->get<std::string>(), fileName);
  if (!architecture)
    return Unexpected(architecture.error());
  if (const json *quantization = fields.find("quantization_config")) {
    std::string method = "unknown";
    if (quantization->is_object())
      if (auto found = quantization->find("quant_method");
          found != quantization->end() && found->is_string())
        method = found->get<std::string>();
    return makeError(ErrorCode::Unsupported,
                     "{}: the checkpoint is quantized already (quant_method {}), which is not "
                     "supported; import the float checkpoint that it was made from",
                     fileName, quote(method));
  }

  ModelConfig config;
  config.architecture = *architecture;
  config.vocabSize = fields.integer("vocab_size", kLargestVocabulary);
  if (config.isLLaMALike())
    readLLaMA(fields, config);
  else
    readGPT2(fields, config);
  if (std::vector<int64_t> bos = fields.tokens("bos_token_id"); !bos.empty())
    config.bosTokenId = bos.front();
  config.eosTokenIds = fields.tokens("eos_token_id");
  if (fields.failure)
    return Unexpected(*fields.failure);
  if (Result<void> checked = checkConsistency(config, fileName); !checked)
    return Unexpected(checked.error());
  return config;
}

Result<std::vector<int64_t>> formats::parseEosTokenIds(std::string_view text,
                                                       std::string_view fileName) {
  Result<json> object = parseJsonObject(text, fileName);
  if (!object)
    return Unexpected(object.error());
  Fields fields(*object, fileName);
  std::vector<int64_t> ids = fields.tokens("eos_token_id");
  if (fields.failure)
    return Unexpected(*fields.failure);
  return ids;
}
