//===- Manifest.cpp - What an artifact says about itself ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Runtime/Manifest.h"

#include "FieldReader.h"

#include "easyquant/Formats/ShardedSafetensors.h"

#include <algorithm>
#include <charconv>
#include <sstream>

using namespace easyquant;
using namespace easyquant::runtime;

namespace {

void readModel(FieldReader &reader, const Json &root, Manifest::Model &model) {
  const Json &object = reader.object(root, "", "model");
  model.architecture = reader.string(object, "model", "architecture");
  model.vocabSize = reader.integer(object, "model", "vocab_size", 1, kMaxInt32);
  model.maxContext = reader.integer(object, "model", "max_context", 1, kMaxInt32);
  for (const char *key :
       {"hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads", "head_dim"})
    reader.integer(object, "model", key, 1, kMaxInt32);
  reader.integer(object, "model", "parameters", 0, kMaxInt64);
  if (reader.failed())
    return;

  const Json &bos = reader.member(object, "model", "bos_token_id", "a token id or null");
  if (!reader.failed() && !bos.isNull())
    model.bosTokenId = reader.integer(bos, "model.bos_token_id", 0, model.vocabSize - 1);
  const Json &eos = reader.array(object, "model", "eos_token_ids");
  for (size_t i = 0; !reader.failed() && i < eos.size(); ++i)
    model.eosTokenIds.push_back(
        reader.integer(eos[i], fmt::format("model.eos_token_ids[{}]", i), 0, model.vocabSize - 1));
}

void readProvenance(FieldReader &reader, const Json &root) {
  reader.string(root, "", "easyquant_version");

  const Json &source = reader.object(root, "", "source");
  reader.string(source, "source", "kind");
  reader.string(source, "source", "name");
  reader.checksum(source, "source", "xxh3_128");
  const Json &types = reader.object(source, "source", "stored_types");
  if (!reader.failed())
    for (auto &[name, count] : types.members())
      reader.integer(count, "source.stored_types." + name, 0, kMaxInt64);

  const Json &quantization = reader.object(root, "", "quantization");
  reader.string(quantization, "quantization", "method");
  reader.string(quantization, "quantization", "scheme");
  reader.integer(quantization, "quantization", "group_size", 0, kMaxInt32);
  reader.string(quantization, "quantization", "head");
  reader.strings(quantization, "quantization", "ignore");
  reader.strings(quantization, "quantization", "targets");
}

/// `weight` or `input` of a site: null where it stays float.
void readSiteScheme(FieldReader &reader, const Json &site, const std::string &where,
                    const char *key, bool isWeight) {
  const Json &scheme = reader.member(site, where, key, "an object or null");
  if (reader.failed() || scheme.isNull())
    return;
  std::string path = FieldReader::join(where, key);
  if (!scheme.isObject())
    return reader.fail(ErrorCode::Corrupt, path, scheme.describe(), "an object or null");
  reader.integer(scheme, path, "bits", 1, 32);
  std::string granularity = reader.string(scheme, path, "granularity");
  if (isWeight || granularity == "group")
    reader.integer(scheme, path, "group_size", 0, kMaxInt32);
  reader.boolean(scheme, path, "symmetric");
  if (!isWeight)
    reader.boolean(scheme, path, "dynamic");
}

/// A relative or absolute error of rounding.
void readError(FieldReader &reader, const Json &site, const std::string &where, const char *key) {
  const Json &error = reader.member(site, where, key, "a number");
  if (!reader.failed() && !(error.number().value_or(-1) >= 0))
    reader.fail(ErrorCode::Corrupt, FieldReader::join(where, key), error.describe(),
                "a number >= 0");
}

void readSites(FieldReader &reader, const Json &root) {
  const Json &sites = reader.array(root, "", "sites");
  for (size_t i = 0; !reader.failed() && i < sites.size(); ++i) {
    const Json &site = sites[i];
    std::string where = fmt::format("sites[{}]", i);
    if (!site.isObject())
      return reader.fail(ErrorCode::Corrupt, where, site.describe(), "an object");
    reader.string(site, where, "name");
    reader.integer(site, where, "out_features", 1, kMaxInt64);
    reader.integer(site, where, "in_features", 1, kMaxInt64);
    reader.string(site, where, "tensor");
    reader.integer(site, where, "first_row", 0, kMaxInt64);
    readSiteScheme(reader, site, where, "weight", /*isWeight=*/true);
    readSiteScheme(reader, site, where, "input", /*isWeight=*/false);
    reader.integer(site, where, "bytes", 0, kMaxInt64);
    readError(reader, site, where, "weight_error");
    readError(reader, site, where, "largest_error");
  }
}

bool isIdentifier(const std::string &text) {
  auto isLetter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !text.empty() && text.size() <= 256 && isLetter(text[0]) &&
         std::all_of(text.begin(), text.end(),
                     [&](char c) { return isLetter(c) || (c >= '0' && c <= '9'); });
}

/// `cache_scheme`: null where the whole cache is float. The program knows it; here it is
/// provenance.
void readCacheScheme(FieldReader &reader, const Json &program) {
  const char *expected = "an object or null";
  const Json &scheme = reader.member(program, "program", "cache_scheme", expected);
  if (reader.failed() || scheme.isNull())
    return;
  std::string path = "program.cache_scheme";
  if (!scheme.isObject())
    return reader.fail(ErrorCode::Corrupt, path, scheme.describe(), expected);
  for (const char *key : {"bits", "group_size", "residual", "sinks"})
    reader.integer(scheme, path, key, 0, kMaxInt32);
  for (const char *key : {"keys", "key_scales"})
    reader.string(scheme, path, key);
}

/// `mayBeEmpty`: there is a program for GPUs, so that there need not be one for CPUs.
void readProgram(FieldReader &reader, const Json &root, bool mayBeEmpty,
                 Manifest::Program &program) {
  const Json &object = reader.object(root, "", "program");
  int64_t abi = reader.integer(object, "program", "abi", 0, kMaxInt64);
  if (!reader.failed() && abi != kProgramAbi)
    return reader.fail(
        ErrorCode::Unsupported, "program.abi", std::to_string(abi),
        fmt::format("{} (EasyQuant {}); recompile the model with this version of EasyQuant",
                    kProgramAbi, EASYQUANT_VERSION));
  const Json &entries = reader.object(object, "program", "entries");
  program.maxRows = reader.integer(object, "program", "max_rows", 1, kMaxInt32);
  program.arenaBytes = reader.integer(object, "program", "arena_bytes", 0, kMaxInt64);
  program.arenaBytesPerThread =
      reader.integer(object, "program", "arena_bytes_per_thread", 0, kMaxInt64);
  program.cacheBytes = reader.integer(object, "program", "cache_bytes", 0, kMaxInt64);
  program.cacheBytesPerToken =
      reader.integer(object, "program", "cache_bytes_per_token", 0, kMaxInt64);
  readCacheScheme(reader, object);
  reader.string(object, "program", "cache_type");
  if (reader.failed())
    return;
  if (entries.size() == 0 && !mayBeEmpty)
    return reader.fail(ErrorCode::Corrupt, "program.entries", "no entry", "at least one");
  for (auto &[isa, symbol] : entries.members()) {
    std::string where = "program.entries." + isa;
    if (!symbol.isString() || !isIdentifier(symbol.string()))
      return reader.fail(ErrorCode::Corrupt, where, symbol.describe(), "a C identifier");
    program.entries.emplace(isa, symbol.string());
  }
}

/// Names are joined to the folder's path, so they must not lead out of it.
bool isPlainFileName(const std::string &name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == name.npos && name != kManifestFile &&
         name != kManifestChecksumFile;
}

void readFiles(FieldReader &reader, const Json &root, std::map<std::string, Manifest::File> &out) {
  const Json &files = reader.object(root, "", "files");
  if (reader.failed())
    return;
  for (auto &[name, value] : files.members()) {
    std::string where = fmt::format("files[{}]", Json::describe(name));
    if (!isPlainFileName(name))
      return reader.fail(ErrorCode::Corrupt, where, "this name",
                         "the plain name of a file beside the manifest");
    if (!value.isObject())
      return reader.fail(ErrorCode::Corrupt, where, value.describe(), "an object");
    Manifest::File file;
    file.bytes = reader.integer(value, where, "bytes", 0, kMaxInt64);
    file.checksum = reader.checksum(value, where, "xxh3_128");
    out.emplace(name, std::move(file));
  }
}

/// How many shards of `stem` the name of one says that there are; 1 for STEM.safetensors, 0 for the
/// name of another file.
size_t shardCountOf(const std::string &name, std::string_view stem) {
  if (name == formats::shardFileName(stem, 0, 1))
    return 1;
  size_t count = 0;
  size_t at = name.find("-of-");
  if (at == name.npos || !name.starts_with(std::string(stem) + "-") ||
      !name.ends_with(".safetensors"))
    return 0;
  const char *digits = name.data() + at + 4;
  auto [end, error] = std::from_chars(digits, name.data() + name.size(), count);
  return error == std::errc() && end == digits + 5 && count > 1 ? count : 0;
}

/// Finds STEM.safetensors, or all of its shards.
std::vector<std::string> findWeights(FieldReader &reader, std::string_view stem,
                                     const std::map<std::string, Manifest::File> &files) {
  std::vector<std::string> names;
  size_t count = 0;
  for (const auto &[name, file] : files) {
    size_t stated = shardCountOf(name, stem);
    if (stated != 0 && count != 0 && stated != count)
      reader.fail(ErrorCode::Corrupt, "files", name + " among weights of other shards",
                  "one set of weights");
    count = stated == 0 ? count : stated;
  }
  count = std::max<size_t>(count, 1); // it comes from a name: the first that is missing ends this
  for (size_t i = 0; i < count && !reader.failed(); ++i) {
    names.push_back(formats::shardFileName(stem, i, count));
    if (!files.count(names.back()))
      reader.fail(ErrorCode::Corrupt, "files", "no entry for " + names.back(), "one");
  }
  return names;
}

/// `gpu`, which artifacts for CPUs alone do not have.
std::optional<Manifest::Gpu> readGpu(FieldReader &reader, const Json &root) {
  if (reader.failed() || !root.find("gpu"))
    return std::nullopt;
  Manifest::Gpu gpu;
  const Json &object = reader.object(root, "", "gpu");
  int64_t abi = reader.integer(object, "gpu", "abi", 0, kMaxInt64);
  if (!reader.failed() && abi != kGpuProgramAbi)
    reader.fail(ErrorCode::Unsupported, "gpu.abi", std::to_string(abi),
                fmt::format("{} (EasyQuant {}); recompile the model with this version of EasyQuant",
                            kGpuProgramAbi, EASYQUANT_VERSION));
  gpu.programFile = reader.string(object, "gpu", "program");
  gpu.later = reader.string(object, "gpu", "later");
  gpu.weightsBytes = reader.integer(object, "gpu", "weights_bytes", 0, kMaxInt64);
  for (const char *key : {"cache_bytes", "cache_bytes_per_token"})
    reader.integer(object, "gpu", key, 0, kMaxInt64);
  const Json &fatbin = reader.member(object, "gpu", "fatbin", "a file name or null");
  if (!reader.failed() && !fatbin.isNull())
    gpu.fatbinFile = reader.string(object, "gpu", "fatbin");
  const Json &chips = reader.object(object, "gpu", "chips");
  if (reader.failed())
    return std::nullopt;
  for (auto &[name, entry] : chips.members()) {
    std::string where = "gpu.chips." + name;
    if (!entry.isObject()) {
      reader.fail(ErrorCode::Corrupt, where, entry.describe(), "an object");
      return std::nullopt;
    }
    gpu.chips[name] = {reader.string(entry, where, "ptx"),
                       reader.boolean(entry, where, "machine_code")};
    for (const char *key : {"kernels", "launches", "arena_bytes"})
      reader.integer(entry, where, key, 0, kMaxInt64);
  }
  if (!reader.failed() && !gpu.chips.count(gpu.later))
    reader.fail(ErrorCode::Corrupt, "gpu.later", Json::describe(gpu.later), "one of gpu.chips");
  return gpu;
}

/// Whatever the programs need is listed.
void checkFiles(FieldReader &reader, Manifest &manifest) {
  auto need = [&](const std::string &name) {
    if (!manifest.files.count(name))
      reader.fail(ErrorCode::Corrupt, "files", "no entry for " + name, "one");
  };
  if (!manifest.program.entries.empty()) {
    need(kProgramFile);
    manifest.weightFiles = findWeights(reader, kWeightsStem, manifest.files);
  }
  if (!manifest.gpu)
    return;
  need(manifest.gpu->programFile);
  if (!manifest.gpu->fatbinFile.empty())
    need(manifest.gpu->fatbinFile);
  for (const auto &[name, chip] : manifest.gpu->chips)
    need(chip.ptxFile);
  manifest.gpu->weightFiles = findWeights(reader, kGpuWeightsStem, manifest.files);
}

} // namespace

Result<Manifest> easyquant::runtime::parseManifest(std::string text, std::string_view path) {
  Result<Json> parsed = Json::parseObject(text, path);
  if (!parsed)
    return Unexpected(parsed.error());
  const Json &root = *parsed;

  FieldReader reader(path);
  std::string format = reader.string(root, "", "format");
  if (!reader.failed() && format != "easyquant-artifact")
    reader.fail(ErrorCode::Corrupt, "format", Json::describe(format), "\"easyquant-artifact\"");
  // The version comes before every other field: they may mean something else in another version.
  int64_t version = reader.integer(root, "", "format_version", 0, kMaxInt64);
  if (!reader.failed() && version != kFormatVersion) {
    const Json *writer = root.find("easyquant_version");
    return makeError(ErrorCode::Unsupported,
                     "{}: format_version: found {} (written by EasyQuant {}), expected {} "
                     "(EasyQuant {}); recompile the model with this version of EasyQuant",
                     path, version, writer ? writer->describe() : "of unknown version",
                     kFormatVersion, EASYQUANT_VERSION);
  }
  std::string target = reader.string(root, "", "target");
  std::istringstream targets(target);
  for (std::string name; !reader.failed() && std::getline(targets, name, ',');)
    if (name != "cpu" && !name.starts_with("sm_"))
      reader.fail(ErrorCode::Unsupported, "target", Json::describe(target),
                  "cpu or GPUs; recompile the model with --target cpu");

  Manifest manifest;
  readModel(reader, root, manifest.model);
  readProvenance(reader, root);
  readSites(reader, root);
  manifest.gpu = readGpu(reader, root);
  readProgram(reader, root, manifest.gpu.has_value(), manifest.program);
  readFiles(reader, root, manifest.files);
  checkFiles(reader, manifest);
  if (reader.failed()) {
    Error error = reader.takeError();
    if (error.code == ErrorCode::Corrupt)
      error.message += "; compile the artifact again";
    return Unexpected(std::move(error));
  }
  manifest.text = std::move(text);
  return manifest;
}
