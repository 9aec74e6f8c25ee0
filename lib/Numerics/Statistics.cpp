//===- Statistics.cpp - What calibration gathers of a site ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Statistics.h"

#include "LinearAlgebra.h"
#include "RowQuantize.h"
#include "easyquant/Support/Parallel.h"

#include <cfloat>

namespace easyquant::numerics {
namespace {

/// Rows that may be counted; the largest magnitude among them.
Result<float> checkRows(ConstMatrix x, int64_t columns) {
  if (auto ok = checkMatrix(x); !ok)
    return Unexpected(ok.error());
  if (x.columns != columns)
    return makeError(ErrorCode::InvalidArgument, "rows of {} channels: expected {}", x.columns,
                     columns);
  int32_t largest = 0;
  for (int64_t i = 0; i < x.rows; ++i) {
    int32_t bits = absMaxBits(x.row(i), x.columns);
    if (bits >= kInfinityBits)
      return notFiniteError(x.row(i), x.columns, i, "only finite activations can be counted");
    largest = std::max(largest, bits);
  }
  return std::bit_cast<float>(largest);
}

std::vector<float> divided(const std::vector<double> &sums, int64_t count) {
  std::vector<float> means(sums.size());
  for (size_t j = 0; j < sums.size() && count > 0; ++j)
    means[j] = static_cast<float>(sums[j] / count);
  return means;
}

void add(std::vector<double> &to, const std::vector<double> &from) {
  for (size_t j = 0; j < to.size(); ++j)
    to[j] += from[j];
}

} // namespace

//===- Extrema ------------------------------------------------------------===//

Result<void> AbsMax::update(ConstMatrix x) {
  if (auto ok = checkRows(x, peaks.size()); !ok)
    return Unexpected(ok.error());
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t j = 0; j < x.columns; ++j) {
      float magnitude = std::fabs(x(i, j));
      peaks[j] = magnitude > peaks[j] ? magnitude : peaks[j];
    }
  return {};
}

void AbsMax::merge(const AbsMax &other) {
  for (size_t j = 0; j < peaks.size(); ++j)
    peaks[j] = std::max(peaks[j], other.peaks[j]);
}

float AbsMax::tensor() const {
  return peaks.empty() ? 0 : *std::max_element(peaks.begin(), peaks.end());
}

Result<void> MinMax::update(ConstMatrix x) {
  if (auto ok = checkRows(x, low.size()); !ok)
    return Unexpected(ok.error());
  if (x.rows == 0)
    return {};
  if (empty) {
    std::copy_n(x.row(0), x.columns, low.begin());
    std::copy_n(x.row(0), x.columns, high.begin());
    empty = false;
  }
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t j = 0; j < x.columns; ++j) {
      low[j] = x(i, j) < low[j] ? x(i, j) : low[j];
      high[j] = x(i, j) > high[j] ? x(i, j) : high[j];
    }
  return {};
}

void MinMax::merge(const MinMax &other) {
  if (empty)
    *this = other;
  if (other.empty)
    return;
  for (size_t j = 0; j < low.size(); ++j) {
    low[j] = std::min(low[j], other.low[j]);
    high[j] = std::max(high[j], other.high[j]);
  }
}

//===- Sums ---------------------------------------------------------------===//

Result<void> MeanAbs::update(ConstMatrix x) {
  if (auto ok = checkRows(x, sums.size()); !ok)
    return Unexpected(ok.error());
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t j = 0; j < x.columns; ++j)
      sums[j] += std::fabs(x(i, j));
  rows += x.rows;
  return {};
}

void MeanAbs::merge(const MeanAbs &other) {
  add(sums, other.sums);
  rows += other.rows;
}

std::vector<float> MeanAbs::means() const { return divided(sums, rows); }

Result<void> Moments::update(ConstMatrix x) {
  if (auto ok = checkRows(x, sums.size()); !ok)
    return Unexpected(ok.error());
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t j = 0; j < x.columns; ++j) {
      double v = x(i, j);
      sums[j] += v;
      squares[j] += v * v;
    }
  rows += x.rows;
  return {};
}

void Moments::merge(const Moments &other) {
  add(sums, other.sums);
  add(squares, other.squares);
  rows += other.rows;
}

std::vector<float> Moments::means() const { return divided(sums, rows); }

std::vector<float> Moments::variances() const {
  std::vector<float> result(sums.size());
  for (size_t j = 0; j < sums.size() && rows > 0; ++j) {
    double mean = sums[j] / rows;
    // A variance beyond the range of float is as large as one can be.
    result[j] =
        static_cast<float>(std::clamp(squares[j] / rows - mean * mean, 0.0, double(FLT_MAX)));
  }
  return result;
}

std::vector<float> Moments::meanSquares() const {
  std::vector<float> result(squares.size());
  for (size_t j = 0; j < squares.size() && rows > 0; ++j)
    result[j] = static_cast<float>(std::min(squares[j] / rows, double(FLT_MAX)));
  return result;
}

//===- Ema ----------------------------------------------------------------===//

Result<void> Ema::update(ConstMatrix x) {
  auto absMax = checkRows(x, x.columns);
  if (!absMax)
    return Unexpected(absMax.error());
  if (x.rows == 0 || x.columns == 0)
    return {};
  bool constant = true;
  double sum = 0;
  for (int64_t i = 0; i < x.rows; ++i) {
    auto [low, high] = extremesOf(x.row(i), x.columns);
    constant &= low == x(0, 0) && high == x(0, 0);
    for (int64_t j = 0; j < x.columns; ++j)
      sum += x(i, j);
  }
  if (constant)
    return {};
  State step{std::max<double>(floor, *absMax), sum / (double(x.rows) * x.columns)};
  if (updates++ == 0) {
    first = now = step;
    return {};
  }
  now.peak = decay * now.peak + (1 - decay) * step.peak;
  now.mean = decay * now.mean + (1 - decay) * step.mean;
  return {};
}

void Ema::merge(const Ema &other) {
  if (other.updates == 0)
    return;
  if (updates == 0) {
    first = other.first;
    now = other.now;
  } else {
    double kept = std::pow(decay, other.updates);
    now.peak = other.now.peak + kept * (now.peak - other.first.peak);
    now.mean = other.now.mean + kept * (now.mean - other.first.mean);
  }
  updates += other.updates;
}

SliceParams Ema::params(double peak, double mean, const Scheme &scheme) {
  CodeRange codes = codeRange(scheme);
  if (peak < kMinAbsMax)
    return {};
  auto scale = static_cast<float>(
      peak / (scheme.symmetric && scheme.fullRange ? codes.max + 0.5 : codes.max));
  if (scheme.symmetric)
    return {scale, 0};
  double zeroPoint = -std::nearbyint(mean / scale);
  return {scale, static_cast<int32_t>(std::clamp<double>(zeroPoint, codes.min, codes.max))};
}

//===- Gram ---------------------------------------------------------------===//

/// Side of the squares of H that a thread computes at a time.
static constexpr int64_t kGramTile = 256;

Result<void> Gram::update(ConstMatrix x, unsigned threads) {
  auto largest = checkRows(x, columns);
  if (!largest)
    return Unexpected(largest.error());
  float peak = std::max(absMax, *largest);
  if (double(peak) * peak * (rows + x.rows) > FLT_MAX)
    return makeError(ErrorCode::InvalidArgument,
                     "the squares of {} values up to {} leave the range of float", rows + x.rows,
                     peak);
  absMax = peak;
  rows += x.rows;
  if (x.rows == 0)
    return {};
  int64_t tiles = (columns + kGramTile - 1) / kGramTile;
  auto columnsOf = [&](int64_t tile) {
    return ConstMatrix(x.data + tile * kGramTile, x.rows,
                       std::min(kGramTile, columns - tile * kGramTile), x.stride);
  };
  parallelFor(tiles * tiles, threads, [&](int64_t index) {
    int64_t row = index / tiles, column = index % tiles;
    if (column > row)
      return;
    ConstMatrix a = columnsOf(row), b = columnsOf(column);
    gemm(1, a, Transpose::Yes, b, Transpose::No, 1,
         Matrix(sums.data() + row * kGramTile * columns + column * kGramTile, a.columns, b.columns,
                columns));
  });
  return {};
}

Result<void> Gram::update(ConstMatrix x, std::span<const float> weights, unsigned threads) {
  std::vector<float> scaled(x.rows * x.columns);
  parallelFor(x.rows, threads, [&](int64_t i) {
    const float root = std::sqrt(weights[i]);
    for (int64_t j = 0; j < x.columns; ++j)
      scaled[i * x.columns + j] = root * x(i, j);
  });
  return update({scaled.data(), x.rows, x.columns}, threads);
}

void Gram::merge(const Gram &other) {
  for (size_t i = 0; i < sums.size(); ++i)
    sums[i] += other.sums[i];
  rows += other.rows;
  absMax = std::max(absMax, other.absMax);
}

std::vector<float> Gram::takeHessian() && {
  double factor = rows == 0 ? 0 : 2.0 / rows;
  for (int64_t i = 0; i < columns; ++i)
    for (int64_t j = 0; j <= i; ++j)
      sums[i * columns + j] = sums[j * columns + i] =
          static_cast<float>(sums[i * columns + j] * factor);
  return std::move(sums);
}

void fillUp(std::span<float> statistic, int64_t columns, int64_t rows, int64_t enough,
            std::span<const float> other) {
  if (rows >= enough)
    return;
  const bool isVector = std::ssize(statistic) == columns;
  const int64_t step = isVector ? 1 : columns + 1; // from what a column has to that of the next
  double mean = rows > 0 ? 0 : 1;
  for (int64_t i = 0; i < columns && rows > 0; ++i)
    mean += statistic[i * step] / static_cast<double>(columns);
  const double share = static_cast<double>(rows) / static_cast<double>(enough);
  for (int64_t i = 0; i < std::ssize(statistic); ++i) {
    const double alike = i % step == 0 ? mean : 0;
    statistic[i] =
        static_cast<float>(share * statistic[i] + (1 - share) * (other.empty() ? alike : other[i]));
  }
}

//===- TokenPeaks ---------------------------------------------------------===//

Result<void> TokenPeaks::update(ConstMatrix x, int64_t firstPosition) {
  if (auto ok = checkRows(x, x.columns); !ok)
    return Unexpected(ok.error());
  if (firstPosition < 0)
    return makeError(ErrorCode::InvalidArgument, "position {}: expected 0 or more", firstPosition);
  if (static_cast<int64_t>(least.size()) < firstPosition + x.rows)
    least.resize(firstPosition + x.rows, -1);
  for (int64_t i = 0; i < x.rows; ++i) {
    float peak = std::bit_cast<float>(absMaxBits(x.row(i), x.columns));
    float &at = least[firstPosition + i];
    at = at < 0 ? peak : std::min(at, peak);
  }
  return {};
}

void TokenPeaks::merge(const TokenPeaks &other) {
  least.resize(std::max(least.size(), other.least.size()), -1);
  for (size_t i = 0; i < other.least.size(); ++i)
    if (other.least[i] >= 0)
      least[i] = least[i] < 0 ? other.least[i] : std::min(least[i], other.least[i]);
}

std::vector<int64_t> TokenPeaks::sinks(double factor) const {
  std::vector<float> seen;
  for (float peak : least)
    if (peak >= 0)
      seen.push_back(peak);
  if (seen.empty())
    return {};
  auto middle = seen.begin() + seen.size() / 2;
  std::nth_element(seen.begin(), middle, seen.end());
  std::vector<int64_t> positions;
  for (size_t i = 0; i < least.size(); ++i)
    if (least[i] > factor * *middle)
      positions.push_back(i);
  return positions;
}

//===- Inliers ------------------------------------------------------------===//

/// Bits of a float's mantissa that are no part of the number of its bin.
static constexpr int kBinShift = 20;

/// Where a bin ends; an infinity of the last one.
static double endOfBin(int32_t bin) {
  return std::bit_cast<float>(static_cast<int32_t>((bin + 1) << kBinShift));
}

Result<void> Inliers::update(ConstMatrix x) {
  if (auto ok = checkRows(x, columns); !ok)
    return Unexpected(ok.error());
  for (int64_t i = 0; i < x.rows; ++i) {
    int32_t number = absMaxBits(x.row(i), x.columns) >> kBinShift;
    Bin &bin = bins.try_emplace(number, Bin{MinMax(columns)}).first->second;
    if (auto ok = bin.extrema.update(x.middleRows(i, 1)); !ok)
      return ok;
    ++bin.tokens;
  }
  return {};
}

void Inliers::merge(const Inliers &other) {
  for (const auto &[number, bin] : other.bins) {
    Bin &own = bins.try_emplace(number, Bin{MinMax(columns)}).first->second;
    own.extrema.merge(bin.extrema);
    own.tokens += bin.tokens;
  }
}

std::map<int32_t, Inliers::Bin>::const_iterator Inliers::end() const {
  int64_t all = 0, seen = 0;
  for (const auto &[number, bin] : bins)
    all += bin.tokens;
  double limit = 0;
  auto it = bins.begin();
  for (; it != bins.end() && seen <= all / 2; ++it) {
    seen += it->second.tokens;
    limit = kFactor * endOfBin(it->first);
  }
  while (it != bins.end() && endOfBin(it->first) <= limit)
    ++it;
  return it;
}

MinMax Inliers::extrema() const {
  MinMax result(columns);
  for (auto it = bins.begin(), last = end(); it != last; ++it)
    result.merge(it->second.extrema);
  return result;
}

int64_t Inliers::tokens() const {
  int64_t count = 0;
  for (auto it = bins.begin(), last = end(); it != last; ++it)
    count += it->second.tokens;
  return count;
}

} // namespace easyquant::numerics
