//===- TestFiles.h - Files that the tests of Formats write --------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_FORMATS_TESTFILES_H
#define EASYQUANT_TEST_FORMATS_TESTFILES_H

#include "../Support/TestFiles.h"

#include "easyquant/Formats/GGUF.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace easyquant::formats::test {

using namespace easyquant::test;

inline std::span<const std::byte> bytesOf(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// The bytes of a little-endian number.
template <typename T> std::string raw(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

template <typename T> std::string rawAll(const std::vector<T> &values) {
  std::string bytes;
  for (const T &value : values)
    bytes += raw(value);
  return bytes;
}

/// A safetensors file out of a header, as it stands, and a data section.
inline std::string safetensors(std::string_view header, std::string_view data) {
  return raw<uint64_t>(header.size()) + std::string(header) + std::string(data);
}

/// A .npy file of version 1.0 out of a header, as it stands, and elements.
inline std::string npy(std::string_view header, std::string_view data) {
  return "\x93NUMPY\x01" + std::string(1, '\0') + raw<uint16_t>(header.size()) +
         std::string(header) + std::string(data);
}

/// Writes GGUF files, good ones and bad ones.
class GGUFBuilder {
public:
  uint32_t version = 3;
  uint64_t alignment = 32;

  static std::string string(std::string_view text) {
    return raw<uint64_t>(text.size()) + std::string(text);
  }
  /// A pair whose value is already bytes.
  GGUFBuilder &pair(std::string_view key, GGUFType type, std::string_view bytes) {
    pairs += string(key) + raw(type) + std::string(bytes);
    ++pairCount;
    return *this;
  }
  GGUFBuilder &text(std::string_view key, std::string_view value) {
    return pair(key, GGUFType::String, string(value));
  }
  GGUFBuilder &u32(std::string_view key, uint32_t value) {
    return pair(key, GGUFType::U32, raw(value));
  }
  GGUFBuilder &f32(std::string_view key, float value) {
    return pair(key, GGUFType::F32, raw(value));
  }
  /// A tensor with its entry in the table; dimensions innermost first, as in the file.
  GGUFBuilder &tensor(std::string_view name, std::vector<uint64_t> dimensions, GGMLType type,
                      std::string_view bytes) {
    entry(name, dimensions, static_cast<uint32_t>(type), data.size());
    data += bytes;
    data.resize((data.size() + alignment - 1) / alignment * alignment);
    return *this;
  }
  GGUFBuilder &entry(std::string_view name, const std::vector<uint64_t> &dimensions, uint32_t type,
                     uint64_t offset) {
    tensors += string(name) + raw<uint32_t>(dimensions.size()) + rawAll(dimensions) + raw(type) +
               raw(offset);
    ++tensorCount;
    return *this;
  }

  std::string build() const {
    std::string file = "GGUF" + raw(version) + raw(tensorCount) + raw(pairCount) + pairs + tensors;
    file.resize((file.size() + alignment - 1) / alignment * alignment);
    return file + data;
  }

  uint64_t pairCount = 0, tensorCount = 0;

private:
  std::string pairs, tensors, data;
};

} // namespace easyquant::formats::test

#endif // EASYQUANT_TEST_FORMATS_TESTFILES_H
