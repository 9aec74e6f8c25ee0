//===- Sampling.cpp - Choosing a token of a row of logits -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Sampling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

using namespace easyquant;
using namespace easyquant::runtime;

static constexpr float kInfinity = std::numeric_limits<float>::infinity();

//===----------------------------------------------------------------------===//
// Random numbers
//===----------------------------------------------------------------------===//

double easyquant::runtime::uniformAt(uint64_t seed, uint64_t position) {
  __extension__ using Wide = unsigned __int128;
  // Philox4x64-10, its constants by the names of the paper.
  constexpr uint64_t m0 = 0xD2E7470EE14C6C93, m1 = 0xCA5A826395121157;
  constexpr uint64_t w0 = 0x9E3779B97F4A7C15, w1 = 0xBB67AE8584CAA73B;
  uint64_t counter[4] = {position, 0, 0, 0}, key[2] = {seed, 0};
  for (int round = 0; round < 10; ++round) {
    const Wide one = Wide(m0) * counter[0], other = Wide(m1) * counter[2];
    const uint64_t next[4] = {
        static_cast<uint64_t>(other >> 64) ^ counter[1] ^ key[0], static_cast<uint64_t>(other),
        static_cast<uint64_t>(one >> 64) ^ counter[3] ^ key[1], static_cast<uint64_t>(one)};
    std::copy_n(next, 4, counter);
    key[0] += w0;
    key[1] += w1;
  }
  return static_cast<double>(counter[0] >> 11) * 0x1p-53;
}

//===----------------------------------------------------------------------===//
// What is asked
//===----------------------------------------------------------------------===//

static constexpr double kLargestShift = 1e6;
static constexpr double kLeastRepetition = 0.01, kLargestRepetition = 100;

static Result<void> checkTokens(const eq_choice &choice, int64_t vocabulary) {
  auto isToken = [&](int32_t token) { return token >= 0 && token < vocabulary; };
  if ((!choice.tokens && choice.token_count > 0) || choice.prompt_tokens > choice.token_count)
    return makeError(ErrorCode::InvalidArgument,
                     "tokens: found {} of a prompt among {}{}, expected those of the prompt and "
                     "then those of the answer",
                     choice.prompt_tokens, choice.token_count, choice.tokens ? "" : " at NULL");
  for (size_t i = 0; i < choice.token_count; ++i)
    if (!isToken(choice.tokens[i]))
      return makeError(ErrorCode::InvalidArgument,
                       "tokens[{}]: found {}, expected a token id in 0..{}", i, choice.tokens[i],
                       vocabulary - 1);
  if (!choice.bias && choice.bias_count > 0)
    return makeError(ErrorCode::InvalidArgument, "bias: found NULL, expected {} entries",
                     choice.bias_count);
  for (size_t i = 0; i < choice.bias_count; ++i) {
    const auto &[token, bias] = choice.bias[i];
    if (!isToken(token) || !(std::abs(bias) <= kLargestShift))
      return makeError(ErrorCode::InvalidArgument,
                       "bias[{}]: found {} for token {}, expected a number from -{} to {} for a "
                       "token id in 0..{}",
                       i, bias, token, kLargestShift, kLargestShift, vocabulary - 1);
  }
  const size_t words = static_cast<size_t>(vocabulary + 31) / 32;
  if (choice.allowed && choice.allowed_words != words)
    return makeError(
        ErrorCode::InvalidArgument,
        "allowed: found {} words of 32 bits, expected {} for a vocabulary of {} tokens",
        choice.allowed_words, words, vocabulary);
  if (choice.best_count > static_cast<size_t>(vocabulary) ||
      (!choice.best && choice.best_count > 0))
    return makeError(ErrorCode::InvalidArgument,
                     "best: found {} tokens{}, expected at most the {} of the vocabulary",
                     choice.best_count, choice.best ? "" : " at NULL", vocabulary);
  return {};
}

Result<void> easyquant::runtime::checkChoice(const eq_choice &choice, int64_t vocabulary) {
  struct Range {
    std::string_view name;
    double value, least, most;
  };
  const double repetition = choice.repetition_penalty;
  for (const auto &[name, value, least, most] :
       {Range{"temperature", choice.temperature, 0, std::numeric_limits<double>::max()},
        Range{"top_p", choice.top_p, 0, 1}, Range{"min_p", choice.min_p, 0, 1},
        Range{"repetition_penalty", repetition == 0 ? 1 : repetition, kLeastRepetition,
              kLargestRepetition},
        Range{"presence_penalty", choice.presence_penalty, -kLargestShift, kLargestShift},
        Range{"frequency_penalty", choice.frequency_penalty, -kLargestShift, kLargestShift}})
    if (!(value >= least && value <= most))
      return makeError(ErrorCode::InvalidArgument, "{}: found {}, expected a number from {} to {}",
                       name, value, least, most);
  if (choice.top_k < 0)
    return makeError(ErrorCode::InvalidArgument,
                     "top_k: found {}, expected at least 0 (0 is all tokens)", choice.top_k);
  if (choice.logits && choice.position < 0)
    return makeError(ErrorCode::InvalidArgument, "position: found {}, expected at least 0",
                     choice.position);
  if (choice.logits && !std::all_of(choice.logits, choice.logits + vocabulary,
                                    [](float logit) { return std::isfinite(logit); }))
    return makeError(ErrorCode::InvalidArgument,
                     "logits: found a number that is not finite, expected {} that are", vocabulary);
  return checkTokens(choice, vocabulary);
}

//===----------------------------------------------------------------------===//
// Changes of logits
//===----------------------------------------------------------------------===//

RowReader::RowReader(int64_t vocabulary) : vocabulary(vocabulary), blocks(logitBlocks(vocabulary)) {
  const auto tokens = static_cast<size_t>(vocabulary);
  changed.resize(tokens);
  counts.resize(tokens);
  which.resize(tokens);
  weights.resize(tokens);
  candidates.reserve(tokens);
  ordered.reserve(tokens);
  for (std::vector<float> *each : {&greatest, &selected, &sums})
    each->resize(static_cast<size_t>(blocks));
}

bool easyquant::runtime::hasPenalty(const eq_choice &choice) {
  return choice.token_count > 0 &&
         ((choice.repetition_penalty != 0 && choice.repetition_penalty != 1) ||
          choice.presence_penalty != 0 || choice.frequency_penalty != 0);
}

bool easyquant::runtime::changesLogits(const eq_choice &choice) {
  return hasPenalty(choice) || choice.bias_count > 0;
}

const float *RowReader::change(const float *logits, const eq_choice &choice) noexcept {
  const float *scores = logits;
  if (changesLogits(choice)) {
    std::copy_n(logits, vocabulary, changed.data());
    scores = changed.data();
    auto make = [&](const formats::LogitChange &change) {
      float &score = changed[static_cast<size_t>(change.token)];
      score = change.of(score);
    };
    forEachPenalty(choice, counts, make);
    forEachBias(choice, make);
  }
  if (!choice.allowed)
    return scores;
  copyAllowed(choice.allowed, scores, vocabulary, changed.data());
  return changed.data();
}

//===----------------------------------------------------------------------===//
// Selection
//===----------------------------------------------------------------------===//

float RowReader::top() const noexcept {
  return *std::max_element(greatest.begin(), greatest.end());
}

int32_t RowReader::firstOf(const float *scores, float score) const noexcept {
  const auto block = std::find(greatest.begin(), greatest.end(), score) - greatest.begin();
  return static_cast<int32_t>(std::find(scores + block * kLogitBlock, scores + vocabulary, score) -
                              scores);
}

float RowReader::reachedBy(int64_t count) noexcept {
  if (count > blocks)
    return -kInfinity;
  selected = greatest;
  const auto place = selected.begin() + (count - 1);
  std::nth_element(selected.begin(), place, selected.end(), std::greater<>());
  return *place;
}

bool RowReader::collect(const float *scores, float least, int64_t most) noexcept {
  least = std::max(least, std::numeric_limits<float>::lowest()); // what is out stays out
  const int64_t count = reaching(scores, vocabulary, greatest.data(), least, which.data());
  if (count > most)
    return false;
  candidates.clear();
  for (int32_t token : std::span(which).first(static_cast<size_t>(count)))
    candidates.push_back({scores[token], token, 0});
  return true;
}

/// Copies what is to stay to `to`, where it may be already. Without branches, which no one could
/// foresee: each is written, and the next one over it unless it stays.
template <typename Candidates, typename Stays>
static void filter(const Candidates &from, Candidates &to, const Stays &stays) {
  size_t size = 0;
  to.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    const auto each = from[i];
    to[size] = each;
    size += stays(each) ? 1 : 0;
  }
  to.resize(size);
}

void RowReader::keepUpTo(const Candidate &last) noexcept {
  filter(candidates, candidates, [last](const Candidate &each) {
    return (each.score > last.score) | ((each.score == last.score) & (each.token <= last.token));
  });
}

void RowReader::keepFirst(int64_t count) noexcept {
  if (std::ssize(candidates) <= count)
    return;
  ordered = candidates;
  const auto last = ordered.begin() + (count - 1);
  std::nth_element(ordered.begin(), last, ordered.end(), isBefore);
  keepUpTo(Candidate(*last));
}

/// A weight as an integer: sums of these are the same in any order, so that a nucleus is what it is
/// whichever tokens are looked at besides, and however.
static uint64_t unitsOf(float weight) {
  return static_cast<uint64_t>(weight * static_cast<float>(uint64_t(1) << formats::kWeightBits));
}
/// What a nucleus is to reach, at least its first token.
static uint64_t unitsOfNucleus(double weight) {
  constexpr auto unit = static_cast<double>(uint64_t(1) << formats::kWeightBits);
  return std::max<uint64_t>(1, static_cast<uint64_t>(weight * unit));
}

namespace {
/// Sums of weights by bucket, in two parts, since neighbours often are of one bucket.
class Buckets {
public:
  static constexpr size_t kCount = 1024;

  void add(size_t bucket, float weight, size_t part) { sums[part % 2][bucket] += unitsOf(weight); }

  struct Reached {
    size_t bucket;
    uint64_t before; ///< the sum of those before it
  };
  /// The bucket in which a sum is reached; none where all together do not.
  std::optional<Reached> find(uint64_t units) const {
    uint64_t sum = 0;
    for (size_t bucket = 0; bucket < kCount; ++bucket) {
      const uint64_t own = sums[0][bucket] + sums[1][bucket];
      if (sum + own >= units)
        return Reached{bucket, sum};
      sum += own;
    }
    return std::nullopt;
  }

private:
  std::array<uint64_t, kCount> sums[2] = {};
};
} // namespace

RowReader::Candidate RowReader::lastNeeded(uint64_t units) noexcept {
  constexpr size_t few = 64;
  const auto isBelow = [](const Candidate &one, const Candidate &other) {
    return one.score < other.score;
  };
  while (ordered.size() > few) {
    const auto [least, most] = std::minmax_element(ordered.begin(), ordered.end(), isBelow);
    const double top = most->score, range = top - least->score;
    if (range == 0)
      break;
    // At least one end is in another bucket than the rest, so that this comes to an end.
    const double scale = (Buckets::kCount - 1) / range;
    auto bucketOf = [&](const Candidate &each) {
      return static_cast<size_t>((top - each.score) * scale);
    };
    Buckets buckets;
    for (size_t i = 0; i < ordered.size(); ++i)
      buckets.add(bucketOf(ordered[i]), ordered[i].weight, i);
    const auto [reached, before] = *buckets.find(units);
    filter(ordered, ordered, [&](const Candidate &each) { return bucketOf(each) == reached; });
    units -= before;
  }
  if (ordered.size() <= few) // else equal, in the order of tokens
    std::sort(ordered.begin(), ordered.end(), isBefore);
  size_t last = 0;
  for (uint64_t sum = unitsOf(ordered[0].weight); sum < units;)
    sum += unitsOf(ordered[++last].weight);
  return ordered[last];
}

uint64_t RowReader::unitsOfCandidates() const noexcept {
  uint64_t units = 0;
  for (const Candidate &candidate : candidates)
    units += unitsOf(candidate.weight);
  return units;
}

void RowReader::keepNucleus(double weight) noexcept {
  const uint64_t units = unitsOfNucleus(weight);
  if (unitsOfCandidates() < units)
    return; // by rounding
  ordered = candidates;
  keepUpTo(lastNeeded(units));
}

//===----------------------------------------------------------------------===//
// Drawing
//===----------------------------------------------------------------------===//

static double sumOf(std::span<const float> sums) {
  double total = 0;
  for (float sum : sums)
    total += sum;
  return total;
}

double RowReader::sumBlocks(const float *scores, const Weighing &weighing) noexcept {
  runtime::sumBlocks(scores, vocabulary, greatest.data(), weighing, sums.data());
  return sumOf(sums);
}

template <typename WeightsOf>
int32_t RowReader::drawOfBlocks(double reached, const WeightsOf &weightsOf) const noexcept {
  // Where rounding leaves nothing behind `reached`, the last token that may be drawn is.
  size_t chosen = 0;
  double before = 0, sum = 0;
  for (size_t block = 0; block < sums.size(); sum += sums[block++]) {
    if (sums[block] == 0)
      continue;
    chosen = block;
    before = sum;
    if (sum + sums[block] > reached)
      break;
  }
  const auto first = static_cast<int64_t>(chosen) * kLogitBlock;
  const int64_t count = std::min(kLogitBlock, vocabulary - first);
  float own[kLogitBlock];
  weightsOf(first, count, own);
  int64_t token = first;
  for (int64_t i = 0; i < count && before <= reached; ++i)
    if (own[i] > 0) {
      token = first + i;
      before += own[i];
    }
  return static_cast<int32_t>(token);
}

int32_t RowReader::drawOfRow(const float *scores, const Weighing &weighing, double u) noexcept {
  const double reached = u * sumBlocks(scores, weighing);
  return drawOfBlocks(reached, [&](int64_t first, int64_t count, float *own) {
    weigh(scores + first, count, weighing, own);
  });
}

int32_t RowReader::drawOfCandidates(double u) const noexcept {
  double total = 0, sum = 0;
  for (const Candidate &candidate : candidates)
    total += candidate.weight;
  int32_t token = candidates.front().token;
  for (const Candidate &candidate : candidates)
    if (candidate.weight > 0) {
      token = candidate.token;
      if ((sum += candidate.weight) > u * total)
        break;
    }
  return token;
}

/// The score of a weight, or a little less.
static float scoreOf(double weight, const Weighing &weighing) {
  return static_cast<float>(weighing.top + (std::log(weight) - 1e-3) / weighing.scale);
}

double RowReader::weighCandidates(const Weighing &weighing) noexcept {
  double total = 0;
  for (size_t begin = 0; begin < candidates.size(); begin += kLogitBlock) {
    const size_t count = std::min<size_t>(kLogitBlock, candidates.size() - begin);
    float packed[kLogitBlock], weights[kLogitBlock];
    for (size_t i = 0; i < count; ++i)
      packed[i] = candidates[begin + i].score;
    weigh(packed, static_cast<int64_t>(count), weighing, weights);
    for (size_t i = 0; i < count; ++i)
      total += candidates[begin + i].weight = weights[i];
  }
  return total;
}

bool RowReader::collectNucleus(const float *scores, const Weighing &weighing, double share,
                               double total) noexcept {
  // A token whose weight is below so much of what may be missing, of so many tokens an equal part.
  // Where these are all, no more can be missing; most often it is few that are.
  constexpr int64_t few = 1 << 14;
  for (double count : {64.0, 1024.0, 16384.0}) {
    if (!collect(scores, scoreOf((1 - share) * total / count, weighing), few))
      return false;
    weighCandidates(weighing);
    if (unitsOfCandidates() >= unitsOfNucleus(share * total))
      return true;
  }
  return false;
}

int32_t RowReader::drawOfNucleus(const float *scores, Weighing weighing, float leastOfMinP,
                                 double share, double total, double u) noexcept {
  // Buckets down to the weight that even all tokens together do not miss; what is below it, or its
  // rounding, is in the last one.
  const uint64_t units = unitsOfNucleus(share * total);
  const float least = scoreOf((1 - share) * total / static_cast<double>(vocabulary), weighing);
  constexpr auto last = static_cast<int32_t>(Buckets::kCount - 1);
  const double range = static_cast<double>(weighing.top) - least;
  const auto scale = static_cast<float>(
      range > 0 ? std::min<double>(last / range, std::numeric_limits<float>::max()) : 1.0);
  bucketsOf(scores, vocabulary, weighing.top, scale, last, which.data());
  weigh(scores, vocabulary, weighing, weights.data());
  Buckets buckets;
  for (size_t i = 0; i < which.size(); ++i)
    buckets.add(static_cast<size_t>(which[i]), weights[i], i);
  Candidate border = {-kInfinity, -1, 0}; // all, where rounding keeps them below
  if (const auto found = buckets.find(units)) {
    ordered.clear();
    for (size_t i = 0; i < which.size(); ++i)
      if (which[i] == static_cast<int32_t>(found->bucket) && weights[i] > 0)
        ordered.push_back({scores[i], static_cast<int32_t>(i), weights[i]});
    border = lastNeeded(units - found->before);
  }
  weighing.least = leastOfMinP;
  keepFirstWeights(scores, vocabulary, border.score, border.token, weighing, weights.data(),
                   sums.data());
  return drawOfBlocks(u * sumOf(sums), [&](int64_t first, int64_t count, float *own) {
    std::copy_n(weights.data() + first, count, own);
  });
}

Draw::Draw(const eq_choice &choice, int64_t vocabulary)
    : isGreedy(choice.temperature == 0 || choice.top_k == 1 || choice.top_p == 0),
      // A finite factor, which still takes all but the greatest out, respectively none.
      scale(static_cast<float>(1 / std::clamp(choice.temperature, 1e-30, 1e30))),
      least(std::max(static_cast<float>(std::log(choice.min_p)), formats::kLeastExponent)),
      topK(choice.top_k < vocabulary ? choice.top_k : 0), topP(choice.top_p) {}

int32_t RowReader::choose(const float *logits, const eq_choice &choice, int64_t position) noexcept {
  const float *scores = change(logits, choice);
  greatestOfBlocks(scores, vocabulary, greatest.data());
  Weighing weighing = {.top = top()};
  if (weighing.top == -kInfinity)
    return -1;
  const Draw draw(choice, vocabulary);
  if (draw.isGreedy)
    return firstOf(scores, weighing.top);
  weighing.scale = draw.scale;
  const double u = uniformAt(choice.seed, static_cast<uint64_t>(position));
  if (draw.topK == 0 && draw.topP == 1) {
    weighing.least = draw.least;
    return drawOfRow(scores, weighing, u);
  }

  double total = 0;
  if (draw.topK > 0) {
    collect(scores, reachedBy(draw.topK), vocabulary);
    keepFirst(draw.topK);
    total = weighCandidates(weighing);
  } else {
    total = sumBlocks(scores, weighing);
    if (!collectNucleus(scores, weighing, draw.topP, total))
      return drawOfNucleus(scores, weighing, draw.least, draw.topP, total, u);
  }
  if (draw.topP < 1)
    keepNucleus(draw.topP * total);
  if (choice.min_p > 0)
    filter(candidates, candidates, [&](const Candidate &candidate) {
      return (candidate.score - weighing.top) * weighing.scale >= draw.least;
    });
  return drawOfCandidates(u);
}

void RowReader::describe(const float *logits, int32_t token, double *logprob,
                         std::span<eq_logprob> best) noexcept {
  greatestOfBlocks(logits, vocabulary, greatest.data());
  const float most = top();
  const double logTotal = most + std::log(sumBlocks(logits, {.top = most}));
  if (logprob)
    *logprob = logits[token] - logTotal;
  if (best.empty())
    return;
  collect(logits, reachedBy(std::ssize(best)), vocabulary);
  std::partial_sort(candidates.begin(), candidates.begin() + std::ssize(best), candidates.end(),
                    isBefore);
  for (size_t i = 0; i < best.size(); ++i)
    best[i] = {candidates[i].token, candidates[i].score - logTotal};
}
