//===- MpiLibrary.cpp - Open MPI, opened at run time ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Mpi.h"

#include "easyquant/Support/SharedLibrary.h"

namespace easyquant::comm::mpi {

static constexpr const char *kLibrary = "libmpi.so.40";

static Result<Library> open() {
  // Its plugins find it among the global symbols alone.
  Result<SharedLibrary> opened = SharedLibrary::open(kLibrary, /*global=*/true);
  if (!opened)
    return makeError(ErrorCode::NotFound,
                     "no Open MPI: {} cannot be opened ({}); install Open MPI 3 or 4 (Debian: "
                     "openmpi-bin), or start the ranks without a launcher, as one",
                     kLibrary, opened.error().message);
  Library library;
#define EASYQUANT_MPI_BIND(symbol, name, other) opened->bind(library.name, #symbol);
  EASYQUANT_MPI_FUNCTIONS(EASYQUANT_MPI_BIND)
  EASYQUANT_MPI_OBJECTS(EASYQUANT_MPI_BIND)
#undef EASYQUANT_MPI_BIND
  if (!opened->missing().empty())
    return makeError(ErrorCode::Unsupported,
                     "{} has no {}; expected the library of Open MPI 3 or 4", kLibrary,
                     opened->missing());
  return library;
}

Result<const Library *> Library::get() { return openOnce(open); }

std::string Library::describe(int status) const {
  char text[kLongestString + 1] = {};
  int length = 0;
  if (errorString(status, text, &length) != kSuccess)
    return fmt::format("MPI error {}", status);
  return {text, static_cast<size_t>(length)};
}

} // namespace easyquant::comm::mpi
