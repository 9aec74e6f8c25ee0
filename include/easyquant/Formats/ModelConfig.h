//===- ModelConfig.h - Hyperparameters of a model -----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_MODELCONFIG_H
#define EASYQUANT_FORMATS_MODELCONFIG_H

#include "easyquant/Formats/GGUF.h"
#include "easyquant/Support/Result.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace easyquant::formats {

enum class Architecture { LLaMA, GPT2 };
/// "llama" or "gpt2": `model_type` of config.json and `general.architecture` of GGUF.
std::string_view architectureName(Architecture architecture);

enum class Activation {
  SiLU,     ///< x * sigmoid(x)
  GeluTanh, ///< the tanh approximation: "gelu_new", "gelu_pytorch_tanh"
  GeluErf,  ///< the exact one: "gelu"
};
/// The name that config.json uses: "silu", "gelu_new", "gelu".
std::string_view activationName(Activation activation);

/// What config.json, or the metadata of a GGUF file, says of a model. Every number has been checked
/// for range and for consistency with the others.
struct ModelConfig {
  Architecture architecture = Architecture::LLaMA;
  int64_t vocabSize = 0;
  int64_t hiddenSize = 0;
  int64_t intermediateSize = 0;
  int64_t numLayers = 0;
  int64_t numHeads = 0;
  /// Divides numHeads; equal to it without grouped-query attention.
  int64_t numKVHeads = 0;
  int64_t headDim = 0;
  /// Longest context in tokens.
  int64_t maxContext = 0;
  /// Epsilon of RMSNorm or LayerNorm.
  double normEpsilon = 0.0;
  /// Base of the rotary angles: pair i of D/2 turns by position * theta^(-2i/D). LLaMA only.
  double ropeTheta = 0.0;
  Activation activation = Activation::SiLU;
  /// The output head uses the embedding's weights.
  bool tieWordEmbeddings = false;
  /// Biases of q, k, v, o, and of gate, up, down (LLaMA; GPT-2 always has biases).
  bool attentionBias = false, mlpBias = false;
  std::optional<int64_t> bosTokenId;
  std::vector<int64_t> eosTokenIds;
};

/// From the text of a config.json; `fileName` is for messages. Errors: Corrupt (not JSON, a field
/// that is missing or out of range), Unsupported (an architecture, activation, RoPE scaling or
/// quantized checkpoint that is not handled).
Result<ModelConfig> parseHuggingFaceConfig(std::string_view text, std::string_view fileName);

/// From the metadata and tensor table of a GGUF header, with the same errors.
Result<ModelConfig> parseGGUFConfig(const GGUFHeader &header, std::string_view fileName);

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_MODELCONFIG_H
