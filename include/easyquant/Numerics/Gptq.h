//===- Gptq.h - Rounding that corrects its own errors -----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// GPTQ (Frantar et al., 2022, https://arxiv.org/abs/2210.17323) rounds a weight W (N x K) column by
// column and lets the columns still to come make up for each error, so that
//
//      tr((W - What) H (W - What)^T)         H = (2/n) sum x x^T  over n calibration inputs
//
// becomes small: with U the upper Cholesky factor of (H + damping mean(diag H) I)^-1,
//
//      e_j = (w_j - what_j) / U_jj           w_t -= e_j U_jt    for t > j
//
// The sum of all e_j^2 is the trace above, of the damped H. Where the paper works through blocks of
// 128 columns and updates what is right of a block once, here blocks are halved again and again:
// the same sums, all but the last few columns in matrix products.
//
// With a Hessian of rows, too (Tseng, Sun, De Sa, 2025, https://arxiv.org/abs/2505.22988), it is
//
//      tr(Hout (W - What) H (W - What)^T)    Hout = (2/n) sum g g^T  over gradients of outputs
//
// that becomes small: with Hout + damping mean(diag Hout) I = V^T D V, V lower triangular with ones
// on the diagonal, rows are rounded one after the other, each in the way above, and
//
//      w_i += sum over k < i of V_ik (w_k - what_k)       where these w are the weights as given
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_GPTQ_H
#define EASYQUANT_NUMERICS_GPTQ_H

#include "easyquant/Numerics/Matrix.h"
#include "easyquant/Numerics/Quantize.h"
#include "easyquant/Numerics/ScaleRules.h"

#include <cstdint>
#include <vector>

namespace easyquant::numerics {

/// What rows have to do with each other.
struct RowFactor {
  int64_t rows = 0;
  std::vector<float> lower;   ///< V, N x N; what is on the diagonal and above has no meaning
  std::vector<float> weights; ///< D, by row
};

/// Factors Hout (N x N, symmetric) with `damping` > 0 of the mean of its diagonal added (1 if that
/// is 0). Fails with InvalidArgument like factorHessian, without other dampings.
Result<RowFactor> factorRows(ConstMatrix hessian, double damping, unsigned threads);

struct GptqOptions {
  /// Rounds the columns in order of descending H_jj. Codes stay where their weights were. Implies
  /// staticGroups: a group's columns do not come one after another.
  bool actOrder = false;
  /// Scales from the weights as given; otherwise from those of the group as the columns before it
  /// have updated them. A scale per tensor, and two-level scales, are always static.
  bool staticGroups = false;
  double damping = 0.01; ///< first to be tried; positive
  unsigned threads = 0;  ///< 0: one per core. Results are the same bits for any number.
  /// The rows are cut in so many parts (gptqRows), and this one is rounded. A row has the bits that
  /// it has in the whole weight.
  int64_t part = 0, parts = 1;
  /// Where it is given, errors go to later rows, too, and all rows are rounded.
  const RowFactor *rowFactor = nullptr;
};

/// The rows of part `part` of `parts` of a weight of `rows` rows.
RowRange gptqRows(int64_t rows, int64_t part, int64_t parts);

/// What all linears that read the same input share. A column that no input uses (H_jj = 0) is dead:
/// its weights count as 0, H_jj as 1, and it has no part in mean(diag H).
struct GptqFactor {
  int64_t columns = 0;
  std::vector<int64_t> order; ///< order[i]: the column that is rounded i-th
  std::vector<bool> dead;     ///< by column
  std::vector<float> upper;   ///< U of the columns in that order, K x K; 0 below the diagonal
  std::vector<float> weights; ///< by column: those of the rule hessian-diagonal
  double damping = 0;         ///< that with which H was positive definite
  bool inDouble = false;      ///< single precision failed at every damping
};

/// Factors H (K x K, symmetric). If H is not positive definite the damping grows by steps of its
/// first value, up to ten times that, in single and then in double precision.
/// Fails with InvalidArgument if that does not help, if an element is not finite, or if a diagonal
/// element is negative.
Result<GptqFactor> factorHessian(ConstMatrix hessian, const GptqOptions &options);

struct GptqResult {
  QuantizedMatrix weight;
  /// tr((W - What) H (W - What)^T), or with Hout, of the damped Hessians, dead weights being 0.
  double loss = 0;
};

/// Rounds w (N x K), or the rows of one part: then codes and parameters of the others are 0. The
/// rule hessian-diagonal takes the weights of the factor. Fails with
/// InvalidArgument like chooseQParams, on sizes that do not fit, and if corrections leave the range
/// of float.
Result<GptqResult> gptq(ConstMatrix w, const GptqFactor &factor, const Scheme &scheme,
                        const ScaleRule &rule, const GptqOptions &options);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_GPTQ_H
