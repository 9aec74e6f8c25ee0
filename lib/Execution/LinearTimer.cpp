//===- LinearTimer.cpp - How long a linear's kernel takes -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Execution/LinearTimer.h"

#include "HostProgram.h"
#include "LinearModule.h"

#include "easyquant/Execution/CompiledSubgraph.h"
#include "easyquant/Runtime/Program.h"
#include "easyquant/Support/Threads.h"

#include <algorithm>
#include <chrono>
#include <limits>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;

/// More than caches hold.
static constexpr int64_t kOtherBytes = 64 << 20;
/// Calls that are timed. Those of a row are short, and the first thing that disturbs one is much of
/// it.
static int callsOf(int64_t rows) { return rows == 1 ? 15 : 5; }

namespace {
/// The least of some times. Where nothing else runs, two of them are alike; where that is not so
/// more of them are asked for, as a call that nothing disturbs is rare.
class FastestCalls {
public:
  explicit FastestCalls(int wanted) : wanted(wanted) {}

  void add(double time) {
    ++count;
    second = std::min(second, std::max(first, time));
    first = std::min(first, time);
  }
  bool areEnough() const {
    return count >= wanted && (second <= kAlike * first || count >= kMost * wanted);
  }
  double least() const { return first; }

private:
  static constexpr double kAlike = 1.02;
  static constexpr int kMost = 6;

  int wanted, count = 0;
  double first = std::numeric_limits<double>::infinity(), second = first;
};
} // namespace

Result<LinearTimer> LinearTimer::create(unsigned threads) {
  LinearTimer timer;
  Result<std::string> isa = HostProgram::chooseIsa("", "kernels");
  if (!isa)
    return Unexpected(isa.error());
  timer.instructions = *isa;
  Result<int32_t> count = chooseThreads(threads);
  if (!count)
    return Unexpected(count.error());
  timer.threadCount = static_cast<unsigned>(*count);
  Result<Buffer> memory = allocateMemory(kOtherBytes);
  if (!memory)
    return Unexpected(memory.error());
  timer.other = std::move(*memory);
  return timer;
}

void LinearTimer::emptyCaches() {
  for (int64_t &word : std::span(other.data<int64_t>(), kOtherBytes / sizeof(int64_t)))
    ++word; // written, so that nobody optimizes it away
}

FailureOr<SmallVector<double>> LinearTimer::millisecondsOf(Location loc, const TimedLinear &linear,
                                                           ArrayRef<int64_t> rows) {
  LinearModule built = LinearModule::of(loc, linear);
  const int64_t most = *llvm::max_element(rows);
  auto program = HostProgram::compile(*built.module, instructions, most);
  if (failed(program))
    return failure();
  auto fail = [&](const Error &error) { return emitError(loc) << error.message; };
  const int64_t outputs = linear.weight.getDimSize(0), inputs = linear.weight.getDimSize(1);
  Result<Buffer> weights = allocateMemory(built.weightBytes),
                 arena = allocateMemory((*program)->arenaBytes +
                                        threadCount * (*program)->arenaBytesPerThread);
  if (!weights || !arena)
    return fail(weights ? arena.error() : weights.error());
  // Pages that nothing was written to share one of zeros. These bytes are small numbers as codes,
  // and as scales of any type.
  std::fill_n(weights->data<uint8_t>(), weights->size(), uint8_t(0x11));

  std::vector<float> x(most * inputs), y(most * outputs);
  auto weightView = memRef1D(weights->data<int8_t>(), weights->size());
  auto arenaView = memRef1D(arena->data<int8_t>(), arena->size());
  auto cache = memRef1D(static_cast<int8_t *>(nullptr), 0);
  auto pages = memRef1D(static_cast<int64_t *>(nullptr), 0);
  SmallVector<double> least;
  for (int64_t count : rows) {
    MemRef<float, 2> in{x.data(), x.data(), 0, {count, inputs}, {inputs, 1}},
        out{y.data(), y.data(), 0, {count, outputs}, {outputs, 1}};
    SmallVector<uintptr_t> arguments;
    for (const void *view :
         std::initializer_list<const void *>{&weightView, &arenaView, &cache, &pages, &in})
      arguments.push_back(reinterpret_cast<uintptr_t>(view));
    arguments.push_back(threadCount);
    arguments.push_back(reinterpret_cast<uintptr_t>(&out));
    FastestCalls calls{callsOf(count)};
    for (int call = 0; call == 0 || !calls.areEnough(); ++call) {
      emptyCaches();
      std::ranges::fill(x, 0.5f); // as what is before has just made it
      const auto begin = std::chrono::steady_clock::now();
      if (auto done = (*program)->call(arguments, static_cast<int32_t>(threadCount)); !done)
        return fail(done.error());
      const std::chrono::duration<double, std::milli> taken =
          std::chrono::steady_clock::now() - begin;
      if (call > 0) // the first one starts threads
        calls.add(taken.count());
    }
    least.push_back(calls.least());
  }
  return least;
}
