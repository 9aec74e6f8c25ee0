//===- ModelConfig.h - Hyperparameters of a model -----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_MODELCONFIG_H
#define EASYQUANT_FORMATS_MODELCONFIG_H

#include "easyquant/Formats/GGUF.h"
#include "easyquant/Numerics/Rope.h"
#include "easyquant/Support/Result.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace easyquant::formats {

/// Mistral, Qwen2 and Qwen3 are LLaMA with, respectively: a window of attention; biases on q, k and
/// v; an RMS norm of every head of q and k.
enum class Architecture { LLaMA, GPT2, Mistral, Qwen2, Qwen3 };
/// "llama", "gpt2", "mistral", ...: `model_type` of config.json and `general.architecture` of GGUF.
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
  /// Rotary angles; not GPT-2, which has learned positions.
  numerics::RopeParams rope;
  /// Tokens that a layer's attention sees, itself included; 0: all. GPT-2 and LLaMA have none.
  int64_t slidingWindow = 0;
  /// Which layers have the window; empty: all, if there is one.
  std::vector<bool> windowedLayers;
  Activation activation = Activation::SiLU;
  /// The output head uses the embedding's weights.
  bool tieWordEmbeddings = false;
  /// Biases of q, k and v, of o, and of gate, up and down; GPT-2 always has all.
  bool qkvBias = false, outputBias = false, mlpBias = false;
  std::optional<int64_t> bosTokenId;
  std::vector<int64_t> eosTokenIds;

  /// LLaMA and its descendants: RMSNorm, rotary positions, SwiGLU.
  bool isLLaMALike() const { return architecture != Architecture::GPT2; }
  /// q_norm and k_norm: RMS norms of each head, before the rotation.
  bool hasHeadNorms() const { return architecture == Architecture::Qwen3; }
  /// The window of the attention of a layer; 0: none.
  int64_t windowOf(int64_t layer) const {
    return windowedLayers.empty() || windowedLayers[layer] ? slidingWindow : 0;
  }
};

/// From the text of a config.json; `fileName` is for messages. Errors: Corrupt (not JSON, a field
/// that is missing or out of range), Unsupported (an architecture, activation, RoPE scaling or
/// quantized checkpoint that is not handled).
Result<ModelConfig> parseHuggingFaceConfig(std::string_view text, std::string_view fileName);

/// From the metadata and tensor table of a GGUF header, with the same errors.
Result<ModelConfig> parseGGUFConfig(const GGUFHeader &header, std::string_view fileName);

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_MODELCONFIG_H
