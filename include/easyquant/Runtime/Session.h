//===- Session.h - One sequence of a model ----------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_RUNTIME_SESSION_H
#define EASYQUANT_RUNTIME_SESSION_H

#include "easyquant/Runtime/Batch.h"

namespace easyquant::runtime {

/// A batch of one sequence: the easy way.
class Session {
public:
  /// `context` tokens (0: the model's), `threads` (0: availableThreads()). Errors: those of
  /// Batch::create. `measure`: costs() and siteCosts() will be asked for. `keptStates`: as of
  /// BatchOptions.
  static Result<Session> create(std::shared_ptr<const Model> model, int64_t context,
                                int32_t threads, bool measure = false, int64_t keptStates = 0);

  /// Appends the tokens, in chunks of at most max_rows, and keeps the logits of the last one.
  /// Errors: InvalidArgument (no token, or one outside the vocabulary), OutOfRange (the context is
  /// full, or a thread that makes its first call is not granted its helpers), Corrupt (a logit that
  /// is not finite), Interrupted (by the progress function). The session is then as it was.
  Result<void> prefill(std::span<const int32_t> tokens) { return append(tokens, nullptr); }

  /// prefill, and writes tokens.size() x vocab_size logits, row-major, to `logits`.
  Result<void> score(std::span<const int32_t> tokens, float *logits) {
    return append(tokens, logits);
  }

  /// The function for the calls from here on.
  void setProgress(Progress function) { batch.setProgress(function); }

  /// Forgets all but the first `position` tokens, as of Batch. Error: InvalidArgument (beyond
  /// position()).
  Result<void> truncate(int64_t position) { return batch.truncate(sequence, position); }

  /// As of Batch.
  int64_t stateBytes() const { return batch.stateBytes(); }
  Result<void> saveState(std::span<std::byte> to) const { return batch.saveState(sequence, to); }
  Result<void> restoreState(std::span<const std::byte> from) {
    return batch.restoreState(sequence, from);
  }
  Result<void> resetState() { return batch.resetState(sequence); }

  /// vocab_size logits of the last token, or null.
  const float *logits() const { return batch.logits(sequence); }
  int64_t position() const { return batch.position(sequence).value_or(0); }
  /// Tokens that the session can hold.
  int64_t context() const { return batch.context(); }
  int32_t threads() const { return batch.threads(); }
  int64_t bytes() const { return batch.bytes(); }
  /// As of Batch.
  Result<PhaseCosts> costs() const { return batch.costs(); }
  Result<std::vector<SiteCost>> siteCosts() const { return batch.siteCosts(); }
  const Model &model() const { return batch.model(); }

private:
  Session(Batch batch, int64_t sequence) : batch(std::move(batch)), sequence(sequence) {}
  Result<void> append(std::span<const int32_t> tokens, float *allLogits);

  Batch batch;
  int64_t sequence;
};

} // namespace easyquant::runtime

#endif // EASYQUANT_RUNTIME_SESSION_H
