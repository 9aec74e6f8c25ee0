//===- WriteFile.h - Files written at once ----------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_SUPPORT_WRITEFILE_H
#define EASYQUANT_SUPPORT_WRITEFILE_H

#include "easyquant/Support/Result.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace easyquant {

/// Creates or replaces the file. Errors: IO, naming it.
inline Result<void> writeFile(const std::filesystem::path &path, std::string_view bytes) {
  // Each step only after the one before: errno is that of the step that failed.
  std::ofstream file(path, std::ios::binary);
  if (file)
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (file)
    file.close();
  if (!file)
    return makeError(ErrorCode::IO, "{}: cannot write: {}", path.string(), std::strerror(errno));
  return {};
}

} // namespace easyquant

#endif // EASYQUANT_SUPPORT_WRITEFILE_H
