//===- Conv1dTest.cpp - Causal depthwise convolution ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Three sequences, cut in pieces of all lengths, against a transcription of the formula.
//
//===----------------------------------------------------------------------===//

#include "GuardedBuffer.h"
#include "SequenceTable.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

using namespace mlir;
using namespace easyquant::cpu;

namespace {

constexpr int64_t kSequences = 3, kTokens = 40, kFirst = 5;

/// A convolution with its inputs: kTokens tokens of each sequence.
struct Problem {
  Conv1dSpec spec;
  std::vector<float> x, w, bias;

  explicit Problem(Conv1dSpec spec)
      : spec(spec), x(kSequences * kTokens * spec.columns), w(spec.columns * spec.width),
        bias(spec.columns) {
    std::mt19937 random(3);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    for (std::vector<float> *values : {&x, &w, &bias})
      for (float &value : *values)
        value = uniform(random);
  }

  const float *row(int64_t sequence, int64_t token) const {
    return x.data() + (sequence * kTokens + token) * spec.columns;
  }
  /// The formula; sums in f32 in their order.
  float expected(int64_t sequence, int64_t token, int64_t column) const {
    float sum = spec.bias ? bias[column] : 0.0f;
    for (int64_t i = 0; i < spec.width; ++i) {
      const int64_t at = token - spec.width + 1 + i;
      sum = std::fma(at < 0 ? 0.0f : row(sequence, at)[column], w[column * spec.width + i], sum);
    }
    return spec.silu ? sum / (1.0f + std::exp(-sum)) : sum;
  }
};

/// To the bit; the exponential function of kernels has a bound of its own.
void expectValue(float found, float expected, bool isExact) {
  if (isExact)
    ASSERT_EQ(found, expected);
  else
    ASSERT_NEAR(found, expected, 1e-6f);
}

} // namespace

TEST(Conv1d, IsTheFormulaHoweverATextIsCut) {
  for (const Target &target : testTargets())
    for (Conv1dSpec spec : {Conv1dSpec{8, 3},
                            {40, 3},
                            {17, 4},
                            {1, 2},
                            {64, 3, 0, true},
                            {35, 5, 0, true},
                            {21, 4, 0, false, true},
                            {40, 4, 0, true, true}}) {
      const int64_t columns = spec.columns, stride = columns + 3;
      spec.stateValues = kFirst + (spec.width - 1) * columns + 2;
      SCOPED_TRACE(target.name().str() + ", " + symbolName(spec));
      const Problem problem(spec);
      GuardedBuffer<float> w(problem.w.size()), bias(columns);
      std::copy(problem.w.begin(), problem.w.end(), w.data());
      std::copy(problem.bias.begin(), problem.bias.end(), bias.data());
      KernelRunner run(target,
                       [&](ModuleOp module) { return getOrEmitConv1d(module, spec, target); });
      for (int64_t threads : {1, 3})
        for (int64_t piece : {1, 2, 7, 40}) {
          // What no sequence has written must not be read.
          constexpr float unread = std::numeric_limits<float>::quiet_NaN();
          GuardedBuffer<float> state(2 * kSequences * spec.stateValues, unread);
          for (int64_t position = 0, step = 0; position < kTokens; ++step) {
            // Sequences are cut in different places, and some have nothing to do in the end.
            const int64_t most = std::min(piece, kTokens - position);
            SequenceTable table;
            for (int64_t n = 0; n < kSequences; ++n) {
              eq_sequence &sequence = table.add(most, position);
              sequence.slot = static_cast<int32_t>(2 * n + step % 2);
              sequence.next_slot = static_cast<int32_t>(2 * n + 1 - step % 2);
            }
            const int64_t rows = kSequences * most;
            GuardedBuffer<float> x((rows - 1) * stride + columns, unread), y(rows * columns);
            for (int64_t m = 0; m < rows; ++m)
              std::copy_n(problem.row(m / most, position + m % most), columns,
                          x.data() + m * stride);
            auto xs = MemRef<float, 2>::strided(x.data(), {rows, columns}, stride);
            MemRef<float, 2> ws(w.data(), {columns, spec.width}), ys(y.data(), {rows, columns});
            MemRef<float, 1> bs(bias.data(), {columns});
            MemRef<float, 2> states(state.data(), {2 * kSequences, spec.stateValues});
            auto ts = table.view();
            if (spec.bias)
              run(xs, ws, bs, states, kFirst, ts, ys, threads);
            else
              run(xs, ws, states, kFirst, ts, ys, threads);
            for (int64_t m = 0; m < rows; ++m)
              for (int64_t c = 0; c < columns; ++c) {
                SCOPED_TRACE(testing::Message() << "row " << m << ", column " << c);
                expectValue(y[m * columns + c], problem.expected(m / most, position + m % most, c),
                            !spec.silu);
              }
            position += most;
            // The last tokens, oldest first, and nothing around them.
            for (int64_t n = 0; n < kSequences; ++n) {
              const float *slot = state.data() + (2 * n + 1 - step % 2) * spec.stateValues;
              for (int64_t i = 0; i < spec.stateValues; ++i) {
                const int64_t place = i - kFirst,
                              token = position - spec.width + 1 + place / columns;
                if (place < 0 || place >= (spec.width - 1) * columns)
                  ASSERT_TRUE(std::isnan(slot[i]));
                else
                  ASSERT_EQ(slot[i], token < 0 ? 0.0f : problem.row(n, token)[place % columns]);
              }
            }
          }
        }
    }
}
