//===- ShardedSafetensors.cpp - Weights in one file or in several ---------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/ShardedSafetensors.h"

#include "easyquant/Support/Json.h"
#include "easyquant/Support/WriteFile.h"

#include "Text.h"

using namespace easyquant;
using namespace easyquant::formats;
namespace fs = std::filesystem;

static int64_t roundUp(int64_t bytes) {
  constexpr int64_t alignment = SafetensorsWriter::kDataAlignment;
  return (bytes + alignment - 1) / alignment * alignment;
}

std::string formats::shardFileName(std::string_view stem, size_t index, size_t count) {
  if (count == 1)
    return fmt::format("{}.safetensors", stem);
  return fmt::format("{}-{:05}-of-{:05}.safetensors", stem, index + 1, count);
}

std::string formats::shardIndexName(std::string_view stem) {
  return fmt::format("{}.safetensors.index.json", stem);
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

/// Cuts the declarations into shards. What cannot be sized has size 0 here: SafetensorsWriter
/// refuses it.
static std::vector<std::vector<SafetensorsWriter::Tensor>>
cut(std::vector<SafetensorsWriter::Tensor> tensors, int64_t maxShardBytes) {
  std::vector<std::vector<SafetensorsWriter::Tensor>> shards(1);
  int64_t filled = 0;
  for (SafetensorsWriter::Tensor &tensor : tensors) {
    std::optional<DType> dtype = parseDType(tensor.dtype);
    int64_t bytes = dtype ? tensorBytes(*dtype, tensor.shape).value_or(0) : 0;
    if (!shards.back().empty() && bytes > maxShardBytes - filled) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(std::move(tensor));
    // Beyond the limit it is full, however far.
    filled = bytes > maxShardBytes - filled ? maxShardBytes : filled + bytes;
  }
  return shards;
}

Result<ShardedSafetensorsWriter> ShardedSafetensorsWriter::create(
    const fs::path &folder, std::string_view stem, std::vector<SafetensorsWriter::Tensor> tensors,
    int64_t maxShardBytes, const std::map<std::string, std::string> &metadata) {
  if (maxShardBytes < 1)
    return makeError(ErrorCode::InvalidArgument,
                     "{}: shards of {} bytes: expected a positive number",
                     (folder / shardIndexName(stem)).string(), maxShardBytes);
  auto parts = cut(std::move(tensors), maxShardBytes);
  ShardedSafetensorsWriter writer;
  writer.indexPath = folder / shardIndexName(stem);
  int64_t begin = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    Result<SafetensorsWriter> shard = SafetensorsWriter::create(
        folder / shardFileName(stem, i, parts.size()), std::move(parts[i]), metadata);
    if (!shard)
      return Unexpected(shard.error());
    for (const SafetensorsTensor &tensor : shard->tensors()) {
      if (!writer.shardOf.emplace(tensor.name, i).second)
        return makeError(ErrorCode::InvalidArgument, "{}: tensor {} is declared twice",
                         writer.indexPath.string(), quote(tensor.name));
      writer.places.push_back(begin + tensor.begin);
    }
    if (!shard->tensors().empty())
      begin += roundUp(shard->tensors().back().end);
    writer.shards.push_back(std::move(*shard));
  }
  return writer;
}

Result<void> ShardedSafetensorsWriter::write(std::string_view name,
                                             std::span<const std::byte> bytes) {
  auto found = shardOf.find(std::string(name));
  if (found == shardOf.end())
    return makeError(ErrorCode::InvalidArgument, "{}: tensor {} was not declared",
                     indexPath.string(), quote(name));
  return shards[found->second].write(name, bytes);
}

Result<void> ShardedSafetensorsWriter::writeIndex() const {
  Json::Object map;
  int64_t total = 0;
  for (const auto &[name, shard] : shardOf)
    map[name] = shards[shard].path().filename().string();
  for (const SafetensorsWriter &shard : shards)
    total += shard.tensors().back().end;
  const Json index = Json::Object{{"metadata", Json::Object{{"total_size", total}}},
                                  {"weight_map", std::move(map)}};
  return writeFile(indexPath, index.document());
}

Result<void> ShardedSafetensorsWriter::finish() {
  Result<void> done;
  for (SafetensorsWriter &shard : shards)
    if (done = shard.finish(); !done)
      break;
  if (done && shards.size() > 1)
    done = writeIndex();
  if (done)
    return done;
  // Finished shards do not remove themselves any more, and those that are not yet do so again.
  std::error_code ignored;
  for (const SafetensorsWriter &shard : shards)
    fs::remove(shard.path(), ignored);
  if (shards.size() > 1)
    fs::remove(indexPath, ignored);
  return done;
}

//===----------------------------------------------------------------------===//
// Mapping
//===----------------------------------------------------------------------===//

Result<MappedShards> MappedShards::open(std::span<const fs::path> paths) {
  MappedShards result;
  size_t length = 0;
  for (const fs::path &path : paths) {
    Result<SafetensorsFile> shard = SafetensorsFile::open(path);
    if (!shard)
      return Unexpected(shard.error());
    if (shard->dataOffset() % SafetensorsWriter::kDataAlignment != 0)
      return makeError(ErrorCode::Corrupt,
                       "{}: data section: found at byte {}, expected at a multiple of {}",
                       path.string(), shard->dataOffset(), SafetensorsWriter::kDataAlignment);
    result.begins.push_back(length);
    result.end = length + shard->dataSection().size();
    length = static_cast<size_t>(roundUp(static_cast<int64_t>(result.end)));
    result.shards.push_back(std::move(*shard));
  }
  if (length == 0)
    return result;

  Result<MappedRange> range = MappedRange::reserve(length, paths.front().string());
  if (!range)
    return Unexpected(range.error());
  result.range = std::move(*range);
  for (size_t i = 0; i < result.shards.size(); ++i) {
    const SafetensorsFile &shard = result.shards[i];
    if (Result<void> done = result.range.map(result.begins[i], shard.mapping(), shard.dataOffset(),
                                             shard.dataSection().size());
        !done)
      return Unexpected(done.error());
  }
  return result;
}

std::span<const std::byte> MappedShards::section(size_t index) const {
  return bytes().subspan(begins[index], shards[index].dataSection().size());
}
