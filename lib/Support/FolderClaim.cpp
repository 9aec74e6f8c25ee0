//===- FolderClaim.cpp - A folder that one process holds ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Support/FolderClaim.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fs = std::filesystem;

namespace easyquant {

static constexpr const char *kLockFile = "lock";

static Unexpected ioError(const fs::path &path, const char *what) {
  return makeError(ErrorCode::IO, "{}: cannot be {}: {}", path.string(), what,
                   std::strerror(errno));
}

/// Whether the open file is still the one that goes by this name.
static bool isNamed(int file, const fs::path &name) {
  struct stat held, named;
  return ::fstat(file, &held) == 0 && ::stat(name.c_str(), &named) == 0 &&
         held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

Result<std::optional<FolderClaim>> FolderClaim::take(const fs::path &folder) {
  const fs::path name = folder / kLockFile;
  // Again where the holder removed folder or lock between two of these steps.
  for (;;) {
    if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST)
      return ioError(folder, "created");
    int directory = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (directory < 0 && errno == ENOENT)
      continue;
    if (directory < 0 && (errno == ENOTDIR || errno == ELOOP))
      return makeError(ErrorCode::Unsupported,
                       "{}: found something that is no folder, expected that name to be free; "
                       "remove it or give another name",
                       folder.string());
    if (directory < 0)
      return ioError(folder, "opened");
    int lock = ::openat(directory, kLockFile, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    int reason = errno;
    ::close(directory);
    errno = reason;
    if (lock < 0 && errno == ENOENT)
      continue;
    if (lock < 0)
      return ioError(name, "opened");
    FolderClaim claim(folder, lock);
    if (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
      reason = errno;
      ::close(std::exchange(claim.lock, -1));
      if (reason == EWOULDBLOCK)
        return std::nullopt;
      return makeError(ErrorCode::Unsupported,
                       "{}: cannot be locked: {}; give a folder on another file system",
                       name.string(), std::strerror(reason));
    }
    if (isNamed(lock, name)) {
      std::string holder = std::to_string(::getpid());
      if (::ftruncate(lock, 0) != 0 || ::pwrite(lock, holder.data(), holder.size(), 0) < 0)
        return ioError(name, "written"); // the claim cleans up
      return claim;
    }
    ::close(std::exchange(claim.lock, -1));
  }
}

std::string FolderClaim::holderOf(const fs::path &folder) {
  int64_t process = 0;
  std::ifstream(folder / kLockFile) >> process;
  return process > 0 ? fmt::format("process {}", process) : "another process";
}

void FolderClaim::remove(const fs::path &folder) {
  // The lock first: a folder that holds one is somebody's.
  ::unlink((folder / kLockFile).c_str());
  ::rmdir(folder.c_str());
}

FolderClaim::FolderClaim(FolderClaim &&other) noexcept
    : path(std::move(other.path)), lock(std::exchange(other.lock, -1)) {}

FolderClaim::~FolderClaim() {
  if (lock < 0)
    return;
  remove(path);
  ::close(lock);
}

} // namespace easyquant
