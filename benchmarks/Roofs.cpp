//===- Roofs.cpp - What the machine could do at best ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Roofs.h"
#include "Chains.h"

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <thread>
#include <vector>

namespace easyquant::bench {

const char *toString(Roof roof) {
  switch (roof) {
  case Roof::FmaAvx2:
    return "vfmadd231ps ymm";
  case Roof::Fma512:
    return "vfmadd231ps zmm";
  case Roof::MaddWd:
    return "vpmaddwd+vpaddd ymm";
  case Roof::MaddUbs:
    return "vpmaddubsw+vpaddw ymm";
  case Roof::DpBusd512:
    return "vpdpbusd zmm";
  case Roof::DpBf16:
    return "vdpbf16ps zmm";
  case Roof::Read:
    return "read bandwidth";
  }
  return "";
}

double now(int threads) {
  timespec time;
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Seconds that `body(thread)` takes on all threads at once, from a common start.
template <typename Body> static double timeThreads(int threads, Body body) {
  std::barrier start(threads);
  std::vector<double> begin(threads), end(threads);
  std::vector<std::thread> pool;
  for (int t = 0; t < threads; ++t)
    pool.emplace_back([&, t] {
      start.arrive_and_wait();
      begin[t] = now(threads);
      body(t);
      end[t] = now(threads);
    });
  for (std::thread &thread : pool)
    thread.join();
  return std::ranges::max(end) - std::ranges::min(begin);
}

double measureOperations(Roof roof, int threads) {
  Chain chain = chainOf(roof);
  constexpr int64_t turns = 3'000'000;
  double seconds = timeThreads(threads, [&](int) { chain.run(turns); });
  return static_cast<double>(threads) * turns * chain.operations / seconds;
}

double measureRead(const void *data, size_t bytes, int threads) {
  const char *begin = static_cast<const char *>(data);
  double seconds = timeThreads(threads, [&](int t) {
    readBytes(begin + bytes * t / threads, begin + bytes * (t + 1) / threads);
  });
  return bytes / seconds;
}

std::string cpuModel() {
  std::ifstream info("/proc/cpuinfo");
  std::string family, model, name;
  for (std::string line; std::getline(info, line) && !line.empty();) {
    size_t colon = line.find(": ");
    if (colon == std::string::npos)
      continue;
    std::string value = line.substr(colon + 2);
    if (line.starts_with("cpu family"))
      family = value;
    else if (line.starts_with("model name"))
      name = value;
    else if (line.starts_with("model"))
      model = value;
  }
  return name + " (family " + family + ", model " + model + ")";
}

} // namespace easyquant::bench
