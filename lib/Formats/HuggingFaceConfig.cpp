//===- HuggingFaceConfig.cpp - Reading config.json ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Fields and defaults are those of LlamaConfig and GPT2Config of the transformers library, which
// leaves out of config.json what equals a default.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/ModelConfig.h"

#include "ConfigChecks.h"
#include "Text.h"

#include <nlohmann/json.hpp>

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

  int64_t integer(const char *key, int64_t largest, std::optional<int64_t> otherwise = {}) {
    const json *value = find(key);
    if (!value) {
      if (!otherwise)
        fail(ErrorCode::Corrupt, "{}: missing; expected an integer from 1 to {}", key, largest);
      return otherwise.value_or(1);
    }
    if (!value->is_number_integer() || *value < 1 || *value > largest) {
      fail(ErrorCode::Corrupt, "{}: expected an integer from 1 to {}, found {}", key, largest,
           shown(*value));
      return 1;
    }
    return value->get<int64_t>();
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
  const json &object;
  std::string_view fileName;
};

} // namespace

/// Refuses position encodings that this build does not compute; `parameters` is rope_scaling of
/// transformers 4 or rope_parameters of 5.
static void refuseRopeScaling(Fields &fields, const char *key) {
  const json *scaling = fields.find(key);
  if (!scaling)
    return;
  std::string kind = "of an unknown kind";
  if (scaling->is_object())
    for (const char *name : {"rope_type", "type"})
      if (auto found = scaling->find(name); found != scaling->end() && found->is_string())
        kind = found->get<std::string>();
  if (kind != "default")
    fields.fail(ErrorCode::Unsupported,
                "{}: RoPE scaling {} is not supported; expected none or \"default\"", key,
                quote(kind));
}

static void readLLaMA(Fields &fields, ModelConfig &config) {
  config.hiddenSize = fields.integer("hidden_size", kLargestWidth);
  config.intermediateSize = fields.integer("intermediate_size", kLargestWidth);
  config.numLayers = fields.integer("num_hidden_layers", kMostLayers);
  config.numHeads = fields.integer("num_attention_heads", kMostHeads);
  config.numKVHeads = fields.integer("num_key_value_heads", kMostHeads, config.numHeads);
  if (!fields.find("head_dim") && config.hiddenSize % config.numHeads != 0)
    fields.fail(
        ErrorCode::Corrupt,
        "hidden_size {} is not a multiple of num_attention_heads {} and head_dim is missing",
        config.hiddenSize, config.numHeads);
  config.headDim = fields.integer("head_dim", kLargestWidth,
                                  std::max<int64_t>(1, config.hiddenSize / config.numHeads));
  config.maxContext = fields.integer("max_position_embeddings", kLargestContext, 2048);
  config.normEpsilon = fields.positive("rms_norm_eps", 1e-6);
  config.ropeTheta = fields.positive("rope_theta", 10000.0);
  refuseRopeScaling(fields, "rope_scaling");
  refuseRopeScaling(fields, "rope_parameters");
  if (const json *parameters = fields.find("rope_parameters"); parameters && !fields.failure)
    if (auto theta = parameters->find("rope_theta"); theta != parameters->end()) {
      Fields nested(*parameters, "rope_parameters");
      config.ropeTheta = nested.positive("rope_theta", config.ropeTheta);
      if (nested.failure)
        fields.fail(nested.failure->code, "{}", nested.failure->message);
    }
  if (fields.positive("partial_rotary_factor", 1.0) != 1.0)
    fields.fail(ErrorCode::Unsupported, "partial_rotary_factor other than 1 is not supported");
  if (std::string name = fields.string("hidden_act", "silu"); name != "silu")
    fields.fail(ErrorCode::Unsupported,
                "hidden_act {} is not supported for llama; expected \"silu\"", quote(name));
  config.activation = Activation::SiLU;
  config.tieWordEmbeddings = fields.flag("tie_word_embeddings", false);
  config.attentionBias = fields.flag("attention_bias", false);
  config.mlpBias = fields.flag("mlp_bias", false);
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
  config.attentionBias = config.mlpBias = true;
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
  if (*architecture == Architecture::LLaMA)
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
