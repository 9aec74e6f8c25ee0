//===- LeastErrorRange.cpp - The range of least reconstruction error ------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Codec.h"
#include "RangeRules.h"

namespace easyquant::numerics {
namespace {

/// v^(1/5) for 0 <= v < 2^20, to 1e-6: the exponent divided by 5, then Newton's method. Written for
/// the vectorizer, to which std::pow is opaque.
inline float fifthRoot(float v) {
  // 4/5 of the bits of 1, less what the linear mantissa is too large on average.
  float bits = static_cast<float>(std::bit_cast<int32_t>(v)) * 0.2f + 852000000.0f;
  float y = std::bit_cast<float>(static_cast<int32_t>(bits));
  for (int step = 0; step < 3; ++step) {
    float square = y * y;
    y = 0.8f * y + 0.2f * v / (square * square);
  }
  return y;
}

/// The error of one value under a range, in units of `unit`, to the power of the norm.
template <typename Codec> struct ErrorPower {
  ErrorPower(const Codec &codec, SliceParams params, float unit)
      : codec(codec), params(params), perUnit(1.0f / unit) {}
  EASYQUANT_INLINE float squared(float x) const {
    const float steps = (x - params.minimum) / params.scale;
    float back = params.scale * codec.round(steps, params.zeroPoint).value + params.minimum;
    float error = (x - back) * perUnit;
    return error * error;
  }

  const Codec &codec;
  SliceParams params;
  float perUnit;
};

/// Sum of |error|^norm over contiguous values, in lanes of a fixed order.
template <bool isSquare, typename Codec>
double sumOf(const ErrorPower<Codec> &error, const float *x, int64_t count) {
  constexpr int64_t lanes = 8;
  double sums[lanes] = {};
  auto add = [&](int64_t lane, float v) {
    float square = error.squared(v);
    sums[lane] += isSquare ? square : square * fifthRoot(square); // |e|^2.4 = (e^2)^(1 + 1/5)
  };
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (int64_t l = 0; l < lanes; ++l)
      add(l, x[i + l]);
  for (; i < count; ++i)
    add(i % lanes, x[i]);
  double total = 0;
  for (double sum : sums)
    total += sum;
  return total;
}

/// The range of least error(range) among the shrunken ones, the widest of equals. Those of codes
/// with minima shrink about their middle.
template <typename Error> ValueRange leastOf(ValueRange all, const Scheme &scheme, Error &&error) {
  ValueRange best = all;
  double least = error(all);
  for (int step = 1; step <= 100; ++step) {
    float factor = static_cast<float>(1 - 0.8 * step / 100);
    ValueRange range = scaledRange(all, factor, scheme);
    double now = error(range);
    if (now < least) {
      least = now;
      best = range;
    }
  }
  return best;
}

} // namespace

ValueRange leastErrorRange(ConstMatrix slice, ValueRange all, const Scheme &scheme, double norm,
                           ScaleUnits units) {
  return withCodec(scheme, [&](const auto &codec) {
    return leastOf(all, scheme, [&](ValueRange range) {
      ErrorPower error(codec, paramsOfRange(range.min, range.max, scheme, units), all.absMax());
      double sum = 0;
      for (int64_t i = 0; i < slice.rows; ++i)
        sum += norm == 2 ? sumOf<true>(error, slice.row(i), slice.columns)
                         : sumOf<false>(error, slice.row(i), slice.columns);
      return sum;
    });
  });
}

ValueRange leastErrorRange(const Histogram &values, ValueRange all, const Scheme &scheme,
                           double norm, ScaleUnits units) {
  return withCodec(scheme, [&](const auto &codec) {
    return leastOf(all, scheme, [&](ValueRange range) {
      ErrorPower error(codec, paramsOfRange(range.min, range.max, scheme, units), all.absMax());
      double sum = 0;
      for (int64_t i = -Histogram::kBins; i < Histogram::kBins; ++i)
        if (int64_t count = values.count(i))
          sum += count *
                 std::pow(error.squared(static_cast<float>((i + 0.5) * values.width())), norm / 2);
      return sum;
    });
  });
}

} // namespace easyquant::numerics
