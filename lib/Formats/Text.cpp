//===- Text.cpp - Untrusted text in messages, JSON and numbers ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Text.h"

#include <nlohmann/json.hpp>

#include <algorithm>

using namespace easyquant;
using namespace easyquant::formats;

namespace {
constexpr size_t kLongestQuote = 96;
constexpr size_t kLongestName = 1024;
constexpr int kDeepestJson = 64;
} // namespace

std::string formats::quote(std::string_view text) {
  std::string result = "\"";
  for (unsigned char c : text.substr(0, kLongestQuote)) {
    if (c == '"' || c == '\\')
      result += {'\\', static_cast<char>(c)};
    else if (c >= 0x20 && c < 0x7f)
      result += static_cast<char>(c);
    else
      result += fmt::format("\\x{:02x}", c);
  }
  if (text.size() > kLongestQuote)
    result += "...";
  return result + '"';
}

std::string formats::shapeText(std::span<const int64_t> shape) {
  std::string result = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    result += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  return result + "]";
}

bool formats::isPlainName(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName &&
         std::none_of(name.begin(), name.end(),
                      [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

/// The deepest nesting of brackets outside strings. The text need not be well-formed.
static int nestingDepth(std::string_view text) {
  int depth = 0, deepest = 0;
  bool inString = false;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (inString) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        inString = false;
    } else if (c == '"') {
      inString = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

Result<nlohmann::json> formats::parseJsonObject(std::string_view text, std::string_view fileName) {
  if (int depth = nestingDepth(text); depth > kDeepestJson)
    return makeError(ErrorCode::Corrupt, "{}: JSON nested {} levels deep; expected at most {}",
                     fileName, depth, kDeepestJson);
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded())
    return makeError(ErrorCode::Corrupt, "{}: not well-formed JSON", fileName);
  if (!json.is_object())
    return makeError(ErrorCode::Corrupt, "{}: expected a JSON object, found {}", fileName,
                     json.type_name());
  return json;
}
