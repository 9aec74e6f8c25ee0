//===- Mpi.h - Open MPI, opened at run time ---------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The part of MPI 3.1 that a communicator needs, with the types of Open MPI 3 and 4, whose library
// is libmpi.so.40: its handles are pointers to objects that the library exports.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_COMM_MPI_H
#define EASYQUANT_LIB_COMM_MPI_H

#include "easyquant/Support/Result.h"

#include <string>

namespace easyquant::comm::mpi {

using Comm = struct CommHandle *;
using Datatype = struct DatatypeHandle *;
using Op = struct OpHandle *;
using Request = struct RequestHandle *;
using Errhandler = struct ErrhandlerHandle *;

struct Status {
  int source, tag, error;
  int cancelled; ///< from here on the library's own
  size_t length;
};

constexpr int kSuccess = 0;
constexpr int kThreadSerialized = 2;
constexpr int kLongestString = 256;
constexpr int kAnySource = -1;
inline void *const kInPlace = reinterpret_cast<void *>(1);

// name in the library, name here, parameters
#define EASYQUANT_MPI_FUNCTIONS(X)                                                                 \
  X(MPI_Initialized, initialized, (int *))                                                         \
  X(MPI_Init_thread, initThread, (int *, char ***, int, int *))                                    \
  X(MPI_Finalize, finalize, ())                                                                    \
  X(MPI_Comm_idup, commIdup, (Comm, Comm *, Request *))                                            \
  X(MPI_Comm_rank, commRank, (Comm, int *))                                                        \
  X(MPI_Comm_size, commSize, (Comm, int *))                                                        \
  X(MPI_Comm_set_errhandler, commSetErrhandler, (Comm, Errhandler))                                \
  X(MPI_Isend, isend, (const void *, int, Datatype, int, int, Comm, Request *))                    \
  X(MPI_Irecv, irecv, (void *, int, Datatype, int, int, Comm, Request *))                          \
  X(MPI_Recv, recv, (void *, int, Datatype, int, int, Comm, Status *))                             \
  X(MPI_Iprobe, iprobe, (int, int, Comm, int *, Status *))                                         \
  X(MPI_Get_count, getCount, (const Status *, Datatype, int *))                                    \
  X(MPI_Test, test, (Request *, int *, Status *))                                                  \
  X(MPI_Iallreduce, iallreduce, (const void *, void *, int, Datatype, Op, Comm, Request *))        \
  X(MPI_Iallgatherv, iallgatherv,                                                                  \
    (const void *, int, Datatype, void *, const int *, const int *, Datatype, Comm, Request *))    \
  X(MPI_Ibcast, ibcast, (void *, int, Datatype, int, Comm, Request *))                             \
  X(MPI_Ibarrier, ibarrier, (Comm, Request *))                                                     \
  X(MPI_Error_string, errorString, (int, char *, int *))

// name of the object in the library, name here, its type
#define EASYQUANT_MPI_OBJECTS(X)                                                                   \
  X(ompi_mpi_comm_world, commWorld, Comm)                                                          \
  X(ompi_request_null, requestNull, Request)                                                       \
  X(ompi_mpi_errors_return, errorsReturn, Errhandler)                                              \
  X(ompi_mpi_byte, byte, Datatype)                                                                 \
  X(ompi_mpi_int32_t, int32, Datatype)                                                             \
  X(ompi_mpi_int64_t, int64, Datatype)                                                             \
  X(ompi_mpi_float, float32, Datatype)                                                             \
  X(ompi_mpi_double, float64, Datatype)                                                            \
  X(ompi_mpi_op_sum, sum, Op)                                                                      \
  X(ompi_mpi_op_min, min, Op)                                                                      \
  X(ompi_mpi_op_max, max, Op)

/// In a library that is never closed.
struct Library {
#define EASYQUANT_MPI_MEMBER(symbol, name, parameters) int(*name) parameters = nullptr;
  EASYQUANT_MPI_FUNCTIONS(EASYQUANT_MPI_MEMBER)
#undef EASYQUANT_MPI_MEMBER
#define EASYQUANT_MPI_MEMBER(symbol, name, type) type name = nullptr;
  EASYQUANT_MPI_OBJECTS(EASYQUANT_MPI_MEMBER)
#undef EASYQUANT_MPI_MEMBER

  /// Opened once for the process. Errors: NotFound (no Open MPI), Unsupported (another one).
  static Result<const Library *> get();

  /// "MPI_ERR_TRUNCATE: message truncated"
  std::string describe(int status) const;
};

} // namespace easyquant::comm::mpi

#endif // EASYQUANT_LIB_COMM_MPI_H
