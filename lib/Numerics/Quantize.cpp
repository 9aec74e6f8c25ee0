//===- Quantize.cpp - Scales, codes and back ------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Quantize.h"

#include "Codec.h"

#include "easyquant/Numerics/Hadamard.h"
#include "easyquant/Numerics/ScaleRules.h"

namespace easyquant::numerics {
namespace {

Result<void> checkParams(ConstMatrix x, const Scheme &scheme, const QParams &params) {
  int64_t rows = scaleRows(scheme, x.rows);
  int64_t groups = groupCount(x.columns, scheme.groupSize);
  size_t count = static_cast<size_t>(rows) * static_cast<size_t>(groups);
  if (params.rows != rows || params.groups != groups || params.scales.size() != count ||
      (!params.zeroPoints.empty() && params.zeroPoints.size() != count) ||
      params.minima.size() != (scheme.minima ? count : 0))
    return makeError(ErrorCode::InvalidArgument,
                     "{} x {} quantization parameters ({} scales, {} zero points, {} minima) for "
                     "{} of a matrix of {} x {}: expected {} x {}",
                     params.rows, params.groups, params.scales.size(), params.zeroPoints.size(),
                     params.minima.size(), toString(scheme), x.rows, x.columns, rows, groups);
  if (!scheme.hasZeroPoints() && !params.zeroPoints.empty())
    return makeError(ErrorCode::InvalidArgument, "zero points for {}: {} scheme has none",
                     toString(scheme), scheme.minima ? "such a" : "a symmetric");
  CodeRange range = codeRange(scheme);
  for (size_t i = 0; i < count; ++i) {
    const float scale = scheme.hasSignedScales() ? std::fabs(params.scales[i]) : params.scales[i];
    if (!std::isfinite(scale) || scale <= 0.0f)
      return makeError(ErrorCode::InvalidArgument,
                       "scale [{}, {}] is {}: expected a finite positive number", i / groups,
                       i % groups, params.scales[i]);
    if (scheme.minima && !std::isfinite(params.minima[i]))
      return makeError(ErrorCode::InvalidArgument,
                       "minimum [{}, {}] is {}: expected a finite number", i / groups, i % groups,
                       params.minima[i]);
    if (!params.zeroPoints.empty() &&
        (params.zeroPoints[i] < range.min || params.zeroPoints[i] > range.max))
      return makeError(ErrorCode::InvalidArgument,
                       "zero point [{}, {}] is {}: expected one in [{}, {}]", i / groups,
                       i % groups, params.zeroPoints[i], range.min, range.max);
  }
  return {};
}

struct Slice {
  float scale;
  int32_t zeroPoint;
  const float *minimum; ///< or null
};
EASYQUANT_INLINE Slice paramsOf(const Scheme &scheme, const QParams &params, int64_t row,
                                int64_t group) {
  int64_t i = (params.rows == 1 ? 0 : row * params.groups) + group;
  return {params.scales[i], zeroPointOf(scheme, params, i),
          scheme.minima ? &params.minima[i] : nullptr};
}

/// How many rows were finite and are quantized: all, or as many as precede the first that is not.
template <typename Codec>
EASYQUANT_INLINE int64_t quantizeRowsBy(const Codec &codec, ConstMatrix x, const Scheme &scheme,
                                        const QParams &params, int8_t *codes) {
  for (int64_t i = 0; i < x.rows; ++i) {
    const float *row = x.row(i);
    if (absMaxBits(row, x.columns) >= kInfinityBits)
      return i;
    for (int64_t g = 0; g < params.groups; ++g) {
      auto [begin, count] = groupColumns(g, scheme.groupSize, x.columns);
      auto [scale, zeroPoint, minimum] = paramsOf(scheme, params, i, g);
      int8_t *out = codes + i * x.columns + begin;
      if (minimum)
        quantizeAbove(codec, row + begin, count, scale, *minimum, zeroPoint, out);
      else
        quantizeSlice(codec, row + begin, count, scale, zeroPoint, out);
    }
  }
  return x.rows;
}
EASYQUANT_VECTOR_CLONES
int64_t quantizeRows(ConstMatrix x, const Scheme &scheme, const QParams &params, int8_t *codes) {
  return withCodec(scheme, [&](const auto &codec) __attribute__((always_inline)) {
    return quantizeRowsBy(codec, x, scheme, params, codes);
  });
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

  if (int64_t row = quantizeRows(x, scheme, params, codes.data()); row < x.rows)
    return notFiniteError(x.row(row), x.columns, row);
  return {};
}

template <typename Codec>
static EASYQUANT_INLINE void dequantizeRowsBy(const Codec &codec, const QuantizedMatrix &q,
                                              Matrix out) {
  for (int64_t i = 0; i < q.rows; ++i)
    for (int64_t g = 0; g < q.params.groups; ++g) {
      auto [begin, count] = groupColumns(g, q.scheme.groupSize, q.columns);
      auto [scale, zeroPoint, minimum] = paramsOf(q.scheme, q.params, i, g);
      float *to = out.row(i) + begin;
      dequantizeSlice(codec, q.codes.data() + i * q.columns + begin, count, scale, zeroPoint, to);
      for (int64_t k = 0; minimum && k < count; ++k)
        to[k] = to[k] + *minimum;
    }
}
EASYQUANT_VECTOR_CLONES
static void dequantizeRows(const QuantizedMatrix &q, Matrix out) {
  withCodec(q.scheme, [&](const auto &codec)
                          __attribute__((always_inline)) { dequantizeRowsBy(codec, q, out); });
}

int32_t zeroPointOf(const Scheme &scheme, const QParams &params, int64_t index) {
  if (scheme.minima)
    return codeRange(scheme).min;
  return params.zeroPoints.empty() ? 0 : params.zeroPoints[index];
}

float codeValue(const Scheme &scheme, int32_t code, int32_t zeroPoint) {
  return withCodec(scheme, [&](const auto &codec) { return codec.value(code, zeroPoint); });
}

int32_t codeFactor(const Scheme &scheme, int32_t code, int32_t zeroPoint) {
  return scheme.table ? scheme.table->int8Value(code + (1 << (scheme.bits - 1))) : code - zeroPoint;
}

float codeUnit(const Scheme &scheme) {
  return scheme.table ? scheme.table->int8Unit().value_or(1) : 1;
}

void dequantize(const QuantizedMatrix &q, Matrix out) { dequantizeRows(q, out); }

/// Tokens of zeros, to be filled row by row.
static Result<QuantizedTokens> zeroTokens(ConstMatrix x, int64_t groupSize) {
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
  return q;
}

/// Codes of these columns of row i by multiplication with the reciprocal of their scale.
static void quantizeColumns(const float *row, int64_t i, ColumnRange columns, float inverse,
                            int32_t zeroPoint, CodeRange range, QuantizedTokens &q) {
  float lo = static_cast<float>(range.min - zeroPoint);
  float hi = static_cast<float>(range.max - zeroPoint);
  int8_t *codes = q.codes.data() + i * q.paddedColumns;
  for (int64_t j = columns.begin; j < columns.begin + columns.count; ++j)
    codes[j] = static_cast<int8_t>(roundClamped(row[j] * inverse, lo, hi) + zeroPoint);
}

/// Sums of the codes of row i.
static void sumToken(int64_t i, int64_t groupSize, QuantizedTokens &q) {
  const int8_t *codes = q.codes.data() + i * q.paddedColumns;
  for (int64_t g = 0; g < q.groups; ++g) {
    auto [begin, count] = groupColumns(g, groupSize, q.columns);
    int32_t sum = 0;
    for (int64_t j = begin; j < begin + count; ++j)
      sum += codes[j];
    q.sums[i * q.groups + g] = sum;
  }
}

static void quantizeToken(const float *row, int64_t i, float inverse, int32_t zeroPoint,
                          CodeRange range, int64_t groupSize, QuantizedTokens &q) {
  quantizeColumns(row, i, {0, q.columns}, inverse, zeroPoint, range, q);
  sumToken(i, groupSize, q);
}

/// Row i by definition 2, its codes being zeros before.
static void quantizeTokenByItself(ConstMatrix x, int64_t i, float absMax, int64_t groupSize,
                                  QuantizedTokens &q) {
  q.scales[i] = scaleFromAbsMax(absMax, 127);
  if (absMax >= kMinAbsMax)
    quantizeToken(x.row(i), i, 127.0f / absMax, 0, codeRange(8, /*symmetric=*/true), groupSize, q);
}

/// Would a code be clamped by more than half a step?
static bool leavesRange(const float *row, int64_t columns, float inverse, StaticReach range) {
  float farthest = 0;
  for (int64_t j = 0; j < columns; ++j)
    farthest = std::max(farthest, std::fabs(row[j] * inverse - range.centre));
  return farthest > range.reach;
}

Result<QuantizedTokens> quantizeTokens(ConstMatrix x, int64_t groupSize) {
  auto q = zeroTokens(x, groupSize);
  for (int64_t i = 0; q && i < x.rows; ++i) {
    int32_t bits = absMaxBits(x.row(i), x.columns);
    if (bits >= kInfinityBits)
      return notFiniteError(x.row(i), x.columns, i);
    quantizeTokenByItself(x, i, std::bit_cast<float>(bits), groupSize, *q);
  }
  return q;
}

/// Group g of row i by definition 5, asymmetric, its codes being zeros before.
static void quantizeGroup(ConstMatrix x, int64_t i, int64_t g, ColumnRange columns,
                          QuantizedTokens &q) {
  auto [min, max] = extremesOf(x.row(i) + columns.begin, columns.count);
  const float up = std::max(max, 0.0f), down = std::max(-min, 0.0f);
  const float half = up * 0.5f + down * 0.5f;
  if (half < kMinAbsMax)
    return;
  const float inverse = 127.5f / half;
  const auto zeroPoint = roundClamped(down * inverse - 128.0f, -128.0f, 127.0f);
  q.scales[q.paramsAt(i, g)] = half / 127.5f;
  q.zeroPoints[q.paramsAt(i, g)] = zeroPoint;
  quantizeColumns(x.row(i), i, columns, inverse, zeroPoint, codeRange(8, /*symmetric=*/false), q);
}

Result<QuantizedTokens> quantizeTokensInGroups(ConstMatrix x, int64_t tokenGroup, bool symmetric) {
  if (!isTokenGroup(tokenGroup))
    return makeError(ErrorCode::InvalidArgument,
                     "tokens in groups of {} columns: expected 32, 64 or 128", tokenGroup);
  auto q = zeroTokens(x, tokenGroup);
  if (!q)
    return q;
  q->tokenGroup = tokenGroup;
  q->scales.assign(q->rows * q->groups, 1.0f);
  q->zeroPoints.assign(symmetric ? 0 : q->rows * q->groups, 0);
  for (int64_t i = 0; i < x.rows; ++i) {
    for (int64_t g = 0; g < q->groups; ++g) {
      ColumnRange columns = groupColumns(g, tokenGroup, x.columns);
      int32_t bits = absMaxBits(x.row(i) + columns.begin, columns.count);
      if (bits >= kInfinityBits)
        return notFiniteError(x.row(i), x.columns, i);
      if (!symmetric) {
        quantizeGroup(x, i, g, columns, *q);
        continue;
      }
      float absMax = std::bit_cast<float>(bits);
      q->scales[i * q->groups + g] = scaleFromAbsMax(absMax, 127);
      if (absMax >= kMinAbsMax)
        quantizeColumns(x.row(i), i, columns, 127.0f / absMax, 0, codeRange(8, /*symmetric=*/true),
                        *q);
    }
    sumToken(i, tokenGroup, *q);
  }
  return q;
}

Result<QuantizedTokens> quantizeTokens(ConstMatrix x, const Scheme &scheme, int64_t groupSize) {
  if (auto ok = checkScheme(scheme); !ok)
    return Unexpected(ok.error());
  if (!scheme.isInteger() || scheme.bits != 8 || scheme.granularity != Granularity::Token ||
      (!scheme.symmetric && !scheme.groupSize))
    return makeError(ErrorCode::InvalidArgument,
                     "dynamic activations as {}: expected int8 symmetric, per token, or per token "
                     "in groups",
                     toString(scheme));
  return scheme.groupSize ? quantizeTokensInGroups(x, scheme.groupSize, scheme.symmetric)
                          : quantizeTokens(x, groupSize);
}

Result<QuantizedTokens> quantizeTokens(ConstMatrix x, const Scheme &scheme, float scale,
                                       int32_t zeroPoint, int64_t groupSize) {
  if (auto ok = checkScheme(scheme); !ok)
    return Unexpected(ok.error());
  if (!scheme.isInteger() || scheme.bits != 8 || scheme.dynamic ||
      scheme.granularity != Granularity::Tensor)
    return makeError(ErrorCode::InvalidArgument,
                     "static activations as {}: expected int8 with one static scale per tensor",
                     toString(scheme));
  if (!(scale >= 0x1p-126f && scale <= 0x1p126f))
    return makeError(ErrorCode::InvalidArgument,
                     "activation scale {}: expected one in [2^-126, 2^126]; calibrate on data that "
                     "is neither constant nor infinite",
                     scale);
  CodeRange range = scheme.symmetric ? CodeRange{0, 0} : codeRange(scheme);
  if (zeroPoint < range.min || zeroPoint > range.max)
    return makeError(ErrorCode::InvalidArgument,
                     "activation zero point {} for {}: expected one in [{}, {}]", zeroPoint,
                     toString(scheme), range.min, range.max);

  auto q = zeroTokens(x, groupSize);
  if (!q)
    return q;
  q->scales.assign(q->rows, scale);
  q->zeroPoints.assign(scheme.symmetric ? 0 : q->rows, zeroPoint);
  const float inverse = 1.0f / scale;
  for (int64_t i = 0; i < x.rows; ++i) {
    int32_t bits = absMaxBits(x.row(i), x.columns);
    if (bits >= kInfinityBits)
      return notFiniteError(x.row(i), x.columns, i);
    if (scheme.sinks && leavesRange(x.row(i), x.columns, inverse, {codeRange(scheme), zeroPoint})) {
      if (!scheme.symmetric)
        q->zeroPoints[i] = 0;
      quantizeTokenByItself(x, i, std::bit_cast<float>(bits), groupSize, *q);
    } else {
      quantizeToken(x.row(i), i, inverse, zeroPoint, codeRange(scheme), groupSize, *q);
    }
  }
  return q;
}

void dequantize(const QuantizedTokens &q, Matrix out) {
  for (int64_t i = 0; i < q.rows; ++i) {
    for (int64_t j = 0; j < q.columns; ++j) {
      const int64_t at = q.paramsAt(i, q.tokenGroup ? j / q.tokenGroup : 0);
      int32_t zeroPoint = q.zeroPoints.empty() ? 0 : q.zeroPoints[at];
      out(i, j) = q.scales[at] * static_cast<float>(q.codes[i * q.paddedColumns + j] - zeroPoint);
    }
  }
}

bool roundsTokens(const Scheme &scheme) {
  const bool isFP8 = scheme.codes == CodeFormat::F8E4M3FN && !scheme.groupSize;
  return scheme.dynamic && !scheme.outer && scheme.granularity == Granularity::Token &&
         scheme.bits == 8 && (scheme.isInteger() || isFP8);
}

Result<void> roundTokens(ConstMatrix x, const Scheme &scheme, Matrix out) {
  if (!roundsTokens(scheme))
    return makeError(
        ErrorCode::InvalidArgument,
        "activations rounded as {}: expected int8 or FP8 with dynamic scales per token",
        toString(scheme));
  if (scheme.hadamard != 0 && x.columns % scheme.hadamard != 0)
    return makeError(ErrorCode::InvalidArgument,
                     "{} columns in blocks of {}: expected ones that it divides", x.columns,
                     scheme.hadamard);
  std::vector<float> rotated;
  if (scheme.hadamard != 0) {
    for (int64_t i = 0; i < x.rows; ++i) {
      rotated.insert(rotated.end(), x.row(i), x.row(i) + x.columns);
      rotateActivation(std::span(rotated).last(x.columns), scheme.hadamard);
    }
    x = {rotated.data(), x.rows, x.columns};
  }
  if (scheme.isInteger()) {
    auto q = quantizeTokens(x, scheme, /*groupSize=*/0);
    if (!q)
      return Unexpected(q.error());
    dequantize(*q, out);
  } else {
    auto q = quantize(x, scheme, ScaleRule());
    if (!q)
      return Unexpected(q.error());
    dequantize(*q, out);
  }
  for (int64_t i = 0; i < x.rows && scheme.hadamard != 0; ++i)
    rotateConstant({out.row(i), static_cast<size_t>(x.columns)}, scheme.hadamard);
  return {};
}

} // namespace easyquant::numerics
