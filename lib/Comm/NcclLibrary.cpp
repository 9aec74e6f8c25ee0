//===- NcclLibrary.cpp - NCCL, opened at run time -------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Nccl.h"

#include <dlfcn.h>
#include <mutex>
#include <optional>

namespace easyquant::comm::nccl {

static constexpr const char *kLibrary = "libnccl.so.2";

static Result<Library> open() {
  void *handle = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char *reason = ::dlerror();
    return makeError(
        ErrorCode::NotFound,
        "no NCCL: {} cannot be opened ({}); install NCCL 2.18 or later (libnccl2, or the "
        "Python package nvidia-nccl-cu13, with its folder in LD_LIBRARY_PATH), or join "
        "the ranks by MPI",
        kLibrary, reason ? reason : "unknown reason");
  }
  Library library;
  const char *missing = nullptr;
  auto bind = [&](auto &function, const char *symbol) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(handle, symbol));
    if (!function && !missing)
      missing = symbol;
  };
#define EASYQUANT_NCCL_BIND(symbol, name, result, parameters) bind(library.name, #symbol);
  EASYQUANT_NCCL_FUNCTIONS(EASYQUANT_NCCL_BIND)
#undef EASYQUANT_NCCL_BIND
  int version = 0;
  if (library.getVersion)
    library.getVersion(&version);
  if (missing || version < kLeastVersion)
    return makeError(ErrorCode::Unsupported,
                     "NCCL is too old: found version {}.{}.{}{}, expected 2.18 or later; update it",
                     version / 10000, version % 10000 / 100, version % 100,
                     missing ? fmt::format(" without {}", missing) : "");
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

std::string Library::describe(Status status, Comm comm) const {
  const char *text = errorString(status), *more = lastError(comm);
  return more && *more ? fmt::format("{} ({})", text, more) : std::string(text);
}

} // namespace easyquant::comm::nccl
