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

#include "easyquant/Support/Result.h"

#include <nlohmann/json.hpp>

#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace easyquant::runtime {

using nlohmann::json;

inline constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
inline constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

/// Short text for "found": scalars as they are written, containers by kind (they may be large).
inline std::string describe(const json &value) {
  if (value.is_object())
    return "an object";
  if (value.is_array())
    return "an array";
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  return text.size() <= 80 ? text : text.substr(0, 77) + "...";
}

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
  const json &member(const json &object, std::string_view where, const char *key,
                     std::string_view expected) {
    static const json nothing;
    if (failed())
      return nothing;
    auto it = object.find(key);
    if (it != object.end())
      return *it;
    fail(ErrorCode::Corrupt, join(where, key), "nothing", expected);
    return nothing;
  }

  const json &object(const json &parent, std::string_view where, const char *key) {
    return typed(parent, where, key, json::value_t::object, "an object");
  }

  const json &array(const json &parent, std::string_view where, const char *key) {
    return typed(parent, where, key, json::value_t::array, "an array");
  }

  std::string string(const json &parent, std::string_view where, const char *key) {
    const json &value = typed(parent, where, key, json::value_t::string, "a string");
    return failed() ? std::string() : value.get<std::string>();
  }

  bool boolean(const json &parent, std::string_view where, const char *key) {
    const json &value = typed(parent, where, key, json::value_t::boolean, "true or false");
    return !failed() && value.get<bool>();
  }

  int64_t integer(const json &parent, std::string_view where, const char *key, int64_t low,
                  int64_t high) {
    std::string expected = fmt::format("an integer in {}..{}", low, high);
    const json &value = member(parent, where, key, expected);
    return integer(value, join(where, key), low, high);
  }

  int64_t integer(const json &value, const std::string &where, int64_t low, int64_t high) {
    if (failed())
      return 0;
    // Positive literals are stored unsigned and may not fit; comparing unsigned sees that.
    bool fits = value.is_number_unsigned() ? value.get<uint64_t>() <= uint64_t(kMaxInt64)
                                           : value.is_number_integer();
    if (fits && value.get<int64_t>() >= low && value.get<int64_t>() <= high)
      return value.get<int64_t>();
    fail(ErrorCode::Corrupt, where, describe(value),
         fmt::format("an integer in {}..{}", low, high));
    return 0;
  }

  void strings(const json &parent, std::string_view where, const char *key) {
    const json &values = array(parent, where, key);
    for (size_t i = 0; !failed() && i < values.size(); ++i)
      if (!values[i].is_string())
        fail(ErrorCode::Corrupt, fmt::format("{}[{}]", join(where, key), i), describe(values[i]),
             "a string");
  }

  std::string checksum(const json &parent, std::string_view where, const char *key) {
    std::string value = string(parent, where, key);
    bool isHex = value.size() == 32 && value.find_first_not_of("0123456789abcdef") == value.npos;
    if (!failed() && !isHex)
      fail(ErrorCode::Corrupt, join(where, key), describe(json(value)), "32 lower-case hex digits");
    return value;
  }

  static std::string join(std::string_view where, std::string_view key) {
    return where.empty() ? std::string(key) : fmt::format("{}.{}", where, key);
  }

private:
  const json &typed(const json &parent, std::string_view where, const char *key, json::value_t type,
                    std::string_view expected) {
    const json &value = member(parent, where, key, expected);
    if (!failed() && value.type() != type)
      fail(ErrorCode::Corrupt, join(where, key), describe(value), expected);
    return value;
  }

  std::string_view document;
  std::optional<Error> error;
};

/// Errors: Corrupt, naming `path`.
inline Result<json> parseJSON(std::string_view text, std::string_view path) {
  try {
    json root = json::parse(text);
    if (root.is_object())
      return root;
    return makeError(ErrorCode::Corrupt, "{}: found {}, expected an object", path, describe(root));
  } catch (const json::parse_error &error) {
    return makeError(ErrorCode::Corrupt,
                     "{}: not valid JSON at byte {} of {}; copy or compile the artifact again",
                     path, error.byte, text.size());
  } catch (const json::out_of_range &) { // a number beyond double, such as 1e999
    return makeError(ErrorCode::Corrupt,
                     "{}: not valid JSON: a number is out of range; copy or compile the artifact "
                     "again",
                     path);
  }
}

} // namespace easyquant::runtime

#endif // EASYQUANT_LIB_RUNTIME_FIELDREADER_H
