//===- OpenMP.cpp - Finding LLVM's OpenMP runtime -------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Runtime/Program.h"

#include <dlfcn.h>
#include <filesystem>
#include <vector>

using namespace easyquant;
using namespace easyquant::runtime;
namespace fs = std::filesystem;

static constexpr const char *kOpenMPLibrary = "libomp.so.5";

/// The folder of the shared library or executable that holds this code; empty if it cannot be told.
static fs::path ownFolder() {
  static const char anchor = 0;
  Dl_info info;
  if (::dladdr(&anchor, &info) == 0 || !info.dli_fname)
    return {};
  std::error_code error;
  fs::path self = info.dli_fname;
  // Of an executable, this is argv[0], which need not be a path.
  if (self.has_parent_path())
    self = fs::canonical(self, error);
  else
    self = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path() : self.parent_path();
}

Result<OpenMP> OpenMP::open() {
  // Two copies of the runtime in one process abort ("OMP: Error #15"), so one that is there wins.
  void *library = ::dlopen(kOpenMPLibrary, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);

  std::vector<std::string> candidates;
  if (fs::path folder = ownFolder(); !folder.empty())
    for (const fs::path &path :
         {folder / kOpenMPLibrary, folder.parent_path() / "lib" / kOpenMPLibrary})
      if (std::error_code error; fs::exists(path, error))
        candidates.push_back(path.string());
  candidates.push_back(kOpenMPLibrary);

  std::string failures;
  for (size_t i = 0; i < candidates.size() && !library; ++i) {
    library = ::dlopen(candidates[i].c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library)
      break;
    const char *reason = ::dlerror();
    failures +=
        fmt::format("{}{}", failures.empty() ? "" : "; ", reason ? reason : candidates[i].c_str());
  }
  if (!library)
    return makeError(ErrorCode::NotFound,
                     "{}: LLVM's OpenMP runtime, which compiled models need, was not found ({}); "
                     "install it (Debian: libomp5-22) or put it beside the EasyQuant library",
                     kOpenMPLibrary, failures);
  OpenMP openmp;
  openmp.setter = reinterpret_cast<void (*)(int)>(::dlsym(library, "omp_set_num_threads"));
  if (!openmp.setter || !::dlsym(library, "__kmpc_fork_call"))
    return makeError(ErrorCode::Unsupported,
                     "{}: the library of this name that was loaded does not define "
                     "omp_set_num_threads and __kmpc_fork_call; expected LLVM's OpenMP runtime",
                     kOpenMPLibrary);
  return openmp;
}

Result<const OpenMP *> OpenMP::get() {
  // A failure is remembered too: the search would find nothing new in a running process.
  static const Result<OpenMP> instance = open();
  if (!instance)
    return Unexpected(instance.error());
  return &*instance;
}
