//===- LeastWeightedError.cpp - The range of least weighted error ---------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For codes v that are fixed, sum h (w - s v)^2 is least at s = sum h w v / sum h v^2, and the sums
// of any candidate tell how small that least is. So candidates are compared by what they come to
// with the scale of their codes, and from the best one codes and scale are found in turn for as
// long as the error falls.
//
//===----------------------------------------------------------------------===//

#include "Codec.h"
#include "RangeRules.h"

#include <cfloat>
#include <cmath>
#include <optional>
#include <vector>

namespace easyquant::numerics {
namespace {

/// How much is looked at: ranges besides that of all values, down to 0.2 of it and, of uneven
/// codes, up to 1.5 of it; times that scale and codes follow from each other.
struct Effort {
  int shrinks, growths, refinements;
};
constexpr Effort kFine{40, 20, 8}, kCoarse{8, 5, 2};

/// Are the outermost codes so much farther apart than others that the largest value may be better
/// off at an inner one? A range 1.5 times as wide puts it on the second one of f4E2M1FN, 4 in place
/// of 6. Tables are uneven, too, but there it has not been measured.
bool areUneven(const Scheme &scheme) { return scheme.codes == CodeFormat::F4E2M1FN; }
constexpr int kZeroPointReach = 2; ///< zero points on either side of that of a range

/// Over the values w of a slice, whose codes stand for v in units of the scale, above the minimum
/// m.
struct WeightedSums {
  double error;  ///< sum h (w - m - s v)^2
  double cross;  ///< sum h w v
  double square; ///< sum h v^2
  /// With minima alone: sum h, sum h v and sum h w.
  double ones = 0, values = 0, weights = 0;

  /// The scale of least error with a minimum that is any number; nothing where the codes are all
  /// one.
  std::optional<double> slope() const {
    const double determinant = ones * square - values * values;
    if (!(determinant > 1e-12 * ones * square))
      return std::nullopt;
    return (ones * cross - values * weights) / determinant;
  }
  /// How much less than sum h w^2 the error is with the scale of these codes, and the minimum.
  double gain(bool minima) const {
    if (!minima)
      return square > 0 ? cross * cross / square : 0;
    const double scale = slope().value_or(0);
    return ones > 0 ? scale * cross + (weights - scale * values) / ones * weights : 0;
  }
};

/// The weights of a row, all of one slice; zeros all alike, as if they were ones.
struct WeightedSlice {
  ConstMatrix values;
  const float *weights; ///< by column; null: ones
};

template <bool minima, typename Codec>
EASYQUANT_INLINE void addSums(const Codec &codec, SliceParams params, const float *x,
                              const float *h, int64_t count, WeightedSums &sums) {
  constexpr int64_t lanes = 8;
  double error[lanes] = {}, cross[lanes] = {}, square[lanes] = {};
  double ones[lanes] = {}, values[lanes] = {}, weights[lanes] = {};
  auto add = [&](int64_t lane, int64_t i) __attribute__((always_inline)) {
    const float above = minima ? x[i] - params.minimum : x[i];
    const double v = codec.round(above / params.scale, params.zeroPoint).value;
    const double w = x[i], weight = h ? h[i] : 1.0f;
    const double difference = (minima ? w - params.minimum : w) - params.scale * v;
    if constexpr (minima) {
      ones[lane] += weight;
      values[lane] += weight * v;
      weights[lane] += weight * w;
    }
    error[lane] += weight * (difference * difference);
    cross[lane] += weight * (w * v);
    square[lane] += weight * (v * v);
  };
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (int64_t l = 0; l < lanes; ++l)
      add(l, i + l);
  for (; i < count; ++i)
    add(i % lanes, i);
  for (int64_t l = 0; l < lanes; ++l) {
    sums.error += error[l];
    sums.cross += cross[l];
    sums.square += square[l];
    sums.ones += ones[l];
    sums.values += values[l];
    sums.weights += weights[l];
  }
}

EASYQUANT_VECTOR_CLONES
WeightedSums sumsOf(const WeightedSlice &slice, SliceParams params, const Scheme &scheme) {
  return withCodec(scheme, [&](const auto &codec) __attribute__((always_inline)) {
    WeightedSums sums{};
    for (int64_t i = 0; i < slice.values.rows; ++i) {
      const float *x = slice.values.row(i);
      if (scheme.minima)
        addSums<true>(codec, params, x, slice.weights, slice.values.columns, sums);
      else
        addSums<false>(codec, params, x, slice.weights, slice.values.columns, sums);
    }
    return sums;
  });
}

/// A candidate and what it comes to.
struct Candidate {
  SliceParams params;
  WeightedSums sums;
};

/// The search in one slice.
struct WeightedSearch {
  const WeightedSlice &slice;
  const Scheme &scheme;
  ScaleUnits units;
  bool coarse;
  Effort effort = coarse ? kCoarse : kFine;

  Candidate at(SliceParams params) const { return {params, sumsOf(slice, params, scheme)}; }

  /// The scale of the candidate's codes, in the format of scales; 0 where there is none.
  float fittedScale(const Candidate &candidate) const {
    const WeightedSums &sums = candidate.sums;
    const bool isSigned = scheme.hasSignedScales();
    if (scheme.minima ? !(sums.slope() > 0)
                      : !(sums.square > 0 && (isSigned ? sums.cross != 0 : sums.cross > 0)))
      return 0;
    const double fitted = scheme.minima ? *sums.slope() : sums.cross / sums.square;
    const double exact = fitted / units.scale;
    if (!(std::fabs(exact) >= 0x1p-126 && std::fabs(exact) <= FLT_MAX))
      return 0;
    return nearestScale(static_cast<float>(exact), scheme, units);
  }

  /// That scale with the candidate's zero point, or the minimum that belongs to it. Nothing where
  /// there is none, or it is the candidate's already.
  std::optional<SliceParams> fitted(const Candidate &candidate) const {
    SliceParams params = candidate.params;
    params.scale = fittedScale(candidate);
    if (scheme.minima && params.scale != 0) {
      const WeightedSums &sums = candidate.sums;
      const double minimum = (sums.weights - params.scale * sums.values) / sums.ones;
      params.minimum = nearestMinimum(static_cast<float>(minimum), scheme, units);
      if (!std::isfinite(params.minimum))
        return std::nullopt;
    }
    if (params.scale == 0 || params == candidate.params)
      return std::nullopt;
    return params;
  }

  /// Scale and codes in turn.
  Candidate refined(Candidate best) const {
    for (int step = 0; step < effort.refinements; ++step) {
      const std::optional<SliceParams> params = fitted(best);
      if (!params)
        break;
      Candidate next = at(*params);
      if (!(next.sums.error < best.sums.error))
        break;
      best = next;
    }
    return best;
  }

  SliceParams run(ValueRange all) const {
    const Candidate widest = at(paramsOfRange(all.min, all.max, scheme, units));
    Candidate promising = widest;
    // Where the format does not hold this scale, it does not hold smaller ones either.
    if (!isScale(widest.params.scale, scheme, units))
      return widest.params;
    const std::vector<double> anchors =
        scheme.minima ? std::vector{0.5, 0.0, 1.0} : std::vector{0.5};
    // Is there such a scale?
    auto tryRange = [&](double factor, double anchor) {
      const ValueRange range = scaledRange(all, static_cast<float>(factor), scheme, anchor);
      SliceParams params = paramsOfRange(range.min, range.max, scheme, units);
      if (!isScale(params.scale, scheme, units))
        return false;
      for (int side = 0; side < (scheme.hasSignedScales() ? 2 : 1); ++side) {
        Candidate next = at(params);
        if (next.sums.gain(scheme.minima) > promising.sums.gain(scheme.minima))
          promising = next;
        params.scale = -params.scale;
      }
      return true;
    };
    for (double anchor : anchors)
      for (int step = 1; step <= effort.shrinks; ++step)
        if (!tryRange(1 - 0.8 * step / effort.shrinks, anchor))
          break;
    for (int step = 1; step <= effort.growths && areUneven(scheme); ++step)
      if (!tryRange(1 + 0.5 * step / effort.growths, 0.5))
        break;
    Candidate best = widest;
    auto take = [&](const Candidate &found) {
      if (found.sums.error < best.sums.error)
        best = found;
    };
    take(refined(promising));
    if (coarse)
      return best.params;
    take(refined(widest));
    if (!scheme.hasZeroPoints())
      return best.params;
    const CodeRange codes = codeRange(scheme);
    const SliceParams middle = best.params;
    for (int offset = -kZeroPointReach; offset <= kZeroPointReach; ++offset) {
      const int32_t zeroPoint = middle.zeroPoint + offset;
      if (offset != 0 && zeroPoint >= codes.min && zeroPoint <= codes.max)
        take(refined(at({middle.scale, zeroPoint})));
    }
    return best.params;
  }
};

} // namespace

SliceParams leastWeightedError(ConstMatrix slice, std::span<const float> weights, bool coarse,
                               ValueRange all, const Scheme &scheme, ScaleUnits units) {
  const bool isWeighted =
      std::any_of(weights.begin(), weights.end(), [](float h) { return h > 0; });
  const WeightedSlice weighted{slice, isWeighted ? weights.data() : nullptr};
  return WeightedSearch{weighted, scheme, units, coarse}.run(all);
}

} // namespace easyquant::numerics
