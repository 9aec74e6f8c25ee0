//===- SiteStatistics.cpp - All that is gathered of a site ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/SiteStatistics.h"

#include <algorithm>

namespace easyquant::numerics {

static constexpr StatisticInfo kStatistics[] = {
    {"absmax", "the largest magnitude of each channel"},
    {"minmax", "the least and the greatest value of each channel"},
    {"mean_abs", "the mean magnitude of each channel"},
    {"moments", "mean and variance of each channel"},
    {"histogram", "2048 bins on each side of zero, of all channels"},
    {"hessian", "(2/n) sum x x^T over n rows"},
    {"ema", "moving averages of the largest magnitude and of the mean"},
    {"sinks", "the positions at which tokens tower above the others"},
    {"inliers", "the extrema of tokens that do not tower above the others"}};

static constexpr RangeObserver kObservers[] = {
    {"minmax", "minmax", true},         {"absmax", "absmax", true},
    {"percentile", "histogram", false}, {"mse", "histogram", false},
    {"entropy", "histogram", false},    {"ema", "ema", false}};

std::span<const StatisticInfo> statistics() { return kStatistics; }

bool isStatistic(std::string_view name) {
  return std::ranges::find(kStatistics, name, &StatisticInfo::name) != std::end(kStatistics);
}

bool isOfExperts(std::string_view name) { return isStatistic(name) && name != "sinks"; }

std::span<const RangeObserver> rangeObservers() { return kObservers; }

const RangeObserver *findRangeObserver(std::string_view name) {
  const RangeObserver *found = std::ranges::find(kObservers, name, &RangeObserver::name);
  return found == std::end(kObservers) ? nullptr : found;
}

std::string SiteStatistics::names() {
  std::string all;
  for (const StatisticInfo &statistic : kStatistics)
    all += fmt::format("{}{}", all.empty() ? "" : ", ", statistic.name);
  return all;
}

Result<SiteStatistics> SiteStatistics::create(std::string site, int64_t columns,
                                              std::span<const std::string> names) {
  SiteStatistics s;
  s.name = std::move(site);
  s.columns = columns;
  // In the order of the table.
  void (*const starts[])(SiteStatistics &) = {
      [](SiteStatistics &s) { s.absMax.emplace(s.columns); },
      [](SiteStatistics &s) { s.minMax.emplace(s.columns); },
      [](SiteStatistics &s) { s.meanAbs.emplace(s.columns); },
      [](SiteStatistics &s) { s.moments.emplace(s.columns); },
      [](SiteStatistics &s) { s.histogram = std::make_unique<Histogram>(); },
      [](SiteStatistics &s) { s.gram.emplace(s.columns); },
      [](SiteStatistics &s) { s.ema.emplace(); },
      [](SiteStatistics &s) { s.peaks.emplace(); },
      [](SiteStatistics &s) { s.inliers.emplace(s.columns); }};
  static_assert(std::size(starts) == std::size(kStatistics));
  for (const std::string &name : names) {
    const StatisticInfo *found = std::ranges::find(kStatistics, name, &StatisticInfo::name);
    if (found == std::end(kStatistics))
      return makeError(ErrorCode::InvalidArgument,
                       "site '{}': unknown statistic '{}'; legal are {}", s.name, name,
                       SiteStatistics::names());
    starts[found - kStatistics](s);
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

//===- Experts ------------------------------------------------------------===//

Result<ExpertStatistics> ExpertStatistics::create(std::string site, int64_t columns,
                                                  std::span<const std::string> names,
                                                  int64_t experts) {
  for (const std::string &name : names)
    if (experts > 0 && isStatistic(name) && !isOfExperts(name))
      return makeError(ErrorCode::InvalidArgument,
                       "site '{}': statistic '{}' is none of experts, whose rows do not follow "
                       "each other in a text",
                       site, name);
  // What is wrong with the names is said before there are rows.
  if (auto empty = SiteStatistics::create(site, 0, names); !empty)
    return Unexpected(empty.error());
  ExpertStatistics s;
  s.name = std::move(site);
  s.columns = columns;
  s.experts = experts;
  s.names.assign(names.begin(), names.end());
  s.blocks.resize(std::max<int64_t>(experts, 1));
  return s;
}

SiteStatistics &ExpertStatistics::block(int64_t i) {
  if (!blocks[i])
    blocks[i].emplace(std::move(*SiteStatistics::create(name, columns, names)));
  return *blocks[i];
}

Result<void> ExpertStatistics::update(ConstMatrix x, std::span<const int32_t> offsets,
                                      int64_t firstPosition, unsigned threads) {
  if (experts == 0)
    return block(0).update(x, firstPosition, threads);
  if (std::ssize(offsets) != experts + 1 || offsets.front() != 0 || offsets.back() != x.rows)
    return makeError(ErrorCode::InvalidArgument,
                     "site '{}': {} offsets over {} rows: expected {}, from 0 to {}", name,
                     offsets.size(), x.rows, experts + 1, x.rows);
  for (int64_t i = 0; i < experts; ++i)
    if (const int64_t count = offsets[i + 1] - offsets[i]; count > 0)
      if (auto done = block(i).update(x.middleRows(offsets[i], count), firstPosition, threads);
          !done)
        return makeError(done.error().code, "expert {} of {}", i, done.error().message);
  return {};
}

Result<void> ExpertStatistics::merge(const ExpertStatistics &other) {
  if (blocks.size() != other.blocks.size() || experts != other.experts)
    return makeError(ErrorCode::InvalidArgument,
                     "site '{}': statistics of {} experts cannot be merged into those of {}", name,
                     other.experts, experts);
  for (size_t i = 0; i < blocks.size(); ++i)
    if (other.blocks[i])
      if (auto done = block(static_cast<int64_t>(i)).merge(*other.blocks[i]); !done)
        return done;
  return {};
}

std::vector<StatisticTensor> ExpertStatistics::finish() && {
  if (experts == 0)
    return std::move(block(0)).finish();
  std::vector<StatisticTensor> stacks;
  for (int64_t i = 0; i < experts; ++i) {
    std::vector<StatisticTensor> own = std::move(block(i)).finish();
    blocks[i].reset(); // a Hessian is as large as it is
    if (stacks.empty())
      for (StatisticTensor &tensor : own) {
        std::vector<int64_t> shape = {experts};
        if (!tensor.isCount())
          shape.insert(shape.end(), tensor.shape.begin(), tensor.shape.end());
        stacks.push_back({std::move(tensor.name), std::move(shape), std::move(tensor.values)});
      }
    else
      for (size_t t = 0; t < own.size(); ++t)
        std::visit(
            [&](auto &all) {
              const auto &values = std::get<std::decay_t<decltype(all)>>(own[t].values);
              all.insert(all.end(), values.begin(), values.end());
            },
            stacks[t].values);
  }
  return stacks;
}

} // namespace easyquant::numerics
