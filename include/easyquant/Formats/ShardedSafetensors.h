//===- ShardedSafetensors.h - Weights in one file or in several ---*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// As Hugging Face shards checkpoints: what fits is STEM.safetensors; what does not is
// STEM-00001-of-00003.safetensors and so on, with STEM.safetensors.index.json that says which
// tensor is where.
//
// The data sections of the shards, in the order of their numbers and each from the next multiple of
// SafetensorsWriter::kDataAlignment bytes on, are one range of addresses: the tensors' places in it
// are known when the shards are written, and MappedShards maps the files to just these places.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_SHARDEDSAFETENSORS_H
#define EASYQUANT_FORMATS_SHARDEDSAFETENSORS_H

#include "easyquant/Formats/Safetensors.h"
#include "easyquant/Formats/SafetensorsWriter.h"
#include "easyquant/Support/Result.h"

#include <unordered_map>

namespace easyquant::formats {

/// What Hugging Face writes by default: "5GB".
constexpr int64_t kDefaultShardBytes = 5'000'000'000;

/// The name of shard `index` (from 0) of `count`; `STEM.safetensors` if there is but one.
std::string shardFileName(std::string_view stem, size_t index, size_t count);
/// "STEM.safetensors.index.json"
std::string shardIndexName(std::string_view stem);

/// SafetensorsWriter over any number of files. A shard is filled in the order of declaration until
/// the next tensor would make its data larger than `maxShardBytes`; a tensor that is larger by
/// itself has a shard of its own. Unless finish() succeeds, no file is left.
class ShardedSafetensorsWriter {
public:
  /// Creates all files, with their space reserved. Errors: InvalidArgument (`maxShardBytes` < 1,
  /// and those of SafetensorsWriter), IO.
  static Result<ShardedSafetensorsWriter>
  create(const std::filesystem::path &folder, std::string_view stem,
         std::vector<SafetensorsWriter::Tensor> tensors, int64_t maxShardBytes = kDefaultShardBytes,
         const std::map<std::string, std::string> &metadata = {});

  /// As SafetensorsWriter::write().
  Result<void> write(std::string_view name, std::span<const std::byte> bytes);
  /// Finishes every shard, and writes the index if there are several.
  Result<void> finish();

  /// The first byte of each tensor in the mapped range, in the order of declaration.
  std::span<const int64_t> offsets() const { return places; }
  size_t shardCount() const { return shards.size(); }

private:
  Result<void> writeIndex() const;

  std::filesystem::path indexPath;
  std::vector<SafetensorsWriter> shards;
  std::unordered_map<std::string, size_t> shardOf;
  std::vector<int64_t> places;
};

/// The shards of a set of weights, mapped one behind another.
class MappedShards {
public:
  /// `paths` in the order of the shards. Errors: those of SafetensorsFile::open(), Corrupt (a data
  /// section that does not begin at a multiple of SafetensorsWriter::kDataAlignment), IO.
  static Result<MappedShards> open(std::span<const std::filesystem::path> paths);

  /// The whole range, aligned to a page; between shards there are zeros. As long as the object.
  std::span<const std::byte> bytes() const { return {range.data(), end}; }
  std::span<const SafetensorsFile> files() const { return shards; }
  /// As MappedRange::moveToLargePages().
  void moveToLargePages() { range.moveToLargePages(); }
  /// The data section of shard `index` in bytes().
  std::span<const std::byte> section(size_t index) const;

private:
  std::vector<SafetensorsFile> shards;
  std::vector<size_t> begins; ///< of the sections in the range
  size_t end = 0;             ///< of the last section
  MappedRange range;
};

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_SHARDEDSAFETENSORS_H
