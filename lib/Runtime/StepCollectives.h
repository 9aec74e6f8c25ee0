//===- StepCollectives.h - Collectives of a step ----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_RUNTIME_STEPCOLLECTIVES_H
#define EASYQUANT_LIB_RUNTIME_STEPCOLLECTIVES_H

#include "easyquant/Comm/Communicator.h"
#include "easyquant/Formats/Manifest.h"

#include <optional>
#include <vector>

namespace easyquant::runtime {

/// What a program asks for, on `count` elements of `data`, which are all ranks' rows, if they are
/// gathered: those of each behind those of the ranks before it.
comm::Collective collectiveOf(const formats::Collective &what, void *data, int64_t count);

/// What `start` and `wait` of eq_services do on one of several ranks. The first that fails ends the
/// step: it raises the step's stop flag, and those behind it do nothing.
class StepCollectives {
public:
  StepCollectives(comm::Communicator &communicator,
                  const formats::Manifest::TensorParallel &parallel)
      : communicator(communicator), table(parallel.collectives), underWay(table.size()) {}

  int rank() const { return communicator.rank(); }
  /// Before a step, whose stop flag this is.
  void begin(int32_t *stopFlag);
  /// `data` are `count` elements of host memory, rows of all columns.
  void start(int64_t collective, void *data, int64_t count);
  void wait(int64_t collective);
  /// What went wrong in the step.
  const std::optional<Error> &failure() const { return error; }

private:
  using Description = formats::Collective;
  struct UnderWay {
    bool isStarted = false;
    comm::Request request;
    float *data = nullptr;    ///< of an all-gather: rows of all columns
    std::vector<float> parts; ///< the same, the columns of one rank behind those of another
  };
  Result<void> tryStart(int64_t collective, void *data, int64_t count);
  Result<void> tryWait(int64_t collective);
  Result<comm::Request> gather(const Description &what, UnderWay &state, int64_t count);
  void scatterColumns(const Description &what, UnderWay &state);
  void keep(Result<void> done);

  comm::Communicator &communicator;
  const std::vector<Description> &table;
  std::vector<UnderWay> underWay;
  std::optional<Error> error;
  int32_t *stop = nullptr;
};

} // namespace easyquant::runtime

#endif // EASYQUANT_LIB_RUNTIME_STEPCOLLECTIVES_H
