//===- LeastEntropyRange.cpp - The range of least divergence --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RangeRules.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

namespace easyquant::numerics {
namespace {

constexpr int64_t kBins = Histogram::kBins;
/// The threshold tried after edge i: 1/64 below it, so that a body far below its outliers is
/// resolved as well as one without.
int64_t nextEdge(int64_t i) { return i - std::max<int64_t>(1, i / 64); }

double timesLog(double count) { return count > 0 ? count * std::log(count) : 0; }

/// Sums over bins from the first up to each, so that a threshold costs time by its codes and not by
/// its bins.
class Divergence {
public:
  Divergence(const Histogram &values, const Scheme &scheme)
      : values(values), scheme(scheme), counts(2 * kBins + 1), occupied(2 * kBins + 1),
        logs(2 * kBins + 1) {
    for (int64_t i = 0; i < 2 * kBins; ++i) {
      double count = values.count(i - kBins);
      counts[i + 1] = counts[i] + count;
      occupied[i + 1] = occupied[i] + (count > 0);
      logs[i + 1] = logs[i] + timesLog(count);
    }
  }

  /// KL(P || Q) of bins first .. last, that `range` covers; infinite where Q is 0 and P is not.
  double of(int64_t first, int64_t last, ValueRange range) const;

private:
  /// The sum of bins first .. last.
  static double sum(const std::vector<double> &sums, int64_t first, int64_t last) {
    return sums[last + 1 + kBins] - sums[first + kBins];
  }

  const Histogram &values;
  const Scheme &scheme;
  std::vector<double> counts, occupied, logs;
};

double Divergence::of(int64_t first, int64_t last, ValueRange range) const {
  double total = values.total(), inside = sum(counts, first, last);
  if (inside == 0)
    return std::numeric_limits<double>::infinity();
  double cutLow = counts[first + kBins], cutHigh = total - counts[last + 1 + kBins];

  // Sum of p log p, the two ends holding what was cut.
  double logP = sum(logs, first, last);
  auto addAtEnd = [&](int64_t bin, double cut, double already) {
    double count = values.count(bin) + already;
    logP += timesLog(count + cut) - timesLog(count);
  };
  addAtEnd(first, cutLow, 0);
  addAtEnd(last, cutHigh, first == last ? cutLow : 0);

  // Sum of p log q over the run of bins of each code.
  const SliceParams slice = paramsOfRange(range.min, range.max, scheme);
  CodeRange codes = codeRange(scheme);
  double logQ = 0;
  int64_t begin = first;
  for (int32_t code = codes.min; code <= codes.max && begin <= last; ++code) {
    // The last bin whose middle is not above the code's interval.
    double upper = (code - slice.zeroPoint + 0.5) * slice.scale / values.width() - 0.5;
    int64_t end =
        code == codes.max
            ? last
            : static_cast<int64_t>(std::clamp(std::floor(upper), double(begin - 1), double(last)));
    if (end < begin)
      continue;
    double mass = sum(counts, begin, end), places = sum(occupied, begin, end), cut = 0;
    if (begin == first) {
      cut += cutLow;
      places += cutLow > 0 && values.count(first) == 0;
    }
    if (end == last) {
      cut += cutHigh;
      places +=
          cutHigh > 0 && values.count(last) == 0 && !(first == last && cutLow > 0); // counted above
    }
    if (mass == 0 && cut > 0)
      return std::numeric_limits<double>::infinity();
    if (mass > 0)
      logQ += (mass + cut) * std::log(mass / places);
    begin = end + 1;
  }
  // P sums to total, Q to inside.
  return (logP - logQ) / total + std::log(inside / total);
}

} // namespace

ValueRange leastEntropyRange(const Histogram &values, ValueRange all, const Scheme &scheme) {
  Divergence divergence(values, scheme);
  auto binOf = [&](float v) { return static_cast<int64_t>(std::floor(v / values.width())); };
  const int64_t first = binOf(all.min), last = binOf(all.max);
  CodeRange range = codeRange(scheme);
  const int64_t codes = range.max - range.min + 1;

  ValueRange best = all;
  double least = divergence.of(first, last, all);
  for (int64_t i = nextEdge(std::max(-first, last + 1)); i > 0; i = nextEdge(i)) {
    int64_t from = std::max(first, -i), to = std::min(last, i - 1);
    if (to - from + 1 < codes)
      break;
    auto t = static_cast<float>(i * values.width());
    ValueRange cut{std::max(all.min, -t), std::min(all.max, t)};
    double now = divergence.of(from, to, cut);
    if (now < least) {
      least = now;
      best = cut;
    }
  }
  return best;
}

ValueRange leastEntropyRange(ConstMatrix slice, ValueRange all, const Scheme &scheme) {
  auto histogram = std::make_unique<Histogram>(); // 32 KiB
  (void)histogram->update(slice);                 // finite, as promised
  return leastEntropyRange(*histogram, all, scheme);
}

} // namespace easyquant::numerics
