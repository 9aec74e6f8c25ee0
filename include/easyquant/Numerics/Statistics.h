//===- Statistics.h - What calibration gathers of a site --------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Accumulators over the activations of one site. Rows are tokens, columns the K channels; what must
// not count (padding, the token that begins texts) the caller leaves out. Each declares how two of
// it merge: `merge` makes of the accumulators of two sets of rows that of both.
//
//      statistic    of                    merge law
//      AbsMax       channel, tensor       maximum; exact
//      MinMax       channel, tensor       minimum and maximum; exact
//      MeanAbs      channel               sums (double) and counts add up
//      Moments      channel               sums of x and x^2 (double) and counts add up
//      Histogram    tensor (Histogram.h)  counts add up; exact
//      Ema          tensor                other's updates come after this one's: see there
//      Gram         pairs of channels     sums (float) and counts add up
//      TokenPeaks   position              minimum over the samples; exact
//      Inliers      channel, tensor       minimum and maximum of each bin of tokens; exact
//
// Every update fails with InvalidArgument on rows that are not K wide or overlap and on an element
// that is not finite (naming its row and column), and then leaves the accumulator as it was.
// Results depend on the updates and their order alone, not on threads. `fields` lists what each
// holds (easyquant/Support/Bytes.h).
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_STATISTICS_H
#define EASYQUANT_NUMERICS_STATISTICS_H

#include "easyquant/Numerics/Matrix.h"
#include "easyquant/Numerics/ScaleRules.h"

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace easyquant::numerics {

/// max |x|: what SmoothQuant takes. Zeros before the first row.
class AbsMax {
public:
  explicit AbsMax(int64_t columns) : peaks(columns) {}
  Result<void> update(ConstMatrix x);
  void merge(const AbsMax &other);
  const std::vector<float> &channels() const { return peaks; }
  float tensor() const;

  template <typename Visit> void fields(Visit &&visit) { visit(peaks); }

private:
  std::vector<float> peaks;
};

/// Extrema. Zeros before the first row.
class MinMax {
public:
  explicit MinMax(int64_t columns) : low(columns), high(columns) {}
  Result<void> update(ConstMatrix x);
  void merge(const MinMax &other);
  const std::vector<float> &minima() const { return low; }
  const std::vector<float> &maxima() const { return high; }

  template <typename Visit> void fields(Visit &&visit) { visit(low), visit(high), visit(empty); }

private:
  std::vector<float> low, high;
  bool empty = true;
};

/// mean |x|: what AWQ takes. Zeros before the first row.
class MeanAbs {
public:
  explicit MeanAbs(int64_t columns) : sums(columns) {}
  Result<void> update(ConstMatrix x);
  void merge(const MeanAbs &other);
  std::vector<float> means() const;
  int64_t tokens() const { return rows; }

  template <typename Visit> void fields(Visit &&visit) { visit(sums), visit(rows); }

private:
  std::vector<double> sums;
  int64_t rows = 0;
};

/// Mean and variance (of the rows themselves: divided by their number). Zeros before the first row.
class Moments {
public:
  explicit Moments(int64_t columns) : sums(columns), squares(columns) {}
  Result<void> update(ConstMatrix x);
  void merge(const Moments &other);
  std::vector<float> means() const;
  std::vector<float> variances() const;
  /// E[x^2]: the diagonal of H / 2.
  std::vector<float> meanSquares() const;
  int64_t tokens() const { return rows; }

  template <typename Visit> void fields(Visit &&visit) { visit(sums), visit(squares), visit(rows); }

private:
  std::vector<double> sums, squares;
  int64_t rows = 0;
};

/// Exponential moving averages, one step an update, of what a static or online scale follows:
///
///      p_t = a p_{t-1} + (1 - a) max(floor, absmax(X_t))      mu_t = a mu_{t-1} + (1 - a)
///      mean(X_t)
///
/// starting with p_1 = max(floor, absmax(X_1)) and mu_1 = mean(X_1). An update without rows or
/// whose values are all equal is none. Merge law: this, then other's updates; with n of them that
/// began with p'_1 and ended with p'_n,  p <- p'_n + a^n (p - p'_1), and mu alike.
class Ema {
public:
  /// 0 <= decay < 1; floor > 0.
  explicit Ema(double decay = 0.99, double floor = 1e-8) : decay(decay), floor(floor) {}
  Result<void> update(ConstMatrix x);
  void merge(const Ema &other);
  double peak() const { return now.peak; }
  double mean() const { return now.mean; }
  int64_t steps() const { return updates; }

  /// s = p / max code (2^(b-1) - 0.5 with the full range); asymmetric: z = -rne(mu / s), clamped to
  /// the codes. Scale 1 before the first step.
  static SliceParams params(double peak, double mean, const Scheme &scheme);
  SliceParams params(const Scheme &scheme) const { return params(peak(), mean(), scheme); }

  template <typename Visit> void fields(Visit &&visit) { visit(first), visit(now), visit(updates); }

private:
  struct State {
    double peak = 0, mean = 0;
  };
  double decay, floor;
  State first, now;
  int64_t updates = 0;
};

/// H = (2/n) sum x x^T over n rows: the Hessian of a linear's squared error by one row of its
/// weight (GPTQ). Sums in float, by matrix products of fixed pieces.
class Gram {
public:
  explicit Gram(int64_t columns) : columns(columns), sums(columns * columns) {}
  /// Fails also where the squares could leave the range of float. threads: 0, one per core.
  Result<void> update(ConstMatrix x, unsigned threads = 0);
  /// The same with each row as often as its weight says, which is at least 0.
  Result<void> update(ConstMatrix x, std::span<const float> weights, unsigned threads = 0);
  void merge(const Gram &other);
  int64_t tokens() const { return rows; }
  /// H, K x K and symmetric to the bit, in the memory of the sums; zeros when there were no rows.
  std::vector<float> takeHessian() &&;

  template <typename Visit> void fields(Visit &&visit) {
    visit(columns), visit(rows), visit(absMax), visit(sums);
  }

private:
  int64_t columns, rows = 0;
  float absMax = 0;
  std::vector<float> sums; ///< K x K; what is above the diagonal is never read
};

/// Fills a statistic S of n < m rows up to m:  S <- (n S + (m - n) other) / m.  It is a Hessian,
/// K x K, or has a number for each of K columns, and so has `other`. An empty `other` treats all
/// columns alike: their mean on the diagonal, or for all columns; 1 where there are no rows.
void fillUp(std::span<float> statistic, int64_t columns, int64_t rows, int64_t enough,
            std::span<const float> other);

/// Finds attention sinks: positions at which every sample has a channel far above what tokens have
/// elsewhere (Xiao et al., 2023, https://arxiv.org/abs/2309.17453; Sun et al., 2024,
/// https://arxiv.org/abs/2402.17762).
class TokenPeaks {
public:
  /// Rows are the tokens at firstPosition, firstPosition + 1, ... of one sample.
  Result<void> update(ConstMatrix x, int64_t firstPosition);
  void merge(const TokenPeaks &other);
  /// The positions whose least absmax over the samples is more than `factor` times the median of
  /// those of all positions seen, ascending.
  std::vector<int64_t> sinks(double factor = 20) const;

  template <typename Visit> void fields(Visit &&visit) { visit(least); }

private:
  std::vector<float> least; ///< by position; negative: not seen
};

/// Extrema of the tokens that do not tower above the others: static ranges where sinks are kept
/// apart. A token is binned by its largest magnitude, eight bins an octave, each with the extrema
/// of its tokens, so that no token need be seen twice. Inliers are the tokens of those bins that
/// end at or below kFactor times the end of the bin of the median token.
class Inliers {
public:
  /// On SmolLM2 static W8A8 loses as much as dynamic at 2, 3 and 4 within 0.01, 0.02 and 0.04 nats,
  /// for which 4, 1 and 0.4 % of the tokens of a site are no inliers; at 6 it loses 0.13.
  static constexpr double kFactor = 3;

  explicit Inliers(int64_t columns) : columns(columns) {}
  Result<void> update(ConstMatrix x);
  void merge(const Inliers &other);
  /// The extrema of the inliers; zeros without tokens.
  MinMax extrema() const;
  int64_t tokens() const;

  template <typename Visit> void fields(Visit &&visit) {
    std::vector<int32_t> numbers;
    for (const auto &[number, bin] : bins)
      numbers.push_back(number);
    visit(numbers);
    for (int32_t number : numbers) {
      Bin &bin = bins.try_emplace(number, Bin{MinMax(columns)}).first->second;
      visit(bin.extrema), visit(bin.tokens);
    }
  }

private:
  struct Bin {
    MinMax extrema;
    int64_t tokens = 0;
  };
  /// Behind the last bin of inliers.
  std::map<int32_t, Bin>::const_iterator end() const;

  int64_t columns;
  std::map<int32_t, Bin> bins; ///< by the upper bits of the largest magnitude
};

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_STATISTICS_H
