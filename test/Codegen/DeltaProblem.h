//===- DeltaProblem.h - Gated delta nets in double precision ----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Inputs of lm.gated_delta and a transcription of its formulas, for the specs of all targets.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_CODEGEN_DELTAPROBLEM_H
#define EASYQUANT_TEST_CODEGEN_DELTAPROBLEM_H

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace easyquant {

constexpr int64_t kDeltaSequences = 2, kDeltaTokens = 70;

/// Inputs of a layer: rows of queries, keys, values, decays and strengths for kDeltaTokens tokens
/// of each of kDeltaSequences sequences.
template <typename Spec> struct DeltaProblem {
  Spec spec;
  std::vector<float> inputs[5], logRate, bias;

  explicit DeltaProblem(Spec given) : spec(given) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    auto fill = [&](std::vector<float> &values, int64_t count, float spread) {
      values.resize(count);
      for (float &value : values)
        value = spread * normal(random);
    };
    for (int i = 0; i < 5; ++i)
      fill(inputs[i], kDeltaSequences * kDeltaTokens * width(i), i < 3 ? 1.0f : 3.0f);
    fill(logRate, spec.valueHeads, 1.0f);
    fill(bias, spec.valueHeads, 1.0f);
  }

  int64_t width(int input) const {
    return input < 2    ? spec.keyHeads * spec.keyDim
           : input == 2 ? spec.valueHeads * spec.valueDim
                        : spec.valueHeads;
  }
  const float *row(int input, int64_t sequence, int64_t token) const {
    return inputs[input].data() + (sequence * kDeltaTokens + token) * width(input);
  }

  /// Results of all tokens of a sequence; what the state is behind them goes to `state`.
  std::vector<double> expected(int64_t sequence, std::vector<double> &state) const {
    const int64_t dk = spec.keyDim, dv = spec.valueDim, values = spec.valueHeads * dv;
    state.assign(values * dk, 0.0);
    std::vector<double> result(kDeltaTokens * values);
    for (int64_t t = 0; t < kDeltaTokens; ++t)
      for (int64_t h = 0; h < spec.valueHeads; ++h) {
        const int64_t keyHead =
            spec.tiled ? h % spec.keyHeads : h / (spec.valueHeads / spec.keyHeads);
        const float *q = row(0, sequence, t) + keyHead * dk,
                    *k = row(1, sequence, t) + keyHead * dk;
        const float *v = row(2, sequence, t) + h * dv;
        auto length = [&](const float *x) {
          double sum = 1e-6;
          for (int64_t i = 0; i < dk; ++i)
            sum += double(x[i]) * x[i];
          return std::sqrt(sum);
        };
        const double ofQuery = length(q) * std::sqrt(double(dk)), ofKey = length(k);
        const double step = std::log1p(std::exp(double(row(3, sequence, t)[h]) + bias[h]));
        const double decay = std::exp(-std::exp(double(logRate[h])) * step);
        const double strength = 1 / (1 + std::exp(-double(row(4, sequence, t)[h])));
        for (int64_t j = 0; j < dv; ++j) {
          double *s = state.data() + h * dk * dv + j, known = 0, seen = 0;
          for (int64_t i = 0; i < dk; ++i)
            known += (s[i * dv] *= decay) * (k[i] / ofKey);
          for (int64_t i = 0; i < dk; ++i) {
            s[i * dv] += k[i] / ofKey * strength * (v[j] - known);
            seen += s[i * dv] * (q[i] / ofQuery);
          }
          result[(t * spec.valueHeads + h) * dv + j] = seen;
        }
      }
    return result;
  }
};

} // namespace easyquant

#endif // EASYQUANT_TEST_CODEGEN_DELTAPROBLEM_H
