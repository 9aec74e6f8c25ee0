//===- Folders.h - Folders for what is written ------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_SUPPORT_FOLDERS_H
#define EASYQUANT_SUPPORT_FOLDERS_H

#include "easyquant/Support/Result.h"

#include <filesystem>

namespace easyquant {

/// Makes the folder, and those above it, where it is missing. Errors: IO, naming it.
Result<void> makeFolders(const std::filesystem::path &folder);

/// From here on makeFolders never returns. For a process that is about to end: a thread that still
/// works must not make the folder anew that has just been removed.
void makeNoMoreFolders();

} // namespace easyquant

#endif // EASYQUANT_SUPPORT_FOLDERS_H
