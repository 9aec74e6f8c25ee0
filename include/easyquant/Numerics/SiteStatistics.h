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

  /// Is it one number that counts rows?
  bool isCount() const {
    return std::holds_alternative<std::vector<int64_t>>(values) && shape == std::vector<int64_t>{1};
  }
};

/// A statistic by the name that options, IR and files have it under.
struct StatisticInfo {
  std::string_view name;
  std::string_view holds; ///< for people
};
std::span<const StatisticInfo> statistics();
bool isStatistic(std::string_view name);
/// Is it gathered of each expert of a mixture, too? All are, but positions of sinks: rows that
/// chose an expert do not follow each other.
bool isOfExperts(std::string_view name);

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

/// The statistics of a site of a mixture of experts: those of each expert, over the rows that chose
/// it. Its tensors are those of SiteStatistics, one of each expert behind the other: `absmax` is
/// F32 [E, K], `tokens` I64 [E]. Those of an expert without rows are those of no rows.
///
/// A site without experts (0 of them) has the one of all rows, whose tensors are as they are.
class ExpertStatistics {
public:
  /// Fails with InvalidArgument on an unknown name, listing the names, and on one that is none of
  /// experts.
  static Result<ExpertStatistics> create(std::string site, int64_t columns,
                                         std::span<const std::string> statistics, int64_t experts);

  /// Rows offsets[e] to offsets[e + 1] are those that chose expert e; without experts there are no
  /// offsets, and rows follow each other from firstPosition on.
  Result<void> update(ConstMatrix x, std::span<const int32_t> offsets, int64_t firstPosition,
                      unsigned threads = 0);
  Result<void> merge(const ExpertStatistics &other);
  std::vector<StatisticTensor> finish() &&;

  template <typename Visit> void fields(Visit &&visit) {
    std::vector<int32_t> present;
    for (size_t i = 0; i < blocks.size(); ++i)
      if (blocks[i])
        present.push_back(static_cast<int32_t>(i));
    visit(present);
    for (int32_t i : present)
      if (i >= 0 && i < static_cast<int32_t>(blocks.size())) // else bytes that are none
        visit(block(i));
  }

private:
  /// An expert that no row has chosen takes no memory.
  SiteStatistics &block(int64_t i);

  std::string name;
  int64_t columns = 0, experts = 0;
  std::vector<std::string> names;
  std::vector<std::optional<SiteStatistics>> blocks;
};

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_SITESTATISTICS_H
