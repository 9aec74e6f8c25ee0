//===- OpenMP.cpp - Finding LLVM's OpenMP runtime, and its threads --------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Runtime/Program.h"

#include "easyquant/Support/SharedLibrary.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <pthread.h>
#include <type_traits>
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
  // For an executable this is argv[0], which need not be a path.
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
                     "install it (Debian: libomp5-19) or put it beside the EasyQuant library",
                     kOpenMPLibrary, failures);
  OpenMP openmp;
  std::string missing;
  auto bind = [&](auto &function, const char *name) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    if (!function)
      missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
  bind(openmp.setNumThreads, "omp_set_num_threads");
  bind(openmp.stackBytes, "kmp_get_stacksize_s");
  bind(openmp.fork, "__kmpc_fork_call");
  bind(openmp.threadNumber, "omp_get_thread_num");
  bind(openmp.threadCount, "omp_get_num_threads");
  if (!missing.empty())
    return makeError(ErrorCode::Unsupported,
                     "{}: the library of this name that was loaded does not define {}; expected "
                     "LLVM's OpenMP runtime",
                     kOpenMPLibrary, missing);
  return openmp;
}

Result<const OpenMP *> OpenMP::get() { return openOnce(open); }

//===----------------------------------------------------------------------===//
// Threads
//===----------------------------------------------------------------------===//

/// More than libomp takes from the heap when it is first called, and for a further thread.
static constexpr size_t kHeapBytes = size_t(1) << 20;

/// libomp adds a little to each stack, more from one to the next.
static constexpr size_t kStackMargin = size_t(256) << 10;

/// Whether there is such a piece now. (A pair that the compiler may not take away.)
static bool tryHeap() {
  void *volatile heap = std::malloc(kHeapBytes);
  const bool isThere = heap != nullptr;
  std::free(heap);
  return isThere;
}

/// Starts and ends a thread with such a stack, and takes and returns heap, in both threads: the C
/// library keeps the stack, and the heap that it makes for a thread, for the next one. 0 or an
/// errno.
static int tryThread(size_t stackBytes) {
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, stackBytes + kStackMargin);
  pthread_t helper;
  auto run = [](void *isThere) -> void * {
    *static_cast<bool *>(isThere) = tryHeap();
    return nullptr;
  };
  bool isThere = false;
  int error = ::pthread_create(&helper, &attributes, run, &isThere);
  ::pthread_attr_destroy(&attributes);
  if (error != 0)
    return error;
  ::pthread_join(helper, nullptr);
  return isThere && tryHeap() ? 0 : ENOMEM;
}

/// What compiled programs ask of libomp in their regions.
void OpenMP::meet(int32_t *, int32_t *, const OpenMP *openmp) {
  openmp->threadNumber();
  openmp->threadCount();
}

Result<void> OpenMP::prepare(int32_t threads) const {
  // The team of the parallel regions before, in this thread: libomp keeps their workers with it. It
  // is in the thread's own storage from the start, since storage that is made when first used may
  // find no memory.
  [[gnu::tls_model("initial-exec")]] static thread_local int32_t team = 0;
  // libomp aborts where it is refused a thread or memory. It takes them when it is first called,
  // when a region has more threads than those before, and in the region after that. So the threads
  // are made here, one by one, each after another that took the same was ended.
  static constexpr Place place;
  for (int32_t next = team + 1; next <= threads; ++next) {
    int error = tryHeap() ? 0 : ENOMEM;
    if (error == 0 && next > 1)
      error = tryThread(stackBytes());
    if (error != 0)
      return makeError(ErrorCode::OutOfRange,
                       "threads: the system grants {} of {} ({}); ask for fewer, or raise the "
                       "limits of the process",
                       next - 1, threads, std::strerror(error));
    for (int region = 0; region < 2; ++region) {
      setNumThreads(next);
      fork(&place, 1, reinterpret_cast<Region>(meet), this);
    }
    team = next;
  }
  setNumThreads(threads);
  team = threads;
  return {};
}

Result<void> OpenMP::run(int32_t threads, void (*work)(void *, int32_t), void *context) const {
  if (Result<void> ready = prepare(threads); !ready)
    return ready;
  struct Call {
    const OpenMP *openmp;
    void (*work)(void *, int32_t);
    void *context;
  } call{this, work, context};
  auto region = [](int32_t *, int32_t *, Call *own) {
    own->work(own->context, own->openmp->threadNumber());
  };
  static constexpr Place place;
  fork(&place, 1, reinterpret_cast<Region>(+region), &call);
  return {};
}
