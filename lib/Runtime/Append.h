//===- Append.h - Tokens for many sequences ---------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One call of Batch::append: its items are admitted one by one, cut in pieces, and run in steps.
// Sequences change when all steps are through; an Append that is destroyed before gives the pages
// and states back that it took. Private to the runtime.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_RUNTIME_APPEND_H
#define EASYQUANT_LIB_RUNTIME_APPEND_H

#include "Executor.h"
#include "PagePool.h"

#include "easyquant/Runtime/Batch.h"

#include <algorithm>
#include <vector>

namespace easyquant::runtime {

class Append {
public:
  explicit Append(Batch &batch);
  Append(const Append &) = delete;
  Append &operator=(const Append &) = delete;
  ~Append();

  Result<void> run(std::span<Batch::Item> items);

private:
  /// An item that has its pages.
  struct Work {
    Batch::Item *item;
    Batch::Sequence *sequence;
    std::vector<int32_t> joined = {};     ///< `tokens`, where some are read again
    std::span<const int32_t> tokens = {}; ///< those that are read again, then the item's
    int64_t again = 0;                    ///< of them
    int64_t planned = 0, through = 0;     ///< of them: in a step, and computed
    Batch::State read = {}, state = {};   ///< of its last piece
    Batch::State readByStep = {};         ///< by its first piece, while a step runs all at a time
    Batch::State before = {};             ///< behind the tokens that are read again, or none
    std::vector<Batch::State> kept = {};  ///< at page ends
    Batch::Recent recent = {};            ///< of what has been computed
    bool failed = false;
    int64_t logits = -1; ///< its row of `next`, once all tokens are through
    /// What its last step has left on a device, where logits stay there.
    Batch::KeptLogits onDevice = {};

    /// Where a token of the call is in the sequence.
    int64_t position(int64_t token) const { return sequence->state.position + token; }
    int64_t left() const { return failed ? 0 : std::ssize(tokens) - through; }
    int64_t unplanned() const { return failed ? 0 : std::ssize(tokens) - planned; }
  };
  /// A part of an item in the next step.
  struct Piece {
    Work *work;
    int64_t first, rows;
    int64_t slot = 0, nextSlot = 0;
    bool isFollowed = false; ///< by another piece of its item in the step

    int64_t end() const { return first + rows; }
    /// Whether none of its tokens is one of the item.
    bool isAgain() const { return end() <= work->again; }
    /// Its last rows. Those of an item that asks for its last token alone are one in a step.
    int64_t logitRows() const {
      const int64_t asked = work->item->needsRows() ? std::min(end() - work->again, rows) : 0;
      return std::max<int64_t>(asked, isFollowed ? 0 : 1);
    }
    /// The token of the item whose logits come first.
    int64_t firstLogits() const { return end() - logitRows() - work->again; }
  };

  /// The outer error ends the call, the inner one is the item's.
  Result<Result<void>> admit(Batch::Item &item);
  Result<void> check(const Batch::Item &item, const Batch::Sequence &sequence) const;
  /// Lets a work begin at its sequence's state.
  void begin(Work &work);

  /// Tokens of an item that one step takes at most.
  int64_t pieceRows(const Work &work) const;
  /// Tokens of an item up to where its state is wanted.
  int64_t rowsToStop(const Work &work) const;
  /// The first page end whose state is kept behind the call, which keeps the last ones.
  int64_t firstKept(const Work &work) const;
  /// Rows of logits that a step has where nobody has made room for them.
  int64_t mostSharedRows() const;
  /// Takes a slot for what a step leaves behind the token `end`.
  Batch::State takeState(Work &work, int64_t end);
  /// Puts a piece into the next step.
  void plan(Piece piece);
  void choosePieces();
  /// Moves the windows of layers on to the step's tokens.
  Result<void> slide();
  /// Where the step's logits go; null: they stay on the device.
  Result<float *> placeLogits();
  /// Gives the rows that are kept of a step to the works that they are of.
  void takeKept() noexcept;
  Result<void> runStep();
  Result<void> checkLogits(const Piece &piece, const float *logits);
  Result<void> notFinite(const Piece &piece, int64_t token);
  /// Where numbers of a piece's item first are not finite, for an error: a clause, or nothing.
  std::string siteOfNotFinite(const Piece &piece);
  void settle(const Piece &piece, const float *logits);
  /// Keeps what the model has made of the tokens of the step, for a head that drafts.
  Result<void> keepHidden();
  void reserveHidden();
  /// Log-probabilities in the place of the item's token `place`, by the logits of the one before
  /// it, null where there are none.
  void askFor(const Batch::Item &item, int64_t place, const float *logits);
  /// Computes what was asked for.
  Result<void> answer();
  /// Gives a sequence the states of its work.
  void settleStates(Work &work) noexcept;
  void commit() noexcept;

  Batch &batch;
  const int64_t vocabulary;
  /// Layers have a recurrent state, and the cache has nothing of how a text was cut: then a
  /// sequence may be in a step several times, each time with the state that the time before has
  /// left.
  const bool cutsAnywhere;
  std::vector<Work> works;
  std::vector<Piece> pieces; ///< of the next step
  std::vector<SequenceStep> steps;
  PagePlaces places; ///< of `steps`
  std::vector<int32_t> logitRows;
  std::vector<int32_t> hiddenPlaces;       ///< of the step's rows
  std::vector<Batch::RowRequest> requests; ///< of what has been computed
  int64_t done = 0, total = 0;             ///< tokens
  bool hasLookedForSite = false;           ///< of results that are not finite, in this step
  int64_t finished = 0;                    ///< rows of `next` that are some item's
};

} // namespace easyquant::runtime

#endif // EASYQUANT_LIB_RUNTIME_APPEND_H
