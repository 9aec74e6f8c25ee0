//===- SampleSum.h - Sums over samples, the same for all ranks --*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sums of floats depend on their order. Samples are summed in kSampleShares shares, one sample
// after the other, and shares in one binary tree: neighbours, neighbours of these, and so on. With
// P = 1, 2, 4 or 8 ranks a rank has neighbouring shares, a part of that tree, so that P changes no
// bit. Where two shares are done they are merged at once: a rank holds four sums at most.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_EXECUTION_SAMPLESUM_H
#define EASYQUANT_EXECUTION_SAMPLESUM_H

#include "easyquant/Execution/Ranks.h"
#include "easyquant/Execution/Tokens.h"

#include <functional>
#include <optional>

namespace easyquant::execution {

/// T accumulates, merges with a T of later samples (`merge`), and lists its `fields` (Bytes.h).
template <typename T> class SampleSum {
public:
  /// `make` gives a sum of nothing.
  SampleSum(const Ranks &ranks, const CalibrationTokens &tokens, std::function<T()> make)
      : ranks(ranks), tokens(&tokens), make(std::move(make)),
        next(ranks.rank() * kSampleShares / ranks.size()) {}

  /// The sum that a sample of this rank is to be added to; samples in ascending order.
  T &of(int64_t sample) {
    const int share = tokens->shareOf(tokens->firstSample() + sample, kSampleShares);
    while (next < share)
      close();
    if (!open)
      open.emplace(make());
    return *open;
  }

  /// The sum of all samples of all ranks, the same on each. Collective.
  Result<T> finish() {
    const int shares = kSampleShares / ranks.size();
    while (next < (ranks.rank() + 1) * shares)
      close();
    std::optional<T> sum = std::move(done.back().sum);
    done.clear();
    for (int step = 1; step < ranks.size(); step *= 2) {
      const int partner = ranks.rank() ^ step;
      Result<Bytes> theirs = ranks.exchange(sum ? bytesOf(*sum) : Bytes(), partner);
      if (!theirs)
        return Unexpected(theirs.error());
      std::optional<T> other;
      if (!theirs->empty()) {
        ByteReader reader(*theirs);
        reader(other.emplace(make()));
        if (!reader.isWhole())
          return makeError(ErrorCode::Corrupt,
                           "rank {} of {}: found {} bytes of a sum of rank {}, expected those of "
                           "the same; start the same program on all ranks",
                           ranks.rank(), ranks.size(), theirs->size(), partner);
      }
      sum = partner < ranks.rank() ? merged(std::move(other), std::move(sum))
                                   : merged(std::move(sum), std::move(other));
    }
    return sum ? std::move(*sum) : make();
  }

private:
  struct Closed {
    int shares; ///< a power of two
    std::optional<T> sum;
  };

  static std::optional<T> merged(std::optional<T> first, std::optional<T> later) {
    if (first && later)
      first->merge(*later);
    return first ? std::move(first) : std::move(later);
  }

  /// Ends the current share.
  void close() {
    ++next;
    Closed last{1, std::exchange(open, std::nullopt)};
    for (; !done.empty() && done.back().shares == last.shares; done.pop_back())
      last = {2 * last.shares, merged(std::move(done.back().sum), std::move(last.sum))};
    done.push_back(std::move(last));
  }

  Ranks ranks;
  const CalibrationTokens *tokens;
  std::function<T()> make;
  int next; ///< the share that is open
  std::optional<T> open;
  std::vector<Closed> done; ///< of fewer and fewer shares
};

} // namespace easyquant::execution

#endif // EASYQUANT_EXECUTION_SAMPLESUM_H
