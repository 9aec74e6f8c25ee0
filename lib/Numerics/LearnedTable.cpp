//===- LearnedTable.cpp - Tables of values from weights -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/LearnedTable.h"

#include "easyquant/Numerics/Quantize.h"
#include "easyquant/Support/Parallel.h"

#include <cmath>

namespace easyquant::numerics {
namespace {

constexpr int kRounds = 12;
/// So many rounds that do not take this share of the error away are the last.
constexpr int kPatience = 2;
constexpr double kLeastGain = 2e-3;
/// Rows that one thread takes at a time.
constexpr int64_t kBlockRows = 32;
/// Bins of a histogram, from -kTableReach to kTableReach times the scale; what lies beyond is in
/// those at the ends. Some 16 of them are between two neighbours of 16 values.
constexpr size_t kTableBins = 512;
constexpr double kTableReach = 1.5;

/// Values w / s, each counting h s^2.
struct ValueSums {
  double weight = 0, first = 0, second = 0;

  void add(double u, double count) {
    weight += count;
    first += count * u;
    second += count * u * u;
  }
  ValueSums &operator+=(const ValueSums &other) {
    weight += other.weight;
    first += other.first;
    second += other.second;
    return *this;
  }
  double mean() const { return first / weight; }
  /// The error of one value that stands for all of them.
  double error(double value) const { return second - 2 * value * first + value * value * weight; }
};
ValueSums operator-(const ValueSums &a, const ValueSums &b) {
  return {a.weight - b.weight, a.first - b.first, a.second - b.second};
}

/// What one round finds.
struct TableRound {
  double error = 0; ///< sum h (w - s t)^2
  std::vector<ValueSums> bins = std::vector<ValueSums>(kTableBins);
};

/// Some rows of a weight.
struct TableBlock {
  ConstMatrix rows;
  std::span<const float> meanSquares;
};

Result<TableRound> findRound(const TableBlock &block, const Scheme &scheme, ScaleRule rule) {
  const std::vector<float> ones(block.meanSquares.empty() ? block.rows.columns : 0, 1.0f);
  const std::span<const float> meanSquares =
      block.meanSquares.empty() ? std::span(ones) : block.meanSquares;
  if (rule.kind == ScaleRuleKind::HessianDiagonal)
    rule.weights = meanSquares;
  auto rounded = quantize(block.rows, scheme, rule);
  if (!rounded)
    return Unexpected(rounded.error());
  const int64_t columns = block.rows.columns;
  const int64_t width = scheme.groupSize ? scheme.groupSize : columns;
  TableRound round;
  for (int64_t n = 0; n < block.rows.rows; ++n)
    for (int64_t j = 0; j < columns; ++j) {
      const double s = rounded->params.scales[n * rounded->params.groups + j / width];
      const double u = block.rows(n, j) / s, count = meanSquares[j] * s * s;
      const double off = u - codeValue(scheme, rounded->codes[n * columns + j], 0);
      round.error += count * off * off;
      const double place = (u + kTableReach) / (2 * kTableReach) * kTableBins;
      round.bins[static_cast<size_t>(std::clamp(place, 0.0, kTableBins - 1.0))].add(u, count);
    }
  return round;
}

Result<TableRound> findRound(const std::vector<TableBlock> &blocks, const Scheme &scheme,
                             const ScaleRule &rule, unsigned threads) {
  std::vector<Result<TableRound>> parts(blocks.size(), TableRound());
  parallelFor(std::ssize(blocks), threads,
              [&](int64_t i) { parts[i] = findRound(blocks[i], scheme, rule); });
  TableRound all;
  for (const Result<TableRound> &part : parts) {
    if (!part)
      return part;
    all.error += part->error;
    for (size_t i = 0; i < kTableBins; ++i)
      all.bins[i] += part->bins[i];
  }
  return all;
}

/// The best k-means of the bins, in ascending order; fewer where fewer bins have anything. Values
/// of the ends that are given stay what they are.
class KMeans {
public:
  KMeans(const std::vector<ValueSums> &bins, size_t count, std::optional<double> first,
         std::optional<double> last)
      : count(count), first(first), last(last) {
    for (const ValueSums &bin : bins)
      if (bin.weight > 0) {
        sums.push_back(sums.back());
        sums.back() += bin;
      }
  }

  std::vector<double> find() const {
    const size_t bins = sums.size() - 1;
    // For the first `to` bins with k values: the error, and where the last value's bins begin.
    std::vector<double> best(bins + 1, INFINITY);
    best[0] = 0;
    std::vector<std::vector<size_t>> begins;
    for (size_t k = 0; k < count; ++k) {
      std::vector<double> next(bins + 1, INFINITY);
      std::vector<size_t> &begin = begins.emplace_back(bins + 1);
      // The more bins there are, the further on the last value's begin.
      for (size_t to = 0; to <= bins; ++to)
        for (size_t from = to ? begin[to - 1] : 0; from <= to; ++from)
          if (const double error = best[from] + errorOf(k, from, to); error < next[to]) {
            next[to] = error;
            begin[to] = from;
          }
      best = std::move(next);
    }
    std::vector<double> values;
    size_t to = bins;
    for (size_t k = count; k-- > 0; to = begins[k][to])
      if (const std::optional<double> fixed = fixedValue(k))
        values.push_back(*fixed);
      else if (to > begins[k][to])
        values.push_back((sums[to] - sums[begins[k][to]]).mean());
    std::ranges::reverse(values);
    return values;
  }

private:
  std::optional<double> fixedValue(size_t k) const {
    return k == 0 ? first : k + 1 == count ? last : std::nullopt;
  }
  double errorOf(size_t k, size_t from, size_t to) const {
    if (from == to)
      return 0;
    const ValueSums all = sums[to] - sums[from];
    return all.error(fixedValue(k).value_or(all.mean()));
  }

  size_t count;
  std::optional<double> first, last;
  std::vector<ValueSums> sums = std::vector<ValueSums>(1); ///< of the bins before
};

/// Does the rule look for scales of small error, whatever the extremes are?
bool takesLeastError(const ScaleRule &rule) {
  return rule.kind == ScaleRuleKind::HessianDiagonal || rule.kind == ScaleRuleKind::Mse ||
         rule.kind == ScaleRuleKind::Entropy;
}

/// Ascending values of magnitudes up to 1, the nearest n / 128 for 127 of each, neighbours having
/// an n each.
std::vector<float> roundedToInt8(std::span<const float> values) {
  const size_t count = values.size();
  std::vector<int32_t> steps(count);
  for (size_t i = 0; i < count; ++i) {
    steps[i] = static_cast<int32_t>(std::nearbyint(127 * values[i]));
    if (i > 0)
      steps[i] = std::max(steps[i], steps[i - 1] + 1);
  }
  for (size_t i = count; i-- > 0;)
    steps[i] = std::min(steps[i], 127 - static_cast<int32_t>(count - 1 - i));
  std::vector<float> rounded;
  for (int32_t n : steps)
    rounded.push_back(static_cast<float>(n) / 128);
  return rounded;
}

/// The table of these values, the outermost becoming 1 or -1, or of int8 ones 127 or -127 of 128;
/// null where they are not as many, or f32 makes two of them equal.
const Codebook *tableOfValues(std::span<const double> values, size_t count, bool areInt8) {
  if (values.size() != count)
    return nullptr;
  const double outermost = std::max(std::fabs(values.front()), std::fabs(values.back()));
  std::vector<float> scaled;
  for (double value : values)
    scaled.push_back(static_cast<float>(value / outermost));
  auto table = Codebook::of(areInt8 ? roundedToInt8(scaled) : scaled);
  return table ? *table : nullptr;
}

/// The best one for the scales of a round.
const Codebook *nextTable(const TableRound &round, const Codebook &before, bool free,
                          bool areInt8) {
  const std::span<const float> values = before.values();
  const float outermost = std::max(std::fabs(values.front()), std::fabs(values.back()));
  auto held = [&](float value) {
    return !free && std::fabs(value) == outermost ? std::optional<double>(value) : std::nullopt;
  };
  const KMeans means(round.bins, values.size(), held(values.front()), held(values.back()));
  return tableOfValues(means.find(), values.size(), areInt8);
}

} // namespace

Result<const Codebook *> learnTable(std::span<const RowsToLearn> weights, const Scheme &scheme,
                                    ScaleRule rule, unsigned threads) {
  std::vector<TableBlock> blocks;
  for (const RowsToLearn &weight : weights)
    for (int64_t first = 0; first < weight.rows.rows; first += kBlockRows)
      blocks.push_back(
          {weight.rows.middleRows(first, std::min(kBlockRows, weight.rows.rows - first)),
           weight.meanSquares});
  rule.coarse = true;
  Scheme learning = withWideScales(scheme);
  const std::span<const float> start = scheme.table->values();
  const bool areInt8 = scheme.table->int8Unit().has_value();
  learning.table =
      tableOfValues(std::vector<double>(start.begin(), start.end()), start.size(), areInt8);
  const Codebook *best = nullptr;
  double least = INFINITY;
  int sinceGain = 0;
  for (int i = 0; i <= kRounds && learning.table && sinceGain < kPatience; ++i) {
    auto round = findRound(blocks, learning, rule, threads);
    if (!round)
      return Unexpected(round.error());
    sinceGain = round->error < least * (1 - kLeastGain) ? 0 : sinceGain + 1;
    if (round->error < least || !best) {
      best = learning.table;
      least = round->error;
    }
    learning.table = nextTable(*round, *learning.table, takesLeastError(rule), areInt8);
  }
  return best;
}

} // namespace easyquant::numerics
