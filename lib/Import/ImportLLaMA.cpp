//===- ImportLLaMA.cpp - LLaMA as lm IR -----------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Touvron et al., 2023 (https://arxiv.org/abs/2302.13971): RMSNorm before each half of a block,
// rotary positions on q and k, grouped-query attention, SwiGLU.
//
//   x = x + o_proj(attention(rope(q_proj(n)), rope(k_proj(n)), v_proj(n)))
//       with n = input_layernorm(x)
//   x = x + down_proj(silu(gate_proj(n)) * up_proj(n))
//       with n = post_attention_layernorm(x)
//
// Mistral (Jiang et al., 2023, https://arxiv.org/abs/2310.06825) looks back through a window; Qwen2
// (Yang et al., 2024, https://arxiv.org/abs/2407.10671) has biases on q, k and v; Qwen3 (Yang et
// al., 2025, https://arxiv.org/abs/2505.09388) norms every head of q and k before the rotation.
//
//===----------------------------------------------------------------------===//

#include "ModelBuilder.h"

#include "easyquant/Import/ImportModel.h"

using namespace mlir;
using namespace easyquant;

static Value rmsNorm(ModelBuilder &b, Value input, const std::string &name) {
  Value weight = b.load(name + ".weight");
  return lm::RmsNormOp::create(b, b.at(name), input, weight,
                               b.getF64FloatAttr(b.config.normEpsilon));
}

static Value headNorm(ModelBuilder &b, Value input, const std::string &name) {
  Value weight = b.load(name + ".weight");
  return lm::HeadRmsNormOp::create(b, b.at(name), input.getType(), input, weight,
                                   b.getF64FloatAttr(b.config.normEpsilon));
}

static Value embedLLaMA(ModelBuilder &b, Value tokens, Value batch) {
  Value table = b.load("model.embed_tokens.weight");
  return lm::EmbeddingOp::create(b, b.at("model.embed_tokens"), tokens, table);
}

static void buildLLaMALayer(ModelBuilder &b, int64_t index) {
  func::FuncOp layer = b.startLayer(index);
  Value x = layer.getArgument(0), batch = layer.getArgument(1);
  const std::string prefix = "model.layers." + std::to_string(index) + ".";
  const std::string attention = prefix + "self_attn", mlp = prefix + "mlp";
  const bool qkvBias = b.config.qkvBias, mlpBias = b.config.mlpBias;

  Value normed = rmsNorm(b, x, prefix + "input_layernorm");
  Value q = b.linear(normed, attention + ".q_proj", qkvBias);
  Value k = b.linear(normed, attention + ".k_proj", qkvBias);
  Value v = b.linear(normed, attention + ".v_proj", qkvBias);
  if (b.config.hasHeadNorms()) {
    q = headNorm(b, q, attention + ".q_norm");
    k = headNorm(b, k, attention + ".k_norm");
  }
  Value table = b.load(kRopeTableName.str());
  auto rotate = [&](Value rows) -> Value {
    return lm::RopeOp::create(b, b.at(attention), rows, table, batch, b.config.headDim);
  };
  q = rotate(q);
  k = rotate(k);
  Value attended = b.attention(q, k, v, layer, index, attention);
  Value projected = b.linear(attended, attention + ".o_proj", b.config.outputBias);
  x = b.add(x, projected, attention);

  normed = rmsNorm(b, x, prefix + "post_attention_layernorm");
  Value gate = b.linear(normed, mlp + ".gate_proj", mlpBias);
  Value up = b.linear(normed, mlp + ".up_proj", mlpBias);
  Value activated = lm::SiluMulOp::create(b, b.at(mlp), gate, up);
  Value down = b.linear(activated, mlp + ".down_proj", mlpBias);
  b.finishLayer(b.add(x, down, mlp));
}

static Value finalLLaMANorm(ModelBuilder &b, Value input) {
  return rmsNorm(b, input, "model.norm");
}

const ArchitectureImporter easyquant::kLLaMAImporter = {
    embedLLaMA, buildLLaMALayer, finalLLaMANorm, "model.embed_tokens.weight", /*usesRope=*/true};
