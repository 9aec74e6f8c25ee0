//===- Tokens.h - The text that a model is calibrated on --------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_EXECUTION_TOKENS_H
#define EASYQUANT_EXECUTION_TOKENS_H

#include "easyquant/Formats/StatisticsFile.h"
#include "easyquant/Support/Result.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace easyquant::execution {

class Ranks;

/// Token ids of `samples` sequences. The file is a safetensors file with one tensor `tokens`, I32
/// [samples, length], -1 behind the end of a shorter sequence, and metadata: `bos`, "1" if every
/// sequence begins with the token that begins texts, else "0"; for the stamp of statistics,
/// text_hash, tokenizer_hash and seed; and `samples` where more of them are there than were asked
/// for, first those that were.
class CalibrationTokens {
public:
  /// Errors: NotFound, Corrupt (no such tensor, a token outside of the vocabulary, one behind the
  /// padding, a sequence without a token that counts, metadata that are no numbers), IO; each names
  /// the file.
  static Result<CalibrationTokens> read(const std::filesystem::path &path, int64_t vocabularySize);

  /// The same on every rank; those that lack the file get rank 0's. Collective. Errors: those of
  /// read and of Ranks.
  static Result<CalibrationTokens> readOnAll(const Ranks &ranks, const std::filesystem::path &path,
                                             int64_t vocabularySize);
  /// Writes such a file of all samples. Errors: IO.
  Result<void> write(const std::filesystem::path &path) const;

  /// How many samples, the first ones, were asked for: all, if the file does not say.
  int64_t askedSamples() const { return asked; }
  /// How many samples, the first ones, hold `tokens` tokens; all where these are fewer.
  int64_t samplesHolding(int64_t tokens) const;
  /// Forgets all samples but `count` from number `begin` on, or as many as there are.
  void keep(int64_t begin, int64_t count);
  /// Makes sequences of `length` tokens of the samples, of which one must count: the first of each,
  /// then the second of each, and so on, `most` at most. Behind the first, what is shorter than
  /// half of that is left out. Each begins with the token that begins texts if samples do.
  void split(int64_t length, int64_t most);

  /// Leaves samples() and sample() those of one of `ranks` ranks: neighbours. All else is of all
  /// samples, which every rank has.
  void keepPart(int rank, int ranks);

  int64_t samples() const { return behindLast() - first; }
  /// The length of the longest sequence.
  int64_t maxLength() const { return longest; }
  /// Sequence `i` without its padding.
  std::span<const int32_t> sample(int64_t i) const { return sampleOfAll(first + i); }
  int64_t allSamples() const { return static_cast<int64_t>(lengths.size()); }
  /// The number, among all, of sample 0 of this rank.
  int64_t firstSample() const { return first; }
  std::span<const int32_t> sampleOfAll(int64_t i) const {
    return std::span(ids).subspan(i * stride, lengths[i]);
  }
  /// In which of `shares` equal shares of all samples sample `i` of them is: with the number of
  /// ranks, who has it.
  int shareOf(int64_t i, int shares) const;
  /// The first tokens of every sequence that no statistic counts: 1 with BOS, else 0.
  int64_t skipped() const { return bos ? 1 : 0; }
  /// All tokens, and those that statistics count.
  int64_t count() const;
  int64_t counted() const { return count() - allSamples() * skipped(); }
  /// What statistics of these tokens are stamped with; the model is still to be filled in.
  formats::CalibrationStamp stamp() const;
  /// XXH3-128 of the ids and lengths.
  std::string hash() const;

private:
  int64_t behindLast() const { return last < 0 ? allSamples() : last; }

  std::vector<int32_t> ids;
  int64_t stride = 0, longest = 0, asked = 0;
  std::vector<int64_t> lengths;
  int64_t first = 0, last = -1; ///< the samples of this rank; -1: to the end
  bool bos = false;
  std::string text, tokenizer;
  int64_t seed = 0;
};

} // namespace easyquant::execution

#endif // EASYQUANT_EXECUTION_TOKENS_H
