//===- Safetensors.h - Reading safetensors files ------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A safetensors file is an 8-byte little-endian length, a JSON header of that length, and the data
// section. The header is untrusted: nothing is allocated by its numbers before they are checked
// against the length of the file. Format: https://huggingface.co/docs/safetensors
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_SAFETENSORS_H
#define EASYQUANT_FORMATS_SAFETENSORS_H

#include "easyquant/Formats/DType.h"
#include "easyquant/Support/MappedMemory.h"
#include "easyquant/Support/Result.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace easyquant::formats {

struct SafetensorsTensor {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  /// Place in the data section, in bytes.
  int64_t begin = 0, end = 0;
};

/// A checked header: names are unique and printable, and the tensors cover the data section
/// exactly, without overlap or hole, in the order of `tensors`.
struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;
  std::unordered_map<std::string, size_t> indexByName;
  /// The strings under "__metadata__".
  std::map<std::string, std::string> metadata;
  /// First byte of the data section, counted from the start of the file.
  int64_t dataOffset = 0;
};

/// Parses and checks the header of a whole file in memory; `fileName` is for messages only. Every
/// error is Corrupt and names the file and, where there is one, the tensor.
Result<SafetensorsHeader> parseSafetensorsHeader(std::span<const std::byte> file,
                                                 std::string_view fileName);

/// A mapped safetensors file.
class SafetensorsFile {
public:
  static Result<SafetensorsFile> open(const std::filesystem::path &path);

  const std::filesystem::path &path() const { return file.path(); }
  const MappedFile &mapping() const { return file; }
  const std::map<std::string, std::string> &metadata() const { return header.metadata; }

  /// In the order of their bytes.
  std::span<const SafetensorsTensor> tensors() const { return header.tensors; }
  /// Null if there is no tensor of that name.
  const SafetensorsTensor *find(std::string_view name) const;

  /// The bytes of a tensor of this file; no alignment beyond a byte is promised.
  std::span<const std::byte> data(const SafetensorsTensor &tensor) const;
  /// All tensors' bytes, from dataOffset() to the end of the file.
  std::span<const std::byte> dataSection() const;
  int64_t dataOffset() const { return header.dataOffset; }

private:
  MappedFile file;
  SafetensorsHeader header;
};

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_SAFETENSORS_H
