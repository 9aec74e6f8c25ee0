//===- OnlineScales.cpp - Scales that follow their input ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/OnlineScales.h"

using namespace easyquant::numerics;

void easyquant::numerics::advanceOnline(const OnlineRule &rule, std::span<const double> state,
                                        std::span<const RowExtrema> rows, std::span<double> next) {
  std::copy(state.begin(), state.end(), next.begin());
  float low = std::numeric_limits<float>::infinity(), high = -low;
  for (const RowExtrema &row : rows) {
    low = std::min(low, row.low);
    high = std::max(high, row.high);
  }
  if (!(low < high) || !std::isfinite(low) || !std::isfinite(high))
    return;
  double peak = std::max(
      {kOnlineFloor, std::abs(static_cast<double>(low)), std::abs(static_cast<double>(high))});
  if (rule.window > 0) {
    std::copy(state.begin() + 2, state.end() - 1, next.begin() + 3);
    next[2] = peak;
    peak = *std::max_element(next.begin() + 2, next.end());
  }
  next[0] = std::fma(rule.decay, state[0] - peak, peak);
  next[1] = onlineScale(next[0]);
}
