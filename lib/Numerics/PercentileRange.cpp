//===- PercentileRange.cpp - All but the tails ----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RangeRules.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace easyquant::numerics {
namespace {

/// The percentile of values, which are reordered: linear between the two nearest ranks.
float percentileOf(std::vector<float> &values, double percentile) {
  double rank = (values.size() - 1) * (percentile / 100);
  auto below = static_cast<size_t>(rank);
  std::nth_element(values.begin(), values.begin() + below, values.end());
  double low = values[below];
  if (below + 1 == values.size())
    return values[below];
  double high = *std::min_element(values.begin() + below + 1, values.end());
  return static_cast<float>(low + (high - low) * (rank - below));
}

/// Where `wanted` of the values of bins 0 .. bins - 1 lie below, in bins, linear inside of one.
template <typename Count> double binsBelow(double wanted, int64_t bins, Count &&count) {
  double below = 0;
  for (int64_t i = 0; i < bins; ++i) {
    double inside = count(i);
    if (inside > 0 && below + inside >= wanted)
      return i + (wanted - below) / inside;
    below += inside;
  }
  return bins;
}

} // namespace

ValueRange percentileRange(ConstMatrix slice, const Scheme &scheme, double percentile) {
  std::vector<float> values;
  values.reserve(slice.rows * slice.columns);
  for (int64_t i = 0; i < slice.rows; ++i)
    values.insert(values.end(), slice.row(i), slice.row(i) + slice.columns);
  if (scheme.symmetric) {
    for (float &v : values)
      v = std::fabs(v);
    float t = percentileOf(values, percentile);
    return {-t, t};
  }
  float low = percentileOf(values, 100 - percentile);
  float high = percentileOf(values, percentile);
  if (scheme.minima)
    return {low, high};
  return {std::min(low, 0.0f), std::max(high, 0.0f)};
}

ValueRange percentileRange(const Histogram &values, const Scheme &scheme, double percentile) {
  constexpr int64_t bins = Histogram::kBins;
  double tail = values.total() * ((100 - percentile) / 100), body = values.total() - tail;
  auto limited = [&](double bin) {
    return static_cast<float>(
        std::clamp(bin * values.width(), double(values.min()), double(values.max())));
  };
  if (scheme.symmetric) {
    double t = binsBelow(body, bins, [&](int64_t i) {
      return double(values.count(i) + values.count(-1 - i)); // x and -x
    });
    float absMax = std::max(-values.min(), values.max());
    float limit = std::min(static_cast<float>(t * values.width()), absMax);
    return {-limit, limit};
  }
  auto fromLeast = [&](int64_t i) { return double(values.count(i - bins)); };
  float low = limited(binsBelow(tail, 2 * bins, fromLeast) - bins);
  float high = limited(binsBelow(body, 2 * bins, fromLeast) - bins);
  return {std::min(low, 0.0f), std::max(high, 0.0f)};
}

} // namespace easyquant::numerics
