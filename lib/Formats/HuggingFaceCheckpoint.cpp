//===- HuggingFaceCheckpoint.cpp - Models in Hugging Face folders ---------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Checkpoint.h"
#include "ConfigChecks.h"
#include "Text.h"

#include "easyquant/Formats/ModelSource.h"
#include "easyquant/Support/FieldReader.h"

#include <map>
#include <optional>

using namespace easyquant;
using namespace easyquant::formats;
namespace fs = std::filesystem;

namespace {

constexpr const char *kWeights = "model.safetensors";
constexpr const char *kIndex = "model.safetensors.index.json";
constexpr const char *kModelOptConfig = "hf_quant_config.json";
/// Largest JSON document that is read: an index of a very large model has a few megabytes.
constexpr size_t kLargestDocument = size_t(64) << 20;

bool isThere(const fs::path &path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// Maps a JSON document and keeps it with the checkpoint; returns its text.
Result<std::string_view> addDocument(Checkpoint &checkpoint, const fs::path &path) {
  Result<MappedFile> file = MappedFile::open(path);
  if (!file)
    return Unexpected(file.error());
  if (file->bytes().size() > kLargestDocument)
    return makeError(ErrorCode::Corrupt, "{}: {} bytes; expected at most {}", path.string(),
                     file->bytes().size(), kLargestDocument);
  checkpoint.documents.push_back(std::make_unique<MappedFile>(std::move(*file)));
  const MappedFile &document = *checkpoint.documents.back();
  checkpoint.files.push_back(&document);
  return document.text();
}

/// A shard is a file of the folder itself: any other path could make us read what the folder's
/// author must not see.
bool isFileName(std::string_view name) {
  return isPlainName(name) && name != "." && name != ".." &&
         name.find_first_of("/\\") == std::string_view::npos;
}

/// The tensors of every shard, after checking the index.
Result<std::map<std::string, std::vector<std::string>>> parseIndex(std::string_view text,
                                                                   const fs::path &path) {
  Result<Json> index = Json::parseObject(text, path.string());
  if (!index)
    return Unexpected(index.error());
  std::map<std::string, std::string> shardOf;
  const std::string document = path.string();
  FieldReader fields(*index, document);
  fields.required("weight_map", shardOf);
  fields.check(!shardOf.empty(), "weight_map", "no tensor", "the shard of each tensor");
  if (fields.failed())
    return Unexpected(fields.result().error());
  std::map<std::string, std::vector<std::string>> shards;
  for (const auto &[tensor, name] : shardOf) {
    if (!isFileName(name))
      return makeError(ErrorCode::Corrupt,
                       "{}: weight_map: tensor {}: {} is not the name of a file in the folder",
                       path.string(), quote(tensor), quote(name));
    shards[name].push_back(tensor);
  }
  return shards;
}

Result<const SafetensorsFile *> addShard(Checkpoint &checkpoint, const fs::path &path) {
  Result<SafetensorsFile> shard = SafetensorsFile::open(path);
  if (!shard)
    return Unexpected(shard.error());
  checkpoint.shards.push_back(std::make_unique<SafetensorsFile>(std::move(*shard)));
  const SafetensorsFile *added = checkpoint.shards.back().get();
  checkpoint.files.push_back(&added->mapping());
  return added;
}

/// The layout that a safetensors type shares with a GGUF one, for types that weights can have.
const GGMLTypeInfo *weightType(DType dtype) {
  for (GGMLType type : {GGMLType::F32, GGMLType::F16, GGMLType::BF16})
    if (const GGMLTypeInfo *info = ggmlTypeInfo(static_cast<uint32_t>(type));
        info->name == dtypeName(dtype))
      return info;
  return nullptr;
}

/// The name in the text part of a tensor of a model that has other parts, too; nothing if it is
/// theirs. transformers 5 writes the first form, 4 the second one; some files of the text part
/// alone have the configuration of the whole model.
std::optional<std::string> nameInTextPart(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> forms[] = {
      {"model.language_model.", "model."},
      {"language_model.model.", "model."},
      {"language_model.lm_head.", "lm_head."},
      {"lm_head.", "lm_head."},
      {"model.embed_tokens.", "model.embed_tokens."},
      {"model.embed_tokens_per_layer.", "model.embed_tokens_per_layer."},
      {"model.per_layer_", "model.per_layer_"},
      {"model.layers.", "model.layers."},
      {"model.norm.", "model.norm."},
      {"mtp.", "mtp."}};
  for (auto [form, text] : forms)
    if (name.starts_with(form))
      return std::string(text).append(name.substr(form.size()));
  return std::nullopt;
}

/// The weights that a tensor of an architecture's dense form is: gate and up, down, or itself.
std::vector<std::pair<std::string, StoredTensor>>
ofDenseForm(const Architecture &architecture, std::string name, StoredTensor tensor) {
  const std::string gateUp = fmt::format(".{}.weight", architecture.denseForm.gateUp),
                    down = fmt::format(".{}.weight", architecture.denseForm.down);
  auto named = [&](std::string_view end, const char *module) {
    return fmt::format("{}.{}.weight", name.substr(0, name.size() - end.size()), module);
  };
  if (name.ends_with(down))
    return {{named(down, architecture.layer.down.name), std::move(tensor)}};
  if (!name.ends_with(gateUp) || tensor.shape.empty() || tensor.shape.front() % 2 != 0)
    return {{std::move(name), std::move(tensor)}};
  StoredTensor gate = tensor, up = tensor;
  gate.shape.front() = up.shape.front() = tensor.shape.front() / 2;
  gate.data = tensor.data.first(tensor.data.size() / 2);
  up.data = tensor.data.subspan(gate.data.size());
  return {{named(gateUp, architecture.layer.gate.name), std::move(gate)},
          {named(gateUp, architecture.layer.up.name), std::move(up)}};
}

Result<void> addTensor(Checkpoint &checkpoint, const SafetensorsFile &shard,
                       const SafetensorsTensor &tensor) {
  std::string_view name = tensor.name;
  const std::string_view prefix = checkpoint.config.architecture->optionalPrefix;
  if (name.starts_with(prefix))
    name.remove_prefix(prefix.size());
  const std::optional<std::string> ofText =
      checkpoint.config.isTextPart ? nameInTextPart(name) : std::string(name);
  if (!ofText)
    return {};
  StoredTensor stored{&shard.mapping(), shard.data(tensor), tensor.shape,
                      std::string(dtypeName(tensor.dtype)), weightType(tensor.dtype)};
  std::vector<std::pair<std::string, StoredTensor>> weights;
  if (checkpoint.config.isDenseForm)
    weights = ofDenseForm(*checkpoint.config.architecture, *ofText, std::move(stored));
  else
    weights.emplace_back(*ofText, std::move(stored));
  for (auto &[weight, part] : weights)
    if (!checkpoint.tensors.emplace(weight, std::move(part)).second)
      return makeError(ErrorCode::Corrupt,
                       "{}: tensor {} is there under two names, one of which is {}",
                       shard.path().string(), quote(weight), quote(tensor.name));
  return {};
}

Result<void> addSharded(Checkpoint &checkpoint, const fs::path &folder) {
  Result<std::string_view> text = addDocument(checkpoint, folder / kIndex);
  if (!text)
    return Unexpected(text.error());
  auto shards = parseIndex(*text, folder / kIndex);
  if (!shards)
    return Unexpected(shards.error());
  for (const auto &[name, tensors] : *shards) {
    if (!isThere(folder / name))
      return makeError(ErrorCode::NotFound,
                       "{}: shard {} is missing; {} says that it holds tensor {} and {} more; "
                       "complete the download",
                       folder.string(), quote(name), kIndex, quote(tensors.front()),
                       tensors.size() - 1);
    Result<const SafetensorsFile *> shard = addShard(checkpoint, folder / name);
    if (!shard)
      return Unexpected(shard.error());
    for (const std::string &tensor : tensors) {
      const SafetensorsTensor *found = (*shard)->find(tensor);
      if (!found)
        return makeError(ErrorCode::Corrupt, "{}: tensor {} is missing; {} says that it is here",
                         (*shard)->path().string(), quote(tensor), kIndex);
      if (Result<void> added = addTensor(checkpoint, **shard, *found); !added)
        return added;
    }
  }
  return {};
}

Result<void> addWeights(Checkpoint &checkpoint, const fs::path &folder) {
  if (isThere(folder / kWeights)) {
    Result<const SafetensorsFile *> shard = addShard(checkpoint, folder / kWeights);
    if (!shard)
      return Unexpected(shard.error());
    for (const SafetensorsTensor &tensor : (*shard)->tensors())
      if (Result<void> added = addTensor(checkpoint, **shard, tensor); !added)
        return added;
    return {};
  }
  if (isThere(folder / kIndex))
    return addSharded(checkpoint, folder);
  bool pickled =
      isThere(folder / "pytorch_model.bin") || isThere(folder / "pytorch_model.bin.index.json");
  return makeError(
      ErrorCode::NotFound, "{}: neither {} nor {} is there{}", folder.string(), kWeights, kIndex,
      pickled ? "; save the PyTorch checkpoint again with safe_serialization=True" : "");
}

/// Files of ModelOpt before it wrote config.json, too, say the same in a document of their own.
Result<void> readModelOptDocument(Checkpoint &checkpoint, const fs::path &path) {
  if (!isThere(path))
    return {};
  Result<std::string_view> text = addDocument(checkpoint, path);
  if (!text)
    return Unexpected(text.error());
  const std::string document = path.string();
  Result<Json> object = Json::parseObject(*text, document);
  if (!object)
    return Unexpected(object.error());
  FieldReader fields(*object, document, {.nullIsAbsent = true});
  const Json *found = fields.find("quantization");
  fields.check(found && found->isObject(), "quantization", found ? found->describe() : "nothing",
               "an object");
  if (fields.failed())
    return fields.result();
  Json::Object config(found->members().begin(), found->members().end());
  config["quant_method"] = "modelopt";
  auto weights = readQuantizationConfig(std::move(config), document);
  if (!weights)
    return Unexpected(weights.error());
  checkpoint.quantization = std::move(*weights);
  return {};
}

Result<void> readQuantization(Checkpoint &checkpoint, std::string_view config,
                              const std::string &path) {
  Result<Json> object = Json::parseObject(config, path);
  if (!object)
    return Unexpected(object.error());
  FieldReader fields(*object, path, {.nullIsAbsent = true});
  const Json *found = fields.find("quantization_config");
  if (!found)
    return readModelOptDocument(checkpoint, fs::path(path).parent_path() / kModelOptConfig);
  fields.check(found->isObject(), "quantization_config", found->describe(), "an object");
  if (fields.failed())
    return fields.result();
  auto weights = readQuantizationConfig(*found, path);
  if (!weights)
    return Unexpected(weights.error());
  checkpoint.quantization = std::move(*weights);
  return {};
}

} // namespace

/// Returns the text.
static Result<std::string_view> addConfig(Checkpoint &checkpoint, const fs::path &path) {
  Result<std::string_view> text = addDocument(checkpoint, path);
  if (!text)
    return text;
  Result<ModelConfig> config = parseHuggingFaceConfig(*text, path.string());
  if (!config)
    return Unexpected(config.error());
  checkpoint.config = std::move(*config);
  return text;
}

/// The type of weights that a config.json names, as safetensors call it; nothing where it names
/// none. The text part of a model has its own object.
static Result<std::optional<std::string>> floatTypeOf(std::string_view text,
                                                      const std::string &fileName) {
  Result<Json> object = Json::parseObject(text, fileName);
  if (!object)
    return Unexpected(object.error());
  FieldReader fields(*object, fileName, {.nullIsAbsent = true});
  std::string name;
  auto look = [&](FieldReader &part) {
    for (const char *key : {"torch_dtype", "dtype"})
      part.optional(key, name);
  };
  look(fields);
  if (name.empty() && fields.find("text_config"))
    fields.object("text_config", look);
  if (fields.failed())
    return Unexpected(fields.result().error());
  for (auto [known, type] :
       {std::pair("bfloat16", "BF16"), std::pair("float16", "F16"), std::pair("float32", "F32")})
    if (name == known)
      return std::optional<std::string>(type);
  return std::optional<std::string>();
}

std::string formats::nameOfModel(const fs::path &folder) {
  // "folder/", "." and ".." have names only after normalization.
  std::error_code ignored;
  fs::path full = fs::weakly_canonical(folder, ignored);
  if (!full.has_filename())
    full = full.parent_path();
  // A download of Hugging Face's is models--ORGANIZATION--NAME/snapshots/REVISION.
  const std::string download = full.parent_path().parent_path().filename().string();
  if (full.parent_path().filename() == "snapshots" && download.starts_with("models--"))
    return download.substr(download.rfind("--") + 2);
  return full.filename().string();
}

Result<Checkpoint> formats::openConfiguration(const fs::path &path) {
  Checkpoint checkpoint;
  Result<std::string_view> text = addConfig(checkpoint, path);
  if (!text)
    return Unexpected(text.error());
  Result<std::optional<std::string>> type = floatTypeOf(*text, path.string());
  if (!type)
    return Unexpected(type.error());
  checkpoint.floatType = type->value_or(checkpoint.floatType);
  return checkpoint;
}

Result<Checkpoint> formats::openAssistant(const fs::path &path, const ModelConfig &model,
                                          const std::string &modelName) {
  std::error_code ignored;
  const bool isFolder = fs::is_directory(path, ignored);
  if (!isFolder && (path.extension() != ".json" || !isThere(path)))
    return makeError(ErrorCode::NotFound,
                     "{}: no such folder; expected the Hugging Face folder of an assistant",
                     path.string());
  Checkpoint checkpoint;
  const fs::path configPath = isFolder ? path / "config.json" : path;
  Result<std::string_view> text = addDocument(checkpoint, configPath);
  if (!text)
    return Unexpected(text.error());
  Result<Assistant> assistant = parseAssistantConfig(*text, configPath.string(), model, modelName);
  if (!assistant)
    return Unexpected(assistant.error());
  checkpoint.config = *assistant->config;
  checkpoint.config.assistant = std::move(*assistant);
  if (!isFolder)
    return checkpoint;
  if (Result<void> added = addWeights(checkpoint, path); !added)
    return Unexpected(added.error());
  return checkpoint;
}

Result<Checkpoint> formats::openHuggingFace(const fs::path &folder) {
  Checkpoint checkpoint;
  const fs::path configPath = folder / "config.json",
                 generationPath = folder / "generation_config.json";
  Result<std::string_view> text = addConfig(checkpoint, configPath);
  if (!text)
    return Unexpected(text.error());
  if (Result<void> read = readQuantization(checkpoint, *text, configPath.string()); !read)
    return Unexpected(read.error());

  if (isThere(generationPath)) {
    Result<std::string_view> generation = addDocument(checkpoint, generationPath);
    if (!generation)
      return Unexpected(generation.error());
    Result<std::vector<int64_t>> ids = parseEosTokenIds(*generation, generationPath.string());
    if (!ids)
      return Unexpected(ids.error());
    if (!ids->empty())
      checkpoint.config.eosTokenIds = std::move(*ids);
    if (Result<void> checked = checkConsistency(checkpoint.config, generationPath.string());
        !checked)
      return Unexpected(checked.error());
  }
  if (Result<void> added = addWeights(checkpoint, folder); !added)
    return Unexpected(added.error());
  return checkpoint;
}
