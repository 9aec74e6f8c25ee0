//===- TokenChoice.h - What kernels read of a choice of tokens --*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Tokens are chosen from rows of logits that stay on the device. Kernels do what lib/Runtime's
// RowReader does, operation by operation, so that both choose the same tokens: weights in f32,
// their sums within blocks of logits as a tree in f32, those of blocks one after the other in
// double, and those that a nucleus is found by in integers, whose order is of no account.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_TOKENCHOICE_H
#define EASYQUANT_FORMATS_TOKENCHOICE_H

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

namespace easyquant::formats {

/// Logits of a block.
inline constexpr int64_t kLogitBlock = 64;
/// Weights are at most 1. As integers they are so many bits longer, without what is behind these.
inline constexpr int kWeightBits = 40;
/// The least z of which there is a weight e^z.
inline constexpr float kLeastExponent = -87;

/// Rows lie at multiples of 16 bytes.
constexpr int64_t keptLogits(int64_t vocabulary) { return (vocabulary + 3) / 4 * 4; }

/// Tokens among which a kernel looks for those that may stay. With more the host chooses.
inline constexpr int64_t kMostCandidates = 1024;

/// How tokens are chosen; many choices may have the same.
struct ChoiceSetting {
  float scale;     ///< weights are e^((x - greatest) * scale)
  float least;     ///< of the exponent, by min_p: kLeastExponent or more
  int32_t topK;    ///< 0: all
  int32_t padding; ///< 0
  double topP;     ///< 1: all
};
static_assert(sizeof(ChoiceSetting) == 24);

/// A choice in the bytes that go up for it: a random number below 1 as a multiple of 2^-53, the
/// number of its setting, and that of the row of logits.
struct TokenChoice {
  static constexpr int kDrawBits = 53;
  static constexpr int64_t kMostSettings = int64_t(1) << (64 - kDrawBits);
  uint32_t drawLow;  ///< of the 53 bits
  uint32_t drawHigh; ///< the others, below the number of the setting
  int32_t slot;

  static TokenChoice of(double draw, int64_t setting, int64_t slot) {
    const auto bits = static_cast<uint64_t>(draw * 0x1p53);
    return {static_cast<uint32_t>(bits),
            static_cast<uint32_t>(bits >> 32 | static_cast<uint64_t>(setting) << (kDrawBits - 32)),
            static_cast<int32_t>(slot)};
  }
};
static_assert(sizeof(TokenChoice) == 12);

/// What a penalty or a bias makes of one logit: x > 0 ? x / repetition : x * repetition, less
/// `shift`, in double, within the range of floats; as f32, plus `bias`.
struct LogitChange {
  double repetition = 1, shift = 0;
  float bias = 0;
  int32_t token = 0;
  int32_t row = 0; ///< among those that are changed
  int32_t padding = 0;

  float of(float x) const {
    constexpr double most = std::numeric_limits<float>::max();
    const double value = (x > 0 ? x / repetition : x * repetition) - shift;
    return static_cast<float>(std::clamp(value, -most, most)) + bias;
  }
};
static_assert(sizeof(LogitChange) == 32);

/// The greatest logit of a row and its first token, in 64 bits that are greater for what comes
/// first. All bits set: a logit is not finite.
struct GreatestLogit {
  uint64_t bits = 0;

  bool isFinite() const { return bits != ~uint64_t(0); }
  float logit() const {
    const auto ordered = static_cast<uint32_t>(bits >> 32);
    return std::bit_cast<float>(ordered >> 31 ? ordered ^ 0x80000000u : ~ordered);
  }
  int32_t token() const { return static_cast<int32_t>(~static_cast<uint32_t>(bits)); }
};

/// What is said of a row for which a kernel leaves the choice to the host.
inline constexpr int32_t kLeftToHost = -1;

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_TOKENCHOICE_H
