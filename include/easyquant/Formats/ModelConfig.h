//===- ModelConfig.h - Hyperparameters of a model -----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_MODELCONFIG_H
#define EASYQUANT_FORMATS_MODELCONFIG_H

#include "easyquant/Formats/Architecture.h"
#include "easyquant/Formats/GGUF.h"
#include "easyquant/Numerics/Rope.h"
#include "easyquant/Support/Result.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace easyquant::formats {

/// Heads of a gated delta net, how many numbers a query or key of one has, and a value of one.
struct DeltaSizes {
  int64_t keyHeads = 0, keyDim = 0, valueHeads = 0, valueDim = 0;
  /// Value heads share key heads in turns, as in GGUF, rather than one key head's side by side.
  bool isTiled = false;

  bool operator==(const DeltaSizes &) const = default;
  int64_t keys() const { return keyHeads * keyDim; }
  int64_t values() const { return valueHeads * valueDim; }
  /// What its convolution is for: queries, keys and values.
  int64_t columns() const { return 2 * keys() + values(); }
};

struct ModelConfig;

/// A model that drafts for a larger one, whose keys and values its layers read (Gemma 4).
struct Assistant {
  /// Its own sizes; heads of keys and values are the model's. All layers share keys and values.
  std::shared_ptr<const ModelConfig> config;
  /// Clusters of as many tokens each, of which the best ones' tokens are chosen among; 0: none.
  int64_t clusters = 0, chosenClusters = 0;
};

/// What config.json, or the metadata of a GGUF file, says of a model. Every number has been checked
/// for range and for consistency with the others.
struct ModelConfig {
  const Architecture *architecture = nullptr;
  /// The checkpoint also has parts for pictures or sound, which are left out.
  bool isTextPart = false;
  /// Its Hugging Face checkpoint is of the architecture's denseForm.
  bool isDenseForm = false;
  /// Layers of heads that draft tokens. One is taken if the checkpoint has its weights
  /// (hasDraftHead), and lies behind the others: layer `numLayers`. More are left out.
  int64_t draftLayers = 0;
  bool hasDraftHead = false;
  /// What drafts in its place; none: there is nothing, or the head.
  std::optional<Assistant> assistant = {};
  int64_t vocabSize = 0;
  int64_t hiddenSize = 0;
  int64_t intermediateSize = 0;
  int64_t numLayers = 0;
  int64_t numHeads = 0;
  /// Divides numHeads; equal to it without grouped-query attention.
  int64_t numKVHeads = 0;
  int64_t headDim = 0;
  /// Both in layers without a window, where these have heads of their own; 0: they have not.
  int64_t fullKVHeads = 0, fullHeadDim = 0;
  /// Layers without a window make values of what k gives.
  bool sharesProjection = false;
  /// The last layers, so many, have no k and v: they read those of sourceOf(layer). Perhaps their
  /// MLPs have twice the columns.
  int64_t sharedKVLayers = 0;
  bool widensSharing = false;
  /// Where the model's cache has what layers of an assistant read, all of which are such.
  std::optional<int64_t> windowedSource = {}, fullSource = {};
  /// Numbers that each layer reads of a row of Architecture::layerEmbedding; 0: there is none.
  int64_t layerInputSize = 0;
  /// Longest context in tokens.
  int64_t maxContext = 0;
  /// Epsilon of RMSNorm or LayerNorm.
  double normEpsilon = 0.0;
  /// Angles of rotary positions; of LongRope in contexts of up to rope.originalPositions tokens.
  /// Its lateGain is that of queries alone.
  numerics::RopeParams rope;
  /// The same in layers with a window, where it is another.
  std::optional<numerics::RopeParams> windowedRope = {};
  /// LongRope: rope.divisors in longer contexts.
  std::vector<float> longDivisors;
  /// Which layers rotate q and k; empty: all.
  std::vector<bool> rotatedLayers;
  /// Tokens that a layer's attention sees, itself included; 0: all.
  int64_t slidingWindow = 0;
  /// Which layers have the window; empty: all, if there is one.
  std::vector<bool> windowedLayers;
  /// A mixture of experts in place of, or beside, every MLP but those of the first `denseLayers`:
  /// how many, how many of them a row chooses, their columns between up and down, and whether the
  /// weights of the chosen ones sum to 1. 0: none.
  int64_t experts = 0, expertsPerRow = 0, expertSize = 0, denseLayers = 0;
  bool renormalizesExperts = true;
  /// A bias has a part in choices; what weights are multiplied by.
  bool biasesChoices = false;
  double expertScale = 1.0;
  /// Columns of the expert that computes all rows; 0: there is none.
  int64_t sharedExpertSize = 0;
  /// Which layers have a short convolution or a gated delta net in the place of attention; empty:
  /// none. The convolution's weights a column, and whether it and its linears have biases.
  std::vector<bool> recurrentLayers = {};
  int64_t convolutionWidth = 0;
  bool convolutionBias = false;
  DeltaSizes delta = {};
  Activation activation = Activation::SiLU;
  /// Factors of embeddings and of what a block adds to the residual stream, divisor of logits.
  double embeddingFactor = 1.0, residualFactor = 1.0, logitDivisor = 1.0;
  /// Factor of products of queries and keys.
  double attentionScale = 0.0;
  /// Soft caps of these products, and of logits: bound * tanh(x / bound); 0: none.
  double attentionBound = 0.0, logitBound = 0.0;
  /// The output head uses the embedding's weights.
  bool tieWordEmbeddings = false;
  /// Biases of q, k and v, of o, and of gate, up and down.
  bool qkvBias = false, outputBias = false, mlpBias = false;
  std::optional<int64_t> bosTokenId;
  std::vector<int64_t> eosTokenIds;

  /// The angles of rotary positions in contexts of so many tokens.
  numerics::RopeParams ropeIn(int64_t context) const {
    numerics::RopeParams params = rope;
    if (rope.scaling == numerics::RopeScaling::LongRope && context > rope.originalPositions)
      params.divisors = longDivisors;
    if (context <= rope.originalPositions)
      params.lateGain = 0.0;
    return params;
  }
  /// Whether a layer has a recurrent state in the place of attention.
  bool isRecurrent(int64_t layer) const {
    return layer < std::ssize(recurrentLayers) && recurrentLayers[layer];
  }
  /// Layers with that of a head that drafts.
  int64_t allLayers() const { return numLayers + (hasDraftHead ? 1 : 0); }
  /// What the names of a layer's weights begin with: "model.layers.0.".
  std::string layerPrefix(int64_t layer) const;
  /// How many of the layers before `layer` have one.
  int64_t recurrentBefore(int64_t layer) const {
    return recurrentLayers.empty()
               ? 0
               : std::count(recurrentLayers.begin(), recurrentLayers.begin() + layer, true);
  }
  /// Numbers that a sequence keeps for the convolution of such a layer: the tokens before the next
  /// one. Behind them lie those of a gated delta net.
  int64_t convolutionState() const {
    return (convolutionWidth - 1) * (delta.keyHeads == 0 ? hiddenSize : delta.columns());
  }
  /// All that it keeps for such a layer.
  int64_t recurrentState() const { return convolutionState() + delta.values() * delta.keyDim; }
  bool hasExperts(int64_t layer) const { return experts != 0 && layer >= denseLayers; }
  /// Whether a layer has an MLP that computes all rows, beside experts or without.
  bool hasMlp(int64_t layer) const { return !hasExperts(layer) || architecture->experts.besideMlp; }
  /// Dimensions of a head, and key-value heads, of a layer's attention.
  int64_t headDimOf(int64_t layer) const {
    return fullHeadDim != 0 && windowOf(layer) == 0 ? fullHeadDim : headDim;
  }
  int64_t kvHeadsOf(int64_t layer) const {
    return fullKVHeads != 0 && windowOf(layer) == 0 ? fullKVHeads : numKVHeads;
  }
  /// Dimensions of a head that `rope` is for.
  int64_t ropeHeadDim() const { return fullHeadDim != 0 ? fullHeadDim : headDim; }
  /// Whether a layer has no v.
  bool sharesProjectionIn(int64_t layer) const { return sharesProjection && windowOf(layer) == 0; }
  /// Whether a layer reads the keys and values of another one.
  bool sharesKV(int64_t layer) const {
    return layer < numLayers && layer >= numLayers - sharedKVLayers;
  }
  /// The layer that makes the keys and values that a layer reads: itself, or the last one with a
  /// window, or without, as it has, that makes any.
  int64_t sourceOf(int64_t layer) const {
    if (!sharesKV(layer))
      return layer;
    int64_t source = numLayers - sharedKVLayers - 1;
    while (source >= 0 && windowOf(source) != windowOf(layer))
      --source;
    return source;
  }
  /// Whether another layer reads its keys and values.
  bool isSource(int64_t layer) const {
    for (int64_t reader = numLayers - sharedKVLayers; reader < numLayers; ++reader)
      if (sourceOf(reader) == layer)
        return true;
    return false;
  }
  /// Whether no layer makes keys and values: what they read is another model's.
  bool isAssistant() const { return sharedKVLayers == numLayers; }
  /// Where the cache has what a layer reads: its number among those that make keys and values.
  int64_t cachedLayer(int64_t layer) const {
    if (isAssistant())
      return (windowOf(layer) != 0 ? windowedSource : fullSource).value_or(0);
    const int64_t source = sourceOf(layer);
    return source - recurrentBefore(source) - (source >= numLayers ? sharedKVLayers : 0);
  }
  /// Where the cache has what the last layer with a window makes, or the last one without.
  std::optional<int64_t> lastCached(bool isWindowed) const {
    for (int64_t layer = numLayers - sharedKVLayers - 1; layer >= 0; --layer)
      if ((windowOf(layer) != 0) == isWindowed)
        return cachedLayer(layer);
    return std::nullopt;
  }
  /// Columns between up and down.
  int64_t intermediateOf(int64_t layer) const {
    return widensSharing && sharesKV(layer) ? 2 * intermediateSize : intermediateSize;
  }
  /// Columns of what q gives.
  int64_t queryColumns(int64_t layer) const {
    return (architecture->gatesAttention ? 2 : 1) * numHeads * headDimOf(layer);
  }
  /// Whether a layer rotates q and k.
  bool rotates(int64_t layer) const {
    return architecture->isRotary() && (rotatedLayers.empty() || rotatedLayers[layer]);
  }
  /// The window of the attention of a layer; 0: none.
  int64_t windowOf(int64_t layer) const {
    return windowedLayers.empty() || windowedLayers[layer] ? slidingWindow : 0;
  }
  /// Whether a layer rotates by `windowedRope`.
  bool hasWindowedRope(int64_t layer) const { return windowedRope && windowOf(layer) != 0; }
};

/// A size of ModelConfig, its field in an architecture's config.json, what it may be, and its key
/// in GGUF behind the architecture's name.
struct ConfigSize {
  int64_t ModelConfig::*member;
  SizeField Architecture::*field;
  int64_t largest;
  const char *gguf;
};
/// In an order in which defaults follow from what is known.
std::span<const ConfigSize> configSizes();

/// From the text of a config.json; `fileName` is for messages. Errors: Corrupt (not JSON, a field
/// that is missing or out of range), Unsupported (an architecture, activation, RoPE scaling or
/// quantized checkpoint that is not handled).
Result<ModelConfig> parseHuggingFaceConfig(std::string_view text, std::string_view fileName);

/// From the text of the config.json of an assistant that drafts for `model`, of a file `modelName`,
/// with the same errors, and for sizes that do not go with the model's.
Result<Assistant> parseAssistantConfig(std::string_view text, std::string_view fileName,
                                       const ModelConfig &model, std::string_view modelName);

/// From the metadata and tensor table of a GGUF header, with the same errors.
Result<ModelConfig> parseGGUFConfig(const GGUFHeader &header, std::string_view fileName);

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_MODELCONFIG_H
