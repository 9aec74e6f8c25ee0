//===- Ranks.h - Threads as ranks ---------------------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_COMM_RANKS_H
#define EASYQUANT_TEST_COMM_RANKS_H

#include "easyquant/Comm/Open.h"

#include <functional>
#include <thread>

namespace easyquant::comm::test {

/// body(communicator) on each of `size` ranks at once.
inline void onRanks(int size, const std::function<void(Communicator &)> &body,
                    Limits limits = {.timeout = std::chrono::seconds(20)}) {
  auto communicators = makeThreadCommunicators(size, limits);
  std::vector<std::thread> threads;
  for (auto &communicator : communicators)
    threads.emplace_back([&body, &communicator] { body(*communicator); });
  for (std::thread &thread : threads)
    thread.join();
}

} // namespace easyquant::comm::test

#endif // EASYQUANT_TEST_COMM_RANKS_H
