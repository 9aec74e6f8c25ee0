//===- FolderClaim.h - A folder that one process holds ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_SUPPORT_FOLDERCLAIM_H
#define EASYQUANT_SUPPORT_FOLDERCLAIM_H

#include "easyquant/Support/Result.h"

#include <filesystem>
#include <optional>
#include <string>

namespace easyquant {

/// A folder that one process at a time works in. A locked file in it says so: the kernel releases
/// the lock when the process ends, however it ends, so that a folder without a living holder is
/// the next one's, together with whatever was left in it.
class FolderClaim {
public:
  /// Makes the folder where it is missing. Nothing where another holds it, this process included.
  /// Errors: Unsupported (it is no folder, or its file system has no locks), IO.
  static Result<std::optional<FolderClaim>> take(const std::filesystem::path &folder);
  /// Who holds the folder: "process 1234"; "another process" where that cannot be read.
  static std::string holderOf(const std::filesystem::path &folder);

  FolderClaim(FolderClaim &&other) noexcept;
  FolderClaim &operator=(FolderClaim &&) = delete;
  /// Releases it: removes the lock, and the folder if nothing else is in it.
  ~FolderClaim();

  const std::filesystem::path &folder() const { return path; }

  /// What the destructor removes, for a process that ends without destructors.
  static void remove(const std::filesystem::path &folder);

private:
  FolderClaim(std::filesystem::path path, int lock) : path(std::move(path)), lock(lock) {}

  std::filesystem::path path;
  int lock; ///< a descriptor; -1 once moved from
};

} // namespace easyquant

#endif // EASYQUANT_SUPPORT_FOLDERCLAIM_H
