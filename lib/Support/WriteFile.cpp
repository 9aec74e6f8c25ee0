//===- WriteFile.cpp - Files that are whole or not there ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Support/WriteFile.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace easyquant {

/// 0, or the errno of what failed first.
static int writeAll(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR)
      return errno;
    bytes.remove_prefix(static_cast<size_t>(std::max<ssize_t>(written, 0)));
  }
  // Pipes and terminals have no disk.
  return ::fsync(file) == 0 || errno == EINVAL || errno == EROFS ? 0 : errno;
}

static int writeTo(const std::string &path, int flags, std::string_view bytes) {
  int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0666);
  if (file < 0)
    return errno;
  int error = writeAll(file, bytes);
  // What a disk across the network refuses, it may say only now.
  if (::close(file) != 0 && error == 0)
    error = errno;
  return error;
}

std::filesystem::path temporaryNameOf(const std::filesystem::path &path) {
  return path.string() + ".partial-" + std::to_string(::getpid());
}

bool isSpecialFile(const std::filesystem::path &path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
}

Result<void> writeFile(const std::filesystem::path &path, std::string_view bytes) {
  int error;
  if (isSpecialFile(path)) {
    error = writeTo(path.string(), 0, bytes);
  } else {
    const std::string temporary = temporaryNameOf(path).string();
    error = writeTo(temporary, O_CREAT | O_TRUNC, bytes);
    if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0)
      error = errno;
    if (error != 0)
      ::unlink(temporary.c_str());
  }
  if (error == 0)
    return {};
  return makeError(ErrorCode::IO, "{}: cannot write: {}", path.string(), std::strerror(error));
}

} // namespace easyquant
