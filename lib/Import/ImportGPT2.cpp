//===- ImportGPT2.cpp - GPT-2 as lm IR ------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Radford et al., 2019: learned positions, LayerNorm before each half of a block, one projection
// for q, k and v, GELU, biases everywhere.
//
//   x = x + c_proj(attention(split(c_attn(ln_1(x)))))
//   x = x + c_proj(gelu(c_fc(ln_2(x))))
//
//===----------------------------------------------------------------------===//

#include "ModelBuilder.h"

using namespace mlir;
using namespace easyquant;

static Value layerNorm(ModelBuilder &b, Value input, const std::string &name) {
  Value weight = b.load(name + ".weight");
  Value bias = b.load(name + ".bias");
  return lm::LayerNormOp::create(b, b.at(name), input, weight, bias,
                                 b.getF64FloatAttr(b.config.normEpsilon));
}

static Value embedGPT2(ModelBuilder &b, Value tokens, Value batch) {
  Value table = b.load("wte.weight");
  Value embedded = lm::EmbeddingOp::create(b, b.at("wte"), tokens, table);
  Value positions = b.load("wpe.weight");
  return lm::PositionEmbeddingOp::create(b, b.at("wpe"), embedded, positions, batch);
}

static void buildGPT2Layer(ModelBuilder &b, int64_t index) {
  func::FuncOp layer = b.startLayer(index);
  Value x = layer.getArgument(0);
  const int64_t hidden = b.config.hiddenSize;
  const std::string prefix = "h." + std::to_string(index) + ".";
  const std::string attention = prefix + "attn", mlp = prefix + "mlp";

  Value normed = layerNorm(b, x, prefix + "ln_1");
  Value qkv = b.linear(normed, attention + ".c_attn", /*bias=*/true);
  auto parts =
      lm::SplitOp::create(b, b.at(attention), qkv, ArrayRef<int64_t>{hidden, hidden, hidden});
  Value attended = b.attention(parts.getResult(0), parts.getResult(1), parts.getResult(2), layer,
                               index, attention);
  Value projected = b.linear(attended, attention + ".c_proj", /*bias=*/true);
  x = b.add(x, projected, attention);

  normed = layerNorm(b, x, prefix + "ln_2");
  Value inner = b.linear(normed, mlp + ".c_fc", /*bias=*/true);
  auto approximation = b.config.activation == formats::Activation::GeluTanh
                           ? lm::GeluApproximation::Tanh
                           : lm::GeluApproximation::None;
  Value activated = lm::GeluOp::create(b, b.at(mlp), inner, approximation);
  Value down = b.linear(activated, mlp + ".c_proj", /*bias=*/true);
  b.finishLayer(b.add(x, down, mlp));
}

static Value finalGPT2Norm(ModelBuilder &b, Value input) { return layerNorm(b, input, "ln_f"); }

const ArchitectureImporter easyquant::kGPT2Importer = {embedGPT2, buildGPT2Layer, finalGPT2Norm,
                                                       "wte.weight",
                                                       /*usesRope=*/false};
