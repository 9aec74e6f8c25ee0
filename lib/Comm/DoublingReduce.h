//===- DoublingReduce.h - All-reduce by recursive doubling ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Recursive doubling (Thakur, Rabenseifner, Gropp: Optimization of collective communication
// operations in MPICH, 2005), in log2 n steps that each exchange all elements with one neighbour.
// Both compute the sum with the lower ranks on the left, so that all ranks follow the tree of
// Communicator.h and end with the same bits. Where n is no power of two, pairs of the first ranks
// add up before and hand the result back after.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_COMM_DOUBLINGREDUCE_H
#define EASYQUANT_LIB_COMM_DOUBLINGREDUCE_H

#include "Reduce.h"

#include <bit>
#include <utility>

namespace easyquant::comm {

/// `exchange(sends, data, bytes, peer, Handle *)` starts a message, `isDone(Handle &)` looks after
/// it. `spare` lends the memory for what arrives.
template <typename Operation, typename Handle, typename Exchange, typename IsDone>
class DoublingReduce final : public Operation {
public:
  DoublingReduce(const Collective &collective, int rank, int size, std::vector<std::byte> &spare,
                 Exchange exchange, IsDone isDone)
      : collective(collective), rank(rank), power(static_cast<int>(std::bit_floor(unsigned(size)))),
        extra(size - power), exchange(exchange), isDone(isDone), lender(spare) {
    arrived = std::exchange(spare, {});
    arrived.resize(static_cast<size_t>(collective.bytes()));
  }
  ~DoublingReduce() override { lender = std::move(arrived); }

  Result<bool> advance() override {
    for (;;) {
      if (receiving || sending) {
        for (auto [under, handle] :
             {std::pair(&receiving, &received), std::pair(&sending, &sent)}) {
          Result<bool> done = *under ? isDone(*handle) : true;
          if (!done || !*done)
            return done;
          *under = false;
        }
        finishStep();
      }
      if (step == Step::Done)
        return true;
      if (Result<void> started = startStep(); !started)
        return Unexpected(started.error());
    }
  }
  std::string waitsFor() const override { return fmt::format("rank {}", peer); }

private:
  enum class Step { Begin, Fold, Double, Unfold, Done };

  /// Ranks behind the folded pairs have numbers of their own; so have the pairs.
  int numberOf() const { return rank < 2 * extra ? rank / 2 : rank - extra; }
  int rankOf(int number) const { return number < extra ? 2 * number : number + extra; }
  bool isFolded() const { return rank < 2 * extra && rank % 2 == 1; }

  Result<void> startStep() {
    if (step == Step::Begin)
      step = rank < 2 * extra ? Step::Fold : Step::Double;
    if (step == Step::Double && distance == power)
      step = rank < 2 * extra ? Step::Unfold : Step::Done;
    switch (step) {
    case Step::Fold:
      peer = rank ^ 1;
      return isFolded() ? send() : receive(arrived.data());
    case Step::Double: {
      peer = rankOf(numberOf() ^ distance);
      Result<void> started = receive(arrived.data());
      return started ? send() : started;
    }
    case Step::Unfold:
      peer = rank ^ 1;
      return isFolded() ? receive(collective.data) : send();
    case Step::Begin:
    case Step::Done:
      break;
    }
    return {};
  }

  void finishStep() {
    switch (step) {
    case Step::Fold:
      if (!isFolded())
        add(/*ownFirst=*/true);
      step = isFolded() ? Step::Unfold : Step::Double;
      break;
    case Step::Double:
      add(/*ownFirst=*/(numberOf() & distance) == 0);
      distance *= 2;
      break;
    case Step::Unfold:
      step = Step::Done;
      break;
    case Step::Begin:
    case Step::Done:
      break;
    }
  }

  void add(bool ownFirst) {
    const void *own = collective.data, *other = arrived.data();
    combine(collective.type, collective.reduction, collective.count, collective.data,
            ownFirst ? own : other, ownFirst ? other : own);
  }
  Result<void> send() {
    sending = true;
    return exchange(true, collective.data, collective.bytes(), peer, &sent);
  }
  Result<void> receive(void *data) {
    receiving = true;
    return exchange(false, data, collective.bytes(), peer, &received);
  }

  Collective collective;
  const int rank, power, extra;
  Exchange exchange;
  IsDone isDone;
  std::vector<std::byte> arrived, &lender;
  Step step = Step::Begin;
  int distance = 1, peer = 0;
  bool receiving = false, sending = false;
  Handle received{}, sent{};
};

} // namespace easyquant::comm

#endif // EASYQUANT_LIB_COMM_DOUBLINGREDUCE_H
