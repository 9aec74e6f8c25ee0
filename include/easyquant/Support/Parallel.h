//===- Parallel.h - Loops over independent pieces ---------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_SUPPORT_PARALLEL_H
#define EASYQUANT_SUPPORT_PARALLEL_H

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace easyquant {

/// work(0) .. work(count - 1), on at most `threads` threads (0: one per core) of which the caller
/// is one. Which thread takes which piece is chance: a result that is to be the same for any number
/// of threads depends on the pieces alone, so cut them by the size of the problem, never by
/// `threads`. `work` must not throw.
template <typename Work> void parallelFor(int64_t count, unsigned threads, Work &&work) {
  if (threads == 0)
    threads = std::max(1u, std::thread::hardware_concurrency());
  std::atomic<int64_t> next = 0;
  auto run = [&] {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;)
      work(i);
  };
  std::vector<std::thread> helpers;
  try {
    helpers.reserve(static_cast<size_t>(std::clamp<int64_t>(count - 1, 0, threads - 1)));
    for (int64_t i = 1; i < std::min<int64_t>(threads, count); ++i)
      helpers.emplace_back(run);
  } catch (const std::system_error &) { // NOLINT(bugprone-empty-catch)
    // The system grants no more threads: those that there are do all the work.
  }
  run();
  for (std::thread &helper : helpers)
    helper.join();
}

} // namespace easyquant

#endif // EASYQUANT_SUPPORT_PARALLEL_H
