//===- ModelVariantsTest.cpp - LLaMA's descendants and scaled positions ---===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/ModelConfig.h"

#include "TestFiles.h"

#include <cmath>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace easyquant;
using namespace easyquant::formats;
using namespace easyquant::formats::test;
using nlohmann::json;
using numerics::RopeScaling;

/// The configuration of four layers with `fields` on top.
static Result<ModelConfig> parseVariant(const char *architecture, const char *fields = "{}") {
  json object = json::parse(R"({"vocab_size": 100, "hidden_size": 256, "intermediate_size": 96,
    "num_hidden_layers": 4, "num_attention_heads": 32, "max_position_embeddings": 64})");
  object["model_type"] = architecture;
  object.update(json::parse(fields));
  return parseHuggingFaceConfig(object.dump(), "config.json");
}

TEST(ModelVariants, Mistral) {
  Result<ModelConfig> config = parseVariant("mistral");
  ASSERT_VALUE(config);
  EXPECT_EQ(config->architecture, findArchitecture("mistral"));
  EXPECT_EQ(config->numKVHeads, 8);
  EXPECT_EQ(config->headDim, 8);
  EXPECT_EQ(config->windowOf(3), 4096) << "the default of MistralConfig";
  EXPECT_EQ(parseVariant("mistral", R"({"sliding_window": null})")->windowOf(0), 0);
  EXPECT_EQ(parseVariant("mistral", R"({"sliding_window": 7})")->windowOf(0), 7);
  EXPECT_EQ(parseVariant("mistral", R"({"head_dim": 128})")->headDim, 128);
  EXPECT_FALSE(parseVariant("mistral", R"({"attention_bias": true})")->qkvBias);
  for (const char *window : {R"({"sliding_window": 0})", R"({"sliding_window": -1})",
                             R"({"sliding_window": 1.5})", R"({"sliding_window": "many"})"})
    EXPECT_ERROR(parseVariant("mistral", window), ErrorCode::Corrupt, "config.json: sliding_window",
                 "an integer in 1..");
}

TEST(ModelVariants, Gemma4HasTwoKindsOfLayers) {
  const std::string plain = R"("hidden_size_per_layer_input": 0, "num_attention_heads": 8,
    "num_global_key_value_heads": 2)";
  Result<ModelConfig> config = parseVariant("gemma4_text", ("{" + plain + "}").c_str());
  ASSERT_VALUE(config);
  EXPECT_EQ(config->attentionScale, 1.0);
  EXPECT_EQ(config->windowOf(2), 512);
  EXPECT_EQ(config->windowOf(3), 0) << "the last layer sees all tokens";
  EXPECT_EQ(config->headDimOf(2), 256);
  EXPECT_EQ(config->headDimOf(3), 512);
  EXPECT_EQ(config->kvHeadsOf(3), 4) << "of attention_k_eq_v alone";
  EXPECT_EQ(config->rope.scaling, RopeScaling::Proportional);
  EXPECT_EQ(config->rope.dims, 512);
  EXPECT_EQ(config->rope.turnedPairs, 64);
  EXPECT_EQ(config->rope.theta, 1e6);
  EXPECT_EQ(config->windowedRope->dims, 256);
  EXPECT_EQ(config->windowedRope->theta, 1e4);
  EXPECT_EQ(config->logitBound, 0.0);
  config = parseVariant("gemma4_text", ("{" + plain + R"(, "attention_k_eq_v": true})").c_str());
  ASSERT_VALUE(config);
  EXPECT_EQ(config->kvHeadsOf(2), 4);
  EXPECT_EQ(config->kvHeadsOf(3), 2);
  EXPECT_TRUE(!config->sharesProjectionIn(2) && config->sharesProjectionIn(3));
}

TEST(ModelVariants, Gemma4SharesKeysAndValues) {
  Result<ModelConfig> config = parseVariant("gemma4_text", R"({"num_hidden_layers": 6,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention",
                    "sliding_attention", "sliding_attention", "full_attention"],
    "num_kv_shared_layers": 2, "use_double_wide_mlp": true, "hidden_size_per_layer_input": null})");
  ASSERT_VALUE(config);
  EXPECT_EQ(config->layerInputSize, 0);
  EXPECT_TRUE(!config->sharesKV(3) && config->sharesKV(4) && config->sharesKV(5));
  EXPECT_TRUE(config->sourceOf(4) == 3 && config->sourceOf(5) == 1 && config->sourceOf(2) == 2);
  EXPECT_TRUE(config->isSource(3) && config->isSource(1) && !config->isSource(2));
  EXPECT_TRUE(config->cachedLayer(4) == 3 && config->cachedLayer(5) == 1);
  EXPECT_EQ(config->intermediateOf(4), 2 * config->intermediateOf(3));
}

TEST(ModelVariants, Gemma4HasExpertsBesideMlps) {
  const std::string sizes = R"("hidden_size_per_layer_input": 0, "num_experts": 6,
    "top_k_experts": 2, "moe_intermediate_size": 32)";
  auto parse = [&](const std::string &more) {
    return parseVariant("gemma4_text", ("{" + sizes + more + "}").c_str());
  };
  for (const char *without : {"", R"(, "enable_moe_block": false)"}) {
    Result<ModelConfig> config = parse(without);
    ASSERT_VALUE(config);
    EXPECT_TRUE(config->experts == 0 && config->hasMlp(0) && !config->hasExperts(0));
  }
  Result<ModelConfig> config = parse(R"(, "enable_moe_block": true)");
  ASSERT_VALUE(config);
  EXPECT_TRUE(config->hasMlp(0) && config->hasExperts(0) && config->renormalizesExperts);
  EXPECT_TRUE(config->experts == 6 && config->expertsPerRow == 2 && config->expertSize == 32);
  EXPECT_ERROR(parseVariant("gemma4_text", R"({"enable_moe_block": true, "num_experts": 4,
                 "hidden_size_per_layer_input": 0})"),
               ErrorCode::Corrupt, "config.json: top_k_experts");
  EXPECT_ERROR(parseVariant("gemma4_text", R"({"hidden_size_per_layer_input": 0, "num_experts": 6,
                 "top_k_experts": 7, "moe_intermediate_size": 32, "enable_moe_block": true})"),
               ErrorCode::Corrupt, "each token chooses 7 experts");
}

TEST(ModelVariants, QwenBiasesAndHeads) {
  Result<ModelConfig> qwen2 = parseVariant("qwen2", R"({"num_key_value_heads": 2})");
  ASSERT_VALUE(qwen2);
  EXPECT_TRUE(qwen2->qkvBias && !qwen2->outputBias && !qwen2->mlpBias);
  EXPECT_EQ(qwen2->headDim, 8);
  Result<ModelConfig> qwen3 = parseVariant("qwen3");
  ASSERT_VALUE(qwen3);
  EXPECT_TRUE(!qwen3->qkvBias && !qwen3->outputBias);
  EXPECT_EQ(qwen3->headDim, 128) << "the default of Qwen3Config";
  EXPECT_EQ(qwen3->numKVHeads, 32);
  EXPECT_EQ(parseVariant("qwen3", R"({"head_dim": 16})")->headDim, 16);
  qwen3 = parseVariant("qwen3", R"({"attention_bias": true})");
  EXPECT_TRUE(qwen3->qkvBias && qwen3->outputBias);
}

TEST(ModelVariants, SmolLM3Rotations) {
  auto rotations = [](const char *fields) {
    Result<ModelConfig> config = parseVariant("smollm3", fields);
    EXPECT_TRUE(config) << config.error().message;
    std::vector<bool> result;
    for (int64_t layer = 0; config && layer < 4; ++layer)
      result.push_back(config->rotates(layer));
    return result;
  };
  using Layers = std::vector<bool>;
  EXPECT_EQ(rotations("{}"), (Layers{true, true, true, false})) << "every fourth by default";
  EXPECT_EQ(rotations(R"({"no_rope_layer_interval": 2})"), (Layers{true, false, true, false}));
  EXPECT_EQ(rotations(R"({"no_rope_layers": [0, 1, 1, 0, 1]})"),
            (Layers{false, true, true, false}));
  EXPECT_EQ(rotations(R"({"no_rope_layers": [1, 1, 1, 1]})"), (Layers(4, true)));
  EXPECT_EQ(parseVariant("smollm3")->rope.theta, 2e6) << "the default of SmolLM3Config";
  EXPECT_ERROR(parseVariant("smollm3", R"({"no_rope_layers": [1, 2, 1, 1]})"), ErrorCode::Corrupt,
               "no_rope_layers", "2");
  EXPECT_ERROR(parseVariant("smollm3", R"({"no_rope_layers": [1, 1]})"), ErrorCode::Corrupt,
               "no_rope_layers: found 2 numbers", "4 layers");
}

TEST(ModelVariants, QwenWindows) {
  auto windows = [](const char *fields) {
    Result<ModelConfig> config = parseVariant("qwen2", fields);
    EXPECT_TRUE(config) << config.error().message;
    std::vector<int64_t> result;
    for (int64_t layer = 0; config && layer < 4; ++layer)
      result.push_back(config->windowOf(layer));
    return result;
  };
  using Windows = std::vector<int64_t>;
  EXPECT_EQ(windows(R"({"sliding_window": 9})"), (Windows{0, 0, 0, 0})) << "off by default";
  EXPECT_EQ(windows(R"({"use_sliding_window": true, "sliding_window": 9, "max_window_layers": 3})"),
            (Windows{0, 0, 0, 9}));
  EXPECT_EQ(windows(R"({"use_sliding_window": true, "sliding_window": 9, "max_window_layers": 0})"),
            (Windows{9, 9, 9, 9}));
  EXPECT_EQ(windows(R"({"use_sliding_window": true, "sliding_window": 9})"), (Windows{0, 0, 0, 0}))
      << "28 layers without";
  EXPECT_EQ(windows(R"({"use_sliding_window": true, "sliding_window": 9, "layer_types":
    ["sliding_attention", "full_attention", "full_attention", "sliding_attention"]})"),
            (Windows{9, 0, 0, 9}));
  EXPECT_ERROR(
      parseVariant("qwen2", R"({"use_sliding_window": true, "layer_types": ["full_attention"]})"),
      ErrorCode::Corrupt, "layer_types", "4");
  EXPECT_ERROR(
      parseVariant("qwen3", R"({"use_sliding_window": true, "layer_types": ["a", "b", "c", 4]})"),
      ErrorCode::Unsupported, "layer_types", "full_attention");
  EXPECT_ERROR(parseVariant("qwen3", R"({"use_sliding_window": true, "sliding_window": -4})"),
               ErrorCode::Corrupt, "sliding_window", "-4");
}

TEST(ModelVariants, ScaledPositions) {
  Result<ModelConfig> config = parseVariant("llama", R"({"rope_theta": 7,
    "rope_scaling": {"type": "linear", "factor": 4}})");
  ASSERT_VALUE(config);
  EXPECT_TRUE(config->rope == (numerics::RopeParams{8, 7, RopeScaling::Linear, 4}));

  config = parseVariant("llama", R"({"rope_scaling": {"rope_type": "llama3", "factor": 8.0,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}})");
  ASSERT_VALUE(config);
  EXPECT_TRUE(config->rope == (numerics::RopeParams{8, 1e4, RopeScaling::Llama3, 8, 1, 4, 32}));

  // transformers 5; Qwen's way of a longer context, max_position_embeddings left as it is.
  config = parseVariant("qwen3", R"({"head_dim": 8, "rope_parameters": {"rope_type": "yarn",
    "rope_theta": 1000000, "factor": 4.0, "original_max_position_embeddings": 64}})");
  ASSERT_VALUE(config);
  EXPECT_TRUE(config->rope == (numerics::RopeParams{8, 1e6, RopeScaling::Yarn, 4, 1, 4, 64, 32, 1,
                                                    1 + 0.1 * std::log(4.0), true}));
  EXPECT_EQ(config->maxContext, 256);
  config =
      parseVariant("llama", R"({"rope_scaling": {"rope_type": "yarn", "factor": 40, "mscale": 1.0,
    "mscale_all_dim": 0.5, "beta_fast": 16, "beta_slow": 2, "truncate": false}})");
  ASSERT_VALUE(config);
  EXPECT_EQ(config->rope.originalPositions, 64);
  EXPECT_DOUBLE_EQ(config->rope.attentionFactor,
                   (1 + 0.1 * std::log(40.0)) / (1 + 0.05 * std::log(40.0)));

  // Up to max_position_embeddings, dynamic scaling scales nothing.
  config = parseVariant("llama", R"({"rope_scaling": {"type": "dynamic", "factor": 2.0}})");
  ASSERT_VALUE(config);
  EXPECT_EQ(config->rope.scaling, RopeScaling::None);
}

TEST(ModelVariants, Phi3) {
  Result<ModelConfig> config = parseVariant("phi3");
  ASSERT_VALUE(config);
  EXPECT_EQ(config->windowOf(0), 0) << "Phi3Config has none by default";
  EXPECT_EQ(config->rope.dims, 8);
  EXPECT_EQ(parseVariant("phi3", R"({"sliding_window": 7})")->windowOf(3), 7);

  auto dims = [](const char *fields) { return parseVariant("phi3", fields)->rope.dims; };
  EXPECT_EQ(dims(R"({"partial_rotary_factor": 0.5})"), 4);
  EXPECT_EQ(dims(R"({"rope_parameters": {"partial_rotary_factor": 0.25}})"), 2);
  EXPECT_EQ(dims(R"({"head_dim": 24, "partial_rotary_factor": 0.7})"), 16) << "rounded down";
  for (auto [factor, word] : {std::pair("0.125", "at least 2"), {"0.4", "even"}, {"1.5", "a part"}})
    EXPECT_ERROR(
        parseVariant("phi3", fmt::format(R"({{"partial_rotary_factor": {}}})", factor).c_str()),
        ErrorCode::Corrupt, word);
  EXPECT_ERROR(parseVariant("qwen3", R"({"partial_rotary_factor": 0.5})"), ErrorCode::Unsupported,
               "partial_rotary_factor: 0.5 is not supported for qwen3");
}

TEST(ModelVariants, WindowsThatLayerTypesNames) {
  const char *types = R"("layer_types": ["full_attention", "sliding_attention", "sliding_attention",
                                        "full_attention"])";
  auto windows = [](const char *architecture, const std::string &fields) {
    Result<ModelConfig> config = parseVariant(architecture, ("{" + fields + "}").c_str());
    EXPECT_TRUE(config) << config.error().message;
    std::vector<int64_t> result;
    for (int64_t layer = 0; config && layer < 4; ++layer)
      result.push_back(config->windowOf(layer));
    return result;
  };
  using Windows = std::vector<int64_t>;
  EXPECT_EQ(windows("ministral", ""), (Windows(4, 4096)));
  EXPECT_EQ(windows("ministral", types), (Windows{0, 4096, 4096, 0}));
  EXPECT_EQ(windows("ministral", R"("sliding_window": null)"), (Windows(4, 0)));
  EXPECT_EQ(windows("olmo3", R"("sliding_window": 9)"), (Windows{9, 9, 9, 0}));
  EXPECT_EQ(windows("olmo3", types), (Windows{0, 4096, 4096, 0}));
}

TEST(ModelVariants, Olmo3ScalesWhatSeesAllTokens) {
  Result<ModelConfig> plain = parseVariant("olmo3");
  ASSERT_VALUE(plain);
  EXPECT_EQ(plain->rope.theta, 5e5) << "the default of Olmo3Config";
  EXPECT_FALSE(plain->windowedRope) << "one table does for all layers";
  const char *flat = R"({"rope_theta": 100, "rope_scaling": {"rope_type": "linear", "factor": 4}})";
  const char *kinds = R"({"rope_parameters": {
    "full_attention": {"rope_type": "linear", "factor": 4, "rope_theta": 100},
    "sliding_attention": {"rope_type": "default", "rope_theta": 100}}})";
  for (const char *fields : {flat, kinds}) {
    Result<ModelConfig> scaled = parseVariant("olmo3", fields);
    ASSERT_VALUE(scaled);
    EXPECT_EQ(scaled->rope, (numerics::RopeParams{8, 100, RopeScaling::Linear, 4}));
    EXPECT_EQ(scaled->windowedRope, (numerics::RopeParams{8, 100}));
  }
  EXPECT_ERROR(parseVariant("olmo3", R"({"rope_parameters": {"full_attention": {},
                 "sliding_attention": {"rope_type": "yarn", "factor": 4}}})"),
               ErrorCode::Unsupported, "sliding_attention", "\"yarn\" in layers with a window");
}

TEST(ModelVariants, LongRope) {
  const char *lists = R"("short_factor": [1, 1, 1.5, 2], "long_factor": [1, 2, 4, 8])";
  auto parse = [&](const char *scaling, const char *fields) {
    return parseVariant(
        "phi3", fmt::format(R"({{"rope_scaling": {{{}, {}}}{}}})", lists, scaling, fields).c_str());
  };
  Result<ModelConfig> config =
      parse(R"("type": "longrope")", R"(, "original_max_position_embeddings": 16)");
  ASSERT_VALUE(config);
  numerics::RopeParams expected{.dims = 8, .scaling = RopeScaling::LongRope};
  expected.originalPositions = 16;
  expected.attentionFactor = std::sqrt(1 + std::log(4.0) / std::log(16.0));
  expected.divisors = {1, 1, 1.5, 2};
  EXPECT_TRUE(config->ropeIn(16) == expected);
  expected.divisors = {1, 2, 4, 8};
  EXPECT_TRUE(config->ropeIn(17) == expected);
  // Other names of files of old; what stands beside comes first.
  for (const char *type : {R"("type": "su")", R"("type": "yarn")",
                           R"("rope_type": "longrope", "original_max_position_embeddings": 32)"})
    EXPECT_TRUE(parse(type, R"(, "original_max_position_embeddings": 16)")->ropeIn(17) == expected)
        << type;
  EXPECT_EQ(parse(R"("type": "longrope", "factor": 1)", "")->rope.attentionFactor, 1);
  EXPECT_EQ(parse(R"("type": "longrope", "attention_factor": 1.5)", "")->rope.attentionFactor, 1.5);
  EXPECT_EQ(parse(R"("type": "longrope")", "")->rope.originalPositions, 64);
}

TEST(ModelVariants, RefusesScalingThatIsWrong) {
  struct Case {
    const char *scaling;
    ErrorCode code;
    std::string_view first, second;
  };
  for (const Case &wrong : std::initializer_list<Case>{
           {R"(4.0)", ErrorCode::Corrupt, "rope_scaling", "an object"},
           {R"({"type": "mrope"})", ErrorCode::Unsupported, "\"mrope\"", "\"longrope\""},
           {R"({"type": "su", "long_factor": [1, 1, 1, 1]})", ErrorCode::Corrupt, "short_factor",
            "found nothing"},
           {R"({"type": "longrope", "short_factor": [1, 1, 1, 1], "long_factor": [1, 1]})",
            ErrorCode::Corrupt, "long_factor", "found 2 numbers, expected one for each of 4 pairs"},
           {R"({"type": "longrope", "short_factor": [1, 1, 0, 1]})", ErrorCode::Corrupt,
            "short_factor", "positive"},
           {R"({"type": "longrope", "short_factor": [1, 1, "2", 1]})", ErrorCode::Corrupt,
            "short_factor", "positive"},
           {R"({"type": "longrope", "short_factor": [1, 1, 1e300, 1]})", ErrorCode::Corrupt,
            "short_factor", "in the range of f32"},
           {R"({"type": "longrope", "short_factor": [1, 1, 1, 1], "long_factor": [1, 1, 1, 1],
                "original_max_position_embeddings": 1})",
            ErrorCode::Corrupt, "original_max_position_embeddings", "at least 2"},
           {R"({"type": "linear", "factor": 2, "short_factor": [1, 1, 1, 1]})",
            ErrorCode::Unsupported, "short_factor", "with rope_type \"linear\""},
           {R"({"rope_type": 3})", ErrorCode::Corrupt, "rope_type", "a string"},
           {R"({"type": "linear"})", ErrorCode::Corrupt, "factor", "missing"},
           {R"({"type": "linear", "factor": -2})", ErrorCode::Corrupt, "factor", "positive"},
           {R"({"type": "linear", "factor": 0.5})", ErrorCode::Corrupt, "factor", "from 1 on"},
           {R"({"type": "linear", "factor": "2"})", ErrorCode::Corrupt, "factor", "found \"2\""},
           {R"({"rope_type": "llama3", "factor": 8})", ErrorCode::Corrupt, "low_freq_factor",
            "missing"},
           {R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4,
                "original_max_position_embeddings": 32})",
            ErrorCode::Corrupt, "low_freq_factor 4", "below"},
           {R"({"rope_type": "yarn"})", ErrorCode::Corrupt, "factor", "missing"},
           {R"({"rope_type": "yarn", "factor": 4, "beta_fast": 1})", ErrorCode::Corrupt,
            "beta_slow", "below"},
           {R"({"rope_type": "yarn", "factor": 4, "attention_factor": 0})", ErrorCode::Corrupt,
            "attention_factor", "positive"},
           {R"({"rope_type": "default", "mrope_section": [1]})", ErrorCode::Unsupported,
            "mrope_section", "not supported"},
           {R"({"rope_type": "yarn", "factor": 4, "llama_4_scaling_beta": 0.1})",
            ErrorCode::Unsupported, "llama_4_scaling_beta", "\"yarn\" in llama"},
           {R"({"type": "dynamic", "factor": 2, "original_max_position_embeddings": 32})",
            ErrorCode::Unsupported, "dynamic", "max_position_embeddings"}}) {
    SCOPED_TRACE(wrong.scaling);
    std::string fields = std::string(R"({"rope_scaling": )") + wrong.scaling + "}";
    EXPECT_ERROR(parseVariant("llama", fields.c_str()), wrong.code, "config.json: rope_scaling",
                 wrong.first, wrong.second);
  }
  EXPECT_ERROR(parseVariant("llama", R"({"rope_scaling": {"type": "linear", "factor": 2},
                                  "rope_parameters": {"rope_type": "default"}})"),
               ErrorCode::Corrupt, "rope_scaling and rope_parameters");
  EXPECT_ERROR(parseVariant("ministral3", "{}"), ErrorCode::Corrupt, "rope_parameters: missing",
               "ministral3");
  EXPECT_ERROR(parseVariant("ministral3", R"({"rope_parameters": {"rope_type": "yarn", "factor": 4,
                                  "llama_4_scaling_beta": -1}})"),
               ErrorCode::Corrupt, "llama_4_scaling_beta", "positive");
}
