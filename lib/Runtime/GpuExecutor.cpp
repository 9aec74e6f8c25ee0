//===- GpuExecutor.cpp - Steps of a list of launches ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Executor.h"

#include <algorithm>
#include <cstring>

using namespace easyquant;
using namespace easyquant::runtime;

/// Logits that are on the device at a time where those of all tokens are wanted.
static constexpr int64_t kMostLogitBytes = int64_t(64) << 20;

namespace {

/// What a step is told, in one piece of device memory: `position`, `held`, where the window begins,
/// and the tokens.
constexpr int64_t kPositionOffset = 0, kHeldOffset = 4, kWindowOffset = 8, kTokensOffset = 16;

class GpuExecutor final : public Executor {
public:
  GpuExecutor(const GpuModel &model, const PoolSize &pool, int64_t vocabulary)
      : model(model), program(model.program), pool(pool), vocabulary(vocabulary) {}
  Result<void> allocate(bool measure);

  int64_t rowsPerStep(bool allLogits) const override {
    int64_t most = std::max<int64_t>(1, kMostLogitBytes / (vocabulary * 4));
    return allLogits ? std::min(program.maxRows, most) : program.maxRows;
  }
  int64_t bytes() const override {
    return arena.size() + cache.size() + pages.size() + state.size() + input.size() +
           logitsMemory.size();
  }
  Result<void> step(std::span<const SequenceStep> sequences, std::span<const int32_t> logitRows,
                    float *logits, const Watch &watch) override;
  Result<void> copyInCache(int64_t from, int64_t to, int64_t bytes) override;
  Result<PhaseCosts> costs() override;
  Result<std::vector<SiteCost>> siteCosts() override;

private:
  Result<void> makeRoomForLogits(int64_t rows);
  Result<void> launchAll(const std::vector<Launch> &launches, int64_t rows, int64_t firstLogit,
                         const Watch &watch);
  uint64_t valueOf(const LaunchArgument &argument, int64_t rows, int64_t firstLogit) const;

  const GpuModel &model;
  const LaunchList &program;
  const PoolSize pool;
  const int64_t vocabulary;
  DeviceMemory arena, cache, pages, state, input, logitsMemory;
  std::vector<std::byte> staging; ///< outlives the queue, which may still copy from it
  std::unique_ptr<Queue> queue;
  std::unique_ptr<Recording> decodeStep;
  bool measuring = false;
};

} // namespace

Result<void> GpuExecutor::allocate(bool measure) {
  const std::string what = nameOfCache(program.cache, pool);
  Result<int64_t> bytesOfCache = cacheBytes(program.cache, pool);
  if (!bytesOfCache)
    return Unexpected(bytesOfCache.error());
  Result<int64_t> free = model.device->freeBytes();
  if (!free)
    return Unexpected(free.error());
  if (*bytesOfCache > *free || program.arenaBytes > *free - *bytesOfCache)
    return makeError(
        ErrorCode::OutOfRange,
        "{}: with activations {} bytes on the device ({} of activations, {} of keys and values), "
        "but {} has {} free; ask for a shorter context or fewer sequences",
        what, program.arenaBytes + *bytesOfCache, program.arenaBytes, *bytesOfCache,
        model.device->description(), *free);
  const int64_t tableBytes = pool.pages * static_cast<int64_t>(sizeof(int64_t));
  for (auto [memory, bytes, name] :
       {std::tuple(&arena, program.arenaBytes, std::string_view("activations")),
        std::tuple(&cache, *bytesOfCache, std::string_view(what)),
        std::tuple(&pages, tableBytes, std::string_view("pages")),
        std::tuple(&state, program.stateBytes, std::string_view("state")),
        std::tuple(&input, kTokensOffset + program.maxRows * 4, std::string_view("tokens"))}) {
    Result<DeviceMemory> allocated = DeviceMemory::allocate(model.device, bytes, name);
    if (!allocated)
      return Unexpected(allocated.error());
    *memory = std::move(*allocated);
  }
  Result<std::unique_ptr<Queue>> created = model.device->createQueue();
  if (!created)
    return Unexpected(created.error());
  queue = std::move(*created);
  measuring = measure;
  if (measure)
    if (auto done = queue->startMeasuring(); !done)
      return done;
  for (DeviceMemory *memory : {&cache, &state})
    if (memory->size() > 0)
      if (auto done = queue->fill(memory->address(), 0, memory->size()); !done)
        return done;
  return makeRoomForLogits(1);
}

Result<void> GpuExecutor::makeRoomForLogits(int64_t rows) {
  int64_t bytes = rows * vocabulary * int64_t(sizeof(float));
  if (bytes <= logitsMemory.size())
    return {};
  decodeStep.reset(); // it writes to the old place
  logitsMemory = DeviceMemory();
  Result<DeviceMemory> allocated = DeviceMemory::allocate(model.device, bytes, "logits");
  if (!allocated)
    return Unexpected(allocated.error());
  logitsMemory = std::move(*allocated);
  return {};
}

uint64_t GpuExecutor::valueOf(const LaunchArgument &argument, int64_t rows,
                              int64_t firstLogit) const {
  using Kind = LaunchArgument::Kind;
  auto offset = static_cast<uint64_t>(argument.offset);
  auto step = static_cast<uint64_t>(argument.step);
  switch (argument.kind) {
  case Kind::Weights:
    return model.weights.address() + offset;
  case Kind::Arena:
    return arena.address() + offset + step * static_cast<uint64_t>(firstLogit);
  case Kind::Cache:
    return cache.address() + offset;
  case Kind::Pages:
    return pages.address();
  case Kind::Window:
    return input.address() + kWindowOffset;
  case Kind::State:
    return state.address() + offset;
  case Kind::Constants:
    return model.constants.address() + offset;
  case Kind::Tokens:
    return input.address() + kTokensOffset;
  case Kind::Position:
    return input.address() + kPositionOffset;
  case Kind::Held:
    return input.address() + kHeldOffset;
  case Kind::Logits:
    return logitsMemory.address();
  case Kind::Rows:
    return static_cast<uint64_t>(rows);
  case Kind::Integer:
    return static_cast<uint32_t>(argument.integer);
  }
  __builtin_unreachable();
}

Result<void> GpuExecutor::launchAll(const std::vector<Launch> &launches, int64_t rows,
                                    int64_t firstLogit, const Watch &watch) {
  std::vector<uint64_t> arguments;
  for (const Launch &launch : launches) {
    int64_t own = launch.lastRows ? rows - firstLogit : rows;
    if (!launch.happensFor(own))
      continue;
    // Of a cache of codes a step is not left in its midst: it has changed the windows of some
    // layers.
    if (program.cache.windowBytes == 0 && watch.stops())
      return watch.interrupted();
    arguments.clear();
    for (const LaunchArgument &argument : launch.arguments)
      arguments.push_back(valueOf(argument, own, firstLogit));
    DeviceLaunch ready{launch.kernel, program.kernels[launch.kernel].gridFor(own), arguments,
                       launch.site, launch.phase};
    if (auto done = queue->launch(ready); !done)
      return done;
  }
  return {};
}

Result<void> GpuExecutor::copyInCache(int64_t from, int64_t to, int64_t bytes) {
  std::vector<std::byte> copy(static_cast<size_t>(bytes));
  if (auto done =
          queue->download(copy.data(), cache.address() + static_cast<uint64_t>(from), bytes);
      !done)
    return done;
  staging = std::move(copy);
  return queue->upload(cache.address() + static_cast<uint64_t>(to), staging.data(), bytes);
}

Result<void> GpuExecutor::step(std::span<const SequenceStep> sequences,
                               std::span<const int32_t> logitRows, float *logits,
                               const Watch &watch) {
  if (sequences.size() != 1)
    return makeError(ErrorCode::Unsupported, "step: found {} sequences, expected one on {}",
                     sequences.size(), model.device->description());
  const auto [tokens, position, held, places, window] = sequences.front();
  const int64_t firstLogit = logitRows.front();
  auto rows = static_cast<int64_t>(tokens.size());
  if (auto done = makeRoomForLogits(std::ssize(logitRows)); !done)
    return done;

  const size_t inputBytes = kTokensOffset + tokens.size_bytes();
  staging.assign(inputBytes + places.size_bytes(), std::byte(0));
  auto put = [&](int64_t offset, int64_t value) {
    auto narrow = static_cast<int32_t>(value);
    std::memcpy(staging.data() + offset, &narrow, sizeof(narrow));
  };
  put(kPositionOffset, position);
  put(kHeldOffset, std::max(held, position));
  const int64_t windowPlace = window * program.cache.windowBytes;
  std::memcpy(staging.data() + kWindowOffset, &windowPlace, sizeof(windowPlace));
  std::memcpy(staging.data() + kTokensOffset, tokens.data(), tokens.size_bytes());
  std::memcpy(staging.data() + inputBytes, places.data(), places.size_bytes());
  if (auto done = queue->upload(input.address(), staging.data(), static_cast<int64_t>(inputBytes));
      !done)
    return done;
  if (auto done = queue->upload(pages.address(), staging.data() + inputBytes,
                                static_cast<int64_t>(places.size_bytes()));
      !done)
    return done;

  if (position < held)
    if (auto done = launchAll(program.restore, rows, firstLogit, watch); !done)
      return done;
  if (rows == 1 && queue->canRecord()) {
    if (!decodeStep) {
      if (auto done = queue->beginRecording(); !done)
        return done;
      Result<void> launched = launchAll(program.launches, rows, firstLogit, watch);
      Result<std::unique_ptr<Recording>> recorded = queue->endRecording();
      if (!launched)
        return launched;
      if (!recorded)
        return Unexpected(recorded.error());
      decodeStep = std::move(*recorded);
    }
    if (auto done = queue->replay(*decodeStep); !done)
      return done;
  } else if (auto done = launchAll(program.launches, rows, firstLogit, watch); !done) {
    return done;
  }
  return queue->download(logits, logitsMemory.address(),
                         std::ssize(logitRows) * vocabulary * int64_t(sizeof(float)));
}

Result<PhaseCosts> GpuExecutor::costs() {
  if (!measuring)
    return notMeasured();
  Result<PhaseCosts> costs = queue->costs();
  if (!costs)
    return costs;
  PhaseCost &load = (*costs)[static_cast<size_t>(Phase::Load)];
  load.launches += model.loading.launches;
  load.bytes += model.loading.bytes;
  load.seconds += model.loading.seconds;
  return costs;
}

Result<std::vector<SiteCost>> GpuExecutor::siteCosts() {
  if (!measuring)
    return notMeasured();
  return makeError(ErrorCode::Unsupported,
                   "costs of sites: found a session on {}, expected one on cpu; on cuda NVIDIA's "
                   "profilers show the sites of launches",
                   model.device->description());
}

Result<std::unique_ptr<Executor>> easyquant::runtime::createGpuExecutor(const GpuModel &model,
                                                                        const PoolSize &pool,
                                                                        int64_t vocabulary,
                                                                        bool measure) {
  auto executor = std::make_unique<GpuExecutor>(model, pool, vocabulary);
  if (auto done = executor->allocate(measure); !done)
    return Unexpected(done.error());
  return executor;
}
