//===- Quantize.cpp - Scales, codes and back ------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Quantize.h"

#include "RowQuantize.h"

namespace easyquant::numerics {
namespace {

Result<void> checkParams(ConstMatrix x, const Scheme &scheme, const QParams &params) {
  int64_t rows = scaleRows(scheme, x.rows);
  int64_t groups = groupCount(x.columns, scheme.groupSize);
  size_t count = static_cast<size_t>(rows) * static_cast<size_t>(groups);
  if (params.rows != rows || params.groups != groups || params.scales.size() != count ||
      (!params.zeroPoints.empty() && params.zeroPoints.size() != count))
    return makeError(ErrorCode::InvalidArgument,
                     "{} x {} quantization parameters ({} scales, {} zero points) for {} of a "
                     "matrix of {} x {}: expected {} x {}",
                     params.rows, params.groups, params.scales.size(), params.zeroPoints.size(),
                     toString(scheme), x.rows, x.columns, rows, groups);
  if (scheme.symmetric && !params.zeroPoints.empty())
    return makeError(ErrorCode::InvalidArgument, "zero points for {}: a symmetric scheme has none",
                     toString(scheme));
  CodeRange range = codeRange(scheme);
  for (size_t i = 0; i < count; ++i) {
    if (!std::isfinite(params.scales[i]) || params.scales[i] <= 0.0f)
      return makeError(ErrorCode::InvalidArgument,
                       "scale [{}, {}] is {}: expected a finite positive number", i / groups,
                       i % groups, params.scales[i]);
    if (!params.zeroPoints.empty() &&
        (params.zeroPoints[i] < range.min || params.zeroPoints[i] > range.max))
      return makeError(ErrorCode::InvalidArgument,
                       "zero point [{}, {}] is {}: expected one in [{}, {}]", i / groups,
                       i % groups, params.zeroPoints[i], range.min, range.max);
  }
  return {};
}

} // namespace

Result<void> quantize(ConstMatrix x, const Scheme &scheme, const QParams &params,
                      std::span<int8_t> codes) {
  if (auto ok = checkScheme(scheme); !ok)
    return ok;
  if (auto ok = checkMatrix(x); !ok)
    return ok;
  if (auto ok = checkParams(x, scheme, params); !ok)
    return ok;
  if (static_cast<int64_t>(codes.size()) != x.rows * x.columns)
    return makeError(ErrorCode::InvalidArgument,
                     "room for {} codes of a matrix of {} x {}: expected {}", codes.size(), x.rows,
                     x.columns, x.rows * x.columns);

  CodeRange range = codeRange(scheme);
  for (int64_t i = 0; i < x.rows; ++i) {
    const float *row = x.row(i);
    if (absMaxBits(row, x.columns) >= kInfinityBits)
      return notFiniteError(row, x.columns, i);
    int64_t firstParam = params.rows == 1 ? 0 : i * params.groups;
    for (int64_t g = 0; g < params.groups; ++g) {
      auto [begin, count] = groupColumns(g, scheme.groupSize, x.columns);
      int32_t zeroPoint = params.zeroPoints.empty() ? 0 : params.zeroPoints[firstParam + g];
      quantizeSlice(row + begin, count, params.scales[firstParam + g], zeroPoint, range,
                    codes.data() + i * x.columns + begin);
    }
  }
  return {};
}

void dequantize(const QuantizedMatrix &q, Matrix out) {
  for (int64_t i = 0; i < q.rows; ++i) {
    int64_t firstParam = q.params.rows == 1 ? 0 : i * q.params.groups;
    const int8_t *codes = q.codes.data() + i * q.columns;
    for (int64_t g = 0; g < q.params.groups; ++g) {
      auto [begin, count] = groupColumns(g, q.scheme.groupSize, q.columns);
      float scale = q.params.scales[firstParam + g];
      int32_t zeroPoint = q.params.zeroPoints.empty() ? 0 : q.params.zeroPoints[firstParam + g];
      for (int64_t j = begin; j < begin + count; ++j)
        out(i, j) = scale * static_cast<float>(codes[j] - zeroPoint);
    }
  }
}

Result<QuantizedTokens> quantizeTokens(ConstMatrix x, int64_t groupSize) {
  if (auto ok = checkMatrix(x); !ok)
    return Unexpected(ok.error());
  if (groupSize < 0)
    return makeError(ErrorCode::InvalidArgument, "group size {}: expected 0 or more", groupSize);

  QuantizedTokens q;
  q.rows = x.rows;
  q.columns = x.columns;
  q.paddedColumns = (x.columns + 7) / 8 * 8;
  q.groups = groupCount(x.columns, groupSize);
  q.codes.assign(q.rows * q.paddedColumns, 0);
  q.scales.assign(q.rows, 1.0f);
  q.sums.assign(q.rows * q.groups, 0);
  for (int64_t i = 0; i < x.rows; ++i) {
    const float *row = x.row(i);
    int32_t bits = absMaxBits(row, x.columns);
    if (bits >= kInfinityBits)
      return notFiniteError(row, x.columns, i);
    float absMax = std::bit_cast<float>(bits);
    if (absMax < kMinAbsMax)
      continue;
    q.scales[i] = scaleFromAbsMax(absMax, 127);
    float inverse = 127.0f / absMax;
    int8_t *codes = q.codes.data() + i * q.paddedColumns;
    for (int64_t j = 0; j < x.columns; ++j)
      codes[j] = static_cast<int8_t>(roundClamped(row[j] * inverse, -127.0f, 127.0f));
    for (int64_t g = 0; g < q.groups; ++g) {
      auto [begin, count] = groupColumns(g, groupSize, x.columns);
      int32_t sum = 0;
      for (int64_t j = begin; j < begin + count; ++j)
        sum += codes[j];
      q.sums[i * q.groups + g] = sum;
    }
  }
  return q;
}

void dequantize(const QuantizedTokens &q, Matrix out) {
  for (int64_t i = 0; i < q.rows; ++i)
    for (int64_t j = 0; j < q.columns; ++j)
      out(i, j) = q.scales[i] * static_cast<float>(q.codes[i * q.paddedColumns + j]);
}

} // namespace easyquant::numerics
