//===- collectives.cpp - What small collectives cost ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// mpirun -n 2 easyquant-collectives-bench
// The communicator against MPI_Allreduce called directly, and a bucket of 224 scales against one
// all-reduce of those bytes and against 224 of them. Rounds of all of them alternate, so that each
// ratio compares what ran side by side; printed are medians over the rounds.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Comm/Bucket.h"
#include "easyquant/Comm/Open.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>

using namespace easyquant;
using namespace easyquant::comm;

/// Microseconds of one call, of `calls` in a row.
template <typename Body> static double timeOf(int calls, Body body) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i)
    body();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
             .count() /
         calls;
}

static double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

static std::vector<double> ratios(const std::vector<double> &a, const std::vector<double> &b) {
  std::vector<double> result;
  result.reserve(a.size());
  for (size_t i = 0; i < a.size(); ++i)
    result.push_back(a[i] / b[i]);
  return result;
}

int main() {
  auto opened = openCommunicator({});
  if (!opened) {
    std::fprintf(stderr, "error: %s\n", opened.error().message.c_str());
    return 1;
  }
  Communicator &communicator = **opened;
  if (communicator.backend() != "MPI") {
    std::fprintf(stderr, "error: found one rank, expected several; start with mpirun -n 2\n");
    return 1;
  }
  // The library is open already, with global symbols.
  const auto object = [](const char *name) { return ::dlsym(RTLD_DEFAULT, name); };
  const auto allreduce =
      reinterpret_cast<int (*)(const void *, void *, int, void *, void *, void *)>(
          object("MPI_Allreduce"));
  void *const world = object("ompi_mpi_comm_world"), *const type = object("ompi_mpi_float"),
              *const sum = object("ompi_mpi_op_sum");
  const auto direct = [&](std::vector<float> &values) {
    allreduce(reinterpret_cast<void *>(1), values.data(), static_cast<int>(values.size()), type,
              sum, world);
  };
  const auto ours = [&](std::span<float> values) {
    if (!communicator.allReduce(values, Reduction::Sum))
      std::abort();
  };

  constexpr int kRounds = 101, kCalls = 200;
  constexpr size_t kScales = 224, kStride = 16;
  std::vector<float> kibibyte(256), scales(kScales), state(kScales), spread(kScales * kStride);
  Bucket<float> bucket, scattered;
  for (size_t i = 0; i < kScales; ++i) {
    bucket.add(std::span(&state[i], 1));
    scattered.add(std::span(&spread[i * kStride], 1));
  }
  std::vector<double> byMpi, byUs, one, bucketed, apart, single;
  const auto reduce = [&](Bucket<float> &buffers) {
    if (!buffers.allReduce(communicator, Reduction::Sum))
      std::abort();
  };
  for (int round = 0; round < kRounds; ++round) {
    byMpi.push_back(timeOf(kCalls, [&] { direct(kibibyte); }));
    byUs.push_back(timeOf(kCalls, [&] { ours(kibibyte); }));
    one.push_back(timeOf(kCalls, [&] { ours(scales); }));
    bucketed.push_back(timeOf(kCalls, [&] { reduce(bucket); }));
    apart.push_back(timeOf(kCalls, [&] { reduce(scattered); }));
    single.push_back(timeOf(2, [&] {
      for (size_t i = 0; i < kScales; ++i)
        ours(std::span(&spread[i * kStride], 1));
    }));
    std::fill(kibibyte.begin(), kibibyte.end(), 0.f);
  }
  if (communicator.rank() == 0) {
    std::printf("%d ranks, medians of %d rounds\n", communicator.size(), kRounds);
    std::printf("all-reduce of 1 KiB: %.2f us, MPI_Allreduce %.2f us, ratio %.2f\n", median(byUs),
                median(byMpi), median(ratios(byUs, byMpi)));
    std::printf(
        "bucket of %zu scales: %.2f us, one all-reduce of those bytes %.2f us, ratio %.2f\n",
        kScales, median(bucketed), median(one), median(ratios(bucketed, one)));
    std::printf("the same, each in a cache line of its own: %.2f us, ratio %.2f\n", median(apart),
                median(ratios(apart, one)));
    std::printf("%zu all-reduces: %.2f us, %.1f times the bucket\n", kScales, median(single),
                median(ratios(single, bucketed)));
  }
  return communicator.close() ? 0 : 1;
}
