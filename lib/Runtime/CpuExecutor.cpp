//===- CpuExecutor.cpp - Steps of model.so --------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CachePages.h"
#include "Executor.h"
#include "KernelClock.h"

#include <cstring>
#include <numeric>
#include <optional>
#include <vector>

using namespace easyquant;
using namespace easyquant::runtime;

namespace {

/// Marks that ask, before each kernel, whether to stop the step.
struct WatchedMarks {
  const Watch &watch;
  Marks inner;
  int32_t stop = 0;

  static void mark(void *context, int64_t phase, const char *site) {
    auto *self = static_cast<WatchedMarks *>(context);
    // Once stopped, a program may come to a kernel or two before its threads meet.
    if (self->stop == 0 && self->watch.stops())
      self->stop = 1;
    if (self->inner.function)
      self->inner.function(self->inner.context, phase, site);
  }
};

class CpuExecutor final : public Executor {
public:
  CpuExecutor(const Artifact &artifact, const Program &program, int32_t threads, Buffer arena,
              Buffer cache, int64_t context, bool measure)
      : artifact(artifact), program(program), threads(threads), arena(std::move(arena)),
        cache(std::move(cache)), capacity(context),
        pages(placePages(artifact.manifest().program.cache, context)),
        logitRows(static_cast<size_t>(artifact.manifest().program.maxRows)) {
    if (measure)
      clock.emplace();
  }

  int64_t rowsPerStep(bool) const override { return artifact.manifest().program.maxRows; }
  int64_t bytes() const override { return arena.size() + cache.size() + windowBefore.size(); }
  Result<void> step(std::span<const int32_t> tokens, int64_t position, int64_t firstLogit,
                    float *logits, const Watch &watch) override;
  Result<PhaseCosts> costs() override {
    if (!clock)
      return notMeasured();
    return clock->phases();
  }
  Result<std::vector<SiteCost>> siteCosts() override {
    if (!clock)
      return notMeasured();
    return clock->sites();
  }

private:
  /// Copies the window, so that a step can be left in its midst.
  Result<void> keepWindow();

  const Artifact &artifact;
  const Program &program;
  int32_t threads;
  Buffer arena, cache;
  int64_t capacity;
  std::vector<int64_t> pages;       ///< eq_step.page
  Buffer windowBefore;              ///< the step that may be left
  int64_t seen = 0;                 ///< tokens that the cache has seen: eq_sequence.held
  std::vector<int32_t> logitRows;   ///< of a step
  std::optional<KernelClock> clock; ///< where the session measures
};

} // namespace

Result<void> CpuExecutor::keepWindow() {
  const int64_t bytes = artifact.manifest().program.cache.windowBytes;
  if (windowBefore.size() < bytes) {
    Result<Buffer> copy = allocateMemory("copy of the KV cache's window", bytes);
    if (!copy)
      return Unexpected(copy.error());
    windowBefore = std::move(*copy);
  }
  std::memcpy(windowBefore.data(), cache.data(), static_cast<size_t>(bytes));
  return {};
}

Result<void> CpuExecutor::step(std::span<const int32_t> tokens, int64_t position,
                               int64_t firstLogit, float *logits, const Watch &watch) {
  // A session may be used from another thread than the one that created it.
  if (auto ready = program.prepare(threads); !ready)
    return ready;
  const auto rows = static_cast<int32_t>(tokens.size());
  const auto logitCount = static_cast<int32_t>(rows - firstLogit);
  std::iota(logitRows.begin(), logitRows.begin() + logitCount, static_cast<int32_t>(firstLogit));
  eq_sequence sequence = {};
  sequence.rows = rows;
  sequence.position = static_cast<int32_t>(position);
  sequence.held = static_cast<int32_t>(seen);
  sequence.capacity = static_cast<int32_t>(capacity);

  // A step that is left has filled the windows of some layers, and not those of others, which no
  // count of tokens could tell: they become what they were. A step of one token is not left, for
  // that would cost each a copy.
  const int64_t windowBytes = artifact.manifest().program.cache.windowBytes;
  const bool canLeave = watch.progress.function && (windowBytes == 0 || rows > 1);
  if (canLeave && windowBytes > 0)
    if (auto kept = keepWindow(); !kept)
      return kept;

  WatchedMarks watched{watch, clock ? clock->begin() : Marks()};
  const Marks marks = canLeave ? Marks{WatchedMarks::mark, &watched} : watched.inner;
  eq_services services = {};
  services.context = marks.context;
  services.mark = marks.function;
  services.stop = &watched.stop;

  eq_step step = {};
  step.abi = EQ_PROGRAM_ABI;
  step.bytes = sizeof(step);
  step.rows = rows;
  step.sequences = 1;
  step.logit_rows = logitCount;
  step.threads = threads;
  step.tokens = tokens.data();
  step.sequence = &sequence;
  step.logit_row = logitRows.data();
  step.page = pages.data();
  step.weights = reinterpret_cast<const uint8_t *>(artifact.weights().data());
  step.arena = arena.data<uint8_t>();
  step.cache = cache.data<uint8_t>();
  step.logits = logits;
  step.services = &services;
  const int32_t status = program.run(step);
  if (clock)
    clock->end();
  if (watched.stop != 0) {
    if (windowBytes > 0)
      std::memcpy(cache.data(), windowBefore.data(), static_cast<size_t>(windowBytes));
    return watch.interrupted();
  }
  if (status != 0)
    return makeError(static_cast<ErrorCode>(status),
                     "{}: refuses a step of ABI {}; compile the artifact again",
                     artifact.programPath(), EQ_PROGRAM_ABI);
  seen = position + rows;
  return {};
}

static Result<Buffer> allocate(std::string_view what, int64_t count, int64_t size, int64_t base) {
  return sizeOf(what, count, size, base).and_then([&](int64_t bytes) {
    return allocateMemory(what, bytes);
  });
}

Result<std::unique_ptr<Executor>>
easyquant::runtime::createCpuExecutor(const Artifact &artifact, const Program &program,
                                      int64_t context, int32_t threads, bool measure) {
  if (auto ready = program.prepare(threads); !ready)
    return Unexpected(ready.error());
  const Manifest::Program &sizes = artifact.manifest().program;
  Result<Buffer> arena =
      allocate("activations", threads, sizes.arenaBytesPerThread, sizes.arenaBytes);
  if (!arena)
    return Unexpected(arena.error());
  Result<Buffer> cache = cacheBytes(sizes.cache, context).and_then([&](int64_t bytes) {
    return allocateMemory(nameOfCache(context), bytes);
  });
  if (!cache)
    return Unexpected(cache.error());
  return std::make_unique<CpuExecutor>(artifact, program, threads, std::move(*arena),
                                       std::move(*cache), context, measure);
}
