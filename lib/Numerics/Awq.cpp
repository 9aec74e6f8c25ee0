//===- Awq.cpp - Scales that protect the weights that matter --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Awq.h"

#include "Codec.h"

#include "easyquant/Numerics/Hadamard.h"
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
                                const ScaleRule &asked, unsigned threads, Matrix out) {
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
  ScaleRule rule = asked;
  std::vector<float> weights(rule.weights.begin(), rule.weights.end());
  if (static_cast<int64_t>(weights.size()) == k)
    for (int64_t j = 0; j < k; ++j)
      weights[j] /= scales[j] * scales[j];
  if (scheme.hadamard && !weights.empty())
    weights = rotatedMeanSquares(weights, scheme.hadamard);
  rule.weights = weights;
  std::vector<Result<void>> done(blocks);
  parallelFor(blocks, threads, [&](int64_t b) {
    const int64_t first = b * height, rows = std::min(height, w.rows - first);
    std::vector<float> scaled(rows * k);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < k; ++j)
        scaled[i * k + j] = w(first + i, j) * scales[j];
    if (scheme.hadamard)
      rotateConstant(scaled, scheme.hadamard);
    ConstMatrix view(scaled.data(), rows, k);
    auto codes = quantize(view, scheme, rule);
    if (!codes && codes.error().code == ErrorCode::OutOfRange)
      codes = quantize(view, withWideScales(scheme), rule);
    if (!codes) {
      done[b] = Unexpected(codes.error());
      return;
    }
    dequantize(*codes, out.middleRows(first, rows));
    for (int64_t i = 0; i < rows; ++i) {
      if (scheme.hadamard)
        rotateConstant({out.row(first + i), static_cast<size_t>(k)}, scheme.hadamard);
      for (int64_t j = 0; j < k; ++j)
        out(first + i, j) /= scales[j];
    }
  });
  return firstError(done);
}

} // namespace easyquant::numerics
