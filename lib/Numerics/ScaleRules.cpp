//===- ScaleRules.cpp - Scales and zero points from values ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/ScaleRules.h"

#include "RangeRules.h"
#include "RowQuantize.h"

#include "easyquant/Numerics/SuperBlocks.h"

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
                         ScaleUnits units = {}) {
  ValueRange all = rangeOf(slice, scheme.minima), range = all;
  if (!isZero(all, scheme)) {
    if constexpr (std::is_same_v<Slice, ConstMatrix>)
      if (rule.kind == ScaleRuleKind::HessianDiagonal)
        return leastWeightedError(slice, rule.weights, rule.coarse, all, scheme, units);
    if (rule.kind == ScaleRuleKind::Percentile)
      range = percentileRange(slice, scheme, rule.percentile);
    else if (rule.kind == ScaleRuleKind::Mse)
      range = leastErrorRange(slice, all, scheme, rule.norm, units);
    else if (rule.kind == ScaleRuleKind::Entropy)
      range = leastEntropyRange(slice, all, scheme.isTwoLevel() ? withWideScales(scheme) : scheme);
    if (isZero(range, scheme))
      range = all;
  }
  return paramsOfRange(range.min, range.max, scheme, units);
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

/// Never 0: codes have that.
static float superScale(float x, const Scheme &scheme, ScaleUnits units) {
  const CodeRange range = superIntegers(scheme)->scales;
  const float integer =
      std::nearbyint(std::clamp(x, static_cast<float>(range.min), static_cast<float>(range.max)));
  return (integer != 0 ? integer : std::copysign(1.0f, x)) * units.scale;
}

float nearestScale(float x, const Scheme &scheme, ScaleUnits units) {
  if (scheme.superBlocks)
    return superScale(x, scheme, units);
  const float rounded = roundScale(x, scheme.scales), scale = rounded * units.scale;
  return isScale(rounded, scheme.scales) && isScale(scale, ScaleFormat::F32) ? scale : 0;
}

bool isScale(float scale, const Scheme &scheme, ScaleUnits units) {
  return isScale(scheme.superBlocks ? std::fabs(scale) : scale / units.scale, scheme.scales);
}

float nearestMinimum(float x, const Scheme &scheme, ScaleUnits units) {
  if (!scheme.superBlocks)
    return roundScale(x, scheme.scales);
  if (units.minimum == 0)
    return 0;
  const auto greatest = static_cast<float>(superIntegers(scheme)->minima.max);
  return -(std::nearbyint(std::clamp(-x / units.minimum, 0.0f, greatest)) * units.minimum);
}

/// In signed codes of the full range.
static float signedScaleOfRange(ValueRange range, const Scheme &scheme) {
  const CodeValues values = codeValues(scheme);
  const float far = range.absMax(), near = std::min(range.max, -range.min);
  const float scale = std::max(far / -values.least, near / (values.greatest + 0.5f));
  return range.max > -range.min ? -scale : scale;
}

/// Super-blocks: with minima the range need not have 0 in it.
static SliceParams superParams(ValueRange range, const Scheme &scheme, ScaleUnits units) {
  SliceParams params{units.scale, scheme.minima ? codeRange(scheme).min : 0};
  if (scheme.minima) {
    params.minimum = nearestMinimum(range.min, scheme, units);
    range = {params.minimum, std::max(range.max, params.minimum)};
  }
  if (isZero(range, scheme))
    return params;
  const float scale =
      scheme.hasSignedScales() ? signedScaleOfRange(range, scheme) : scaleOfRange(range, scheme);
  params.scale = superScale(scale / units.scale, scheme, units);
  return params;
}

SliceParams paramsOfRange(float lo, float hi, const Scheme &scheme, ScaleUnits units) {
  ValueRange range{std::min(lo, 0.0f), std::max(hi, 0.0f)};
  if (scheme.superBlocks)
    return superParams(scheme.minima ? ValueRange{lo, hi} : range, scheme, units);
  const float outer = units.scale;
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
  wide.superBlocks = false;
  return wide;
}

namespace {
/// Groups of a row that share their units.
struct SharingGroups {
  int64_t row, first, count;
};
} // namespace

/// body(groups) for all of them, row by row, as long as it gives true.
template <typename Body>
static void forSharingGroups(int64_t rows, int64_t groups, const Scheme &scheme, Body &&body) {
  const int64_t sharing = scheme.sharingGroups();
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t g = 0; g < groups; g += sharing)
      if (!body(SharingGroups{row, g, std::min(sharing, groups - g)}))
        return;
}

/// Nothing where they have none.
static std::optional<ScaleUnits> findUnits(const QParams &params, const Scheme &scheme,
                                           SharingGroups groups) {
  const int64_t at = groups.row * params.groups + groups.first;
  const std::span scales(params.scales.data() + at, groups.count);
  if (!scheme.superBlocks) {
    const std::optional<float> unit = superScaleOf(scales);
    return unit ? std::optional(ScaleUnits{*unit}) : std::nullopt;
  }
  const SuperIntegers &integers = *superIntegers(scheme);
  ScaleUnits units;
  std::optional<float> unit = superUnitOf(scales, integers.scales);
  units.scale = unit.value_or(0);
  if (unit && scheme.minima) {
    std::vector<float> subtracted(params.minima.begin() + at,
                                  params.minima.begin() + at + groups.count);
    for (float &minimum : subtracted)
      minimum = -minimum;
    unit = superUnitOf(subtracted, integers.minima);
    units.minimum = unit.value_or(0);
  }
  return unit ? std::optional(units) : std::nullopt;
}

static Result<void> checkSharedUnits(const QParams &params, const Scheme &scheme) {
  Result<void> held;
  forSharingGroups(params.rows, params.groups, scheme, [&](SharingGroups groups) {
    if (findUnits(params, scheme, groups))
      return true;
    const int64_t at = groups.row * params.groups + groups.first;
    const float largest =
        *std::ranges::max_element(std::span(params.scales.data() + at, groups.count));
    held = makeError(
        ErrorCode::OutOfRange,
        "scales{} [{}, {}] to [{}, {}], as {} in units of an f16 the largest of them {}, are not "
        "held; {}",
        scheme.minima ? " and minima" : "", groups.row, groups.first, groups.row,
        groups.first + groups.count - 1, scheme.superBlocks ? "integers" : "ui6", largest,
        scheme.superBlocks ? "take a scheme without super-blocks, such as W4A16"
                           : "take scales of f32 (--scale-type f32)");
    return false;
  });
  return held;
}

std::vector<ScaleUnits> unitsOf(const QParams &params, const Scheme &scheme) {
  std::vector<ScaleUnits> units;
  if (!scheme.isTwoLevel())
    for (int64_t i = 0; i < params.rows; ++i)
      units.insert(units.end(), params.groups, {params.outerOf(i)});
  else
    forSharingGroups(params.rows, params.groups, scheme, [&](SharingGroups groups) {
      units.insert(units.end(), groups.count,
                   findUnits(params, scheme, groups).value_or(ScaleUnits()));
      return true;
    });
  return units;
}

/// What the largest scale and the least minimum, 0 where there is none, are in units of.
static ScaleUnits unitsOfExtremes(float scale, float minimum, const Scheme &scheme) {
  if (!scheme.superBlocks)
    return {scale == 0 ? scaleOfZeros(scheme, ScaleFormat::F16) : superScale(scale)};
  const SuperIntegers &integers = *superIntegers(scheme);
  ScaleUnits units{scaleOfZeros(scheme, ScaleFormat::F16)};
  if (scale != 0)
    units.scale = superUnit(scale, integers.scales.max);
  if (minimum < 0)
    units.minimum = superUnit(-minimum, integers.minima.max);
  return units;
}

std::vector<ScaleUnits> chooseUnits(ConstMatrix x, const Scheme &scheme, const QParams &wide) {
  std::vector<ScaleUnits> units;
  const float codes = codeValues(scheme).greatest - codeValues(scheme).least;
  forSharingGroups(x.rows, wide.groups, scheme, [&](SharingGroups groups) {
    float scale = 0, minimum = 0;
    for (int64_t g = groups.first; g < groups.first + groups.count; ++g) {
      auto [begin, count] = groupColumns(g, scheme.groupSize, x.columns);
      const ConstMatrix slice(x.row(groups.row) + begin, 1, count);
      const int64_t at = groups.row * wide.groups + g;
      const float least = scheme.minima ? wide.minima[at] : 0;
      // A minimum above 0 becomes 0, and the codes have to reach as far.
      const float reach = std::max(least, 0.0f) / codes;
      const bool isConstant = isZero(rangeOf(slice, scheme.minima), scheme);
      scale = std::max(scale, isConstant ? reach : wide.scales[at] + reach);
      minimum = std::min(minimum, least);
    }
    units.insert(units.end(), groups.count, unitsOfExtremes(scale, minimum, scheme));
    return true;
  });
  return units;
}

Result<void> checkScales(const QParams &params, const Scheme &scheme) {
  if (scheme.isTwoLevel())
    return checkSharedUnits(params, scheme);
  if (scheme.scales == ScaleFormat::F32)
    return {};
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
  std::vector<ScaleUnits> shared;
  auto add = [&](ConstMatrix slice, int64_t firstColumn = 0) {
    ScaleRule own = rule;
    if (rule.kind == ScaleRuleKind::HessianDiagonal)
      own.weights = rule.weights.subspan(firstColumn, slice.columns);
    const ScaleUnits units = shared.empty() ? ScaleUnits{outer} : shared[index];
    setSlice(params, index++, chooseParams(slice, scheme, own, units));
  };
  if (scheme.isTwoLevel()) {
    auto wide = chooseQParams(x, withWideScales(scheme), rule, 1);
    if (!wide)
      return Unexpected(wide.error());
    shared = chooseUnits(x, scheme, *wide);
  }
  if (scheme.granularity == Granularity::Tensor)
    add(x);
  for (int64_t i = 0; i < x.rows && scheme.granularity != Granularity::Tensor; ++i)
    for (int64_t g = 0; g < params.groups; ++g) {
      auto [begin, count] = groupColumns(g, scheme.groupSize, x.columns);
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
