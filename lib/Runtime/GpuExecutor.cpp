//===- GpuExecutor.cpp - Steps of a list of launches ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GpuExecutor.h"

#include "HiddenPlaces.h"
#include "StepCollectives.h"

#include <cmath>

using namespace easyquant;
using namespace easyquant::runtime;

static bool hasGoneBack(const SequenceStep &sequence) { return sequence.held > sequence.position; }

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Result<void> GpuExecutor::checkMemory(int64_t cacheBytes, int64_t stateBytes) const {
  Result<int64_t> free = model.device->freeBytes();
  if (!free)
    return Unexpected(free.error());
  // Logits as of the fullest batch, for which room is made when they come.
  const int64_t logits = keepsLogits() ? DeviceLogits::mostBytes(vocabulary, pool.sequences) : 0;
  const int64_t states = program.drafting ? hidden.mostBytes(2 * kKeptHidden * pool.sequences) : 0;
  const int64_t needed =
      program.arenaBytes + partialPlaces() * program.partialBytes + logits + states;
  if (cacheBytes <= *free && stateBytes <= *free - cacheBytes &&
      needed <= *free - cacheBytes - stateBytes)
    return {};
  return makeError(ErrorCode::OutOfRange,
                   "{} sequences with {} tokens in all need {} bytes on the device ({} of "
                   "activations and logits, {} of keys and values, {} of states), but {} has {} "
                   "free; ask for a shorter context or fewer sequences",
                   pool.sequences, pool.pages * program.cache.pageTokens,
                   needed + cacheBytes + stateBytes, needed, cacheBytes, stateBytes,
                   model.device->description(), *free);
}

int64_t GpuExecutor::partialPlaces() const {
  int64_t places = 0;
  for (const formats::PieceCut &cut : program.pieces)
    if (cut.tokens > 0)
      places = std::max(places, usualPieces(cut, program.cache, pool));
  return places;
}

Result<void> GpuExecutor::makeRoomForPartials(int64_t places) {
  if (places * program.partialBytes <= partials.size())
    return {};
  recordings.clear(); // they write to the old place
  const int64_t known = partials.size() > 0 ? partials.size() / program.partialBytes : 0;
  // More than it takes, if that fits: the next step may be longer.
  if (2 * known > places && allocatePartials(2 * known))
    return {};
  return allocatePartials(places);
}

Result<void> GpuExecutor::allocatePartials(int64_t places) {
  partials = DeviceMemory(); // which is made last: where it is, counters are, too
  const int64_t bytes = places * program.partialCounters * int64_t(sizeof(int32_t));
  if (auto done = partialCounters.allocate(model.device, bytes, "counters of parts of attention");
      !done)
    return done;
  if (auto done = queue->fill(partialCounters.address(), 0, bytes); !done)
    return done;
  return partials.allocate(model.device, places * program.partialBytes,
                           "partial sums of attention");
}

Result<void> GpuExecutor::allocate(bool measure) {
  Result<std::unique_ptr<Queue>> created = model.device->createQueue();
  if (!created)
    return Unexpected(created.error());
  queue = std::move(*created);
  if (program.drafting)
    hidden.open(model.device, *queue, program, hiddenSize);
  Result<int64_t> bytesOfCache = cacheBytes(program.cache, pool);
  if (!bytesOfCache)
    return Unexpected(bytesOfCache.error());
  // Behind all others nobody has a page, a window and two slots.
  GpuStepInput::Nobody nobody = {.page = *bytesOfCache, .slot = pool.slots, .nextSlot = pool.slots};
  const bool records = !measure && queue->canRecord();
  if (records) {
    const int64_t windowBytes = program.cache.windowBytes;
    int64_t end = nobody.page + program.cache.pageBytes;
    if (windowBytes > 0) {
      nobody.window = (end + windowBytes - 1) / windowBytes;
      end = (nobody.window + 1) * windowBytes;
    }
    nobody.nextSlot = nobody.slot + 1;
    *bytesOfCache = end;
  }
  const bool keepsState = slotBytes > 0 || recurrentBytes > 0;
  const int64_t slots = pool.slots + (keepsState && records ? 2 : 0);
  Result<int64_t> bytesOfStates = sizeOf("state of sequences", slots, slotBytes, 0);
  Result<int64_t> bytesOfRecurrents =
      sizeOf("recurrent state of sequences", slots, recurrentBytes, 0);
  if (!bytesOfStates || !bytesOfRecurrents)
    return Unexpected((bytesOfStates ? bytesOfRecurrents : bytesOfStates).error());
  if (auto fits = checkMemory(*bytesOfCache, *bytesOfStates + *bytesOfRecurrents); !fits)
    return fits;
  const std::string nameOfIt = nameOfCache(program.cache, pool);
  for (auto [memory, bytes, what] :
       {std::tuple(&arena, program.arenaBytes, std::string_view("activations")),
        std::tuple(&cache, *bytesOfCache, std::string_view(nameOfIt)),
        std::tuple(&state, program.stateBytes, std::string_view("state")),
        std::tuple(&states, *bytesOfStates, std::string_view("state of sequences")),
        std::tuple(&recurrents, *bytesOfRecurrents,
                   std::string_view("recurrent state of sequences"))}) {
    if (auto done = memory->allocate(model.device, bytes, what); !done)
      return done;
  }
  if (auto done = input.allocate(model.device, program, pool, keepsState, slotBytes, nobody); !done)
    return done;
  measuring = measure;
  if (measure)
    if (auto done = queue->startMeasuring(); !done)
      return done;
  for (DeviceMemory *memory : {&cache, &state, &states, &recurrents})
    if (memory->size() > 0)
      if (auto done = queue->fill(memory->address(), 0, memory->size()); !done)
        return done;
  if (auto done = makeRoomForPartials(partialPlaces()); !done)
    return done;
  if (keepsLogits())
    if (auto done = keptLogits.allocate(model.device, *queue, program, vocabulary, pool.sequences);
        !done)
      return done;
  return makeRoomForLogits(std::min(pool.sequences, mostLogitRows()));
}

Result<void> GpuExecutor::makeRoomForLogits(int64_t rows) {
  int64_t bytes = rows * vocabulary * int64_t(sizeof(float));
  if (bytes <= logitsMemory.size())
    return {};
  recordings.clear(); // they write to the old place
  return logitsMemory.allocate(model.device, bytes, "logits");
}

Result<void> GpuExecutor::keepWindows(std::span<const SequenceStep> sequences) {
  const int64_t all = std::ssize(sequences) * program.cache.windowBytes;
  if (windowsBefore.size() < all)
    if (auto done = windowsBefore.allocate(model.device, all, "copy of the KV cache's windows");
        !done)
      return done;
  return copyWindows(sequences, /*back=*/false);
}

Result<void> GpuExecutor::copyWindows(std::span<const SequenceStep> sequences, bool back) {
  const int64_t bytes = program.cache.windowBytes;
  uint64_t kept = windowsBefore.address();
  for (const SequenceStep &sequence : sequences) {
    const uint64_t window = addressOfWindow(sequence);
    if (auto done = queue->copy(back ? window : kept, back ? kept : window, bytes); !done)
      return done;
    kept += static_cast<uint64_t>(bytes);
  }
  return {};
}

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

uint64_t GpuExecutor::valueOf(const LaunchArgument &argument, int64_t rows) const {
  using Kind = LaunchArgument::Kind;
  auto offset = static_cast<uint64_t>(argument.offset);
  switch (argument.kind) {
  case Kind::Weights:
    return model.weights.address() + offset;
  case Kind::Arena:
    return arena.address() + offset;
  case Kind::Cache:
    return cache.address() + offset;
  case Kind::Sequences:
    return input.sequences();
  case Kind::RowPlaces:
    return input.rowPlaces();
  case Kind::Pages:
    return input.pageTables();
  case Kind::Pieces:
    return input.piecesOf(static_cast<size_t>(argument.offset));
  case Kind::Partials:
    return partials.address();
  case Kind::PartialCounters:
    return partialCounters.address();
  case Kind::State:
    return state.address() + offset;
  case Kind::States:
    return states.address();
  case Kind::RowStates:
    return input.rowStates();
  case Kind::Recurrent:
    return recurrents.address();
  case Kind::Constants:
    return model.constants.address() + offset;
  case Kind::Tokens:
    return input.tokens();
  case Kind::LogitRows:
    return input.logitRows();
  case Kind::Logits:
    if (gathersLogits)
      return logitsMemory.address() +
             sizeof(float) *
                 static_cast<uint64_t>(ranks->rank() * rows * vocabulary / ranks->size());
    return logitsMemory.address();
  case Kind::Hidden:
    return hidden.before();
  case Kind::NextHidden:
    return hidden.next();
  case Kind::Rows:
    return static_cast<uint64_t>(rows);
  case Kind::Rank:
    return ranks ? static_cast<uint64_t>(ranks->rank()) : 0;
  case Kind::Integer:
    return static_cast<uint32_t>(argument.integer);
  }
  __builtin_unreachable();
}

bool GpuExecutor::happens(const Launch &launch, const GpuStep &step) const {
  int64_t count = rowsOf(launch, step);
  if (launch.over == Launch::Over::Pieces)
    for (const LaunchArgument &argument : launch.arguments)
      if (argument.kind == LaunchArgument::Kind::Pieces)
        count = input.pieceCount(static_cast<size_t>(argument.offset));
  return launch.happensFor(count);
}

Result<void> GpuExecutor::launch(const Launch &launch, const GpuStep &step) {
  const int64_t rows = rowsOf(launch, step);
  if (!happens(launch, step))
    return {};
  if (step.watch && step.watch->stops())
    return step.watch->interrupted();
  if (launch.collective)
    return exchange(launch, rows);
  arguments.clear();
  for (const LaunchArgument &argument : launch.arguments)
    arguments.push_back(valueOf(argument, rows));
  return queue->launch({launch.kernel, program.kernels[launch.kernel].gridFor(rows), arguments,
                        launch.site, launch.phase});
}

Result<void> GpuExecutor::exchange(const Launch &launch, int64_t rows) {
  const formats::Collective &what = program.collectives[*launch.collective];
  const LaunchArgument &memory = launch.arguments.front();
  const uint64_t address =
      memory.kind == LaunchArgument::Kind::Logits ? logitsMemory.address() : valueOf(memory, rows);
  return queue->exchange(
      *ranks, collectiveOf(what, reinterpret_cast<void *>(address), rows * what.columns));
}

Result<void> GpuExecutor::launchRun(std::span<const Launch> launches, const GpuStep &step) {
  for (const Launch &one : launches)
    if (auto done = launch(one, step); !done)
      return done;
  return {};
}

Result<void> GpuExecutor::replay(const GpuStep &step) {
  auto known = recordings.find(step.rows);
  if (known == recordings.end()) {
    if (auto done = queue->beginRecording(); !done)
      return done;
    Result<void> launched = launchRun(program.launches, step);
    Result<std::unique_ptr<Recording>> recorded = queue->endRecording();
    if (!launched)
      return launched;
    if (!recorded)
      return Unexpected(recorded.error());
    known = recordings.emplace(step.rows, std::move(*recorded)).first;
  }
  return queue->replay(*known->second);
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

Result<void> GpuExecutor::run(const GpuStep &step) {
  if (std::any_of(step.sequences.begin(), step.sequences.end(), hasGoneBack))
    if (auto done = launchRun(program.restore, step); !done)
      return done;
  return step.isRecorded ? replay(step) : launchRun(program.launches, step);
}

Result<void> GpuExecutor::downloadLogits(int64_t rows, int64_t wanted, float *logits) {
  if (ranks)
    if (auto waited = queue->wait(*ranks); !waited)
      return waited;
  const int64_t rowBytes = vocabulary * int64_t(sizeof(float));
  if (!gathersLogits)
    return queue->download(logits, logitsMemory.address(), wanted * rowBytes);
  logitParts.resize(static_cast<size_t>(rows * vocabulary));
  if (auto done = queue->download(logitParts.data(), logitsMemory.address(), rows * rowBytes);
      !done)
    return done;
  const int64_t width = vocabulary / ranks->size();
  for (int64_t rank = 0; rank < ranks->size(); ++rank)
    for (int64_t row = 0; row < wanted; ++row)
      std::copy_n(logitParts.data() + (rank * rows + row) * width, width,
                  logits + row * vocabulary + rank * width);
  return {};
}

Result<void> GpuExecutor::describe(std::span<const SequenceStep> sequences,
                                   std::span<const int32_t> logitRows, int64_t rowsOfNobody,
                                   bool seesBefore) {
  input.describe(sequences, logitRows, rowsOfNobody, seesBefore);
  if (auto done = makeRoomForPartials(input.partialPlaces()); !done)
    return done;
  const Result<bool> haveMoved[] = {input.makeRoom(model.device), hidden.makeRoom(input.rows())};
  for (const Result<bool> &hasMoved : haveMoved) {
    if (!hasMoved || *hasMoved)
      recordings.clear(); // they know the old place
    if (!hasMoved)
      return Unexpected(hasMoved.error());
  }
  return input.upload(*queue, sequences);
}

/// The next step overwrites what the queue may still copy from. Behind a collective whose ranks are
/// gone one would wait for ever; there is no next step.
Result<void> GpuExecutor::leave(Result<void> done) {
  float first;
  if (!done && !ranks && logitsMemory.size() > 0)
    (void)queue->download(&first, logitsMemory.address(), sizeof(first));
  return done;
}

/// A rank that fails alone would leave the others waiting.
Result<void> GpuExecutor::step(std::span<const SequenceStep> sequences,
                               std::span<const int32_t> logitRows, float *logits,
                               const Watch &watch) {
  Result<void> done = tryStep(sequences, logitRows, logits, watch);
  if (!done && ranks)
    ranks->abort(done.error());
  return done;
}

Result<void> GpuExecutor::tryStep(std::span<const SequenceStep> sequences,
                                  std::span<const int32_t> logitRows, float *logits,
                                  const Watch &watch) {
  GpuStep step = {sequences, 0, std::ssize(logitRows), false, nullptr};
  for (const SequenceStep &sequence : sequences)
    step.rows += std::ssize(sequence.tokens);
  // Every sequence has one row, whose logits are asked for.
  const bool isDecode = step.rows == std::ssize(sequences) && step.logitRows == step.rows;
  step.isRecorded = isDecode && queue->canRecord() && step.rows <= std::ranges::max(kRecordedRows);
  int64_t filled = step.isRecorded ? rowsOfNobody(step.rows) : 0;
  // Nobody's tokens have positions, too.
  if (filled > std::min(maxContext, program.cache.pageTokens)) {
    step.isRecorded = false;
    filled = 0;
  }
  step.rows += filled;
  step.logitRows += filled;
  if (auto done = makeRoomForLogits(step.logitRows); !done)
    return done;
  if (!logits)
    if (auto done = keptLogits.makeRoom(std::ssize(logitRows)); !done)
      return done;
  if (auto done = describe(sequences, logitRows, filled); !done)
    return done;

  // A step that is left has changed the windows of some layers, and not those of others; they are
  // put back. A step of one token a sequence is not left, since each would then cost a copy. Nor is
  // a step in which a sequence has gone back, since it makes that one's codes anew from their
  // values.
  const bool hasWindows = program.cache.windowBytes > 0;
  const bool goesBack = std::any_of(sequences.begin(), sequences.end(), hasGoneBack);
  // Ranks leave together or not at all, so that theirs are left between steps.
  if (watch.progress.function && !ranks && (!hasWindows || (!isDecode && !goesBack)))
    step.watch = &watch;
  const bool keeps = hasWindows && step.watch;
  if (keeps)
    if (auto kept = keepWindows(sequences); !kept)
      return kept;
  if (Result<void> done = run(step); !done) {
    if (keeps)
      (void)copyWindows(sequences, /*back=*/true); // it fails with a device that is lost
    return leave(done);
  }
  if (!logits)
    return keptLogits.keep(logitsMemory.address(), std::ssize(logitRows));
  return downloadLogits(step.logitRows, std::ssize(logitRows), logits);
}

Result<void> GpuExecutor::draft(std::span<const SequenceStep> sequences,
                                std::span<const int32_t> before, std::span<const int32_t> logitRows,
                                std::span<int32_t> likeliest) {
  const GpuStep step = {sequences, std::ssize(before), std::ssize(logitRows), false, nullptr};
  return makeRoomForLogits(step.logitRows)
      .and_then([&] { return keptLogits.makeRoom(step.logitRows); })
      .and_then([&] { return describe(sequences, logitRows, 0, program.drafting->fixedPosition); })
      .and_then([&] { return hidden.gather(before); })
      .and_then([&] { return launchRun(program.drafting->launches, step); })
      .and_then([&] { return keptLogits.keep(logitsMemory.address(), step.logitRows); })
      .or_else([&](const Error &error) { return leave(Unexpected(error)); })
      .transform([&] {
        std::ranges::transform(keptLogits.lastStep(), likeliest.begin(), [&](const auto &row) {
          keptLogits.release(row.slot);
          return row.greatest.token();
        });
      });
}

Result<std::string> GpuExecutor::siteOfNotFinite(std::span<const SequenceStep> sequence) {
  if (ranks) // all would have to do it
    return std::string();
  GpuStep step = {sequence, 0, 1, false, nullptr};
  for (const SequenceStep &piece : sequence)
    step.rows += std::ssize(piece.tokens);
  const int32_t last[] = {static_cast<int32_t>(step.rows - 1)};
  Result<void> done = describe(sequence, last, /*rowsOfNobody=*/0);
  if (done && std::any_of(sequence.begin(), sequence.end(), hasGoneBack))
    done = launchRun(program.restore, step);
  std::vector<float> values;
  for (const Launch &one : program.launches) {
    if (done)
      done = launch(one, step);
    if (!done)
      break;
    if (!one.result || !happens(one, step))
      continue;
    const LaunchArgument &memory = one.arguments[one.result->argument];
    const int64_t rows = rowsOf(one, step), columns = one.result->columns;
    if (memory.kind == LaunchArgument::Kind::Logits && columns != vocabulary)
      continue; // nobody's
    values.resize(static_cast<size_t>(rows * columns));
    done = queue->download(values.data(), valueOf(memory, rows),
                           std::ssize(values) * int64_t(sizeof(float)));
    if (done && !std::ranges::all_of(values, [](float x) { return std::isfinite(x); }))
      return one.site;
  }
  if (done = leave(done); !done)
    return Unexpected(done.error());
  return std::string();
}

//===----------------------------------------------------------------------===//
// Costs
//===----------------------------------------------------------------------===//

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

Result<std::unique_ptr<Executor>>
easyquant::runtime::createGpuExecutor(const GpuModel &model, const PoolSize &pool,
                                      const Manifest &manifest, bool measure,
                                      comm::Communicator *communicator) {
  auto executor = std::make_unique<GpuExecutor>(model, pool, manifest, communicator);
  if (auto done = executor->allocate(measure); !done)
    return Unexpected(done.error());
  return executor;
}
