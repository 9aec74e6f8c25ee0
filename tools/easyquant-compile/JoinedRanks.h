//===- JoinedRanks.h - easyquant-compile on several ranks -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every rank is started with the same command. A recipe, tokens and a model that it has must be the
// same as on rank 0; those that it lacks it gets from there. Rank 0 writes and prints; the others
// print only errors.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TOOLS_EASYQUANT_COMPILE_JOINEDRANKS_H
#define EASYQUANT_TOOLS_EASYQUANT_COMPILE_JOINEDRANKS_H

#include "CommandLine.h"

#include "easyquant/Comm/Communicator.h"
#include "easyquant/Comm/Placement.h"
#include "easyquant/Formats/ModelSource.h"
#include "easyquant/Support/StagedFolder.h"

namespace easyquant {

class JoinedRanks {
public:
  /// Finds out which rank this process is. Errors: those of comm::findPlacement.
  static Result<JoinedRanks> find(const CommandLine &line);

  int rank() const { return placement.rank; }
  bool isAlone() const { return placement.size == 1; }
  /// The rank's own folder: "FOLDER.rank1" for rank 1, FOLDER for rank 0.
  std::string ownFolder(const std::string &folder) const;

  /// Opens the communicator and compares the commands. Sets recipe, tokens and model to the files
  /// that this rank was sent, which go with this object. Errors: those of the communicator,
  /// InvalidArgument (ranks that differ), IO.
  Result<void> open(CommandLine &line);
  /// Compares the models; nothing of one rank. Errors: the same, those of ModelSource::hash.
  Result<void> agreeOn(const formats::ModelSource &source);
  comm::Communicator *communicator() const { return joined.get(); }

  /// The good end of the common work. Errors: those of the communicator.
  Result<void> close();
  /// The bad end, after this rank has printed `error`: tells the others, and lets them print.
  void fail(const std::string &error);

private:
  comm::Placement placement;
  std::optional<StagedFolder> received; ///< what rank 0 sent
  std::unique_ptr<comm::Communicator> joined;
};

} // namespace easyquant

#endif // EASYQUANT_TOOLS_EASYQUANT_COMPILE_JOINEDRANKS_H
