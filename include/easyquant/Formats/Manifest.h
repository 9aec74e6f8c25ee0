//===- Manifest.h - What an artifact says about itself ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// manifest.json (docs/Architecture.md, "The artifact"): its fields, written by the compiler and
// read by the runtime and, through it, by every command. Every field is checked, also those that
// only people and the Python package read, so that the holder of a Manifest may rely on its text.
// Fields that this version does not know are ignored.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_MANIFEST_H
#define EASYQUANT_FORMATS_MANIFEST_H

#include "easyquant/Formats/Cache.h"
#include "easyquant/Formats/Collective.h"
#include "easyquant/Formats/Step.h"
#include "easyquant/Support/Json.h"
#include "easyquant/Support/Result.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace easyquant::formats {

/// The artifact format and the program ABIs that this version writes and reads.
constexpr int64_t kArtifactVersion = 3;
constexpr int64_t kProgramAbi = EQ_PROGRAM_ABI;
constexpr int64_t kGpuProgramAbi = 3;

constexpr const char *kManifestFile = "manifest.json";
/// Its checksum, as `xxh128sum manifest.json` prints it.
constexpr const char *kManifestChecksumFile = "manifest.xxh128";
/// What `compile --recipe` takes to do the same again.
constexpr const char *kRecipeFile = "recipe.json";
constexpr const char *kGpuProgramFile = "program.gpu.json";
constexpr const char *kFatbinFile = "kernels.fatbin";
std::string ptxFileName(std::string_view chip);
/// Weights are weights.safetensors, or shards of that stem (Formats/ShardedSafetensors.h).
constexpr const char *kWeightsStem = "weights";
constexpr const char *kGpuWeightsStem = "weights.gpu";
/// The stem of a rank's weights: with several ranks "weights.1", with one the stem itself.
std::string weightsStem(const char *stem, int64_t rank, int64_t ranks);

struct Manifest {
  struct Model {
    std::string architecture;
    int64_t vocabSize = 0;
    /// Tokens; also the number of positions that the program has tables for.
    int64_t maxContext = 0;
    int64_t hiddenSize = 0, intermediateSize = 0, numLayers = 0;
    int64_t numHeads = 0, numKVHeads = 0, headDim = 0;
    int64_t parameters = 0;
    std::optional<int64_t> bosTokenId;
    std::vector<int64_t> eosTokenIds;
    bool operator==(const Model &) const = default;
  };

  /// The checkpoint that was compiled.
  struct Source {
    std::string kind, name;
    std::string checksum;                       ///< of the model: xxh3_128
    std::map<std::string, int64_t> storedTypes; ///< how many tensors of each
    std::optional<std::string> assistant;       ///< name of the model that drafts for it, if any
    bool operator==(const Source &) const = default;
  };

  /// A site that could not be quantized as asked.
  struct Fallback {
    std::string name, reason;
    bool operator==(const Fallback &) const = default;
  };
  /// An activation that a method scaled, or had to leave.
  struct Transform {
    std::string method;
    std::vector<std::string> sites; ///< that read it
    std::optional<std::string> skipped;
    Json::Object details; ///< what else the method says
    bool operator==(const Transform &) const = default;
  };
  struct Quantization {
    std::string method, scheme, head;
    int64_t groupSize = 0;
    std::vector<std::string> ignore, targets;
    std::optional<std::vector<Fallback>> fallbacks;
    std::optional<std::vector<Transform>> transforms;
    std::optional<std::map<std::string, std::string>> calibration;
    Json::Object options; ///< what else the recipe says
    bool operator==(const Quantization &) const = default;
  };

  struct WeightScheme {
    int64_t bits = 0, groupSize = 0;
    bool symmetric = true;
    std::string granularity;
    std::string codes;     ///< "integer", "f8E4M3FN", "f4E2M1FN", "table" or the name of one
    std::string scaleType; ///< "f32", "f16", ...
    std::optional<std::vector<double>> table; ///< what codes of a table stand for
    std::optional<std::string> outer;         ///< "tensor": scales have one of their own
    std::optional<bool> minima;               ///< true: groups have minima in place of zero points
    std::optional<int64_t> hadamard; ///< columns of a block of the rotated basis; none: plain
    bool operator==(const WeightScheme &) const = default;
  };
  struct InputScheme {
    int64_t bits = 0;
    bool symmetric = true, dynamic = true;
    std::string granularity, codes;
    std::optional<int64_t> groupSize; ///< columns that share a scale, where there are groups
    std::optional<std::string> outer; ///< "tensor": scales of groups are in units of a static one
    std::optional<std::string> sinks; ///< "keep": tokens out of the static range have own scales
    std::optional<bool> online;       ///< true: the scale of the tensor is state of a sequence
    std::optional<int64_t> hadamard;  ///< that of the weight
    bool operator==(const InputScheme &) const = default;
  };
  struct Site {
    std::string name;
    int64_t outFeatures = 0, inFeatures = 0;
    /// Where its weight is in the weights.
    std::string tensor;
    int64_t firstRow = 0;
    std::optional<WeightScheme> weight;      ///< none: it is float
    std::optional<InputScheme> input;        ///< none: activations stay float
    std::optional<int64_t> rowHadamard;      ///< rows of its weight that are rotated together
    std::optional<int64_t> rowHadamardFirst; ///< the first of these; none: 0
    std::optional<bool> kept; ///< its codes are the source's; none: they have been chosen
    std::optional<std::string> columnOrder; ///< the tensor of the order of its columns
    int64_t bytes = 0;
    double weightError = 0;  ///< ‖W − Ŵ‖ / ‖W‖
    double largestError = 0; ///< max |W − Ŵ|
    bool operator==(const Site &) const = default;
  };

  struct TensorParallel {
    int64_t degree = 1; ///< ranks that share the model
    /// The collectives of the program for CPUs, by their numbers. The program for GPUs has its own.
    std::vector<Collective> collectives;
    bool operator==(const TensorParallel &) const = default;
  };
  struct Program {
    /// Instruction set ("avx2", "neon-dot") to entry, a C identifier. Empty in an artifact for
    /// GPUs alone.
    std::map<std::string, std::string> entries;
    /// The same of the head that drafts; empty where there is none.
    std::map<std::string, std::string> draftEntries;
    /// It appends nothing: all drafts are made at the position of the token that they follow, of
    /// what the cache has before it. None: it has keys and values of its own.
    std::optional<bool> fixedDraftPosition;
    /// Tokens that one call takes at most.
    int64_t maxRows = 0;
    int64_t arenaBytes = 0;
    int64_t arenaBytesPerThread = 0;
    Cache cache;
    /// Numbers (f32) that a sequence keeps for layers with a recurrent state; none: there are no
    /// such layers.
    std::optional<int64_t> recurrentValues;
    std::optional<TensorParallel> tensorParallel; ///< none: one rank
    bool operator==(const Program &) const = default;
  };

  /// Scales that are state of a sequence (Numerics/OnlineScales.h), of all devices alike.
  struct Online {
    double decay = 0;
    int64_t window = 0;
    int64_t tokens = 0;        ///< of a sequence in one step, at most
    std::vector<double> start; ///< the scale that each site starts with
    bool operator==(const Online &) const = default;
  };

  struct Gpu {
    struct Chip {
      std::string ptxFile;
      bool machineCode = false; ///< in the fatbin; else only PTX
      int64_t kernels = 0, launches = 0, arenaBytes = 0;
      bool operator==(const Chip &) const = default;
    };
    std::string programFile;
    std::optional<std::string> fatbinFile; ///< none: there is only PTX
    std::string later; ///< the chip whose PTX a driver can assemble for later ones
    std::map<std::string, Chip> chips;
    int64_t maxRows = 0;
    int64_t weightsBytes = 0;
    CacheSizes cache;
    std::string cacheType;
    std::optional<bool> drafts; ///< there is a head that drafts
    bool operator==(const Gpu &) const = default;
  };

  struct File {
    int64_t bytes = 0;
    std::string checksum; ///< xxh3_128: 32 lower-case hex digits
    bool operator==(const File &) const = default;
  };

  std::string writer; ///< the version of EasyQuant that made it
  std::string target; ///< "cpu", "sm_80,sm_90a,cpu,aarch64"
  Model model;
  Source source;
  Quantization quantization;
  std::vector<Site> sites;
  Program program;
  std::optional<Online> online;
  std::optional<Gpu> gpu; ///< where the artifact is for GPUs, too
  /// By plain name: every file of the folder but the manifest itself.
  std::map<std::string, File> files;

  bool operator==(const Manifest &) const = default;

  /// How many ranks share the model.
  int64_t ranks() const { return program.tensorParallel ? program.tensorParallel->degree : 1; }
  /// Names of the files that hold a rank's weights, in the order of their shards; empty where there
  /// is no program for them.
  std::vector<std::string> weightFiles(int64_t rank = 0) const;
  std::vector<std::string> gpuWeightFiles(int64_t rank = 0) const;
};

/// Parses `text`; `path` is what error messages call it. Errors: Corrupt (not JSON, a field missing
/// or not of its type or range), Unsupported (another format version, program ABI or target).
Result<Manifest> parseManifest(std::string_view text, std::string_view path);

/// Reads what the compiler knows before the artifact is whole: model, source, quantization, sites,
/// program and gpu. A field that is no member of Manifest is an error. `name` is what messages call
/// the document.
Result<Manifest> readManifestParts(const Json &parts, std::string_view name);

/// A part as a pass leaves it at the module (easyquant/Support/AttributeJson.h): Manifest::Program,
/// Manifest::Gpu, or Cache, which is in both. Errors of reading: InvalidArgument.
template <typename Part> Json partJson(const Part &part);
template <typename Part> Result<Part> readPart(const Json &part, std::string_view name);

/// The document.
std::string manifestText(const Manifest &manifest);

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_MANIFEST_H
