//===- Checkpoint.h - The tensors of a container as stored --------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_FORMATS_CHECKPOINT_H
#define EASYQUANT_LIB_FORMATS_CHECKPOINT_H

#include "easyquant/Formats/Codecs/StoredWeight.h"
#include "easyquant/Formats/GGUF.h"
#include "easyquant/Formats/ModelConfig.h"
#include "easyquant/Formats/Safetensors.h"

#include <filesystem>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace easyquant::formats {

/// A tensor in a mapped file. `typeName` is what the container calls its type; `type` has the same
/// layout, and is null for one that weights cannot have (integers, fp64, ...). What was made of
/// others is in no file.
struct StoredTensor {
  const MappedFile *file = nullptr;
  std::span<const std::byte> data;
  std::vector<int64_t> shape;
  std::string typeName;
  const GGMLTypeInfo *type = nullptr;
};

/// An opened container with its configuration: nothing has been compared with the architecture yet.
struct Checkpoint {
  ModelConfig config;
  /// By the name in the container, without the architecture's optional prefix.
  std::unordered_map<std::string, StoredTensor> tensors;
  /// The type that a config.json alone says its weights will have: "BF16"; else "unknown".
  std::string floatType = "unknown";
  /// What config.json says of linears whose weights are codes; null where it says nothing.
  std::unique_ptr<StoredWeights> quantization;
  /// Every file that defines the model, in the order of ModelSource::hash().
  std::vector<const MappedFile *> files;

  // Owners of the mappings.
  std::vector<std::unique_ptr<MappedFile>> documents;
  std::vector<std::unique_ptr<SafetensorsFile>> shards;
  std::unique_ptr<GGUFFile> gguf;
  std::vector<std::vector<float>> made; ///< what tensors in no file are
};

Result<Checkpoint> openHuggingFace(const std::filesystem::path &folder);
/// A config.json alone: `tensors` is empty.
Result<Checkpoint> openConfiguration(const std::filesystem::path &path);
Result<Checkpoint> openGGUF(const std::filesystem::path &path);

/// An assistant for `model`, which `modelName` has: a Hugging Face folder, or a config.json alone,
/// which has no tensors. `config` is its own, and has itself as its assistant.
Result<Checkpoint> openAssistant(const std::filesystem::path &path, const ModelConfig &model,
                                 const std::string &modelName);
/// Adds to the checkpoint of a model the assistant that drafts for it, whose tensors then have the
/// names that ExpectedTensor has. A configuration goes with a configuration alone. Errors: those of
/// openAssistant, NotFound (a tensor), Corrupt (its shape, the clusters of tokens), Unsupported
/// (its type, one that has no place); each names the file.
Result<void> addAssistant(Checkpoint &checkpoint, const std::filesystem::path &model,
                          const std::filesystem::path &assistant);

} // namespace easyquant::formats

#endif // EASYQUANT_LIB_FORMATS_CHECKPOINT_H
