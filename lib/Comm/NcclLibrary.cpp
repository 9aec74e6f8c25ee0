//===- NcclLibrary.cpp - NCCL, opened at run time -------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Nccl.h"

#include "easyquant/Support/SharedLibrary.h"

namespace easyquant::comm::nccl {

static constexpr const char *kLibrary = "libnccl.so.2";

static Result<Library> open() {
  Result<SharedLibrary> opened = SharedLibrary::open(kLibrary);
  if (!opened)
    return makeError(
        ErrorCode::NotFound,
        "no NCCL: {} cannot be opened ({}); install NCCL 2.18 or later (libnccl2, or the "
        "Python package nvidia-nccl-cu13, with its folder in LD_LIBRARY_PATH), or join "
        "the ranks by MPI",
        kLibrary, opened.error().message);
  Library library;
#define EASYQUANT_NCCL_BIND(symbol, name, result, parameters) opened->bind(library.name, #symbol);
  EASYQUANT_NCCL_FUNCTIONS(EASYQUANT_NCCL_BIND)
#undef EASYQUANT_NCCL_BIND
  int version = 0;
  if (library.getVersion)
    library.getVersion(&version);
  if (!opened->missing().empty() || version < kLeastVersion)
    return makeError(ErrorCode::Unsupported,
                     "NCCL is too old: found version {}.{}.{}{}, expected 2.18 or later; update it",
                     version / 10000, version % 10000 / 100, version % 100,
                     opened->missing().empty() ? "" : " without " + opened->missing());
  return library;
}

Result<const Library *> Library::get() { return openOnce(open); }

std::string Library::describe(Status status, Comm comm) const {
  const char *text = errorString(status), *more = lastError(comm);
  return more && *more ? fmt::format("{} ({})", text, more) : std::string(text);
}

} // namespace easyquant::comm::nccl
