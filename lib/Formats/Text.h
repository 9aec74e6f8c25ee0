//===- Text.h - Untrusted text in messages ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_FORMATS_TEXT_H
#define EASYQUANT_LIB_FORMATS_TEXT_H

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace easyquant::formats {

/// `text` in double quotes, with everything but printable ASCII escaped and shortened to a length
/// that a person reads: names come from files that nobody has checked.
std::string quote(std::string_view text);

/// "[576, 1536]".
std::string shapeText(std::span<const int64_t> shape);

/// Whether `name` may be the name of a tensor or key: not empty, at most 1024 bytes, and without
/// control characters.
bool isPlainName(std::string_view name);

} // namespace easyquant::formats

#endif // EASYQUANT_LIB_FORMATS_TEXT_H
