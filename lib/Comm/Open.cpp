//===- Open.cpp - Which backend joins the ranks ---------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Comm/Open.h"

#include "Backends.h"

namespace easyquant::comm {

Result<std::unique_ptr<Communicator>> openCommunicator(const Placement &placement,
                                                       const OpenOptions &options) {
  const Kind kind = options.kind != Kind::Auto ? options.kind
                    : options.onDevice         ? Kind::NCCL
                                               : Kind::MPI;
  if (kind == Kind::NCCL && (placement.size > 1 || options.kind == Kind::NCCL))
    return openNccl(placement, options);
  if (placement.size == 1)
    return std::move(makeThreadCommunicators(1, options.limits)[0]);
  if (placement.launcher == Launcher::Variables)
    return makeError(
        ErrorCode::Unsupported,
        "rank {} of {}: MPI needs its own launcher, found RANK and WORLD_SIZE; start the "
        "ranks with mpirun or srun --mpi=pmix, or on GPUs, by NCCL",
        placement.rank, placement.size);
  return openMpi(placement, options.limits);
}

Result<std::unique_ptr<Communicator>> openCommunicator(const OpenOptions &options) {
  Result<Placement> placement = findPlacement();
  if (!placement)
    return Unexpected(placement.error());
  return openCommunicator(*placement, options);
}

} // namespace easyquant::comm
