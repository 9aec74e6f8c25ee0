//===- GGUFWriter.cpp - Streaming GGUF files ------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/GGUFWriter.h"

#include "easyquant/Formats/DType.h"

#include "Text.h"

#include <algorithm>
#include <array>
#include <unordered_set>

using namespace easyquant;
using namespace easyquant::formats;

/// The header and each tensor begin at multiples of it; files that name no other have this one.
static constexpr int64_t kAlignment = 32;
/// GGML_MAX_NAME, with the zero that ends it.
static constexpr size_t kLongestName = 63;
static constexpr size_t kMostDimensions = 4;

static int64_t padded(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

/// Little-endian, as every machine is that this runs on.
template <typename T> static void append(std::string &bytes, T value) {
  bytes.append(reinterpret_cast<const char *>(&value), sizeof(T));
}

static void appendText(std::string &bytes, std::string_view text) {
  append<uint64_t>(bytes, text.size());
  bytes += text;
}

template <typename T> void GGUFMetadata::add(std::string_view key, GGUFType type, T value) {
  appendText(pairs, key);
  append(pairs, type);
  append(pairs, value);
  ++count;
}
template void GGUFMetadata::add(std::string_view, GGUFType, uint32_t);
template void GGUFMetadata::add(std::string_view, GGUFType, float);

void GGUFMetadata::add(std::string_view key, std::string_view text) {
  appendText(pairs, key);
  append(pairs, GGUFType::String);
  appendText(pairs, text);
  ++count;
}

void GGUFMetadata::add(std::string_view key, std::span<const int32_t> numbers) {
  appendText(pairs, key);
  append(pairs, GGUFType::Array);
  append(pairs, GGUFType::I32);
  append(pairs, static_cast<uint64_t>(numbers.size()));
  for (int32_t number : numbers)
    append(pairs, number);
  ++count;
}

void GGUFMetadata::add(std::string_view key, const std::vector<bool> &flags) {
  appendText(pairs, key);
  append(pairs, GGUFType::Array);
  append(pairs, GGUFType::Bool);
  append(pairs, static_cast<uint64_t>(flags.size()));
  for (bool flag : flags)
    append(pairs, static_cast<uint8_t>(flag));
  ++count;
}

void GGUFMetadata::add(std::string_view key, const GGUFValue &value) {
  appendText(pairs, key);
  append(pairs, value.type);
  pairs.append(reinterpret_cast<const char *>(value.stored.data()), value.stored.size());
  ++count;
}

/// The bytes of a tensor that may be written.
static Result<int64_t> checkedBytes(const std::string &path, const GGUFWriter::Tensor &tensor,
                                    std::unordered_set<std::string_view> &names) {
  auto fail = [&](const std::string &what) {
    return makeError(ErrorCode::InvalidArgument, "{}: tensor {}: {}", path, quote(tensor.name),
                     what);
  };
  if (!isPlainName(tensor.name) || tensor.name.size() > kLongestName)
    return fail(fmt::format(
        "cannot be the name of a tensor; expected up to {} printable characters", kLongestName));
  if (!names.insert(tensor.name).second)
    return fail("is declared twice");
  const GGMLTypeInfo &type = *ggmlTypeInfo(static_cast<uint32_t>(tensor.type));
  std::optional<int64_t> elements = elementCount(tensor.shape);
  int64_t bytes = 0;
  if (!elements || *elements < 1 || tensor.shape.size() > kMostDimensions ||
      __builtin_mul_overflow(*elements / type.blockElements, type.blockBytes, &bytes))
    return fail("impossible shape " + shapeText(tensor.shape));
  if (tensor.shape.back() % type.blockElements != 0)
    return fail(fmt::format("rows of {} elements are not whole blocks of {} ({} elements)",
                            tensor.shape.back(), type.name, type.blockElements));
  return bytes;
}

Result<GGUFWriter> GGUFWriter::create(const std::filesystem::path &path,
                                      const GGUFMetadata &metadata,
                                      std::span<const Tensor> tensors) {
  std::string header = "GGUF";
  append<uint32_t>(header, 3);
  append<uint64_t>(header, tensors.size());
  append<uint64_t>(header, metadata.size());
  header += metadata.bytes();
  std::vector<Place> places;
  std::unordered_set<std::string_view> names;
  int64_t offset = 0;
  for (const Tensor &tensor : tensors) {
    Result<int64_t> bytes = checkedBytes(path.string(), tensor, names);
    if (!bytes)
      return Unexpected(bytes.error());
    appendText(header, tensor.name);
    append<uint32_t>(header, tensor.shape.size());
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size)
      append<uint64_t>(header, *size);
    append(header, tensor.type);
    append<uint64_t>(header, offset);
    places.push_back({tensor.name, *bytes});
    offset += padded(*bytes);
  }
  header.resize(padded(static_cast<int64_t>(header.size())));
  Result<StreamedFile> file =
      StreamedFile::create(path, static_cast<int64_t>(header.size()) + offset);
  if (!file)
    return Unexpected(file.error());
  if (Result<void> done = file->write(std::as_bytes(std::span(header))); !done)
    return Unexpected(done.error());
  return GGUFWriter(std::move(*file), std::move(places));
}

Result<void> GGUFWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  const std::string path = file.path().string();
  if (current == places.size() || places[current].name != name)
    return makeError(ErrorCode::InvalidArgument,
                     "{}: bytes of tensor {} come out of order; expected {}", path, quote(name),
                     current == places.size() ? "no more" : quote(places[current].name));
  const Place &place = places[current];
  const auto size = static_cast<int64_t>(bytes.size());
  if (size > place.bytes - written)
    return makeError(ErrorCode::InvalidArgument,
                     "{}: tensor {}: {} bytes to write, but only {} are missing", path, quote(name),
                     size, place.bytes - written);
  if (Result<void> done = file.write(bytes); !done)
    return done;
  written += size;
  if (written < place.bytes)
    return {};
  static constexpr std::array<std::byte, kAlignment> kZeros = {};
  const int64_t padding = padded(place.bytes) - place.bytes;
  ++current;
  written = 0;
  return file.write(std::span(kZeros).first(static_cast<size_t>(padding)));
}

Result<void> GGUFWriter::finish() {
  if (current != places.size())
    return makeError(ErrorCode::InvalidArgument,
                     "{}: tensor {} is incomplete: {} bytes are missing", file.path().string(),
                     quote(places[current].name), places[current].bytes - written);
  return file.finish();
}
