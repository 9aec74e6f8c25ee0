//===- LogitBlocks.cpp - A row of logits, block by block ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LogitBlocks.h"

#include "easyquant/Numerics/Exponential.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace easyquant::runtime {
namespace {

constexpr int64_t kSumLanes = 16;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
static_assert(kLogitBlock % kSumLanes == 0);
constexpr int64_t kBits = 32; ///< of a word
static_assert(kLogitBlock == 2 * kBits);

EASYQUANT_INLINE bool isWeightless(float x, const Weighing &weighing) {
  return (x - weighing.top) * weighing.scale < weighing.least;
}

EASYQUANT_INLINE float weightOf(float x, const Weighing &weighing) {
  const float z = (x - weighing.top) * weighing.scale;
  return z < weighing.least ? 0.0f : numerics::exponentialInRange(z);
}

EASYQUANT_INLINE float greatestOfBlock(const float *x, int64_t count) {
  float lanes[kSumLanes];
  for (float &lane : lanes)
    lane = -kInfinity;
  const int64_t whole = count - count % kSumLanes;
  for (int64_t i = 0; i < whole; i += kSumLanes)
    for (int64_t lane = 0; lane < kSumLanes; ++lane)
      lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
  for (int64_t i = whole; i < count; ++i)
    lanes[i - whole] = x[i] > lanes[i - whole] ? x[i] : lanes[i - whole];
  float greatest = lanes[0];
  for (float lane : lanes)
    greatest = lane > greatest ? lane : greatest;
  return greatest;
}

/// Spoils the weights.
EASYQUANT_INLINE float sumOfWeights(float (&weights)[kLogitBlock]) {
  for (int64_t half = kLogitBlock / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i)
      weights[i] += weights[half + i];
  return weights[0];
}

EASYQUANT_INLINE float sumOfBlock(const float *x, int64_t count, const Weighing &weighing) {
  float weights[kLogitBlock] = {};
  for (int64_t i = 0; i < count; ++i)
    weights[i] = weightOf(x[i], weighing);
  return sumOfWeights(weights);
}

EASYQUANT_INLINE float keepOfBlock(const float *x, int64_t count, int64_t first, float score,
                                   int32_t token, const Weighing &weighing, float *weights) {
  float kept[kLogitBlock] = {};
  for (int64_t i = 0; i < count; ++i) {
    const bool isBefore = (x[i] > score) | ((x[i] == score) & (first + i <= token));
    const bool stays = isBefore & !isWeightless(x[i], weighing);
    kept[i] = stays ? weights[i] : 0.0f;
  }
  std::copy_n(kept, count, weights);
  return sumOfWeights(kept);
}

// Whole blocks apart from what is left, so that their loops have a count that the compiler knows.

EASYQUANT_VECTOR_CLONES
void greatestLoop(const float *x, int64_t count, float *greatest) {
  const int64_t whole = count / kLogitBlock;
  for (int64_t block = 0; block < whole; ++block)
    greatest[block] = greatestOfBlock(x + block * kLogitBlock, kLogitBlock);
  if (whole * kLogitBlock < count)
    greatest[whole] = greatestOfBlock(x + whole * kLogitBlock, count - whole * kLogitBlock);
}

EASYQUANT_VECTOR_CLONES
void copyAllowedLoop(const uint32_t *allowed, const float *x, int64_t count, float *to) {
  int64_t word = 0;
  for (; (word + 1) * kBits <= count; ++word) {
    const uint32_t own = allowed[word];
    const float *values = x + word * kBits;
    float kept[kBits]; // as `to` may be x
    for (uint32_t bit = 0; bit < kBits; ++bit) {
      const uint32_t keep = 0 - (own >> bit & 1), out = std::bit_cast<uint32_t>(-kInfinity);
      kept[bit] =
          std::bit_cast<float>((std::bit_cast<uint32_t>(values[bit]) & keep) | (out & ~keep));
    }
    std::copy_n(kept, kBits, to + word * kBits);
  }
  for (int64_t i = word * kBits; i < count; ++i)
    to[i] = (allowed[word] >> i % kBits & 1) != 0 ? x[i] : -kInfinity;
}

/// A bit for each of 32 logits that reaches `least`.
EASYQUANT_INLINE uint32_t reachingBits(const float *x, float least) {
  uint32_t bits = 0;
  for (uint32_t bit = 0; bit < kBits; ++bit)
    bits |= x[bit] >= least ? uint32_t(1) << bit : 0;
  return bits;
}

EASYQUANT_VECTOR_CLONES
int64_t reachingLoop(const float *x, int64_t count, const float *greatest, float least,
                     int32_t *which) {
  int32_t *next = which;
  for (int64_t block = 0; block < logitBlocks(count); ++block) {
    if (!(greatest[block] >= least))
      continue;
    const int64_t first = block * kLogitBlock;
    if (first + kLogitBlock > count) {
      for (int64_t i = first; i < count; ++i)
        if (x[i] >= least)
          *next++ = static_cast<int32_t>(i);
      break;
    }
    uint64_t bits =
        reachingBits(x + first, least) | uint64_t(reachingBits(x + first + kBits, least)) << kBits;
    for (; bits != 0; bits &= bits - 1)
      *next++ = static_cast<int32_t>(first + std::countr_zero(bits));
  }
  return next - which;
}

EASYQUANT_VECTOR_CLONES
void weighLoop(const float *x, int64_t count, const Weighing &weighing, float *weights) {
  const Weighing own = weighing; // which `weights` cannot be
  for (int64_t i = 0; i < count; ++i)
    weights[i] = weightOf(x[i], own);
}

EASYQUANT_VECTOR_CLONES
void sumLoop(const float *x, int64_t count, const float *greatest, const Weighing &weighing,
             float *sums) {
  const Weighing own = weighing;
  const int64_t whole = count / kLogitBlock;
  for (int64_t block = 0; block < whole; ++block)
    sums[block] = isWeightless(greatest[block], own)
                      ? 0.0f
                      : sumOfBlock(x + block * kLogitBlock, kLogitBlock, own);
  if (whole * kLogitBlock < count)
    sums[whole] = sumOfBlock(x + whole * kLogitBlock, count - whole * kLogitBlock, own);
}

EASYQUANT_VECTOR_CLONES
void bucketLoop(const float *x, int64_t count, float top, float scale, int32_t last,
                int32_t *buckets) {
  const auto most = static_cast<float>(last);
  for (int64_t i = 0; i < count; ++i) {
    const float place = (top - x[i]) * scale;
    buckets[i] = static_cast<int32_t>(place < most ? place : most);
  }
}

EASYQUANT_VECTOR_CLONES
void keepLoop(const float *x, int64_t count, float score, int32_t token, const Weighing &weighing,
              float *weights, float *sums) {
  const Weighing own = weighing;
  const int64_t whole = count / kLogitBlock;
  for (int64_t block = 0; block < whole; ++block) {
    const int64_t first = block * kLogitBlock;
    sums[block] = keepOfBlock(x + first, kLogitBlock, first, score, token, own, weights + first);
  }
  if (const int64_t first = whole * kLogitBlock; first < count)
    sums[whole] = keepOfBlock(x + first, count - first, first, score, token, own, weights + first);
}

} // namespace

void greatestOfBlocks(const float *x, int64_t count, float *greatest) {
  greatestLoop(x, count, greatest);
}

void copyAllowed(const uint32_t *allowed, const float *x, int64_t count, float *to) {
  copyAllowedLoop(allowed, x, count, to);
}

int64_t reaching(const float *x, int64_t count, const float *greatest, float least,
                 int32_t *which) {
  return reachingLoop(x, count, greatest, least, which);
}

void weigh(const float *x, int64_t count, const Weighing &weighing, float *weights) {
  weighLoop(x, count, weighing, weights);
}

void sumBlocks(const float *x, int64_t count, const float *greatest, const Weighing &weighing,
               float *sums) {
  sumLoop(x, count, greatest, weighing, sums);
}

void bucketsOf(const float *x, int64_t count, float top, float scale, int32_t last,
               int32_t *buckets) {
  bucketLoop(x, count, top, scale, last, buckets);
}

void keepFirstWeights(const float *x, int64_t count, float score, int32_t token,
                      const Weighing &weighing, float *weights, float *sums) {
  keepLoop(x, count, score, token, weighing, weights, sums);
}

} // namespace easyquant::runtime
