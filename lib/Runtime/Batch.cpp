//===- Batch.cpp - Many sequences of one model ----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Runtime/Batch.h"

#include "DeviceLogits.h"
#include "Executor.h"
#include "Ranks.h"
#include "Sampling.h"
#include "SequenceState.h"

#include "easyquant/Support/Threads.h"

#include <algorithm>
#include <limits>

using namespace easyquant;
using namespace easyquant::runtime;

static constexpr const char *kMemoryRemedy =
    "ask for a shorter context, fewer sequences or fewer threads";

/// Slots of state that a sequence takes, besides those that it keeps at page ends: what it has,
/// what its last call has begun with, and what a step writes. While a call of several steps runs,
/// what the step before has left has the place of the second, so that a call that fails changes
/// nothing. On GPUs all pieces of a step run at a time, so that what the first one reads is there
/// until the step is through.
static constexpr int64_t kStateSlots = 3, kStateSlotsOfGpu = 4;

Result<Buffer> easyquant::runtime::allocateMemory(std::string_view what, int64_t bytes) {
  Result<Buffer> buffer = Buffer::allocate(bytes, what, kMemoryRemedy);
  if (buffer)
    buffer->preferHugePages();
  return buffer;
}

Result<int64_t> easyquant::runtime::sizeOf(std::string_view what, int64_t count, int64_t size,
                                           int64_t base) {
  int64_t bytes;
  // What Buffer may add must fit, too.
  if (__builtin_mul_overflow(count, size, &bytes) || __builtin_add_overflow(bytes, base, &bytes) ||
      bytes > std::numeric_limits<int64_t>::max() - Buffer::kPage)
    return makeError(ErrorCode::OutOfRange,
                     "{}: {} x {} + {} bytes are more than can be addressed; {}", what, count, size,
                     base, kMemoryRemedy);
  return bytes;
}

Unexpected easyquant::runtime::notMeasured() {
  return makeError(ErrorCode::InvalidArgument,
                   "costs of phases: the session or batch was not created to measure them; set "
                   "measure in its options");
}

//===----------------------------------------------------------------------===//
// Creation
//===----------------------------------------------------------------------===//

Batch::Batch() = default;
Batch::Batch(Batch &&other) noexcept = default;
Batch &Batch::operator=(Batch &&other) noexcept = default;
Batch::~Batch() = default;

static Result<void> checkOptions(const BatchOptions &options, const Manifest &manifest,
                                 bool isOnGpu) {
  const Manifest::Model &model = manifest.model;
  if (options.context < 0)
    return makeError(ErrorCode::InvalidArgument,
                     "context: found {}, expected tokens, or 0 for the model's longest",
                     options.context);
  if (options.context > model.maxContext)
    return makeError(ErrorCode::OutOfRange,
                     "context: found {} tokens, but the model was made for at most {}",
                     options.context, model.maxContext);
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  if (options.sequences < 1 || options.sequences > most)
    return makeError(ErrorCode::InvalidArgument, "sequences: found {}, expected 1..{}",
                     options.sequences, most);
  if (options.tokens < 0)
    return makeError(ErrorCode::InvalidArgument,
                     "tokens: found {}, expected those of all sequences together, or 0 for as "
                     "many as they can hold",
                     options.tokens);
  if (options.keptStates < 0 || options.keptStates > most)
    return makeError(ErrorCode::InvalidArgument, "kept_states: found {}, expected 0..{}",
                     options.keptStates, most);
  const bool hasHead =
      isOnGpu ? manifest.gpu->drafts.value_or(false) : !manifest.program.draftEntries.empty();
  if (options.drafts && !hasHead)
    return makeError(ErrorCode::Unsupported,
                     "drafts: the artifact has no head that drafts; compile a checkpoint that has "
                     "one, without --draft-head none");
  return {};
}

Result<Batch> Batch::create(std::shared_ptr<const Model> model, const BatchOptions &options) {
  const Manifest &manifest = model->manifest();
  if (Result<void> checked = checkOptions(options, manifest, model->gpu != nullptr); !checked)
    return Unexpected(checked.error());
  Result<int32_t> chosen = chooseThreads(options.threads);
  if (!chosen)
    return Unexpected(chosen.error());

  Batch batch;
  batch.limit = options.context == 0 ? manifest.model.maxContext : options.context;
  batch.threadCount = *chosen;
  batch.drafts = options.drafts;
  batch.runsPiecesTogether = model->gpu != nullptr;

  const formats::CacheSizes &sizes =
      model->gpu ? model->gpu->program.cache : manifest.program.cache.sizes;
  PoolSize pool = {options.sequences, options.sequences * sizes.pagesOf(batch.limit)};
  if (options.tokens > 0 && options.tokens < options.sequences * batch.limit)
    pool.pages = std::min(pool.pages, sizes.pagesOf(options.tokens));
  if (manifest.program.recurrentValues)
    batch.keptStates = std::min(options.keptStates, sizes.pagesOf(batch.limit));
  if (manifest.program.recurrentValues || manifest.online)
    pool.slots = options.sequences *
                 ((batch.runsPiecesTogether ? kStateSlotsOfGpu : kStateSlots) + batch.keptStates);
  const auto &codes = manifest.program.cache.scheme;
  if (sizes.sliding) {
    const int64_t longest = sizes.pagesOf(batch.limit);
    batch.keptPages = 1 + std::min(options.keptStates, longest);
    const int64_t most =
        PagePool(sizes, codes, pool).mostSliding(manifest.program.maxRows, batch.keptPages);
    // Where it has a page of its own in these layers, it has one in those that keep all tokens.
    pool.slidingPages = std::min(options.sequences * std::min(most, longest), pool.pages);
  }
  Result<std::unique_ptr<Executor>> executor =
      model->createExecutor(pool, *chosen, options.measure);
  if (executor && model->ranks)
    executor = model->ranks->lead(std::move(*executor), pool);
  if (!executor)
    return Unexpected(executor.error());
  batch.executor = std::move(*executor);
  batch.pool = std::make_unique<PagePool>(sizes, codes, pool);

  const int64_t rowBytes = manifest.model.vocabSize * static_cast<int64_t>(sizeof(float));
  for (Buffer *logits : {&batch.current, &batch.next}) {
    Result<Buffer> buffer =
        sizeOf("logits", options.sequences, rowBytes, 0).and_then([](int64_t bytes) {
          return allocateMemory("logits", bytes);
        });
    if (!buffer)
      return Unexpected(buffer.error());
    *logits = std::move(*buffer);
  }
  batch.owner = std::move(model);
  return batch;
}

//===----------------------------------------------------------------------===//
// Sequences
//===----------------------------------------------------------------------===//

static Unexpected notThere(int64_t id, size_t count) {
  return makeError(ErrorCode::InvalidArgument,
                   "sequence: found {}, which is not among the {} of the batch; add one, and use "
                   "its id until it is removed",
                   id, count);
}

Result<Batch::Sequence *> Batch::find(int64_t id) {
  auto found = sequences.find(id);
  if (found == sequences.end())
    return notThere(id, sequences.size());
  return &found->second;
}

void Batch::trim(Sequence &sequence) noexcept {
  const auto kept = static_cast<size_t>(pool->sizes().pagesOf(sequence.position));
  for (; sequence.pages.size() > kept; sequence.pages.pop_back())
    pool->pages.release(sequence.pages.back());
  trimWindows(sequence);
}

float *Batch::logitsRow(const Buffer &rows, int64_t row) const {
  return rows.data<float>() + row * owner->manifest().model.vocabSize;
}

Result<const float *> Batch::readLogits(const Sequence &sequence) const {
  float *row = logitsRow(current, sequence.logits);
  if (const KeptLogits &kept = sequence.onDevice; !kept.isHere()) {
    if (auto read = executor->deviceLogits()->read(kept.slot, row); !read)
      return Unexpected(read.error());
    kept.isRead = true;
  }
  return row;
}

void Batch::drop(KeptLogits &kept) noexcept {
  if (kept.slot >= 0)
    executor->deviceLogits()->release(kept.slot);
  kept = {};
}

void Batch::dropLogits(Sequence &sequence) noexcept {
  drop(sequence.onDevice);
  sequence.logits = -1;
}

Result<int64_t> Batch::add() {
  if (pool->windows.free() == 0)
    return makeError(ErrorCode::OutOfRange,
                     "sequences: the batch holds {} already, its most; remove one, or create it "
                     "for more",
                     sequences.size());
  auto added = sequences.try_emplace(nextId).first;
  Sequence &sequence = added->second;
  try {
    sequence.kept.reserve(static_cast<size_t>(keptStates));
    sequence.window = pool->windows.take();
    if (pool->slots.count() > 0)
      sequence.state.slot = pool->slots.take();
  } catch (...) {
    release(sequence);
    sequences.erase(added);
    throw;
  }
  const int64_t id = nextId++;
  if (Result<void> started = resetState(id); !started) {
    (void)remove(id);
    return Unexpected(started.error());
  }
  return id;
}

Result<int64_t> Batch::fork(int64_t id) {
  Result<Sequence *> found = find(id);
  if (!found)
    return Unexpected(found.error());
  const Sequence &origin = **found;
  std::vector<int64_t> pages = origin.pages, slidingPages = origin.slidingPages;
  std::vector<int32_t> tokens = origin.tokens;
  Recent recent = origin.recent;
  Result<int64_t> added = add();
  if (!added)
    return added;
  struct Undo {
    Batch &batch;
    int64_t id;
    ~Undo() {
      if (id >= 0)
        (void)batch.remove(id);
    }
  } undo{*this, *added};
  Sequence &copy = sequences.at(*added);
  if (const int64_t bytes = pool->sizes().windowBytes; bytes > 0)
    if (auto copied = executor->copyInCache(pool->placeOfWindow(origin.window),
                                            pool->placeOfWindow(copy.window), bytes);
        !copied)
      return Unexpected(copied.error());
  undo.id = -1;
  release(copy.state);
  copy.state = share(origin.state);
  copy.before = share(origin.before);
  for (const State &state : origin.kept)
    copy.kept.push_back(share(state));
  copy.tokens = std::move(tokens);
  copy.recent = std::move(recent);
  pool->hidden.share(copy.recent.places);
  copy.position = origin.position;
  copy.held = origin.held;
  copy.pages = std::move(pages);
  copy.slidingPages = std::move(slidingPages);
  for (int64_t page : copy.pages)
    pool->pages.share(page);
  for (int64_t page : copy.slidingPages)
    if (page >= 0)
      pool->slidingPages.share(page);
  if (origin.logits >= 0) {
    copy.logits = freeLogitsRow();
    copy.onDevice = origin.onDevice;
    if (copy.onDevice.slot >= 0)
      executor->deviceLogits()->share(copy.onDevice.slot);
    if (copy.onDevice.isHere())
      std::copy_n(logitsRow(current, origin.logits), owner->manifest().model.vocabSize,
                  logitsRow(current, copy.logits));
  }
  return added;
}

int64_t Batch::freeLogitsRow() const {
  for (int64_t row = 0;; ++row)
    if (std::none_of(sequences.begin(), sequences.end(),
                     [&](const auto &entry) { return entry.second.logits == row; }))
      return row;
}

Result<void> Batch::remove(int64_t id) {
  Result<Sequence *> found = find(id);
  if (!found)
    return Unexpected(found.error());
  release(**found);
  sequences.erase(id);
  return {};
}

Result<void> Batch::truncate(int64_t id, int64_t position) {
  Result<Sequence *> found = find(id);
  if (!found)
    return Unexpected(found.error());
  Sequence &sequence = **found;
  if (position < 0 || position > sequence.position)
    return makeError(ErrorCode::InvalidArgument,
                     "position: found {}, expected 0..{} (the tokens held)", position,
                     sequence.position);
  if (Result<void> back = goBack(sequence, position); !back)
    return back;
  sequence.position = position;
  dropLogits(sequence);
  sequence.recent.cut(position, pool->hidden);
  trim(sequence);
  return {};
}

//===----------------------------------------------------------------------===//
// State
//===----------------------------------------------------------------------===//

int64_t Batch::stateBytes() const { return savedStateBytes(owner->manifest()); }

Result<void> Batch::saveState(int64_t id, std::span<std::byte> to) const {
  auto found = sequences.find(id);
  if (found == sequences.end())
    return notThere(id, sequences.size());
  if (std::ssize(to) != stateBytes())
    return makeError(ErrorCode::InvalidArgument,
                     "state: found room for {} bytes, expected {}, as eq_session_state_size says",
                     to.size(), stateBytes());
  const auto &online = owner->manifest().online;
  if (!online)
    return {};
  std::vector<double> state(static_cast<size_t>(stateFields(*online)));
  if (Result<void> read = executor->readState(found->second.state.slot, state); !read)
    return read;
  runtime::saveState(owner->manifest(), state, to);
  return {};
}

Result<void> Batch::restoreState(int64_t id, std::span<const std::byte> from) {
  Result<Sequence *> found = find(id);
  if (!found)
    return Unexpected(found.error());
  Result<std::vector<double>> state = runtime::restoreState(owner->manifest(), from);
  if (!state)
    return Unexpected(state.error());
  return writeScales(**found, *state);
}

Result<void> Batch::resetState(int64_t id) {
  Result<Sequence *> found = find(id);
  if (!found)
    return Unexpected(found.error());
  const auto &online = owner->manifest().online;
  return online ? writeScales(**found, startingState(*online)) : Result<void>();
}

int64_t Batch::pages() const { return pool->pages.count(); }
int64_t Batch::freePages() const { return pool->pages.free(); }

Result<int64_t> Batch::position(int64_t id) const {
  auto found = sequences.find(id);
  if (found == sequences.end())
    return notThere(id, sequences.size());
  return found->second.position;
}

const float *Batch::logits(int64_t id) const {
  auto found = sequences.find(id);
  if (found == sequences.end() || found->second.logits < 0)
    return nullptr;
  Result<const float *> row = readLogits(found->second);
  return row ? *row : nullptr;
}

int64_t Batch::bytes() const {
  int64_t bytes = executor->bytes() + current.size() + next.size() + shared.size();
  for (const RowReader &reader : readers)
    bytes += reader.bytes();
  return bytes;
}
Result<PhaseCosts> Batch::costs() const { return executor->costs(); }
Result<std::vector<SiteCost>> Batch::siteCosts() const { return executor->siteCosts(); }
