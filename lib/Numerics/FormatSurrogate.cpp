//===- FormatSurrogate.cpp - Losses learned from sampled choices ----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FormatRelaxation.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <random>
#include <set>

namespace easyquant::numerics {

/// The deviation of the logarithm of the factors by which sampled tables differ from the given one.
static constexpr double kSpread = 0.7;
/// Samples that turn out like earlier ones are drawn again, so many times for each that is wanted.
static constexpr size_t kDraws = 20;
/// How strongly coefficients are drawn together, as a share of what the samples say.
static constexpr double kRidge = 1e-3;

namespace {
/// std::normal_distribution differs between libraries.
class NormalNumbers {
public:
  double uniform() { return (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53; }
  double next() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

private:
  std::mt19937_64 random{0};
};
} // namespace

Result<std::vector<FormatChoice>> sampleChoices(const FormatTable &table, int64_t budget,
                                                size_t count) {
  const int64_t least = leastBytes(table);
  if (least > budget)
    return makeError(ErrorCode::OutOfRange,
                     "a budget of {} bytes: the smallest formats of all groups take {} bytes",
                     budget, least);
  std::vector<size_t> groups(table.size());
  std::iota(groups.begin(), groups.end(), size_t(0));
  NormalNumbers numbers;
  std::set<std::vector<size_t>> seen;
  std::vector<FormatChoice> choices;
  for (size_t draw = 0; choices.size() < count && draw < kDraws * count; ++draw) {
    FormatTable varied = table;
    for (std::vector<FormatCost> &costs : varied) {
      const double factor = std::exp(kSpread * numbers.next());
      for (FormatCost &cost : costs)
        cost.loss *= factor;
    }
    const double share = 0.9 + 0.1 * numbers.uniform();
    const auto spent = std::max(least, static_cast<int64_t>(share * static_cast<double>(budget)));
    std::vector<size_t> formats(table.size());
    FormatRelaxation(varied, groups).complete(spent, formats);
    if (seen.insert(formats).second)
      choices.push_back(costOf(table, std::move(formats)));
  }
  return choices;
}

Result<std::vector<double>> fitKinds(const FormatTable &table, std::span<const size_t> kindOf,
                                     std::span<const FormatChoice> choices,
                                     std::span<const double> losses) {
  if (choices.empty() || choices.size() != losses.size() || kindOf.size() != table.size())
    return makeError(ErrorCode::InvalidArgument,
                     "{} choices with {} losses and kinds of {} of {} groups: expected a loss for "
                     "each of at least one, and a kind for each group",
                     choices.size(), losses.size(), kindOf.size(), table.size());
  const size_t kinds = table.empty() ? 0 : std::ranges::max(kindOf) + 1;
  // Rows of shares x / y: relative errors are those of a fit to 1.
  std::vector<double> rows;
  double scale = 0, squares = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (!(losses[i] > 0) || !std::isfinite(losses[i]))
      return makeError(ErrorCode::InvalidArgument, "loss {} of a sample: expected it above 0",
                       losses[i]);
    std::vector<double> row(kinds);
    for (size_t group = 0; group < table.size(); ++group)
      row[kindOf[group]] += table[group][choices[i].formats[group]].loss / losses[i];
    const double whole = std::accumulate(row.begin(), row.end(), 0.0);
    scale += whole;
    squares += whole * whole;
    rows.insert(rows.end(), row.begin(), row.end());
  }
  if (!(squares > 0))
    return makeError(ErrorCode::InvalidArgument, "the samples have no loss by the table");
  const double common = std::max(scale / squares, 0.0);
  std::vector<double> b(kinds, common);
  // Coordinate by coordinate: a quadratic over b >= 0 has one minimum.
  for (int round = 0; round < 1000; ++round) {
    double moved = 0;
    for (size_t kind = 0; kind < kinds; ++kind) {
      double slope = 0, curve = 0;
      for (size_t i = 0; i < choices.size(); ++i) {
        const double *row = rows.data() + i * kinds;
        const double error = std::inner_product(row, row + kinds, b.begin(), -1.0);
        slope += row[kind] * error;
        curve += row[kind] * row[kind];
      }
      const double ridge = kRidge * squares / static_cast<double>(kinds * kinds);
      slope += ridge * (b[kind] - common);
      const double next = std::max(0.0, b[kind] - slope / (curve + ridge));
      moved = std::max(moved, std::fabs(next - b[kind]));
      b[kind] = next;
    }
    if (moved <= 1e-12 * common)
      break;
  }
  return b;
}

static std::vector<double> ranksOf(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::ranges::sort(order, {}, [&](size_t i) { return values[i]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    while (end < order.size() && values[order[end]] == values[order[begin]])
      ++end;
    for (size_t i = begin; i < end; ++i)
      ranks[order[i]] = 0.5 * static_cast<double>(begin + end - 1);
    begin = end;
  }
  return ranks;
}

double rankCorrelation(std::span<const double> x, std::span<const double> y) {
  const std::vector<double> a = ranksOf(x), b = ranksOf(y);
  const double mean = 0.5 * (static_cast<double>(a.size()) - 1);
  double products = 0, squaresOfA = 0, squaresOfB = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    products += (a[i] - mean) * (b[i] - mean);
    squaresOfA += (a[i] - mean) * (a[i] - mean);
    squaresOfB += (b[i] - mean) * (b[i] - mean);
  }
  return squaresOfA > 0 && squaresOfB > 0 ? products / std::sqrt(squaresOfA * squaresOfB) : 0;
}

} // namespace easyquant::numerics
