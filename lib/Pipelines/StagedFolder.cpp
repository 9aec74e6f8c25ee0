//===- StagedFolder.cpp - A folder that appears whole or not at all -------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Pipelines/StagedFolder.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

using namespace llvm;

namespace easyquant {

static Error fileError(StringRef path, std::error_code code) { return createFileError(path, code); }

/// Flushes a file or folder to the disk.
static Error flush(StringRef path) {
  int fd = ::open(path.str().c_str(), O_RDONLY | O_CLOEXEC);
  int status = fd < 0 ? -1 : ::fsync(fd);
  Error error = status == 0 ? Error::success()
                            : fileError(path, std::error_code(errno, std::generic_category()));
  if (fd >= 0)
    ::close(fd);
  return error;
}

static std::string parentOf(StringRef path) {
  StringRef parent = sys::path::parent_path(path);
  return parent.empty() ? "." : parent.str();
}

Expected<StagedFolder> StagedFolder::create(StringRef destination, bool replace) {
  destination = destination.rtrim('/');
  if (destination.empty())
    return createStringError("the output folder has no name");
  if (sys::fs::exists(destination)) {
    if (!replace)
      return createStringError(destination + " exists; give another folder or --force");
    if (!sys::fs::is_directory(destination))
      return createStringError(destination + " is not a folder and will not be replaced");
    if (!sys::fs::exists(destination + "/manifest.json"))
      return createStringError(destination +
                               " holds no artifact and will not be replaced; remove it yourself");
  }
  if (std::error_code code = sys::fs::create_directories(parentOf(destination)))
    return fileError(parentOf(destination), code);
  SmallString<128> staging;
  sys::fs::createUniquePath(destination + ".partial-%%%%%%%%", staging, /*MakeAbsolute=*/false);
  if (std::error_code code = sys::fs::create_directory(staging, /*IgnoreExisting=*/false))
    return fileError(staging, code);
  return StagedFolder(destination.str(), staging.str().str());
}

StagedFolder::StagedFolder(StagedFolder &&other)
    : destination(std::move(other.destination)), staging(std::move(other.staging)) {
  other.staging.clear();
}

StagedFolder::~StagedFolder() {
  if (!staging.empty())
    sys::fs::remove_directories(staging);
}

Error StagedFolder::commit() {
  std::error_code code;
  for (sys::fs::directory_iterator it(staging, code), end; it != end && !code; it.increment(code))
    if (Error error = flush(it->path()))
      return error;
  if (code)
    return fileError(staging, code);
  if (Error error = flush(staging))
    return error;

  // A folder cannot be renamed onto another that is not empty: the old one steps aside first.
  std::string old;
  if (sys::fs::exists(destination)) {
    old = staging + ".replaced";
    if ((code = sys::fs::rename(destination, old)))
      return fileError(destination, code);
  }
  if ((code = sys::fs::rename(staging, destination))) {
    if (!old.empty())
      sys::fs::rename(old, destination);
    return fileError(destination, code);
  }
  staging.clear();
  if (!old.empty())
    sys::fs::remove_directories(old);
  return flush(parentOf(destination));
}

} // namespace easyquant
