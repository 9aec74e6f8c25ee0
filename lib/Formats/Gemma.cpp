//===- Gemma.cpp - Gemma 2, 3 and 4 ---------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Descriptions.h"

using namespace easyquant;
using namespace easyquant::formats;

static constexpr FixedFlag kGemmaFlags[] = {{"use_bidirectional_attention", false}};
static constexpr FixedNull kGemma3Nulls[] = {{"attn_logit_softcapping"},
                                             {"final_logit_softcapping"}};
/// Gemma Team, 2024 (https://arxiv.org/abs/2408.00118).
static constexpr ActivationName kGeluTanh[] = {{"gelu_pytorch_tanh", Activation::GeluTanh}};
Architecture formats::gemma2() {
  Architecture a = llama();
  a.name = a.gguf = "gemma2";
  a.className = "Gemma2ForCausalLM";
  a.summary = "llama with GeGLU, RMSNorms before and behind attention and MLP whose weights are "
              "kept less 1, scaled embeddings, windows in every second layer or by `layer_types`, "
              "`query_pre_attn_scalar`, and soft caps of attention and logits";
  a.refused = "`use_bidirectional_attention`";
  a.proof = "the oracle, transformers, llama.cpp";
  a.numKVHeads.otherwise = 4;
  a.headDim.otherwise = 256;
  a.maxContext.otherwise = 8192;
  a.activationKey = "hidden_activation";
  a.activations = kGeluTanh;
  a.fixedFlags = kGemmaFlags;
  a.outputBias = a.qkvBias = {.key = "attention_bias"};
  a.mlpBias = {};
  a.window = WindowKind::Pattern;
  a.windowPattern = 2;
  a.tiesHead = true;
  a.scalesEmbedding = true;
  a.attentionWidth = {"query_pre_attn_scalar", 256.0};
  a.wideAttentionLayers = 46;
  a.attentionBound = {"attn_logit_softcapping", 50.0, "attn_logit_softcapping"};
  a.logitBound = {"final_logit_softcapping", 30.0, "final_logit_softcapping"};
  a.normOffset = 1.0f;
  a.layer.attentionOutputNorm = "post_attention_layernorm";
  a.layer.mlpNorm = "pre_feedforward_layernorm";
  a.layer.mlpOutputNorm = "post_feedforward_layernorm";
  a.rotatesNeighbours = false;
  return a;
}

/// Gemma Team, 2025 (https://arxiv.org/abs/2503.19786): the language model.
Architecture formats::gemma3() {
  Architecture a = gemma2();
  a.name = "gemma3_text";
  a.className = "Gemma3ForCausalLM";
  a.gguf = "gemma3";
  a.withOtherParts = "gemma3";
  a.summary = "gemma2 without its soft caps, with an RMSNorm of every head of q and k, windows in "
              "five of six layers, and angles of their own there (`rope_local_base_freq`)";
  a.refused = "soft caps; `use_bidirectional_attention`; the part for pictures of `gemma3`, which "
              "is left out";
  a.proof = "the oracle, transformers, llama.cpp; Gemma 3 270M";
  a.maxContext.otherwise = 131072;
  a.windowPattern = 6;
  a.ropeTheta = 1000000.0;
  a.windowedRopeTheta = {"rope_local_base_freq", 10000.0, "rope.freq_base_swa"};
  a.wideAttentionLayers = 62;
  a.attentionBound = a.logitBound = {};
  a.fixedNulls = kGemma3Nulls;
  a.qkNorm = QKNorm::EachHead;
  a.layer.qNorm = "self_attn.q_norm";
  a.layer.kNorm = "self_attn.k_norm";
  return a;
}

/// Gemma Team, 2026.
static constexpr FixedNull kGemma4Nulls[] = {{"use_bidirectional_attention", "vision"},
                                             {"per_layer_config"}};
Architecture formats::gemma4() {
  Architecture a = gemma3();
  a.name = "gemma4_text";
  a.className = "Gemma4ForCausalLM";
  a.gguf = "gemma4";
  a.withOtherParts = "gemma4";
  a.summary =
      "gemma3 with norms whose weights are kept as they are, a norm of every head of v, heads of "
      "another size and number in layers without a window (`global_head_dim`, "
      "`num_global_key_value_heads`), whose values may be what k gives (`attention_k_eq_v`) and "
      "which rotate in proportion, a number for each layer that its result is times, and a soft "
      "cap of logits; E2B and E4B also with last layers that read the keys and values of others "
      "(`num_kv_shared_layers`, `use_double_wide_mlp`) and embeddings of layers "
      "(`hidden_size_per_layer_input`), 26B-A4B with a mixture of experts beside every MLP "
      "(`enable_moe_block`): softmax, the greatest `top_k_experts`, made to sum to 1, and a number "
      "for each expert that its result is times";
  a.refused =
      "of E2B and E4B caches of codes and "
      "what runs calibration text; the parts for pictures and sound of `gemma4`, which are left "
      "out";
  a.proof = "the oracle, transformers, llama.cpp";
  a.fixedFlags = {};
  a.fixedNulls = kGemma4Nulls;
  a.windowOtherwise = 512;
  a.lastSeesAll = true;
  a.fullHeadDim = {"global_head_dim", 512};
  a.sharedProjectionKey = "attention_k_eq_v";
  a.fullKVHeadsKey = "num_global_key_value_heads";
  a.sharedKVLayers = {"num_kv_shared_layers", 0, "attention.shared_kv_layers"};
  a.doubleWidthKey = "use_double_wide_mlp";
  a.layerInputSize = {"hidden_size_per_layer_input", 256, "embedding_length_per_layer_input"};
  a.layerInputVocab = {"vocab_size_per_layer_input", 262144};
  a.proportionalPart = 0.25;
  a.windowedRopeTheta = {"rope_theta", 10000.0, "rope.freq_base_swa"};
  a.attentionWidth = {nullptr, 1.0};
  a.wideAttentionLayers = 0;
  a.logitBound = {"final_logit_softcapping", 0.0, "final_logit_softcapping"};
  a.normOffset = 0.0f;
  a.normsValues = true;
  a.layerEmbedding = "model.embed_tokens_per_layer";
  a.layerProjection = "model.per_layer_model_projection";
  a.layerProjectionNorm = "model.per_layer_projection_norm";
  a.experts = {.enabledKey = "enable_moe_block",
               .besideMlp = true,
               .count = {"num_experts"},
               .chosen = {"top_k_experts"},
               .size = {"moe_intermediate_size"}};
  a.layer.router = "router.proj";
  a.layer.routerScale = "router.scale";
  a.layer.expertFactors = "router.per_expert_scale";
  a.layer.expertGate = "experts.gate_proj";
  a.layer.expertUp = "experts.up_proj";
  a.layer.expertDown = "experts.down_proj";
  a.layer.expertGateUp = "experts.gate_up_proj";
  a.layer.stacksRows = true;
  a.layer.denseOutputNorm = "post_feedforward_layernorm_1";
  a.layer.expertNorm = "pre_feedforward_layernorm_2";
  a.layer.expertOutputNorm = "post_feedforward_layernorm_2";
  a.layer.inputGate = "per_layer_input_gate";
  a.layer.inputProjection = "per_layer_projection";
  a.layer.inputProjectionNorm = "post_per_layer_input_norm";
  a.layer.scalar = "layer_scalar";
  return a;
}

/// Its layers read the keys and values of the model that it drafts for.
static constexpr FixedFlag kGemma4AssistantFlags[] = {{"enable_moe_block", false},
                                                      {"use_double_wide_mlp", false}};
Architecture formats::gemma4Assistant() {
  Architecture a = gemma4();
  a.name = "gemma4_assistant";
  a.className = "Gemma4AssistantForCausalLM";
  a.withOtherParts = nullptr;
  a.fixedFlags = kGemma4AssistantFlags;
  a.sharedKVLayers = {};
  a.doubleWidthKey = nullptr;
  a.layerInputSize = {};
  a.layerInputVocab = {};
  a.experts = {};
  a.embedding = "assistant.model.embed_tokens";
  a.layerPrefix = "assistant.model.layers.";
  a.finalNorm = "assistant.model.norm";
  return a;
}
