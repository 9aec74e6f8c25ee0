//===- ScaleRules.h - Scales and zero points from values --------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Values that share a scale are a *slice*: a tensor, a row, or a group of a row. A rule chooses the
// range [lo, hi] of a slice that codes are to cover, which always contains 0 but where there are
// minima; the scheme says how a range becomes a scale and a zero point or a minimum:
//
// clang-format off
//      symmetric          s = t / max code             z = 0     t = max(-lo, hi)
//      symmetric, full    s = t / (2^(b-1) - 0.5)      z = 0     SYQ: Faraone et al., 2018
//      asymmetric         s = (hi - lo) / (2^b - 1)    z = rne(min code - lo / s), so that 0 is a code
//      minima             s = (hi - lo) / (2^b - 1)    m = lo, rounded to the format of scales
//      no integers        s = max(hi / max value, lo / min value)
// clang-format on
//
// and s is then rounded to the format of scales (z is of the rounded one). A power of two is that
// of OCP Microscaling, 2^(floor(log2 t) - floor(log2 max value)), so that values up to 4/3 of the
// range of f4E2M1FN saturate. With an outer scale o, that of the tensor's largest magnitude is the
// largest scale there is, and s is o times a scale of the format:
//
//      o = t(tensor) / (max value * 448)         s = o * round((t / max value) / o)
//
// Scales of two levels (ui6) are the same in every super-group of a row, the kSuperGroups groups
// from a multiple of kSuperGroups on: o is 64/63 of the largest scale that the rule chooses in f32,
// rounded to f16, 2^-14 at least, and the rule then chooses again in units of it. So no weight is
// too small: s is 2^-20 at least, and what is below half of it becomes 0. A group of zeros has
// s = 63/64 o, and o = 1 where all are. Those of super-blocks (SuperBlocks.h) are chosen likewise,
// with the largest integer for the largest scale; a group of zeros has o. Minima are 0 or less
// there, rounded to integers in units of the largest of them, and scales are those of what is above
// the minimum. Symmetric codes of the full range have the lowest code on the side of the largest
// magnitude t, s = +-max(t / 2^(b-1), t' / (2^(b-1) - 0.5)), t' the magnitude of the other end.
//
// and a rule gives
//
// clang-format off
//      absmax, zeropoint, symmetric   all values; one name for each of the three kinds of scheme
//      percentile p    [-t, t], t the p-th percentile of |x|; asymmetric: from the (100-p)-th to the
//                      p-th percentile; between two values, linearly
//      mse             all values times 1 - 0.8 i / 100, for the i in 0..100 of least
//                      sum |x - xhat|^norm; the widest range among equals. With minima the range
//                      shrinks about its middle
//      entropy         all values cut at +-t, for the t of least KL(P || Q), t all or an edge of the
//                      bins of the slice's Histogram (downwards in steps of 1/64, until there are
//                      fewer bins than codes). P: the counts, those beyond t added to the last bin
//                      inside. Q: the counts inside of each code, spread evenly over its bins where
//                      P is not 0. (Migacz, 8-bit Inference with TensorRT, GTC 2017, with the bins
//                      of each code as a run; one in the middle between two is of the lower.)
//                      Not with minima
//      hessian-diagonal
//                      s and z of small sum h_j (x_j - xhat_j)^2, h_j the weight of column j. The
//                      ranges tried are those of all values times 1 - 0.8 i / 40, i in 0..40, and
//                      of f4E2M1FN also times 1 + 0.5 i / 20, i in 1..20 (after four over six: Cook
//                      et al., 2025, https://arxiv.org/abs/2512.02010), each with the scale that
//                      fits its codes, sum h x q / sum h q^2. From the best one
//                      scale and codes follow in turn as long as the error falls; asymmetric ones
//                      also from the two zero points on either side. With minima ranges shrink
//                      about their middle, and scale and minimum are those of the weighted least
//                      squares of x over the codes. The error is never above that of the range of
//                      all values.
// clang-format on
//
// A slice is zero where t < kMinAbsMax, asymmetric (hi - lo) / 2 < kMinAbsMax: then s = 1 and z =
// 0, so that every code is 0. A rule that finds such a range in a slice that is not zero takes all
// values. A scale is always finite, normal and positive. A constant slice needs no rule of its own:
// the range of c contains 0, and c is one of its ends. Values up to FLT_MAX / 2 come back finite.
//
// Every function here is one of its arguments alone: the same bits on any number of threads.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_SCALERULES_H
#define EASYQUANT_NUMERICS_SCALERULES_H

#include "easyquant/Numerics/Histogram.h"
#include "easyquant/Numerics/Matrix.h"
#include "easyquant/Numerics/Quantize.h"
#include "easyquant/Numerics/Scheme.h"

#include <span>
#include <string_view>

namespace easyquant::numerics {

enum class ScaleRuleKind {
  AbsMax,
  ZeroPoint,
  Symmetric,
  Percentile,
  Mse,
  Entropy,
  HessianDiagonal
};

struct ScaleRule {
  ScaleRuleKind kind = ScaleRuleKind::AbsMax;
  double percentile = 99.99; ///< of Percentile; above 50 and at most 100
  double norm = 2.4;         ///< of Mse; 2 or 2.4
  /// For HessianDiagonal, by column: E[x_j^2] of what the linear reads, or what else an error
  /// counts for. Borrowed. If all in a slice are 0, they are as good as all 1.
  std::span<const float> weights = {};
  /// For HessianDiagonal: 8 ranges instead of 40 and no other zero points, at an eighth of the
  /// time. Searches want it that choose again for every candidate of theirs.
  bool coarse = false;
};

/// The name of options and of IR: "absmax", "zeropoint", "symmetric", "percentile", "mse",
/// "entropy", "hessian-diagonal".
const char *toString(ScaleRuleKind kind);
/// The inverse. Fails with InvalidArgument, listing the names.
Result<ScaleRuleKind> scaleRuleKind(std::string_view name);

/// The rule that takes all values for this kind of scheme: AbsMax, ZeroPoint or Symmetric.
ScaleRuleKind extremesRule(const Scheme &scheme);

/// InvalidArgument when the rule's parameters are out of range or it cannot serve the scheme:
/// absmax, zeropoint and symmetric serve one kind of scheme each, the others all.
/// The weights of HessianDiagonal are looked at where scales are chosen.
Result<void> checkScaleRule(const ScaleRule &rule, const Scheme &scheme);

/// Scale and zero point of one slice; with a minimum m, s * (q - z) + m is what a code stands for,
/// z being the lowest code.
struct SliceParams {
  float scale = 1;
  int32_t zeroPoint = 0;
  float minimum = 0;
  friend bool operator==(const SliceParams &, const SliceParams &) = default;
};

/// The parameters of slice `index`.
inline SliceParams sliceParams(const Scheme &scheme, const QParams &params, int64_t index) {
  return {params.scales[index], zeroPointOf(scheme, params, index),
          scheme.minima ? params.minima[index] : 0};
}
/// Puts the parameters of slice `index`, for which there is room.
void setSlice(QParams &params, int64_t index, const SliceParams &slice);

/// What the scale of a slice is in units of: an outer scale, the f16 that groups share, or 1; and
/// its minimum in super-blocks.
struct ScaleUnits {
  float scale = 1, minimum = 0;
};

/// The nearest scale of the scheme to units.scale * x, x not 0 and, but for signed scales, of the
/// sign of its unit; 0 where the scheme does not hold it with all its bits.
float nearestScale(float x, const Scheme &scheme, ScaleUnits units);
/// Is a scale that was rounded to those of the scheme one that it holds with all its bits?
bool isScale(float scale, const Scheme &scheme, ScaleUnits units);
/// The nearest minimum of the scheme to x.
float nearestMinimum(float x, const Scheme &scheme, ScaleUnits units);

/// The parameters of the range from min(lo, 0) to max(hi, 0), with minima from lo to hi; it is
/// finite.
SliceParams paramsOfRange(float lo, float hi, const Scheme &scheme, ScaleUnits units = {});

/// The outer scale of a tensor whose largest magnitude is absMax; 1 without one, and of zeros.
float outerScale(float absMax, const Scheme &scheme);
/// The units of each slice of x, row by row, for a scheme that isTwoLevel. `wide` is what a rule
/// chooses for x withWideScales.
std::vector<ScaleUnits> chooseUnits(ConstMatrix x, const Scheme &scheme, const QParams &wide);
/// The units that parameters of a scheme are in, slice by slice. checkScales lets them through.
std::vector<ScaleUnits> unitsOf(const QParams &params, const Scheme &scheme);
/// The largest magnitude; not finite where a value is not.
float absMaxOf(ConstMatrix x);

/// Are all scales such as their format holds with all its bits, and minima finite in it?
/// OutOfRange, saying which is not and what holds it.
Result<void> checkScales(const QParams &params, const Scheme &scheme);

/// The same scheme with scales of f32, each for itself, which hold every scale.
Scheme withWideScales(const Scheme &scheme);

/// Scales and zero points of an N x K matrix. Fails with InvalidArgument like checkScheme and
/// checkScaleRule, on a matrix whose rows overlap, and on an element that is not finite (naming its
/// row and column); with weights that are not one finite number, 0 or more, a column; with
/// OutOfRange like checkScales. The second form is for some rows of a tensor, whose outer scale is
/// known.
Result<QParams> chooseQParams(ConstMatrix x, const Scheme &scheme, const ScaleRule &rule);
Result<QParams> chooseQParams(ConstMatrix x, const Scheme &scheme, const ScaleRule &rule,
                              float outer);

/// chooseQParams and quantize in one.
Result<QuantizedMatrix> quantize(ConstMatrix x, const Scheme &scheme, const ScaleRule &rule);

/// The parameters of one slice that is known by its histogram only, such as a site's activations.
/// Every value counts as the middle of its bin; extrema are exact. The scheme's granularity plays
/// no part. Fails like checkScaleRule.
Result<SliceParams> chooseQParams(const Histogram &values, const Scheme &scheme,
                                  const ScaleRule &rule);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_SCALERULES_H
