//===- Draft.cpp - The head that drafts tokens ----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For each token but the first of a text the head reads the token, and the hidden state of the
// model behind the token before it. Its layer has keys and values of its own, in the same pages as
// those of the model: what it has read of token p lies at position p - 1. So it is one token
// behind, and what the model has made of the newest tokens is kept until it reads them.
//
// Nothing depends on the head but guesses. Where two sequences share a page to its end and go on
// with different tokens, its last place is what the one has left there that came last.
//
// An assistant in its place (program.fixed_draft_position) has no keys and values and writes none.
// It reads the newest token alone, which the model has not read, and the hidden state before it,
// and each of its own guesses at the position of that token, with what the model's cache has before
// it.
//
//===----------------------------------------------------------------------===//

#include "Append.h"

#include <algorithm>
#include <utility>

using namespace easyquant;
using namespace easyquant::runtime;

void Batch::Recent::drop(int64_t rows, HiddenPlaces &hidden) noexcept {
  hidden.release(std::span(places).first(static_cast<size_t>(rows)));
  tokens.erase(tokens.begin(), tokens.begin() + rows);
  places.erase(places.begin(), places.begin() + rows);
  first += rows;
  read = std::max<int64_t>(0, read - rows);
}

void Batch::Recent::cut(int64_t position, HiddenPlaces &hidden) noexcept {
  const int64_t rows = std::clamp<int64_t>(position - first, 0, std::ssize(tokens));
  hidden.release(std::span(places).subspan(static_cast<size_t>(rows)));
  tokens.resize(static_cast<size_t>(rows));
  places.resize(static_cast<size_t>(rows));
  first = std::min(first, position);
  // Another token may come behind the last one.
  read = std::min(read, std::max<int64_t>(0, rows - 1));
}

namespace easyquant::runtime {

/// Steps of the head.
class HeadSteps {
public:
  explicit HeadSteps(Batch &batch) : batch(batch) {}

  /// What the head reads of one sequence.
  struct Rows {
    Batch::Sequence *sequence;
    int64_t position;            ///< of the first row in the cache
    std::vector<int32_t> tokens; ///< a row each
    std::vector<int32_t> hidden; ///< the places of what is before them
    int32_t next = -1;           ///< the place for what comes behind the last row, if it is wanted
    int32_t likeliest = 0;       ///< the token there

    /// What it has not read; the token behind the last one is to be added, or the last state goes.
    Rows(Batch::Sequence &sequence, bool isFixed)
        : sequence(&sequence),
          position(isFixed ? sequence.position : sequence.recent.first + sequence.recent.read) {
      const Batch::Recent &recent = sequence.recent;
      if (isFixed) {
        hidden.assign(1, recent.places.back());
        return;
      }
      tokens.assign(recent.tokens.begin() + recent.read + 1, recent.tokens.end());
      hidden.assign(recent.places.begin() + recent.read, recent.places.end());
    }
    /// Leaves out all but the first rows.
    void keep(int64_t rows) {
      tokens.resize(static_cast<size_t>(std::max<int64_t>(0, rows)));
      hidden.resize(tokens.size());
    }
  };

  /// All rows of all of them, in as many steps as they take.
  Result<void> run(std::span<Rows *const> work);

private:
  struct Piece {
    Rows *rows;
    int64_t first, count;
    bool isLast() const { return first + count == std::ssize(rows->tokens); }
  };
  Result<void> step();
  Result<void> keepNext();

  Batch &batch;
  std::vector<Piece> pieces;
};

} // namespace easyquant::runtime

Result<void> HeadSteps::run(std::span<Rows *const> work) {
  const int64_t most = batch.executor->rowsPerStep(false);
  int64_t room = most;
  for (Rows *rows : work)
    for (int64_t first = 0; first < std::ssize(rows->tokens);) {
      const int64_t count = std::min(room, std::ssize(rows->tokens) - first);
      pieces.push_back({rows, first, count});
      first += count;
      room -= count;
      if (room > 0)
        continue;
      if (Result<void> done = step(); !done)
        return done;
      room = most;
    }
  return pieces.empty() ? Result<void>() : step();
}

Result<void> HeadSteps::step() {
  std::vector<SequenceStep> steps;
  PagePlaces places;
  std::vector<int32_t> hidden, logitRows;
  for (const Piece &piece : pieces)
    batch.addPlaces(*piece.rows->sequence, places);
  size_t firstPlace = 0;
  int32_t row = 0;
  for (const Piece &piece : pieces) {
    const Batch::Sequence &sequence = *piece.rows->sequence;
    SequenceStep &step = steps.emplace_back();
    step.tokens = std::span(piece.rows->tokens)
                      .subspan(static_cast<size_t>(piece.first), static_cast<size_t>(piece.count));
    step.position = step.held = piece.rows->position + piece.first;
    step.window = sequence.window;
    places.giveTo(step, firstPlace, sequence.pages.size());
    firstPlace += sequence.pages.size();
    const auto from = piece.rows->hidden.begin() + piece.first;
    hidden.insert(hidden.end(), from, from + piece.count);
    row += static_cast<int32_t>(piece.count);
    logitRows.push_back(row - 1);
  }
  std::vector<int32_t> likeliest(logitRows.size());
  Result<void> ran = batch.executor->draft(steps, hidden, logitRows, likeliest);
  if (ran)
    ran = keepNext();
  for (size_t i = 0; i < pieces.size(); ++i) // of a text in several steps, the last one's stays
    pieces[i].rows->likeliest = likeliest[i];
  pieces.clear();
  return ran;
}

/// Where the next row is to read it.
Result<void> HeadSteps::keepNext() {
  std::vector<int32_t> places;
  bool isWanted = false;
  for (const Piece &piece : pieces) {
    places.insert(places.end(), static_cast<size_t>(piece.count - 1), -1);
    places.push_back(piece.isLast() ? piece.rows->next : -1);
    isWanted |= places.back() >= 0;
  }
  return isWanted ? batch.executor->keepHidden(places) : Result<void>();
}

void Batch::readRecent(Sequence &sequence) noexcept {
  Recent &recent = sequence.recent;
  const int64_t rows = std::ssize(recent.tokens) - kKeptHidden;
  if (rows < kKeptHidden)
    return;
  if (hasFixedDrafts())
    return recent.drop(rows, pool->hidden);
  try {
    HeadSteps::Rows unread(sequence, /*isFixed=*/false);
    unread.keep(rows - recent.read);
    HeadSteps::Rows *const work[] = {&unread};
    if (rows > recent.read && !HeadSteps(*this).run(work))
      return; // the next call tries again
    recent.drop(rows, pool->hidden);
  } catch (const std::bad_alloc &) { // they stay unread
  }
}

bool Batch::hasFixedDrafts() const {
  return owner->manifest().program.fixedDraftPosition.value_or(false);
}

Result<void> Batch::draft(std::span<DraftItem> items) {
  const bool isFixed = hasFixedDrafts();
  const int64_t vocabulary = owner->manifest().model.vocabSize;
  if (!drafts)
    return makeError(ErrorCode::InvalidArgument,
                     "draft: the batch was not created to draft; set drafts in its options");
  HeadSteps head(*this);
  std::vector<HeadSteps::Rows> all;
  std::vector<HeadSteps::Rows *> going;
  std::vector<DraftItem *> drafted;
  all.reserve(items.size());
  // Whatever happens, only pages of tokens that it holds stay a sequence's.
  struct Trim {
    Batch &batch;
    std::vector<HeadSteps::Rows> &all;
    std::vector<int32_t> places = {}; ///< of what is behind guesses
    ~Trim() {
      for (HeadSteps::Rows &rows : all)
        batch.trim(*rows.sequence);
      batch.pool->hidden.release(places);
    }
  } trim{*this, all};
  for (DraftItem &item : items) {
    item.tokens.clear();
    Result<Sequence *> found = find(item.sequence);
    if (!found)
      return Unexpected(found.error());
    if (std::ranges::any_of(all, [&](auto &rows) { return rows.sequence == *found; }))
      return makeError(ErrorCode::InvalidArgument,
                       "sequence: found {} twice in one call, expected each once", item.sequence);
    if (item.token < 0 || item.token >= vocabulary)
      return makeError(ErrorCode::InvalidArgument, "token: found {}, expected a token id in 0..{}",
                       item.token, vocabulary - 1);
    Sequence &sequence = **found;
    // The last guess is not read.
    const int64_t most = std::min(item.most, limit - sequence.position);
    if (sequence.recent.tokens.empty() || most < 1)
      continue;
    if (isFixed && sequence.state.position < sequence.position) // windows that it reads are gone
      continue;
    if (!isFixed) {
      Result<Result<void>> taken = takePages(sequence, most);
      if (!taken)
        return Unexpected(taken.error());
      if (!*taken) // no room to guess
        continue;
    }
    item.tokens.reserve(static_cast<size_t>(most));
    all.emplace_back(sequence, isFixed);
    all.back().tokens.push_back(item.token);
    drafted.push_back(&item);
  }
  pool->hidden.take(std::ssize(all), trim.places);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].next = trim.places[i];
    going.push_back(&all[i]);
  }
  while (!going.empty()) {
    if (Result<void> ran = head.run(going); !ran)
      return ran;
    size_t left = 0;
    for (size_t i = 0; i < going.size(); ++i) {
      HeadSteps::Rows &rows = *going[i];
      DraftItem &item = *drafted[i];
      item.tokens.push_back(rows.likeliest);
      if (std::ssize(item.tokens) == std::min(item.most, limit - rows.sequence->position))
        continue;
      if (!isFixed)
        rows.position += std::ssize(rows.tokens);
      rows.tokens.assign(1, rows.likeliest);
      rows.hidden.assign(1, rows.next);
      going[left] = &rows;
      drafted[left++] = &item;
    }
    going.resize(left);
    drafted.resize(left);
  }
  if (isFixed)
    return {};
  for (HeadSteps::Rows &rows : all)
    rows.sequence->recent.read = std::ssize(rows.sequence->recent.tokens) - 1;
  return {};
}
