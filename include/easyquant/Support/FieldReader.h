//===- FieldReader.h - Checked reading of JSON documents --------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the files of an artifact that are JSON are read with. Private to the runtime.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_RUNTIME_FIELDREADER_H
#define EASYQUANT_LIB_RUNTIME_FIELDREADER_H

#include "Json.h"

#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace easyquant::runtime {

inline constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
inline constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

/// Reads fields and remembers the first mistake; after it, every read returns an empty value, so
/// that callers check once at the end.
class FieldReader {
public:
  explicit FieldReader(std::string_view document) : document(document) {}

  bool failed() const { return error.has_value(); }
  Error takeError() { return std::move(*error); }

  void fail(ErrorCode code, std::string_view field, std::string_view found,
            std::string_view expected) {
    if (!error)
      error = Error{code,
                    fmt::format("{}: {}: found {}, expected {}", document, field, found, expected)};
  }

  /// The member `key`, or null after reporting that it is missing.
  const Json &member(const Json &object, std::string_view where, const char *key,
                     std::string_view expected) {
    static const Json nothing;
    if (failed())
      return nothing;
    if (const Json *found = object.find(key))
      return *found;
    fail(ErrorCode::Corrupt, join(where, key), "nothing", expected);
    return nothing;
  }

  const Json &object(const Json &parent, std::string_view where, const char *key) {
    return typed(parent, where, key, &Json::isObject, "an object");
  }

  const Json &array(const Json &parent, std::string_view where, const char *key) {
    return typed(parent, where, key, &Json::isArray, "an array");
  }

  std::string string(const Json &parent, std::string_view where, const char *key) {
    const Json &value = typed(parent, where, key, &Json::isString, "a string");
    return failed() ? std::string() : value.string();
  }

  bool boolean(const Json &parent, std::string_view where, const char *key) {
    const Json &value = typed(parent, where, key, &Json::isBoolean, "true or false");
    return !failed() && value.boolean();
  }

  int64_t integer(const Json &parent, std::string_view where, const char *key, int64_t low,
                  int64_t high) {
    std::string expected = fmt::format("an integer in {}..{}", low, high);
    const Json &value = member(parent, where, key, expected);
    return integer(value, join(where, key), low, high);
  }

  int64_t integer(const Json &value, const std::string &where, int64_t low, int64_t high) {
    if (failed())
      return 0;
    std::optional<int64_t> found = value.integer();
    if (found && *found >= low && *found <= high)
      return *found;
    fail(ErrorCode::Corrupt, where, value.describe(),
         fmt::format("an integer in {}..{}", low, high));
    return 0;
  }

  void strings(const Json &parent, std::string_view where, const char *key) {
    const Json &values = array(parent, where, key);
    for (size_t i = 0; !failed() && i < values.size(); ++i)
      if (!values[i].isString())
        fail(ErrorCode::Corrupt, fmt::format("{}[{}]", join(where, key), i), values[i].describe(),
             "a string");
  }

  std::string checksum(const Json &parent, std::string_view where, const char *key) {
    std::string value = string(parent, where, key);
    bool isHex = value.size() == 32 && value.find_first_not_of("0123456789abcdef") == value.npos;
    if (!failed() && !isHex)
      fail(ErrorCode::Corrupt, join(where, key), Json::describe(value), "32 lower-case hex digits");
    return value;
  }

  static std::string join(std::string_view where, std::string_view key) {
    return where.empty() ? std::string(key) : fmt::format("{}.{}", where, key);
  }

private:
  const Json &typed(const Json &parent, std::string_view where, const char *key,
                    bool (Json::*isOfType)() const, std::string_view expected) {
    const Json &value = member(parent, where, key, expected);
    if (!failed() && !(value.*isOfType)())
      fail(ErrorCode::Corrupt, join(where, key), value.describe(), expected);
    return value;
  }

  std::string_view document;
  std::optional<Error> error;
};

} // namespace easyquant::runtime

#endif // EASYQUANT_LIB_RUNTIME_FIELDREADER_H
