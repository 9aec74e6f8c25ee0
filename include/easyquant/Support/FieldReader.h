//===- FieldReader.h - Structures from JSON documents and back --*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The fields of a structure are listed once, in a function beside it, for reading and for writing:
//
//   template <typename Fields> void mapFields(Fields &fields, Range &range) {
//     fields.required("low", range.low);
//     fields.optional("high", range.high, Bounds{0, 100});
//   }
//
// FieldReader checks what it reads and remembers the first mistake; after it, every read leaves its
// value alone. A field can be
//
//   bool, std::string, an integer (within Bounds), double (within Numbers), Json (anything),
//   an enumeration with `std::span<const char *const> namesOf(E)`, its values counted from 0,
//   std::optional<T> (null in the document), std::vector<T>, std::array<T, N>,
//   std::map<std::string, T>, and a structure that has mapFields. Limits hold for whatever is
//   inside.
//
// A document that needs more than a list is read field by field.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_SUPPORT_FIELDREADER_H
#define EASYQUANT_SUPPORT_FIELDREADER_H

#include "easyquant/Support/Json.h"

#include <array>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace easyquant {

inline constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
inline constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

/// What an integer may be, both ends included.
struct Bounds {
  int64_t low = 0, high = kMaxInt64;
};
/// What a floating-point number may be. It is finite in any case.
enum class Numbers { Any, NotNegative, Positive };

/// A text that may be written as a number, too: "0.5" or 0.5.
struct TextOrNumber {
  std::string &text;
};

namespace json_fields {

template <typename T> inline constexpr bool isOptional = false;
template <typename T> inline constexpr bool isOptional<std::optional<T>> = true;
template <typename T> inline constexpr bool isVector = false;
template <typename T> inline constexpr bool isVector<std::vector<T>> = true;
template <typename T> inline constexpr bool isArray = false;
template <typename T, size_t N> inline constexpr bool isArray<std::array<T, N>> = true;
template <typename T> inline constexpr bool isMap = false;
template <typename T> inline constexpr bool isMap<std::map<std::string, T>> = true;

std::string expectedInteger(Bounds bounds);
std::string expectedNumber(Numbers numbers);
std::string expectedName(std::span<const char *const> names);

/// What a field of type T has to be, for messages.
template <typename T> std::string expected(Bounds bounds, Numbers numbers) {
  if constexpr (std::is_same_v<T, bool>)
    return "true or false";
  else if constexpr (std::is_same_v<T, std::string>)
    return "a string";
  else if constexpr (std::is_same_v<T, Json>)
    return "a value";
  else if constexpr (std::is_same_v<T, TextOrNumber>)
    return "a text or a number";
  else if constexpr (std::is_integral_v<T>)
    return expectedInteger(bounds);
  else if constexpr (std::is_floating_point_v<T>)
    return expectedNumber(numbers);
  else if constexpr (std::is_enum_v<T>)
    return expectedName(namesOf(T()));
  else if constexpr (isOptional<T>)
    return expected<typename T::value_type>(bounds, numbers) + " or null";
  else if constexpr (isArray<T>)
    return "an array of " + std::to_string(std::tuple_size_v<T>);
  else if constexpr (isVector<T>)
    return "an array";
  else
    return "an object";
}

} // namespace json_fields

class FieldReader {
public:
  static constexpr bool kReads = true;

  struct Options {
    ErrorCode code = ErrorCode::Corrupt;
    bool nullIsAbsent = false;  ///< a field that is null is not there
    bool refuseUnknown = false; ///< finish() does so
  };

  /// `document` is what messages call it. Both arguments last as long as the reader.
  FieldReader(const Json &object, std::string_view document, Options options);
  FieldReader(const Json &object, std::string_view document)
      : FieldReader(object, document, Options()) {}
  FieldReader(const FieldReader &) = delete;
  FieldReader &operator=(const FieldReader &) = delete;

  //===- Fields -----------------------------------------------------------===//

  /// Has to be there.
  template <typename T> void required(const char *key, T &&value, Bounds bounds) {
    read(key, value, bounds, Numbers::Any);
  }
  template <typename T> void required(const char *key, T &&value, Numbers numbers = Numbers::Any) {
    read(key, value, Bounds(), numbers);
  }
  /// Need not be there; then `value` stays as it is.
  template <typename T> void optional(const char *key, T &&value, Bounds bounds) {
    if (has(key))
      read(key, value, bounds, Numbers::Any);
  }
  template <typename T> void optional(const char *key, T &&value, Numbers numbers = Numbers::Any) {
    if (has(key))
      read(key, value, Bounds(), numbers);
  }
  /// A structure that is read field by field: body(FieldReader &) if it is there.
  template <typename Body> void object(const char *key, Body body) {
    if (const Json *found = find(key); found && expectObject(*found, {&place, key})) {
      FieldReader fields(*this, *found, {&place, key});
      body(fields);
      fields.finish();
    }
  }
  /// All that has not been read, as it is.
  void rest(Json::Object &fields);

  bool has(const char *key) { return find(key) != nullptr; }
  /// The field as it is, or null.
  const Json *find(const char *key);
  /// Whether the document has it, be it null.
  bool names(const char *key) { return object_.find(key) != nullptr; }

  //===- Mistakes ---------------------------------------------------------===//

  /// Says that `key`, the way from here, is not as it should be, unless `holds`.
  void check(bool holds, std::string_view key, std::string_view found, std::string_view expected);
  /// The same of a text in the document.
  void checkText(bool holds, std::string_view key, std::string_view text,
                 std::string_view expected) {
    if (!holds)
      check(holds, key, Json::describe(text), expected);
  }
  /// An integer that is `version` in what this version of EasyQuant reads. `writer`: which one
  /// wrote the document, in words, or nothing.
  void version(const char *key, int64_t version, std::string_view writer = {});
  void fail(ErrorCode code, std::string_view key, std::string_view found,
            std::string_view expected);
  /// The same in words of its own.
  template <typename... Args>
  void failInWords(ErrorCode code, fmt::format_string<Args...> format, Args &&...args) {
    failWith(code, fmt::format(format, std::forward<Args>(args)...));
  }
  /// Unknown keys, where they are refused.
  void finish();

  bool failed() const { return state->error.has_value(); }
  /// What went wrong first, if anything did.
  Result<void> result() const;

private:
  /// Where a value is in its document: the way up.
  struct Place {
    const Place *parent = nullptr;
    std::string_view key = {};
    std::optional<size_t> index = {};
    std::string text() const;
  };
  struct State {
    std::string_view document;
    Options options;
    std::optional<Error> error;
  };

  FieldReader(FieldReader &parent, const Json &object, const Place &place)
      : state(parent.state), object_(object), place(place) {}

  void failAt(const std::string &place, ErrorCode code, std::string_view found,
              std::string_view expected);
  void refuse(const Place &place, const Json &found, std::string_view expected) {
    failAt(place.text(), state->options.code, found.describe(), expected);
  }
  void failWith(ErrorCode code, std::string_view message);
  bool expectObject(const Json &found, const Place &place);

  template <typename T> void read(const char *key, T &value, Bounds bounds, Numbers numbers) {
    if (failed())
      return;
    const Place at{&place, key};
    if (const Json *found = find(key))
      readValue(*found, at, value, bounds, numbers);
    else
      failAt(at.text(), state->options.code, "nothing", json_fields::expected<T>(bounds, numbers));
  }

  template <typename T>
  void readValue(const Json &found, const Place &at, T &value, Bounds bounds, Numbers numbers) {
    using namespace json_fields;
    auto refuseIt = [&] { refuse(at, found, expected<T>(bounds, numbers)); };
    if constexpr (std::is_same_v<T, bool>) {
      found.isBoolean() ? void(value = found.boolean()) : refuseIt();
    } else if constexpr (std::is_same_v<T, std::string>) {
      found.isString() ? void(value = found.string()) : refuseIt();
    } else if constexpr (std::is_same_v<T, Json>) {
      value = found;
    } else if constexpr (std::is_same_v<T, TextOrNumber>) {
      if (!found.isString() && !found.number())
        return refuseIt();
      value.text = found.isString() ? found.string() : fmt::format("{}", *found.number());
    } else if constexpr (std::is_integral_v<T>) {
      std::optional<int64_t> number = found.integer();
      if (!number || *number < bounds.low || *number > bounds.high)
        return refuseIt();
      value = static_cast<T>(*number);
    } else if constexpr (std::is_floating_point_v<T>) {
      if (!isNumber(found, numbers))
        return refuseIt();
      value = static_cast<T>(*found.number());
    } else if constexpr (std::is_enum_v<T>) {
      auto names = namesOf(T());
      for (size_t i = 0; i < names.size(); ++i)
        if (found.is(names[i]))
          return void(value = static_cast<T>(i));
      refuseIt();
    } else if constexpr (isOptional<T>) {
      if (found.isNull())
        return value.reset();
      typename T::value_type inner{};
      // The message says that it might be null, too.
      if constexpr (std::is_class_v<typename T::value_type>)
        if (!isKind<typename T::value_type>(found))
          return refuseIt();
      readValue(found, at, inner, bounds, numbers);
      value = std::move(inner);
    } else if constexpr (isArray<T>) {
      if (!found.isArray() || found.size() != value.size())
        return refuseIt();
      for (size_t i = 0; !failed() && i < value.size(); ++i)
        readValue(found[i], {&at, {}, i}, value[i], bounds, numbers);
    } else if constexpr (isVector<T>) {
      if (!found.isArray())
        return refuseIt();
      value.clear();
      value.reserve(found.size());
      for (size_t i = 0; !failed() && i < found.size(); ++i) {
        typename T::value_type element{};
        readValue(found[i], {&at, {}, i}, element, bounds, numbers);
        value.push_back(std::move(element));
      }
    } else if constexpr (isMap<T>) {
      if (!found.isObject())
        return refuseIt();
      value.clear();
      for (const auto &[name, member] : found.members())
        if (!failed())
          readValue(member, {&at, name}, value[name], bounds, numbers);
    } else {
      if (!expectObject(found, at))
        return;
      FieldReader fields(*this, found, at);
      mapFields(fields, value);
      fields.finish();
    }
  }

  static bool isNumber(const Json &found, Numbers numbers);
  template <typename T> static bool isKind(const Json &found) {
    if constexpr (std::is_same_v<T, std::string>)
      return found.isString();
    else if constexpr (std::is_same_v<T, Json>)
      return true;
    else if constexpr (json_fields::isVector<T> || json_fields::isArray<T>)
      return found.isArray();
    else
      return found.isObject();
  }

  State own; ///< of the reader of the whole document
  State *state;
  const Json &object_;
  Place place;
  std::vector<std::string_view> known; ///< the keys that were asked for
};

/// Reads all fields of `value`, a structure with mapFields.
template <typename T>
Result<void> readFields(const Json &object, std::string_view document, T &value,
                        FieldReader::Options options = {}) {
  FieldReader fields(object, document, options);
  mapFields(fields, value);
  fields.finish();
  return fields.result();
}

/// The other direction of the same lists.
class FieldWriter {
public:
  static constexpr bool kReads = false;

  template <typename T, typename... Limits>
  void required(const char *key, const T &value, Limits...) {
    object[key] = toJson(value);
  }
  template <typename T, typename... Limits>
  void optional(const char *key, const T &value, Limits...) {
    if constexpr (json_fields::isOptional<T>) {
      if (value)
        object[key] = toJson(*value);
    } else if constexpr (json_fields::isMap<T>) {
      if (!value.empty())
        object[key] = toJson(value);
    } else {
      object[key] = toJson(value);
    }
  }
  void rest(const Json::Object &fields) { object.insert(fields.begin(), fields.end()); }
  void version(const char *key, int64_t version, std::string_view = {}) {
    object[key] = Json(version);
  }
  template <typename... Args> void check(Args &&...) {}
  template <typename... Args> void checkText(Args &&...) {}

  Json take() { return Json(std::move(object)); }
  /// Writes any value that can be a field.
  template <typename T> static Json toJson(const T &value) {
    using namespace json_fields;
    if constexpr (std::is_convertible_v<const T &, Json> && !isOptional<T> && !isVector<T>) {
      return value;
    } else if constexpr (std::is_enum_v<T>) {
      return Json(std::string(namesOf(T())[static_cast<size_t>(value)]));
    } else if constexpr (isOptional<T>) {
      return value ? toJson(*value) : Json();
    } else if constexpr (isVector<T> || isArray<T>) {
      Json::Array elements;
      for (const auto &element : value)
        elements.push_back(toJson(element));
      return Json(std::move(elements));
    } else if constexpr (isMap<T>) {
      Json::Object members;
      for (const auto &[name, member] : value)
        members.emplace(name, toJson(member));
      return Json(std::move(members));
    } else {
      FieldWriter fields;
      // One list serves both; a writer changes nothing.
      mapFields(fields, const_cast<T &>(value));
      return fields.take();
    }
  }

private:
  Json::Object object;
};

} // namespace easyquant

#endif // EASYQUANT_SUPPORT_FIELDREADER_H
