//===- ModelSource.h - A model on disk, whatever its container ----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_MODELSOURCE_H
#define EASYQUANT_FORMATS_MODELSOURCE_H

#include "easyquant/Formats/Codecs/StoredWeight.h"
#include "easyquant/Formats/ModelConfig.h"
#include "easyquant/Support/Result.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace easyquant::formats {

/// A weight as the model uses it.
struct ModelTensor {
  /// The name in a Hugging Face checkpoint, whatever the source (GPT-2 without the "transformer."
  /// prefix that some checkpoints carry).
  std::string name;
  /// Linears are N x K (out features x in features) even where the file holds K x N (GPT-2's
  /// Conv1D); the rows of LLaMA's q_proj and k_proj are in Hugging Face order even where the file
  /// holds llama.cpp's (GGUF).
  std::vector<int64_t> shape;
  /// Type in the file: "F32", "BF16", "Q4_1", ...; the scheme of codes beside scales: "int4
  /// symmetric full range, groups of 64, f16 scales".
  std::string storedType;

  int64_t elements() const;
  /// Has the file floats of it?
  bool isFloat() const;
};

/// The name of a part of a site's weight, where the part is a tensor of its own:
/// "model.layers.0.mlp.up_proj.weight_codes".
std::string partName(std::string_view site, numerics::WeightTensor part);
/// The name of the order of its columns (StoredWeight::order):
/// "model.layers.0.mlp.up_proj.weight_order".
std::string orderName(std::string_view site);

/// The name of a Hugging Face folder, or of the download that it is.
std::string nameOfModel(const std::filesystem::path &folder);

/// A model on disk: a Hugging Face folder (config.json with model.safetensors, or with
/// model.safetensors.index.json and its shards), a GGUF file, or a config.json alone, which has the
/// names and shapes of weights and nothing to read (NotFound). Weights stay mapped; reading
/// converts to f32, and weights that the file has in codes are what these stand for. Opening has
/// checked that every tensor of the architecture is there with its shape, and that no other is.
/// Reading is thread-safe.
class ModelSource {
public:
  enum class Kind { HuggingFace, GGUF };

  /// Errors: NotFound (path, shard or tensor), Corrupt, Unsupported, IO; each names the file.
  /// `assistant` is the Hugging Face folder of a model that drafts for this one, or its config.json
  /// beside that of the model; empty: there is none. Its tensors, whose names begin with
  /// kAssistantPrefix, come behind those of the model.
  static Result<ModelSource> open(const std::filesystem::path &path,
                                  const std::filesystem::path &assistant = {});

  ModelSource(ModelSource &&) noexcept;
  ModelSource &operator=(ModelSource &&) noexcept;
  ~ModelSource();

  Kind kind() const;
  /// "huggingface" or "gguf".
  std::string_view kindName() const;
  const std::filesystem::path &path() const;
  /// Empty where there is none.
  const std::filesystem::path &assistantPath() const;
  /// The folder's or file's name, without ".gguf".
  std::string name() const;
  const ModelConfig &config() const;

  /// Every weight once, in the order of execution: embedding, layers, final norm, and the head
  /// unless it is tied to the embedding.
  std::span<const ModelTensor> tensors() const;
  /// Null if the model has no weight of that name.
  const ModelTensor *find(std::string_view name) const;

  /// The weight of a linear ("model.layers.0.mlp.up_proj") that the file has in codes; null where
  /// it has floats.
  const StoredWeight *storedWeight(std::string_view site) const;
  /// What the user should know of what is taken, and how: sentences without a period.
  std::vector<std::string> notes() const;
  /// Is the model one whose codes are to be kept: are some of its linears in codes of a scheme, and
  /// no weight in others, as types of GGUF may be?
  bool isQuantized() const;
  /// The shape of a part of such a weight, by partName; nothing where there is none.
  std::optional<std::vector<int64_t>> partShape(std::string_view name) const;

  /// Elements of all weights.
  int64_t parameters() const;
  /// How many weights are stored in which type.
  std::map<std::string, int64_t> storedTypes() const;
  /// Hexadecimal XXH3-128 of the contents of the files that define the model, one after the other.
  /// These are the GGUF file, or config.json, generation_config.json and the index where there are
  /// any, and the weight files in the order of their names. Reads them all.
  Result<std::string> hash() const;

  /// The whole weight, row-major. `out` must have its number of elements. Errors: NotFound (no such
  /// name), InvalidArgument (the size of `out`), Corrupt (a value that is not finite).
  Result<void> read(std::string_view name, std::span<float> out) const;
  /// Rows [firstRow, firstRow + rows) of a weight, or of scales by partName; a vector has one
  /// element a row. `out` must have rows * (elements / shape[0]) elements.
  Result<void> readRows(std::string_view name, int64_t firstRow, int64_t rows,
                        std::span<float> out) const;
  /// The same of codes, and of zero points or an order of columns. Errors: those of
  /// StoredWeight::codes, too.
  Result<void> readRows(std::string_view name, int64_t firstRow, int64_t rows,
                        std::span<int8_t> out) const;
  Result<void> readRows(std::string_view name, int64_t firstRow, int64_t rows,
                        std::span<int32_t> out) const;
  /// The pages of a weight that was read in small pieces leave memory; larger reads see to that
  /// themselves. Nothing happens if there is no such weight.
  void release(std::string_view name) const;

private:
  struct Impl;
  explicit ModelSource(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_MODELSOURCE_H
