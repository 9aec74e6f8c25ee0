//===- ScaleRules.cpp - Scales and zero points from values ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/ScaleRules.h"

#include "RangeRules.h"
#include "RowQuantize.h"

#include <fmt/ranges.h>

namespace easyquant::numerics {
namespace {

/// In the order of ScaleRuleKind.
constexpr const char *kRuleNames[] = {"absmax", "zeropoint", "symmetric",       "percentile",
                                      "mse",    "entropy",   "hessian-diagonal"};

bool isZero(ValueRange range, const Scheme &scheme) {
  if (scheme.symmetric)
    return range.absMax() < kMinAbsMax;
  return (double(range.max) - range.min) / 2 < kMinAbsMax;
}

/// The range of the values of a finite slice, and 0 where there are no minima.
ValueRange rangeOf(ConstMatrix slice, bool minima = false) {
  ValueRange range;
  for (int64_t i = 0; i < slice.rows && slice.columns > 0; ++i) {
    auto [low, high] = extremesOf(slice.row(i), slice.columns);
    if (minima && i == 0)
      range = {low, high};
    range.min = std::min(range.min, low);
    range.max = std::max(range.max, high);
  }
  return range;
}

ValueRange rangeOf(const Histogram &values, bool) {
  return {std::min(values.min(), 0.0f), std::max(values.max(), 0.0f)};
}

/// The scale of a range that is not zero, before it is rounded to its format.
float scaleOfRange(ValueRange range, const Scheme &scheme) {
  CodeValues values = codeValues(scheme);
  if (!scheme.symmetric) // in double precision, since max - min may be beyond the largest float
    return static_cast<float>((double(range.max) - range.min) /
                              (double(values.greatest) - values.least));
  if (!scheme.isInteger())
    return std::max(range.max / values.greatest, range.min / values.least);
  return range.absMax() / (scheme.fullRange ? values.greatest + 0.5f : values.greatest);
}

/// The power of two for a range, of which scaleOfRange takes no whole steps.
float powerOfRange(ValueRange range, const Scheme &scheme) {
  float power = roundScale(codeValues(scheme).absMax(), ScaleFormat::F8E8M0FNU);
  return roundScale(range.absMax(), ScaleFormat::F8E8M0FNU) / power;
}

/// Slice: ConstMatrix or Histogram.
template <typename Slice>
SliceParams chooseParams(const Slice &slice, const Scheme &scheme, const ScaleRule &rule,
                         float outer = 1) {
  ValueRange all = rangeOf(slice, scheme.minima), range = all;
  if (!isZero(all, scheme)) {
    if constexpr (std::is_same_v<Slice, ConstMatrix>)
      if (rule.kind == ScaleRuleKind::HessianDiagonal)
        return leastWeightedError(slice, rule.weights, rule.coarse, all, scheme, outer);
    if (rule.kind == ScaleRuleKind::Percentile)
      range = percentileRange(slice, scheme, rule.percentile);
    else if (rule.kind == ScaleRuleKind::Mse)
      range = leastErrorRange(slice, all, scheme, rule.norm, outer);
    else if (rule.kind == ScaleRuleKind::Entropy)
      range = leastEntropyRange(
          slice, all, scheme.scales == ScaleFormat::UI6 ? withWideScales(scheme) : scheme);
    if (isZero(range, scheme))
      range = all;
  }
  return paramsOfRange(range.min, range.max, scheme, outer);
}

Result<void> checkWeights(const ScaleRule &rule, int64_t columns) {
  if (rule.kind != ScaleRuleKind::HessianDiagonal)
    return {};
  if (static_cast<int64_t>(rule.weights.size()) != columns)
    return makeError(ErrorCode::InvalidArgument,
                     "scale rule hessian-diagonal with {} weights for {} columns: expected one a "
                     "column, gathered on calibration text",
                     rule.weights.size(), columns);
  for (int64_t j = 0; j < columns; ++j)
    if (!(rule.weights[j] >= 0) || !std::isfinite(rule.weights[j]))
      return makeError(ErrorCode::InvalidArgument,
                       "scale rule hessian-diagonal: the weight of column {} is {}; expected a "
                       "finite number, 0 or more: calibrate again",
                       j, rule.weights[j]);
  return {};
}

} // namespace

const char *toString(ScaleRuleKind kind) { return kRuleNames[static_cast<int>(kind)]; }

Result<ScaleRuleKind> scaleRuleKind(std::string_view name) {
  const auto *found = std::ranges::find(kRuleNames, name);
  if (found != std::end(kRuleNames))
    return static_cast<ScaleRuleKind>(found - std::begin(kRuleNames));
  return makeError(ErrorCode::InvalidArgument, "unknown scale rule '{}'; legal are {}", name,
                   fmt::join(kRuleNames, ", "));
}

ScaleRuleKind extremesRule(const Scheme &scheme) {
  if (!scheme.symmetric)
    return ScaleRuleKind::ZeroPoint;
  return scheme.fullRange ? ScaleRuleKind::Symmetric : ScaleRuleKind::AbsMax;
}

Result<void> checkScaleRule(const ScaleRule &rule, const Scheme &scheme) {
  bool searches = rule.kind == ScaleRuleKind::Percentile || rule.kind == ScaleRuleKind::Mse ||
                  rule.kind == ScaleRuleKind::Entropy ||
                  rule.kind == ScaleRuleKind::HessianDiagonal;
  if (!searches && rule.kind != extremesRule(scheme))
    return makeError(
        ErrorCode::InvalidArgument,
        "scale rule {} for {}: absmax serves symmetric schemes, symmetric those of the "
        "full range, zeropoint asymmetric ones; take {}",
        toString(rule.kind), toString(scheme), toString(extremesRule(scheme)));
  if (rule.kind == ScaleRuleKind::Entropy && !scheme.isInteger())
    return makeError(ErrorCode::InvalidArgument,
                     "scale rule entropy for {}: it compares steps of equal width; take mse",
                     toString(scheme));
  if (rule.kind == ScaleRuleKind::Entropy && scheme.minima)
    return makeError(ErrorCode::InvalidArgument,
                     "scale rule entropy for {}: it cuts ranges around 0; take mse",
                     toString(scheme));
  if (rule.kind == ScaleRuleKind::Percentile && !(rule.percentile > 50 && rule.percentile <= 100))
    return makeError(ErrorCode::InvalidArgument,
                     "percentile {}: expected one above 50 and at most 100 (99.9 and 99.99 are "
                     "usual)",
                     rule.percentile);
  if (rule.kind == ScaleRuleKind::Mse && rule.norm != 2 && rule.norm != 2.4)
    return makeError(ErrorCode::InvalidArgument, "mse with norm {}: expected 2 or 2.4", rule.norm);
  return {};
}

/// A table may have no zero: then what comes closest to it is to be small.
static float scaleOfZeros(const Scheme &scheme, ScaleFormat format) {
  return scheme.table && !scheme.table->hasZero() ? leastScale(format) : roundScale(1, format);
}

SliceParams paramsOfRange(float lo, float hi, const Scheme &scheme, float outer) {
  ValueRange range{std::min(lo, 0.0f), std::max(hi, 0.0f)};
  if (scheme.minima) {
    range = {lo, hi};
    const float scale =
        isZero(range, scheme) ? 1 : roundScale(scaleOfRange(range, scheme), scheme.scales);
    return {scale, codeRange(scheme).min, roundScale(lo, scheme.scales)};
  }
  if (isZero(range, scheme))
    return {scaleOfZeros(scheme, scheme.scales) * outer, 0};
  bool isPower = scheme.scales == ScaleFormat::F8E8M0FNU;
  float exact = isPower ? powerOfRange(range, scheme) : scaleOfRange(range, scheme);
  float scale = roundScale(exact / outer, scheme.scales) * outer;
  if (scheme.symmetric)
    return {scale, 0};
  CodeRange codes = codeRange(scheme);
  float zeroPoint = std::nearbyint(float(codes.min) - range.min / scale);
  return {scale, static_cast<int32_t>(
                     std::clamp(zeroPoint, static_cast<float>(codes.min), float(codes.max)))};
}

void setSlice(QParams &params, int64_t index, const SliceParams &slice) {
  params.scales[index] = slice.scale;
  if (!params.zeroPoints.empty())
    params.zeroPoints[index] = slice.zeroPoint;
  if (!params.minima.empty())
    params.minima[index] = slice.minimum;
}

float outerScale(float absMax, const Scheme &scheme) {
  if (!scheme.outer || absMax < kMinAbsMax)
    return 1;
  // Both of normal range, whatever the values: their product is absMax / max value.
  float largest = decodeScale(encodeScale(448, scheme.scales), scheme.scales);
  return std::max(absMax / codeValues(scheme).absMax() / largest, 0x1p-110f);
}

Scheme withWideScales(const Scheme &scheme) {
  Scheme wide = scheme;
  wide.scales = ScaleFormat::F32;
  return wide;
}

static Result<void> checkSuperScales(const QParams &params) {
  for (int64_t row = 0; row < params.rows; ++row)
    for (int64_t g = 0; g < params.groups; g += kSuperGroups) {
      const int64_t count = std::min(kSuperGroups, params.groups - g);
      std::span scales(params.scales.data() + row * params.groups + g, count);
      if (!superScaleOf(scales))
        return makeError(ErrorCode::OutOfRange,
                         "scales [{}, {}] to [{}, {}], as ui6 in units of an f16 the largest of "
                         "them {}, are not held; take scales of f32 (--scale-type f32)",
                         row, g, row, g + count - 1, *std::ranges::max_element(scales));
    }
  return {};
}

std::vector<float> superScales(ConstMatrix x, const Scheme &scheme, std::span<const float> scales) {
  const int64_t groups = groupCount(x.columns, scheme.groupSize), supers = superGroupCount(groups);
  std::vector<float> largest(x.rows * supers);
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t g = 0; g < groups; ++g) {
      auto [begin, count] = groupColumns(g, scheme.groupSize, x.columns);
      float &most = largest[i * supers + g / kSuperGroups];
      if (!isZero(rangeOf(ConstMatrix(x.row(i) + begin, 1, count)), scheme))
        most = std::max(most, scales[i * groups + g]);
    }
  for (float &most : largest)
    most = most == 0 ? scaleOfZeros(scheme, ScaleFormat::F16) : superScale(most);
  return largest;
}

Result<void> checkScales(const QParams &params, const Scheme &scheme) {
  if (scheme.scales == ScaleFormat::F32)
    return {};
  if (scheme.scales == ScaleFormat::UI6)
    return checkSuperScales(params);
  for (int64_t i = 0; i < std::ssize(params.minima); ++i)
    if (!std::isfinite(params.minima[i]))
      return makeError(ErrorCode::OutOfRange,
                       "minimum [{}, {}] is beyond what {} holds; take scales of f32 "
                       "(--scale-type f32)",
                       i / params.groups, i % params.groups, toString(scheme.scales));
  for (size_t i = 0; i < params.scales.size(); ++i)
    if (!isScale(params.scales[i] / params.outerOf(int64_t(i) / params.groups), scheme.scales))
      return makeError(
          ErrorCode::OutOfRange,
          "scale [{}, {}], as {} {}, is not held with all its bits; take scales of f32 "
          "(--scale-type f32)",
          int64_t(i) / params.groups, int64_t(i) % params.groups, toString(scheme.scales),
          params.scales[i]);
  return {};
}

float absMaxOf(ConstMatrix x) {
  int32_t bits = 0;
  for (int64_t i = 0; i < x.rows; ++i)
    bits = std::max(bits, absMaxBits(x.row(i), x.columns));
  return std::bit_cast<float>(bits);
}

Result<QParams> chooseQParams(ConstMatrix x, const Scheme &scheme, const ScaleRule &rule) {
  const bool hasOuter = scheme.outer && checkScheme(scheme) && checkMatrix(x);
  return chooseQParams(x, scheme, rule, hasOuter ? outerScale(absMaxOf(x), scheme) : 1);
}

Result<QParams> chooseQParams(ConstMatrix x, const Scheme &scheme, const ScaleRule &rule,
                              float outer) {
  if (auto ok = checkScheme(scheme); !ok)
    return Unexpected(ok.error());
  if (auto ok = checkMatrix(x); !ok)
    return Unexpected(ok.error());
  if (auto ok = checkScaleRule(rule, scheme); !ok)
    return Unexpected(ok.error());
  if (auto ok = checkWeights(rule, x.columns); !ok)
    return Unexpected(ok.error());
  for (int64_t i = 0; i < x.rows; ++i)
    if (absMaxBits(x.row(i), x.columns) >= kInfinityBits)
      return notFiniteError(x.row(i), x.columns, i);

  QParams params;
  params.rows = scaleRows(scheme, x.rows);
  params.groups = groupCount(x.columns, scheme.groupSize);
  if (scheme.outer)
    params.outer = {outer};
  const int64_t count = params.rows * params.groups;
  params.scales.resize(count);
  params.zeroPoints.resize(scheme.hasZeroPoints() ? count : 0);
  params.minima.resize(scheme.minima ? count : 0);
  int64_t index = 0;
  auto add = [&](ConstMatrix slice, int64_t firstColumn = 0) {
    ScaleRule own = rule;
    if (rule.kind == ScaleRuleKind::HessianDiagonal)
      own.weights = rule.weights.subspan(firstColumn, slice.columns);
    setSlice(params, index++, chooseParams(slice, scheme, own, outer));
  };
  const bool isTwoLevel = scheme.scales == ScaleFormat::UI6;
  std::vector<float> supers;
  if (isTwoLevel) {
    auto wide = chooseQParams(x, withWideScales(scheme), rule, 1);
    if (!wide)
      return Unexpected(wide.error());
    supers = superScales(x, scheme, wide->scales);
  }
  if (scheme.granularity == Granularity::Tensor)
    add(x);
  for (int64_t i = 0; i < x.rows && scheme.granularity != Granularity::Tensor; ++i)
    for (int64_t g = 0; g < params.groups; ++g) {
      auto [begin, count] = groupColumns(g, scheme.groupSize, x.columns);
      if (isTwoLevel)
        outer = supers[i * superGroupCount(params.groups) + g / kSuperGroups];
      add({x.row(i) + begin, 1, count}, begin);
    }
  if (auto ok = checkScales(params, scheme); !ok)
    return Unexpected(ok.error());
  return params;
}

Result<QuantizedMatrix> quantize(ConstMatrix x, const Scheme &scheme, const ScaleRule &rule) {
  auto params = chooseQParams(x, scheme, rule);
  if (!params)
    return Unexpected(params.error());
  QuantizedMatrix q{scheme, x.rows, x.columns, {}, std::move(*params)};
  q.codes.resize(x.rows * x.columns);
  if (auto ok = quantize(x, scheme, q.params, q.codes); !ok)
    return Unexpected(ok.error());
  return q;
}

Result<SliceParams> chooseQParams(const Histogram &values, const Scheme &scheme,
                                  const ScaleRule &rule) {
  if (auto ok = checkScheme(scheme); !ok)
    return Unexpected(ok.error());
  if (auto ok = checkScaleRule(rule, scheme); !ok)
    return Unexpected(ok.error());
  if (rule.kind == ScaleRuleKind::HessianDiagonal)
    return makeError(ErrorCode::InvalidArgument,
                     "scale rule hessian-diagonal is of weights, not of activations; take mse");
  return chooseParams(values, scheme, rule);
}

} // namespace easyquant::numerics
