//===- SiteStatistics.cpp - All that is gathered of a site ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/SiteStatistics.h"

#include <fmt/ranges.h>

namespace easyquant::numerics {

static constexpr std::string_view kStatisticNames[] = {
    "absmax", "minmax", "mean_abs", "moments", "histogram", "hessian", "ema", "sinks", "inliers"};

std::string SiteStatistics::names() { return fmt::format("{}", fmt::join(kStatisticNames, ", ")); }

Result<SiteStatistics> SiteStatistics::create(std::string site, int64_t columns,
                                              std::span<const std::string> statistics) {
  SiteStatistics s;
  s.name = std::move(site);
  s.columns = columns;
  for (const std::string &statistic : statistics) {
    if (statistic == "absmax")
      s.absMax.emplace(columns);
    else if (statistic == "minmax")
      s.minMax.emplace(columns);
    else if (statistic == "mean_abs")
      s.meanAbs.emplace(columns);
    else if (statistic == "moments")
      s.moments.emplace(columns);
    else if (statistic == "histogram")
      s.histogram = std::make_unique<Histogram>();
    else if (statistic == "hessian")
      s.gram.emplace(columns);
    else if (statistic == "ema")
      s.ema.emplace();
    else if (statistic == "sinks")
      s.peaks.emplace();
    else if (statistic == "inliers")
      s.inliers.emplace(columns);
    else
      return makeError(ErrorCode::InvalidArgument,
                       "site '{}': unknown statistic '{}'; legal are {}", s.name, statistic,
                       names());
  }
  return s;
}

Result<void> SiteStatistics::update(ConstMatrix x, int64_t firstPosition, unsigned threads) {
  if (x.columns != columns)
    return makeError(ErrorCode::InvalidArgument, "site '{}': rows of {} channels: expected {}",
                     name, x.columns, columns);
  Result<void> done;
  forEachMember([&](auto member) {
    auto &accumulator = this->*member;
    if (!accumulator || !done)
      return;
    if constexpr (std::is_same_v<decltype(member), std::optional<Gram> SiteStatistics::*>)
      done = accumulator->update(x, threads);
    else if constexpr (std::is_same_v<decltype(member),
                                      std::optional<TokenPeaks> SiteStatistics::*>)
      done = accumulator->update(x, firstPosition);
    else
      done = accumulator->update(x);
  });
  if (!done)
    return makeError(done.error().code, "site '{}': {}", name, done.error().message);
  rows += x.rows;
  return {};
}

Result<void> SiteStatistics::merge(const SiteStatistics &other) {
  bool same = name == other.name && columns == other.columns;
  forEachMember([&](auto member) { same &= !(this->*member) == !(other.*member); });
  if (!same)
    return makeError(ErrorCode::InvalidArgument,
                     "site '{}': statistics of '{}' with {} channels, or others than these, cannot "
                     "be merged into those of {} channels",
                     name, other.name, other.columns, columns);
  forEachMember([&](auto member) {
    if (this->*member)
      (this->*member)->merge(*(other.*member));
  });
  rows += other.rows;
  return {};
}

std::vector<StatisticTensor> SiteStatistics::finish() && {
  std::vector<StatisticTensor> tensors;
  auto add = [&](const char *statistic, std::vector<int64_t> shape, auto values) {
    tensors.push_back({fmt::format("{}/{}", name, statistic), std::move(shape), std::move(values)});
  };
  auto addPair = [&](const char *statistic, std::vector<float> first,
                     const std::vector<float> &second) {
    first.insert(first.end(), second.begin(), second.end());
    add(statistic, {2, columns}, std::move(first));
  };
  add("tokens", {1}, std::vector<int64_t>{rows});
  if (absMax)
    add("absmax", {columns}, absMax->channels());
  if (minMax)
    addPair("minmax", minMax->minima(), minMax->maxima());
  if (meanAbs)
    add("mean_abs", {columns}, meanAbs->means());
  if (moments)
    addPair("moments", moments->means(), moments->variances());
  if (histogram) {
    std::span<const int64_t> counts = histogram->allCounts();
    add("histogram", {2 * Histogram::kBins}, std::vector<int64_t>(counts.begin(), counts.end()));
    add("histogram_range", {2}, std::vector<float>{histogram->min(), histogram->max()});
  }
  if (gram)
    add("hessian", {columns, columns}, std::move(*gram).takeHessian());
  if (ema)
    add("ema", {2}, std::vector<float>{float(ema->peak()), float(ema->mean())});
  if (peaks) {
    std::vector<int64_t> sinks = peaks->sinks();
    const auto count = static_cast<int64_t>(sinks.size()); // arguments are evaluated in any order
    add("sinks", {count}, std::move(sinks));
  }
  if (inliers) {
    MinMax extrema = inliers->extrema();
    addPair("inliers", extrema.minima(), extrema.maxima());
    add("inlier_tokens", {1}, std::vector<int64_t>{inliers->tokens()});
  }
  return tensors;
}

} // namespace easyquant::numerics
