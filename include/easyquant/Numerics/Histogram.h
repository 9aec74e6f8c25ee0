//===- Histogram.h - How the values of a tensor are spread ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_HISTOGRAM_H
#define EASYQUANT_NUMERICS_HISTOGRAM_H

#include "easyquant/Numerics/Matrix.h"
#include "easyquant/Support/Result.h"

#include <array>
#include <cstdint>
#include <span>

namespace easyquant::numerics {

/// 2048 bins of equal width on each side of zero. The width is the least power of two with which
/// the largest magnitude seen still has a bin, so that growing is joining neighbours and the counts
/// depend on nothing but the set of values: not on their order, nor on how they were split among
/// histograms that were merged.
class Histogram {
public:
  static constexpr int64_t kBins = 2048;

  /// Counts every element. Fails with InvalidArgument on one that is not finite (naming its row and
  /// column); then nothing was counted.
  Result<void> update(ConstMatrix x);
  /// Merge law: counts of equal bins add up, extrema are taken of both. Exact.
  void merge(const Histogram &other);

  /// Bin i holds the values in [i, i + 1) * width(), -kBins <= i < kBins.
  int64_t count(int64_t bin) const { return counts[bin + kBins]; }
  int64_t total() const { return values; }
  /// A power of two, at least 2^-130.
  double width() const;
  /// Extrema of the values; 0 when there are none.
  float min() const { return least; }
  float max() const { return greatest; }

  /// The histogram of these counts, as they were read from a file. Fails with InvalidArgument when
  /// no set of values could have given them (a negative count, a width that is not the least).
  static Result<Histogram> fromCounts(std::span<const int64_t> counts, float min, float max);
  std::span<const int64_t> allCounts() const { return counts; }

  friend bool operator==(const Histogram &, const Histogram &) = default;

  /// Everything it holds, for other ranks (easyquant/Support/Bytes.h).
  template <typename Visit> void fields(Visit &&visit) {
    visit(exponent), visit(values), visit(least), visit(greatest), visit(counts);
  }

private:
  /// Makes bins 2^exponent wide, which are no narrower than they are.
  void widen(int exponent);

  /// 2048 bins of 2^-130 reach kMinAbsMax, below which a slice counts as zero.
  static constexpr int kLeastExponent = -130;
  static int exponentFor(float absMax);

  int exponent = kLeastExponent;
  int64_t values = 0;
  float least = 0, greatest = 0;
  std::array<int64_t, 2 * kBins> counts{};
};

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_HISTOGRAM_H
