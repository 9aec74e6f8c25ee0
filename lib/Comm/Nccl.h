//===- Nccl.h - NCCL, opened at run time ------------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The part of NCCL 2.18 and later that a communicator needs, as its user guide describes it.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_COMM_NCCL_H
#define EASYQUANT_LIB_COMM_NCCL_H

#include "easyquant/Support/Result.h"

#include <climits>
#include <cstddef>
#include <string>

namespace easyquant::comm::nccl {

using Status = int; ///< ncclResult_t
using Comm = struct CommHandle *;
using Stream = struct StreamHandle *;
using DataType = int;
using RedOp = int;

enum : Status { kSuccess = 0, kInProgress = 7 };
enum : DataType { kInt8 = 0, kInt32 = 2, kInt64 = 4, kFloat32 = 7, kFloat64 = 8 };
enum : RedOp { kSum = 0, kMax = 2, kMin = 3 };

struct UniqueId {
  char bytes[128];
};

/// ncclConfig_t of NCCL 2.18; a later library takes it and fills in what came after.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = 0;
  int cgaClusterSize = INT_MIN; ///< INT_MIN and null: as the library likes
  int minCTAs = INT_MIN;
  int maxCTAs = INT_MIN;
  const char *netName = nullptr;
  int splitShare = INT_MIN;
};
constexpr int kLeastVersion = 21800;

// name in the library, name here, what it returns, parameters
#define EASYQUANT_NCCL_FUNCTIONS(X)                                                                \
  X(ncclGetVersion, getVersion, Status, (int *))                                                   \
  X(ncclGetUniqueId, getUniqueId, Status, (UniqueId *))                                            \
  X(ncclCommInitRankConfig, commInitRankConfig, Status, (Comm *, int, UniqueId, int, Config *))    \
  X(ncclCommGetAsyncError, commGetAsyncError, Status, (Comm, Status *))                            \
  X(ncclCommFinalize, commFinalize, Status, (Comm))                                                \
  X(ncclCommDestroy, commDestroy, Status, (Comm))                                                  \
  X(ncclCommAbort, commAbort, Status, (Comm))                                                      \
  X(ncclGroupStart, groupStart, Status, ())                                                        \
  X(ncclGroupEnd, groupEnd, Status, ())                                                            \
  X(ncclAllReduce, allReduce, Status,                                                              \
    (const void *, void *, size_t, DataType, RedOp, Comm, Stream))                                 \
  X(ncclAllGather, allGather, Status, (const void *, void *, size_t, DataType, Comm, Stream))      \
  X(ncclBroadcast, broadcast, Status, (const void *, void *, size_t, DataType, int, Comm, Stream)) \
  X(ncclGetErrorString, errorString, const char *, (Status))                                       \
  X(ncclGetLastError, lastError, const char *, (Comm))

/// In a library that is never closed.
struct Library {
#define EASYQUANT_NCCL_MEMBER(symbol, name, result, parameters) result(*name) parameters = nullptr;
  EASYQUANT_NCCL_FUNCTIONS(EASYQUANT_NCCL_MEMBER)
#undef EASYQUANT_NCCL_MEMBER

  /// Opened once for the process. Errors: NotFound (no NCCL), Unsupported (too old a one).
  static Result<const Library *> get();

  /// "unhandled system error (Call to connect failed)"
  std::string describe(Status status, Comm comm) const;
};

} // namespace easyquant::comm::nccl

#endif // EASYQUANT_LIB_COMM_NCCL_H
