//===- StagedFolder.h - A folder that appears whole or not at all -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_PIPELINES_STAGEDFOLDER_H
#define EASYQUANT_PIPELINES_STAGEDFOLDER_H

#include "llvm/Support/Error.h"

#include <string>

namespace easyquant {

/// From here on SIGINT, SIGTERM and SIGHUP remove every staged folder before they end the process.
/// To be called at the start of main: threads that run already would still take the signals.
void removeStagedFoldersOnSignal();

/// A folder beside its destination, under a temporary name; removed again unless it is committed.
/// A killed process leaves at most `<destination>.partial-*` behind, never half a destination.
class StagedFolder {
public:
  /// Fails if `destination` exists and is not to be replaced, or the folder cannot be made.
  static llvm::Expected<StagedFolder> create(llvm::StringRef destination, bool replace);
  StagedFolder(StagedFolder &&other);
  ~StagedFolder();

  const std::string &path() const { return staging; }

  /// Flushes every file to the disk and gives the folder its name; a folder that was there before
  /// changes places with it and is then removed, so that one of the two is there at every moment.
  llvm::Error commit();

private:
  StagedFolder(std::string destination, std::string staging)
      : destination(std::move(destination)), staging(std::move(staging)) {}

  std::string destination, staging;
};

} // namespace easyquant

#endif // EASYQUANT_PIPELINES_STAGEDFOLDER_H
