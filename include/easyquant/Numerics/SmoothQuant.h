//===- SmoothQuant.h - Difficulty moved from activations to weights -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// SmoothQuant (Xiao et al., 2022, https://arxiv.org/abs/2211.10438) divides channel j of an
// activation by s_j and multiplies column j of every weight that reads it by s_j:
//
//      s_j = a_j^alpha / w_j^(1 - alpha)       a_j = max |X_j|,  w_j = max |W_j| over all readers
//
// The best exponent. With steps A = max_j (a_j / s_j) / qx of the activations and
// B = max_j (w_j s_j) / qw of the weights, rounding moves an output by at most
//
//      E(s) = 1/2 sum_j (B a_j / s_j + A w_j s_j)      (+ a term in A B that s hardly moves)
//
// and channel j's part is least at s_j = sqrt(a_j B / (w_j A)): for alpha = 1/2 up to a factor that
// all channels share, and that cancels in E. Written as an exponent of the formula above it is
//
//      alpha_j = 1/2 + ln(B / A) / (2 ln(a_j w_j))
//
// Nor can any other s do much better. sum_j m_j with m_j = sqrt(a_j w_j), and M = max_j m_j, bound
// E(s) >= sqrt(A B) sum_j m_j >= M sum_j m_j / sqrt(qx qw), while alpha = 1/2 gives
// E = M sum_j m_j (1/qx + 1/qw) / 2: the same where qx = qw (W8A8). What a search finds to be
// better is so because typical values are not the largest ones.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_SMOOTHQUANT_H
#define EASYQUANT_NUMERICS_SMOOTHQUANT_H

#include "easyquant/Numerics/Matrix.h"
#include "easyquant/Support/Result.h"

#include <span>
#include <vector>

namespace easyquant::numerics {

/// What w_j and s_j are at least.
inline constexpr float kLeastSmoothing = 1e-5f;

/// The factors s: w_j and s_j clamped from below at kLeastSmoothing, in double and rounded once. A
/// channel that no calibration token used (a_j = 0) has nothing to move: s_j = 1. Fails with
/// InvalidArgument when alpha is not in [0, 1], the lengths differ, or a maximum is negative or not
/// finite (naming the channel).
Result<std::vector<float>> smoothingFactors(std::span<const float> activationAbsMax,
                                            std::span<const float> weightAbsMax, double alpha);

/// E(s) for codes up to qx and qw.
double smoothedErrorBound(std::span<const float> activationAbsMax,
                          std::span<const float> weightAbsMax, std::span<const float> factors,
                          int maxActivationCode, int maxWeightCode);

/// alpha_j of each channel for these steps A and B; 1/2 where a_j w_j = 1 or either is 0.
std::vector<double> bestExponents(std::span<const float> activationAbsMax,
                                  std::span<const float> weightAbsMax, double activationStep,
                                  double weightStep);

/// Largest codes and groups of the linears that read an activation.
struct SmoothedCodes {
  int maxActivation = 127; ///< 0: activations stay float
  int maxWeight = 127;
  int64_t groupSize = 0; ///< columns of a row that share a scale; 0: all
};

/// Tries alpha = 0, 0.05, ..., 1 by the error that is to be expected. Codes being off by a uniform
/// error within their step, the squared error of the outputs, over tokens whose channels have these
/// mean squares and over all rows n of the weights, is expected to be
///
///      sum_n [ A^2/12 sum_j (W_nj s_j)^2  +  sum_j E[x_j^2] / s_j^2  B_ng(j)^2/12 ]
///
/// with steps A = max_j (a_j / s_j) / qx of the activations (those of a token are no larger) and
/// B_ng = max_(j in g) |W_nj s_j| / qw of row n and group g. One pass over the weights.
class SmoothingSearch {
public:
  struct Candidate {
    double alpha = 0;
    std::vector<float> factors;
    double error = 0; ///< the sum above, of the rows seen so far
  };

  /// Fails as smoothingFactors does.
  static Result<SmoothingSearch> create(std::span<const float> activationAbsMax,
                                        std::span<const float> meanSquares,
                                        std::span<const float> weightAbsMax,
                                        const SmoothedCodes &codes);
  /// Adds the error of rows of a weight.
  void update(ConstMatrix weights);
  /// The candidate of least error, and among equal ones that with alpha nearest to 1/2.
  const Candidate &best() const;

private:
  std::vector<double> activationSteps; ///< A of each candidate
  std::vector<Candidate> candidates;
  std::vector<float> meanSquares;
  SmoothedCodes codes;
};

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_SMOOTHQUANT_H
