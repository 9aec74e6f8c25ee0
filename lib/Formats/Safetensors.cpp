//===- Safetensors.cpp - Reading safetensors files ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/Safetensors.h"

#include "easyquant/Support/FieldReader.h"

#include "Text.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

using namespace easyquant;
using namespace easyquant::formats;

/// The limit of the format's reference implementation.
static constexpr uint64_t kLargestHeader = 100'000'000;
/// Tensors are in the header's third level. No entry is so long.
static constexpr Json::Limits kHeaderLimits = {3, size_t(1) << 20};

/// Checks an entry of the header and adds it to the table.
static Result<void> addTensor(SafetensorsHeader &header, const std::string &name, const Json &entry,
                              std::string_view fileName) {
  if (!isPlainName(name))
    return makeError(ErrorCode::Corrupt,
                     "{}: the name {} is empty, too long, or has control characters", fileName,
                     quote(name));
  const std::string where = fmt::format("{}: tensor {}", fileName, quote(name));
  auto fail = [&]<typename... Args>(fmt::format_string<Args...> format, Args &&...args) {
    return Unexpected(
        Error{ErrorCode::Corrupt, where + ": " + fmt::format(format, std::forward<Args>(args)...)});
  };
  if (!entry.isObject())
    return fail("found {}, expected an object", entry.describe());
  SafetensorsTensor tensor;
  tensor.name = name;
  std::string type;
  std::array<int64_t, 2> offsets{};
  FieldReader fields(entry, where, {.refuseUnknown = true});
  fields.required("dtype", type);
  fields.required("shape", tensor.shape, Bounds());
  fields.required("data_offsets", offsets, Bounds());
  fields.finish();
  if (fields.failed())
    return fields.result();
  std::optional<DType> dtype = parseDType(type);
  if (!dtype)
    return fail("unknown dtype {}", quote(type));
  tensor.dtype = *dtype;
  tensor.begin = offsets[0];
  tensor.end = offsets[1];
  if (tensor.begin > tensor.end)
    return fail("data_offsets [{}, {}]: the end lies before the begin", tensor.begin, tensor.end);
  std::optional<int64_t> bytes = tensorBytes(tensor.dtype, tensor.shape);
  if (!bytes)
    return fail("shape {} is too large", shapeText(tensor.shape));
  if (*bytes != tensor.end - tensor.begin)
    return fail("data_offsets [{}, {}] span {} bytes; {} of shape {} takes {}", tensor.begin,
                tensor.end, tensor.end - tensor.begin, dtypeName(tensor.dtype),
                shapeText(tensor.shape), *bytes);
  if (!header.indexByName.emplace(tensor.name, 0).second) // the index comes after sorting
    return fail("the name appears twice");
  header.tensors.push_back(std::move(tensor));
  return {};
}

/// Reads the table from the JSON, of which no more than one entry is in memory.
static Result<void> readEntries(SafetensorsHeader &header, std::string_view text,
                                std::string_view fileName) {
  bool sawMetadata = false;
  return Json::parseMembers(text, fileName, kHeaderLimits,
                            [&](const std::string &name, const Json &entry) -> Result<void> {
                              if (name != "__metadata__")
                                return addTensor(header, name, entry, fileName);
                              if (std::exchange(sawMetadata, true))
                                return makeError(ErrorCode::Corrupt,
                                                 "{}: __metadata__ appears twice", fileName);
                              const Json whole(Json::Object{{name, entry}});
                              FieldReader fields(whole, fileName);
                              fields.required("__metadata__", header.metadata);
                              return fields.result();
                            });
}

/// The tensors, sorted by place, must cover [0, dataBytes) without overlap or hole.
static Result<void> checkCoverage(const SafetensorsHeader &header, int64_t dataBytes,
                                  std::string_view fileName) {
  int64_t covered = 0;
  for (const SafetensorsTensor &tensor : header.tensors) {
    if (tensor.end > dataBytes)
      return makeError(ErrorCode::Corrupt,
                       "{}: tensor {}: data_offsets [{}, {}] reach beyond the data section of {} "
                       "bytes; the file is truncated or damaged",
                       fileName, quote(tensor.name), tensor.begin, tensor.end, dataBytes);
    if (tensor.begin < covered)
      return makeError(
          ErrorCode::Corrupt,
          "{}: tensor {}: data_offsets [{}, {}] overlap another tensor, which ends at {}", fileName,
          quote(tensor.name), tensor.begin, tensor.end, covered);
    if (tensor.begin > covered)
      return makeError(ErrorCode::Corrupt,
                       "{}: tensor {}: data_offsets [{}, {}] leave a hole after byte {}", fileName,
                       quote(tensor.name), tensor.begin, tensor.end, covered);
    covered = tensor.end;
  }
  if (covered != dataBytes)
    return makeError(ErrorCode::Corrupt,
                     "{}: the tensors take {} bytes, but the data section has {}", fileName,
                     covered, dataBytes);
  return {};
}

Result<SafetensorsHeader> formats::parseSafetensorsHeader(std::span<const std::byte> file,
                                                          std::string_view fileName) {
  if (file.size() < 8)
    return makeError(ErrorCode::Corrupt, "{}: {} bytes are too few for a safetensors file",
                     fileName, file.size());
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i)
    length = length << 8 | std::to_integer<uint64_t>(file[i]);
  if (length > kLargestHeader)
    return makeError(ErrorCode::Corrupt,
                     "{}: a header of {} bytes is announced; expected at most {}; is this a "
                     "safetensors file?",
                     fileName, length, kLargestHeader);
  if (length > file.size() - 8)
    return makeError(ErrorCode::Corrupt,
                     "{}: a header of {} bytes is announced, but only {} bytes follow; the file is "
                     "truncated",
                     fileName, length, file.size() - 8);

  SafetensorsHeader header;
  header.dataOffset = static_cast<int64_t>(8 + length);
  std::string_view text(reinterpret_cast<const char *>(file.data()) + 8, length);
  if (!text.starts_with('{'))
    return makeError(ErrorCode::Corrupt, "{}: the header does not begin with '{{'", fileName);
  if (Result<void> read = readEntries(header, text, fileName); !read)
    return Unexpected(read.error());

  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const SafetensorsTensor &a, const SafetensorsTensor &b) {
              return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
            });
  if (Result<void> covered =
          checkCoverage(header, static_cast<int64_t>(file.size()) - header.dataOffset, fileName);
      !covered)
    return Unexpected(covered.error());
  for (size_t i = 0; i < header.tensors.size(); ++i)
    header.indexByName[header.tensors[i].name] = i;
  return header;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path &path) {
  Result<MappedFile> file = MappedFile::open(path);
  if (!file)
    return Unexpected(file.error());
  Result<SafetensorsHeader> header = parseSafetensorsHeader(file->bytes(), path.string());
  if (!header)
    return Unexpected(header.error());
  SafetensorsFile result;
  result.file = std::move(*file);
  result.header = std::move(*header);
  return result;
}

const SafetensorsTensor *SafetensorsFile::find(std::string_view name) const {
  auto found = header.indexByName.find(std::string(name));
  return found == header.indexByName.end() ? nullptr : &header.tensors[found->second];
}

std::span<const std::byte> SafetensorsFile::data(const SafetensorsTensor &tensor) const {
  return dataSection().subspan(tensor.begin, tensor.end - tensor.begin);
}

std::span<const std::byte> SafetensorsFile::dataSection() const {
  return file.bytes().subspan(header.dataOffset);
}
