//===- Histogram.cpp - How the values of a tensor are spread --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Histogram.h"

#include "RowQuantize.h"

namespace easyquant::numerics {
namespace {

/// floor(x / width), without the call that std::floor is on baseline x86-64.
int64_t binOf(float x, double perWidth) {
  double quotient = x * perWidth;
  auto truncated = static_cast<int32_t>(quotient);
  return truncated - (quotient < truncated);
}

} // namespace

int Histogram::exponentFor(float absMax) {
  // absmax < 2^(ilogb + 1) = 2048 * 2^(ilogb - 10).
  return absMax == 0 ? kLeastExponent : std::max(kLeastExponent, std::ilogb(absMax) - 10);
}

double Histogram::width() const { return std::ldexp(1.0, exponent); }

void Histogram::widen(int wanted) {
  int shift = std::min(wanted - exponent, 62);
  exponent = wanted;
  if (shift == 0 || values == 0)
    return;
  std::array<int64_t, 2 * kBins> wide{};
  for (int64_t i = -kBins; i < kBins; ++i)
    wide[(i >> shift) + kBins] += counts[i + kBins];
  counts = wide;
}

Result<void> Histogram::update(ConstMatrix x) {
  if (auto ok = checkMatrix(x); !ok)
    return ok;
  float absMax = 0;
  for (int64_t i = 0; i < x.rows; ++i) {
    int32_t bits = absMaxBits(x.row(i), x.columns);
    if (bits >= kInfinityBits)
      return notFiniteError(x.row(i), x.columns, i);
    absMax = std::max(absMax, std::bit_cast<float>(bits));
  }
  if (x.rows == 0 || x.columns == 0)
    return {};
  widen(std::max(exponent, exponentFor(absMax)));
  if (values == 0)
    least = greatest = x(0, 0);
  const double perWidth = std::ldexp(1.0, -exponent);
  for (int64_t i = 0; i < x.rows; ++i) {
    auto [low, high] = extremesOf(x.row(i), x.columns);
    least = std::min(least, low);
    greatest = std::max(greatest, high);
    const float *row = x.row(i);
    for (int64_t j = 0; j < x.columns; ++j)
      ++counts[binOf(row[j], perWidth) + kBins];
  }
  values += x.rows * x.columns;
  return {};
}

void Histogram::merge(const Histogram &other) {
  if (other.values == 0)
    return;
  if (values == 0) {
    *this = other;
    return;
  }
  widen(std::max(exponent, other.exponent));
  int shift = std::min(exponent - other.exponent, 62);
  for (int64_t i = -kBins; i < kBins; ++i)
    counts[(i >> shift) + kBins] += other.counts[i + kBins];
  values += other.values;
  least = std::min(least, other.least);
  greatest = std::max(greatest, other.greatest);
}

Result<Histogram> Histogram::fromCounts(std::span<const int64_t> counts, float min, float max) {
  if (static_cast<int64_t>(counts.size()) != 2 * kBins)
    return makeError(ErrorCode::InvalidArgument, "histogram of {} bins: expected {}", counts.size(),
                     2 * kBins);
  if (!std::isfinite(min) || !std::isfinite(max) || min > max)
    return makeError(ErrorCode::InvalidArgument, "histogram of values from {} to {}", min, max);
  Histogram h;
  h.exponent = exponentFor(std::max(std::fabs(min), std::fabs(max)));
  h.least = min;
  h.greatest = max;
  std::copy(counts.begin(), counts.end(), h.counts.begin());
  double perWidth = std::ldexp(1.0, -h.exponent);
  int64_t first = binOf(min, perWidth) + kBins;
  int64_t last = binOf(max, perWidth) + kBins;
  for (int64_t i = 0; i < 2 * kBins; ++i) {
    if (counts[i] < 0 || (counts[i] > 0 && (i < first || i > last)))
      return makeError(ErrorCode::InvalidArgument,
                       "histogram of values from {} to {} with {} of them in bin {}", min, max,
                       counts[i], i - kBins);
    h.values += counts[i];
  }
  if (h.values == 0 ? min != 0 || max != 0 : counts[first] == 0 || counts[last] == 0)
    return makeError(ErrorCode::InvalidArgument,
                     "histogram of values from {} to {} without a value in the bin of an extremum",
                     min, max);
  return h;
}

} // namespace easyquant::numerics
