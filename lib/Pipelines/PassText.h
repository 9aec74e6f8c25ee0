//===- PassText.h - Passes with their options, as text ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Private to lib/Pipelines.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_PIPELINES_PASSTEXT_H
#define EASYQUANT_LIB_PIPELINES_PASSTEXT_H

#include "mlir/Support/LLVM.h"
#include "llvm/ADT/StringExtras.h"

#include <fmt/core.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace easyquant {

/// Writes `pass{option=value ...}`. Values that are empty or 0 (but for addNumber) are left out:
/// the pass has its own default.
class PassText {
public:
  explicit PassText(llvm::StringRef pass) : text(pass.str()) {}

  PassText &add(llvm::StringRef option, llvm::StringRef value) {
    if (!value.empty())
      options.push_back((option + "=" + quoted(value)).str());
    return *this;
  }
  PassText &add(llvm::StringRef option, int64_t value) {
    return value == 0 ? *this : addNumber(option, value);
  }
  PassText &addNumber(llvm::StringRef option, int64_t value) {
    return add(option, std::to_string(value));
  }
  PassText &add(llvm::StringRef option, std::optional<int64_t> value) {
    return value ? add(option, std::to_string(*value)) : *this;
  }
  PassText &add(llvm::StringRef option, std::optional<double> value) {
    return value ? add(option, fmt::format("{}", *value)) : *this;
  }
  PassText &addFlag(llvm::StringRef option, std::optional<bool> value) {
    return value ? add(option, llvm::StringRef(*value ? "true" : "false")) : *this;
  }
  PassText &add(llvm::StringRef option, const std::vector<std::string> &values) {
    return values.empty() ? *this : add(option, llvm::join(values, ","));
  }
  std::string str() const {
    return options.empty() ? text : text + "{" + llvm::join(options, " ") + "}";
  }

private:
  /// The option parser takes a value in quotes as it is, spaces and braces included.
  static std::string quoted(llvm::StringRef value) {
    bool plain = llvm::all_of(
        value, [](char c) { return llvm::isAlnum(c) || llvm::StringRef("_-./,:+").contains(c); });
    return plain ? value.str() : ("\"" + value + "\"").str();
  }

  std::string text;
  std::vector<std::string> options;
};

} // namespace easyquant

#endif // EASYQUANT_LIB_PIPELINES_PASSTEXT_H
