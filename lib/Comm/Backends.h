//===- Backends.h - Communicators of processes ------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_COMM_BACKENDS_H
#define EASYQUANT_LIB_COMM_BACKENDS_H

#include "easyquant/Comm/Open.h"

namespace easyquant::comm {

/// MPI's world, of the process of a rank that computes. Errors: NotFound, Unsupported, IO.
Result<std::unique_ptr<Communicator>> openMpi(const Placement &placement, const Limits &limits);

/// NCCL for device memory, sockets through rank 0 for host memory. Errors: NotFound, Unsupported,
/// IO.
Result<std::unique_ptr<Communicator>> openNccl(const Placement &placement,
                                               const OpenOptions &options);

} // namespace easyquant::comm

#endif // EASYQUANT_LIB_COMM_BACKENDS_H
