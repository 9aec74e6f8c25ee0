//===- Batch.h - Many sequences of one model --------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sequences that run in common steps and have their KV caches in one pool of pages. What the C ABI
// (easyquant.h) is a thin skin of: the rules stated there hold here. Any call may throw
// std::bad_alloc; the batch is then as it was.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_RUNTIME_BATCH_H
#define EASYQUANT_RUNTIME_BATCH_H

#include "easyquant/Runtime/Device.h"
#include "easyquant/Runtime/Model.h"
#include "easyquant/Runtime/easyquant.h"
#include "easyquant/Support/MappedMemory.h"
#include "easyquant/Support/Result.h"

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace easyquant::runtime {

class DeviceLogits;
class Executor;
class HeadSteps;
class HiddenPlaces;
class PagePool;
struct PagePlaces;
class RowReader;

/// What a batch asks, in the thread of a call that appends tokens, before each step and before each
/// kernel of it (on an NVIDIA GPU, before each launch). It must not throw, nor use the batch.
struct Progress {
  /// `done` of the `total` tokens of the call; true: end it.
  bool (*function)(void *context, int64_t done, int64_t total) = nullptr; ///< null: nothing
  void *context = nullptr;
};

struct BatchOptions {
  int64_t context = 0;   ///< tokens of a sequence at most; 0: the model's
  int64_t sequences = 1; ///< at most so many at a time
  /// Tokens for which the pool has pages, for all sequences together, each rounded up to whole
  /// pages; 0, or more than that: sequences * context.
  int64_t tokens = 0;
  int32_t threads = 0;  ///< of a step; 0: availableThreads()
  bool measure = false; ///< costs() and siteCosts() will be asked for
  /// Where layers have a recurrent state: states that each sequence keeps at page ends. Where they
  /// have a window: pages more that it keeps behind it than one.
  int64_t keptStates = 0;
  /// draft() will be called: a model with a head that drafts, and whose cache is float.
  bool drafts = false;
};

/// Sequences have the bits that each would have alone (on GPUs, of float weights: within the
/// rounding of linears over other numbers of rows), whatever else is in the batch. Full pages that
/// a fork has in common with its origin are there once, until either comes to write one.
class Batch {
public:
  /// Errors: InvalidArgument (an option out of its range, those of chooseThreads), OutOfRange
  /// (longer than the model's context, or more memory or threads than there are).
  static Result<Batch> create(std::shared_ptr<const Model> model, const BatchOptions &options);
  Batch(Batch &&other) noexcept;
  Batch &operator=(Batch &&other) noexcept;
  ~Batch();

  /// An empty sequence: its id, never used again in this batch. Error: OutOfRange (there are
  /// `sequences` already).
  Result<int64_t> add();
  /// One with the same tokens, logits and state. Errors: InvalidArgument (no such sequence), those
  /// of add(), and what the device says.
  Result<int64_t> fork(int64_t id);
  /// Error: InvalidArgument (no such sequence).
  Result<void> remove(int64_t id);
  /// Forgets all but the first `position` tokens; the online scales stay. Where layers have a
  /// recurrent state or a window, the next append reads those behind resumePosition() again.
  /// Errors: InvalidArgument (no such sequence, or it has fewer), and what the device says.
  Result<void> truncate(int64_t id, int64_t position);
  /// Where a sequence that is cut to `position` tokens, or to all that it has, goes on without
  /// reading any of them again: there, or, where layers have a recurrent state, at the newest state
  /// that it has up to there; its beginning if none, or if layers have a window that reaches to
  /// tokens which are gone. Error: InvalidArgument (no such sequence).
  Result<int64_t> resumePosition(int64_t id, int64_t position) const;
  bool holds(int64_t id) const { return sequences.contains(id); }
  /// Tokens that a sequence holds. Error: InvalidArgument (no such sequence).
  Result<int64_t> position(int64_t id) const;
  /// What a sequence keeps of the online scales of its steps: the bytes that saveState writes, 0 of
  /// a model without such scales.
  int64_t stateBytes() const;
  /// Errors: InvalidArgument (no such sequence, or `to` is not stateBytes() long).
  Result<void> saveState(int64_t id, std::span<std::byte> to) const;
  /// What saveState has written. Errors: InvalidArgument (no such sequence, no saved state, or that
  /// of another model), Corrupt; the sequence is then as it was.
  Result<void> restoreState(int64_t id, std::span<const std::byte> from);
  /// Gives it the state of a new sequence. Error: InvalidArgument (no such sequence).
  Result<void> resetState(int64_t id);

  /// How many pages the KV cache has, and how many of them no sequence has.
  int64_t pages() const;
  int64_t freePages() const;

  /// The bytes that save() writes. Error: InvalidArgument (no such sequence).
  Result<int64_t> savedBytes(int64_t id) const;
  /// A sequence as bytes: tokens held, cache, state and logits, and none of its states from before.
  /// Errors: InvalidArgument (no such
  /// sequence, or `to` is not savedBytes() long), Unsupported (several ranks share the model), and
  /// what the device says.
  Result<void> save(int64_t id, std::span<std::byte> to) const;
  /// A sequence that goes on from such bytes, of any batch on the same artifact. Errors:
  /// InvalidArgument (no saved sequence, or one of another artifact), Corrupt, OutOfRange (its
  /// tokens are more than the context, no page left for them), those of add(), Unsupported (several
  /// ranks).
  Result<int64_t> restore(std::span<const std::byte> from);

  /// vocab_size logits of a sequence's last token, until the next call that is not const; or null.
  /// On a GPU they are copied here now; null, too, where it is lost, of which the next call tells.
  const float *logits(int64_t id) const;

  /// What append() is to do for one sequence.
  struct Item {
    int64_t sequence = 0;
    std::span<const int32_t> tokens;
    /// The logits of every token, tokens.size() x vocab_size, undefined where the item fails; or
    /// null.
    float *allLogits = nullptr;
    /// As of eq_batch_item; `best` has bestCount entries for each token.
    double *logprobs = nullptr;
    eq_logprob *best = nullptr;
    int64_t bestCount = 0;
    Result<void> result = {}; ///< set by append()

    bool isScored() const { return logprobs || best; }
    /// Whether rows of logits are computed for all tokens.
    bool needsRows() const { return allLogits || isScored(); }
  };
  /// Appends to many sequences. A prompt runs in pieces, cut as if it were alone; a step takes
  /// pieces of different sequences, as many as max_rows has room for, in the order of the items.
  ///
  /// An item that fails has the error as its `result`, and its sequence is as it was while the
  /// others go on: InvalidArgument (no such sequence, one that an item before it has, no token, or
  /// one outside the vocabulary), OutOfRange (the context is full, or the pool has too few free
  /// pages, which the oldest sequences get first), Corrupt (logits that are not finite).
  ///
  /// Errors: Interrupted (by the progress function), OutOfRange (a thread that makes its first call
  /// is not granted its helpers, or no memory for logits), and what the device says. All sequences
  /// are then as they were, and no `result` says anything.
  ///
  /// After a failure behind whole steps, it is as if their tokens had been appended and cut off by
  /// truncate(): in a cache of codes, tokens that have left the float window come back as codes.
  Result<void> append(std::span<Item> items);

  /// What draft() is to do for one sequence.
  struct DraftItem {
    int64_t sequence = 0;
    int32_t token = 0; ///< that comes next, and has not been appended
    int64_t most = 0;
    /// Set by draft(): the likeliest tokens behind it, one after the other, `most` of them; fewer
    /// at the end of the context, none where there are no pages for them, or none of what the model
    /// made of the last token, as behind restore().
    std::vector<int32_t> tokens = {};
  };
  /// Guesses by the head that drafts. No sequence changes. Errors: InvalidArgument (the batch does
  /// not draft, no such sequence, one that an item before has, a token outside the vocabulary), and
  /// OutOfRange (a thread that makes its first call is not granted its helpers).
  Result<void> draft(std::span<DraftItem> items);

  /// Chooses the next token of each sequence, as eq_batch_choose says, which sets no other member
  /// of a choice than what its `best` points to. `results` are as many as `choices`; errors in
  /// them: InvalidArgument. Errors: OutOfRange (a thread that makes its first call is not granted
  /// its helpers), and what the device says.
  Result<void> choose(std::span<const eq_choice> choices, std::span<Result<eq_logprob>> results);

  /// The function for the calls from here on.
  void setProgress(Progress function) { progress = function; }

  /// Tokens that each sequence can hold.
  int64_t context() const { return limit; }
  int32_t threads() const { return threadCount; }
  int64_t bytes() const;
  /// What each phase has cost since the batch began, with what loading the model to a device cost.
  /// Error: InvalidArgument (the batch does not measure).
  Result<PhaseCosts> costs() const;
  /// The same by sites, each in the phases that it has, in the order of the program. Errors:
  /// InvalidArgument, and Unsupported (on a GPU).
  Result<std::vector<SiteCost>> siteCosts() const;
  const Model &model() const { return *owner; }

private:
  friend class Append;
  friend class HeadSteps;
  /// What steps have left behind so many tokens of a sequence, in a slot that nobody writes as long
  /// as it is somebody's, if layers have a recurrent state. At position 0 a recurrent state is
  /// zeros, whatever is in the slot.
  struct State {
    int64_t position = 0;
    int64_t slot = -1; ///< or none
  };
  /// The newest tokens of a sequence, from `first` on, and the place where the executor keeps what
  /// the model has made of each. The head that drafts has read the first of these rows, each with
  /// the token behind it, and all that is before them.
  struct Recent {
    int64_t first = 0, read = 0;
    std::vector<int32_t> tokens, places;

    /// Forgets the first rows.
    void drop(int64_t rows, HiddenPlaces &hidden) noexcept;
    /// Forgets those from `position` on.
    void cut(int64_t position, HiddenPlaces &hidden) noexcept;
  };
  /// Logits that a step has left on a device.
  struct KeptLogits {
    int64_t slot = -1;           ///< of DeviceLogits, or none
    uint64_t greatest = 0;       ///< the bits of formats::GreatestLogit
    mutable bool isRead = false; ///< they are in the row of `current`, too

    bool isHere() const { return slot < 0 || isRead; }
  };
  struct Sequence {
    int64_t position = 0;
    int64_t held = 0; ///< tokens that its cache has seen: more than position after truncation
    int64_t window = -1;
    std::vector<int64_t> pages; ///< numbers of the pool's, for `position` tokens
    /// Where layers have a window: the same for `state.position` tokens, -1 for each page in which
    /// nothing is read any more. These come first.
    std::vector<int64_t> slidingPages;
    int64_t logits = -1; ///< its row of `current`, or none
    KeptLogits onDevice; ///< where they are: the row of `current` may not have them yet
    /// Where it goes on: at `position`, or before it where tokens are read again.
    State state;
    // Where layers have a recurrent state:
    State before;                ///< what the last call that appended has begun with, or none
    std::vector<State> kept;     ///< at page ends, the oldest first
    std::vector<int32_t> tokens; ///< that it holds, where tokens may be read again
    Recent recent;               ///< where the batch drafts
  };

  Batch();
  /// Errors: InvalidArgument (there is none).
  Result<Sequence *> find(int64_t id);
  Result<void> requireOneRank() const;
  bool isRecurrent() const { return owner->manifest().program.recurrentValues.has_value(); }
  /// Whether a sequence that is cut back may have to read tokens again.
  bool mayReadAgain() const;
  /// The same state for another owner.
  State share(const State &state) noexcept;
  /// Gives it up; it is none then.
  void release(State &state) noexcept;
  /// Gives up pages, window and states.
  void release(Sequence &sequence) noexcept;
  /// The newest state of a sequence up to `position`.
  State newest(const Sequence &sequence, int64_t position) const;
  /// Whether the windows of layers are there that tokens behind `position` see.
  bool hasWindows(const Sequence &sequence, int64_t position) const;
  /// Gives a sequence pages for the tokens [position, end) of its next step in layers with a
  /// window, copies of those that are shared. Gives those back that neither this step reads nor one
  /// at its state.
  Result<void> slide(Sequence &sequence, int64_t position, int64_t end);
  /// Gives back what is behind all that is kept.
  void trimWindows(Sequence &sequence) noexcept;
  /// Appends where pages of a sequence begin.
  void addPlaces(const Sequence &sequence, PagePlaces &places) const;
  /// Lets a sequence go on from there, with the online scales that it has come to.
  Result<void> moveTo(Sequence &sequence, const State &state);
  /// Gives up the states behind `position`, and goes on from the newest that is left.
  Result<void> goBack(Sequence &sequence, int64_t position);
  /// Gives a sequence other online scales.
  Result<void> writeScales(Sequence &sequence, std::span<const double> scales);
  /// Gives it pages for more tokens, copies of those that are shared and will be written. The outer
  /// error is the device's, the inner one that there are too few.
  Result<Result<void>> takePages(Sequence &sequence, int64_t tokens);
  /// Whether what drafts has no keys and values of its own.
  bool hasFixedDrafts() const;
  /// Lets the head read what has piled up of a sequence, so that it can be forgotten.
  void readRecent(Sequence &sequence) noexcept;
  /// Gives back the pages behind those of its tokens.
  void trim(Sequence &sequence) noexcept;
  float *logitsRow(const Buffer &rows, int64_t row) const;
  /// The logits of a sequence that has any, once they are in memory of this machine. Error: what
  /// the device says.
  Result<const float *> readLogits(const Sequence &sequence) const;
  /// A sequence has none then.
  void dropLogits(Sequence &sequence) noexcept;
  void drop(KeptLogits &kept) noexcept;
  /// A row of `current` that no sequence has. There are as many rows as sequences.
  int64_t freeLogitsRow() const;

  /// A row of logits that is asked for what RowReader::describe tells.
  struct RowRequest {
    const float *logits;
    int32_t token;
    double *logprob;
    std::span<eq_logprob> best;
  };
  Result<void> describe(std::span<const RowRequest> rows);
  /// A row that a choice is by.
  struct ChoiceRow {
    size_t choice;
    Sequence *sequence;
    int64_t position;
    const float *logits; ///< null: they are on the device
    eq_logprob chosen = {-1, 0};
  };
  /// Chooses the tokens of rows on the device, as far as they are there and it does what is asked.
  Result<void> chooseOnDevice(std::vector<ChoiceRow> &rows, std::span<const eq_choice> choices);
  template <typename Read> Result<void> readRows(int64_t count, const Read &read);

  std::shared_ptr<const Model> owner;
  int64_t limit = 0;
  int32_t threadCount = 0;
  int64_t keptStates = 0; ///< of a sequence, at most
  int64_t keptPages = 0;  ///< of a sequence behind what layers with a window read
  bool drafts = false;
  bool runsPiecesTogether = false; ///< those of a step, as GPUs do
  Progress progress;
  std::unique_ptr<Executor> executor;
  std::unique_ptr<PagePool> pool;
  std::map<int64_t, Sequence> sequences; ///< by id
  int64_t nextId = 0;
  /// A row of logits for each sequence. Steps write `next`, which becomes `current` when all of
  /// them have succeeded.
  Buffer current, next;
  Buffer shared; ///< logits of a step whose items want those of every token, if there was one
  std::vector<RowReader> readers; ///< as many as threads have come to read rows
};

} // namespace easyquant::runtime

#endif // EASYQUANT_RUNTIME_BATCH_H
