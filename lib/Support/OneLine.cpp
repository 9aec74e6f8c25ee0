//===- OneLine.cpp - Text of files and users in messages ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Support/OneLine.h"

#include <fmt/core.h>

#include <algorithm>

namespace easyquant {

static bool isControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

std::string oneLine(std::string text) {
  if (std::ranges::none_of(text, isControl))
    return text;
  std::string line;
  for (char c : text)
    if (c == '\n')
      line += "\\n";
    else if (isControl(c))
      line += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      line += c;
  return line;
}

std::string escapePaths(std::string message, std::span<const std::string> paths) {
  for (const std::string &path : paths) {
    const std::string escaped = oneLine(path);
    if (escaped == path)
      continue;
    for (size_t at = 0; (at = message.find(path, at)) != std::string::npos; at += escaped.size())
      message.replace(at, path.size(), escaped);
  }
  return message;
}

} // namespace easyquant
