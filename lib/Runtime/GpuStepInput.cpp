//===- GpuStepInput.cpp - What the kernels of a step are told -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GpuStepInput.h"

#include "easyquant/Formats/SequenceRuns.h"

#include <algorithm>
#include <limits>
#include <ranges>
#include <unordered_set>

using namespace easyquant;
using namespace easyquant::runtime;
using formats::Piece;
using formats::PieceCut;
using formats::RowPlace;

static constexpr size_t kAlignment = 16;
static constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

Result<void> GpuStepInput::allocate(const std::shared_ptr<Device> &device,
                                    const LaunchList &program, const PoolSize &pool, bool hasSlots,
                                    int64_t bytesOfSlot, const Nobody &ofNobody) {
  cuts = program.pieces;
  lists.resize(cuts.size());
  keepsState = hasSlots;
  slotBytes = bytesOfSlot;
  nobody = ofNobody;
  pageTokens = program.cache.pageTokens;
  pagesOfSequence = pool.pages;
  constexpr auto kRowBytes = int64_t(sizeof(RowPlace) + sizeof(int64_t) + 2 * sizeof(int32_t));
  // A sequence whose state is wanted on its way may be in a step as often as it has rows there.
  const int64_t entries = (hasSlots ? program.maxRows : pool.sequences) + 1;
  const auto inputBytes = sizeOf("tables of a step", entries, sizeof(eq_sequence),
                                 program.maxRows * kRowBytes + int64_t(5 * kAlignment));
  const auto perSequence = sizeOf("pages of a sequence", pool.pages, sizeof(int64_t), 0);
  if (!inputBytes || !perSequence)
    return Unexpected(inputBytes ? perSequence.error() : inputBytes.error());
  const auto pageBytes = sizeOf("pages", pool.sequences, *perSequence, sizeof(int64_t));
  if (!pageBytes)
    return Unexpected(pageBytes.error());
  if (*pageBytes / int64_t(sizeof(int64_t)) > kMost)
    return makeError(ErrorCode::OutOfRange,
                     "{} sequences of up to {} pages each: found more than the {} that kernels can "
                     "number; ask for a shorter context or fewer sequences",
                     pool.sequences, pool.pages, kMost);
  for (auto [memory, bytes, what] :
       {std::tuple(&input, *inputBytes, "tables of a step"), {&pages, *pageBytes, "pages"}})
    if (auto done = memory->allocate(device, bytes, what); !done)
      return done;
  tables.resize(static_cast<size_t>(pool.sequences));
  int64_t room = 0;
  for (const PieceCut &cut : cuts)
    room =
        std::max(room, cut.tokens == 0 ? program.maxRows : usualPieces(cut, program.cache, pool));
  return allocatePieces(device, room + 1);
}

Result<void> GpuStepInput::allocatePieces(const std::shared_ptr<Device> &device, int64_t room) {
  roomForPieces = 0; // if there is no memory, the next step asks again
  const int64_t bytes = std::ssize(cuts) * room * int64_t(sizeof(Piece));
  if (auto done = pieces.allocate(device, bytes, "pieces of attention"); !done)
    return done;
  roomForPieces = room;
  return {};
}

/// Whether a sequence of the step is the one before it: each has a window of its own.
static bool goesOn(std::span<const SequenceStep> sequences, size_t i) {
  return i > 0 && sequences[i].window == sequences[i - 1].window;
}

void GpuStepInput::describe(std::span<const SequenceStep> sequences,
                            std::span<const int32_t> logitRows, int64_t rowsOfNobody,
                            bool seesBefore) {
  staging.clear();
  auto put = [&](const void *from, size_t bytes) {
    const auto *data = static_cast<const std::byte *>(from);
    staging.insert(staging.end(), data, data + bytes);
  };
  auto align = [&] {
    staging.resize((staging.size() + kAlignment - 1) / kAlignment * kAlignment);
    return staging.size();
  };
  table.clear();
  int64_t rows = 0, tablesOfPages = 0;
  for (const SequenceStep &step : sequences) {
    const bool again = goesOn(sequences, table.size());
    tablesOfPages += again ? 0 : 1;
    eq_sequence &sequence = table.emplace_back();
    sequence.first_row = static_cast<int32_t>(rows);
    sequence.rows = static_cast<int32_t>(step.tokens.size());
    sequence.position = static_cast<int32_t>(step.position - (seesBefore ? 1 : 0));
    sequence.held = static_cast<int32_t>(std::max(step.held, step.position));
    sequence.capacity = static_cast<int32_t>(std::min(std::ssize(step.pages) * pageTokens, kMost));
    sequence.first_page = static_cast<int32_t>((tablesOfPages - 1) * pagesOfSequence);
    sequence.window = static_cast<int32_t>(step.window);
    if (keepsState) {
      sequence.slot = again ? formats::kGoesOn : static_cast<int32_t>(step.slot);
      sequence.next_slot = static_cast<int32_t>(step.nextSlot);
    }
    rows += sequence.rows;
  }
  if (std::ssize(table) > tablesOfPages)
    dropStatesOnTheWay();
  if (rowsOfNobody > 0) {
    eq_sequence &sequence = table.emplace_back();
    sequence.first_row = static_cast<int32_t>(rows);
    sequence.rows = static_cast<int32_t>(rowsOfNobody);
    sequence.capacity = static_cast<int32_t>(pageTokens);
    sequence.first_page = static_cast<int32_t>(std::ssize(tables) * pagesOfSequence);
    sequence.window = static_cast<int32_t>(nobody.window);
    sequence.slot = static_cast<int32_t>(nobody.slot);
    sequence.next_slot = static_cast<int32_t>(nobody.nextSlot);
  }
  for (const eq_sequence &sequence : table)
    for (int32_t row = 0; row < sequence.rows; ++row) {
      const RowPlace place = {static_cast<int32_t>(&sequence - table.data()),
                              sequence.position + row + (seesBefore ? 1 : 0)};
      put(&place, sizeof(place));
    }
  rowStatesOffset = align();
  if (slotBytes > 0)
    for (const eq_sequence &sequence : table) {
      const std::vector<int64_t> states(static_cast<size_t>(sequence.rows),
                                        sequence.slot * slotBytes);
      put(states.data(), states.size() * sizeof(int64_t));
    }
  tokensOffset = align();
  for (const SequenceStep &step : sequences)
    put(step.tokens.data(), step.tokens.size_bytes());
  const std::vector<int32_t> none(static_cast<size_t>(rowsOfNobody)); // token 0
  put(none.data(), none.size() * sizeof(int32_t));
  logitRowsOffset = align();
  put(logitRows.data(), logitRows.size_bytes());
  for (int64_t i = 0; i < rowsOfNobody; ++i) {
    const auto row = static_cast<int32_t>(rows + i);
    put(&row, sizeof(row));
  }
  sequencesOffset = align();
  put(table.data(), table.size() * sizeof(eq_sequence));
  listPieces(std::ssize(sequences));
}

/// The slot of a state that nobody is to keep may have been taken once more for another one of the
/// step, whose place is written then: the last one's.
void GpuStepInput::dropStatesOnTheWay() {
  std::unordered_set<int32_t> written;
  for (eq_sequence &sequence : std::views::reverse(table))
    if (!written.insert(sequence.next_slot).second)
      sequence.next_slot = formats::kNobodyReads;
}

/// Rows of nobody have a piece each, as single tokens have them: a recorded step, whose launches
/// are those for single tokens, is the same however many there are.
void GpuStepInput::listPieces(int64_t sequences) {
  std::vector<eq_sequence> cut = table;
  if (std::ssize(table) > sequences) {
    const eq_sequence nobodys = table.back();
    cut.pop_back();
    for (int32_t row = 0; row < nobodys.rows; ++row) {
      eq_sequence &one = cut.emplace_back(nobodys);
      one.first_row += row;
      one.position += row;
      one.rows = 1;
    }
  }
  places = 0;
  for (size_t i = 0; i < cuts.size(); ++i) {
    places = std::max(places, formats::listPieces(cuts[i], cut, lists[i]));
    for (Piece &piece : lists[i])
      piece.sequence = std::min(piece.sequence, static_cast<int32_t>(sequences));
  }
}

Result<bool> GpuStepInput::makeRoom(const std::shared_ptr<Device> &device) {
  int64_t most = 0;
  for (size_t cut = 0; cut < cuts.size(); ++cut)
    most = std::max(most, pieceCount(cut));
  if (most < roomForPieces)
    return false;
  if (allocatePieces(device, 2 * most + 1))
    return true;
  return allocatePieces(device, most + 1).transform([] { return true; });
}

Result<void> GpuStepInput::uploadPages(Queue &queue, std::span<const SequenceStep> sequences) {
  if (!hasPageOfNobody) {
    const uint64_t behind = tables.size() * static_cast<size_t>(pagesOfSequence) * sizeof(int64_t);
    if (auto done = queue.upload(pageTables() + behind, &nobody.page, sizeof(int64_t)); !done)
      return done;
    hasPageOfNobody = true;
  }
  size_t next = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (goesOn(sequences, i))
      continue;
    const std::span<const int64_t> given = sequences[i].pages;
    const size_t number = next++;
    std::vector<int64_t> &known = tables[number];
    const size_t common = std::min(given.size(), known.size());
    if (given.size() <= known.size() && std::equal(given.begin(), given.end(), known.begin()))
      continue;
    // Only the pages from the first one that differs are uploaded.
    const auto first = static_cast<size_t>(
        std::mismatch(given.begin(), given.begin() + common, known.begin()).first - given.begin());
    known.assign(given.begin(), given.end());
    const std::span<const int64_t> changed = std::span(known).subspan(first);
    const size_t place = number * static_cast<size_t>(pagesOfSequence) + first;
    if (auto done = queue.upload(pageTables() + place * sizeof(int64_t), changed.data(),
                                 static_cast<int64_t>(changed.size_bytes()));
        !done) {
      known.clear();
      return done;
    }
  }
  return {};
}

Result<void> GpuStepInput::upload(Queue &queue, std::span<const SequenceStep> sequences) {
  if (auto done = uploadPages(queue, sequences); !done)
    return done;
  stagedPieces.clear();
  for (const std::vector<Piece> &list : lists) {
    stagedPieces.emplace_back().sequence = static_cast<int32_t>(list.size());
    stagedPieces.insert(stagedPieces.end(), list.begin(), list.end());
  }
  const Piece *from = stagedPieces.data();
  for (size_t cut = 0; cut < cuts.size(); ++cut) {
    const int64_t count = 1 + pieceCount(cut);
    // Nobody asks for those of an empty list.
    if (count > 1)
      if (auto done = queue.upload(piecesOf(cut), from, count * int64_t(sizeof(Piece))); !done)
        return done;
    from += count;
  }
  return queue.upload(input.address(), staging.data(), std::ssize(staging));
}
