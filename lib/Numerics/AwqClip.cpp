//===- AwqClip.cpp - Ranges by what becomes of the output -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// With G = sum x x^T over the tokens and d = w - s v, v what the codes stand for in units of the
// scale, the error d G d^T of codes that stay is least at s + v G d / (v G v). G d is known from
// the error itself, and v G follows from it and w G, so that the fit takes no product more.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Awq.h"

#include "Codec.h"
#include "LinearAlgebra.h"
#include "RangeRules.h"

#include "easyquant/Support/Parallel.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <numeric>

namespace easyquant::numerics {
namespace {

/// Rows that a thread takes at a time.
constexpr int64_t kClippedRows = 32;
/// Times that scale and codes follow from each other; fewer for the zero points on either side.
constexpr int kFits = 5, kFitsBeside = 2;

/// The sum of x x^T over the tokens, for the columns of one group. The error of a row is then
/// d G d^T with d = w - what, whatever the number of tokens.
struct GroupGram {
  ColumnRange columns{};
  std::vector<float> values;
};

GroupGram gramOf(ConstMatrix inputs, ColumnRange columns) {
  GroupGram gram{columns, std::vector<float>(columns.count * columns.count)};
  if (inputs.rows == 0)
    return gram; // and there may be no memory to point into
  ConstMatrix x(inputs.data + columns.begin, inputs.rows, columns.count, inputs.stride);
  gemm(1, x, Transpose::Yes, x, Transpose::No, 0,
       Matrix(gram.values.data(), columns.count, columns.count));
  return gram;
}

/// Compares parameters of some rows of one group by the error of the group's part of the output.
template <typename Codec> class GroupClip {
public:
  GroupClip(const Codec &codec, ConstMatrix w, const GroupGram &gram, const Scheme &scheme,
            std::span<const ScaleUnits> units)
      : codec(codec), w(w), gram(gram), scheme(scheme), units(units),
        difference(w.rows * gram.columns.count), product(difference.size()), errors(w.rows),
        best(w.rows), least(w.rows, std::numeric_limits<double>::infinity()) {}

  /// The ranges [max(lo, -m), min(hi, m)], with minima those about the middle; counts the rows of
  /// which a narrower one than all values is the best.
  int64_t clip() {
    const int64_t count = gram.columns.count;
    std::vector<SliceParams> params(w.rows);
    std::vector<bool> shrunk(w.rows);
    for (int step = 0; step < kAwqGrid / 2; ++step) {
      for (int64_t i = 0; i < w.rows; ++i) {
        const float *row = w.row(i) + gram.columns.begin;
        auto [lo, hi] = std::minmax_element(row, row + count);
        const float factor = 1.0f - static_cast<float>(step) / kAwqGrid;
        const float limit = std::max(-*lo, *hi) * factor;
        const ValueRange range = scheme.minima
                                     ? scaledRange({*lo, *hi}, factor, scheme)
                                     : ValueRange{std::max(*lo, -limit), std::min(*hi, limit)};
        params[i] = paramsOfRange(range.min, range.max, scheme, units[i]);
      }
      measure(params);
      for (int64_t i = 0; i < w.rows; ++i)
        if (step == 0 || errors[i] < least[i]) {
          take(i, params[i]);
          shrunk[i] = step != 0;
        }
    }
    return std::count(shrunk.begin(), shrunk.end(), true);
  }

  /// From the best on, and from the parameters of least error weighted by the diagonal: scale and
  /// codes in turn, then the zero points on either side.
  void refine() {
    const int64_t count = gram.columns.count;
    ofWeights.resize(w.rows * count);
    gemm(1, ConstMatrix(w.data + gram.columns.begin, w.rows, count, w.stride), Transpose::No,
         ConstMatrix(gram.values.data(), count, count), Transpose::No, 0,
         Matrix(ofWeights.data(), w.rows, count));
    if (scheme.minima) {
      ofOnes.resize(count);
      for (int64_t j = 0; j < count; ++j)
        ofOnes[j] = static_cast<float>(
            std::accumulate(&gram.values[j * count], &gram.values[j * count] + count, 0.0));
    }
    std::vector<float> weights(count);
    for (int64_t j = 0; j < count; ++j)
      weights[j] = std::max(gram.values[j * count + j], 0.0f);
    std::vector<SliceParams> params(w.rows);
    for (int64_t i = 0; i < w.rows; ++i) {
      const float *row = w.row(i) + gram.columns.begin;
      auto [lo, hi] = std::minmax_element(row, row + count);
      const ValueRange all = scheme.minima ? ValueRange{*lo, *hi}
                                           : ValueRange{std::min(*lo, 0.0f), std::max(*hi, 0.0f)};
      params[i] = (double(all.max) - all.min) / 2 < kMinAbsMax
                      ? best[i]
                      : leastWeightedError({row, 1, count}, weights, /*coarse=*/false, all, scheme,
                                           units[i]);
    }
    tryFits(params, kFits);
    if (scheme.hasZeroPoints()) {
      const CodeRange codes = codeRange(scheme);
      const std::vector<SliceParams> middle = best;
      for (int offset : {-1, 1, -2, 2}) {
        for (int64_t i = 0; i < w.rows; ++i)
          params[i] = {middle[i].scale,
                       std::clamp(middle[i].zeroPoint + offset, codes.min, codes.max)};
        tryFits(params, kFitsBeside);
      }
    }
    params = best;
    tryFits(params, kFits);
  }

  const std::vector<SliceParams> &chosen() const { return best; }

private:
  void measure(std::span<const SliceParams> params) {
    const int64_t rows = w.rows, count = gram.columns.count;
    for (int64_t i = 0; i < rows; ++i) {
      const float *row = w.row(i) + gram.columns.begin;
      const auto [scale, zeroPoint, minimum] = params[i];
      for (int64_t j = 0; j < count; ++j) {
        const float above = row[j] - minimum;
        difference[i * count + j] = above - scale * codec.round(above / scale, zeroPoint).value;
      }
    }
    gemm(1, ConstMatrix(difference.data(), rows, count), Transpose::No,
         ConstMatrix(gram.values.data(), count, count), Transpose::No, 0,
         Matrix(product.data(), rows, count));
    for (int64_t i = 0; i < rows; ++i) {
      double error = 0;
      for (int64_t j = i * count; j < (i + 1) * count; ++j)
        error += static_cast<double>(difference[j]) * product[j];
      errors[i] = error;
    }
  }

  void take(int64_t i, SliceParams params) {
    least[i] = errors[i];
    best[i] = params;
  }

  /// The scale of the codes that were measured last: with d = w - s v, s + v G d / (v G v). With a
  /// minimum m, d = w - s v - m 1, both are found at once.
  SliceParams fit(int64_t i, SliceParams params) const {
    const int64_t count = gram.columns.count;
    const float *row = w.row(i) + gram.columns.begin;
    double cross = 0, square = 0, mixed = 0, level = 0, ones = 0;
    for (int64_t j = 0; j < count; ++j) {
      const double d = difference[i * count + j], ofD = product[i * count + j];
      const double v = (static_cast<double>(row[j]) - params.minimum - d) / params.scale;
      const double ofOne = scheme.minima ? ofOnes[j] : 0;
      cross += v * ofD;
      square += v * (static_cast<double>(ofWeights[i * count + j]) - params.minimum * ofOne - ofD);
      mixed += v * ofOne;
      level += ofD;
      ones += ofOne;
    }
    square /= params.scale;
    const double determinant = scheme.minima ? square * ones - mixed * mixed : square;
    if (!(determinant > 0) || (scheme.minima && !(ones > 0)))
      return params;
    const double step = (scheme.minima ? cross * ones - mixed * level : cross) / determinant;
    const double exact = (params.scale + step) / units[i].scale;
    const bool isTurned = exact < 0 && !scheme.hasSignedScales();
    if (!(std::fabs(exact) >= 0x1p-126 && std::fabs(exact) <= FLT_MAX) || isTurned)
      return params;
    SliceParams found = params;
    found.scale = nearestScale(static_cast<float>(exact), scheme, units[i]);
    if (found.scale == 0)
      return params;
    if (scheme.minima) {
      const double change = (level - (double(found.scale) - params.scale) * mixed) / ones;
      found.minimum = nearestMinimum(static_cast<float>(params.minimum + change), scheme, units[i]);
    }
    return std::isfinite(found.minimum) ? found : params;
  }

  void tryFits(std::vector<SliceParams> &params, int fits) {
    for (int step = 0; step <= fits; ++step) {
      measure(params);
      for (int64_t i = 0; i < w.rows; ++i) {
        if (errors[i] < least[i] && isScale(params[i].scale, scheme, units[i]))
          take(i, params[i]);
        params[i] = fit(i, params[i]);
      }
    }
  }

  const Codec &codec;
  ConstMatrix w;
  const GroupGram &gram;
  const Scheme &scheme;
  std::span<const ScaleUnits> units;
  /// d, d G and d G d^T of the last measurement.
  std::vector<float> difference, product;
  std::vector<double> errors;
  std::vector<float> ofWeights; ///< w G
  std::vector<float> ofOnes;    ///< G 1, with minima
  std::vector<SliceParams> best;
  std::vector<double> least; ///< error of the best
};

Result<void> checkFinite(const char *what, ConstMatrix x) {
  for (int64_t i = 0; i < x.rows; ++i)
    if (absMaxBits(x.row(i), x.columns) >= kInfinityBits) {
      Error error = notFiniteError(x.row(i), x.columns, i).value();
      return makeError(error.code, "{}: {}", what, error.message);
    }
  return {};
}

} // namespace

RowRange awqClipRows(int64_t rows, int64_t part, int64_t parts) {
  return partOfRows(rows, kClippedRows, part, parts);
}

Result<AwqClipResult> searchAwqClip(ConstMatrix w, ConstMatrix inputs, const Scheme &scheme,
                                    bool refines, unsigned threads) {
  if (auto ok = checkScheme(scheme); !ok)
    return Unexpected(ok.error());
  if (scheme.granularity != Granularity::Channel && scheme.granularity != Granularity::Group)
    return makeError(ErrorCode::Unsupported,
                     "clipping of weights that are {}: expected a scale per channel or group",
                     toString(scheme));
  if (inputs.columns != w.columns)
    return makeError(ErrorCode::InvalidArgument,
                     "weight of {} x {} and activations of {} columns: expected {}", w.rows,
                     w.columns, inputs.columns, w.columns);
  if (auto ok = checkFinite("weight", w); !ok)
    return Unexpected(ok.error());
  if (auto ok = checkFinite("activations", inputs); !ok)
    return Unexpected(ok.error());

  AwqClipResult result;
  QParams &params = result.params;
  params.rows = w.rows;
  params.groups = groupCount(w.columns, scheme.groupSize);
  if (scheme.outer)
    params.outer = {outerScale(absMaxOf(w), scheme)};
  params.scales.resize(params.rows * params.groups);
  if (scheme.hasZeroPoints())
    params.zeroPoints.resize(params.scales.size());
  if (scheme.minima)
    params.minima.resize(params.scales.size());
  if (w.columns == 0) {
    std::fill(params.scales.begin(), params.scales.end(), 1.0f);
    return result;
  }
  std::vector<ScaleUnits> shared;
  if (scheme.isTwoLevel()) {
    auto wide = searchAwqClip(w, inputs, withWideScales(scheme), refines, threads);
    if (!wide)
      return wide;
    shared = chooseUnits(w, scheme, wide->params);
  }
  const int64_t blocks = (w.rows + kClippedRows - 1) / kClippedRows;
  // A group at a time: the memory is that of one Gram matrix for each thread.
  std::vector<int64_t> clipped(params.groups);
  auto clip = [&](int64_t g, const GroupGram &gram, int64_t b, int64_t &count) {
    const int64_t first = b * kClippedRows, rows = std::min(kClippedRows, w.rows - first);
    std::vector<SliceParams> best(rows);
    std::vector<ScaleUnits> units(rows, {params.outerOf(0)});
    for (int64_t i = 0; i < rows && !shared.empty(); ++i)
      units[i] = shared[(first + i) * params.groups + g];
    withCodec(scheme, [&](const auto &codec) {
      GroupClip search(codec, w.middleRows(first, rows), gram, scheme, units);
      count += search.clip();
      if (refines)
        search.refine();
      best = search.chosen();
    });
    for (int64_t i = 0; i < rows; ++i) {
      setSlice(params, (first + i) * params.groups + g, best[i]);
    }
  };
  if (params.groups == 1) {
    GroupGram gram = gramOf(inputs, groupColumns(0, scheme.groupSize, w.columns));
    std::vector<int64_t> counts(blocks);
    parallelFor(blocks, threads, [&](int64_t b) { clip(0, gram, b, counts[b]); });
    for (int64_t count : counts)
      clipped[0] += count;
  } else {
    parallelFor(params.groups, threads, [&](int64_t g) {
      GroupGram gram = gramOf(inputs, groupColumns(g, scheme.groupSize, w.columns));
      for (int64_t b = 0; b < blocks; ++b)
        clip(g, gram, b, clipped[g]);
    });
  }
  for (int64_t count : clipped)
    result.clipped += count;
  if (auto ok = checkScales(params, scheme); !ok)
    return Unexpected(ok.error());
  return result;
}

} // namespace easyquant::numerics
