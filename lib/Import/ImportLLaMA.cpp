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
//   x = x + o_proj(attention(rope(q_proj(n)), rope(k_proj(n)), v_proj(n)))    n =
//   input_layernorm(x) x = x + down_proj(silu(gate_proj(n)) * up_proj(n))              n =
//   post_attention_layernorm(x)
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

static Value embed(ModelBuilder &b, Value tokens, Value position) {
  Value table = b.load("model.embed_tokens.weight");
  return lm::EmbeddingOp::create(b, b.at("model.embed_tokens"), tokens, table);
}

static void buildLayer(ModelBuilder &b, int64_t index) {
  func::FuncOp layer = b.startLayer(index);
  Value x = layer.getArgument(0), position = layer.getArgument(1);
  const std::string prefix = "model.layers." + std::to_string(index) + ".";
  const std::string attention = prefix + "self_attn", mlp = prefix + "mlp";
  const bool attentionBias = b.config.attentionBias, mlpBias = b.config.mlpBias;

  Value normed = rmsNorm(b, x, prefix + "input_layernorm");
  Value q = b.linear(normed, attention + ".q_proj", attentionBias);
  Value k = b.linear(normed, attention + ".k_proj", attentionBias);
  Value v = b.linear(normed, attention + ".v_proj", attentionBias);
  Value table = b.load(kRopeTableName.str());
  auto rotate = [&](Value rows) -> Value {
    return lm::RopeOp::create(b, b.at(attention), rows, table, position, b.config.headDim);
  };
  q = rotate(q);
  k = rotate(k);
  Value attended = b.attention(q, k, v, layer, index, attention);
  Value projected = b.linear(attended, attention + ".o_proj", attentionBias);
  x = b.add(x, projected, attention);

  normed = rmsNorm(b, x, prefix + "post_attention_layernorm");
  Value gate = b.linear(normed, mlp + ".gate_proj", mlpBias);
  Value up = b.linear(normed, mlp + ".up_proj", mlpBias);
  Value activated = lm::SiluMulOp::create(b, b.at(mlp), gate, up);
  Value down = b.linear(activated, mlp + ".down_proj", mlpBias);
  b.finishLayer(b.add(x, down, mlp));
}

static Value finalNorm(ModelBuilder &b, Value input) { return rmsNorm(b, input, "model.norm"); }

const ArchitectureImporter easyquant::kLLaMAImporter = {
    embed, buildLayer, finalNorm, "model.embed_tokens.weight", /*usesRope=*/true};
