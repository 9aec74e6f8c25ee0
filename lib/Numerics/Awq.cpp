//===- Awq.cpp - Scales that protect the weights that matter --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Awq.h"

#include "Codec.h"
#include "LinearAlgebra.h"

#include "easyquant/Support/Parallel.h"

#include <algorithm>
#include <limits>

namespace easyquant::numerics {

std::vector<float> awqScales(std::span<const float> meanAbs, double ratio) {
  std::vector<double> powers;
  powers.reserve(meanAbs.size());
  for (float x : meanAbs)
    powers.push_back(std::max(std::pow(static_cast<double>(x), ratio), 1e-4));
  if (powers.empty())
    return {};
  auto [least, most] = std::minmax_element(powers.begin(), powers.end());
  const double unit = std::sqrt(*least * *most);
  std::vector<float> scales;
  scales.reserve(powers.size());
  for (double power : powers)
    scales.push_back(static_cast<float>(power / unit));
  return scales;
}

Result<AwqScaleResult>
searchAwqScales(std::span<const float> meanAbs,
                const std::function<Result<double>(std::span<const float> scales)> &loss) {
  for (size_t j = 0; j < meanAbs.size(); ++j)
    if (!std::isfinite(meanAbs[j]) || meanAbs[j] < 0)
      return makeError(ErrorCode::InvalidArgument,
                       "the mean magnitude of channel {} is {}: expected a finite number, 0 or "
                       "more; calibrate again",
                       j, meanAbs[j]);
  AwqScaleResult best;
  best.scales.assign(meanAbs.size(), 1.0f);
  Result<double> identity = loss(best.scales);
  if (!identity)
    return Unexpected(identity.error());
  if (!std::isfinite(*identity))
    return makeError(ErrorCode::InvalidArgument,
                     "the output error of plain rounding is {}: the activations of the calibration "
                     "run are too large",
                     *identity);
  best.loss = best.identityLoss = *identity;
  for (int i = 0; i < kAwqGrid; ++i) {
    const double ratio = static_cast<double>(i) / kAwqGrid;
    std::vector<float> scales = awqScales(meanAbs, ratio);
    Result<double> candidate = loss(scales);
    if (!candidate)
      return Unexpected(candidate.error());
    if (std::isfinite(*candidate) && *candidate < best.loss) {
      best.scales = std::move(scales);
      best.ratio = ratio;
      best.loss = *candidate;
    }
  }
  return best;
}

namespace {

/// Rows that a thread takes at a time.
constexpr int64_t kBlockRows = 32;

Result<void> firstError(std::span<const Result<void>> results) {
  for (const Result<void> &result : results)
    if (!result)
      return result;
  return {};
}

} // namespace

Result<void> fakeQuantizeScaled(ConstMatrix w, std::span<const float> scales, const Scheme &scheme,
                                const ScaleRule &rule, unsigned threads, Matrix out) {
  const int64_t k = w.columns;
  if (static_cast<int64_t>(scales.size()) != k || out.rows != w.rows || out.columns != k)
    return makeError(ErrorCode::InvalidArgument,
                     "weight of {} x {}, {} scales, room for {} x {}: sizes do not fit", w.rows, k,
                     scales.size(), out.rows, out.columns);
  // One scale for all rows needs all rows at once.
  const int64_t height = scheme.granularity == Granularity::Tensor || scheme.outer
                             ? std::max<int64_t>(w.rows, 1)
                             : kBlockRows;
  const int64_t blocks = (w.rows + height - 1) / height;
  std::vector<Result<void>> done(blocks);
  parallelFor(blocks, threads, [&](int64_t b) {
    const int64_t first = b * height, rows = std::min(height, w.rows - first);
    std::vector<float> scaled(rows * k);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < k; ++j)
        scaled[i * k + j] = w(first + i, j) * scales[j];
    ConstMatrix view(scaled.data(), rows, k);
    auto codes = quantize(view, scheme, rule);
    if (!codes && codes.error().code == ErrorCode::OutOfRange)
      codes = quantize(view, withWideScales(scheme), rule);
    if (!codes) {
      done[b] = Unexpected(codes.error());
      return;
    }
    dequantize(*codes, out.middleRows(first, rows));
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < k; ++j)
        out(first + i, j) /= scales[j];
  });
  return firstError(done);
}

//===- Clipping -----------------------------------------------------------===//

namespace {

/// Of the columns that one group has: sum x x^T over the tokens. The error of a row is then d G d^T
/// with d = w - what, whatever the number of tokens.
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

/// Chooses the parameters of `rows` rows of one group.
template <typename Codec>
void clipGroup(const Codec &codec, ConstMatrix w, const GroupGram &gram, const Scheme &scheme,
               std::span<const float> outer, SliceParams *best, int64_t &clipped) {
  const int64_t rows = w.rows, count = gram.columns.count;
  std::vector<float> difference(rows * count), product(rows * count);
  std::vector<SliceParams> params(rows);
  std::vector<double> least(rows, std::numeric_limits<double>::infinity());
  std::vector<bool> shrunk(rows);
  for (int step = 0; step < kAwqGrid / 2; ++step) {
    for (int64_t i = 0; i < rows; ++i) {
      const float *row = w.row(i) + gram.columns.begin;
      auto [lo, hi] = std::minmax_element(row, row + count);
      const float limit = std::max(-*lo, *hi) * (1.0f - static_cast<float>(step) / kAwqGrid);
      const auto [scale, zeroPoint] = params[i] =
          paramsOfRange(std::max(*lo, -limit), std::min(*hi, limit), scheme, outer[i]);
      for (int64_t j = 0; j < count; ++j)
        difference[i * count + j] = row[j] - scale * codec.round(row[j] / scale, zeroPoint).value;
    }
    gemm(1, ConstMatrix(difference.data(), rows, count), Transpose::No,
         ConstMatrix(gram.values.data(), count, count), Transpose::No, 0,
         Matrix(product.data(), rows, count));
    for (int64_t i = 0; i < rows; ++i) {
      double error = 0;
      for (int64_t j = i * count; j < (i + 1) * count; ++j)
        error += static_cast<double>(difference[j]) * product[j];
      if (step == 0 || error < least[i]) {
        least[i] = error;
        best[i] = params[i];
        shrunk[i] = step != 0;
      }
    }
  }
  clipped += std::count(shrunk.begin(), shrunk.end(), true);
}

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
  return partOfRows(rows, kBlockRows, part, parts);
}

Result<AwqClipResult> searchAwqClip(ConstMatrix w, ConstMatrix inputs, const Scheme &scheme,
                                    unsigned threads) {
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
  if (!scheme.symmetric)
    params.zeroPoints.resize(params.scales.size());
  if (w.columns == 0) {
    std::fill(params.scales.begin(), params.scales.end(), 1.0f);
    return result;
  }
  std::vector<float> supers;
  if (scheme.scales == ScaleFormat::UI6) {
    auto wide = searchAwqClip(w, inputs, withWideScales(scheme), threads);
    if (!wide)
      return wide;
    supers = superScales(w, scheme, wide->params.scales);
  }
  const int64_t blocks = (w.rows + kBlockRows - 1) / kBlockRows;
  // A group at a time: the memory is that of one Gram matrix for each thread.
  std::vector<int64_t> clipped(params.groups);
  auto clip = [&](int64_t g, const GroupGram &gram, int64_t b, int64_t &count) {
    const int64_t first = b * kBlockRows, rows = std::min(kBlockRows, w.rows - first);
    std::vector<SliceParams> best(rows);
    std::vector<float> outer(rows, params.outerOf(0));
    for (int64_t i = 0; i < rows && !supers.empty(); ++i)
      outer[i] = supers[(first + i) * superGroupCount(params.groups) + g / kSuperGroups];
    withCodec(scheme, [&](const auto &codec) {
      clipGroup(codec, w.middleRows(first, rows), gram, scheme, outer, best.data(), count);
    });
    for (int64_t i = 0; i < rows; ++i) {
      params.scales[(first + i) * params.groups + g] = best[i].scale;
      if (!scheme.symmetric)
        params.zeroPoints[(first + i) * params.groups + g] = best[i].zeroPoint;
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
