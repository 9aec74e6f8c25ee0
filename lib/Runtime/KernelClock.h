//===- KernelClock.h - What the kernels of a program cost -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The seconds of a program for CPUs by phase and site, from its calls of the profiler hook. Private
// to the runtime.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_RUNTIME_KERNELCLOCK_H
#define EASYQUANT_LIB_RUNTIME_KERNELCLOCK_H

#include "easyquant/Runtime/Device.h"
#include "easyquant/Runtime/Program.h"

#include <chrono>
#include <vector>

namespace easyquant::runtime {

/// A kernel's time is that from its call of the hook to the next one, or to the end of the step.
/// The short time between two kernels counts with the first. A clock belongs to one batch, and
/// stays where it is while a program has its hook.
class KernelClock {
public:
  /// A step begins; what it does before its first call is nobody's time.
  ProfilerHook begin();
  /// Throws std::bad_alloc if there was no memory for the figures: a program can pass no exception
  /// on.
  void end();

  PhaseCosts phases() const;
  /// In the order in which the program came to them.
  std::vector<SiteCost> sites() const;

private:
  using Clock = std::chrono::steady_clock;
  /// The names are the program's, one address a name.
  struct Entry {
    const char *site;
    Phase phase;
    uint64_t launches = 0;
    Clock::duration time{};
  };

  void mark(Phase phase, const char *site) noexcept;
  size_t find(Phase phase, const char *site);
  PhaseCost costOf(const Entry &entry) const;

  static constexpr size_t kNone = ~size_t(0);
  std::vector<Entry> entries;
  size_t running = kNone; ///< the entry whose kernel runs
  size_t next = 0;        ///< the entry that comes after it, if the step is like the first one
  Clock::time_point since;
  bool isIncomplete = false;
};

} // namespace easyquant::runtime

#endif // EASYQUANT_LIB_RUNTIME_KERNELCLOCK_H
