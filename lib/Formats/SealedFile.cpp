//===- SealedFile.cpp - Safetensors files with a checksum -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/SealedFile.h"

#include "easyquant/Formats/SafetensorsWriter.h"
#include "easyquant/Support/Checksum.h"

#include "Text.h"

#include <algorithm>
#include <cmath>

using namespace easyquant;
using namespace easyquant::formats;
namespace fs = std::filesystem;

static constexpr const char *kChecksumKey = "xxh3_128";

ComputedTensor ComputedTensor::floats(std::string name, std::vector<int64_t> shape,
                                      std::span<const float> data) {
  return {std::move(name), DType::F32, std::move(shape), std::as_bytes(data)};
}

ComputedTensor ComputedTensor::codes(std::string name, std::vector<int64_t> shape,
                                     std::span<const int8_t> data) {
  return {std::move(name), DType::I8, std::move(shape), std::as_bytes(data)};
}

ComputedTensor ComputedTensor::integers(std::string name, std::vector<int64_t> shape,
                                        std::span<const int32_t> data) {
  return {std::move(name), DType::I32, std::move(shape), std::as_bytes(data)};
}

/// The checksum of a file with these tensors and metadata. Calls `read` with each tensor whose
/// bytes have been read.
template <typename Visit>
static std::string sealOf(std::span<const ComputedTensor> tensors, const FileMetadata &metadata,
                          Visit &&read) {
  Checksum checksum;
  auto add = [&](const std::string &text) { checksum.update(text.data(), text.size()); };
  for (const auto &[key, value] : metadata)
    if (key != kChecksumKey)
      add(fmt::format("{}={}\n", key, value));
  // By name: a file does not keep the order of tensors without elements.
  std::vector<const ComputedTensor *> sorted;
  for (const ComputedTensor &tensor : tensors)
    sorted.push_back(&tensor);
  std::ranges::sort(sorted, {}, &ComputedTensor::name);
  for (const ComputedTensor *tensor : sorted) {
    add(fmt::format("{} {} {}\n", tensor->name, dtypeName(tensor->type), shapeText(tensor->shape)));
    checksum.update(tensor->bytes.data(), tensor->bytes.size());
    read(*tensor);
  }
  return checksum.hex();
}

/// What keeps a tensor from being written.
static Result<void> check(const fs::path &path, const ComputedTensor &tensor) {
  const std::string where = path.string() + ": tensor " + quote(tensor.name);
  const auto size = tensorBytes(tensor.type, tensor.shape);
  if (!size || static_cast<size_t>(*size) != tensor.bytes.size())
    return makeError(ErrorCode::InvalidArgument, "{}: {} bytes for shape {} of {}", where,
                     tensor.bytes.size(), shapeText(tensor.shape), dtypeName(tensor.type));
  for (size_t i = 0; tensor.type == DType::F32 && i < tensor.bytes.size() / sizeof(float); ++i) {
    float value;
    std::memcpy(&value, tensor.bytes.data() + i * sizeof(float), sizeof(float));
    if (!std::isfinite(value))
      return makeError(ErrorCode::InvalidArgument,
                       "{}: element {} is {}, and only finite numbers are written", where, i,
                       value);
  }
  return {};
}

Result<void> formats::writeSealed(const fs::path &path, std::span<const ComputedTensor> tensors,
                                  const FileMetadata &metadata) {
  std::vector<SafetensorsWriter::Tensor> declared;
  for (const ComputedTensor &tensor : tensors) {
    if (Result<void> checked = check(path, tensor); !checked)
      return checked;
    declared.push_back({tensor.name, std::string(dtypeName(tensor.type)), tensor.shape});
  }
  FileMetadata sealed = metadata;
  sealed[kChecksumKey] = sealOf(tensors, metadata, [](const ComputedTensor &) {});
  auto writer = SafetensorsWriter::create(path, std::move(declared), sealed);
  if (!writer)
    return Unexpected(writer.error());
  for (const ComputedTensor &tensor : tensors)
    if (Result<void> done = writer->write(tensor.name, tensor.bytes); !done)
      return done;
  return writer->finish();
}

/// Compares a file with its checksum, if it has one.
static Result<void> checkSeal(const SafetensorsFile &file) {
  const auto expected = file.metadata().find(kChecksumKey);
  if (expected == file.metadata().end())
    return {};
  std::vector<ComputedTensor> tensors;
  for (const SafetensorsTensor &tensor : file.tensors())
    tensors.push_back({tensor.name, tensor.dtype, tensor.shape, file.data(tensor)});
  const std::string found = sealOf(tensors, file.metadata(), [&](const ComputedTensor &tensor) {
    if (tensor.bytes.size() >= MappedFile::kReleaseBytes)
      file.mapping().release(tensor.bytes);
  });
  if (found == expected->second)
    return {};
  return makeError(ErrorCode::Corrupt,
                   "{}: found bytes with the checksum {}, expected {} as its metadata say: the "
                   "file is damaged",
                   file.path().string(), found, quote(expected->second));
}

Result<SafetensorsFile> formats::openSealed(const fs::path &path) {
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (file)
    if (Result<void> checked = checkSeal(*file); !checked)
      return Unexpected(checked.error());
  return file;
}

Result<bool> formats::isSealed(const fs::path &path, const FileMetadata &metadata) {
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file && file.error().code == ErrorCode::Corrupt)
    return Unexpected(file.error());
  if (!file)
    return false;
  FileMetadata found = file->metadata();
  if (found.erase(kChecksumKey) == 0 || found != metadata)
    return false;
  if (Result<void> checked = checkSeal(*file); !checked)
    return Unexpected(checked.error());
  return true;
}
