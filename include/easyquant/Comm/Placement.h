//===- Placement.h - Which rank a process is --------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_COMM_PLACEMENT_H
#define EASYQUANT_COMM_PLACEMENT_H

#include "easyquant/Support/Result.h"

#include <functional>
#include <string>

namespace easyquant::comm {

/// What started the ranks. Variables: Open MPI's OMPI_COMM_WORLD_*, those of srun's tasks (SLURM_*
/// with SLURM_STEP_ID), torchrun's RANK, WORLD_SIZE, LOCAL_RANK.
enum class Launcher : uint8_t { None, MPIRun, SRun, Variables };

struct Placement {
  Launcher launcher = Launcher::None;
  int rank = 0;
  int size = 1;
  int localRank = 0;         ///< among the ranks of its machine
  std::string masterAddress; ///< MASTER_ADDR; empty: not set
  int masterPort =
      0; ///< MASTER_PORT, one more where torchrun's own store listens there; 0: not set
};

std::string_view nameOf(Launcher launcher);

/// The value of an environment variable; null where it is not set.
using ReadVariable = std::function<const char *(const char *)>;

/// Errors: InvalidArgument (a variable is no number, missing beside its sisters, or two launchers
/// say different things), naming the variables.
Result<Placement> findPlacement(const ReadVariable &read);
Result<Placement> findPlacement();

/// The GPU of a rank, of `devices` that its machine has: its local rank. Errors: OutOfRange.
Result<int> deviceOf(const Placement &placement, int devices);

} // namespace easyquant::comm

#endif // EASYQUANT_COMM_PLACEMENT_H
