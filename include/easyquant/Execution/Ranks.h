//===- Ranks.h - Processes that compile one model together ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every rank runs the same passes on the same model. Passes that share their work out ask the
// context of their module who the others are; all ranks then have the same results to the bit, each
// in a work folder of its own. A rank that fails says so to the others (Communicator::abort).
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_EXECUTION_RANKS_H
#define EASYQUANT_EXECUTION_RANKS_H

#include "easyquant/Comm/Agreement.h"
#include "easyquant/Comm/Communicator.h"
#include "easyquant/Support/Bytes.h"

#include "mlir/IR/MLIRContext.h"

namespace easyquant::execution {

/// Samples are summed in so many shares, whatever the number of ranks, which divides it.
constexpr int kSampleShares = 8;

/// A handle. All calls but `rank` and `size` are collective, and cost nothing where there is one
/// rank. Errors: those of Communicator.
class Ranks {
public:
  /// The ranks of a context; one rank where nobody joined any.
  static Ranks of(mlir::MLIRContext *context);
  /// From here on passes of the context work together with those of the other ranks. The
  /// communicator lives longer. Errors: InvalidArgument (a number of ranks that does not divide
  /// kSampleShares).
  static Result<void> join(mlir::MLIRContext &context, comm::Communicator &communicator);

  int rank() const { return communicator ? communicator->rank() : 0; }
  int size() const { return communicator ? communicator->size() : 1; }
  /// Who has the i-th piece of work that one rank does alone.
  int inTurn(size_t i) const { return static_cast<int>(i % static_cast<size_t>(size())); }

  Result<void> agree(std::span<const comm::Agreed> subjects) const;
  /// Is it so on every rank?
  Result<bool> all(bool here) const;
  /// The least of all ranks' values.
  Result<int64_t> least(int64_t value) const;
  /// What every rank has, in rank order.
  Result<std::vector<Bytes>> gather(Bytes own) const;
  /// Hands bytes to a rank and takes its own; on both ranks alike, but for the partner, in rounds
  /// in which every rank has one.
  Result<Bytes> exchange(const Bytes &own, int partner) const;
  Result<void> broadcast(std::span<float> values, int root) const;
  /// Gives a file of some ranks to those where `exists` is false, from the first one that has it;
  /// true: every rank has it now. False where no rank has it.
  Result<bool> shareFile(const std::string &path, bool exists) const;

private:
  explicit Ranks(comm::Communicator *communicator) : communicator(communicator) {}
  Result<void> broadcastBytes(Bytes &bytes, int root) const;

  comm::Communicator *communicator;
};

} // namespace easyquant::execution

#endif // EASYQUANT_EXECUTION_RANKS_H
