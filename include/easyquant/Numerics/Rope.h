//===- Rope.h - Rotary position embeddings ----------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Su et al., "RoFormer" (2021). The first R dimensions of a head turn: i pairs with i + R/2 (the
// Hugging Face convention), and at position p the pair turns by p * f_i, f_i = theta^(-2i/R) before
// scaling. R is the head's dimension but in models of partial rotation (Black et al.,
// "GPT-NeoX-20B", 2022), which leave the last dimensions as they are.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_ROPE_H
#define EASYQUANT_NUMERICS_ROPE_H

#include "easyquant/Support/Result.h"

#include <cmath>
#include <cstdint>
#include <vector>

namespace easyquant::numerics {

/// `rope_scaling` of config.json.
enum class RopeScaling {
  None,
  Linear, ///< "linear": every f_i / factor (positions interpolated)
  /// "llama3" (Llama 3.1): with the wavelength w = 2 pi / f_i and L = originalPositions,
  ///   w < L / highFrequencyFactor: f_i;   w > L / lowFrequencyFactor: f_i / factor;
  ///   between: (1 - t) f_i / factor + t f_i, t = (L / w - low) / (high - low).
  Llama3,
  /// "yarn" (Peng et al., "YaRN", 2023, https://arxiv.org/abs/2309.00071): with the pair that turns
  /// r times over L = originalPositions, d(r) = R ln(L / (2 pi r)) / (2 ln theta), the ends
  /// a = floor d(betaFast) and b = ceil d(betaSlow), clamped to [0, R - 1], and the ramp
  /// t_i = (i - a) / (b - a) clamped to [0, 1]: t f_i / factor + (1 - t) f_i, and every rotation
  /// times attentionFactor. Without `truncate` a and b stay fractions.
  Yarn,
  /// "longrope" (Ding et al., "LongRoPE", 2024, https://arxiv.org/abs/2402.13753):
  /// f_i / divisors[i], and every rotation times attentionFactor.
  LongRope,
  /// "proportional" (Gemma 4): f_i of the first turnedPairs pairs, 0 of the others, which stay as
  /// they are.
  Proportional,
};

struct RopeParams {
  int64_t dims = 0;       ///< R: so many dimensions of a head turn, the first ones
  double theta = 10000.0; ///< rope_theta
  RopeScaling scaling = RopeScaling::None;
  double factor = 1.0;              ///< factor
  double lowFrequencyFactor = 1.0;  ///< low_freq_factor
  double highFrequencyFactor = 4.0; ///< high_freq_factor
  int64_t originalPositions = 8192; ///< original_max_position_embeddings
  double betaFast = 32.0;           ///< beta_fast
  double betaSlow = 1.0;            ///< beta_slow
  double attentionFactor = 1.0;     ///< attention_factor
  bool truncate = true;             ///< truncate
  /// YaRN: rotations at position p are times 1 + lateGain ln(1 + floor(p / L)) as well, which is 1
  /// in the first L = originalPositions tokens. Queries alone have it, so that products with keys
  /// of long texts do not flatten (Llama 4; `llama_4_scaling_beta`).
  double lateGain = 0.0;
  std::vector<float> divisors = {}; ///< short_factor or long_factor: R/2
  int64_t turnedPairs = 0;          ///< Proportional, 1 .. R/2: partial_rotary_factor R/2

  bool operator==(const RopeParams &) const = default;
};

/// YaRN's attentionFactor where a model states none: 0.1 mscale ln(factor) + 1.
inline double yarnAttentionFactor(double factor, double mscale = 1.0) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

/// LongRoPE's attentionFactor where a model states none: sqrt(1 + ln(factor) / ln(L)), `factor`
/// being how many times as long contexts have become as the L = originalPositions of before.
inline double longRopeAttentionFactor(double factor, int64_t originalPositions) {
  return factor <= 1.0
             ? 1.0
             : std::sqrt(1.0 + std::log(factor) / std::log(static_cast<double>(originalPositions)));
}

/// Largest dimension of a head, anywhere.
constexpr int64_t kMaxHeadDim = 65536;
/// Most floats of a rotation table: 16 million positions of heads of 128.
constexpr int64_t kMaxRopeTableFloats = int64_t(1) << 31;

/// Are these parameters, and a table of so many positions? InvalidArgument on a number of
/// dimensions that is odd, not positive or over kMaxHeadDim, on parameters that are not finite and
/// positive, or whose low factor is not below the high one (YaRN: the slow beta below the fast one,
/// theta above 1; LongRoPE: a divisor for each pair), and on positions that are negative or too
/// many.
Result<void> checkRope(const RopeParams &params, int64_t positions);

/// f_0 .. f_{R/2-1}. InvalidArgument as checkRope.
Result<std::vector<double>> ropeFrequencies(const RopeParams &params);

/// theta^(-2i/R) / f_i: what a scaling divides the frequencies by. Where f_i is 0 it is 1e30, which
/// makes angles too small to see. InvalidArgument as checkRope.
Result<std::vector<float>> ropeDivisors(const RopeParams &params);

/// positions x R/2 x 2 floats, (cos, sin) of p * f_i (of YaRN and LongRoPE times attentionFactor,
/// and by lateGain) for p from `first` on, computed in double and rounded once: the table that the
/// rope kernel reads.
Result<std::vector<float>> ropeTable(const RopeParams &params, int64_t positions,
                                     int64_t first = 0);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_ROPE_H
