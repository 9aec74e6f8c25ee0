//===- FieldReader.cpp - Structures from JSON documents and back ----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Support/FieldReader.h"

#include "easyquant/Support/DidYouMean.h"
#include "easyquant/Support/OneLine.h"
#include "easyquant/Support/Version.h"

#include <algorithm>
#include <cmath>

using namespace easyquant;

std::string json_fields::expectedInteger(Bounds bounds) {
  if (bounds.low == std::numeric_limits<int64_t>::min() && bounds.high == kMaxInt64)
    return "an integer";
  return fmt::format("an integer in {}..{}", bounds.low, bounds.high);
}

std::string json_fields::expectedNumber(Numbers numbers) {
  return numbers == Numbers::Positive      ? "a positive number"
         : numbers == Numbers::NotNegative ? "a number >= 0"
                                           : "a number";
}

std::string json_fields::expectedName(std::span<const char *const> names) {
  std::string joined;
  for (size_t i = 0; i < names.size(); ++i)
    joined += fmt::format("{}\"{}\"",
                          i == 0                  ? ""
                          : i + 1 == names.size() ? " or "
                                                  : ", ",
                          names[i]);
  return joined;
}

FieldReader::FieldReader(const Json &object, std::string_view document, Options options)
    : own{document, options, {}}, state(&own), object_(object) {}

/// "a.b[2]["c d"]"
std::string FieldReader::Place::text() const {
  std::string above = parent ? parent->text() : std::string();
  if (index)
    return fmt::format("{}[{}]", above, *index);
  if (key.empty() && !parent)
    return above;
  const bool isPlain = !key.empty() && std::all_of(key.begin(), key.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_';
  });
  if (!isPlain)
    return fmt::format("{}[{}]", above, Json::describe(key));
  return above.empty() ? std::string(key) : fmt::format("{}.{}", above, key);
}

const Json *FieldReader::find(const char *key) {
  if (std::find(known.begin(), known.end(), key) == known.end())
    known.push_back(key);
  const Json *found = object_.find(key);
  return found && found->isNull() && state->options.nullIsAbsent ? nullptr : found;
}

void FieldReader::rest(Json::Object &fields) {
  if (failed())
    return;
  for (const auto &[name, value] : object_.members())
    if (std::find(known.begin(), known.end(), name) == known.end())
      fields.emplace(name, value);
  for (const auto &[name, value] : object_.members())
    known.push_back(name);
}

bool FieldReader::isNumber(const Json &found, Numbers numbers) {
  std::optional<double> number = found.number();
  return number && std::isfinite(*number) &&
         (numbers == Numbers::Any || *number > 0 ||
          (numbers == Numbers::NotNegative && *number == 0));
}

bool FieldReader::expectObject(const Json &found, const Place &at) {
  if (!failed() && !found.isObject())
    refuse(at, found, "an object");
  return !failed();
}

void FieldReader::failAt(const std::string &at, ErrorCode code, std::string_view found,
                         std::string_view expected) {
  if (!failed())
    state->error = Error{
        code, fmt::format("{}: {}: found {}, expected {}", state->document, at, found, expected)};
}

void FieldReader::fail(ErrorCode code, std::string_view key, std::string_view found,
                       std::string_view expected) {
  const std::string above = place.text();
  failAt(above.empty() ? std::string(key) : fmt::format("{}.{}", above, key), code, found,
         expected);
}

void FieldReader::failWith(ErrorCode code, std::string_view message) {
  if (failed())
    return;
  const std::string at = place.text();
  state->error =
      Error{code, fmt::format("{}: {}{}{}", state->document, at, at.empty() ? "" : ": ", message)};
}

void FieldReader::check(bool holds, std::string_view key, std::string_view found,
                        std::string_view expected) {
  if (!holds)
    fail(state->options.code, key, found, expected);
}

void FieldReader::version(const char *key, int64_t version, std::string_view writer) {
  int64_t found = version;
  required(key, found, Bounds());
  if (!failed() && found != version)
    fail(ErrorCode::Unsupported, key,
         writer.empty() ? std::to_string(found) : fmt::format("{} (written by {})", found, writer),
         fmt::format(
             "{} (EasyQuant {}); recompile the model with this version of EasyQuant (easyquant "
             "compile MODEL -o OUT --recipe recipe.json, the recipe that is beside it)",
             version, EASYQUANT_VERSION));
}

void FieldReader::finish() {
  if (failed() || !state->options.refuseUnknown)
    return;
  std::string legal;
  for (std::string_view key : known)
    legal += fmt::format("{}{}", legal.empty() ? "" : ", ", key);
  for (const auto &[name, value] : object_.members())
    if (std::find(known.begin(), known.end(), name) == known.end())
      return failWith(state->options.code,
                      fmt::format("unknown key '{}'; legal are {}{}", oneLine(name), legal,
                                  didYouMean(name, known)));
}

Result<void> FieldReader::result() const {
  if (state->error)
    return Unexpected(*state->error);
  return {};
}
