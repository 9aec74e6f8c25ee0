//===- StagedFolder.h - A folder that appears whole or not at all -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_SUPPORT_STAGEDFOLDER_H
#define EASYQUANT_SUPPORT_STAGEDFOLDER_H

#include "easyquant/Support/FolderClaim.h"
#include "easyquant/Support/Result.h"

#include <functional>
#include <string>

namespace easyquant {

/// From here on SIGINT, SIGTERM and SIGHUP remove every staged folder before they end the process.
/// To be called at the start of main: threads that run already would still take the signals.
void removeStagedFoldersOnSignal();
/// Calls `last` with the signal's number, in a thread of its own, before that happens.
void onTerminationSignal(std::function<void(int signal)> last);

/// A folder on its way to its destination, under a temporary name; removed again unless it is
/// committed. It is in the claim `<destination>.partial`, so that a destination has one writer at
/// a time, and what a killed process left there is removed by the next.
class StagedFolder {
public:
  /// What may stand where the folder goes.
  struct Replace {
    bool allowed = false;
    std::string mark;   ///< a file that every folder has that may be replaced
    std::string remedy; ///< what to do where something is there and none may be
  };
  /// Errors: InvalidArgument (`destination` exists and is not to be replaced, or is being written
  /// by another process), IO.
  static Result<StagedFolder> create(std::string destination, Replace replace);
  /// A folder in the working directory for what nobody keeps.
  static Result<StagedFolder> scratch();
  StagedFolder(StagedFolder &&other) noexcept;
  ~StagedFolder();

  const std::string &path() const { return staging; }
  /// The folder that the destination is in, where it was missing.
  const std::string &madeParent() const { return parent; }

  /// Flushes every file to the disk and gives the folder its name. What another put there meanwhile
  /// stays; an artifact that is to be replaced changes places with it and is then removed, so that
  /// one of the two is there at every moment. An error says what stands.
  Result<void> commit();

private:
  StagedFolder(FolderClaim claim, std::string destination, Replace replace);
  /// The lock of the registry is held.
  static Result<StagedFolder> make(FolderClaim claim, std::string destination, Replace replace);
  Result<void> flushFiles();

  FolderClaim claim;
  std::string destination, staging; ///< staging is empty once it is committed
  std::string parent;               ///< where it was made
  Replace replace;
};

} // namespace easyquant

#endif // EASYQUANT_SUPPORT_STAGEDFOLDER_H
