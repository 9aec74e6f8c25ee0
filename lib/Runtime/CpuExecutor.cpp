//===- CpuExecutor.cpp - Steps on CPUs ------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Executor.h"
#include "KernelClock.h"
#include "SequenceState.h"
#include "StepCollectives.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

using namespace easyquant;
using namespace easyquant::runtime;

namespace {

/// A profiler hook that asks, before each kernel, whether to stop the step.
struct WatchedHook {
  const Watch &watch;
  ProfilerHook inner;
  int32_t stop = 0;

  static void mark(void *context, int64_t phase, const char *site) {
    auto *self = static_cast<WatchedHook *>(context);
    // Once stopped, a program may come to a kernel or two before its threads meet.
    if (self->stop == 0 && self->watch.stops())
      self->stop = 1;
    if (self->inner.function)
      self->inner.function(self->inner.context, phase, site);
  }
};

/// The context of services on one of several ranks.
struct RankContext {
  ProfilerHook hook;
  StepCollectives *collectives;

  static RankContext &of(void *context) { return *static_cast<RankContext *>(context); }
  static void mark(void *context, int64_t phase, const char *site) {
    of(context).hook.function(of(context).hook.context, phase, site);
  }
  static void start(void *context, int64_t collective, void *data, int64_t count) {
    of(context).collectives->start(collective, data, count);
  }
  static void wait(void *context, int64_t collective) { of(context).collectives->wait(collective); }
};

class CpuExecutor final : public Executor {
public:
  CpuExecutor(const Artifact &artifact, const Program &program, int32_t threads, Buffer arena,
              Buffer cache, Buffer state, Buffer recurrents, Buffer states, bool measure,
              comm::Communicator *communicator)
      : artifact(artifact), program(program), sizes(artifact.manifest().program.cache.sizes),
        threads(threads), arena(std::move(arena)), cache(std::move(cache)), state(std::move(state)),
        states(std::move(states)), recurrents(std::move(recurrents)) {
    if (measure)
      clock.emplace();
    if (communicator)
      collectives.emplace(*communicator, *artifact.manifest().program.tensorParallel);
  }

  Result<void> inThreads(int32_t count, ThreadWork work) override {
    return program.inThreads(count, work.function, work.context);
  }
  int64_t rowsPerStep(bool) const override { return artifact.manifest().program.maxRows; }
  int64_t bytes() const override {
    return arena.size() + cache.size() + state.size() + recurrents.size() + states.size() +
           windowsBefore.size() + kept.size() + draftLogits.size();
  }
  Result<void> step(std::span<const SequenceStep> steps, std::span<const int32_t> logitRows,
                    float *logits, const Watch &watch) override;
  Result<void> keepHidden(std::span<const int32_t> places) override;
  Result<void> draft(std::span<const SequenceStep> steps, std::span<const int32_t> places,
                     std::span<const int32_t> logitRows, std::span<int32_t> likeliest) override;
  Result<void> copyInCache(int64_t from, int64_t to, int64_t bytes) override {
    std::memcpy(cache.data() + to, cache.data() + from, static_cast<size_t>(bytes));
    return {};
  }
  Result<void> readCache(int64_t from, std::span<std::byte> to) override {
    std::copy_n(cache.data() + from, to.size(), to.begin());
    return {};
  }
  Result<void> writeCache(int64_t to, std::span<const std::byte> from) override {
    std::copy(from.begin(), from.end(), cache.data() + to);
    return {};
  }
  Result<void> readState(int64_t slot, std::span<double> to) override {
    std::copy_n(state.data<double>() + slot * std::ssize(to), to.size(), to.begin());
    return {};
  }
  Result<void> writeState(int64_t slot, std::span<const double> from) override {
    std::copy(from.begin(), from.end(), state.data<double>() + slot * std::ssize(from));
    return {};
  }
  Result<void> readRecurrent(int64_t slot, std::span<float> to) override {
    std::ranges::copy(recurrent(slot), to.begin());
    return {};
  }
  Result<void> writeRecurrent(int64_t slot, std::span<const float> from) override {
    std::ranges::copy(from, recurrent(slot).begin());
    return {};
  }
  Result<void> copyRecurrent(int64_t from, int64_t to) override {
    std::ranges::copy(recurrent(from), recurrent(to).begin());
    return {};
  }
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
  /// A slot of what layers keep; empty where there are no such layers.
  std::span<float> recurrent(int64_t slot) {
    const int64_t values = artifact.manifest().program.recurrentValues.value_or(0);
    return {recurrents.data<float>() + slot * values, static_cast<size_t>(values)};
  }
  /// Fills tokens, sequences and their pages.
  void describe(std::span<const SequenceStep> steps);
  /// What a program is called with, but for services and what one of its entries alone reads.
  eq_step stepOf(std::span<const int32_t> logitRows, float *logits);
  Result<void> check(int32_t status) const;
  /// Copies the windows of the step's sequences, so that it can be left in its midst.
  Result<void> keepWindows(std::span<const SequenceStep> steps);
  /// Copies them there, or back.
  void copyWindows(std::span<const SequenceStep> steps, bool back);

  const Artifact &artifact;
  const Program &program;
  const formats::CacheSizes &sizes;
  int32_t threads;
  Buffer arena, cache, state;
  Buffer states;               ///< behind the rows of a step, where there is a head that drafts
  Buffer kept;                 ///< what is kept of them, by place
  std::vector<float> before;   ///< eq_step.hidden
  Buffer draftLogits;          ///< of the head
  Buffer recurrents;           ///< slots of what layers with a recurrent state keep
  std::vector<int32_t> tokens; ///< eq_step.tokens
  std::vector<eq_sequence> sequences;
  std::vector<int64_t> pages, slidingPages;   ///< eq_step.page and sliding_page
  Buffer windowsBefore;                       ///< the step that may be left
  std::optional<KernelClock> clock;           ///< where the batch measures
  std::optional<StepCollectives> collectives; ///< where several ranks share the model
};

} // namespace

void CpuExecutor::describe(std::span<const SequenceStep> steps) {
  tokens.clear();
  sequences.clear();
  pages.clear();
  slidingPages.clear();
  for (const SequenceStep &step : steps) {
    eq_sequence sequence = {};
    sequence.first_row = static_cast<int32_t>(tokens.size());
    sequence.rows = static_cast<int32_t>(step.tokens.size());
    sequence.position = static_cast<int32_t>(step.position);
    sequence.held = static_cast<int32_t>(std::max(step.held, step.position));
    sequence.capacity = static_cast<int32_t>(std::min<int64_t>(
        std::ssize(step.pages) * sizes.pageTokens, std::numeric_limits<int32_t>::max()));
    sequence.first_page = static_cast<int32_t>(pages.size());
    sequence.window = static_cast<int32_t>(step.window);
    if (state.size() > 0 || recurrents.size() > 0) {
      sequence.slot = static_cast<int32_t>(step.slot);
      sequence.next_slot = static_cast<int32_t>(step.nextSlot);
    }
    sequences.push_back(sequence);
    tokens.insert(tokens.end(), step.tokens.begin(), step.tokens.end());
    pages.insert(pages.end(), step.pages.begin(), step.pages.end());
    slidingPages.insert(slidingPages.end(), step.slidingPages.begin(), step.slidingPages.end());
  }
}

Result<void> CpuExecutor::keepWindows(std::span<const SequenceStep> steps) {
  const int64_t bytes = std::ssize(steps) * sizes.windowBytes; // not more than the cache's
  if (windowsBefore.size() < bytes) {
    Result<Buffer> copy = allocateMemory("copy of the KV cache's windows", bytes);
    if (!copy)
      return Unexpected(copy.error());
    windowsBefore = std::move(*copy);
  }
  copyWindows(steps, /*back=*/false);
  return {};
}

void CpuExecutor::copyWindows(std::span<const SequenceStep> steps, bool back) {
  std::byte *kept = windowsBefore.data();
  for (const SequenceStep &step : steps) {
    std::byte *window = cache.data() + step.window * sizes.windowBytes;
    std::memcpy(back ? window : kept, back ? kept : window, static_cast<size_t>(sizes.windowBytes));
    kept += sizes.windowBytes;
  }
}

Result<void> CpuExecutor::step(std::span<const SequenceStep> steps,
                               std::span<const int32_t> logitRows, float *logits,
                               const Watch &watch) {
  // A batch may be used from another thread than the one that created it.
  if (auto ready = program.prepare(threads); !ready)
    return ready;
  describe(steps);

  // A step that is left has filled the windows of some layers, and not those of others, which no
  // count of tokens could tell: they become what they were. A step of one token a sequence is not
  // left, for that would cost each a copy.
  const bool hasWindows = sizes.windowBytes > 0;
  // Ranks leave together or not at all, so that theirs are left between steps.
  const bool canLeave =
      watch.progress.function && !collectives && (!hasWindows || tokens.size() > steps.size());
  if (canLeave && hasWindows)
    if (auto kept = keepWindows(steps); !kept)
      return kept;

  WatchedHook watched{watch, clock ? clock->begin() : ProfilerHook()};
  const ProfilerHook hook = canLeave ? ProfilerHook{WatchedHook::mark, &watched} : watched.inner;
  eq_services services = {};
  services.context = hook.context;
  services.mark = hook.function;
  services.stop = &watched.stop;
  RankContext context{hook, collectives ? &*collectives : nullptr};
  if (collectives) {
    collectives->begin(&watched.stop);
    services.context = &context;
    services.mark = hook.function ? RankContext::mark : nullptr;
    services.start = RankContext::start;
    services.wait = RankContext::wait;
  }

  eq_step step = stepOf(logitRows, logits);
  step.rank = collectives ? collectives->rank() : 0;
  step.state = state.size() > 0 ? state.data<uint8_t>() : nullptr;
  step.recurrent = recurrents.size() > 0 ? recurrents.data<float>() : nullptr;
  step.services = &services;
  const int32_t status = program.run(step);
  if (clock)
    clock->end();
  if (collectives && collectives->failure())
    return Unexpected(*collectives->failure());
  if (watched.stop != 0) {
    if (hasWindows)
      copyWindows(steps, /*back=*/true);
    return watch.interrupted();
  }
  return check(status);
}

/// Makes it larger where it is smaller, with what it has.
static Result<void> grow(Buffer &buffer, std::string_view what, int64_t bytes) {
  if (bytes <= buffer.size())
    return {};
  Result<Buffer> larger = allocateMemory(what, std::max(bytes, 2 * buffer.size()));
  if (!larger)
    larger = allocateMemory(what, bytes);
  if (!larger)
    return Unexpected(larger.error());
  std::copy_n(buffer.data(), buffer.size(), larger->data());
  buffer = std::move(*larger);
  return {};
}

Result<void> CpuExecutor::keepHidden(std::span<const int32_t> places) {
  const int64_t width = artifact.manifest().model.hiddenSize;
  const int64_t rows = 1 + std::ranges::max(places);
  if (auto grown = grow(kept, "hidden states", rows * width * int64_t(sizeof(float))); !grown)
    return grown;
  return forEachRun(places, [&](int64_t first, int64_t count) -> Result<void> {
    std::copy_n(states.data<float>() + first * width, count * width,
                kept.data<float>() + places[static_cast<size_t>(first)] * width);
    return {};
  });
}

Result<void> CpuExecutor::draft(std::span<const SequenceStep> steps,
                                std::span<const int32_t> places, std::span<const int32_t> logitRows,
                                std::span<int32_t> likeliest) {
  if (auto ready = program.prepare(threads); !ready)
    return ready;
  const int64_t width = artifact.manifest().model.hiddenSize,
                vocabulary = artifact.manifest().model.vocabSize;
  if (auto grown =
          grow(draftLogits, "logits", std::ssize(logitRows) * vocabulary * int64_t(sizeof(float)));
      !grown)
    return grown;
  before.clear();
  for (int32_t place : places)
    before.insert(before.end(), kept.data<float>() + place * width,
                  kept.data<float>() + (place + 1) * width);
  describe(steps);
  eq_step step = stepOf(logitRows, draftLogits.data<float>());
  step.hidden = before.data();
  if (auto done = check(program.draft(step)); !done)
    return done;
  const float *logits = draftLogits.data<float>();
  for (int32_t &token : likeliest) {
    token = static_cast<int32_t>(std::max_element(logits, logits + vocabulary) - logits);
    logits += vocabulary;
  }
  return {};
}

eq_step CpuExecutor::stepOf(std::span<const int32_t> logitRows, float *logits) {
  eq_step step = {};
  step.abi = EQ_PROGRAM_ABI;
  step.bytes = sizeof(step);
  step.rows = static_cast<int32_t>(tokens.size());
  step.sequences = static_cast<int32_t>(sequences.size());
  step.logit_rows = static_cast<int32_t>(logitRows.size());
  step.threads = threads;
  step.tokens = tokens.data();
  step.sequence = sequences.data();
  step.logit_row = logitRows.data();
  step.page = pages.data();
  step.sliding_page = sizes.sliding ? slidingPages.data() : nullptr;
  step.weights = reinterpret_cast<const uint8_t *>(artifact.weights().data());
  step.arena = arena.data<uint8_t>();
  step.cache = cache.data<uint8_t>();
  step.logits = logits;
  step.next_hidden = states.size() > 0 ? states.data<float>() : nullptr;
  return step;
}

Result<void> CpuExecutor::check(int32_t status) const {
  if (status != 0)
    return makeError(static_cast<ErrorCode>(status),
                     "{}: refuses a step of ABI {}; compile the artifact again", program.path(),
                     EQ_PROGRAM_ABI);
  return {};
}

static Result<Buffer> allocate(std::string_view what, int64_t count, int64_t size, int64_t base) {
  return sizeOf(what, count, size, base).and_then([&](int64_t bytes) {
    return allocateMemory(what, bytes);
  });
}

Result<std::unique_ptr<Executor>>
easyquant::runtime::createCpuExecutor(const Artifact &artifact, const Program &program,
                                      const PoolSize &pool, int32_t threads, bool measure,
                                      comm::Communicator *communicator) {
  if (auto ready = program.prepare(threads); !ready)
    return Unexpected(ready.error());
  const Manifest::Program &sizes = artifact.manifest().program;
  Result<Buffer> arena =
      allocate("activations", threads, sizes.arenaBytesPerThread, sizes.arenaBytes);
  if (!arena)
    return Unexpected(arena.error());
  Result<Buffer> cache = cacheBytes(sizes.cache.sizes, pool).and_then([&](int64_t bytes) {
    return allocateMemory(nameOfCache(sizes.cache.sizes, pool), bytes);
  });
  if (!cache)
    return Unexpected(cache.error());
  Result<Buffer> state = Buffer();
  if (const auto &online = artifact.manifest().online) {
    const int64_t fields = stateFields(*online);
    state = allocate("state of sequences", pool.slots, fields * int64_t(sizeof(double)), 0);
    if (!state)
      return Unexpected(state.error());
  }
  Result<Buffer> recurrents = Buffer();
  if (sizes.recurrentValues) {
    recurrents = allocate("recurrent state of sequences", pool.slots,
                          *sizes.recurrentValues * int64_t(sizeof(float)), 0);
    if (!recurrents)
      return Unexpected(recurrents.error());
  }
  Result<Buffer> states = Buffer();
  if (!sizes.draftEntries.empty()) {
    states = allocate("hidden states of a step", sizes.maxRows,
                      artifact.manifest().model.hiddenSize * int64_t(sizeof(float)), 0);
    if (!states)
      return Unexpected(states.error());
  }
  return std::make_unique<CpuExecutor>(artifact, program, threads, std::move(*arena),
                                       std::move(*cache), std::move(*state), std::move(*recurrents),
                                       std::move(*states), measure, communicator);
}
