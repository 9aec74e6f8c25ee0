//===- LogitBlocks.cpp - A row of logits, block by block ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LogitBlocks.h"

#include "easyquant/Numerics/Exponential.h"

#include <bit>
#include <limits>

namespace easyquant::runtime {
namespace {

constexpr int64_t kSumLanes = 16;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
static_assert(kLogitBlock % kSumLanes == 0);

EASYQUANT_INLINE float weightOf(float x, const Weighing &weighing) {
  const float z = (x - weighing.top) * weighing.scale;
  return z < weighing.least ? 0.0f : numerics::exponential(z);
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

EASYQUANT_INLINE float sumOfBlock(const float *x, int64_t count, const Weighing &weighing) {
  float lanes[kSumLanes] = {};
  const int64_t whole = count - count % kSumLanes;
  for (int64_t i = 0; i < whole; i += kSumLanes)
    for (int64_t lane = 0; lane < kSumLanes; ++lane)
      lanes[lane] += weightOf(x[i + lane], weighing);
  for (int64_t i = whole; i < count; ++i)
    lanes[i - whole] += weightOf(x[i], weighing);
  float sum = 0;
  for (float lane : lanes)
    sum += lane;
  return sum;
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
void leaveOutLoop(const uint32_t *allowed, int64_t count, float *x) {
  constexpr int64_t bits = 32;
  int64_t word = 0;
  for (; (word + 1) * bits <= count; ++word) {
    const uint32_t own = allowed[word];
    float *values = x + word * bits;
    for (uint32_t bit = 0; bit < bits; ++bit) {
      const uint32_t keep = 0 - (own >> bit & 1), out = std::bit_cast<uint32_t>(-kInfinity);
      values[bit] =
          std::bit_cast<float>((std::bit_cast<uint32_t>(values[bit]) & keep) | (out & ~keep));
    }
  }
  for (int64_t i = word * bits; i < count; ++i)
    x[i] = (allowed[word] >> i % bits & 1) != 0 ? x[i] : -kInfinity;
}

EASYQUANT_VECTOR_CLONES
void weighLoop(const float *x, int64_t count, const Weighing &weighing, float *weights) {
  const Weighing own = weighing; // which `weights` cannot be
  for (int64_t i = 0; i < count; ++i)
    weights[i] = weightOf(x[i], own);
}

EASYQUANT_VECTOR_CLONES
void sumLoop(const float *x, int64_t count, const Weighing &weighing, float *sums) {
  const Weighing own = weighing;
  const int64_t whole = count / kLogitBlock;
  for (int64_t block = 0; block < whole; ++block)
    sums[block] = sumOfBlock(x + block * kLogitBlock, kLogitBlock, own);
  if (whole * kLogitBlock < count)
    sums[whole] = sumOfBlock(x + whole * kLogitBlock, count - whole * kLogitBlock, own);
}

} // namespace

void greatestOfBlocks(const float *x, int64_t count, float *greatest) {
  greatestLoop(x, count, greatest);
}

void leaveOut(const uint32_t *allowed, int64_t count, float *x) { leaveOutLoop(allowed, count, x); }

void weigh(const float *x, int64_t count, const Weighing &weighing, float *weights) {
  weighLoop(x, count, weighing, weights);
}

void sumBlocks(const float *x, int64_t count, const Weighing &weighing, float *sums) {
  sumLoop(x, count, weighing, sums);
}

} // namespace easyquant::runtime
