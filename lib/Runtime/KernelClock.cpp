//===- KernelClock.cpp - What the kernels of a program cost ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelClock.h"

#include <algorithm>
#include <new>
#include <utility>

using namespace easyquant;
using namespace easyquant::runtime;

static_assert(int(Phase::Quantize) == 1 && int(Phase::Gemm) == 2 && int(Phase::Attention) == 3 &&
                  int(Phase::Other) == 6,
              "the numbers of the program ABI");

ProfilerHook KernelClock::begin() {
  running = kNone;
  next = 0;
  return {[](void *context, int64_t phase, const char *site) {
            bool isPhase = phase >= 0 && phase < static_cast<int64_t>(kPhases);
            static_cast<KernelClock *>(context)->mark(
                isPhase ? static_cast<Phase>(phase) : Phase::Other, site);
          },
          this};
}

void KernelClock::end() {
  if (running != kNone)
    entries[running].time += Clock::now() - since;
  running = kNone;
  if (std::exchange(isIncomplete, false))
    throw std::bad_alloc();
}

void KernelClock::mark(Phase phase, const char *site) noexcept {
  Clock::time_point now = Clock::now();
  if (running != kNone)
    entries[running].time += now - since;
  since = now;
  running = kNone;
  try {
    running = find(phase, site);
    next = running + 1;
    ++entries[running].launches;
  } catch (...) {
    isIncomplete = true;
  }
}

/// Every step goes the same way, so that after the first one this is a look at one entry.
size_t KernelClock::find(Phase phase, const char *site) {
  auto isIt = [&](const Entry &entry) { return entry.site == site && entry.phase == phase; };
  if (next < entries.size() && isIt(entries[next]))
    return next;
  auto known = std::find_if(entries.begin(), entries.end(), isIt);
  if (known == entries.end())
    known = entries.insert(known, Entry{site, phase});
  return static_cast<size_t>(known - entries.begin());
}

PhaseCost KernelClock::costOf(const Entry &entry) const {
  PhaseCost cost;
  cost.launches = entry.launches;
  cost.seconds = std::chrono::duration<double>(entry.time).count();
  return cost;
}

PhaseCosts KernelClock::phases() const {
  PhaseCosts costs{};
  for (const Entry &entry : entries) {
    PhaseCost &sum = costs[static_cast<size_t>(entry.phase)];
    PhaseCost cost = costOf(entry);
    sum.launches += cost.launches;
    sum.seconds += cost.seconds;
  }
  return costs;
}

std::vector<SiteCost> KernelClock::sites() const {
  std::vector<SiteCost> costs;
  costs.reserve(entries.size());
  for (const Entry &entry : entries)
    costs.push_back({entry.site, entry.phase, costOf(entry)});
  return costs;
}
