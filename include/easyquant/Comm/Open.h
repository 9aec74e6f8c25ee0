//===- Open.h - Communicators among threads and processes -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_COMM_OPEN_H
#define EASYQUANT_COMM_OPEN_H

#include "easyquant/Comm/Communicator.h"
#include "easyquant/Comm/Placement.h"

#include <functional>

namespace easyquant::comm {

/// What joins the ranks (`--comm`).
enum class Kind : uint8_t { Auto, MPI, NCCL };

struct OpenOptions {
  Kind kind = Kind::Auto;
  Limits limits = {};
  /// Whether device memory is to be reduced, too: Auto is then NCCL, else MPI.
  bool onDevice = false;
  /// For NCCL: makes the device of this rank current in the calling thread, as soon as ranks can
  /// tell each other of errors. Without it, it is current already.
  std::function<Result<void>()> useDevice = {};
  /// For NCCL: whether all work of a CUDA stream is done, without waiting.
  std::function<Result<bool>(void *stream)> streamIsDone = {};
};

/// The communicator of all processes that the launcher started; one of one rank where there is no
/// launcher. MPI is opened by its launchers (mpirun, srun) alone; NCCL by each of them where
/// MASTER_ADDR and MASTER_PORT are set, with the device of this rank (`deviceOf`). Collective.
/// Errors: NotFound (libraries, variables), Unsupported, InvalidArgument (contradictory variables),
/// IO (peers), Interrupted.
Result<std::unique_ptr<Communicator>> openCommunicator(const Placement &placement,
                                                       const OpenOptions &options);
/// The communicator of the ranks that findPlacement() sees.
Result<std::unique_ptr<Communicator>> openCommunicator(const OpenOptions &options);

/// One communicator for each of `size` threads of this process. What they start must agree in call,
/// type, count, reduction and root; that it does is checked, and who differs is named.
std::vector<std::unique_ptr<Communicator>> makeThreadCommunicators(int size, Limits limits = {});

} // namespace easyquant::comm

#endif // EASYQUANT_COMM_OPEN_H
