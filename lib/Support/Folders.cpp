//===- Folders.cpp - Folders for what is written --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Support/Folders.h"

#include <mutex>

namespace easyquant {

static std::mutex &making() {
  static auto *instance = new std::mutex; // never destroyed: a thread may wait for it at the end
  return *instance;
}

Result<void> makeFolders(const std::filesystem::path &folder) {
  std::lock_guard lock(making());
  if (std::error_code error; !std::filesystem::create_directories(folder, error) && error)
    return makeError(ErrorCode::IO, "{}: cannot be created: {}", folder.string(), error.message());
  return {};
}

void makeNoMoreFolders() { making().lock(); }

} // namespace easyquant
