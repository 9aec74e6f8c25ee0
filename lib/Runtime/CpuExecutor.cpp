//===- CpuExecutor.cpp - Steps of model.so --------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Executor.h"
#include "KernelClock.h"

#include <csetjmp>
#include <optional>

using namespace easyquant;
using namespace easyquant::runtime;

namespace {

/// The marks of a step that may be left before any of its kernels. Between two kernels a program
/// holds nothing but its stack (the program ABI), so that a jump out of it loses nothing.
struct WatchedMarks {
  const Watch &watch;
  Marks inner;
  std::jmp_buf exit;

  static void mark(void *context, int64_t phase, const char *site) {
    auto *self = static_cast<WatchedMarks *>(context);
    if (self->watch.stops())
      std::longjmp(self->exit, 1);
    if (self->inner.function)
      self->inner.function(self->inner.context, phase, site);
  }
};

class CpuExecutor final : public Executor {
public:
  CpuExecutor(const Artifact &artifact, const Program &program, int32_t threads, Buffer arena,
              Buffer cache, bool measure)
      : artifact(artifact), program(program), threads(threads), arena(std::move(arena)),
        cache(std::move(cache)) {
    if (measure)
      clock.emplace();
  }

  int64_t rowsPerStep(bool) const override { return artifact.manifest().program.maxRows; }
  int64_t bytes() const override { return arena.size() + cache.size(); }
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
  const Artifact &artifact;
  const Program &program;
  int32_t threads;
  Buffer arena, cache;
  std::optional<KernelClock> clock; ///< where the session measures
};

} // namespace

Result<void> CpuExecutor::step(std::span<const int32_t> tokens, int64_t position,
                               int64_t firstLogit, float *logits, const Watch &watch) {
  // A session may be used from another thread than the one that created it.
  if (auto ready = program.prepare(threads); !ready)
    return ready;
  // The ABI's descriptors are not const; programs only read weights and tokens.
  std::span<const std::byte> bytes = artifact.weights();
  auto *weights = reinterpret_cast<int8_t *>(const_cast<std::byte *>(bytes.data()));
  auto *ids = const_cast<int32_t *>(tokens.data());
  auto rows = static_cast<int64_t>(tokens.size());

  WatchedMarks watched{watch, clock ? clock->begin() : Marks(), {}};
  Marks marks = watch.progress.function ? Marks{WatchedMarks::mark, &watched} : watched.inner;
  const bool isLeft = setjmp(watched.exit) != 0;
  if (!isLeft)
    program.run(memRef1D(weights, static_cast<int64_t>(bytes.size())),
                memRef1D(arena.data<int8_t>(), arena.size()),
                memRef1D(cache.data<int8_t>(), cache.size()), memRef1D(ids, rows), position,
                firstLogit, threads, marks,
                memRef2D(logits, rows - firstLogit, artifact.manifest().model.vocabSize));
  if (clock)
    clock->end();
  if (isLeft)
    return watch.interrupted();
  return {};
}

static Result<Buffer> allocate(std::string_view what, int64_t count, int64_t size, int64_t base) {
  return sizeOf(what, count, size, base).and_then([&](int64_t bytes) {
    return allocateMemory(what, bytes);
  });
}

Result<std::unique_ptr<Executor>>
easyquant::runtime::createCpuExecutor(const Artifact &artifact, const Program &program,
                                      int64_t capacity, int32_t threads, bool measure) {
  if (auto ready = program.prepare(threads); !ready)
    return Unexpected(ready.error());
  const Manifest::Program &sizes = artifact.manifest().program;
  Result<Buffer> arena =
      allocate("activations", threads, sizes.arenaBytesPerThread, sizes.arenaBytes);
  if (!arena)
    return Unexpected(arena.error());
  std::string what = fmt::format("KV cache of {} tokens", capacity);
  Result<Buffer> cache = allocate(what, capacity, sizes.cacheBytesPerToken, sizes.cacheBytes);
  if (!cache)
    return Unexpected(cache.error());
  return std::make_unique<CpuExecutor>(artifact, program, threads, std::move(*arena),
                                       std::move(*cache), measure);
}
