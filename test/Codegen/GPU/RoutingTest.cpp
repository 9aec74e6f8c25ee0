//===- RoutingTest.cpp - Choices of experts on a simulated GPU ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ExpertItems.h"
#include "LinearData.h"

#include <cmath>
#include <limits>

using namespace easyquant;
using namespace easyquant::gpu;

namespace {

/// A bound of lm.route's weights: exponentials, reciprocals and sums of a warp.
constexpr double kWeightBound = 1e-5;

/// Checks the choices and weights of rows.
void checkChoices(KernelLibrary &library, const ChooseExpertsSpec &spec,
                  const std::vector<float> &logits, const std::vector<float> &bias,
                  const std::vector<float> &factors) {
  const int64_t rows = std::ssize(logits) / spec.experts;
  simt::Device device;
  FloatRows x(device, logits, rows, spec.experts, Float::F32, "logits");
  DeviceBuffer<float> biases(device, bias, "bias"), numbers(device, factors, "factors");
  DeviceBuffer<int32_t> places(device, rows * spec.chosen, "places");
  DeviceBuffer<float> weights(device, rows * spec.chosen, "weights");
  std::map<std::string, Argument> arguments = {{"logits", Argument(x.address())},
                                               {"logits_stride", x.stride()},
                                               {"places", places},
                                               {"weights", weights}};
  if (spec.bias)
    arguments.emplace("bias", biases);
  if (spec.factors)
    arguments.emplace("factors", numbers);
  Description kernel = library.add(spec);
  run(device, library, kernel, rows, arguments);
  const std::vector<int32_t> found = places.read();
  const std::vector<float> parts = weights.read();
  for (int64_t m = 0; m < rows; ++m) {
    const float *row = logits.data() + m * spec.experts;
    auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
    auto score = [&](int32_t e) {
      return spec.bias ? sigmoid(row[e]) + bias[e] : static_cast<double>(row[e]);
    };
    std::vector<int32_t> best(spec.experts);
    std::iota(best.begin(), best.end(), 0);
    std::ranges::sort(best, {}, [&](int32_t e) { return std::pair(-score(e), e); });
    best.resize(spec.chosen);
    EXPECT_EQ(std::vector(found.begin() + m * spec.chosen, found.begin() + (m + 1) * spec.chosen),
              best)
        << kernel.name << ", row " << m;
    auto part = [&](int32_t e) {
      return spec.sigmoid ? sigmoid(row[e]) : std::exp(row[e] - row[best[0]]);
    };
    double sum = spec.sigmoid ? 1 : 0;
    if (spec.renormalize) {
      sum = spec.sigmoid ? 1e-20 : 0;
      for (int32_t e : best)
        sum += part(e);
    } else if (!spec.sigmoid) {
      for (int32_t e = 0; e < spec.experts; ++e)
        sum += part(e);
    }
    for (int64_t j = 0; j < spec.chosen; ++j) {
      double expected = part(best[j]) / sum * spec.scale;
      if (spec.factors)
        expected *= factors[best[j]];
      EXPECT_NEAR(parts[m * spec.chosen + j], expected, kWeightBound * std::abs(expected))
          << kernel.name << ", row " << m;
    }
  }
}

ChooseExpertsSpec choosing(int64_t experts, int64_t chosen, bool renormalize) {
  ChooseExpertsSpec spec;
  spec.experts = experts;
  spec.chosen = chosen;
  spec.renormalize = renormalize;
  return spec;
}

} // namespace

TEST(GPUExperts, Choices) {
  std::vector<ChooseExpertsSpec> specs = {choosing(8, 2, true),   choosing(5, 3, false),
                                          choosing(1, 1, true),   choosing(40, 40, true),
                                          choosing(128, 8, true), choosing(70, 33, false)};
  specs[1].factors = true;
  specs[4].scale = 2.5;
  for (bool renormalize : {false, true})
    for (bool bias : {false, true}) {
      ChooseExpertsSpec sigmoid = choosing(37, 4, renormalize);
      sigmoid.sigmoid = true;
      sigmoid.bias = bias;
      sigmoid.scale = renormalize ? 1.5 : 1;
      specs.push_back(sigmoid);
    }
  KernelLibrary library;
  for (const ChooseExpertsSpec &spec : specs)
    library.add(spec);
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (const ChooseExpertsSpec &spec : specs)
    for (int64_t rows : {1, 6}) {
      std::vector<float> logits(rows * spec.experts), bias(spec.experts), factors(spec.experts);
      // Rows of equal logits, and of few values; the first of equal ones is chosen.
      for (int64_t i = 0; i < std::ssize(logits); ++i) {
        const int64_t row = i / spec.experts;
        logits[i] = row == 1   ? 0.5f
                    : row == 2 ? std::floor(2 * normal(random))
                               : 3 * normal(random);
      }
      for (int64_t e = 0; e < spec.experts; ++e) {
        bias[e] = std::floor(8 * normal(random)) / 16;
        factors[e] = 1 + normal(random) / 4;
      }
      if (rows > 5 && spec.chosen < spec.experts)
        logits[5 * spec.experts] = -std::numeric_limits<float>::infinity();
      checkChoices(library, spec, logits, bias, factors);
    }
}

TEST(GPUExperts, LogitsThatAreNoNumbersChooseExpertsThatThereAre) {
  const ChooseExpertsSpec spec = choosing(5, 2, true);
  KernelLibrary library;
  Description kernel = library.add(spec);
  simt::Device device;
  FloatRows logits(device, std::vector<float>(5, std::nanf("")), 1, 5, Float::F32, "logits");
  DeviceBuffer<int32_t> places(device, 2, "places");
  DeviceBuffer<float> weights(device, 2, "weights");
  run(device, library, kernel, 1,
      {{"logits", Argument(logits.address())},
       {"logits_stride", logits.stride()},
       {"places", places},
       {"weights", weights}});
  for (int32_t expert : places.read())
    EXPECT_TRUE(expert >= 0 && expert < 5) << expert;
}

TEST(GPUExperts, SortedChoices) {
  struct Case {
    int64_t experts, chosen;
    std::vector<int64_t> rows;
  };
  KernelLibrary library;
  std::vector<std::pair<SortChoicesSpec, std::vector<int64_t>>> cases;
  for (const auto &[experts, chosen, rows] :
       {Case{5, 2, {1, 3, 64, 90}}, {40, 3, {1, 42, 700}}, {1, 1, {200}}, {4096, 2, {33}}})
    for (bool few : {false, true})
      cases.push_back({{experts, chosen, few}, rows});
  for (const auto &[spec, rows] : cases)
    library.add(spec);
  std::mt19937 random(7);
  for (const auto &[spec, allRows] : cases)
    for (int64_t rows : allRows)
      for (int64_t kind = 0; kind < 2; ++kind) {
        if (spec.few && rows * spec.chosen > kFewChoices)
          continue;
        // All of few experts, or one expert of all rows among others.
        std::vector<int32_t> choices;
        for (int64_t row = 0; row < rows; ++row) {
          std::vector<int32_t> own(spec.experts);
          std::iota(own.begin(), own.end(), 0);
          std::ranges::shuffle(own.begin() + kind, own.end(), random);
          choices.insert(choices.end(), own.begin(), own.begin() + spec.chosen);
        }
        const Sorted expected(choices, spec.experts, spec.chosen);
        simt::Device device;
        DeviceBuffer<int32_t> places(device, choices, "places");
        DeviceBuffer<int32_t> order(device, choices.size(), "order");
        std::vector<int32_t> lists = expected.items();
        DeviceBuffer<int32_t> items(device, lists.size(), "items");
        Description kernel = library.add(spec);
        run(device, library, kernel, rows,
            {{"places", places}, {"order", order}, {"items", items}});
        EXPECT_EQ(places.read(), expected.places) << kernel.name << ", rows " << rows;
        EXPECT_EQ(order.read(), expected.order);
        const size_t unread = std::ranges::count(lists, -1);
        EXPECT_EQ(items.unwritten(), unread);
        std::vector<int32_t> found = items.read();
        for (size_t i = 0; i < lists.size(); ++i)
          if (lists[i] != -1)
            ASSERT_EQ(found[i], lists[i]) << kernel.name << ", rows " << rows << ", word " << i;
      }
}

TEST(GPUExperts, CombinedRows) {
  KernelLibrary library;
  std::vector<CombineSpec> specs = {{96, 2, false}, {50, 9, true}, {7, 1, true}, {130, 17, false}};
  for (const CombineSpec &spec : specs)
    library.add(spec);
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  auto draw = [&](int64_t count) {
    std::vector<float> values(count);
    for (float &value : values)
      value = normal(random);
    return values;
  };
  for (const CombineSpec &spec : specs) {
    const int64_t rows = 3, n = spec.columns, k = spec.chosen;
    const std::vector<float> x = draw(rows * k * n), shared = draw(rows * n), gate = draw(rows),
                             weights = draw(rows * k);
    std::vector<int32_t> places(rows * k);
    std::iota(places.begin(), places.end(), 0);
    std::ranges::shuffle(places, random);
    simt::Device device;
    DeviceBuffer<int32_t> where(device, places, "places");
    DeviceBuffer<float> parts(device, weights, "weights");
    FloatRows in(device, x, rows * k, n, Float::F32, "x");
    FloatRows others(device, shared, rows, n, Float::F32, "shared");
    FloatRows gates(device, gate, rows, 1, Float::F32, "gate");
    FloatRows out(device, std::vector<float>(rows * n), rows, n, Float::F32, "y");
    std::map<std::string, Argument> arguments = {{"places", where},
                                                 {"weights", parts},
                                                 {"x", Argument(in.address())},
                                                 {"x_stride", in.stride()},
                                                 {"y", Argument(out.address())},
                                                 {"y_stride", out.stride()}};
    if (spec.shared) {
      arguments.emplace("shared", Argument(others.address()));
      arguments.emplace("shared_stride", others.stride());
      arguments.emplace("gate", Argument(gates.address()));
      arguments.emplace("gate_stride", gates.stride());
    }
    run(device, library, library.add(spec), rows, arguments);
    const std::vector<float> found = out.read();
    for (int64_t m = 0; m < rows; ++m)
      for (int64_t c = 0; c < n; ++c) {
        // In one order, each term rounded once; the gate has a bound of its own.
        float sum = 0;
        for (int64_t j = 0; j < k; ++j)
          sum = std::fma(weights[m * k + j], x[places[m * k + j] * n + c], sum);
        if (!spec.shared) {
          ASSERT_EQ(found[m * n + c], sum);
          continue;
        }
        const double term = shared[m * n + c] / (1 + std::exp(-double(gate[m])));
        ASSERT_NEAR(found[m * n + c], sum + term, 1e-6 * (std::abs(sum) + std::abs(term) + 1));
      }
  }
}
