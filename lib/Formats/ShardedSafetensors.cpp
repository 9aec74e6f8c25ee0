//===- ShardedSafetensors.cpp - Weights in one file or in several ---------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/ShardedSafetensors.h"

#include "easyquant/Formats/MappedFile.h"

#include "Text.h"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
  nlohmann::json map = nlohmann::json::object();
  int64_t total = 0;
  for (const auto &[name, shard] : shardOf)
    map[name] = shards[shard].path().filename().string();
  for (const SafetensorsWriter &shard : shards)
    total += shard.tensors().back().end;
  nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(map)}};
  std::string text = index.dump(2) + "\n";

  int descriptor = ::open(indexPath.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  bool done = descriptor >= 0;
  for (std::string_view rest = text; done && !rest.empty();) {
    ssize_t count = ::write(descriptor, rest.data(), rest.size());
    if (count >= 0)
      rest.remove_prefix(static_cast<size_t>(count));
    done = count >= 0 || errno == EINTR;
  }
  done = done && ::fsync(descriptor) == 0;
  int reason = errno;
  if (descriptor >= 0)
    ::close(descriptor);
  if (done)
    return {};
  return makeError(ErrorCode::IO, "{}: cannot write: {}", indexPath.string(),
                   std::strerror(reason));
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

void MappedShards::Unmap::operator()(std::byte *address) const { ::munmap(address, length); }

/// Replaces the pages from `address` on by the data section of the file.
static Result<void> mapSection(const SafetensorsFile &file, std::byte *address) {
  const std::string path = file.path().string();
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0)
    return makeError(ErrorCode::IO, "{}: cannot open: {}", path, std::strerror(errno));
  struct stat status;
  // The file whose header was read may have been replaced since.
  bool same = ::fstat(descriptor, &status) == 0 &&
              static_cast<size_t>(status.st_size) == file.mapping().bytes().size();
  void *mapped = same ? ::mmap(address, file.dataSection().size(), PROT_READ,
                               MAP_PRIVATE | MAP_FIXED, descriptor, file.dataOffset())
                      : MAP_FAILED;
  int reason = errno;
  ::close(descriptor);
  if (!same)
    return makeError(ErrorCode::Corrupt, "{}: changed while it was opened", path);
  if (mapped == MAP_FAILED)
    return makeError(ErrorCode::IO, "{}: cannot map {} bytes: {}", path, file.dataSection().size(),
                     std::strerror(reason));
  return {};
}

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

  // One reservation, which the files then replace piece by piece: nothing else can come between.
  void *address =
      ::mmap(nullptr, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED)
    return makeError(ErrorCode::IO, "{}: cannot reserve {} bytes of addresses: {}",
                     paths.front().string(), length, std::strerror(errno));
  result.range = {static_cast<std::byte *>(address), Unmap{length}};
  for (size_t i = 0; i < result.shards.size(); ++i)
    if (!result.shards[i].dataSection().empty())
      if (Result<void> done = mapSection(result.shards[i], result.range.get() + result.begins[i]);
          !done)
        return Unexpected(done.error());
  return result;
}

std::span<const std::byte> MappedShards::section(size_t index) const {
  return bytes().subspan(begins[index], shards[index].dataSection().size());
}
