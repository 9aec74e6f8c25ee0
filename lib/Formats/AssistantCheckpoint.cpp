//===- AssistantCheckpoint.cpp - Weights of what drafts for a model -------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Checkpoint.h"
#include "Text.h"

#include "easyquant/Formats/ModelTensors.h"

#include <algorithm>
#include <cstring>
#include <iterator>

using namespace easyquant;
using namespace easyquant::formats;
namespace fs = std::filesystem;

/// The cluster of each token, as floats: what lm.mask_clusters reads. The tensor has the tokens of
/// all clusters, one behind the other.
static Result<std::vector<float>> clustersOf(const StoredTensor &ordering, const std::string &where,
                                             int64_t tokens, int64_t clusters) {
  const bool isLong = ordering.typeName == "I64";
  if (ordering.shape != std::vector{tokens})
    return makeError(ErrorCode::Corrupt, "{}: expected shape {}, found {}", where,
                     shapeText(std::vector{tokens}), shapeText(ordering.shape));
  if (!isLong && ordering.typeName != "I32")
    return makeError(ErrorCode::Unsupported,
                     "{}: numbers of type {} are not supported; expected "
                     "I64 or I32",
                     where, ordering.typeName);
  std::vector<float> result(static_cast<size_t>(tokens), -1.0f);
  const int64_t size = tokens / clusters;
  for (int64_t place = 0; place < tokens; ++place) {
    int64_t token = 0;
    if (isLong) {
      std::memcpy(&token, ordering.data.data() + place * sizeof(int64_t), sizeof(int64_t));
    } else {
      int32_t narrow = 0;
      std::memcpy(&narrow, ordering.data.data() + place * sizeof(int32_t), sizeof(int32_t));
      token = narrow;
    }
    if (token < 0 || token >= tokens || result[static_cast<size_t>(token)] >= 0)
      return makeError(ErrorCode::Corrupt,
                       "{}: place {} has token {}; expected each of the tokens 0..{} once", where,
                       place, token, tokens - 1);
    result[static_cast<size_t>(token)] = static_cast<float>(place / size);
  }
  return result;
}

/// The checkpoint's tensor of that name, of which it is said where it is, in `where`.
static Result<StoredTensor> take(Checkpoint &part, const std::string &name,
                                 const std::string &where) {
  auto found = part.tensors.extract(name);
  if (!found)
    return makeError(ErrorCode::NotFound, "{} is missing", where);
  return std::move(found.mapped());
}

/// Moves what the configuration calls for from `part` to the checkpoint.
static Result<void> takeTensors(Checkpoint &part, const fs::path &path, Checkpoint &checkpoint) {
  auto where = [&](const std::string &name) {
    return fmt::format("{}: tensor {}", path.string(), quote(name));
  };
  const std::string prefix = kAssistantPrefix;
  const Assistant &assistant = *checkpoint.config.assistant;
  for (const ExpectedTensor &tensor : expectedTensors(checkpoint.config)) {
    if (!tensor.name.starts_with(prefix))
      continue;
    const bool isMade = tensor.name == kTokenClusters;
    const std::string name = isMade ? kTokenOrdering : tensor.name.substr(prefix.size());
    Result<StoredTensor> stored = take(part, name, where(name));
    if (!stored)
      return Unexpected(stored.error());
    if (isMade) {
      auto clusters =
          clustersOf(*stored, where(name), assistant.config->vocabSize, assistant.clusters);
      if (!clusters)
        return Unexpected(clusters.error());
      checkpoint.made.push_back(std::move(*clusters));
      const std::vector<float> &made = checkpoint.made.back();
      *stored = {nullptr, std::as_bytes(std::span(made)), tensor.shape, "F32",
                 ggmlTypeInfo(static_cast<uint32_t>(GGMLType::F32))};
    }
    if (stored->shape != tensor.shape)
      return makeError(ErrorCode::Corrupt, "{}: expected shape {}, found {}", where(name),
                       shapeText(tensor.shape), shapeText(stored->shape));
    if (!stored->type)
      return makeError(ErrorCode::Unsupported,
                       "{}: weights of type {} are not supported; expected F32, F16 or BF16",
                       where(name), stored->typeName);
    checkpoint.tensors.emplace(tensor.name, std::move(*stored));
  }
  return {};
}

Result<void> formats::addAssistant(Checkpoint &checkpoint, const fs::path &model,
                                   const fs::path &assistant) {
  Result<Checkpoint> part = openAssistant(assistant, checkpoint.config, model.string());
  if (!part)
    return Unexpected(part.error());
  checkpoint.config.assistant = part->config.assistant;
  if (model.extension() == ".json")
    return {};
  if (part->shards.empty())
    return makeError(ErrorCode::InvalidArgument,
                     "{}: a configuration alone has no weights; give the folder that holds them",
                     assistant.string());
  if (Result<void> taken = takeTensors(*part, assistant, checkpoint); !taken)
    return taken;
  std::string other; // the first that has no place, if any
  for (const auto &[name, stored] : part->tensors) {
    const bool isUnused = name == "lm_head.weight" || name == "model.embed_tokens.weight" ||
                          isRedundant(part->config, kAssistantPrefix + name);
    if (!isUnused && (other.empty() || name < other))
      other = name;
  }
  if (!other.empty())
    return makeError(ErrorCode::Unsupported,
                     "{}: tensor {} has no place in a {} model of this configuration",
                     assistant.string(), quote(other), part->config.architecture->name);
  std::ranges::move(part->documents, std::back_inserter(checkpoint.documents));
  std::ranges::move(part->shards, std::back_inserter(checkpoint.shards));
  return {};
}
