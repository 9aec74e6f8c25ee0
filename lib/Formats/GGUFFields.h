//===- GGUFFields.h - Metadata of a GGUF file as fields ---------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_FORMATS_GGUFFIELDS_H
#define EASYQUANT_LIB_FORMATS_GGUFFIELDS_H

#include "easyquant/Formats/GGUF.h"
#include "easyquant/Support/Result.h"

#include "ConfigChecks.h"
#include "Text.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace easyquant::formats {

/// Reads typed metadata and remembers the first entry that is wrong.
class Metadata {
public:
  Metadata(const GGUFHeader &header, std::string_view fileName)
      : header(header), fileName(fileName) {}

  std::optional<Error> failure;

  const GGUFValue *find(const std::string &key) const {
    auto found = header.metadata.find(key);
    return found == header.metadata.end() ? nullptr : &found->second;
  }

  int64_t integer(const std::string &key, int64_t largest, std::optional<int64_t> otherwise = {}) {
    const GGUFValue *value = find(key);
    if (!value) {
      if (!otherwise)
        fail(ErrorCode::Corrupt, "metadata {}: missing; expected an integer from 1 to {}",
             quote(key), largest);
      return otherwise.value_or(1);
    }
    std::optional<int64_t> number = value->asInteger();
    if (const GGUFArray *array = value->asArray()) { // one number a layer
      number = sameInAllLayers(*array);
      if (!number) {
        fail(ErrorCode::Unsupported, "metadata {}: values that differ by layer are not supported",
             quote(key));
        return 1;
      }
    }
    if (!number || *number < 1 || *number > largest) {
      fail(ErrorCode::Corrupt, "metadata {}: expected an integer from 1 to {}, found {}",
           quote(key), largest,
           number ? std::to_string(*number) : std::string(ggufTypeName(value->type)));
      return 1;
    }
    return *number;
  }

  double positive(const std::string &key, std::optional<double> otherwise = {}) {
    const GGUFValue *value = find(key);
    if (!value) {
      if (!otherwise)
        fail(ErrorCode::Corrupt, "metadata {}: missing; expected a positive number", quote(key));
      return otherwise.value_or(1.0);
    }
    std::optional<double> number = value->asNumber();
    if (!number || !std::isfinite(*number) || *number <= 0.0) {
      fail(ErrorCode::Corrupt, "metadata {}: expected a positive number, found {}", quote(key),
           number ? fmt::format("{}", *number) : std::string(ggufTypeName(value->type)));
      return 1.0;
    }
    return *number;
  }

  std::optional<int64_t> token(const std::string &key) {
    const GGUFValue *value = find(key);
    if (!value)
      return std::nullopt;
    std::optional<int64_t> id = value->asInteger();
    if (!id)
      fail(ErrorCode::Corrupt, "metadata {}: expected a token id, found {}", quote(key),
           ggufTypeName(value->type));
    return id;
  }

  template <typename... Args>
  void fail(ErrorCode code, fmt::format_string<Args...> format, Args &&...args) {
    if (!failure)
      failure = {code,
                 fmt::format("{}: {}", fileName, fmt::format(format, std::forward<Args>(args)...))};
  }

private:
  static std::optional<int64_t> sameInAllLayers(const GGUFArray &array) {
    if (array.count == 0 || array.count > static_cast<uint64_t>(kMostLayers))
      return std::nullopt;
    std::optional<std::vector<int64_t>> values = integersOf(array);
    if (!values ||
        std::adjacent_find(values->begin(), values->end(), std::not_equal_to<>()) != values->end())
      return std::nullopt;
    return values->front();
  }

  const GGUFHeader &header;
  std::string_view fileName;
};

} // namespace easyquant::formats

#endif // EASYQUANT_LIB_FORMATS_GGUFFIELDS_H
