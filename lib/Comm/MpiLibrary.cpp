//===- MpiLibrary.cpp - Open MPI, opened at run time ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Mpi.h"

#include <dlfcn.h>
#include <mutex>
#include <optional>
#include <string_view>

namespace easyquant::comm::mpi {

static constexpr const char *kLibrary = "libmpi.so.40";

static Result<Library> open() {
  // Its plugins find it among the global symbols alone.
  void *handle = ::dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL);
  if (!handle) {
    const char *reason = ::dlerror();
    return makeError(ErrorCode::NotFound,
                     "no Open MPI: {} cannot be opened ({}); install Open MPI 3 or 4 (Debian: "
                     "openmpi-bin), or start the ranks without a launcher, as one",
                     kLibrary, reason ? reason : "unknown reason");
  }
  Library library;
  const char *missing = nullptr;
  auto bind = [&](auto &member, const char *symbol) {
    member = reinterpret_cast<std::decay_t<decltype(member)>>(::dlsym(handle, symbol));
    if (!member && !missing)
      missing = symbol;
  };
#define EASYQUANT_MPI_BIND(symbol, name, other) bind(library.name, #symbol);
  EASYQUANT_MPI_FUNCTIONS(EASYQUANT_MPI_BIND)
  EASYQUANT_MPI_OBJECTS(EASYQUANT_MPI_BIND)
#undef EASYQUANT_MPI_BIND
  if (missing)
    return makeError(ErrorCode::Unsupported,
                     "{} has no {}; expected the library of Open MPI 3 or 4", kLibrary, missing);
  return library;
}

Result<const Library *> Library::get() {
  static std::mutex mutex;
  static std::optional<Library> instance;
  std::lock_guard lock(mutex);
  if (!instance) {
    Result<Library> opened = open();
    if (!opened)
      return Unexpected(opened.error());
    instance = *opened;
  }
  return &*instance;
}

std::string Library::describe(int status) const {
  char text[kLongestString + 1] = {};
  int length = 0;
  if (errorString(status, text, &length) != kSuccess)
    return fmt::format("MPI error {}", status);
  return {text, static_cast<size_t>(length)};
}

} // namespace easyquant::comm::mpi
