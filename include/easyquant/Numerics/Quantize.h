//===- Quantize.h - Scales, codes and back ----------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// THE definition of quantization in EasyQuant. Every step is one IEEE binary32 operation, rounded
// to nearest even, never contracted into an FMA and with denormals kept; `rne` rounds to the
// nearest integer, ties to even. Generated kernels must give the same bits.
//
// 1. Constants (weights): scales and zero points from a rule (ScaleRules.h), then
//
//      q = clamp(rne(x / s) + z, min, max)        xhat = s * float(q - z)
//
//    and of codes that are no integers q = nearest(x / s), xhat = s * value(q) (NumberFormats.h).
//    With a minimum m in place of the zero point
//
//      q = clamp(rne((x - m) / s) + min, min, max)     xhat = s * float(q - min) + m
//
//    Scales are those of their format: rounded to it before codes are chosen. They are positive,
//    but for symmetric codes of the full range in super-blocks.
//
// 2. Activations, dynamic, per token (a row), int8 symmetric; what kernels do at run time:
//
//      absmax = max_k |x_k|
//      if absmax < kMinAbsMax:   s = 1,             every q = 0
//      else:                     s = absmax / 127,  inv = 127 / absmax,  q_k = rne(x_k * inv)
//
//    It multiplies by the reciprocal, one division a row instead of one an element, so that a code
//    may differ from rne(x / s) where x / s lies within rounding of a tie. |x_k * inv| <=
//    127 (1 + 2^-22), hence q is in [-127, 127] without a clamp; a kernel may clamp or not.
//
// 3. Activations, static, one scale s and zero point z per tensor, int8; s is known before the
//    program runs, 2^-126 <= s <= 2^126:
//
//      inv = 1 / s                              q = clamp(rne(x * inv) + z, min, max)
//
//    It too multiplies by the reciprocal. x * inv may overflow to an infinity, which clamps.
//
// 4. Activations, static, with sinks apart (Scheme::sinks): a row of which a code would be clamped
//    by more than half a step has the scale and codes of definition 2, and zero point 0:
//
//      lo = min - z     hi = max - z     c = (lo + hi) / 2     r = (hi - lo) / 2 + 1/2
//      if max_k |x_k * inv - c| > r:   definition 2            else:   definition 3
//
// 5. Activations, dynamic, per token in groups, int8: each group of Scheme::groupSize columns of a
//    row, the last of which may be shorter, follows definition 2 where the scheme is symmetric,
//    else
//
//      up = max(max_k x_k, 0)    down = max(max_k -x_k, 0)    r = up * 0.5 + down * 0.5
//      if r < kMinAbsMax:   s = 1,           z = 0,                       every q = 0
//      else:                s = r / 127.5,   inv = 127.5 / r,   z = rne(down * inv - 128)
//                           q = clamp(rne(x * inv) + z, -128, 127)
//
//    Halves of the range do not overflow. z is in [-128, 127]: down <= 2 r.
//
// kMinAbsMax: below it s or inv would leave the normal range of binary32 (s = absmax / 127 becomes
// denormal or 0, inv = 127 / absmax overflows to infinity), so such a slice counts as all zero, in
// both definitions. An empty, all-zero or below-threshold slice has scale 1 and codes 0: a scale is
// always finite, normal and positive.
//
// Infinities and NaNs are refused here with row and column. A kernel given one may store any codes
// and any scale for that row.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_QUANTIZE_H
#define EASYQUANT_NUMERICS_QUANTIZE_H

#include "easyquant/Numerics/Matrix.h"
#include "easyquant/Numerics/Scheme.h"

#include <cstdint>
#include <span>
#include <vector>

namespace easyquant::numerics {

/// 2^-119. A slice whose largest magnitude is below it counts as all zero: 2^-119 / 127 > 2^-126,
/// the least normal number, and 127 / 2^-119 < 2^126.
inline constexpr float kMinAbsMax = 0x1p-119f;

/// Scales and zero points of an N x K matrix: rows x groups of each, row-major. rows is 1 for
/// Granularity::Tensor and N otherwise, groups is groupCount(K, groupSize).
struct QParams {
  int64_t rows = 0, groups = 0;
  std::vector<float> scales; ///< where there is an outer scale or a level above, their product
  std::vector<int32_t> zeroPoints; ///< empty when symmetric: all 0
  std::vector<float> minima = {};  ///< of schemes with minima, which have no zero points
  /// The outer scale, one for each row or one for all; empty where the scheme has none.
  std::vector<float> outer = {};

  float outerOf(int64_t row) const {
    return outer.empty() ? 1.0f : outer[outer.size() == 1 ? 0 : row];
  }
};

/// Codes (N x K, row-major) with their parameters.
struct QuantizedMatrix {
  Scheme scheme;
  int64_t rows = 0, columns = 0;
  std::vector<int8_t> codes;
  QParams params;
};

/// The scale of a symmetric slice from its largest magnitude: absmax / maxCode, 1 below kMinAbsMax.
inline float scaleFromAbsMax(float absMax, int32_t maxCode) {
  return absMax < kMinAbsMax ? 1.0f : absMax / static_cast<float>(maxCode);
}

//===- Codes --------------------------------------------------------------===//

/// codes (x.rows x x.columns, row-major) = clamp(rne(x / s) + z). Fails with InvalidArgument when
/// params does not have the shape that x and scheme demand, when a scale is not finite and
/// positive, a minimum not finite or a zero point outside the code range, or on an element that is
/// not finite.
Result<void> quantize(ConstMatrix x, const Scheme &scheme, const QParams &params,
                      std::span<int8_t> codes);

/// The zero point of slice `index`; with minima it is the lowest code, as the minimum is added to
/// what codes stand for above it.
int32_t zeroPointOf(const Scheme &scheme, const QParams &params, int64_t index);

/// What one code stands for, in units of the scale: q - z, or the value of its format.
float codeValue(const Scheme &scheme, int32_t code, int32_t zeroPoint);

/// What int8 activations are multiplied by for one code, of a scheme that hasIntegerValues: q - z,
/// or the value of its table in the table's unit, codeUnit.
int32_t codeFactor(const Scheme &scheme, int32_t code, int32_t zeroPoint);
/// 1 of integers.
float codeUnit(const Scheme &scheme);

/// out (q.rows x q.columns) = s * (q - z), or s * (q - min) + m.
void dequantize(const QuantizedMatrix &q, Matrix out);

//===- Activations --------------------------------------------------------===//

/// c and r of definition 4: x * inv may be `reach` away from `centre`, and codes still hold it.
struct StaticReach {
  float centre = 0, reach = 0;

  StaticReach(CodeRange range, int32_t zeroPoint)
      : centre(static_cast<float>(range.min + range.max - 2 * zeroPoint) / 2),
        reach(static_cast<float>(range.max - range.min + 1) / 2) {}
};

/// What the quantizing kernels produce for M tokens of K columns: int8 codes. Static parameters are
/// repeated for each token that has no others.
struct QuantizedTokens {
  int64_t rows = 0, columns = 0;
  int64_t paddedColumns = 0; ///< K rounded up to a multiple of 8: the stride of codes
  int64_t groups = 1;        ///< groups of the sums
  std::vector<int8_t> codes; ///< rows x paddedColumns; columns K.. are 0
  std::vector<float> scales; ///< rows, or rows x groups where tokens have groups of their own
  std::vector<int32_t> sums; ///< rows x groups: the sum of the codes of each group
  std::vector<int32_t> zeroPoints = {}; ///< as scales; empty when symmetric: all 0
  int64_t tokenGroup = 0; ///< columns of a token that share a scale, and then a sum; 0: all

  /// Where scale and zero point of a row's group of sums are.
  int64_t paramsAt(int64_t row, int64_t group) const {
    return tokenGroup ? row * groups + group : row;
  }
};

/// Definition 2 above. groupSize is that of the weights which will meet these tokens (0: one group)
/// and decides only the sums. Fails with InvalidArgument on an element that is not finite.
Result<QuantizedTokens> quantizeTokens(ConstMatrix x, int64_t groupSize);

/// Definition 5 above, for groups that are an isTokenGroup: scales, zero points and sums of each.
/// Fails with InvalidArgument on other groups, and on an element that is not finite.
Result<QuantizedTokens> quantizeTokensInGroups(ConstMatrix x, int64_t tokenGroup,
                                               bool symmetric = true);

/// Definition 2 or 5, as a dynamic int8 scheme per token has groups or none; see above.
Result<QuantizedTokens> quantizeTokens(ConstMatrix x, const Scheme &scheme, int64_t groupSize);

/// Definition 3 above, or 4 with `sinks`, for a static int8 scheme per tensor. Fails with
/// InvalidArgument on another scheme, a scale or zero point out of range (symmetric: a zero point
/// other than 0), and on an element that is not finite.
Result<QuantizedTokens> quantizeTokens(ConstMatrix x, const Scheme &scheme, float scale,
                                       int32_t zeroPoint, int64_t groupSize);

/// x back as float: s * (q - z), M x K.
void dequantize(const QuantizedTokens &q, Matrix out);

/// Can roundTokens round by the scheme: one of dynamic scales per token or group of it, of int8 or
/// FP8?
bool roundsTokens(const Scheme &scheme);
/// out (M x K) = what the codes of x stand for, in the basis of x: each row goes into the basis of
/// the scheme, becomes codes there, and comes back. Fails with InvalidArgument on another scheme,
/// columns that its block does not divide, and an element that is not finite.
Result<void> roundTokens(ConstMatrix x, const Scheme &scheme, Matrix out);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_QUANTIZE_H
