//===- Manifest.h - What an artifact says about itself ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Parses manifest.json (docs/Architecture.md, "The artifact"). Every documented field is checked,
// also those that only people and the Python package read: whoever holds a Manifest may rely on its
// text. Fields that this version does not know are ignored.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_RUNTIME_MANIFEST_H
#define EASYQUANT_RUNTIME_MANIFEST_H

#include "easyquant/Support/Result.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace easyquant::runtime {

/// The artifact format and the program ABI that this version reads.
constexpr int64_t kFormatVersion = 1;
constexpr int64_t kProgramAbi = 3;
constexpr int64_t kGpuProgramAbi = 1;

constexpr const char *kManifestFile = "manifest.json";
/// Its checksum, as `xxh128sum manifest.json` prints it.
constexpr const char *kManifestChecksumFile = "manifest.xxh128";
constexpr const char *kProgramFile = "model.so";
/// Weights are weights.safetensors, or shards of that stem (Formats/ShardedSafetensors.h).
constexpr const char *kWeightsStem = "weights";
constexpr const char *kGpuWeightsStem = "weights.gpu";

struct Manifest {
  struct Model {
    std::string architecture;
    int64_t vocabSize = 0;
    /// Tokens; also the number of positions that the program has tables for.
    int64_t maxContext = 0;
    std::optional<int64_t> bosTokenId;
    std::vector<int64_t> eosTokenIds;
  };
  struct Program {
    /// Instruction set ("avx2", "avx512vnni") to entry, a C identifier. Empty in an artifact for
    /// GPUs alone.
    std::map<std::string, std::string> entries;
    /// Tokens that one call takes at most.
    int64_t maxRows = 0;
    int64_t arenaBytes = 0;
    int64_t arenaBytesPerThread = 0;
    /// A cache of `capacity` tokens has cacheBytes + capacity * cacheBytesPerToken bytes.
    int64_t cacheBytes = 0;
    int64_t cacheBytesPerToken = 0;
  };
  struct File {
    int64_t bytes = 0;
    std::string checksum; ///< xxh3_128: 32 lower-case hex digits
  };

  struct Gpu {
    struct Chip {
      std::string ptxFile;
      bool machineCode = false; ///< in the fatbin; else only PTX
    };
    std::string programFile;
    std::string fatbinFile; ///< empty: there is only PTX
    std::string later;      ///< the chip whose PTX a driver can assemble for later ones
    std::map<std::string, Chip> chips;
    int64_t weightsBytes = 0;
    std::vector<std::string> weightFiles;
  };

  Model model;
  Program program;
  std::optional<Gpu> gpu; ///< where the artifact is for GPUs, too
  /// By plain name: every file of the folder but the manifest itself.
  std::map<std::string, File> files;
  /// Names of those that hold the weights, in the order of their shards.
  std::vector<std::string> weightFiles;
  /// The document as it was read.
  std::string text;
};

/// Parses `text`; `path` is what error messages call it. Errors: Corrupt (not JSON, a field missing
/// or not of its type or range), Unsupported (another format version, program ABI or target).
Result<Manifest> parseManifest(std::string text, std::string_view path);

} // namespace easyquant::runtime

#endif // EASYQUANT_RUNTIME_MANIFEST_H
