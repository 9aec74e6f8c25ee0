//===- Text.cpp - Untrusted text in messages -------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Text.h"

#include <fmt/core.h>

#include <algorithm>

using namespace easyquant;
using namespace easyquant::formats;

namespace {
constexpr size_t kLongestQuote = 96;
constexpr size_t kLongestName = 1024;
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
