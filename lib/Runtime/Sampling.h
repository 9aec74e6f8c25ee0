//===- Sampling.h - Choosing a token of a row of logits ---------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The definition is at eq_choice of easyquant.h. No vocabulary is sorted: the greatest logits of
// blocks of 64 tell which blocks can hold what is looked for. Private to the runtime.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_RUNTIME_SAMPLING_H
#define EASYQUANT_LIB_RUNTIME_SAMPLING_H

#include "LogitBlocks.h"

#include "easyquant/Formats/TokenChoice.h"
#include "easyquant/Runtime/easyquant.h"
#include "easyquant/Support/Result.h"

#include <cstdint>
#include <span>
#include <vector>

namespace easyquant::runtime {

/// The random number of a place: 0 <= u < 1, a multiple of 2^-53.
double uniformAt(uint64_t seed, uint64_t position);

/// What a choice comes to, once penalties, bias and `allowed` have been seen to.
struct Draw {
  bool isGreedy; ///< the first greatest logit; what follows says nothing then
  float scale;   ///< of exponents
  float least;   ///< of exponents, by min_p
  int64_t topK;  ///< 0: all
  double topP;   ///< 1: all

  Draw(const eq_choice &choice, int64_t vocabulary);
};

/// Whether penalties or bias make other logits of those of a row.
bool changesLogits(const eq_choice &choice);

/// Calls body(change) for what the penalties of a choice make of a row, each token once. `counts`
/// of the vocabulary's tokens are all 0, before and after.
template <typename Body>
void forEachPenalty(const eq_choice &choice, std::span<int32_t> counts, Body body);
/// For each bias, behind the penalties; a token may be there several times.
template <typename Body> void forEachBias(const eq_choice &choice, Body body) {
  for (const auto &[token, bias] : std::span(choice.bias, choice.bias_count))
    body(formats::LogitChange{.bias = bias, .token = token});
}

/// Errors: InvalidArgument, naming the member.
Result<void> checkChoice(const eq_choice &choice, int64_t vocabulary);

/// What one thread needs to look at rows of logits, which are finite. All memory is taken when it
/// is made.
class RowReader {
public:
  explicit RowReader(int64_t vocabulary);

  /// The token; -1 where none is allowed. `choice` has been checked.
  int32_t choose(const float *logits, const eq_choice &choice, int64_t position) noexcept;

  /// Log-probability of a token, where `logprob` is not null, and the most likely tokens.
  void describe(const float *logits, int32_t token, double *logprob,
                std::span<eq_logprob> best) noexcept;

  int64_t bytes() const { return vocabulary * int64_t(2 * sizeof(Candidate) + 4 * sizeof(float)); }

private:
  struct Candidate {
    float score;
    int32_t token;
    float weight;
  };
  /// What comes before another: the greater score, of equal ones the first token.
  static bool isBefore(const Candidate &one, const Candidate &other) {
    return one.score != other.score ? one.score > other.score : one.token < other.token;
  }

  /// Penalties, bias and allowed tokens, on a copy.
  const float *change(const float *logits, const eq_choice &choice) noexcept;
  /// The greatest logit of the row, by `greatest`.
  float top() const noexcept;
  int32_t firstOf(const float *scores, float score) const noexcept;
  /// A score that at least `count` tokens reach.
  float reachedBy(int64_t count) noexcept;
  /// Fills `candidates`, in the order of tokens, with those that reach a score; false if there are
  /// more than `most`.
  bool collect(const float *scores, float least, int64_t most) noexcept;
  /// With the weights of candidates; their sum.
  double weighCandidates(const Weighing &weighing) noexcept;
  /// Collects and weighs tokens among which the fewest are that have a share of the total weight;
  /// false if these may be many.
  bool collectNucleus(const float *scores, const Weighing &weighing, double share,
                      double total) noexcept;
  /// Keeps only the first `count` candidates by isBefore, in the order of tokens.
  void keepFirst(int64_t count) noexcept;
  /// Keeps only the fewest candidates that have so much weight.
  void keepNucleus(double weight) noexcept;
  uint64_t unitsOfCandidates() const noexcept;
  /// The last by isBefore of the fewest that have so much weight, of the candidates in `ordered`,
  /// which are in the order of tokens and together have as much. Spoils them.
  Candidate lastNeeded(uint64_t units) noexcept;
  void keepUpTo(const Candidate &last) noexcept;
  double sumBlocks(const float *scores, const Weighing &weighing) noexcept;
  /// weightsOf(first, count, to) gives the weights of a block, whose sums are in `sums`.
  template <typename WeightsOf>
  int32_t drawOfBlocks(double reached, const WeightsOf &weightsOf) const noexcept;
  int32_t drawOfRow(const float *scores, const Weighing &weighing, double u) noexcept;
  /// Draws from the fewest tokens, which may be many, that have a share of the total weight.
  int32_t drawOfNucleus(const float *scores, Weighing weighing, float leastOfMinP, double share,
                        double total, double u) noexcept;
  int32_t drawOfCandidates(double u) const noexcept;

  const int64_t vocabulary, blocks;
  std::vector<float> changed, greatest, selected, sums, weights;
  std::vector<Candidate> candidates, ordered;
  std::vector<int32_t> counts; ///< of tokens; all 0 between calls
  std::vector<int32_t> which;  ///< tokens, while candidates are made of them
};

bool hasPenalty(const eq_choice &choice);

template <typename Body>
void forEachPenalty(const eq_choice &choice, std::span<int32_t> counts, Body body) {
  if (!hasPenalty(choice))
    return;
  constexpr int32_t isThere = int32_t(1) << 30;
  const std::span tokens(choice.tokens, choice.token_count);
  for (size_t i = 0; i < tokens.size(); ++i) {
    int32_t &count = counts[static_cast<size_t>(tokens[i])];
    count |= isThere;
    if (i >= choice.prompt_tokens)
      ++count;
  }
  const double repetition = choice.repetition_penalty == 0 ? 1 : choice.repetition_penalty;
  for (int32_t token : tokens) {
    int32_t &count = counts[static_cast<size_t>(token)];
    if (count == 0) // has been seen to
      continue;
    formats::LogitChange change{.repetition = repetition, .token = token};
    if (const int32_t answered = count & ~isThere; answered > 0)
      change.shift = choice.frequency_penalty * answered + choice.presence_penalty;
    body(change);
    count = 0;
  }
}

} // namespace easyquant::runtime

#endif // EASYQUANT_LIB_RUNTIME_SAMPLING_H
