//===- StreamedFile.cpp - A file that is written in pieces ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Support/StreamedFile.h"

#include "easyquant/Support/WriteFile.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

namespace easyquant {

Result<StreamedFile> StreamedFile::create(const std::filesystem::path &path, int64_t bytes) {
  StreamedFile file;
  file.name = path;
  file.staging = isSpecialFile(path) ? path : temporaryNameOf(path);
  file.descriptor = ::open(file.staging.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file.descriptor < 0)
    return makeError(ErrorCode::IO, "{}: cannot create: {}", path.string(), std::strerror(errno));
  // File systems that cannot reserve say so, and then the writes report a full disk.
  if (::fallocate(file.descriptor, FALLOC_FL_KEEP_SIZE, 0, bytes) != 0 &&
      (errno == ENOSPC || errno == EFBIG || errno == EDQUOT))
    return makeError(ErrorCode::IO, "{}: cannot reserve {} bytes: {}", path.string(), bytes,
                     std::strerror(errno));
  return file;
}

StreamedFile::StreamedFile(StreamedFile &&other) noexcept
    : name(std::move(other.name)), staging(std::move(other.staging)),
      descriptor(std::exchange(other.descriptor, -1)) {}

StreamedFile &StreamedFile::operator=(StreamedFile &&other) noexcept {
  if (this != &other) {
    discard();
    name = std::move(other.name);
    staging = std::move(other.staging);
    descriptor = std::exchange(other.descriptor, -1);
  }
  return *this;
}

StreamedFile::~StreamedFile() { discard(); }

void StreamedFile::discard() {
  if (descriptor < 0)
    return;
  ::close(std::exchange(descriptor, -1));
  if (staging != name) // a device that was named as the output stays
    ::unlink(staging.c_str());
}

Result<void> StreamedFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return makeError(ErrorCode::IO, "{}: cannot write: {}", name.string(), std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return {};
}

Result<void> StreamedFile::finish() {
  // Pipes and terminals have no disk.
  if (::fsync(descriptor) != 0 && errno != EINVAL && errno != EROFS)
    return makeError(ErrorCode::IO, "{}: cannot flush to the disk: {}", name.string(),
                     std::strerror(errno));
  const bool isClosed = ::close(std::exchange(descriptor, -1)) == 0;
  if (isClosed && (staging == name || ::rename(staging.c_str(), name.c_str()) == 0))
    return {};
  int reason = errno;
  if (staging != name)
    ::unlink(staging.c_str());
  return makeError(ErrorCode::IO, "{}: cannot {}: {}", name.string(),
                   isClosed ? "be replaced" : "close", std::strerror(reason));
}

} // namespace easyquant
