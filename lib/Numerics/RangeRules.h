//===- RangeRules.h - Ranges that lose the least ----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Private to lib/Numerics: what the rules of ScaleRules.h look for, a file each. Slices are finite
// and not zero, `all` is the range of all their values and 0, and so is what is returned.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_NUMERICS_RANGERULES_H
#define EASYQUANT_LIB_NUMERICS_RANGERULES_H

#include "easyquant/Numerics/ScaleRules.h"

#include <span>

namespace easyquant::numerics {

struct ValueRange {
  float min = 0, max = 0;
  float absMax() const { return -min > max ? -min : max; }
};

/// A range that a rule tries: times a factor, or, with minima, so much narrower about its middle.
/// With `anchor` that is about another place: 0 the lower end, 1 the upper one.
inline ValueRange scaledRange(ValueRange all, float factor, const Scheme &scheme,
                              double anchor = 0.5) {
  if (!scheme.minima)
    return {all.min * factor, all.max * factor};
  const double width = double(all.max) - all.min, low = all.min + (1 - factor) * anchor * width;
  return {static_cast<float>(low), static_cast<float>(low + factor * width)};
}

ValueRange percentileRange(ConstMatrix slice, const Scheme &scheme, double percentile);
ValueRange percentileRange(const Histogram &values, const Scheme &scheme, double percentile);

ValueRange leastErrorRange(ConstMatrix slice, ValueRange all, const Scheme &scheme, double norm,
                           ScaleUnits units);
ValueRange leastErrorRange(const Histogram &values, ValueRange all, const Scheme &scheme,
                           double norm, ScaleUnits units);

/// Scale and zero point or minimum themselves, which no range need have; `weights` by column.
SliceParams leastWeightedError(ConstMatrix slice, std::span<const float> weights, bool coarse,
                               ValueRange all, const Scheme &scheme, ScaleUnits units);

ValueRange leastEntropyRange(ConstMatrix slice, ValueRange all, const Scheme &scheme);
ValueRange leastEntropyRange(const Histogram &values, ValueRange all, const Scheme &scheme);

} // namespace easyquant::numerics

#endif // EASYQUANT_LIB_NUMERICS_RANGERULES_H
