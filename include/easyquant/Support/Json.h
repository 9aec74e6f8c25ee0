//===- Json.h - JSON documents ----------------------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// nlohmann::json reads and writes the text, but its values take memory in their destructors and end
// the process where there is none. The runtime reports that as an error, so that documents are kept
// in this. What their fields have to be, FieldReader checks.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_SUPPORT_JSON_H
#define EASYQUANT_SUPPORT_JSON_H

#include "easyquant/Support/Result.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace easyquant {

class Json {
public:
  using Array = std::vector<Json>;
  using Object = std::map<std::string, Json, std::less<>>;
  /// An integer is unsigned only where it fits nothing else.
  using Value =
      std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string, Array, Object>;

  Json() = default;
  Json(std::nullptr_t) {}
  explicit Json(Value value) : value(std::move(value)) {}
  Json(Array elements) : value(std::move(elements)) {}
  Json(Object members) : value(std::move(members)) {}
  Json(std::string text) : value(std::move(text)) {}
  /// A number that is not finite is null: JSON has none.
  template <typename T>
    requires std::is_arithmetic_v<T>
  Json(T number) : value(valueOf(number)) {}
  template <typename T>
    requires(std::is_convertible_v<const T &, std::string_view> && !std::is_same_v<T, std::string>)
  Json(const T &text) : value(std::string(std::string_view(text))) {}
  template <typename T>
  Json(const std::vector<T> &elements) : Json(Array(elements.begin(), elements.end())) {}
  template <typename T> Json(const std::optional<T> &held) : Json(held ? Json(*held) : Json()) {}

  /// A document whose top level is an object. The last one of members of the same name counts.
  /// Errors: Corrupt, naming `path` (no JSON, no object, nested in more than 64 levels).
  static Result<Json> parseObject(std::string_view text, std::string_view path);

  /// The same for documents of many members, which are handed over one by one as they are read, so
  /// that no more than one is in memory. Keys that appear twice in a member are refused; the
  /// visitor checks the keys of the document itself. Errors: Corrupt (as above; nested in more than
  /// `depth` levels, a member of more than `values` values), and those of the visitor.
  struct Limits {
    size_t depth, values;
  };
  using Visitor = std::function<Result<void>(const std::string &name, const Json &value)>;
  static Result<void> parseMembers(std::string_view text, std::string_view path, Limits limits,
                                   const Visitor &visitor);

  bool isNull() const { return holds<std::nullptr_t>(); }
  bool isBoolean() const { return holds<bool>(); }
  bool isString() const { return holds<std::string>(); }
  bool isArray() const { return holds<Array>(); }
  bool isObject() const { return holds<Object>(); }
  /// std::nullopt where it is no integer of 64 bits.
  std::optional<int64_t> integer() const;
  /// std::nullopt where it is no number.
  std::optional<double> number() const;
  /// Whether it is this text.
  bool is(std::string_view text) const { return isString() && string() == text; }

  // Only for values that are of this kind.
  bool boolean() const { return std::get<bool>(value); }
  const std::string &string() const { return std::get<std::string>(value); }
  const Object &members() const { return std::get<Object>(value); }
  const Json &operator[](size_t index) const { return std::get<Array>(value)[index]; }

  /// Null where it is no object, or has no such member.
  const Json *find(std::string_view key) const;
  /// Elements of an array or members of an object; else 0.
  size_t size() const;

  /// In one line, all but ASCII escaped: for messages.
  std::string text() const { return text(kOneLine); }
  /// In lines, each level two spaces further, with a line break at the end: for files.
  std::string document() const { return text(0) + "\n"; }
  /// Short text for "found": scalars as they are written, containers by kind (they may be large).
  std::string describe() const;
  /// Whether it is UTF-8, as texts in JSON are; others lose bytes when they are written.
  static bool isText(std::string_view text);
  static std::string describe(std::string_view text) { return Json(std::string(text)).describe(); }

  bool operator==(const Json &) const = default;

private:
  friend class JsonBuilder;
  static constexpr int kOneLine = -1;
  template <typename T> static Value valueOf(T number) {
    if constexpr (std::is_same_v<T, bool>)
      return number;
    else if constexpr (std::is_floating_point_v<T>)
      return std::isfinite(number) ? Value(static_cast<double>(number)) : Value(nullptr);
    else if (std::in_range<int64_t>(number))
      return static_cast<int64_t>(number);
    else
      return static_cast<uint64_t>(number);
  }
  template <typename T> bool holds() const { return std::holds_alternative<T>(value); }
  /// In lines from level `depth` on, or in one.
  std::string text(int depth) const;

  Value value = nullptr;
};

} // namespace easyquant

#endif // EASYQUANT_SUPPORT_JSON_H
