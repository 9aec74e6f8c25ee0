//===- GatedDeltaTest.cpp - The recurrence of gated delta nets ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Two sequences against a transcription of the formulas in double, and to the bit however they are
// cut and shared among threads.
//
//===----------------------------------------------------------------------===//

#include "../DeltaProblem.h"
#include "GuardedBuffer.h"
#include "SequenceTable.h"

#include <cmath>
#include <deque>
#include <limits>
#include <vector>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::cpu;

namespace {

constexpr int64_t kSequences = kDeltaSequences, kTokens = kDeltaTokens, kFirst = 3;
constexpr float kUnread = std::numeric_limits<float>::quiet_NaN();

using Problem = DeltaProblem<GatedDeltaSpec>;

/// The kernel on both sequences, cut in pieces; results one sequence behind the other, then the
/// last slots of both.
std::vector<float> runInPieces(const KernelRunner &run, const Problem &problem, int64_t piece,
                               int64_t threads) {
  const GatedDeltaSpec &spec = problem.spec;
  const int64_t values = problem.width(2), heads = spec.valueHeads;
  std::vector<float> result(kSequences * kTokens * values);
  GuardedBuffer<float> state(2 * kSequences * spec.stateValues, kUnread);
  GuardedBuffer<float> logRate(heads), bias(heads);
  std::copy(problem.logRate.begin(), problem.logRate.end(), logRate.data());
  std::copy(problem.bias.begin(), problem.bias.end(), bias.data());
  int64_t step = 0;
  for (int64_t position = 0; position < kTokens; position += piece, ++step) {
    const int64_t count = std::min(piece, kTokens - position), rows = kSequences * count;
    SequenceTable table;
    for (int64_t n = 0; n < kSequences; ++n) {
      eq_sequence &sequence = table.add(count, position);
      sequence.slot = static_cast<int32_t>(2 * n + step % 2);
      sequence.next_slot = static_cast<int32_t>(2 * n + 1 - step % 2);
    }
    std::deque<GuardedBuffer<float>> buffers; // which cannot be moved
    std::vector<MemRef<float, 2>> views;
    for (int i = 0; i < 5; ++i) {
      const int64_t width = problem.width(i), stride = width + 5;
      GuardedBuffer<float> &buffer = buffers.emplace_back((rows - 1) * stride + width, kUnread);
      for (int64_t m = 0; m < rows; ++m)
        std::copy_n(problem.row(i, m / count, position + m % count), width,
                    buffer.data() + m * stride);
      views.push_back(MemRef<float, 2>::strided(buffer.data(), {rows, width}, stride));
    }
    GuardedBuffer<float> y(rows * values);
    MemRef<float, 2> ys(y.data(), {rows, values}),
        states(state.data(), {2 * kSequences, spec.stateValues});
    MemRef<float, 1> rates(logRate.data(), {heads}), biases(bias.data(), {heads});
    auto sequences = table.view();
    run(views[0], views[1], views[2], views[3], views[4], rates, biases, states, kFirst, sequences,
        ys, threads);
    for (int64_t m = 0; m < rows; ++m)
      std::copy_n(y.data() + m * values, values,
                  result.data() + (m / count * kTokens + position + m % count) * values);
  }
  for (int64_t n = 0; n < kSequences; ++n) {
    const float *slot = state.data() + (2 * n + step % 2) * spec.stateValues;
    EXPECT_TRUE(std::isnan(slot[kFirst - 1]) && std::isnan(slot[spec.stateValues - 1]));
    result.insert(result.end(), slot + kFirst, slot + spec.stateValues - 1);
  }
  return result;
}

} // namespace

// Rounding errors of the state die away as the state does. Measured: 2^-21 of the largest value.
TEST(GatedDelta, IsTheFormulaHoweverATextIsCut) {
  for (const Target &target : testTargets())
    for (GatedDeltaSpec spec : {GatedDeltaSpec{2, 8, 2, 8},
                                {2, 12, 4, 20},
                                {2, 12, 4, 20, true},
                                {1, 128, 2, 128},
                                {3, 5, 3, 33}}) {
      spec.stateValues = kFirst + spec.valueHeads * spec.keyDim * spec.valueDim + 1;
      SCOPED_TRACE(target.name().str() + ", " + symbolName(spec));
      const Problem problem(spec);
      KernelRunner run(target,
                       [&](ModuleOp module) { return getOrEmitGatedDelta(module, spec, target); });
      const std::vector<float> whole = runInPieces(run, problem, kTokens, 1);
      const int64_t results = kTokens * problem.width(2);
      for (int64_t n = 0; n < kSequences; ++n) {
        std::vector<double> state;
        std::vector<double> expected = problem.expected(n, state);
        auto compare = [](const float *found, const std::vector<double> &wanted) {
          double largest = 0;
          for (double value : wanted)
            largest = std::max(largest, std::abs(value));
          for (size_t i = 0; i < wanted.size(); ++i)
            ASSERT_NEAR(found[i], wanted[i], 0x1p-19 * largest) << "element " << i;
        };
        compare(whole.data() + n * results, expected);
        compare(whole.data() + kSequences * results + n * std::ssize(state), state);
      }
      for (int64_t threads : {1, 3})
        for (int64_t piece : {1, 7, 64})
          ASSERT_EQ(runInPieces(run, problem, piece, threads), whole)
              << "pieces of " << piece << ", " << threads << " threads";
    }
}
