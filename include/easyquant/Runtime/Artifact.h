//===- Artifact.h - A compiled model on disk --------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_RUNTIME_ARTIFACT_H
#define EASYQUANT_RUNTIME_ARTIFACT_H

#include "easyquant/Formats/Manifest.h"
#include "easyquant/Formats/ShardedSafetensors.h"
#include "easyquant/Support/Result.h"

#include <cstddef>
#include <span>
#include <string>

namespace easyquant::runtime {

using formats::Manifest;

/// The manifest of an artifact folder and the text that it was read from.
struct ManifestDocument {
  std::string text;
  Manifest contents;
};
/// The manifest, compared with its checksum and then checked field by field. The files that it
/// lists are not looked at. Errors: as of Artifact::open.
Result<ManifestDocument> readManifest(const std::string &folder, bool skipChecksums = false);

/// An artifact folder whose files have been checked against its manifest, with its weights mapped.
class Artifact {
public:
  /// Errors: NotFound (the folder, the manifest or a file that it lists), Corrupt (the manifest,
  /// the size or checksum of a file, the header of the weights), Unsupported (another format
  /// version; not a folder), IO. Sizes are compared even when checksums are skipped.
  /// The weights are those of one rank; those of others are not read.
  static Result<Artifact> open(const std::string &folder, bool skipChecksums, int64_t rank = 0);

  const Manifest &manifest() const { return document.contents; }
  const std::string &manifestText() const { return document.text; }
  /// The data sections of the weights, aligned to a page; lasts as long as the artifact.
  std::span<const std::byte> weights() const { return shards.bytes(); }
  /// Where they are many and there is memory for a copy of them: puts one into large pages, at the
  /// same addresses.
  void moveWeightsToLargePages();
  /// The same of the weights for GPUs; empty where there are none.
  std::span<const std::byte> gpuWeights() const { return gpuShards.bytes(); }
  /// The code of an instruction set.
  std::string programPath(std::string_view isa) const;
  const std::string &path() const { return folder; }

private:
  std::string folder;
  ManifestDocument document;
  formats::MappedShards shards, gpuShards;
};

} // namespace easyquant::runtime

#endif // EASYQUANT_RUNTIME_ARTIFACT_H
