//===- Safetensors.cpp - Reading safetensors files ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/Safetensors.h"

#include "Text.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>
#include <utility>

using namespace easyquant;
using namespace easyquant::formats;
using nlohmann::json;

namespace {

/// The limit of the format's reference implementation.
constexpr uint64_t kLargestHeader = 100'000'000;
constexpr int64_t kLargestInteger = std::numeric_limits<int64_t>::max();

/// Builds the tensor table while the JSON is read. A document tree is never built: the format has
/// three levels, so that anything deeper, repeated or of another type stops the parser at once.
class HeaderReader final : public nlohmann::json_sax<json> {
public:
  HeaderReader(SafetensorsHeader &header, std::string_view fileName)
      : header(header), fileName(fileName) {}

  std::string message;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t &) override {
    return unexpected("a number that is no 64-bit integer");
  }
  bool binary(binary_t &) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place != Place::Shape && place != Place::Offsets)
      return unexpected("a number");
    if (value > static_cast<uint64_t>(kLargestInteger))
      return fail("{}: the number {} is too large",
                  place == Place::Shape ? "shape" : "data_offsets", value);
    if (place == Place::Shape) {
      tensor.shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (offsetCount == 2)
      return fail("data_offsets: expected two numbers, found more");
    offsets[offsetCount++] = static_cast<int64_t>(value);
    return true;
  }

  bool string(string_t &value) override {
    if (place == Place::Metadata) {
      if (!header.metadata.emplace(currentKey, value).second)
        return fail("__metadata__: the key {} appears twice", quote(currentKey));
      return true;
    }
    if (place != Place::Tensor || field != Field::DType)
      return unexpected("a string");
    std::optional<DType> type = parseDType(value);
    if (!type)
      return fail("unknown dtype {}", quote(value));
    tensor.dtype = *type;
    return true;
  }

  bool start_object(size_t) override {
    switch (place) {
    case Place::Start:
      place = Place::Top;
      return true;
    case Place::Top:
      if (currentKey == "__metadata__") {
        if (std::exchange(sawMetadata, true))
          return fail("__metadata__ appears twice");
        place = Place::Metadata;
        return true;
      }
      if (!isPlainName(currentKey))
        return fail("the name {} is empty, too long, or has control characters", quote(currentKey));
      tensor = {};
      tensor.name = currentKey;
      fields = 0;
      offsetCount = 0;
      place = Place::Tensor;
      return true;
    default:
      return unexpected("an object");
    }
  }

  bool key(string_t &value) override {
    if (place != Place::Tensor) {
      currentKey = value;
      return true;
    }
    for (auto [name, candidate] :
         {std::pair("dtype", Field::DType), std::pair("shape", Field::Shape),
          std::pair("data_offsets", Field::Offsets)}) {
      if (value != name)
        continue;
      field = candidate;
      if (fields & bit(field))
        return fail("{} appears twice", name);
      fields |= bit(field);
      return true;
    }
    return fail("unknown field {}; expected dtype, shape and data_offsets", quote(value));
  }

  bool end_object() override {
    switch (place) {
    case Place::Top:
      place = Place::End;
      return true;
    case Place::Metadata:
      place = Place::Top;
      return true;
    default:
      return finishTensor();
    }
  }

  bool start_array(size_t) override {
    if (place != Place::Tensor || field == Field::DType)
      return unexpected("an array");
    place = field == Field::Shape ? Place::Shape : Place::Offsets;
    return true;
  }

  bool end_array() override {
    place = Place::Tensor;
    return true;
  }

  bool parse_error(size_t position, const std::string &,
                   const nlohmann::detail::exception &) override {
    if (message.empty())
      message =
          fmt::format("{}: header is not well-formed JSON near its byte {}", fileName, position);
    return false;
  }

private:
  enum class Place { Start, Top, Metadata, Tensor, Shape, Offsets, End };
  enum class Field { DType, Shape, Offsets };
  static unsigned bit(Field field) { return 1u << static_cast<unsigned>(field); }

  template <typename... Args> bool fail(fmt::format_string<Args...> format, Args &&...args) {
    std::string where(fileName);
    if (place == Place::Tensor || place == Place::Shape || place == Place::Offsets)
      where += ": tensor " + quote(tensor.name);
    message = where + ": " + fmt::format(format, std::forward<Args>(args)...);
    return false;
  }

  bool unexpected(const char *found) {
    switch (place) {
    case Place::Start:
      return fail("header: expected an object, found {}", found);
    case Place::Top:
      return fail("header: entry {}: expected an object, found {}", quote(currentKey), found);
    case Place::Metadata:
      return fail("__metadata__: {}: expected a string, found {}", quote(currentKey), found);
    case Place::Tensor:
      return fail("{}, found {}",
                  field == Field::DType   ? "dtype: expected a string"
                  : field == Field::Shape ? "shape: expected an array"
                                          : "data_offsets: expected an array",
                  found);
    default:
      return fail("{}: expected non-negative integers, found {}",
                  place == Place::Shape ? "shape" : "data_offsets", found);
    }
  }

  bool finishTensor() {
    if (fields != (bit(Field::DType) | bit(Field::Shape) | bit(Field::Offsets)))
      return fail("dtype, shape or data_offsets is missing");
    if (offsetCount != 2)
      return fail("data_offsets: expected two numbers, found {}", offsetCount);
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
    place = Place::Top;
    return true;
  }

  SafetensorsHeader &header;
  std::string_view fileName;
  Place place = Place::Start;
  Field field = Field::DType;
  unsigned fields = 0;
  std::string currentKey;
  SafetensorsTensor tensor;
  std::array<int64_t, 2> offsets = {};
  int offsetCount = 0;
  bool sawMetadata = false;
};

} // namespace

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
  HeaderReader reader(header, fileName);
  if (!json::sax_parse(text, &reader))
    return Unexpected(Error{ErrorCode::Corrupt, std::move(reader.message)});

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
