//===- Program.cpp - The compiled code of an artifact ---------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Runtime/Program.h"

#include <atomic>
#include <dlfcn.h>

using namespace easyquant;
using namespace easyquant::runtime;

//===----------------------------------------------------------------------===//
// Program
//===----------------------------------------------------------------------===//

/// glibc takes a library whose name it has already loaded for the same library, even when the file
/// has been replaced since (a model recompiled in place), but tells files of different names apart
/// by inode. So each load spells the path differently: "/" and "/." before the file name are the
/// digits of a running number.
static std::string freshSpelling(const std::string &path) {
  static std::atomic<uint64_t> loads{0};
  size_t slash = path.rfind('/');
  std::string spelling = slash == path.npos ? "." : path.substr(0, slash);
  for (uint64_t number = ++loads; number != 0; number >>= 1)
    spelling += number & 1 ? "/." : "/";
  return spelling + "/" + (slash == path.npos ? path : path.substr(slash + 1));
}

void Program::Close::operator()(void *handle) const { ::dlclose(handle); }

Result<Program> Program::load(const std::string &path, const std::string &symbol,
                              const std::string &draftSymbol) {
  Result<const OpenMP *> openmp = OpenMP::get();
  if (!openmp)
    return Unexpected(openmp.error());

  Program program;
  program.file = path;
  program.openmp = *openmp;
  program.library.reset(::dlopen(freshSpelling(path).c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!program.library) {
    const char *reason = ::dlerror();
    return makeError(ErrorCode::Corrupt,
                     "{}: cannot be loaded as a shared object: {}; compile the artifact again",
                     path, reason ? reason : "unknown reason");
  }
  for (auto [name, entry] :
       {std::pair(&symbol, &program.entry), std::pair(&draftSymbol, &program.draftEntry)}) {
    if (name->empty())
      continue;
    *entry = reinterpret_cast<eq_step_function>(::dlsym(program.library.get(), name->c_str()));
    if (!*entry)
      return makeError(ErrorCode::Corrupt,
                       "{}: does not define {}, which the manifest lists among the entries of its "
                       "program; compile the artifact again",
                       path, *name);
  }
  return program;
}
