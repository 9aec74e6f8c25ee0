//===- LogitBlocks.h - A row of logits, block by block ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The passes over a vocabulary that choosing a token makes. Blocks have kLogitBlock logits, the
// last one what is left. The weight of a logit x is e^z with z = (x - top) * scale, and 0 where
// z < least, which is at least -87; `top` is the greatest logit, so that no weight is above 1.
// Logits may be -infinity.
// All CPUs compute the same bits. Private to the runtime.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_RUNTIME_LOGITBLOCKS_H
#define EASYQUANT_LIB_RUNTIME_LOGITBLOCKS_H

#include "easyquant/Formats/TokenChoice.h"

namespace easyquant::runtime {

using formats::kLogitBlock;

constexpr int64_t logitBlocks(int64_t count) { return (count + kLogitBlock - 1) / kLogitBlock; }

/// The greatest logit of each block.
void greatestOfBlocks(const float *x, int64_t count, float *greatest);

/// Copies logits, which may lie where they are copied to, but -infinity where the bit (i % 32 of
/// word i / 32) is 0.
void copyAllowed(const uint32_t *allowed, const float *x, int64_t count, float *to);

/// The logits that reach `least`, by their numbers and in their order, and how many they are.
int64_t reaching(const float *x, int64_t count, const float *greatest, float least, int32_t *which);

struct Weighing {
  float top = 0, scale = 1, least = formats::kLeastExponent;
};

void weigh(const float *x, int64_t count, const Weighing &weighing, float *weights);

/// The sum of each block's weights: f32 within a block.
void sumBlocks(const float *x, int64_t count, const float *greatest, const Weighing &weighing,
               float *sums);

/// (top - x) * scale without its fraction, at most `last`: no logit is in a bucket before that of a
/// greater one.
void bucketsOf(const float *x, int64_t count, float top, float scale, int32_t last,
               int32_t *buckets);

/// Takes the weight of what comes behind logit number `token`, whose value is `score`, and of what
/// is below `weighing.least`; then sums as sumBlocks.
void keepFirstWeights(const float *x, int64_t count, float score, int32_t token,
                      const Weighing &weighing, float *weights, float *sums);

} // namespace easyquant::runtime

#endif // EASYQUANT_LIB_RUNTIME_LOGITBLOCKS_H
