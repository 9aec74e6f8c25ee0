//===- MpiAbiTest.cpp - Our declarations against Open MPI's header --------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Runtime/SameAbi.h"
#include "Mpi.h"

#define OMPI_SKIP_MPICXX 1
#include <gtest/gtest.h>
#include <mpi.h>

#include <dlfcn.h>

using namespace easyquant;
using namespace easyquant::comm::mpi;

#define EASYQUANT_CHECK(symbol, name, parameters)                                                  \
  static_assert(kSameAbi<decltype(symbol), std::remove_pointer_t<decltype(Library::name)>>,        \
                #symbol " is not declared as mpi.h has it");
EASYQUANT_MPI_FUNCTIONS(EASYQUANT_CHECK)
#undef EASYQUANT_CHECK

static_assert(kSuccess == MPI_SUCCESS && kThreadSerialized == MPI_THREAD_SERIALIZED);
static_assert(kLongestString == MPI_MAX_ERROR_STRING && kAnySource == MPI_ANY_SOURCE);
static_assert(sizeof(Status) == sizeof(MPI_Status) &&
              offsetof(Status, source) == offsetof(MPI_Status, MPI_SOURCE));

TEST(MpiLibrary, HandlesAreTheHeadersObjects) {
  EXPECT_EQ(kInPlace, MPI_IN_PLACE);
  Result<const Library *> library = Library::get();
  if (!library)
    GTEST_SKIP() << "unsupported: " << library.error().message;
  // The header's macros are addresses of objects that this program does not link: their names.
#define EASYQUANT_TEXT_OF(...) #__VA_ARGS__
#define EASYQUANT_TEXT(x) EASYQUANT_TEXT_OF(x)
  const auto names = [](const char *macro, const char *object) {
    EXPECT_NE(std::string(macro).find(object), std::string::npos) << macro << " " << object;
  };
  names(EASYQUANT_TEXT(MPI_COMM_WORLD), "ompi_mpi_comm_world");
  names(EASYQUANT_TEXT(MPI_REQUEST_NULL), "ompi_request_null");
  names(EASYQUANT_TEXT(MPI_ERRORS_RETURN), "ompi_mpi_errors_return");
  names(EASYQUANT_TEXT(MPI_BYTE), "ompi_mpi_byte");
  names(EASYQUANT_TEXT(MPI_INT32_T), "ompi_mpi_int32_t");
  names(EASYQUANT_TEXT(MPI_INT64_T), "ompi_mpi_int64_t");
  names(EASYQUANT_TEXT(MPI_FLOAT), "ompi_mpi_float");
  names(EASYQUANT_TEXT(MPI_DOUBLE), "ompi_mpi_double");
  names(EASYQUANT_TEXT(MPI_SUM), "ompi_mpi_op_sum");
  names(EASYQUANT_TEXT(MPI_MIN), "ompi_mpi_op_min");
  names(EASYQUANT_TEXT(MPI_MAX), "ompi_mpi_op_max");
}
