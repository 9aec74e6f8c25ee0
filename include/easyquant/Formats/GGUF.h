//===- GGUF.h - Reading GGUF files --------------------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A GGUF file is a header of typed key-value pairs, a table of tensors, and aligned tensor data.
// The header is untrusted: every count, length and offset is checked against the bytes that are
// left before anything is allocated by it.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_GGUF_H
#define EASYQUANT_FORMATS_GGUF_H

#include "easyquant/Formats/GGMLType.h"
#include "easyquant/Support/MappedMemory.h"
#include "easyquant/Support/Result.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

namespace easyquant::formats {

/// Type numbers of metadata values, as stored.
enum class GGUFType : uint32_t {
  U8 = 0,
  I8 = 1,
  U16 = 2,
  I16 = 3,
  U32 = 4,
  I32 = 5,
  F32 = 6,
  Bool = 7,
  String = 8,
  Array = 9,
  U64 = 10,
  I64 = 11,
  F64 = 12,
};
std::string_view ggufTypeName(GGUFType type);

/// An array of numbers or strings; arrays of arrays are refused. Its bytes stay in the file.
struct GGUFArray {
  GGUFType elementType = GGUFType::U8;
  uint64_t count = 0;
  /// The elements as stored, little-endian and unaligned.
  std::span<const std::byte> raw;
};

/// Unsigned and signed integers of any width, floats of either width, ... A value remembers the
/// type it was stored with.
struct GGUFValue {
  GGUFType type = GGUFType::U8;
  std::variant<uint64_t, int64_t, double, bool, std::string_view, GGUFArray> value;
  /// Its bytes in the file, behind the type.
  std::span<const std::byte> stored = {};

  /// The value as an integer, if it is one (of either sign) and fits.
  std::optional<int64_t> asInteger() const;
  /// The value as a number. An fp32 value is widened by way of its shortest decimal form, so that
  /// 1e-05f becomes 1e-05 and not 9.99999974737875e-06: writers narrow a double on the way in.
  std::optional<double> asNumber() const;
  std::optional<bool> asBool() const;
  std::optional<std::string_view> asString() const;
  const GGUFArray *asArray() const;
};

/// Integers of an array of any integer type; nullopt if the elements are something else.
std::optional<std::vector<int64_t>> integersOf(const GGUFArray &array);
/// Strings of an array of strings; nullopt if the elements are something else.
std::optional<std::vector<std::string_view>> stringsOf(const GGUFArray &array);

/// The tensor of a GGUF file whose elements divide the frequencies of the rotation: what
/// llama.cpp's converter makes of the scaling "llama3" of Llama 3.1, 3.2 and 3.3.
constexpr const char *kGGUFRopeFactors = "rope_freqs.weight";
/// The same of LongRope, in contexts of up to the original length and in longer ones.
constexpr const char *kGGUFShortRopeFactors = "rope_factors_short.weight";
constexpr const char *kGGUFLongRopeFactors = "rope_factors_long.weight";

struct GGUFTensor {
  std::string name;
  GGMLType type = GGMLType::F32;
  /// Outermost dimension first: the reverse of the file's order. 1 to 4 dimensions, each >= 1.
  std::vector<int64_t> shape;
  /// Place in the file, in bytes.
  int64_t offset = 0, bytes = 0;
};

/// A checked header: keys and tensor names are unique, tensors lie in the file and do not overlap.
/// Strings and arrays refer to the bytes that were parsed.
struct GGUFHeader {
  uint32_t version = 0;
  int64_t alignment = 32;
  std::map<std::string, GGUFValue, std::less<>> metadata;
  /// In the order of the file's table.
  std::vector<GGUFTensor> tensors;
  std::unordered_map<std::string, size_t> indexByName;
};

/// Parses and checks the header of a whole file in memory; `fileName` is for messages only. Errors:
/// Corrupt, or Unsupported for another version, byte order or tensor type.
Result<GGUFHeader> parseGGUFHeader(std::span<const std::byte> file, std::string_view fileName);

/// A mapped GGUF file.
class GGUFFile {
public:
  static Result<GGUFFile> open(const std::filesystem::path &path);

  const std::filesystem::path &path() const { return file.path(); }
  const MappedFile &mapping() const { return file; }

  const GGUFHeader &contents() const { return header; }
  /// Null if there is no such key.
  const GGUFValue *metadata(std::string_view key) const;

  std::span<const GGUFTensor> tensors() const { return header.tensors; }
  /// Null if there is no tensor of that name.
  const GGUFTensor *find(std::string_view name) const;
  std::span<const std::byte> data(const GGUFTensor &tensor) const;

private:
  MappedFile file;
  GGUFHeader header;
};

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_GGUF_H
