//===- GGUF.cpp - Reading GGUF files --------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/GGUF.h"

#include "easyquant/Formats/DType.h"

#include "Half.h"
#include "Text.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <limits>

using namespace easyquant;
using namespace easyquant::formats;

namespace {

constexpr uint32_t kMagic = 0x46554747; // "GGUF"
constexpr size_t kMaxDimensions = 4;
/// A larger alignment would only be a way to make offsets overflow.
constexpr int64_t kLargestAlignment = 1 << 20;
/// The least that a key-value pair and a tensor take in the header: with these a count can be
/// checked against the bytes that are left.
constexpr uint64_t kSmallestPair = 8 + 4 + 1;
constexpr uint64_t kSmallestTensor = 8 + 4 + 8 + 4 + 8;

struct TypeInfo {
  GGUFType type;
  std::string_view name;
  uint64_t bytes; ///< of one value; 0 if it varies
};
constexpr std::array<TypeInfo, 13> kValueTypes = {{
    {GGUFType::U8, "uint8", 1},
    {GGUFType::I8, "int8", 1},
    {GGUFType::U16, "uint16", 2},
    {GGUFType::I16, "int16", 2},
    {GGUFType::U32, "uint32", 4},
    {GGUFType::I32, "int32", 4},
    {GGUFType::F32, "float32", 4},
    {GGUFType::Bool, "bool", 1},
    {GGUFType::String, "string", 0},
    {GGUFType::Array, "array", 0},
    {GGUFType::U64, "uint64", 8},
    {GGUFType::I64, "int64", 8},
    {GGUFType::F64, "float64", 8},
}};

/// See GGUFValue::asNumber.
double widen(float value) {
  if (!(value - value == 0.0f)) // not finite: no decimal form
    return value;
  std::array<char, 32> text;
  auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  double result = value;
  if (error == std::errc())
    std::from_chars(text.data(), end, result);
  return result;
}

/// The number of a fixed-size type at `data`, which holds at least its bytes.
GGUFValue numberAt(GGUFType type, const std::byte *data) {
  switch (type) {
  case GGUFType::U8:
    return {type, uint64_t(load<uint8_t>(data))};
  case GGUFType::I8:
    return {type, int64_t(load<int8_t>(data))};
  case GGUFType::U16:
    return {type, uint64_t(load<uint16_t>(data))};
  case GGUFType::I16:
    return {type, int64_t(load<int16_t>(data))};
  case GGUFType::U32:
    return {type, uint64_t(load<uint32_t>(data))};
  case GGUFType::I32:
    return {type, int64_t(load<int32_t>(data))};
  case GGUFType::U64:
    return {type, load<uint64_t>(data)};
  case GGUFType::I64:
    return {type, load<int64_t>(data)};
  case GGUFType::F32:
    return {type, widen(load<float>(data))};
  case GGUFType::F64:
    return {type, load<double>(data)};
  default:
    return {type, load<uint8_t>(data) != 0};
  }
}

/// Reads a header from front to back. A method returns false after it has set `failure`.
class HeaderParser {
public:
  HeaderParser(std::span<const std::byte> file, std::string_view fileName)
      : file(file), fileName(fileName) {}

  Result<GGUFHeader> parse() {
    if (!parseCounts() || !parseMetadata() || !parseTensors() || !placeTensors())
      return Unexpected(std::move(failure));
    return std::move(header);
  }

private:
  uint64_t left() const { return file.size() - position; }

  template <typename... Args>
  bool fail(ErrorCode code, fmt::format_string<Args...> format, Args &&...args) {
    failure = {code,
               fmt::format("{}: {}", fileName, fmt::format(format, std::forward<Args>(args)...))};
    return false;
  }

  bool truncated(std::string_view what) {
    return fail(ErrorCode::Corrupt,
                "the file ends within {} (byte {} of {}); it is truncated or damaged", what,
                position, file.size());
  }

  template <typename T> bool read(T &value, std::string_view what) {
    if (left() < sizeof(T))
      return truncated(what);
    value = load<T>(file.data() + position);
    position += sizeof(T);
    return true;
  }

  bool readString(std::string_view &value, std::string_view what) {
    uint64_t length = 0;
    if (!read(length, what))
      return false;
    if (length > left())
      return fail(ErrorCode::Corrupt, "{}: a string of {} bytes is announced, but only {} are left",
                  what, length, left());
    value = {reinterpret_cast<const char *>(file.data()) + position, length};
    position += length;
    return true;
  }

  bool parseCounts() {
    uint32_t magic = 0;
    if (!read(magic, "the magic number"))
      return false;
    if (magic != kMagic)
      return fail(ErrorCode::Corrupt, "not a GGUF file: it does not begin with \"GGUF\"");
    if (!read(header.version, "the version"))
      return false;
    if (header.version == 0x02000000 || header.version == 0x03000000)
      return fail(ErrorCode::Unsupported, "big-endian GGUF is not supported; convert the file");
    // Version 2 has the layout of version 3.
    if (header.version != 2 && header.version != 3)
      return fail(ErrorCode::Unsupported, "GGUF version {} is not supported; expected 2 or 3",
                  header.version);
    if (!read(tensorCount, "the tensor count") || !read(pairCount, "the metadata count"))
      return false;
    if (tensorCount > left() / kSmallestTensor)
      return fail(ErrorCode::Corrupt, "{} tensors are announced, but only {} bytes follow",
                  tensorCount, left());
    if (pairCount > left() / kSmallestPair)
      return fail(ErrorCode::Corrupt, "{} metadata entries are announced, but only {} bytes follow",
                  pairCount, left());
    return true;
  }

  bool parseMetadata() {
    for (uint64_t i = 0; i < pairCount; ++i) {
      std::string_view key;
      if (!readString(key, fmt::format("the key of metadata entry {}", i)))
        return false;
      if (!isPlainName(key))
        return fail(ErrorCode::Corrupt, "the metadata key {} is empty, too long, or not printable",
                    quote(key));
      std::string what = "metadata " + quote(key);
      GGUFValue value;
      if (!readType(value.type, what))
        return false;
      const uint64_t begin = position;
      if (!readValue(value, what))
        return false;
      value.stored = file.subspan(begin, position - begin);
      if (!header.metadata.emplace(key, value).second)
        return fail(ErrorCode::Corrupt, "{} appears twice", what);
    }
    return readAlignment();
  }

  bool readAlignment() {
    auto found = header.metadata.find("general.alignment");
    if (found == header.metadata.end())
      return true;
    std::optional<int64_t> alignment = found->second.asInteger();
    if (!alignment || *alignment < 1 || *alignment > kLargestAlignment ||
        !std::has_single_bit(static_cast<uint64_t>(*alignment)))
      return fail(ErrorCode::Corrupt,
                  "metadata \"general.alignment\": expected a power of two up to {}, found {}",
                  kLargestAlignment,
                  alignment ? std::to_string(*alignment)
                            : std::string(ggufTypeName(found->second.type)));
    header.alignment = *alignment;
    return true;
  }

  bool readType(GGUFType &type, std::string_view what) {
    uint32_t number = 0;
    if (!read(number, what))
      return false;
    if (number >= kValueTypes.size())
      return fail(ErrorCode::Corrupt, "{}: unknown value type {}", what, number);
    type = static_cast<GGUFType>(number);
    return true;
  }

  bool readValue(GGUFValue &value, std::string_view what) {
    if (value.type == GGUFType::Array)
      return readArray(value, what);
    if (value.type == GGUFType::String) {
      std::string_view text;
      if (!readString(text, what))
        return false;
      value.value = text;
      return true;
    }
    uint64_t bytes = kValueTypes[static_cast<size_t>(value.type)].bytes;
    if (left() < bytes)
      return truncated(what);
    value = numberAt(value.type, file.data() + position);
    position += bytes;
    return true;
  }

  bool readArray(GGUFValue &value, std::string_view what) {
    GGUFArray array;
    if (!readType(array.elementType, what) || !read(array.count, what))
      return false;
    if (array.elementType == GGUFType::Array)
      return fail(ErrorCode::Unsupported, "{}: an array of arrays is not supported", what);
    uint64_t begin = position;
    if (array.elementType == GGUFType::String) {
      if (array.count > left() / 8)
        return fail(ErrorCode::Corrupt, "{}: {} strings are announced, but only {} bytes are left",
                    what, array.count, left());
      std::string_view text;
      for (uint64_t i = 0; i < array.count; ++i)
        if (!readString(text, what))
          return false;
    } else {
      uint64_t bytes = kValueTypes[static_cast<size_t>(array.elementType)].bytes;
      if (array.count > left() / bytes)
        return fail(ErrorCode::Corrupt, "{}: {} values are announced, but only {} bytes are left",
                    what, array.count, left());
      position += array.count * bytes;
    }
    array.raw = file.subspan(begin, position - begin);
    value.value = array;
    return true;
  }

  bool parseTensors() {
    for (uint64_t i = 0; i < tensorCount; ++i) {
      std::string_view name;
      if (!readString(name, fmt::format("the name of tensor {}", i)))
        return false;
      if (!isPlainName(name))
        return fail(ErrorCode::Corrupt, "the tensor name {} is empty, too long, or not printable",
                    quote(name));
      if (!parseTensor(name, "tensor " + quote(name)))
        return false;
    }
    return true;
  }

  bool parseTensor(std::string_view name, const std::string &what) {
    GGUFTensor tensor;
    tensor.name = name;
    uint32_t dimensions = 0, typeNumber = 0;
    if (!read(dimensions, what))
      return false;
    if (dimensions < 1 || dimensions > kMaxDimensions)
      return fail(ErrorCode::Corrupt, "{}: expected 1 to {} dimensions, found {}", what,
                  kMaxDimensions, dimensions);
    for (uint32_t d = 0; d < dimensions; ++d) {
      uint64_t size = 0;
      if (!read(size, what))
        return false;
      if (size < 1 || size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        return fail(ErrorCode::Corrupt, "{}: dimension {} has the impossible size {}", what, d,
                    size);
      tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
    }
    uint64_t offset = 0;
    if (!read(typeNumber, what) || !read(offset, what))
      return false;

    const GGMLTypeInfo *type = ggmlTypeInfo(typeNumber);
    if (!type)
      return fail(ErrorCode::Unsupported, "{}: tensor type {} is not known", what, typeNumber);
    tensor.type = type->type;
    if (tensor.shape.back() % type->blockElements != 0)
      return fail(ErrorCode::Corrupt,
                  "{}: rows of {} elements are not whole blocks of {} ({} elements)", what,
                  tensor.shape.back(), type->name, type->blockElements);
    std::optional<int64_t> elements = elementCount(tensor.shape);
    if (!elements ||
        __builtin_mul_overflow(*elements / type->blockElements, type->blockBytes, &tensor.bytes) ||
        static_cast<uint64_t>(tensor.bytes) > file.size())
      return fail(ErrorCode::Corrupt, "{}: {} of shape {} does not fit into a file of {} bytes",
                  what, type->name, shapeText(tensor.shape), file.size());
    if (offset > file.size())
      return fail(ErrorCode::Corrupt, "{}: offset {} lies beyond the end of the file ({} bytes)",
                  what, offset, file.size());
    if (offset % static_cast<uint64_t>(header.alignment) != 0)
      return fail(ErrorCode::Corrupt, "{}: offset {} is not a multiple of the alignment {}", what,
                  offset, header.alignment);
    tensor.offset = static_cast<int64_t>(offset); // from the start of the data, for now
    if (!header.indexByName.emplace(tensor.name, header.tensors.size()).second)
      return fail(ErrorCode::Corrupt, "{}: the name appears twice", what);
    header.tensors.push_back(std::move(tensor));
    return true;
  }

  /// Makes the offsets absolute and checks them against the file and each other.
  bool placeTensors() {
    auto fileBytes = static_cast<int64_t>(file.size());
    int64_t dataBegin = (static_cast<int64_t>(position) + header.alignment - 1) / header.alignment *
                        header.alignment;
    std::vector<const GGUFTensor *> byPlace;
    for (GGUFTensor &tensor : header.tensors) {
      tensor.offset += dataBegin; // at most twice the file's size: no overflow
      if (tensor.offset > fileBytes - tensor.bytes)
        return fail(
            ErrorCode::Corrupt,
            "tensor {}: its {} bytes at {} reach beyond the end of the file ({} bytes); the "
            "file is truncated or damaged",
            quote(tensor.name), tensor.bytes, tensor.offset, fileBytes);
      byPlace.push_back(&tensor);
    }
    std::sort(byPlace.begin(), byPlace.end(),
              [](const GGUFTensor *a, const GGUFTensor *b) { return a->offset < b->offset; });
    for (size_t i = 1; i < byPlace.size(); ++i)
      if (byPlace[i - 1]->offset + byPlace[i - 1]->bytes > byPlace[i]->offset)
        return fail(ErrorCode::Corrupt, "tensors {} and {} overlap", quote(byPlace[i - 1]->name),
                    quote(byPlace[i]->name));
    return true;
  }

  std::span<const std::byte> file;
  std::string_view fileName;
  uint64_t position = 0;
  uint64_t tensorCount = 0, pairCount = 0;
  GGUFHeader header;
  Error failure = {ErrorCode::Corrupt, ""};
};

} // namespace

std::string_view formats::ggufTypeName(GGUFType type) {
  return kValueTypes[static_cast<size_t>(type)].name;
}

std::optional<int64_t> GGUFValue::asInteger() const {
  if (const auto *integer = std::get_if<int64_t>(&value))
    return *integer;
  if (const auto *integer = std::get_if<uint64_t>(&value))
    if (*integer <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return static_cast<int64_t>(*integer);
  return std::nullopt;
}

std::optional<double> GGUFValue::asNumber() const {
  if (const auto *number = std::get_if<double>(&value))
    return *number;
  if (std::optional<int64_t> integer = asInteger())
    return static_cast<double>(*integer);
  return std::nullopt;
}

std::optional<bool> GGUFValue::asBool() const {
  const bool *flag = std::get_if<bool>(&value);
  return flag ? std::optional(*flag) : std::nullopt;
}

std::optional<std::string_view> GGUFValue::asString() const {
  const auto *text = std::get_if<std::string_view>(&value);
  return text ? std::optional(*text) : std::nullopt;
}

const GGUFArray *GGUFValue::asArray() const { return std::get_if<GGUFArray>(&value); }

std::optional<std::vector<int64_t>> formats::integersOf(const GGUFArray &array) {
  uint64_t bytes = kValueTypes[static_cast<size_t>(array.elementType)].bytes;
  std::vector<int64_t> result;
  if (bytes == 0)
    return std::nullopt;
  for (uint64_t i = 0; i < array.count; ++i) {
    std::optional<int64_t> value =
        numberAt(array.elementType, array.raw.data() + i * bytes).asInteger();
    if (!value)
      return std::nullopt;
    result.push_back(*value);
  }
  return result;
}

std::optional<std::vector<std::string_view>> formats::stringsOf(const GGUFArray &array) {
  if (array.elementType != GGUFType::String)
    return std::nullopt;
  std::vector<std::string_view> result;
  const std::byte *data = array.raw.data();
  for (uint64_t i = 0; i < array.count; ++i) { // the parser has checked every length
    auto length = load<uint64_t>(data);
    result.emplace_back(reinterpret_cast<const char *>(data) + 8, length);
    data += 8 + length;
  }
  return result;
}

Result<GGUFHeader> formats::parseGGUFHeader(std::span<const std::byte> file,
                                            std::string_view fileName) {
  return HeaderParser(file, fileName).parse();
}

Result<GGUFFile> GGUFFile::open(const std::filesystem::path &path) {
  Result<MappedFile> file = MappedFile::open(path);
  if (!file)
    return Unexpected(file.error());
  Result<GGUFHeader> header = parseGGUFHeader(file->bytes(), path.string());
  if (!header)
    return Unexpected(header.error());
  GGUFFile result;
  result.file = std::move(*file);
  result.header = std::move(*header);
  return result;
}

const GGUFValue *GGUFFile::metadata(std::string_view key) const {
  auto found = header.metadata.find(key);
  return found == header.metadata.end() ? nullptr : &found->second;
}

const GGUFTensor *GGUFFile::find(std::string_view name) const {
  auto found = header.indexByName.find(std::string(name));
  return found == header.indexByName.end() ? nullptr : &header.tensors[found->second];
}

std::span<const std::byte> GGUFFile::data(const GGUFTensor &tensor) const {
  return file.bytes().subspan(tensor.offset, tensor.bytes);
}
