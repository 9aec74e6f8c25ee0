//===- OneLine.h - Text of files and users in messages ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_SUPPORT_ONELINE_H
#define EASYQUANT_SUPPORT_ONELINE_H

#include <span>
#include <string>

namespace easyquant {

/// With control characters escaped: names of files may have line breaks, and worse.
std::string oneLine(std::string text);
/// A message in which paths are escaped so. Its other lines stay, such as those of a linker.
std::string escapePaths(std::string message, std::span<const std::string> paths);

} // namespace easyquant

#endif // EASYQUANT_SUPPORT_ONELINE_H
