//===- ModelTensors.h - The weights of an architecture ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_MODELTENSORS_H
#define EASYQUANT_FORMATS_MODELTENSORS_H

#include "easyquant/Formats/ModelConfig.h"
#include "easyquant/Formats/RowOrder.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace easyquant::formats {

/// The output head's module in Hugging Face checkpoints, tied or not.
inline constexpr const char *kHeadModule = "lm_head";

/// What the names of an assistant's tensors begin with, and its modules beside layers. The last has
/// the cluster of each token; checkpoints have the tokens of all clusters, one behind the other, in
/// kTokenOrdering, which has no prefix.
inline constexpr const char *kAssistantPrefix = "assistant.",
                            *kPreProjection = "assistant.pre_projection",
                            *kPostProjection = "assistant.post_projection",
                            *kAssistantHead = "assistant.lm_head",
                            *kCentroids = "assistant.masked_embedding.centroids",
                            *kTokenClusters = "assistant.masked_embedding.token_clusters",
                            *kTokenOrdering = "masked_embedding.token_ordering";

/// A weight that a configuration calls for.
struct ExpectedTensor {
  /// As ModelTensor: the name in a Hugging Face checkpoint and the logical shape.
  std::string name;
  std::vector<int64_t> shape;
  std::string ggufName;
  /// Hugging Face checkpoints hold K x N.
  bool isConv1D = false;
  /// Where a Hugging Face checkpoint has its rows and its columns, and where GGUF has them.
  RowOrder rows = {}, columns = {}, ggufRows = {}, ggufColumns = {};
  /// GGUF has -exp of it.
  bool isLogarithm = false;
  /// Hugging Face checkpoints hold the weight less this (Architecture::normOffset).
  float offset = 0.0f;
  /// Hugging Face checkpoints hold C x 1 x W.
  bool isDepthwise = false;
  /// If not 0: the rows are those of so many experts, one behind the other. Hugging Face
  /// checkpoints have a tensor for each (expertName()), GGUF one tensor of E x N x K.
  int64_t experts = 0;
  /// If not empty: all experts are in this tensor of Hugging Face checkpoints, E x K x (N · parts),
  /// or E x (N · parts), where every `stackParts`-th column from number `stackPart` on is of this
  /// weight. Codes of stacks lie behind "_blocks" and "_scales". With stacksRows it is
  /// E x (N · parts) x K, and has part number `stackPart` of an expert's rows.
  std::string stack = {};
  bool stacksRows = false;
  int64_t stackParts = 1, stackPart = 0;
  /// If not empty: GGUF may have it, too, as half of this tensor of E x 2N x K
  /// (kExpertGateUpInGGUF), the first one or the second: takeGGUFStack() has ggufName and ggufParts
  /// say so of a file in which it is there.
  std::string ggufStack = {};
  bool isSecondInGGUF = false;
  int64_t ggufParts = 1;
  /// GGUF has the one row of the matrix as a vector.
  bool isVectorInGGUF = false;

  void takeGGUFStack(const std::function<bool(const std::string &)> &isThere);
  /// The shape of the tensor in GGUF.
  std::vector<int64_t> ggufShape() const;
  /// Tensors of a Hugging Face checkpoint with the weight: their names, and the shape of each.
  std::vector<std::string> parts() const;
  std::vector<int64_t> partShape() const;
};

/// The name in a Hugging Face checkpoint of a weight of one of several experts:
/// "model.layers.0.mlp.experts.7.up_proj.weight" of "model.layers.0.mlp.experts.up_proj.weight".
std::string expertName(std::string_view name, int64_t expert);

/// All weights in the order of execution; those of an assistant come last.
std::vector<ExpectedTensor> expectedTensors(const ModelConfig &config);

/// Whether there is one head that drafts, of a kind that is known, as far as a configuration says.
bool canDraft(const ModelConfig &config);
/// Whether such a checkpoint has its weights, and no embedding or output head that is its own. Many
/// writers leave them out, and its layer in the configuration.
bool holdsDraftHead(const ModelConfig &config, bool isGGUF,
                    const std::function<bool(const std::string &)> &isThere);

/// Whether a Hugging Face checkpoint of this model may hold a tensor that is not expected: buffers
/// that follow from the configuration, the head of a model that ties it to the embedding, and one
/// that drafts.
bool isRedundant(const ModelConfig &config, std::string_view name);

/// The same of GGUF, which has layers that draft behind the others.
bool isRedundantInGGUF(const ModelConfig &config, std::string_view name);

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_MODELTENSORS_H
