//===- SharedLibrary.h - Libraries that are opened at run time --*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// NVIDIA's driver, NCCL and Open MPI are used where they are and missed by nobody where they are
// not: they are opened by name, once for the process, and never closed.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_SUPPORT_SHAREDLIBRARY_H
#define EASYQUANT_SUPPORT_SHAREDLIBRARY_H

#include "easyquant/Support/Result.h"

#include <dlfcn.h>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>

namespace easyquant {

class SharedLibrary {
public:
  /// Global: its symbols are for libraries that are opened later, too. Errors: NotFound, with the
  /// loader's reason alone.
  static Result<SharedLibrary> open(const char *name, bool global = false) {
    void *handle = ::dlopen(name, RTLD_NOW | (global ? RTLD_GLOBAL : RTLD_LOCAL));
    if (handle)
      return SharedLibrary(handle);
    const char *reason = ::dlerror();
    return Unexpected(Error{ErrorCode::NotFound, reason ? reason : "unknown reason"});
  }

  /// Points a function or an object at the symbol, or at nothing.
  template <typename Pointer> void bind(Pointer &pointer, const char *symbol) {
    pointer = reinterpret_cast<Pointer>(::dlsym(handle, symbol));
    if (!pointer && firstMissing.empty())
      firstMissing = symbol;
  }
  /// The first symbol that was asked for and is not there; empty: none.
  const std::string &missing() const { return firstMissing; }

private:
  explicit SharedLibrary(void *handle) : handle(handle) {}

  void *handle;
  std::string firstMissing;
};

/// What `open` gives the first time that it gives something. A failure is not remembered: memory
/// may have been short. T is one of a kind in the process.
template <typename T> Result<const T *> openOnce(Result<T> (*open)()) {
  static std::mutex mutex;
  static std::optional<T> instance;
  std::lock_guard lock(mutex);
  if (!instance) {
    Result<T> opened = open();
    if (!opened)
      return Unexpected(opened.error());
    instance = *opened;
  }
  return &*instance;
}

} // namespace easyquant

#endif // EASYQUANT_SUPPORT_SHAREDLIBRARY_H
