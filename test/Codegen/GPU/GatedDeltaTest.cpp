//===- GatedDeltaTest.cpp - The recurrence of gated delta nets ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Two sequences, a prompt beside single tokens, against a transcription of the formulas in double,
// and to the bit however they are cut.
//
//===----------------------------------------------------------------------===//

#include "../DeltaProblem.h"
#include "RecurrentSteps.h"

#include "easyquant/Codegen/GPU/Recurrent.h"

#include <algorithm>
#include <deque>
#include <limits>

using namespace easyquant;
using namespace easyquant::gpu;

namespace {

constexpr int64_t kFirst = 3;
constexpr float kUnread = std::numeric_limits<float>::quiet_NaN();
using Problem = DeltaProblem<GatedDeltaSpec>;
/// Rows of sequences in each step.
using Cut = std::vector<std::vector<std::pair<int64_t, int64_t>>>;

/// The kernel on both sequences; results one sequence behind the other, then the last slots of
/// both.
std::vector<float> runSteps(KernelLibrary &library, const Problem &problem, const Cut &cut) {
  const GatedDeltaSpec &spec = problem.spec;
  const Description kernel = library.add(spec);
  const int64_t values = problem.width(2);
  std::vector<float> result(kDeltaSequences * kDeltaTokens * values, kUnread);
  simt::Device device;
  DeviceBuffer<float> states(
      device, std::vector<float>(kSlotsOfSequence * kDeltaSequences * spec.stateValues, kUnread)),
      logRate(device, problem.logRate), bias(device, problem.bias);
  RecurrentSteps steps(kDeltaSequences);
  for (const auto &entries : cut) {
    const std::vector<eq_sequence> step = steps.next(entries);
    const auto &tokens = steps.tokens;
    const int64_t count = std::ssize(tokens);
    StepInput input(device, step);
    DeviceBuffer<float> y(device, count * values);
    std::map<std::string, Argument> arguments = {{"log_rate", logRate},
                                                 {"bias", bias},
                                                 {"state", states},
                                                 {"first", kFirst},
                                                 {"sequences", input.sequences},
                                                 {"row_places", input.rowPlaces},
                                                 {"y", y},
                                                 {"y_stride", values}};
    std::deque<DeviceBuffer<float>> buffers;
    for (int i = 0; i < 5; ++i) {
      const char *names[] = {"q", "k", "v", "decay", "beta"};
      const int64_t width = problem.width(i), stride = width + 5;
      std::vector<float> rows(count * stride, kUnread);
      for (int64_t m = 0; m < count; ++m)
        std::copy_n(problem.row(i, tokens[m].first, tokens[m].second), width,
                    rows.data() + m * stride);
      arguments.emplace(names[i], buffers.emplace_back(device, rows));
      arguments.emplace(std::string(names[i]) + "_stride", stride);
    }
    const simt::Statistics statistics = run(device, library, kernel, count, arguments);
    for (const auto &[kind, traffic] : statistics.traffic) {
      EXPECT_FALSE(kind.starts_with("local"));
      if (kind.starts_with("shared"))
        EXPECT_EQ(traffic.conflicts, 0u) << kind;
    }
    const std::vector<float> found = y.read();
    for (int64_t m = 0; m < count; ++m)
      std::copy_n(found.data() + m * values, values,
                  result.data() + (tokens[m].first * kDeltaTokens + tokens[m].second) * values);
  }
  const std::vector<float> slots = states.read();
  for (int64_t n = 0; n < kDeltaSequences; ++n) {
    const float *own = slots.data() + steps.slot[n] * spec.stateValues;
    EXPECT_TRUE(std::isnan(own[kFirst - 1]) && std::isnan(own[spec.stateValues - 1]));
    result.insert(result.end(), own + kFirst, own + spec.stateValues - 1);
  }
  return result;
}

} // namespace

// Rounding errors of the state die away as the state does.
TEST(GPUGatedDelta, IsTheFormulaHoweverATextIsCut) {
  for (GatedDeltaSpec spec :
       {GatedDeltaSpec{2, 12, 4, 20}, {2, 12, 4, 20, true}, {1, 128, 1, 32}, {1, 130, 1, 17}}) {
    spec.stateValues = kFirst + spec.valueHeads * spec.keyDim * spec.valueDim + 1;
    KernelLibrary library;
    SCOPED_TRACE(library.add(spec).name);
    const Problem problem(spec);
    const std::vector<float> whole =
        runSteps(library, problem, {{{0, kDeltaTokens}, {1, kDeltaTokens}}});
    const int64_t results = kDeltaTokens * problem.width(2);
    for (int64_t n = 0; n < kDeltaSequences; ++n) {
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
      compare(whole.data() + kDeltaSequences * results + n * std::ssize(state), state);
    }
    // Prompts beside single tokens, a sequence by itself, and one in a step several times.
    const Cut cut = {{{0, 1}, {1, 40}},
                     {{1, 1}, {0, 1}},
                     {{0, 47}},
                     {{1, 2}, {1, 3}, {1, 1}, {1, 3}, {0, 1}},
                     {{0, 11}, {0, 9}, {1, 20}}};
    ASSERT_EQ(runSteps(library, problem, cut), whole);
  }
}
