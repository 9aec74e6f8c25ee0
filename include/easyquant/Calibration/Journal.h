//===- Journal.h - What a calibration that was ended has done ---*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A walk through the layers leaves in its work folder, after each layer, the hidden states that go
// into the next one (`hidden_states_<i>.safetensors`) and what it found (`step_<i>.safetensors`).
// Each file appears whole under its name and carries the stamp of the walk; those of another stamp
// are as good as none. Ranks have a journal each, of the states of their own samples. They may be
// one step apart when they are ended, so that the states before are kept, too.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CALIBRATION_JOURNAL_H
#define EASYQUANT_CALIBRATION_JOURNAL_H

#include "easyquant/Execution/LayerRunner.h"
#include "easyquant/Execution/Ranks.h"
#include "easyquant/Formats/DType.h"

namespace easyquant::calibration {

using namespace execution;

/// Everything that a result depends on, by name.
using Stamp = std::map<std::string, std::string>;

/// A tensor that a step has found, under one name or several.
struct FoundTensor {
  std::vector<std::string> names;
  formats::DType dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

class Journal {
public:
  /// Makes the folder if need be, and agrees with the other ranks where to go on. `samples` says
  /// which ones the states are of. A remark names a damaged file, which is then as good as none.
  /// Collective. Errors: IO, those of Ranks.
  static Result<Journal> open(mlir::Location loc, const std::filesystem::path &folder, Stamp stamp,
                              const std::string &samples, const Ranks &ranks);

  /// The first step that is still to be done: every one before has its file, and the hidden states
  /// that go into it are there, on every rank. 0 if there is nothing of this stamp.
  int64_t next() const { return begin; }
  /// Reads the hidden states that go into step next(). Errors: Corrupt, IO.
  Result<void> readStates(HiddenStates &states) const;

  /// Step `step` is done: keeps what it found, and the states that go into step + 1.
  Result<void> record(int64_t step, const std::vector<FoundTensor> &found,
                      const HiddenStates &states);
  /// Writes the tensors of steps 0 .. steps - 1, all done, into one file that appears whole.
  Result<void> merge(int64_t steps, const std::filesystem::path &path, const Stamp &metadata) const;
  /// Removes the files of `steps` steps and their states.
  void remove(int64_t steps) const;

private:
  explicit Journal(mlir::Location loc) : loc(loc) {}
  std::filesystem::path stepFile(int64_t step) const;
  std::filesystem::path statesFile(int64_t step) const;
  Stamp stampOf(int64_t step) const;
  Stamp statesStampOf(int64_t step) const;
  bool hasStates(int64_t step) const;

  mlir::Location loc;
  std::filesystem::path folder;
  Stamp stamp;
  std::string samples;
  bool isAlone = true;
  int64_t begin = 0;
};

} // namespace easyquant::calibration

#endif // EASYQUANT_CALIBRATION_JOURNAL_H
