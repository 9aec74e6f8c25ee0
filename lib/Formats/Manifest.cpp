//===- Manifest.cpp - What an artifact says about itself ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/Manifest.h"

#include "CacheFields.h"
#include "CollectiveFields.h"

#include "easyquant/Formats/InstructionSets.h"
#include "easyquant/Formats/ShardedSafetensors.h"
#include "easyquant/Support/FieldReader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <sstream>

using namespace easyquant;
using namespace easyquant::formats;

static constexpr const char *kArtifactFormat = "easyquant-artifact";

std::string formats::ptxFileName(std::string_view chip) {
  return fmt::format("kernels.{}.ptx", chip);
}

//===----------------------------------------------------------------------===//
// Fields, for reading and for writing
//===----------------------------------------------------------------------===//

namespace easyquant::formats {

/// Sizes of tensors and of the model.
static constexpr Bounds kSize = {1, kMaxInt32};
static constexpr Bounds kSmall = {0, kMaxInt32};
/// Each of them has files of its own.
static constexpr int64_t kMaxRanks = 4096;

template <typename Fields>
static void mapChecksum(Fields &fields, const char *key, std::string &checksum) {
  fields.required(key, checksum);
  bool isHex =
      checksum.size() == 32 && checksum.find_first_not_of("0123456789abcdef") == checksum.npos;
  fields.checkText(isHex, key, checksum, "32 lower-case hex digits");
}

template <typename Fields> void mapFields(Fields &fields, Manifest::Model &model) {
  fields.required("architecture", model.architecture);
  fields.required("vocab_size", model.vocabSize, kSize);
  fields.required("max_context", model.maxContext, kSize);
  fields.required("hidden_size", model.hiddenSize, kSize);
  fields.required("intermediate_size", model.intermediateSize, kSize);
  fields.required("num_layers", model.numLayers, kSize);
  fields.required("num_heads", model.numHeads, kSize);
  fields.required("num_kv_heads", model.numKVHeads, kSize);
  fields.required("head_dim", model.headDim, kSize);
  fields.required("parameters", model.parameters, Bounds());
  fields.required("bos_token_id", model.bosTokenId, Bounds{0, model.vocabSize - 1});
  fields.required("eos_token_ids", model.eosTokenIds, Bounds{0, model.vocabSize - 1});
}

template <typename Fields> void mapFields(Fields &fields, Manifest::Source &source) {
  fields.required("kind", source.kind);
  fields.required("name", source.name);
  mapChecksum(fields, "xxh3_128", source.checksum);
  fields.required("stored_types", source.storedTypes, Bounds());
  fields.optional("assistant", source.assistant);
}

template <typename Fields> void mapFields(Fields &fields, Manifest::Fallback &fallback) {
  fields.required("name", fallback.name);
  fields.required("reason", fallback.reason);
}

template <typename Fields> void mapFields(Fields &fields, Manifest::Transform &transform) {
  fields.required("method", transform.method);
  fields.required("sites", transform.sites);
  fields.optional("skipped", transform.skipped);
  fields.rest(transform.details);
}

template <typename Fields> void mapFields(Fields &fields, Manifest::Quantization &quantization) {
  fields.required("method", quantization.method);
  fields.required("scheme", quantization.scheme);
  fields.required("group_size", quantization.groupSize, kSmall);
  fields.required("head", quantization.head);
  fields.required("ignore", quantization.ignore);
  fields.required("targets", quantization.targets);
  fields.optional("fallbacks", quantization.fallbacks);
  fields.optional("transforms", quantization.transforms);
  fields.optional("calibration", quantization.calibration);
  fields.rest(quantization.options);
}

static constexpr Bounds kBits = {1, 32};

template <typename Fields> void mapFields(Fields &fields, Manifest::WeightScheme &scheme) {
  fields.required("bits", scheme.bits, kBits);
  fields.required("codes", scheme.codes);
  fields.required("granularity", scheme.granularity);
  fields.required("group_size", scheme.groupSize, kSmall);
  fields.required("scale_type", scheme.scaleType);
  fields.required("symmetric", scheme.symmetric);
  fields.optional("table", scheme.table);
  fields.optional("outer", scheme.outer);
  fields.optional("minima", scheme.minima);
  fields.optional("hadamard", scheme.hadamard, kSmall);
}

template <typename Fields> void mapFields(Fields &fields, Manifest::InputScheme &scheme) {
  fields.required("bits", scheme.bits, kBits);
  fields.required("codes", scheme.codes);
  fields.required("granularity", scheme.granularity);
  if (scheme.granularity == "group")
    fields.required("group_size", scheme.groupSize, kSmall);
  else
    fields.optional("group_size", scheme.groupSize, kSmall);
  fields.required("symmetric", scheme.symmetric);
  fields.required("dynamic", scheme.dynamic);
  fields.optional("outer", scheme.outer);
  fields.optional("sinks", scheme.sinks);
  fields.optional("online", scheme.online);
  fields.optional("hadamard", scheme.hadamard, kSmall);
}

template <typename Fields> void mapFields(Fields &fields, Manifest::Site &site) {
  fields.required("name", site.name);
  fields.required("out_features", site.outFeatures, Bounds{1});
  fields.required("in_features", site.inFeatures, Bounds{1});
  fields.required("tensor", site.tensor);
  fields.required("first_row", site.firstRow, Bounds());
  fields.required("weight", site.weight);
  fields.required("input", site.input);
  fields.optional("row_hadamard", site.rowHadamard, kSmall);
  fields.optional("row_hadamard_first", site.rowHadamardFirst, Bounds());
  fields.optional("kept", site.kept);
  fields.optional("column_order", site.columnOrder);
  fields.required("bytes", site.bytes, Bounds());
  fields.required("weight_error", site.weightError, Numbers::NotNegative);
  fields.required("largest_error", site.largestError, Numbers::NotNegative);
}

static bool isIdentifier(const std::string &text) {
  auto isLetter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !text.empty() && text.size() <= 256 && isLetter(text[0]) &&
         std::all_of(text.begin(), text.end(),
                     [&](char c) { return isLetter(c) || (c >= '0' && c <= '9'); });
}

template <typename Fields> void mapFields(Fields &fields, Manifest::TensorParallel &parallel) {
  fields.required("degree", parallel.degree, Bounds{1, kMaxRanks});
  fields.required("collectives", parallel.collectives);
}

template <typename Fields> void mapFields(Fields &fields, Manifest::Program &program) {
  fields.version("abi", kProgramAbi);
  fields.required("max_rows", program.maxRows, kSize);
  fields.required("arena_bytes", program.arenaBytes, Bounds());
  fields.required("arena_bytes_per_thread", program.arenaBytesPerThread, Bounds());
  fields.required("cache", program.cache.sizes);
  fields.required("cache_scheme", program.cache.scheme);
  fields.required("cache_type", program.cache.type);
  fields.optional("draft_entries", program.draftEntries);
  fields.optional("fixed_draft_position", program.fixedDraftPosition);
  fields.optional("recurrent_values", program.recurrentValues, Bounds{1, int64_t(1) << 32});
  fields.optional("tensor_parallel", program.tensorParallel);
  fields.required("entries", program.entries);
  for (const auto &[isa, symbol] : program.entries)
    fields.checkText(isIdentifier(symbol), "entries." + isa, symbol, "a C identifier");
}

template <typename Fields> void mapFields(Fields &fields, Manifest::Online &online) {
  fields.required("decay", online.decay, Numbers::NotNegative);
  fields.required("window", online.window, Bounds{0, 1022});
  fields.required("tokens", online.tokens, Bounds{1, 1 << 20});
  fields.required("start", online.start, Numbers::Positive);
}

template <typename Fields> void mapFields(Fields &fields, Manifest::Gpu::Chip &chip) {
  fields.required("ptx", chip.ptxFile);
  fields.required("machine_code", chip.machineCode);
  fields.required("kernels", chip.kernels, Bounds());
  fields.required("launches", chip.launches, Bounds());
  fields.required("arena_bytes", chip.arenaBytes, Bounds());
}

template <typename Fields> void mapFields(Fields &fields, Manifest::Gpu &gpu) {
  fields.version("abi", kGpuProgramAbi);
  fields.required("program", gpu.programFile);
  fields.required("fatbin", gpu.fatbinFile);
  fields.required("later", gpu.later);
  fields.required("max_rows", gpu.maxRows, kSize);
  fields.required("weights_bytes", gpu.weightsBytes, Bounds());
  fields.required("cache", gpu.cache);
  fields.required("cache_type", gpu.cacheType);
  fields.optional("drafts", gpu.drafts);
  fields.required("chips", gpu.chips);
  fields.checkText(gpu.chips.contains(gpu.later), "later", gpu.later, "one of gpu.chips");
  for (const auto &[name, chip] : gpu.chips)
    fields.check(!chip.machineCode || gpu.fatbinFile, "fatbin", "null",
                 "the machine code of " + name);
}

template <typename Fields> void mapFields(Fields &fields, Manifest::File &file) {
  fields.required("bytes", file.bytes, Bounds());
  mapChecksum(fields, "xxh3_128", file.checksum);
}

template <typename Fields> static void mapParts(Fields &fields, Manifest &manifest) {
  fields.required("model", manifest.model);
  fields.required("source", manifest.source);
  fields.required("quantization", manifest.quantization);
  fields.required("sites", manifest.sites);
  fields.optional("online", manifest.online);
  fields.optional("gpu", manifest.gpu);
  fields.required("program", manifest.program);
}

template <typename Fields> void mapFields(Fields &fields, Manifest &manifest) {
  std::string format = kArtifactFormat;
  fields.required("format", format);
  fields.checkText(format == kArtifactFormat, "format", format, "\"easyquant-artifact\"");
  // The version comes before every other field: they may mean something else in another version.
  std::string writer;
  if constexpr (Fields::kReads) {
    const Json *found = fields.find("easyquant_version");
    writer = "EasyQuant " + (found ? found->describe() : "of unknown version");
  }
  fields.version("format_version", kArtifactVersion, writer);
  fields.required("easyquant_version", manifest.writer);
  fields.required("target", manifest.target);
  mapParts(fields, manifest);
  fields.required("files", manifest.files);
}

} // namespace easyquant::formats

//===----------------------------------------------------------------------===//
// What the fields have to be together
//===----------------------------------------------------------------------===//

/// How many shards of `stem` the name of one says that there are; 1 for STEM.safetensors, 0 for the
/// name of another file.
static size_t shardCountOf(const std::string &name, std::string_view stem) {
  if (name == shardFileName(stem, 0, 1))
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

/// The first set of weights with that stem among the files: its name, or those of all its shards
/// whether they are there or not, since the number of them comes from a name.
static size_t shardCount(const Manifest &manifest, std::string_view stem) {
  for (const auto &[name, file] : manifest.files)
    if (size_t count = shardCountOf(name, stem))
      return count;
  return 1;
}

static std::vector<std::string> weightFilesOf(const Manifest &manifest, std::string_view stem) {
  std::vector<std::string> names;
  const size_t count = shardCount(manifest, stem);
  for (size_t i = 0; i < count; ++i)
    names.push_back(shardFileName(stem, i, count));
  return names;
}

std::string formats::weightsStem(const char *stem, int64_t rank, int64_t ranks) {
  return ranks == 1 ? stem : fmt::format("{}.{}", stem, rank);
}

std::vector<std::string> Manifest::weightFiles(int64_t rank) const {
  return program.entries.empty() ? std::vector<std::string>()
                                 : weightFilesOf(*this, weightsStem(kWeightsStem, rank, ranks()));
}

std::vector<std::string> Manifest::gpuWeightFiles(int64_t rank) const {
  return gpu ? weightFilesOf(*this, weightsStem(kGpuWeightsStem, rank, ranks()))
             : std::vector<std::string>();
}

/// Names are joined to the folder's path, so they must not lead out of it.
static bool isPlainFileName(const std::string &name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == name.npos && name != kManifestFile &&
         name != kManifestChecksumFile;
}

/// Whatever the programs need is listed.
static void checkFiles(FieldReader &fields, const Manifest &manifest) {
  auto need = [&](const std::string &name) {
    fields.check(manifest.files.contains(name), "files", "no entry for " + name, "one");
  };
  auto needWeights = [&](std::string_view stem) {
    const size_t count = shardCount(manifest, stem);
    for (const auto &[name, file] : manifest.files)
      if (size_t stated = shardCountOf(name, stem); stated != 0 && stated != count)
        fields.check(false, "files", name + " among weights of other shards", "one set of weights");
    for (size_t i = 0; i < count && !fields.failed(); ++i) // the first that is missing ends this
      need(shardFileName(stem, i, count));
  };
  for (const auto &[name, file] : manifest.files)
    fields.check(isPlainFileName(name), fmt::format("files[{}]", Json::describe(name)), "this name",
                 "the plain name of a file beside the manifest");
  auto needWeightsOfRanks = [&](const char *stem) {
    for (int64_t rank = 0; rank < manifest.ranks(); ++rank)
      needWeights(weightsStem(stem, rank, manifest.ranks()));
  };
  if (!manifest.program.entries.empty()) {
    for (const auto &[isa, symbol] : manifest.program.entries)
      need(programFileOf(isa));
    needWeightsOfRanks(kWeightsStem);
  }
  if (!manifest.gpu)
    return;
  need(manifest.gpu->programFile);
  if (manifest.gpu->fatbinFile)
    need(*manifest.gpu->fatbinFile);
  for (const auto &[name, chip] : manifest.gpu->chips)
    need(chip.ptxFile);
  needWeightsOfRanks(kGpuWeightsStem);
}

static void checkTarget(FieldReader &fields, const std::string &target) {
  std::vector<std::string_view> known;
  std::ranges::transform(kProcessors, std::back_inserter(known), &Processor::target);
  std::istringstream targets(target);
  for (std::string name; std::getline(targets, name, ',');)
    if (std::ranges::find(known, name) == known.end() && !name.starts_with("sm_"))
      fields.fail(
          ErrorCode::Unsupported, "target", Json::describe(target),
          fmt::format("{} or GPUs; recompile the model with --target cpu", fmt::join(known, ", ")));
}

Result<Manifest> formats::parseManifest(std::string_view text, std::string_view path) {
  Result<Json> root = Json::parseObject(text, path);
  if (!root)
    return makeError(root.error().code, "{}; copy or compile the artifact again",
                     root.error().message);
  Manifest manifest;
  FieldReader fields(*root, path);
  mapFields(fields, manifest);
  if (!fields.failed()) {
    checkTarget(fields, manifest.target);
    fields.check(!manifest.program.entries.empty() || manifest.gpu, "program.entries", "no entry",
                 "at least one");
    if (manifest.online)
      fields.check(manifest.online->tokens <= manifest.program.maxRows, "online.tokens",
                   std::to_string(manifest.online->tokens), "at most program.max_rows");
    checkFiles(fields, manifest);
  }
  if (Result<void> done = fields.result(); !done) {
    Error error = done.error();
    if (error.code == ErrorCode::Corrupt)
      error.message += "; compile the artifact again";
    return Unexpected(std::move(error));
  }
  return manifest;
}

static constexpr FieldReader::Options kPart = {.code = ErrorCode::InvalidArgument,
                                               .refuseUnknown = true};

Result<Manifest> formats::readManifestParts(const Json &parts, std::string_view name) {
  Manifest manifest;
  FieldReader fields(parts, name, kPart);
  mapParts(fields, manifest);
  fields.finish();
  if (Result<void> done = fields.result(); !done)
    return Unexpected(done.error());
  return manifest;
}

template <typename Part> Json formats::partJson(const Part &part) {
  return FieldWriter::toJson(part);
}

template <typename Part> Result<Part> formats::readPart(const Json &json, std::string_view name) {
  Part part;
  Result<void> done = readFields(json, name, part, kPart);
  return done ? Result<Part>(std::move(part)) : Unexpected(done.error());
}

template Json formats::partJson(const Cache &);
template Json formats::partJson(const Manifest::Program &);
template Json formats::partJson(const Manifest::Gpu &);
template Result<Cache> formats::readPart(const Json &, std::string_view);
template Result<Manifest::Program> formats::readPart(const Json &, std::string_view);

std::string formats::manifestText(const Manifest &manifest) {
  return FieldWriter::toJson(manifest).document();
}
