//===- Append.h - Tokens for many sequences ---------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One call of Batch::append: its items are admitted one by one, cut in pieces, and run in steps.
// Sequences change when all steps are through; an Append that is destroyed before gives the pages
// back that it took. Private to the runtime.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_RUNTIME_APPEND_H
#define EASYQUANT_LIB_RUNTIME_APPEND_H

#include "Executor.h"
#include "PagePool.h"

#include "easyquant/Runtime/Batch.h"

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
    int64_t through = 0; ///< tokens that were computed
    int64_t slot = 0;    ///< of the state that the last step has left
    bool failed = false;
    int64_t logits = -1; ///< its row of `next`, once all tokens are through

    int64_t left() const { return failed ? 0 : std::ssize(item->tokens) - through; }
  };
  /// A part of an item in the next step.
  struct Piece {
    Work *work;
    int64_t rows;
    int64_t logitRows() const { return work->item->needsRows() ? rows : 1; }
  };

  /// The outer error ends the call, the inner one is the item's.
  Result<Result<void>> admit(Batch::Item &item);
  Result<void> check(const Batch::Item &item, const Batch::Sequence &sequence) const;
  /// The first of a sequence's pages that appending may write.
  int64_t firstWritten(const Batch::Sequence &sequence) const;
  Result<Result<void>> takePages(Batch::Sequence &sequence, int64_t tokens);

  /// Tokens of an item that one step takes at most.
  int64_t pieceRows(const Work &work) const;
  /// Rows of logits that a step has where nobody has made room for them.
  int64_t mostSharedRows() const;
  /// Where the next step of an item leaves its state: neither what it reads, nor what the sequence
  /// keeps if the call fails.
  int64_t nextSlot(const Work &work) const;
  void choosePieces();
  /// Where the step's logits go.
  Result<float *> placeLogits();
  Result<void> runStep();
  Result<void> checkLogits(const Piece &piece, const float *logits) const;
  void settle(const Piece &piece, const float *logits);
  /// Log-probabilities in the place of the item's token `place`, by the logits of the one before
  /// it, null where there are none.
  void askFor(const Batch::Item &item, int64_t place, const float *logits);
  /// Computes what was asked for.
  Result<void> answer();
  void commit() noexcept;

  Batch &batch;
  const int64_t vocabulary;
  std::vector<Work> works;
  std::vector<Piece> pieces; ///< of the next step
  std::vector<SequenceStep> steps;
  std::vector<int64_t> places; ///< of the pages of `steps`
  std::vector<int32_t> logitRows;
  std::vector<Batch::RowRequest> requests; ///< of what has been computed
  int64_t done = 0, total = 0;             ///< tokens
  int64_t finished = 0;                    ///< rows of `next` that are some item's
};

} // namespace easyquant::runtime

#endif // EASYQUANT_LIB_RUNTIME_APPEND_H
