//===- Append.cpp - Tokens for many sequences -----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Append.h"

#include "DeviceLogits.h"

#include <algorithm>
#include <bit>
#include <utility>

using namespace easyquant;
using namespace easyquant::runtime;

/// Logits of a step that are first put together and then shared out, where several items of it want
/// those of every token.
static constexpr int64_t kMostSharedBytes = int64_t(64) << 20;

/// A cache of codes and online scales hold what a call was cut in.
static bool isExact(const Manifest &manifest) {
  return !manifest.online && !manifest.program.cache.scheme;
}

Append::Append(Batch &batch)
    : batch(batch), vocabulary(batch.owner->manifest().model.vocabSize),
      cutsAnywhere(batch.isRecurrent() && isExact(batch.owner->manifest())) {}

Append::~Append() {
  for (Work &work : works) {
    batch.trim(*work.sequence);
    for (Batch::State *state : {&work.read, &work.readByStep, &work.state, &work.before})
      batch.release(*state);
    for (Batch::State &state : work.kept)
      batch.release(state);
    batch.drop(work.onDevice);
    batch.pool->hidden.release(work.recent.places);
  }
}

//===----------------------------------------------------------------------===//
// Items
//===----------------------------------------------------------------------===//

Result<void> Append::check(const Batch::Item &item, const Batch::Sequence &sequence) const {
  for (const Work &work : works)
    if (work.sequence == &sequence)
      return makeError(ErrorCode::InvalidArgument,
                       "sequence: found {} twice in one call, expected each once; put its tokens "
                       "into one item",
                       item.sequence);
  if (item.tokens.empty())
    return makeError(ErrorCode::InvalidArgument, "tokens: found none, expected at least one");
  // Before any of them is read: a count that is wrong reaches beyond what there is.
  if (item.tokens.size() > static_cast<size_t>(batch.limit - sequence.position)) {
    const int64_t most = batch.owner->manifest().model.maxContext;
    std::string remedy =
        batch.limit < most
            ? fmt::format("or create it with a longer context (the model was made for at most {})",
                          most)
            : std::string("the model was made for no longer one");
    return makeError(ErrorCode::OutOfRange,
                     "context overflow: {} tokens at position {} do not fit the context of {} "
                     "tokens; append fewer, or truncate; {}",
                     item.tokens.size(), sequence.position, batch.limit, remedy);
  }
  if (item.bestCount < 0 || item.bestCount > vocabulary)
    return makeError(ErrorCode::InvalidArgument,
                     "best_count: found {}, expected at most the {} tokens of the vocabulary",
                     item.bestCount, vocabulary);
  for (size_t i = 0; i < item.tokens.size(); ++i)
    if (item.tokens[i] < 0 || item.tokens[i] >= vocabulary)
      return makeError(ErrorCode::InvalidArgument,
                       "tokens[{}]: found {}, expected a token id in 0..{}", i, item.tokens[i],
                       vocabulary - 1);
  return {};
}

Result<Result<void>> Batch::takePages(Sequence &sequence, int64_t tokens) {
  PagePool &pool = *this->pool;
  const auto count = static_cast<size_t>(pool.sizes().pagesOf(sequence.position + tokens));
  std::vector<int64_t> &pages = sequence.pages;
  const size_t held = pages.size();
  const auto first =
      std::min(held, static_cast<size_t>(pool.firstWritten(sequence.state.position)));
  const int64_t copies = std::count_if(pages.begin() + static_cast<ptrdiff_t>(first), pages.end(),
                                       [&](int64_t page) { return pool.pages.isShared(page); });
  const int64_t fresh = static_cast<int64_t>(count - held);
  if (copies + fresh > pool.pages.free())
    return Result<void>(makeError(
        ErrorCode::OutOfRange,
        "cache pages: {} tokens at position {} take {} pages of {} tokens, {} of them copies of "
        "shared ones, but {} of the {} pages are free; append fewer, remove or truncate sequences, "
        "or create the batch for more tokens",
        tokens, sequence.position, copies + fresh, pool.sizes().pageTokens, copies,
        pool.pages.free(), pool.pages.count()));

  pages.reserve(std::max(count, held + 1));
  for (size_t i = first; copies > 0 && i < held; ++i) {
    if (!pool.pages.isShared(pages[i]))
      continue;
    pages.push_back(pool.pages.take()); // behind those of its tokens, should the copy fail
    if (auto copied = executor->copyInCache(pool.placeOfPage(pages[i]),
                                            pool.placeOfPage(pages.back()), pool.sizes().pageBytes);
        !copied)
      return Unexpected(copied.error());
    std::swap(pages[i], pages.back());
    pool.pages.release(pages.back());
    pages.pop_back();
  }
  while (pages.size() < count)
    pages.push_back(pool.pages.take());
  return Result<void>();
}

void Append::begin(Work &work) {
  Batch::Sequence &sequence = *work.sequence;
  const std::span<const int32_t> own = work.item->tokens;
  work.tokens = own;
  work.again = sequence.position - sequence.state.position;
  if (batch.mayReadAgain()) {
    // For what it holds in the end, twice as much so that token by token costs little.
    std::vector<int32_t> &held = sequence.tokens;
    if (held.capacity() - held.size() < own.size())
      held.reserve(std::max(held.size() + own.size(), 2 * held.size()));
    work.kept.reserve(static_cast<size_t>(batch.keptStates));
    if (work.again > 0) {
      work.joined.assign(held.end() - work.again, held.end());
      work.joined.insert(work.joined.end(), own.begin(), own.end());
      work.tokens = work.joined;
    }
  }
  work.state = batch.share(sequence.state);
}

Result<Result<void>> Append::admit(Batch::Item &item) {
  Result<Batch::Sequence *> found = batch.find(item.sequence);
  if (!found)
    return Result<void>(Unexpected(found.error()));
  if (Result<void> checked = check(item, **found); !checked)
    return checked;
  works.push_back({.item = &item, .sequence = *found});
  Result<Result<void>> taken = batch.takePages(**found, std::ssize(item.tokens));
  if (taken && !*taken)
    works.pop_back(); // it took none
  else if (taken)
    begin(works.back());
  return taken;
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

int64_t Append::mostSharedRows() const {
  return kMostSharedBytes / (vocabulary * static_cast<int64_t>(sizeof(float)));
}

int64_t Append::pieceRows(const Work &work) const {
  int64_t most = batch.executor->rowsPerStep(work.item->needsRows());
  if (work.item->isScored()) // whose rows of logits nobody has made room for
    most = std::clamp(mostSharedRows(), int64_t(1), most);
  const auto &online = batch.owner->manifest().online;
  return std::min({rowsToStop(work), most, online ? online->tokens : most});
}

int64_t Append::firstKept(const Work &work) const {
  const int64_t page = batch.pool->sizes().pageTokens;
  const int64_t end = work.position(std::ssize(work.tokens));
  return end - end % page - (batch.keptStates - 1) * page;
}

int64_t Append::rowsToStop(const Work &work) const {
  int64_t rows = work.unplanned();
  if (!cutsAnywhere)
    return rows;
  if (work.planned < work.again)
    rows = work.again - work.planned;
  if (batch.keptStates > 0) {
    const int64_t page = batch.pool->sizes().pageTokens, at = work.position(work.planned);
    rows = std::min(rows, std::max(firstKept(work), at - at % page + page) - at);
  }
  return rows;
}

Batch::State Append::takeState(Work &work, int64_t end) {
  Batch::State state = {work.position(end)};
  batch.release(work.read);
  if (work.state.slot < 0)
    return state;
  // Beside what the sequence has, what this step reads and what it writes, nothing but what is kept
  // at page ends.
  if (work.state.slot != work.sequence->state.slot) {
    batch.release(work.sequence->before);
    if (work.before.slot != work.state.slot)
      batch.release(work.before);
  }
  state.slot = batch.pool->slots.take();
  return state;
}

void Append::plan(Piece piece) {
  Work &work = *piece.work;
  Batch::State next = takeState(work, piece.end());
  work.read = std::exchange(work.state, next);
  work.planned = piece.end();
  if (batch.runsPiecesTogether && piece.first == work.through) {
    batch.release(work.readByStep);
    work.readByStep = batch.share(work.read);
  }
  piece.slot = work.read.slot;
  piece.nextSlot = next.slot;
  pieces.push_back(piece);
  if (batch.isRecurrent() && work.again > 0 && piece.end() == work.again)
    work.before = batch.share(next);
  if (batch.keptStates == 0 || next.position % batch.pool->sizes().pageTokens != 0 ||
      next.position < firstKept(work))
    return;
  std::vector<Batch::State> &older = work.sequence->kept;
  if (std::ssize(older) + std::ssize(work.kept) == batch.keptStates) {
    batch.release(older.front());
    older.erase(older.begin());
  }
  work.kept.push_back(batch.share(next));
}

/// Whole pieces, in the order of their sequences: what else is in a step has no part in how a
/// prompt is cut.
void Append::choosePieces() {
  pieces.clear();
  const int64_t most = batch.executor->rowsPerStep(false);
  const int64_t mostShared = std::min(batch.executor->rowsPerStep(true), mostSharedRows());
  int64_t rows = 0, logits = 0;
  bool anyAll = false;
  for (Work &work : works) {
    const bool all = work.item->needsRows();
    while (work.unplanned() > 0 && (cutsAnywhere || work.planned == work.through)) {
      const Piece piece = {&work, work.planned, pieceRows(work)};
      if (rows + piece.rows > most)
        break;
      if (!pieces.empty() && (all || anyAll) && logits + piece.logitRows() > mostShared)
        break;
      if (piece.first > work.through) {
        logits -= pieces.back().logitRows();
        pieces.back().isFollowed = true;
        logits += pieces.back().logitRows();
      }
      plan(piece);
      rows += piece.rows;
      logits += piece.logitRows();
      anyAll |= all;
    }
  }
}

Result<void> Append::slide() {
  if (!batch.pool->sizes().sliding)
    return {};
  for (const Piece &piece : pieces) {
    Work &work = *piece.work;
    if (piece.isFollowed)
      continue; // the last piece of an item tells of all that are in the step
    if (Result<void> slid =
            batch.slide(*work.sequence, work.position(work.through), work.position(piece.end()));
        !slid)
      return slid;
  }
  return {};
}

Result<float *> Append::placeLogits() {
  const bool anyAll = std::any_of(pieces.begin(), pieces.end(),
                                  [](const Piece &piece) { return piece.work->item->needsRows(); });
  if (!anyAll)
    return batch.executor->deviceLogits() ? nullptr : batch.logitsRow(batch.next, finished);
  if (const Piece &only = pieces.front();
      pieces.size() == 1 && only.work->item->allLogits && !only.isAgain())
    return only.work->item->allLogits + only.firstLogits() * vocabulary;
  const auto bytes = static_cast<int64_t>(logitRows.size() * sizeof(float)) * vocabulary;
  if (batch.shared.size() < bytes) {
    Result<Buffer> allocated = allocateMemory("logits of all tokens", bytes);
    if (!allocated)
      return Unexpected(allocated.error());
    batch.shared = std::move(*allocated);
  }
  return batch.shared.data<float>();
}

void Append::takeKept() noexcept {
  auto row = batch.executor->deviceLogits()->lastStep().begin();
  for (const Piece &piece : pieces)
    if (!piece.isFollowed) {
      piece.work->onDevice = {row->slot, row->greatest.bits};
      ++row;
    }
}

Result<void> Append::runStep() {
  hasLookedForSite = false;
  const Watch watch{batch.progress, done, total};
  if (watch.stops())
    return watch.interrupted();
  choosePieces();
  if (Result<void> slid = slide(); !slid)
    return slid;
  places.clear();
  steps.clear();
  logitRows.clear();
  for (const Piece &piece : pieces)
    batch.addPlaces(*piece.work->sequence, places);
  int64_t row = 0;
  size_t firstPlace = 0;
  for (const Piece &piece : pieces) {
    const Work &work = *piece.work;
    const Batch::Sequence &sequence = *work.sequence;
    SequenceStep &step = steps.emplace_back();
    step.tokens =
        work.tokens.subspan(static_cast<size_t>(piece.first), static_cast<size_t>(piece.rows));
    step.position = work.position(piece.first);
    step.held = piece.first == work.through ? sequence.held : step.position;
    step.window = sequence.window;
    step.slot = piece.slot;
    step.nextSlot = piece.nextSlot;
    places.giveTo(step, firstPlace, sequence.pages.size());
    firstPlace += sequence.pages.size();
    row += piece.rows;
    for (int64_t i = piece.logitRows(); i > 0; --i)
      logitRows.push_back(static_cast<int32_t>(row - i));
  }

  Result<float *> logits = placeLogits();
  if (!logits)
    return Unexpected(logits.error());
  if (!*logits) // a work has one row at a time, beside what its sequence has
    for (const Piece &piece : pieces)
      batch.drop(piece.work->onDevice);
  if (auto ran = batch.executor->step(steps, logitRows, *logits, watch); !ran)
    return ran;
  for (const Piece &piece : pieces) // also of what comes to nothing: the cache has seen it
    piece.work->sequence->held = piece.work->position(piece.end());
  if (!*logits)
    takeKept();
  if (Result<void> kept = keepHidden(); !kept)
    return kept;
  const float *from = *logits;
  for (const Piece &piece : pieces) {
    settle(piece, from);
    if (from)
      from += piece.logitRows() * vocabulary;
  }
  return answer();
}

/// Whether all of them are numbers: an infinity or NaN is what has all exponent bits set.
static bool allFinite(const float *values, int64_t count) {
  uint32_t found = 0;
  for (int64_t i = 0; i < count; ++i)
    found |=
        static_cast<uint32_t>((std::bit_cast<uint32_t>(values[i]) & 0x7f800000u) == 0x7f800000u);
  return found == 0;
}

std::string Append::siteOfNotFinite(const Piece &piece) {
  // Nobody can end it, so that it is done for one item of a step alone.
  if (std::exchange(hasLookedForSite, true))
    return "";
  // Again from where the item's first piece of this step has begun, as a call that is repeated.
  std::vector<SequenceStep> own;
  for (size_t i = 0; i < pieces.size(); ++i)
    if (pieces[i].work == piece.work)
      own.push_back(steps[i]);
  own.front().held = piece.work->sequence->held;
  const Result<std::string> site = batch.executor->siteOfNotFinite(own);
  return site && !site->empty()
             ? fmt::format("site '{}' is the first that was seen to give such results; ", *site)
             : std::string();
}

Result<void> Append::notFinite(const Piece &piece, int64_t token) {
  const Work &work = *piece.work;
  return makeError(ErrorCode::Corrupt,
                   "the logits after the token at position {} (id {}) are not finite: {}the "
                   "model's weights or activations overflow; compile it with another scheme, "
                   "or leave its outlier sites float with --ignore",
                   work.position(token), work.tokens[static_cast<size_t>(token)],
                   siteOfNotFinite(piece));
}

/// `logits` are null where they are on the device.
Result<void> Append::checkLogits(const Piece &piece, const float *logits) {
  const int64_t count = piece.logitRows();
  if (!logits) {
    const formats::GreatestLogit greatest{piece.work->onDevice.greatest};
    return piece.isFollowed || greatest.isFinite() ? Result<void>()
                                                   : notFinite(piece, piece.end() - 1);
  }
  for (int64_t row = 0; row < count; ++row)
    if (!allFinite(logits + row * vocabulary, vocabulary))
      return notFinite(piece, piece.end() - count + row);
  return {};
}

void Append::askFor(const Batch::Item &item, int64_t place, const float *logits) {
  double *logprob = item.logprobs ? item.logprobs + place : nullptr;
  std::span<eq_logprob> best;
  if (item.best)
    best = {item.best + place * item.bestCount, static_cast<size_t>(item.bestCount)};
  if (logits) {
    requests.push_back({logits, item.tokens[static_cast<size_t>(place)], logprob, best});
    return;
  }
  if (logprob)
    *logprob = 0;
  std::fill(best.begin(), best.end(), eq_logprob{-1, 0});
}

Result<void> Append::answer() {
  if (requests.empty())
    return {};
  Result<void> answered = batch.describe(requests);
  requests.clear();
  return answered;
}

/// What becomes of a piece whose logits begin at `logits`.
void Append::settle(const Piece &piece, const float *logits) {
  Work &work = *piece.work;
  if (work.failed)
    return;
  if (Result<void> checked = checkLogits(piece, logits); !checked) {
    done += work.left();
    work.failed = true;
    work.item->result = std::move(checked);
    return;
  }
  const int64_t count = piece.logitRows();
  if (float *all = work.item->allLogits; all && !piece.isAgain()) {
    all += piece.firstLogits() * vocabulary;
    if (all != logits)
      std::copy_n(logits, count * vocabulary, all);
  }
  if (work.item->isScored() && !piece.isAgain())
    for (int64_t row = 0; row < count; ++row)
      if (const int64_t next = piece.firstLogits() + row + 1; next < std::ssize(work.item->tokens))
        askFor(*work.item, next, logits + row * vocabulary);
  work.through += piece.rows;
  done += piece.rows;
  if (work.left() > 0)
    return;
  work.logits = finished++;
  if (!logits)
    return;
  batch.drop(work.onDevice);
  // Never behind `logits`, where that is in `next`, too.
  float *last = batch.logitsRow(batch.next, work.logits);
  const float *row = logits + (count - 1) * vocabulary;
  if (last != row)
    std::copy_n(row, vocabulary, last);
}

Result<void> Append::keepHidden() {
  if (!batch.drafts)
    return {};
  hiddenPlaces.clear();
  for (const Piece &piece : pieces) {
    Work &work = *piece.work;
    // What is read again is kept already, or was cut off.
    const int64_t known = std::clamp<int64_t>(work.again - piece.first, 0, piece.rows);
    const auto tokens = work.tokens.begin() + piece.first;
    work.recent.tokens.insert(work.recent.tokens.end(), tokens + known, tokens + piece.rows);
    batch.pool->hidden.take(piece.rows - known, work.recent.places);
    hiddenPlaces.insert(hiddenPlaces.end(), static_cast<size_t>(known), -1);
    hiddenPlaces.insert(hiddenPlaces.end(), work.recent.places.end() - (piece.rows - known),
                        work.recent.places.end());
  }
  return batch.executor->keepHidden(hiddenPlaces);
}

/// Makes room for what is joined when all steps are through.
void Append::reserveHidden() {
  for (Work &work : works) {
    Batch::Recent &recent = work.sequence->recent;
    recent.tokens.reserve(recent.tokens.size() + work.recent.tokens.size());
    recent.places.reserve(recent.places.size() + work.recent.places.size());
  }
}

void Append::settleStates(Work &work) noexcept {
  Batch::Sequence &sequence = *work.sequence;
  Batch::Recent &recent = sequence.recent;
  recent.tokens.insert(recent.tokens.end(), work.recent.tokens.begin(), work.recent.tokens.end());
  recent.places.insert(recent.places.end(), work.recent.places.begin(), work.recent.places.end());
  work.recent.places.clear();            // they are the sequence's now
  std::swap(sequence.state, work.state); // to be released with the work
  batch.trimWindows(sequence);
  if (batch.mayReadAgain())
    sequence.tokens.insert(sequence.tokens.end(), work.item->tokens.begin(),
                           work.item->tokens.end());
  if (!batch.isRecurrent())
    return;
  std::swap(sequence.before, work.before.slot < 0 ? work.state : work.before);
  for (Batch::State &state : work.kept)
    sequence.kept.push_back(std::exchange(state, {}));
}

void Append::commit() noexcept {
  if (finished == 0)
    return;
  for (Work &work : works)
    if (work.logits >= 0)
      work.sequence->logits = -1;
  // The logits of other sequences come along.
  for (auto &[id, sequence] : batch.sequences)
    if (sequence.logits >= 0) {
      if (sequence.onDevice.isHere())
        std::copy_n(batch.logitsRow(batch.current, sequence.logits), vocabulary,
                    batch.logitsRow(batch.next, finished));
      sequence.logits = finished++;
    }
  for (Work &work : works)
    if (work.logits >= 0) {
      work.sequence->logits = work.logits;
      std::swap(work.sequence->onDevice, work.onDevice); // to be dropped with the work
      work.sequence->position = work.position(work.through);
      settleStates(work);
    }
  std::swap(batch.current, batch.next);
}

Result<void> Append::run(std::span<Batch::Item> items) {
  works.reserve(items.size());
  // Ids grow with time: where pages run out, it is the youngest sequences that get none.
  std::vector<Batch::Item *> byAge;
  byAge.reserve(items.size());
  for (Batch::Item &item : items)
    byAge.push_back(&item);
  std::ranges::sort(byAge, {},
                    [](const Batch::Item *item) { return std::pair(item->sequence, item); });
  for (Batch::Item *item : byAge) {
    Result<Result<void>> admitted = admit(*item);
    if (!admitted)
      return Unexpected(admitted.error());
    item->result = std::move(*admitted);
    if (!item->result || !item->isScored())
      continue;
    const Batch::Sequence &sequence = *works.back().sequence;
    Result<const float *> logits = nullptr;
    if (sequence.logits >= 0)
      logits = batch.readLogits(sequence);
    if (!logits)
      return Unexpected(logits.error());
    askFor(*item, 0, *logits);
  }
  std::ranges::sort(works, {}, &Work::item);
  if (Result<void> answered = answer(); !answered)
    return answered;
  for (const Work &work : works)
    total += std::ssize(work.tokens);
  while (std::any_of(works.begin(), works.end(), [](const Work &work) { return work.left() > 0; }))
    if (auto ran = runStep(); !ran)
      return ran;
  reserveHidden();
  commit();
  for (Work &work : works) // steps of the head need the room
    batch.drop(work.onDevice);
  for (Work &work : works)
    batch.readRecent(*work.sequence);
  return {};
}

Result<void> Batch::append(std::span<Item> items) {
  Append call(*this);
  Result<void> result = call.run(items);
  if (!result)
    for (Item &item : items)
      item.result = {};
  return result;
}
