//===- OnlineTranscription.h - Online scales as specified -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_CODEGEN_ONLINETRANSCRIPTION_H
#define EASYQUANT_TEST_CODEGEN_ONLINETRANSCRIPTION_H

#include "easyquant/Numerics/OnlineScales.h"

#include <cmath>
#include <deque>
#include <limits>
#include <random>
#include <vector>

namespace easyquant::numerics {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// A site as the specification has it, nothing else.
struct Transcription {
  double decay, peak;
  size_t window;
  std::deque<double> magnitudes = {};

  void step(const std::vector<RowExtrema> &rows) {
    float low = kInfinity, high = -kInfinity;
    for (const RowExtrema &row : rows) {
      low = std::fmin(low, row.low);
      high = std::fmax(high, row.high);
    }
    if (rows.empty() || low == high || std::isinf(low) || std::isinf(high))
      return;
    double largest = std::fmax(1e-8, std::fmax(std::fabs(double(low)), std::fabs(double(high))));
    if (window > 0) {
      magnitudes.push_back(largest);
      if (magnitudes.size() > window)
        magnitudes.pop_front();
      for (double earlier : magnitudes)
        largest = std::fmax(largest, earlier);
    }
    peak = std::fma(decay, peak - largest, largest);
  }
  float scale() const { return static_cast<float>(peak / 127); }
};

/// Rows of a step: typical ones, constants, spikes, what grows, and what is not finite.
inline std::vector<RowExtrema> rowsOfStep(std::mt19937 &random, int step) {
  std::vector<RowExtrema> rows(1 + random() % 5);
  std::normal_distribution<float> normal;
  const float size = step % 97 == 0 ? 1e4f : std::ldexp(1.0f, step / 40);
  for (RowExtrema &row : rows) {
    row = {-std::abs(normal(random)) * size, std::abs(normal(random)) * size};
    if (step % 11 == 3)
      row = {0.25f, 0.25f};
    else if (step % 13 == 5)
      row = {row.high, row.high + 1}; // nothing below zero
    else if (step % 29 == 7)
      row.high = kInfinity;
    else if (step % 31 == 9)
      row = {-1e-30f, 1e-30f};
  }
  return rows;
}

} // namespace easyquant::numerics

#endif // EASYQUANT_TEST_CODEGEN_ONLINETRANSCRIPTION_H
