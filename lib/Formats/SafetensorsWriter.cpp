//===- SafetensorsWriter.cpp - Streaming safetensors files ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/SafetensorsWriter.h"

#include "easyquant/Support/Json.h"
#include "easyquant/Support/WriteFile.h"

#include "Text.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <unordered_set>
#include <utility>

using namespace easyquant;
using namespace easyquant::formats;

/// Checks the declarations and lays the tensors out one after the other.
static Result<std::vector<SafetensorsTensor>>
layOut(const std::string &path, std::vector<SafetensorsWriter::Tensor> &declarations) {
  std::vector<SafetensorsTensor> layout;
  std::unordered_set<std::string> names;
  int64_t offset = 0;
  for (SafetensorsWriter::Tensor &declaration : declarations) {
    std::string quoted = quote(declaration.name);
    if (!isPlainName(declaration.name) || declaration.name == "__metadata__")
      return makeError(ErrorCode::InvalidArgument, "{}: {} cannot be the name of a tensor", path,
                       quoted);
    if (!names.insert(declaration.name).second)
      return makeError(ErrorCode::InvalidArgument, "{}: tensor {} is declared twice", path, quoted);
    std::optional<DType> dtype = parseDType(declaration.dtype);
    if (!dtype)
      return makeError(ErrorCode::InvalidArgument, "{}: tensor {}: unknown dtype {}", path, quoted,
                       quote(declaration.dtype));
    std::optional<int64_t> bytes = tensorBytes(*dtype, declaration.shape);
    int64_t end = 0;
    if (!bytes || __builtin_add_overflow(offset, *bytes, &end))
      return makeError(ErrorCode::InvalidArgument, "{}: tensor {}: impossible shape {}", path,
                       quoted, shapeText(declaration.shape));
    layout.push_back(
        {std::move(declaration.name), *dtype, std::move(declaration.shape), offset, end});
    offset = end;
  }
  return layout;
}

/// The header with its length, padded to a multiple of kDataAlignment.
static Result<std::string> headerText(const std::string &path,
                                      std::span<const SafetensorsTensor> layout,
                                      const std::map<std::string, std::string> &metadata) {
  const bool isText =
      std::ranges::all_of(layout, [](auto &tensor) { return Json::isText(tensor.name); }) &&
      std::ranges::all_of(metadata, [](auto &entry) {
        return Json::isText(entry.first) && Json::isText(entry.second);
      });
  if (!isText)
    return makeError(ErrorCode::InvalidArgument,
                     "{}: a tensor's name or the metadata is not UTF-8 text", path);
  std::string text = "{";
  if (!metadata.empty())
    text += "\"__metadata__\":" + Json(Json::Object(metadata.begin(), metadata.end())).text();
  for (const SafetensorsTensor &tensor : layout)
    text +=
        fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}",
                    text.size() == 1 ? "" : ",", Json(tensor.name).text(), dtypeName(tensor.dtype),
                    Json(tensor.shape).text(), tensor.begin, tensor.end);
  text += '}';
  size_t total = (8 + text.size() + SafetensorsWriter::kDataAlignment - 1) /
                 SafetensorsWriter::kDataAlignment * SafetensorsWriter::kDataAlignment;
  text.resize(total - 8, ' ');
  std::string length;
  for (int i = 0; i < 8; ++i)
    length += static_cast<char>(text.size() >> (8 * i) & 0xff);
  return length + text;
}

Result<SafetensorsWriter>
SafetensorsWriter::create(const std::filesystem::path &path, std::vector<Tensor> tensors,
                          const std::map<std::string, std::string> &metadata) {
  Result<std::vector<SafetensorsTensor>> layout = layOut(path.string(), tensors);
  if (!layout)
    return Unexpected(layout.error());
  Result<std::string> header = headerText(path.string(), *layout, metadata);
  if (!header)
    return Unexpected(header.error());

  const std::filesystem::path staging = isSpecialFile(path) ? path : temporaryNameOf(path);
  int descriptor = ::open(staging.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0)
    return makeError(ErrorCode::IO, "{}: cannot create: {}", path.string(), std::strerror(errno));
  SafetensorsWriter writer;
  writer.name = path;
  writer.staging = staging;
  writer.descriptor = descriptor;
  writer.layout = std::move(*layout);
  writer.dataBegin = static_cast<int64_t>(header->size());

  // Reserve the space, so that a full disk shows before hours of work rather than after. File
  // systems that cannot reserve say so, and then the writes report it.
  int64_t dataBytes = writer.layout.empty() ? 0 : writer.layout.back().end;
  if (::fallocate(descriptor, FALLOC_FL_KEEP_SIZE, 0, writer.dataBegin + dataBytes) != 0 &&
      (errno == ENOSPC || errno == EFBIG || errno == EDQUOT))
    return makeError(ErrorCode::IO, "{}: cannot reserve {} bytes: {}", path.string(),
                     writer.dataBegin + dataBytes, std::strerror(errno));

  if (Result<void> done = writer.writeAll(std::as_bytes(std::span(*header))); !done)
    return Unexpected(done.error());
  writer.skipComplete();
  return writer;
}

SafetensorsWriter::SafetensorsWriter(SafetensorsWriter &&other) noexcept
    : name(std::move(other.name)), staging(std::move(other.staging)),
      layout(std::move(other.layout)), dataBegin(other.dataBegin), current(other.current),
      written(other.written), descriptor(std::exchange(other.descriptor, -1)) {}

SafetensorsWriter &SafetensorsWriter::operator=(SafetensorsWriter &&other) noexcept {
  if (this != &other) {
    discard();
    name = std::move(other.name);
    staging = std::move(other.staging);
    layout = std::move(other.layout);
    dataBegin = other.dataBegin;
    current = other.current;
    written = other.written;
    descriptor = std::exchange(other.descriptor, -1);
  }
  return *this;
}

SafetensorsWriter::~SafetensorsWriter() { discard(); }

void SafetensorsWriter::discard() {
  if (descriptor < 0)
    return;
  ::close(std::exchange(descriptor, -1));
  if (staging != name) // a device that was named as the output stays
    ::unlink(staging.c_str());
}

Result<void> SafetensorsWriter::writeAll(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return makeError(ErrorCode::IO, "{}: cannot write: {}", name.string(), std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return {};
}

void SafetensorsWriter::skipComplete() {
  while (current < layout.size() && written == layout[current].end)
    ++current;
}

Result<void> SafetensorsWriter::write(std::string_view tensor, std::span<const std::byte> bytes) {
  if (descriptor < 0)
    return makeError(ErrorCode::InvalidArgument, "{}: write after the file was finished",
                     name.string());
  if (bytes.empty())
    return {};
  if (current == layout.size() || layout[current].name != tensor)
    return makeError(ErrorCode::InvalidArgument,
                     "{}: bytes of tensor {} come out of order; expected {}", name.string(),
                     quote(tensor),
                     current == layout.size() ? "no more" : quote(layout[current].name));
  int64_t missing = layout[current].end - written;
  if (bytes.size() > static_cast<size_t>(missing))
    return makeError(ErrorCode::InvalidArgument,
                     "{}: tensor {}: {} bytes to write, but only {} are missing", name.string(),
                     quote(tensor), bytes.size(), missing);
  if (Result<void> done = writeAll(bytes); !done)
    return done;
  written += static_cast<int64_t>(bytes.size());
  skipComplete();
  return {};
}

Result<void> SafetensorsWriter::finish() {
  if (descriptor < 0)
    return makeError(ErrorCode::InvalidArgument, "{}: finished twice", name.string());
  if (current != layout.size())
    return makeError(ErrorCode::InvalidArgument,
                     "{}: tensor {} is incomplete: {} bytes are missing", name.string(),
                     quote(layout[current].name), layout[current].end - written);
  if (::fsync(descriptor) != 0)
    return makeError(ErrorCode::IO, "{}: cannot flush to the disk: {}", name.string(),
                     std::strerror(errno));
  const bool isClosed = ::close(std::exchange(descriptor, -1)) == 0;
  if (isClosed && (staging == name || ::rename(staging.c_str(), name.c_str()) == 0))
    return {};
  int reason = errno;
  if (staging != name)
    ::unlink(staging.c_str());
  return makeError(ErrorCode::IO, "{}: cannot {}: {}", name.string(),
                   isClosed ? "be replaced" : "close", std::strerror(reason));
}
