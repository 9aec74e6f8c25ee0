//===- Architectures.cpp - The architectures that are supported -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Fields and defaults are those of the configuration classes of the transformers library, which
// leaves out of config.json what equals a default; names in GGUF are llama.cpp's. Those with
// experts are in Mixtures.cpp, those of Gemma in Gemma.cpp.
//
//===----------------------------------------------------------------------===//

#include "Descriptions.h"

#include <algorithm>

using namespace easyquant;
using namespace easyquant::formats;

static constexpr ActivationName kSiLU[] = {{"silu", Activation::SiLU}};
static constexpr ActivationName kGelu[] = {{"gelu_new", Activation::GeluTanh},
                                           {"gelu_pytorch_tanh", Activation::GeluTanh},
                                           {"gelu", Activation::GeluErf}};

/// Touvron et al., 2023 (https://arxiv.org/abs/2302.13971); with the scaled frequencies of its long
/// contexts, Llama 3.1 and 3.2, too.
static constexpr std::string_view kRotaryBuffers[] = {".rotary_emb.inv_freq"};
static constexpr Architecture kLLaMA = {
    .name = "llama",
    .className = "LlamaForCausalLM",
    .gguf = "llama",
    .summary = "RMSNorm, rotary positions, grouped-query attention, SwiGLU; biases by "
               "`attention_bias`, `mlp_bias`",
    .proof = "the oracle; SmolLM2-135M and the published text of stories260K",
    .hiddenSize = {"hidden_size"},
    .intermediateSize = {"intermediate_size"},
    .numLayers = {"num_hidden_layers"},
    .numHeads = {"num_attention_heads"},
    .numKVHeads = {"num_key_value_heads", SizeField::NumHeads},
    .headDim = {"head_dim", SizeField::HiddenPerHead},
    .maxContext = {"max_position_embeddings", 2048},
    .epsilonKey = "rms_norm_eps",
    .epsilon = 1e-6,
    .activationKey = "hidden_act",
    .activations = kSiLU,
    .qkvBias = {.key = "attention_bias"},
    .outputBias = {.key = "attention_bias"},
    .mlpBias = {.key = "mlp_bias"},
    .embedding = "model.embed_tokens",
    .layerPrefix = "model.layers.",
    .layer = {.attentionNorm = "input_layernorm",
              .q = "self_attn.q_proj",
              .k = "self_attn.k_proj",
              .v = "self_attn.v_proj",
              .o = "self_attn.o_proj",
              .mlpNorm = "post_attention_layernorm",
              .gate = "mlp.gate_proj",
              .up = "mlp.up_proj",
              .down = "mlp.down_proj"},
    .finalNorm = "model.norm",
    .redundantSuffixes = kRotaryBuffers,
    .rotatesNeighbours = true};

/// Radford et al., 2019.
static constexpr FixedFlag kGPT2Flags[] = {{"scale_attn_weights", true},
                                           {"scale_attn_by_inverse_layer_idx", false},
                                           {"add_cross_attention", false}};
/// The causal mask and the value that it puts in; not to be taken for the biases of c_attn.
static constexpr std::string_view kGPT2Buffers[] = {".attn.bias", ".attn.masked_bias"};
static constexpr Architecture kGPT2 = {.name = "gpt2",
                                       .className = "GPT2LMHeadModel",
                                       .gguf = "gpt2",
                                       .summary = "LayerNorm, learned positions, GELU, biases",
                                       .refused =
                                           "`scale_attn_by_inverse_layer_idx`, cross attention",
                                       .proof = "the oracle, transformers, llama.cpp",
                                       .hiddenSize = {"n_embd"},
                                       .intermediateSize = {"n_inner", SizeField::FourTimesHidden},
                                       .numLayers = {"n_layer"},
                                       .numHeads = {"n_head"},
                                       .numKVHeads = {nullptr, SizeField::NumHeads},
                                       .headDim = {nullptr, SizeField::HiddenPerHead},
                                       .maxContext = {"n_positions", 1024},
                                       .epsilonKey = "layer_norm_epsilon",
                                       .epsilon = 1e-5,
                                       .activationKey = "activation_function",
                                       .activations = kGelu,
                                       .fixedFlags = kGPT2Flags,
                                       .qkvBias = {.always = true},
                                       .outputBias = {.always = true},
                                       .mlpBias = {.always = true},
                                       .tiesHead = true,
                                       .norm = NormKind::Layer,
                                       .embedding = "wte",
                                       .positions = "wpe",
                                       .layerPrefix = "h.",
                                       .layer = {.attentionNorm = "ln_1",
                                                 .qkv = "attn.c_attn",
                                                 .o = "attn.c_proj",
                                                 .mlpNorm = "ln_2",
                                                 .up = "mlp.c_fc",
                                                 .down = "mlp.c_proj"},
                                       .finalNorm = "ln_f",
                                       .optionalPrefix = "transformer.",
                                       .redundantSuffixes = kGPT2Buffers,
                                       .conv1D = true};

/// Jiang et al., 2023 (https://arxiv.org/abs/2310.06825). To llama.cpp a llama.
Architecture formats::mistral() {
  Architecture a = kLLaMA;
  a.name = "mistral";
  a.className = "MistralForCausalLM";
  a.withOtherParts = "mistral3";
  a.summary = "llama with a window of attention (`sliding_window`; null: none); also the text part "
              "of `mistral3`";
  a.proof = "the oracle, transformers, llama.cpp";
  a.numKVHeads.otherwise = 8;
  a.maxContext.otherwise = 131072;
  a.qkvBias = a.outputBias = a.mlpBias = {}; // whatever its configuration says
  a.window = WindowKind::AllLayers;
  return a;
}

/// Yang et al., 2024 (https://arxiv.org/abs/2407.10671).
Architecture formats::qwen2() {
  Architecture a = kLLaMA;
  a.name = a.gguf = "qwen2";
  a.className = "Qwen2ForCausalLM";
  a.summary = "llama with biases on q, k and v; windows by `use_sliding_window`, "
              "`max_window_layers` or `layer_types`";
  a.proof = "the oracle, transformers, llama.cpp";
  a.numKVHeads.otherwise = 32;
  a.maxContext.otherwise = 32768;
  a.qkvBias = {.always = true};
  a.outputBias = a.mlpBias = {};
  a.window = WindowKind::SomeLayers;
  a.rotatesNeighbours = false;
  return a;
}

/// Yang et al., 2025 (https://arxiv.org/abs/2505.09388).
Architecture formats::qwen3() {
  Architecture a = qwen2();
  a.name = a.gguf = "qwen3";
  a.className = "Qwen3ForCausalLM";
  a.summary = "llama with an RMSNorm of every head of q and k, and `head_dim` of its own; windows "
              "as qwen2";
  a.headDim.otherwise = 128;
  a.qkvBias = a.outputBias = {.key = "attention_bias"};
  a.qkNorm = QKNorm::EachHead;
  a.layer.qNorm = "self_attn.q_norm";
  a.layer.kNorm = "self_attn.k_norm";
  return a;
}

/// OLMo Team, 2024 (https://arxiv.org/abs/2501.00656): norms behind attention and MLP, none before.
static Architecture olmo2() {
  Architecture a = kLLaMA;
  a.name = a.gguf = "olmo2";
  a.className = "Olmo2ForCausalLM";
  a.summary = "llama with RMSNorms behind attention and MLP in place of those before them, and of "
              "all of q and all of k; biases by `attention_bias`";
  a.proof = "the oracle, transformers, llama.cpp";
  a.epsilon = 1e-5;
  a.mlpBias = {};
  a.qkNorm = QKNorm::WholeProjection;
  a.layer.attentionNorm = {};
  a.layer.mlpNorm = {};
  a.layer.qNorm = "self_attn.q_norm";
  a.layer.kNorm = "self_attn.k_norm";
  a.layer.attentionOutputNorm = "post_attention_layernorm";
  a.layer.mlpOutputNorm = "post_feedforward_layernorm";
  a.rotatesNeighbours = false;
  return a;
}

/// Hugging Face, 2025: q and k of some layers are not rotated (Yang et al., 2025,
/// https://arxiv.org/abs/2501.18795).
static constexpr FixedFlag kSmolLM3Flags[] = {{"use_sliding_window", false}};
static Architecture smolLM3() {
  Architecture a = kLLaMA;
  a.name = a.gguf = "smollm3";
  a.className = "SmolLM3ForCausalLM";
  a.summary = "llama with layers whose q and k are not rotated, by `no_rope_layers` or "
              "`no_rope_layer_interval`; of GGUF every fourth";
  a.refused = "`use_sliding_window`; `--kv-keys pre-rope`";
  a.proof = "the oracle, transformers, llama.cpp";
  a.numKVHeads.otherwise = 4;
  a.maxContext.otherwise = 32768;
  a.fixedFlags = kSmolLM3Flags;
  a.tiesHead = true;
  a.ropeTheta = 2000000.0;
  a.unrotatedEvery = 4;
  return a;
}

/// Granite Team, 2024: dense models of Granite 3 and 4.
static Architecture granite() {
  Architecture a = kLLaMA;
  a.name = a.gguf = "granite";
  a.className = "GraniteForCausalLM";
  a.summary = "llama with factors of embeddings, of what blocks add, of attention and of logits "
              "(`embedding_multiplier`, `residual_multiplier`, `attention_multiplier`, "
              "`logits_scaling`); also `granitemoehybrid` without experts and state spaces";
  a.refused = "`granitemoe`; experts, state spaces and unrotated layers of `granitemoehybrid`";
  a.proof = "the oracle, transformers, llama.cpp";
  a.embeddingFactor = {"embedding_multiplier", 1.0, "embedding_scale"};
  a.residualFactor = {"residual_multiplier", 1.0, "residual_scale"};
  a.attentionFactor = {"attention_multiplier", 1.0, "attention.scale"};
  a.logitDivisor = {"logits_scaling", 1.0, "logit_scale"};
  a.denseForm = {"granitemoehybrid", "shared_intermediate_size", "shared_mlp.input_linear",
                 "shared_mlp.output_linear"};
  return a;
}

/// Abdin et al., 2024 (https://arxiv.org/abs/2404.14219); with partial rotation, Phi-4-mini.
static Architecture phi3() {
  Architecture a = kLLaMA;
  a.name = a.gguf = "phi3";
  a.className = "Phi3ForCausalLM";
  a.summary =
      "llama with one linear for q, k and v and one for gate and up; `sliding_window` in all "
      "layers; the first part of each head rotated, by `partial_rotary_factor`; `longrope`";
  a.proof = "the oracle, transformers, llama.cpp";
  a.maxContext.otherwise = 4096;
  a.epsilon = 1e-5;
  a.qkvBias = a.outputBias = a.mlpBias = {};
  a.window = WindowKind::AllLayers;
  a.windowOtherwise = 0;
  a.rotatesPart = true;
  a.layer.q = {};
  a.layer.k = {};
  a.layer.v = {};
  a.layer.gate = {};
  a.layer.up = {};
  a.layer.qkv = "self_attn.qkv_proj";
  a.layer.gateUp = "mlp.gate_up_proj";
  a.rotatesNeighbours = false;
  return a;
}

/// Mistral AI, 2024. To llama.cpp a llama.
static Architecture ministral() {
  Architecture a = mistral();
  a.name = "ministral";
  a.className = "MinistralForCausalLM";
  a.withOtherParts = nullptr;
  a.summary = "mistral with its window in the layers that `layer_types` names; without it, in all";
  a.proof = "the oracle, transformers";
  a.epsilon = 1e-6;
  a.window = WindowKind::Pattern;
  return a;
}

/// Mistral AI, 2025: Ministral 3, whose late queries are scaled as those of Llama 4.
static Architecture ministral3() {
  Architecture a = mistral();
  a.name = "ministral3";
  a.className = "Ministral3ForCausalLM";
  a.gguf = "mistral3";
  a.summary =
      "mistral with YaRN, and queries behind its original context times 1 + β ln(1 + ⌊p / L⌋) "
      "(`llama_4_scaling_beta`); also the text part of `mistral3`";
  a.proof = "the oracle, transformers, llama.cpp";
  a.maxContext.otherwise = 262144;
  a.epsilon = 1e-5;
  a.windowOtherwise = 0;
  a.ropeTheta = 1000000.0;
  a.lateGain = {"llama_4_scaling_beta", 0.0, "attention.temperature_scale"};
  return a;
}

/// OLMo Team, 2025 (https://arxiv.org/abs/2512.13961). To llama.cpp an olmo2.
static Architecture olmo3() {
  Architecture a = olmo2();
  a.name = "olmo3";
  a.className = "Olmo3ForCausalLM";
  a.summary = "olmo2 with windows in three of four layers or by `layer_types`, whose positions are "
              "not scaled";
  a.proof = "the oracle, transformers, llama.cpp";
  a.ropeTheta = 500000.0;
  a.window = WindowKind::Pattern;
  a.windowPattern = 4;
  a.scalesUnwindowedRope = true;
  return a;
}

/// Liquid AI, 2025 (https://arxiv.org/abs/2511.23404): dense models of LFM2 and LFM2.5.
Architecture formats::lfm2() {
  Architecture a = kLLaMA;
  a.name = a.gguf = "lfm2";
  a.className = "Lfm2ForCausalLM";
  a.summary = "llama with a gated short convolution in the place of attention in the layers that "
              "`layer_types` or `full_attn_idxs` names, and an RMSNorm of every head of q and k";
  a.proof = "the oracle, transformers, llama.cpp";
  a.intermediateSize.otherwise = 12288;
  a.numKVHeads.otherwise = 8;
  a.maxContext.otherwise = 128000;
  a.epsilonKey = "norm_eps";
  a.epsilon = 1e-5;
  a.qkvBias = a.outputBias = a.mlpBias = {};
  a.tiesHead = true;
  a.ropeTheta = 1000000.0;
  a.layerKinds = LayerKinds::Convolution;
  a.qkNorm = QKNorm::EachHead;
  a.layer = {.attentionNorm = "operator_norm",
             .q = "self_attn.q_proj",
             .k = "self_attn.k_proj",
             .v = "self_attn.v_proj",
             .qNorm = "self_attn.q_layernorm",
             .kNorm = "self_attn.k_layernorm",
             .o = "self_attn.out_proj",
             .convolutionIn = "conv.in_proj",
             .convolution = "conv.conv",
             .convolutionOut = "conv.out_proj",
             .mlpNorm = "ffn_norm",
             .gate = "feed_forward.w1",
             .up = "feed_forward.w3",
             .down = "feed_forward.w2"};
  a.finalNorm = "model.embedding_norm";
  a.finalNorm.gguf = "token_embd_norm";
  a.rotatesNeighbours = false;
  return a;
}

/// Qwen Team, 2026: the language models of Qwen3.5, 3.6 and 3.8 without experts (Yang et al., 2025,
/// https://arxiv.org/abs/2412.06464).
static constexpr FixedFlag kQwen35Flags[] = {{"attn_output_gate", true}};
Architecture formats::qwen35() {
  Architecture a = qwen3();
  a.name = "qwen3_5_text";
  a.className = "Qwen3_5ForCausalLM";
  a.gguf = "qwen35";
  a.withOtherParts = "qwen3_5";
  a.summary = "qwen3 with a gated delta net in the place of attention in three of four layers, or "
              "by `layer_types` or `full_attention_interval`; attention whose results are gated, "
              "a quarter of each head rotated, and norms whose weights are kept less 1";
  a.refused = "`qwen3_next`; the part for pictures of `qwen3_5`, which is left out";
  a.proof = "the oracle, transformers, llama.cpp";
  a.intermediateSize.otherwise = 12288;
  a.numLayers.otherwise = 32;
  a.numHeads.otherwise = 16;
  a.numKVHeads.otherwise = 4;
  a.headDim.otherwise = 256;
  a.maxContext.otherwise = 32768;
  a.fixedFlags = kQwen35Flags;
  a.window = WindowKind::None;
  a.normOffset = 1.0f;
  a.rotatesPart = true;
  a.rotatedOtherwise = 0.25;
  a.readsSections = true;
  a.gatesAttention = true;
  a.layerKinds = LayerKinds::GatedDelta;
  a.layer.mlpNorm.gguf = "post_attention_norm";
  a.layer.delta = {.in = "linear_attn.in_proj_qkv",
                   .gate = "linear_attn.in_proj_z",
                   .strength = "linear_attn.in_proj_b",
                   .decay = "linear_attn.in_proj_a",
                   .convolution = "linear_attn.conv1d",
                   .rate = "linear_attn.A_log",
                   .bias = "linear_attn.dt_bias",
                   .norm = "linear_attn.norm",
                   .out = "linear_attn.out_proj"};
  a.draft = {.prefix = "mtp.",
             .layerPrefix = "mtp.layers.",
             .fc = "fc",
             .embeddingNorm = "pre_fc_norm_embedding",
             .hiddenNorm = "pre_fc_norm_hidden",
             .norm = "norm"};
  return a;
}

Architecture formats::llama() { return kLLaMA; }

std::span<const Architecture> formats::architectures() {
  static const Architecture known[] = {
      kLLaMA,    kGPT2,      mistral(), qwen2(), qwen3(),     olmo2(),      smolLM3(),  gemma2(),
      gemma3(),  gemma4(),   granite(), phi3(),  ministral(), ministral3(), olmo3(),    qwen3Moe(),
      mixtral(), qwen2Moe(), gptOss(),  lfm2(),  lfm2Moe(),   qwen35(),     qwen35Moe()};
  return known;
}

const Architecture *formats::findArchitecture(std::string_view name) {
  auto found = std::ranges::find(architectures(), name, &Architecture::name);
  return found == architectures().end() ? nullptr : &*found;
}
