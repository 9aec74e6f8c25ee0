//===- ModelTensors.cpp - The weights of an architecture ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/ModelTensors.h"

#include "easyquant/Support/Result.h"

using namespace easyquant;
using namespace easyquant::formats;

static std::vector<ExpectedTensor> tensorsOfLLaMA(const ModelConfig &config) {
  const int64_t hidden = config.hiddenSize, inner = config.intermediateSize;
  const int64_t q = config.numHeads * config.headDim, kv = config.numKVHeads * config.headDim;
  // llama.cpp rotates neighbours in models of its llama architecture, which Mistral's are, and
  // halves in the others.
  const int64_t permuted =
      config.architecture == Architecture::LLaMA || config.architecture == Architecture::Mistral;
  std::vector<ExpectedTensor> tensors;
  tensors.push_back({"model.embed_tokens.weight", {config.vocabSize, hidden}, "token_embd.weight"});
  for (int64_t layer = 0; layer < config.numLayers; ++layer) {
    const std::string name = fmt::format("model.layers.{}.", layer);
    const std::string gguf = fmt::format("blk.{}.", layer);
    auto add = [&](const char *part, const char *ggufPart, std::vector<int64_t> shape, bool bias,
                   int64_t ropeHeads = 0) {
      int64_t rows = shape.front();
      tensors.push_back({name + part + ".weight", std::move(shape), gguf + ggufPart + ".weight",
                         false, ropeHeads});
      if (bias)
        tensors.push_back(
            {name + part + ".bias", {rows}, gguf + ggufPart + ".bias", false, ropeHeads});
    };
    add("input_layernorm", "attn_norm", {hidden}, false);
    add("self_attn.q_proj", "attn_q", {q, hidden}, config.qkvBias, permuted * config.numHeads);
    add("self_attn.k_proj", "attn_k", {kv, hidden}, config.qkvBias, permuted * config.numKVHeads);
    add("self_attn.v_proj", "attn_v", {kv, hidden}, config.qkvBias);
    if (config.hasHeadNorms()) {
      add("self_attn.q_norm", "attn_q_norm", {config.headDim}, false);
      add("self_attn.k_norm", "attn_k_norm", {config.headDim}, false);
    }
    add("self_attn.o_proj", "attn_output", {hidden, q}, config.outputBias);
    add("post_attention_layernorm", "ffn_norm", {hidden}, false);
    add("mlp.gate_proj", "ffn_gate", {inner, hidden}, config.mlpBias);
    add("mlp.up_proj", "ffn_up", {inner, hidden}, config.mlpBias);
    add("mlp.down_proj", "ffn_down", {hidden, inner}, config.mlpBias);
  }
  tensors.push_back({"model.norm.weight", {hidden}, "output_norm.weight"});
  return tensors;
}

static std::vector<ExpectedTensor> tensorsOfGPT2(const ModelConfig &config) {
  const int64_t hidden = config.hiddenSize, inner = config.intermediateSize;
  std::vector<ExpectedTensor> tensors;
  tensors.push_back({"wte.weight", {config.vocabSize, hidden}, "token_embd.weight"});
  tensors.push_back({"wpe.weight", {config.maxContext, hidden}, "position_embd.weight"});
  auto norm = [&](const std::string &name, const std::string &gguf) {
    tensors.push_back({name + ".weight", {hidden}, gguf + ".weight"});
    tensors.push_back({name + ".bias", {hidden}, gguf + ".bias"});
  };
  for (int64_t layer = 0; layer < config.numLayers; ++layer) {
    const std::string name = fmt::format("h.{}.", layer), gguf = fmt::format("blk.{}.", layer);
    auto linear = [&](const char *part, const char *ggufPart, int64_t n, int64_t k) {
      tensors.push_back({name + part + ".weight", {n, k}, gguf + ggufPart + ".weight", true});
      tensors.push_back({name + part + ".bias", {n}, gguf + ggufPart + ".bias"});
    };
    norm(name + "ln_1", gguf + "attn_norm");
    linear("attn.c_attn", "attn_qkv", 3 * hidden, hidden);
    linear("attn.c_proj", "attn_output", hidden, hidden);
    norm(name + "ln_2", gguf + "ffn_norm");
    linear("mlp.c_fc", "ffn_up", inner, hidden);
    linear("mlp.c_proj", "ffn_down", hidden, inner);
  }
  norm("ln_f", "output_norm");
  return tensors;
}

std::vector<ExpectedTensor> formats::expectedTensors(const ModelConfig &config) {
  std::vector<ExpectedTensor> tensors =
      config.isLLaMALike() ? tensorsOfLLaMA(config) : tensorsOfGPT2(config);
  if (!config.tieWordEmbeddings)
    tensors.push_back({"lm_head.weight", {config.vocabSize, config.hiddenSize}, "output.weight"});
  return tensors;
}

bool formats::isRedundant(const ModelConfig &config, std::string_view name) {
  if (name == "lm_head.weight")
    return config.tieWordEmbeddings;
  if (config.isLLaMALike())
    return name.ends_with(".rotary_emb.inv_freq");
  // The causal mask and the value that it puts in; not to be taken for the biases of c_attn.
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

int64_t formats::ggufRow(int64_t row, int64_t headDim) {
  int64_t head = row / headDim, dimension = row % headDim, half = headDim / 2;
  return head * headDim + dimension % half * 2 + dimension / half;
}
