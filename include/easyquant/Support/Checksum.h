//===- Checksum.h - XXH3-128 checksums of bytes and files -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The checksum that artifacts and reports carry under the name "xxh3_128": XXH3 with 128 bits and
// seed 0 (https://github.com/Cyan4973/xxHash), written in its canonical form, 32 lower-case hex
// digits, as `xxh128sum` prints it. It finds damage, not forgery.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_SUPPORT_CHECKSUM_H
#define EASYQUANT_SUPPORT_CHECKSUM_H

#include "easyquant/Support/Result.h"

// Header-only, and private to each object: nothing to link, nothing to export. In C++ code that is
// instantiated from several files the functions have to be the same everywhere, so no file may
// include xxhash.h with other settings.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <span>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace easyquant {

/// Checksum of bytes that arrive in pieces.
class Checksum {
public:
  Checksum() { XXH3_128bits_reset(&state); }

  void update(const void *data, size_t size) {
    // xxhash takes no null pointer, not even with size 0.
    if (size != 0)
      XXH3_128bits_update(&state, data, size);
  }

  /// 32 lower-case hex digits; more bytes may follow.
  std::string hex() const {
    XXH128_hash_t hash = XXH3_128bits_digest(&state);
    return fmt::format("{:016x}{:016x}", static_cast<uint64_t>(hash.high64),
                       static_cast<uint64_t>(hash.low64));
  }

private:
  XXH3_state_t state;
};

/// Checksum of `bytes`.
inline std::string checksumOf(std::span<const std::byte> bytes) {
  Checksum checksum;
  checksum.update(bytes.data(), bytes.size());
  return checksum.hex();
}

/// Checksum of the whole regular file `path`, read once in order. Errors: NotFound, Unsupported (a
/// folder or device), IO.
inline Result<std::string> checksumOfFile(const std::string &path) {
  // Opening a FIFO would wait for a writer; O_NONBLOCK is without effect on regular files.
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return makeError(errno == ENOENT ? ErrorCode::NotFound : ErrorCode::IO, "{}: cannot open: {}",
                     path, std::strerror(errno));
  struct stat status;
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(fd);
    return makeError(ErrorCode::Unsupported, "{}: not a regular file", path);
  }
  Checksum checksum;
  std::vector<std::byte> buffer(size_t(1) << 20);
  for (;;) {
    ssize_t count = ::read(fd, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0) {
      int reason = errno;
      ::close(fd);
      return makeError(ErrorCode::IO, "{}: cannot read: {}", path, std::strerror(reason));
    }
    if (count == 0)
      break;
    checksum.update(buffer.data(), static_cast<size_t>(count));
  }
  ::close(fd);
  return checksum.hex();
}

} // namespace easyquant

#endif // EASYQUANT_SUPPORT_CHECKSUM_H
