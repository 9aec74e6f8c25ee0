//===- Patience.h - Polling under a time limit ------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_COMM_PATIENCE_H
#define EASYQUANT_LIB_COMM_PATIENCE_H

#include "easyquant/Comm/Communicator.h"

#include <sched.h>
#include <thread>

namespace easyquant::comm {

/// Waits between two polls. At first it only spins, since most collectives end within microseconds.
/// Then it yields the CPU, since ranks may outnumber CPUs. Then it sleeps, never longer than a
/// hundredth of the time that it has waited.
class Patience {
public:
  explicit Patience(const Limits &limits) : limits(limits) {}

  /// True about once in so many microseconds: time for what costs more than a poll.
  bool mayLookAround() {
    ++polls;
    if (polls % kPollsPerLook != 0)
      return false;
    const auto now = Clock::now();
    if (!begun)
      begun = now;
    waited = now - *begun;
    return true;
  }

  bool isInterrupted() const { return limits.interrupted && limits.interrupted->load(); }
  bool isExhausted() const { return waited >= limits.timeout; }
  double seconds() const { return std::chrono::duration<double>(waited).count(); }

  void pause() const {
    if (polls < kSpins)
      return;
    constexpr auto kLongestNap = std::chrono::microseconds(500);
    if (waited > std::chrono::milliseconds(2))
      std::this_thread::sleep_for(std::min<Clock::duration>(waited / 100, kLongestNap));
    else
      ::sched_yield();
  }

private:
  using Clock = std::chrono::steady_clock;
  static constexpr uint64_t kPollsPerLook = 32, kSpins = 128;
  const Limits &limits;
  uint64_t polls = 0;
  std::optional<Clock::time_point> begun;
  Clock::duration waited{};
};

} // namespace easyquant::comm

#endif // EASYQUANT_LIB_COMM_PATIENCE_H
