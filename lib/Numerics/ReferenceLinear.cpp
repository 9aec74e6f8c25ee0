//===- ReferenceLinear.cpp - Linears, float and integer -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Bounds.h"
#include "easyquant/Numerics/Reference.h"

#include "RowQuantize.h"

namespace easyquant::numerics::reference {
namespace {

/// The columns whose products share an accumulator; 0: all.
int64_t dotGroup(const QuantizedTokens &x, const QuantizedMatrix &w) {
  return x.tokenGroup ? x.tokenGroup : w.scheme.groupSize;
}

Result<void> checkOperands(const QuantizedTokens &x, const QuantizedMatrix &w) {
  if (x.tokenGroup && (x.columns != w.columns || !fitsGroups(x.tokenGroup, w.scheme.groupSize)))
    return makeError(ErrorCode::InvalidArgument,
                     "tokens of {} columns in groups of {} for a weight of {} columns in groups "
                     "of {}: expected groups that lie within those of the weight",
                     x.columns, x.tokenGroup, w.columns, w.scheme.groupSize);
  if (x.columns != w.columns || (!x.tokenGroup && x.groups != w.params.groups))
    return makeError(ErrorCode::InvalidArgument,
                     "tokens of {} columns in {} groups for a weight of {} columns in {} groups",
                     x.columns, x.groups, w.columns, w.params.groups);
  if (!w.scheme.hasIntegerValues())
    return makeError(ErrorCode::InvalidArgument,
                     "weights as {} for int8 tokens: expected integers, or a table of int8 values",
                     toString(w.scheme));
  Scheme input{8, x.zeroPoints.empty(), Granularity::Tensor, 0, false};
  const int64_t group = dotGroup(x, w);
  int64_t length = group == 0 ? w.columns : std::min(group, w.columns);
  if (auto ok = checkAccumulator(length, storedRange(w.scheme), codeRange(input)); !ok)
    return ok;
  return checkAccumulator(length, centredRange(w.scheme), centredRange(input));
}

/// Index of the scale of row n, group 0.
int64_t firstScale(const QuantizedMatrix &w, int64_t n) {
  return w.params.rows == 1 ? 0 : n * w.params.groups;
}

/// The group of the weight in which group g of the dots lies.
int64_t weightGroup(const QuantizedTokens &x, const QuantizedMatrix &w, int64_t g) {
  if (!x.tokenGroup)
    return g;
  return w.scheme.groupSize ? g * x.tokenGroup / w.scheme.groupSize : 0;
}

int32_t zeroPointAt(const QuantizedTokens &x, int64_t m, int64_t g) {
  return x.zeroPoints.empty() ? 0 : x.zeroPoints[x.paramsAt(m, g)];
}

/// What a minimum is multiplied by: the sum of code - zero point over group g of the dots.
int32_t centredSum(const QuantizedTokens &x, const QuantizedMatrix &w, int64_t m, int64_t g) {
  const auto count = static_cast<int32_t>(groupColumns(g, dotGroup(x, w), x.columns).count);
  return x.sums[m * x.groups + g] - count * zeroPointAt(x, m, g);
}

/// sum_h sw[n,h] * sum_g sx[m,g] * dot[g] of tokens that have groups, as Reference.h orders it;
/// tokens without have one scale, which is left to the caller. `fma` is that of T.
template <typename T, typename Fma>
T sumOfGroups(const QuantizedTokens &x, const QuantizedMatrix &w, int64_t m, int64_t n,
              const int32_t *dot, Fma fma) {
  const float *scales = w.params.scales.data() + firstScale(w, n);
  const float *minima = w.scheme.minima ? w.params.minima.data() + firstScale(w, n) : nullptr;
  T sum = 0;
  for (int64_t g = 0; g < x.groups;) {
    const int64_t h = weightGroup(x, w, g);
    T inner = 0, ones = 0;
    for (; g < x.groups && weightGroup(x, w, g) == h; ++g) {
      const T scale = x.tokenGroup ? T(x.scales[x.paramsAt(m, g)]) : T(1);
      inner = fma(scale, T(dot[g]), inner);
      if (minima)
        ones = fma(scale, T(centredSum(x, w, m, g)), ones);
    }
    sum = fma(T(scales[h]), inner, sum);
    if (minima)
      sum = fma(T(minima[h]), ones, sum);
  }
  return sum;
}

} // namespace

void linear(ConstMatrix x, ConstMatrix w, const float *bias, Output y) {
  for (int64_t m = 0; m < x.rows; ++m)
    for (int64_t n = 0; n < w.rows; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < w.columns; ++k)
        sum += static_cast<double>(x(m, k)) * static_cast<double>(w(n, k));
      y(m, n) = sum + (bias ? bias[n] : 0.0);
    }
}

Result<std::vector<int32_t>> integerDots(const QuantizedTokens &x, const QuantizedMatrix &w) {
  if (auto ok = checkOperands(x, w); !ok)
    return Unexpected(ok.error());
  std::vector<int32_t> dots(x.rows * w.rows * x.groups);
  int32_t *dot = dots.data();
  for (int64_t m = 0; m < x.rows; ++m)
    for (int64_t n = 0; n < w.rows; ++n)
      for (int64_t g = 0; g < x.groups; ++g) {
        auto [begin, count] = groupColumns(g, dotGroup(x, w), w.columns);
        const int8_t *a = x.codes.data() + m * x.paddedColumns + begin;
        const int8_t *b = w.codes.data() + n * w.columns + begin;
        const int32_t za = zeroPointAt(x, m, g);
        const int32_t zb = zeroPointOf(w.scheme, w.params, firstScale(w, n) + weightGroup(x, w, g));
        int32_t sum = 0;
        for (int64_t k = 0; k < count; ++k)
          sum += (a[k] - za) * codeFactor(w.scheme, b[k], zb);
        *dot++ = sum;
      }
  return dots;
}

Result<void> integerLinear(const QuantizedTokens &x, const QuantizedMatrix &w, const float *bias,
                           bool accumulate, Matrix y) {
  auto dots = integerDots(x, w);
  if (!dots)
    return Unexpected(dots.error());
  const int32_t *dot = dots->data();
  for (int64_t m = 0; m < x.rows; ++m)
    for (int64_t n = 0; n < w.rows; ++n) {
      const float sum = sumOfGroups<float>(
          x, w, m, n, dot, [](float a, float b, float c) { return std::fma(a, b, c); });
      float value = (x.tokenGroup ? 1 : x.scales[m]) * codeUnit(w.scheme) * sum;
      dot += x.groups;
      if (bias)
        value += bias[n];
      y(m, n) = accumulate ? y(m, n) + value : value;
    }
  return {};
}

Result<void> integerLinear(const QuantizedTokens &x, const QuantizedMatrix &w, const float *bias,
                           Output y) {
  auto dots = integerDots(x, w);
  if (!dots)
    return Unexpected(dots.error());
  const int32_t *dot = dots->data();
  for (int64_t m = 0; m < x.rows; ++m)
    for (int64_t n = 0; n < w.rows; ++n) {
      double sum = sumOfGroups<double>(x, w, m, n, dot,
                                       [](double a, double b, double c) { return a * b + c; });
      dot += x.groups;
      if (!x.tokenGroup)
        sum *= x.scales[m];
      y(m, n) = codeUnit(w.scheme) * sum + (bias ? bias[n] : 0.0);
    }
  return {};
}

} // namespace easyquant::numerics::reference
