//===- OnlineScales.h - Scales that follow their input ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a sequence keeps of a site whose activations are quantized per tensor with a scale that
// follows them, and how a step changes it. All numbers are doubles:
//
//      field 0       p, what stands for the largest magnitude
//      field 1       s = (float)(p / 127), the scale
//      field 2 ..    of a window of W > 0 steps the largest magnitudes of the last W, newest first,
//                    0 where there were none yet
//
// A step whose rows reach from `low` to `high`, their extrema, has m = max(floor, |low|, |high|).
// It is no update, and everything stays as it is, if low = high (constant, or no rows) or one of
// them is not finite. Else, with w = m, or the largest of the last W steps' m, this one's among
// them,
//
//      p <- fma(decay, p - w, w)                   that is, decay p + (1 - decay) w
//
// Codes of a step are made with the scale that the step before has left. With sinks apart
// (Scheme::sinks) a row that leaves the range of that scale has one of its own (definition 4 of
// Quantize.h). No row counts as reaching further than kOnlineReach s from 0. So a token that towers
// above the others hardly moves the scale, which still follows activations that grow.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_ONLINESCALES_H
#define EASYQUANT_NUMERICS_ONLINESCALES_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

namespace easyquant::numerics {

/// The least magnitude that scales follow.
inline constexpr double kOnlineFloor = 1e-8;
/// The largest code.
inline constexpr double kOnlineCodes = 127.0;
/// With sinks apart: twice the range.
inline constexpr float kOnlineReach = 254.0f;

/// Fields of a site.
constexpr int64_t onlineFields(int64_t window) { return 2 + window; }

struct OnlineRule {
  double decay = 0.9; ///< 0 <= decay < 1: the weight of the past
  int64_t window = 0; ///< 0: none
};

/// The extrema of a row.
struct RowExtrema {
  float low = 0, high = 0;
};

/// (float)(p / 127)
inline double onlineScale(double peak) { return static_cast<float>(peak / kOnlineCodes); }

/// Before the first step: the scale that calibration has chosen.
inline void startOnline(float scale, std::span<double> state) {
  std::fill(state.begin(), state.end(), 0.0);
  state[0] = scale * kOnlineCodes; // exact, as is the quotient
  state[1] = scale;
}

/// From `state` to `next`, which do not overlap; both are onlineFields(rule.window) long.
void advanceOnline(const OnlineRule &rule, std::span<const double> state,
                   std::span<const RowExtrema> rows, std::span<double> next);

/// Could `state` be what a sequence keeps? Finite and positive, and the scale that of p.
inline bool isOnlineState(std::span<const double> state) {
  constexpr double most = std::numeric_limits<float>::max();
  return std::all_of(state.begin(), state.end(),
                     [](double value) { return value >= 0 && value <= most * kOnlineCodes; }) &&
         std::isnormal(static_cast<float>(state[1])) && state[1] == onlineScale(state[0]);
}

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_ONLINESCALES_H
