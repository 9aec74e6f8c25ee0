//===- Artifact.cpp - A compiled model on disk ----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Runtime/Artifact.h"
#include "easyquant/Formats/InstructionSets.h"
#include "easyquant/Support/AvailableMemory.h"
#include "easyquant/Support/Checksum.h"

#include <algorithm>
#include <filesystem>
#include <set>

using namespace easyquant;
using namespace easyquant::runtime;
using formats::kManifestChecksumFile;
using formats::kManifestFile;
namespace fs = std::filesystem;

/// A manifest of thousands of sites is a megabyte; beyond this it is something else.
static constexpr size_t kMaxManifestBytes = size_t(64) << 20;

static constexpr const char *kRemedy = "copy or compile the artifact again";

static Result<void> checkFolder(const std::string &folder) {
  std::error_code error;
  fs::file_status status = fs::status(folder, error);
  if (status.type() == fs::file_type::not_found)
    return makeError(ErrorCode::NotFound,
                     "{}: no such folder; expected an artifact that `easyquant compile` wrote",
                     folder);
  if (status.type() == fs::file_type::none)
    return makeError(ErrorCode::IO, "{}: cannot be examined: {}", folder, error.message());
  if (status.type() != fs::file_type::directory)
    return makeError(ErrorCode::Unsupported,
                     "{}: not a folder; expected an artifact that `easyquant compile` wrote",
                     folder);
  if (!fs::exists(fs::path(folder) / kManifestFile, error))
    return makeError(ErrorCode::NotFound,
                     "{}: holds no {}, so it is not an artifact; `easyquant compile MODEL -o OUT` "
                     "makes one from a model",
                     folder, kManifestFile);
  return {};
}

static Result<std::string> readText(const std::string &path) {
  Result<MappedFile> file = MappedFile::open(path);
  if (!file)
    return Unexpected(file.error());
  std::span<const std::byte> bytes = file->bytes();
  if (bytes.size() > kMaxManifestBytes)
    return makeError(ErrorCode::Corrupt, "{}: found {} bytes, expected at most {}", path,
                     bytes.size(), kMaxManifestBytes);
  return std::string(file->text());
}

/// A manifest whose fields are all possible may still have a wrong digit in one of them.
static Result<void> checkManifest(const std::string &folder, const std::string &text) {
  const std::string path = folder + "/" + kManifestChecksumFile;
  Result<std::string> expected = readText(path);
  if (!expected)
    return makeError(expected.error().code, "{}; {}", expected.error().message, kRemedy);
  const std::string found = checksumOf(std::as_bytes(std::span(text)));
  if (expected->starts_with(found + " "))
    return {};
  return makeError(ErrorCode::Corrupt, "{}/{}: damaged: found checksum {}, expected that of {}; {}",
                   folder, kManifestFile, found, kManifestChecksumFile, kRemedy);
}

static Result<void> checkSize(const std::string &path, const Manifest::File &expected) {
  std::error_code error;
  fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    return makeError(ErrorCode::NotFound, "{}: no such file, but the manifest lists it; {}", path,
                     kRemedy);
  if (status.type() != fs::file_type::regular)
    return makeError(ErrorCode::Unsupported, "{}: not a regular file; {}", path, kRemedy);
  uintmax_t found = fs::file_size(path, error);
  if (error)
    return makeError(ErrorCode::IO, "{}: cannot be examined: {}", path, error.message());
  if (found != static_cast<uintmax_t>(expected.bytes))
    return makeError(ErrorCode::Corrupt, "{}: found {} bytes, expected {} (manifest); {}", path,
                     found, expected.bytes, kRemedy);
  return {};
}

static Result<void> checkChecksum(const std::string &path, const std::string &found,
                                  const Manifest::File &expected) {
  if (found == expected.checksum)
    return {};
  return makeError(ErrorCode::Corrupt, "{}: damaged: found checksum {}, expected {} (manifest); {}",
                   path, found, expected.checksum, kRemedy);
}

/// The weights are hashed in their mapping: the bytes that will be used, and no second copy.
static std::string checksumOfShard(const formats::MappedShards &shards, size_t index) {
  const formats::SafetensorsFile &file = shards.files()[index];
  Checksum checksum;
  checksum.update(file.mapping().bytes().data(), static_cast<size_t>(file.dataOffset()));
  checksum.update(shards.section(index).data(), shards.section(index).size());
  return checksum.hex();
}

/// From so many bytes on, about what last-level caches hold.
static constexpr size_t kManyWeights = size_t(256) << 20;

void Artifact::moveWeightsToLargePages() {
  const size_t bytes = weights().size();
  if (bytes >= kManyWeights && availableMemory() / 2 >= static_cast<int64_t>(bytes))
    shards.moveToLargePages();
}

std::string Artifact::programPath(std::string_view isa) const {
  return folder + "/" + formats::programFileOf(isa);
}

Result<ManifestDocument> easyquant::runtime::readManifest(const std::string &folder,
                                                          bool skipChecksums) {
  if (Result<void> checked = checkFolder(folder); !checked)
    return Unexpected(checked.error());
  std::string path = folder + "/" + kManifestFile;
  Result<std::string> text = readText(path);
  if (!text)
    return Unexpected(text.error());
  // This comes first: no field of a damaged text is worth a message.
  if (!skipChecksums)
    if (Result<void> checked = checkManifest(folder, *text); !checked)
      return Unexpected(checked.error());
  Result<Manifest> manifest = formats::parseManifest(*text, path);
  if (!manifest)
    return Unexpected(manifest.error());
  return ManifestDocument{std::move(*text), std::move(*manifest)};
}

/// The weight files that other ranks check.
static std::set<std::string> weightFilesOfOthers(const Manifest &manifest, int64_t rank) {
  std::set<std::string> names;
  for (int64_t other = 0; other < manifest.ranks(); ++other)
    if (other != rank)
      for (auto files : {manifest.weightFiles(other), manifest.gpuWeightFiles(other)})
        names.insert(files.begin(), files.end());
  return names;
}

Result<Artifact> Artifact::open(const std::string &folder, bool skipChecksums, int64_t rank) {
  Result<ManifestDocument> document = readManifest(folder, skipChecksums);
  if (!document)
    return Unexpected(document.error());
  Artifact artifact;
  artifact.folder = folder;
  artifact.document = std::move(*document);
  const Manifest &contents = artifact.manifest();

  for (auto &[name, expected] : contents.files)
    if (Result<void> checked = checkSize(folder + "/" + name, expected); !checked)
      return Unexpected(checked.error());

  const std::vector<std::string> files = contents.weightFiles(rank),
                                 gpuFiles = contents.gpuWeightFiles(rank);
  for (auto [names, shards] :
       {std::pair(&files, &artifact.shards), std::pair(&gpuFiles, &artifact.gpuShards)}) {
    if (names->empty())
      continue;
    std::vector<fs::path> paths;
    for (const std::string &name : *names)
      paths.push_back(fs::path(folder) / name);
    Result<formats::MappedShards> opened = formats::MappedShards::open(paths);
    if (!opened)
      return makeError(opened.error().code, "{}; {}", opened.error().message, kRemedy);
    *shards = std::move(*opened);
  }
  if (skipChecksums)
    return artifact;

  const std::set<std::string> others = weightFilesOfOthers(contents, rank);
  for (auto &[name, expected] : contents.files) {
    if (others.contains(name))
      continue;
    std::string path = folder + "/" + name;
    auto shard = std::find(files.begin(), files.end(), name);
    auto gpuShard = std::find(gpuFiles.begin(), gpuFiles.end(), name);
    Result<std::string> found =
        shard != files.end() ? checksumOfShard(artifact.shards, shard - files.begin())
        : gpuShard != gpuFiles.end()
            ? checksumOfShard(artifact.gpuShards, gpuShard - gpuFiles.begin())
            : checksumOfFile(path);
    if (!found)
      return Unexpected(found.error());
    if (Result<void> checked = checkChecksum(path, *found, expected); !checked)
      return Unexpected(checked.error());
  }
  return artifact;
}
