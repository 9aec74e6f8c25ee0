//===- Mixtures.cpp - Architectures with experts --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Descriptions.h"

using namespace easyquant;
using namespace easyquant::formats;

static constexpr FixedFlag kFlags[] = {{"use_sliding_window", false}};

/// Experts in the place of every MLP.
static constexpr void putExperts(Architecture &a, const char *router) {
  a.layer.gate = {};
  a.layer.up = {};
  a.layer.down = {};
  a.layer.router = router;
  a.layer.expertGate = "mlp.experts.gate_proj";
  a.layer.expertUp = "mlp.experts.up_proj";
  a.layer.expertDown = "mlp.experts.down_proj";
}

/// One more, which computes all rows.
static constexpr void addSharedExpert(Architecture &a) {
  a.layer.sharedGate = "mlp.shared_expert.gate_proj";
  a.layer.sharedUp = "mlp.shared_expert.up_proj";
  a.layer.sharedDown = "mlp.shared_expert.down_proj";
  a.layer.sharedRouter = "mlp.shared_expert_gate";
}

/// Yang et al., 2025: qwen3 with experts in place of every MLP.
Architecture formats::qwen3Moe() {
  Architecture a = qwen3();
  a.name = "qwen3_moe";
  a.className = "Qwen3MoeForCausalLM";
  a.gguf = "qwen3moe";
  a.summary =
      "qwen3 with a mixture of experts in place of every MLP: softmax over all experts, the "
      "greatest `num_experts_per_tok`, made to sum to 1 by `norm_topk_prob`";
  a.proof = "the oracle, transformers, llama.cpp";
  a.refused = "layers without experts (`mlp_only_layers`, `decoder_sparse_step`), "
              "`use_sliding_window`";
  a.numKVHeads.otherwise = 4;
  a.headDim.otherwise = SizeField::HiddenPerHead;
  a.window = WindowKind::None;
  a.fixedFlags = kFlags;
  a.experts = {.count = {"num_experts", 128},
               .chosen = {"num_experts_per_tok", 8},
               .size = {"moe_intermediate_size", 768},
               .renormalizesKey = "norm_topk_prob"};
  putExperts(a, "mlp.gate");
  return a;
}

/// Jiang et al., 2024 (https://arxiv.org/abs/2401.04088). To llama.cpp a llama.
Architecture formats::mixtral() {
  Architecture a = mistral();
  a.name = "mixtral";
  a.className = "MixtralForCausalLM";
  a.withOtherParts = nullptr;
  a.summary = "mistral with a mixture of experts in place of every MLP: the greatest "
              "`num_experts_per_tok`, whose weights sum to 1";
  a.proof = "the oracle, transformers, llama.cpp";
  a.epsilon = 1e-5;
  a.ropeTheta = 1000000.0;
  a.windowOtherwise = 0;
  a.experts = {.count = {"num_local_experts", 8}, .chosen = {"num_experts_per_tok", 2}};
  a.layer.gate = {};
  a.layer.up = {};
  a.layer.down = {};
  a.layer.router = "block_sparse_moe.gate";
  a.layer.expertGate = "block_sparse_moe.experts.w1";
  a.layer.expertUp = "block_sparse_moe.experts.w3";
  a.layer.expertDown = "block_sparse_moe.experts.w2";
  return a;
}

/// Yang et al., 2024: qwen2 with experts in place of every MLP, one of which computes all rows.
Architecture formats::qwen2Moe() {
  Architecture a = qwen3Moe();
  a.name = "qwen2_moe";
  a.className = "Qwen2MoeForCausalLM";
  a.gguf = "qwen2moe";
  a.summary = "qwen2 with a mixture of experts in place of every MLP, as qwen3_moe, and an expert "
              "that computes all rows, behind a sigmoid gate";
  a.refused = "`norm_topk_prob` to GGUF; else as qwen3_moe";
  a.proof = "the oracle, transformers, llama.cpp";
  a.numKVHeads.otherwise = 16;
  a.qkvBias = {.always = true};
  a.outputBias = {};
  a.qkNorm = QKNorm::None;
  a.experts.count.otherwise = 60;
  a.experts.chosen.otherwise = 4;
  a.experts.size.otherwise = 1408;
  a.experts.sharedSize = {"shared_expert_intermediate_size", 5632};
  a.experts.ggufRenormalizes = false;
  a.layer.qNorm = {};
  a.layer.kNorm = {};
  addSharedExpert(a);
  return a;
}

/// OpenAI, 2025 (https://arxiv.org/abs/2508.10925).
static constexpr ActivationName kClampedSiLU[] = {{"silu", Activation::ClampedSiLU}};
Architecture formats::gptOss() {
  Architecture a = llama();
  a.name = "gpt_oss";
  a.className = "GptOssForCausalLM";
  a.gguf = "gpt-oss";
  a.summary =
      "llama with a mixture of experts in place of every MLP, whose codes of MXFP4 are kept; "
      "biases of attention, router and experts; a clamped gate; a learned logit in the "
      "softmax of every head; windows in every second layer or by `layer_types`; YaRN, of "
      "GGUF without truncated ends, which llama.cpp truncates";
  a.refused = "other values of `swiglu_limit`";
  a.proof = "the oracle, transformers, llama.cpp";
  a.intermediateSize.otherwise = 2880;
  a.numKVHeads.otherwise = 8;
  a.headDim.otherwise = 64;
  a.maxContext.otherwise = 131072;
  a.epsilon = 1e-5;
  a.activations = kClampedSiLU;
  a.qkvBias = a.outputBias = {.always = true};
  a.mlpBias = {};
  a.experts = {
      .count = {"num_local_experts", 128}, .chosen = {"num_experts_per_tok", 4}, .biases = true};
  a.window = WindowKind::Pattern;
  a.windowOtherwise = 128;
  a.windowPattern = 2;
  a.ropeTheta = 150000.0;
  a.truncatesYarn = false;
  a.layer.sinks = "self_attn.sinks";
  a.layer.mlpNorm.gguf = "post_attention_norm";
  putExperts(a, "mlp.router");
  a.layer.expertGateUp = "mlp.experts.gate_up_proj";
  a.rotatesNeighbours = false;
  return a;
}

/// Liquid AI, 2025 (https://arxiv.org/abs/2511.23404): LFM2 and LFM2.5 with experts. transformers
/// adds 1e-6 to the sum that weights are divided by.
Architecture formats::lfm2Moe() {
  Architecture a = lfm2();
  a.name = "lfm2_moe";
  a.className = "Lfm2MoeForCausalLM";
  a.gguf = "lfm2moe";
  a.summary = "lfm2 with a mixture of experts in place of the MLPs behind the first "
              "`num_dense_layers`: the greatest `num_experts_per_tok` of sigmoids and a bias that "
              "only chooses, made to sum to 1 by `norm_topk_prob`";
  a.refused = "other values of `norm_topk_prob`, `routed_scaling_factor` and `use_expert_bias` to "
              "GGUF";
  a.proof = "the oracle, transformers, llama.cpp";
  a.intermediateSize.otherwise = 7168;
  a.numLayers.otherwise = 32;
  a.numHeads.otherwise = 32;
  a.experts = {.count = {"num_experts", 32},
               .chosen = {"num_experts_per_tok", 4},
               .size = {"moe_intermediate_size", 1792},
               .renormalizesKey = "norm_topk_prob",
               .renormalizesOtherwise = true,
               .sigmoid = true,
               .choiceBias = "use_expert_bias",
               .scale = {"routed_scaling_factor", 1.0, nullptr},
               .denseLayers = {"num_dense_layers", 2, "leading_dense_block_count"}};
  a.layer.router = "feed_forward.gate";
  a.layer.choiceBias = "feed_forward.expert_bias";
  a.layer.expertGate = "feed_forward.experts.w1";
  a.layer.expertUp = "feed_forward.experts.w3";
  a.layer.expertDown = "feed_forward.experts.w2";
  return a;
}

/// Qwen Team, 2026: those with experts.
Architecture formats::qwen35Moe() {
  Architecture a = qwen35();
  a.name = "qwen3_5_moe_text";
  a.className = "Qwen3_5MoeForCausalLM";
  a.gguf = "qwen35moe";
  a.withOtherParts = "qwen3_5_moe";
  a.summary = "qwen3_5_text with a mixture of experts in place of every MLP: softmax over all "
              "experts, the greatest `num_experts_per_tok`, made to sum to 1, and an expert that "
              "computes all rows, behind a sigmoid gate; also the text part of `qwen3_5_moe`";
  a.refused = "the part for pictures of `qwen3_5_moe`, which is left out";
  a.proof = "the oracle, transformers, llama.cpp";
  a.intermediateSize = {"moe_intermediate_size", 512};
  a.numLayers.otherwise = 40;
  a.numKVHeads.otherwise = 2;
  a.experts = {.count = {"num_experts", 256},
               .chosen = {"num_experts_per_tok", 8},
               .size = a.intermediateSize,
               .sharedSize = {"shared_expert_intermediate_size", 512}};
  putExperts(a, "mlp.gate");
  a.layer.expertGateUp = "mlp.experts.gate_up_proj";
  a.layer.stacksRows = true;
  addSharedExpert(a);
  return a;
}
