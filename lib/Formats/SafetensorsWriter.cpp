//===- SafetensorsWriter.cpp - Streaming safetensors files ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/SafetensorsWriter.h"

#include "easyquant/Support/Json.h"

#include "Text.h"

#include <algorithm>
#include <unordered_set>

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

  const auto dataBegin = static_cast<int64_t>(header->size());
  Result<StreamedFile> file =
      StreamedFile::create(path, dataBegin + (layout->empty() ? 0 : layout->back().end));
  if (!file)
    return Unexpected(file.error());
  SafetensorsWriter writer(std::move(*file), std::move(*layout), dataBegin);
  if (Result<void> done = writer.file.write(std::as_bytes(std::span(*header))); !done)
    return Unexpected(done.error());
  writer.skipComplete();
  return writer;
}

void SafetensorsWriter::skipComplete() {
  while (current < layout.size() && written == layout[current].end)
    ++current;
}

Result<void> SafetensorsWriter::write(std::string_view tensor, std::span<const std::byte> bytes) {
  if (!file.isOpen())
    return makeError(ErrorCode::InvalidArgument, "{}: write after the file was finished",
                     path().string());
  if (bytes.empty())
    return {};
  if (current == layout.size() || layout[current].name != tensor)
    return makeError(ErrorCode::InvalidArgument,
                     "{}: bytes of tensor {} come out of order; expected {}", path().string(),
                     quote(tensor),
                     current == layout.size() ? "no more" : quote(layout[current].name));
  int64_t missing = layout[current].end - written;
  if (bytes.size() > static_cast<size_t>(missing))
    return makeError(ErrorCode::InvalidArgument,
                     "{}: tensor {}: {} bytes to write, but only {} are missing", path().string(),
                     quote(tensor), bytes.size(), missing);
  if (Result<void> done = file.write(bytes); !done)
    return done;
  written += static_cast<int64_t>(bytes.size());
  skipComplete();
  return {};
}

Result<void> SafetensorsWriter::finish() {
  if (!file.isOpen())
    return makeError(ErrorCode::InvalidArgument, "{}: finished twice", path().string());
  if (current != layout.size())
    return makeError(ErrorCode::InvalidArgument,
                     "{}: tensor {} is incomplete: {} bytes are missing", path().string(),
                     quote(layout[current].name), layout[current].end - written);
  return file.finish();
}
