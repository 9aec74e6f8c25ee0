//===- Conv1dTest.cpp - Causal depthwise convolution ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sequences cut in pieces of different lengths, prompts beside single tokens, against a
// transcription of the formula.
//
//===----------------------------------------------------------------------===//

#include "RecurrentSteps.h"

#include "easyquant/Codegen/GPU/Recurrent.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

using namespace easyquant;
using namespace easyquant::gpu;

namespace {

constexpr int64_t kSequences = 3, kTokens = 12, kFirst = 5;
constexpr float kUnread = std::numeric_limits<float>::quiet_NaN();

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
    return sum;
  }
};

/// Runs steps and checks results and slots.
class Steps {
public:
  Steps(const Problem &problem, KernelLibrary &library)
      : problem(problem), library(library), kernel(library.add(problem.spec)),
        states(device, std::vector<float>(kSlotsOfSequence * kSequences * problem.spec.stateValues,
                                          kUnread)),
        w(device, problem.w), bias(device, problem.bias) {}

  void run(const std::vector<std::pair<int64_t, int64_t>> &entries);

private:
  void checkSlot(const std::vector<float> &slots, int64_t sequence) const;

  const Problem &problem;
  KernelLibrary &library;
  const Description kernel;
  simt::Device device;
  DeviceBuffer<float> states, w, bias;
  RecurrentSteps steps{kSequences};
};

void Steps::run(const std::vector<std::pair<int64_t, int64_t>> &entries) {
  const Conv1dSpec &spec = problem.spec;
  const int64_t stride = spec.columns + 3;
  const std::vector<eq_sequence> step = steps.next(entries);
  const auto &tokens = steps.tokens;
  std::vector<float> rows;
  for (auto [n, token] : tokens) {
    rows.insert(rows.end(), problem.row(n, token), problem.row(n, token) + spec.columns);
    rows.insert(rows.end(), stride - spec.columns, kUnread);
  }
  const int64_t count = std::ssize(tokens);
  StepInput input(device, step);
  DeviceBuffer<float> x(device, rows), y(device, count * spec.columns);
  std::map<std::string, Argument> arguments = {{"x", x},
                                               {"x_stride", stride},
                                               {"w", w},
                                               {"state", states},
                                               {"first", kFirst},
                                               {"sequences", input.sequences},
                                               {"row_places", input.rowPlaces},
                                               {"y", y},
                                               {"y_stride", spec.columns}};
  if (spec.bias)
    arguments.emplace("bias", bias);
  gpu::run(device, library, kernel, count, arguments);
  const std::vector<float> found = y.read(), slots = states.read();
  for (int64_t m = 0; m < count; ++m)
    for (int64_t c = 0; c < spec.columns; ++c) {
      const float expected = problem.expected(tokens[m].first, tokens[m].second, c);
      const double activated = expected / (1 + std::exp(-double(expected)));
      if (spec.silu)
        ASSERT_NEAR(found[m * spec.columns + c], activated,
                    (0x1p-20 + std::abs(expected) * 0x1p-23) * std::abs(activated))
            << "row " << m;
      else
        ASSERT_EQ(found[m * spec.columns + c], expected) << "row " << m << ", column " << c;
    }
  for (int64_t n = 0; n < kSequences; ++n)
    if (steps.at[n] > 0)
      checkSlot(slots, n);
}

/// The last tokens, oldest first, and nothing around them.
void Steps::checkSlot(const std::vector<float> &slots, int64_t n) const {
  const Conv1dSpec &spec = problem.spec;
  const float *own = slots.data() + steps.slot[n] * spec.stateValues;
  for (int64_t i = 0; i < spec.stateValues; ++i) {
    const int64_t place = i - kFirst, token = steps.at[n] - spec.width + 1 + place / spec.columns;
    if (place < 0 || place >= (spec.width - 1) * spec.columns)
      ASSERT_TRUE(std::isnan(own[i]));
    else
      ASSERT_EQ(own[i], token < 0 ? 0.0f : problem.row(n, token)[place % spec.columns]);
  }
}

} // namespace

TEST(GPUConv1d, IsTheFormulaHoweverATextIsCut) {
  for (Conv1dSpec spec : {Conv1dSpec{8, 3},
                          {40, 3, 0, true},
                          {1, 2},
                          {133, 4, 0, false, true},
                          {35, 5, 0, true},
                          {21, 9, 0, true, true}}) {
    spec.stateValues = kFirst + (spec.width - 1) * spec.columns + 2;
    KernelLibrary library;
    SCOPED_TRACE(library.add(spec).name);
    const Problem problem(spec);
    // What no sequence has written is not a number, and would be in a result that has read it.
    Steps whole(problem, library), cut(problem, library);
    whole.run({{0, kTokens}, {1, kTokens}, {2, kTokens}});
    cut.run({{0, 1}, {1, 6}});
    cut.run({{0, 1}, {1, 1}, {2, 2}});
    cut.run({{2, 1}, {0, 3}, {0, 1}, {0, 1}, {0, 2}, {1, 1}});
    cut.run({{0, 1}, {2, 5}, {2, 4}});
    cut.run({{0, 2}, {1, 4}});
  }
}
