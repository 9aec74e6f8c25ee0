//===- ModelConfigTest.cpp - Hyperparameters of a model -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/ModelConfig.h"

#include "TestFiles.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tuple>

using namespace easyquant;
using namespace easyquant::formats;
using namespace easyquant::formats::test;
using nlohmann::json;

static json llama() {
  return json::parse(R"({"model_type": "llama", "vocab_size": 100, "hidden_size": 64,
    "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4})");
}

static json gpt2() {
  return json::parse(R"({"model_type": "gpt2", "vocab_size": 100, "n_embd": 64, "n_layer": 3,
    "n_head": 4, "bos_token_id": 99, "eos_token_id": 99})");
}

static Result<ModelConfig> parseConfig(const json &config) {
  return parseHuggingFaceConfig(config.dump(), "config.json");
}

static json with(json config, const char *key, json value) {
  config[key] = std::move(value);
  return config;
}

TEST(ModelConfig, FillsInTheDefaultsOfLlama) {
  Result<ModelConfig> config = parseConfig(llama());
  ASSERT_VALUE(config);
  EXPECT_EQ(config->architecture, findArchitecture("llama"));
  EXPECT_EQ(config->numKVHeads, 4);
  EXPECT_EQ(config->headDim, 16);
  EXPECT_EQ(config->maxContext, 2048);
  EXPECT_EQ(config->normEpsilon, 1e-6);
  EXPECT_EQ(config->rope.theta, 10000.0);
  EXPECT_EQ(config->activation, Activation::SiLU);
  EXPECT_FALSE(config->tieWordEmbeddings);
  EXPECT_FALSE(config->qkvBias || config->outputBias);
  EXPECT_FALSE(config->mlpBias);
  EXPECT_EQ(config->bosTokenId, std::nullopt);
  EXPECT_TRUE(config->eosTokenIds.empty());
}

TEST(ModelConfig, ReadsEveryFieldOfLlama) {
  json object = llama();
  object.update(json::parse(R"({"num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 4096, "rope_theta": 5e5, "tie_word_embeddings": true,
    "attention_bias": true, "mlp_bias": true, "bos_token_id": 1, "eos_token_id": [2, 3],
    "rope_scaling": {"rope_type": "default"}, "pad_token_id": null})"));
  Result<ModelConfig> config = parseConfig(object);
  ASSERT_VALUE(config);
  EXPECT_EQ(config->numKVHeads, 2);
  EXPECT_EQ(config->headDim, 32);
  EXPECT_EQ(config->normEpsilon, 1e-5);
  EXPECT_EQ(config->maxContext, 4096);
  EXPECT_EQ(config->rope.theta, 5e5);
  EXPECT_TRUE(config->tieWordEmbeddings);
  EXPECT_TRUE(config->qkvBias && config->outputBias);
  EXPECT_TRUE(config->mlpBias);
  EXPECT_EQ(config->bosTokenId, 1);
  EXPECT_EQ(config->eosTokenIds, (std::vector<int64_t>{2, 3}));

  // transformers 5 moved the base of the angles.
  Result<ModelConfig> moved = parseConfig(with(
      llama(), "rope_parameters", json::parse(R"({"rope_type": "default", "rope_theta": 7})")));
  ASSERT_VALUE(moved);
  EXPECT_EQ(moved->rope.theta, 7.0);
}

TEST(ModelConfig, ReadsGPT2) {
  Result<ModelConfig> config = parseConfig(gpt2());
  ASSERT_VALUE(config);
  EXPECT_EQ(config->architecture, findArchitecture("gpt2"));
  EXPECT_EQ(config->intermediateSize, 256);
  EXPECT_EQ(config->numKVHeads, 4);
  EXPECT_EQ(config->maxContext, 1024);
  EXPECT_EQ(config->normEpsilon, 1e-5);
  EXPECT_EQ(config->activation, Activation::GeluTanh);
  EXPECT_TRUE(config->tieWordEmbeddings);
  EXPECT_EQ(config->eosTokenIds, std::vector<int64_t>{99});
  EXPECT_EQ(parseConfig(with(gpt2(), "n_inner", 80))->intermediateSize, 80);
  EXPECT_EQ(parseConfig(with(gpt2(), "activation_function", "gelu"))->activation,
            Activation::GeluErf);
}

TEST(ModelConfig, RefusesFieldsThatAreWrong) {
  struct Case {
    const char *key;
    json value;
    std::string_view part;
  };
  for (const Case &wrong :
       std::initializer_list<Case>{{"vocab_size", 0, "in 1.."},
                                   {"vocab_size", -1, "found -1,"},
                                   {"vocab_size", 1.5, "found 1.5,"},
                                   {"vocab_size", "100", "vocab_size"},
                                   {"vocab_size", 18446744073709551615ull, "18446744073709551615"},
                                   {"vocab_size", nullptr, "found nothing"},
                                   {"hidden_size", 65, "65 is not a multiple"},
                                   {"hidden_size", 1ll << 40, "1099511627776"},
                                   {"num_hidden_layers", 1'000'000'000, "1000000000"},
                                   {"num_key_value_heads", 3, "4 attention heads cannot share 3"},
                                   {"head_dim", 15, "must be even"},
                                   {"rms_norm_eps", -1e-5, "positive"},
                                   {"rms_norm_eps", "1e-5", "positive"},
                                   {"rope_theta", 0, "positive"},
                                   {"tie_word_embeddings", 1, "true or false"},
                                   {"bos_token_id", 100, "outside the vocabulary of 100"},
                                   {"eos_token_id", json::array({1, 100}), "100"},
                                   {"eos_token_id", json::array({"</s>"}), "eos_token_id"},
                                   {"eos_token_id", json::object(), "eos_token_id"}}) {
    SCOPED_TRACE(wrong.key);
    EXPECT_ERROR(parseConfig(with(llama(), wrong.key, wrong.value)), ErrorCode::Corrupt,
                 "config.json", wrong.part);
  }
  for (const char *key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "model_type"}) {
    json object = llama();
    object.erase(key);
    EXPECT_ERROR(parseConfig(object), ErrorCode::Corrupt, key, "found nothing");
  }
}

TEST(ModelConfig, RefusesWhatIsNotSupported) {
  EXPECT_ERROR(parseConfig(with(llama(), "model_type", "mamba")), ErrorCode::Unsupported,
               "\"mamba\"",
               "supported: llama, gpt2, mistral, qwen2, qwen3, olmo2, smollm3, "
               "gemma2, gemma3_text, gemma4_text, granite");
  EXPECT_ERROR(parseConfig(with(llama(), "hidden_act", "relu")), ErrorCode::Unsupported, "\"relu\"",
               "\"silu\"");
  EXPECT_ERROR(parseConfig(with(llama(), "partial_rotary_factor", 0.5)), ErrorCode::Unsupported,
               "partial_rotary_factor");
  EXPECT_ERROR(parseConfig(with(gpt2(), "activation_function", "relu")), ErrorCode::Unsupported,
               "relu");
  EXPECT_ERROR(parseConfig(with(gpt2(), "scale_attn_weights", false)), ErrorCode::Unsupported,
               "scale_attn_weights");
  EXPECT_ERROR(parseConfig(with(gpt2(), "scale_attn_by_inverse_layer_idx", true)),
               ErrorCode::Unsupported, "scale_attn_by_inverse_layer_idx");
}

TEST(ModelConfig, RefusesFactorsThatF32DoesNotHold) {
  const json granite = with(llama(), "model_type", "granite");
  for (auto [key, value, what] : {std::tuple("embedding_multiplier", 1e300, "factor of embeddings"),
                                  std::tuple("residual_multiplier", 1e-300, "residual stream"),
                                  std::tuple("logits_scaling", 1e-300, "factor of logits"),
                                  std::tuple("attention_multiplier", 1e39, "scale of attention")})
    EXPECT_ERROR(parseConfig(with(granite, key, value)), ErrorCode::Corrupt, what, "f32");
}

TEST(ModelConfig, RefusesHostileJson) {
  for (std::string text :
       {std::string(), std::string("{"), std::string("[]"), std::string("1"),
        std::string(3'000'000, '['), std::string("{\"model_type\": \"llama\xff\"}"),
        std::string("{\"model_type\": \"llama\", \"rope_theta\": 1e999}")})
    EXPECT_ERROR(parseHuggingFaceConfig(text, "config.json"), ErrorCode::Corrupt, "config.json");
  std::string escape = "\x1b[2J";
  Result<ModelConfig> config = parseConfig(with(llama(), "model_type", escape));
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().message.find('\x1b'), std::string::npos)
      << "control characters reach the terminal";
}

//===----------------------------------------------------------------------===//
// GGUF
//===----------------------------------------------------------------------===//

static GGUFBuilder ggufOf(const std::string &name) {
  GGUFBuilder builder;
  builder.text("general.architecture", name)
      .u32(name + ".context_length", 128)
      .u32(name + ".embedding_length", 64)
      .u32(name + ".feed_forward_length", 96)
      .u32(name + ".block_count", 3)
      .u32(name + ".attention.head_count", 4)
      .f32(name + ".attention.layer_norm_rms_epsilon", 1e-5f)
      .tensor("token_embd.weight", {64, 100}, GGMLType::F16, std::string(12800, '\0'));
  return builder;
}
static GGUFBuilder ggufLlama() { return ggufOf("llama"); }

static Result<ModelConfig> parseConfig(const GGUFBuilder &builder) {
  std::string file = builder.build();
  Result<GGUFHeader> header = parseGGUFHeader(bytesOf(file), "m.gguf");
  if (!header)
    return Unexpected(header.error());
  return parseGGUFConfig(*header, "m.gguf");
}

TEST(ModelConfig, ReadsWindowsOfOlmo3) {
  EXPECT_EQ(parseConfig(ggufOf("olmo2"))->architecture, findArchitecture("olmo2"));
  const std::string window = "olmo2.attention.sliding_window";
  auto flags = [](std::string_view bytes) {
    return raw(GGUFType::Bool) + raw<uint64_t>(bytes.size()) + std::string(bytes);
  };
  auto builder = ggufOf("olmo2").u32(window, 8);
  EXPECT_EQ(parseConfig(builder)->windowOf(2), 8) << "three of four layers";
  Result<ModelConfig> config =
      parseConfig(builder.pair(window + "_pattern", GGUFType::Array, flags({"\1\0\1", 3})));
  ASSERT_VALUE(config);
  EXPECT_EQ(config->architecture, findArchitecture("olmo3"));
  EXPECT_EQ(config->windowedLayers, (std::vector<bool>{true, false, true}));
  EXPECT_ERROR(parseConfig(ggufOf("olmo2").u32(window, 8).pair(window + "_pattern", GGUFType::Array,
                                                               flags({"\1\0", 2}))),
               ErrorCode::Corrupt, "sliding_window_pattern", "a flag for each of 3 layers");
}

TEST(ModelConfig, ReadsPartsOfHeadsOfPhi3) {
  Result<ModelConfig> config = parseConfig(
      ggufOf("phi3").u32("phi3.rope.dimension_count", 12).u32("phi3.attention.sliding_window", 0));
  ASSERT_VALUE(config);
  EXPECT_EQ(config->rope.dims, 12);
  EXPECT_EQ(config->windowOf(0), 0) << "llama.cpp's converter says so of Phi-4";
  EXPECT_ERROR(parseConfig(ggufOf("phi3").u32("phi3.rope.dimension_count", 18)), ErrorCode::Corrupt,
               "rope.dimension_count", "at most the 16 dimensions");
  EXPECT_ERROR(parseConfig(ggufOf("phi3").u32("phi3.rope.dimension_count", 7)), ErrorCode::Corrupt,
               "7 rotated dimensions", "even");
  EXPECT_ERROR(parseConfig(ggufOf("phi3").f32("phi3.rope.scaling.attn_factor", 1.5f)),
               ErrorCode::Unsupported, "attn_factor", "\"none\"");
}

TEST(ModelConfig, ReadsGGUF) {
  Result<ModelConfig> config = parseConfig(ggufLlama());
  ASSERT_VALUE(config);
  EXPECT_EQ(config->architecture, findArchitecture("llama"));
  EXPECT_EQ(config->vocabSize, 100) << "from the embedding";
  EXPECT_EQ(config->numKVHeads, 4);
  EXPECT_EQ(config->headDim, 16);
  EXPECT_EQ(config->normEpsilon, 1e-5);
  EXPECT_EQ(config->rope.theta, 10000.0);
  EXPECT_TRUE(config->tieWordEmbeddings);

  GGUFBuilder wide = ggufLlama();
  wide.u32("llama.attention.key_length", 32)
      .u32("llama.attention.value_length", 32)
      .u32("llama.rope.dimension_count", 32)
      .text("llama.rope.scaling.type", "none")
      .u32("llama.expert_count", 0);
  config = parseConfig(wide);
  ASSERT_VALUE(config);
  EXPECT_EQ(config->headDim, 32);

  GGUFBuilder experts = ggufLlama();
  experts.u32("llama.expert_count", 8).u32("llama.expert_used_count", 2);
  config = parseConfig(experts);
  ASSERT_VALUE(config);
  EXPECT_STREQ(config->architecture->name, "mixtral");
  EXPECT_EQ(config->experts, 8);
  EXPECT_EQ(config->expertsPerRow, 2);
  EXPECT_EQ(config->expertSize, config->intermediateSize);

  GGUFBuilder untied = ggufLlama();
  untied.u32("llama.attention.head_count_kv", 2)
      .u32("tokenizer.ggml.eos_token_id", 2)
      .u32("tokenizer.ggml.eot_token_id", 3)
      .f32("llama.rope.freq_base", 5e5f)
      .tensor("output.weight", {64, 100}, GGMLType::F16, std::string(12800, '\0'));
  config = parseConfig(untied);
  ASSERT_VALUE(config);
  EXPECT_EQ(config->numKVHeads, 2);
  EXPECT_EQ(config->rope.theta, 5e5);
  EXPECT_FALSE(config->tieWordEmbeddings);
  EXPECT_EQ(config->eosTokenIds, (std::vector<int64_t>{2, 3}));
}

TEST(ModelConfig, ReadsNumbersThatAreArraysOverLayers) {
  GGUFBuilder same = ggufLlama();
  same.pair("llama.attention.head_count_kv", GGUFType::Array,
            raw(GGUFType::U32) + raw<uint64_t>(3) + rawAll<uint32_t>({2, 2, 2}));
  Result<ModelConfig> config = parseConfig(same);
  ASSERT_VALUE(config);
  EXPECT_EQ(config->numKVHeads, 2);
  GGUFBuilder different = ggufLlama();
  different.pair("llama.attention.head_count_kv", GGUFType::Array,
                 raw(GGUFType::U32) + raw<uint64_t>(3) + rawAll<uint32_t>({2, 4, 2}));
  EXPECT_ERROR(parseConfig(different), ErrorCode::Unsupported, "head_count_kv", "differ by layer");
}

TEST(ModelConfig, RefusesGGUFThatIsWrong) {
  EXPECT_ERROR(parseConfig(GGUFBuilder()), ErrorCode::Corrupt, "general.architecture");
  EXPECT_ERROR(parseConfig(GGUFBuilder().text("general.architecture", "bert")),
               ErrorCode::Unsupported, "\"bert\"", "llama, gpt2");
  EXPECT_ERROR(parseConfig(GGUFBuilder().text("general.architecture", "llama")),
               ErrorCode::NotFound, "token_embd.weight", "vocabulary only");
  EXPECT_ERROR(parseConfig(ggufLlama().u32("llama.attention.head_count_kv", 3)), ErrorCode::Corrupt,
               "cannot share 3");
  EXPECT_ERROR(parseConfig(ggufLlama().u32("llama.attention.head_count_kv", 0)), ErrorCode::Corrupt,
               "head_count_kv", "found 0");
  EXPECT_ERROR(parseConfig(ggufLlama().text("llama.vocab_size", "many")), ErrorCode::Corrupt,
               "llama.vocab_size", "string");
  EXPECT_ERROR(parseConfig(ggufLlama().f32("llama.rope.freq_base", -1.0f)), ErrorCode::Corrupt,
               "freq_base");
  EXPECT_ERROR(parseConfig(ggufLlama().f32("llama.rope.freq_base", std::stof("nan"))),
               ErrorCode::Corrupt, "freq_base");
  EXPECT_ERROR(parseConfig(ggufLlama().u32("llama.rope.dimension_count", 8)),
               ErrorCode::Unsupported, "rotating 8 of 16");
  EXPECT_ERROR(parseConfig(ggufLlama().u32("llama.attention.value_length", 8)),
               ErrorCode::Unsupported, "16", "8");
  EXPECT_ERROR(parseConfig(ggufLlama().u32("llama.expert_count", 8)), ErrorCode::Corrupt,
               "llama.expert_used_count", "missing");
  auto experts = [] { return ggufLlama().u32("llama.expert_count", 8); };
  EXPECT_ERROR(parseConfig(experts().u32("llama.expert_used_count", 9)), ErrorCode::Corrupt,
               "chooses 9 experts", "there are 8");
  EXPECT_ERROR(
      parseConfig(experts().u32("llama.expert_used_count", 2).u32("llama.expert_gating_func", 2)),
      ErrorCode::Unsupported, "a router with 2 is not supported for mixtral");
  EXPECT_ERROR(parseConfig(ggufLlama().text("llama.rope.scaling.type", "mrope")),
               ErrorCode::Unsupported, "\"mrope\"", "expected none, linear, yarn or longrope");
  EXPECT_ERROR(parseConfig(ggufLlama().text("llama.rope.scaling.type", "linear")),
               ErrorCode::Corrupt, "llama.rope.scaling.factor", "missing");
  EXPECT_ERROR(parseConfig(ggufLlama().text("llama.attention.sliding_window", "wide")),
               ErrorCode::Corrupt, "sliding_window", "found string");
  EXPECT_ERROR(
      parseConfig(ggufLlama()
                      .text("llama.rope.scaling.type", "linear")
                      .f32("llama.rope.scaling.factor", 2.0f)
                      .tensor("rope_freqs.weight", {8}, GGMLType::F32, std::string(32, 0))),
      ErrorCode::Unsupported, "\"linear\" together with tensor \"rope_freqs.weight\"");
  EXPECT_ERROR(parseConfig(ggufLlama().pair("split.count", GGUFType::U16, raw<uint16_t>(2))),
               ErrorCode::Unsupported, "split");
  EXPECT_ERROR(parseConfig(ggufLlama().u32("tokenizer.ggml.bos_token_id", 100)), ErrorCode::Corrupt,
               "100", "vocabulary");
}
