//===- Awq.h - Scales that protect the weights that matter ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// AWQ (Lin et al., 2023, https://arxiv.org/abs/2306.00978) multiplies the columns of a weight by s,
// and divides its input by s, so that the columns which meet large activations are rounded with a
// smaller step. With x_j = mean |X_j| over calibration tokens it tries
//
//      s = max(x^r, 1e-4) / sqrt(max s * min s)      r = 0, 1/20 .. 19/20
//
// and no scaling at all, and keeps what changes the output of the enclosing block (attention, MLP)
// the least. (r = 0 makes all s equal, not 1: where max(x^0, 1e-4) is 1 it is the identity, but
// nothing here depends on that.) Then it clips: the range of each group shrinks as long as that
// lowers the error of the group's part of the output.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_AWQ_H
#define EASYQUANT_NUMERICS_AWQ_H

#include "easyquant/Numerics/Matrix.h"
#include "easyquant/Numerics/Quantize.h"
#include "easyquant/Numerics/ScaleRules.h"

#include <functional>
#include <span>
#include <vector>

namespace easyquant::numerics {

/// Steps of the search for r, and of the one for the range.
inline constexpr int kAwqGrid = 20;

/// max(x^r, 1e-4) / sqrt(max * min), computed in double. All positive and finite for finite x >= 0;
/// empty for empty x.
std::vector<float> awqScales(std::span<const float> meanAbs, double ratio);

struct AwqScaleResult {
  std::vector<float> scales; ///< 1 everywhere when nothing beat the identity
  double ratio = -1;         ///< r; -1: the identity
  double loss = 0;           ///< of these scales
  double identityLoss = 0;
};

/// Tries the identity (asked for with scales of 1) and every r. The first of equal losses wins.
/// `loss` may fail. A loss that is not finite never wins. Fails with InvalidArgument when a mean is
/// negative or not finite, or the loss of the identity is not finite.
Result<AwqScaleResult>
searchAwqScales(std::span<const float> meanAbs,
                const std::function<Result<double>(std::span<const float> scales)> &loss);

/// out = Q(w diag(s)) diag(1/s): the weight that the model computes with if the columns of w are
/// scaled by s and its input is divided by s. Weights of the rule are those of w itself. Rows are
/// shared among `threads` threads (0: one per core). Scales that their format does not hold are f32
/// here. Fails like chooseQParams.
Result<void> fakeQuantizeScaled(ConstMatrix w, std::span<const float> scales, const Scheme &scheme,
                                const ScaleRule &rule, unsigned threads, Matrix out);

struct AwqClipResult {
  QParams params;
  int64_t clipped = 0; ///< slices whose range shrank
};

/// Scales and zero points of w (N x K) from ranges [max(lo, -m), min(hi, m)] of each slice, m =
/// (1 - i/20) max|w| for the i in 0 .. 9 of least sum over tokens of ((w - what) x)^2, the widest
/// among equals. With `refines`, the search goes on from there and from the ranges of the rule
/// hessian-diagonal: it fits scale and codes in turn as long as that error falls, and tries the two
/// zero points on either side. inputs (T x K) are the activations that the weight meets. Channel
/// and group granularities only. The same bits for any number of threads. Fails with
/// InvalidArgument on sizes that do not fit and on elements that are not finite.
Result<AwqClipResult> searchAwqClip(ConstMatrix w, ConstMatrix inputs, const Scheme &scheme,
                                    bool refines, unsigned threads);

/// The rows of part `part` of `parts` of a weight of `rows` rows: clipped apart, they get the bits
/// of the whole weight, but under an outer scale, which is that of all rows.
RowRange awqClipRows(int64_t rows, int64_t part, int64_t parts);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_AWQ_H
