//===- WriteFile.h - Files that are whole or not there ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_SUPPORT_WRITEFILE_H
#define EASYQUANT_SUPPORT_WRITEFILE_H

#include "easyquant/Support/Result.h"

#include <filesystem>
#include <string_view>

namespace easyquant {

/// Where a file is written before it gets its name, beside it: not where another process writes the
/// same one.
std::filesystem::path temporaryNameOf(const std::filesystem::path &path);

/// Whether something is there that is no regular file, such as a pipe: it is written as it is.
bool isSpecialFile(const std::filesystem::path &path);

/// Creates or replaces the file. Its bytes are written under another name beside it, so that what
/// was there before stays until all of them are on the disk. What is no regular file, such as a
/// pipe, is written as it is. Errors: IO, naming the file and the reason.
Result<void> writeFile(const std::filesystem::path &path, std::string_view bytes);

} // namespace easyquant

#endif // EASYQUANT_SUPPORT_WRITEFILE_H
