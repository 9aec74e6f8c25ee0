//===- Threads.h - How many threads there may be ----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_SUPPORT_THREADS_H
#define EASYQUANT_SUPPORT_THREADS_H

#include "easyquant/Support/Result.h"

#include <algorithm>
#include <cstdint>
#include <sched.h>
#include <thread>

namespace easyquant {

/// CPUs that this process may run on, at least 1.
inline int32_t availableThreads() {
  cpu_set_t set;
  // Fails on machines with more CPUs than a cpu_set_t holds.
  int count = ::sched_getaffinity(0, sizeof(set), &set) == 0
                  ? CPU_COUNT(&set)
                  : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(count, 1);
}

/// More threads than this for each CPU would only wait for each other. It leaves room for a command
/// that was written on a larger machine.
constexpr int32_t kThreadsPerCpu = 8;

/// The most threads that may be asked for.
inline int32_t mostThreads() { return kThreadsPerCpu * availableThreads(); }

/// The number of threads that `asked` means: 0 is availableThreads(). Errors: InvalidArgument, with
/// what is allowed.
inline Result<int32_t> chooseThreads(int64_t asked) {
  int32_t most = mostThreads();
  if (asked < 0 || asked > most)
    return makeError(ErrorCode::InvalidArgument,
                     "threads: found {}, expected 1..{} ({} for each CPU that the process may run "
                     "on), or 0 for one a CPU",
                     asked, most, kThreadsPerCpu);
  return asked == 0 ? availableThreads() : static_cast<int32_t>(asked);
}

} // namespace easyquant

#endif // EASYQUANT_SUPPORT_THREADS_H
