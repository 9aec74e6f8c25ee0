//===- SiteStatistics.h - All that is gathered of a site --------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_SITESTATISTICS_H
#define EASYQUANT_NUMERICS_SITESTATISTICS_H

#include "easyquant/Numerics/Histogram.h"
#include "easyquant/Numerics/Statistics.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace easyquant::numerics {

/// One tensor of a statistics file.
struct StatisticTensor {
  std::string name; ///< "<site>/<statistic>"
  std::vector<int64_t> shape;
  std::variant<std::vector<float>, std::vector<int64_t>> values;
};

/// A statistic by the name that options, IR and files have it under.
struct StatisticInfo {
  std::string_view name;
  std::string_view holds; ///< for people
};
std::span<const StatisticInfo> statistics();
bool isStatistic(std::string_view name);

/// How the range of static activations follows from a statistic.
struct RangeObserver {
  std::string_view name, statistic;
  /// The statistic is of each channel: the range follows factors of channels, and may be that of
  /// inliers.
  bool isOfChannels;
};
std::span<const RangeObserver> rangeObservers();
/// Null if there is none.
const RangeObserver *findRangeObserver(std::string_view name);

/// The statistics of one site that were asked for, by name; K channels:
///
///      absmax      F32 [K]     max |x|
///      minmax      F32 [2, K]  minima, maxima
///      mean_abs    F32 [K]     mean |x|
///      moments     F32 [2, K]  means, variances
///      histogram   I64 [4096]  bins -2048 .. 2047 of a Histogram; and
///                              histogram_range F32 [2], its extrema
///      hessian     F32 [K, K]  (2/n) sum x x^T
///      ema         F32 [2]     the averages of the largest magnitude and of the mean
///      sinks       I64 [n]     positions of attention sinks
///      inliers     F32 [2, K]  minima, maxima of the tokens that do not tower above the others;
///                              and inlier_tokens I64 [1], how many these are
///
/// and always tokens, I64 [1]: the rows that were counted.
class SiteStatistics {
public:
  /// Fails with InvalidArgument on an unknown name, listing the names.
  static Result<SiteStatistics> create(std::string site, int64_t columns,
                                       std::span<const std::string> statistics);
  /// "absmax, minmax, ...": every name, for messages.
  static std::string names();

  const std::string &site() const { return name; }
  int64_t tokens() const { return rows; }

  /// Rows are the tokens at firstPosition, firstPosition + 1, ... of one sample. Errors name the
  /// site, then what the accumulators say.
  Result<void> update(ConstMatrix x, int64_t firstPosition, unsigned threads = 0);
  /// `other` must be of the same site and the same statistics (InvalidArgument otherwise); see
  /// Statistics.h.
  Result<void> merge(const SiteStatistics &other);
  /// The tensors to write; the accumulators are spent.
  std::vector<StatisticTensor> finish() &&;

  /// What has been counted, for other ranks (easyquant/Support/Bytes.h); who reads it has made one
  /// of the same site and statistics.
  template <typename Visit> void fields(Visit &&visit) {
    visit(rows);
    forEachMember([&](auto member) {
      if (this->*member)
        visit(*(this->*member));
    });
  }

private:
  SiteStatistics() = default;
  /// Calls visit(pointer to member) for every accumulator, there or not.
  template <typename Visit> static void forEachMember(Visit &&visit) {
    visit(&SiteStatistics::absMax);
    visit(&SiteStatistics::minMax);
    visit(&SiteStatistics::meanAbs);
    visit(&SiteStatistics::moments);
    visit(&SiteStatistics::histogram);
    visit(&SiteStatistics::gram);
    visit(&SiteStatistics::ema);
    visit(&SiteStatistics::peaks);
    visit(&SiteStatistics::inliers);
  }

  std::string name;
  int64_t columns = 0, rows = 0;
  std::optional<AbsMax> absMax;
  std::optional<MinMax> minMax;
  std::optional<MeanAbs> meanAbs;
  std::optional<Moments> moments;
  std::unique_ptr<Histogram> histogram;
  std::optional<Gram> gram;
  std::optional<Ema> ema;
  std::optional<TokenPeaks> peaks;
  std::optional<Inliers> inliers;
};

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_SITESTATISTICS_H
