//===- ExpertsTest.cpp - Mixtures of experts on CPUs ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Routing against numerics::route, sums against numerics::combine. The linears of experts give the
// bits of one linear that computes every row for all of them.
//
//===----------------------------------------------------------------------===//

#include "LinearProblem.h"

#include "easyquant/Numerics/Experts.h"

using namespace easyquant;
using namespace easyquant::cpu;

namespace {

struct RoutingCase {
  int64_t experts, chosen, rows;
  bool renormalize, sigmoid = false, bias = false;
  double scale = 1.0;
  bool factors = false;
};

/// Logits, some of them equal, and of rows that all choose the same experts.
std::vector<float> makeLogits(const RoutingCase &shape) {
  std::mt19937 rng(static_cast<uint32_t>(shape.experts * 31 + shape.rows));
  std::normal_distribution<float> gauss;
  std::vector<float> logits(shape.experts * shape.rows);
  for (int64_t i = 0; i < std::ssize(logits); ++i) {
    const int64_t row = i / shape.experts, expert = i % shape.experts;
    logits[i] = row % 3 == 0   ? std::round(gauss(rng)) // ties
                : row % 3 == 1 ? static_cast<float>(-expert)
                               : 4.0f * gauss(rng);
  }
  return logits;
}

void checkRouting(const RoutingCase &shape, const Kernel &choose, const Kernel &sort) {
  std::vector<float> logits = makeLogits(shape);
  std::vector<float> bias, factors;
  for (int64_t expert = 0; expert < shape.experts; ++expert) {
    if (shape.bias)
      bias.push_back(0.25f * static_cast<float>(expert % 4));
    if (shape.factors)
      factors.push_back(0.5f + 0.125f * static_cast<float>(expert % 7));
  }
  const num::Routing expected =
      num::route(num::ConstMatrix(logits.data(), shape.rows, shape.experts),
                 {shape.chosen, shape.renormalize, shape.sigmoid, bias, shape.scale, factors});
  const int64_t choices = shape.rows * shape.chosen;
  for (int64_t threads : {1, 2, 3}) {
    SCOPED_TRACE(std::to_string(threads) + " threads");
    const int64_t stride = shape.experts + 3;
    GuardedBuffer<float> in((shape.rows - 1) * stride + shape.experts), weights(choices);
    for (int64_t row = 0; row < shape.rows; ++row)
      std::copy_n(&logits[row * shape.experts], shape.experts, in.data() + row * stride);
    GuardedBuffer<int32_t> places(choices), order(choices), offsets(shape.experts + 1);
    std::ranges::fill(offsets.span(), -7);
    auto inView = MemRef<float, 2>::strided(in.data(), {shape.rows, shape.experts}, stride);
    auto weightView =
        MemRef<float, 2>::strided(weights.data(), {shape.rows, shape.chosen}, shape.chosen);
    MemRef<int32_t, 2> placeView(places.data(), {shape.rows, shape.chosen});
    MemRef<int32_t, 1> orderView(order.data(), {choices});
    MemRef<int32_t, 2> offsetView(offsets.data(), {1, shape.experts + 1});
    if (shape.bias) {
      GuardedBuffer<float> scores(shape.rows * shape.experts);
      auto scoreView =
          MemRef<float, 2>::strided(scores.data(), {shape.rows, shape.experts}, shape.experts);
      MemRef<float, 1> biasView(bias.data(), {shape.experts});
      choose(inView, placeView, weightView, scoreView, biasView, threads);
    } else if (shape.factors) {
      MemRef<float, 1> factorView(factors.data(), {shape.experts});
      choose(inView, placeView, weightView, factorView, threads);
    } else {
      choose(inView, placeView, weightView, threads);
    }
    sort(placeView, orderView, offsetView, threads);
    EXPECT_TRUE(std::ranges::equal(places.span(), expected.places));
    EXPECT_TRUE(std::ranges::equal(order.span(), expected.order));
    EXPECT_TRUE(std::ranges::equal(offsets.span(), expected.offsets));
    for (int64_t i = 0; i < choices; ++i)
      ASSERT_NEAR(weights[i], expected.weights[i], 1e-6 * expected.weights[i] + 1e-30) << i;
  }
}

TEST(Experts, RowsAreRoutedAsTheReferenceDoes) {
  for (const Target &target : testTargets())
    for (auto [experts, chosen] : {std::pair<int64_t, int64_t>{8, 2}, {128, 8}, {5, 1}, {3, 3}})
      for (bool renormalize : {false, true}) {
        const bool factors = renormalize && experts != 3;
        ChooseExpertsSpec choose{experts, chosen, renormalize};
        choose.factors = factors;
        SortChoicesSpec sort{experts, chosen};
        SCOPED_TRACE(symbolName(choose) + " " + target.name().str());
        KernelLibrary library(target, [&](mlir::ModuleOp module) {
          return llvm::SmallVector<mlir::func::FuncOp>{
              getOrEmitChooseExperts(module, choose, target),
              getOrEmitSortChoices(module, sort, target)};
        });
        for (int64_t rows : {1, 2, 7, 40})
          checkRouting({experts, chosen, rows, renormalize, false, false, 1.0, factors},
                       library.kernel(symbolName(choose)), library.kernel(symbolName(sort)));
      }
}

// Sigmoid scores, whose bias only chooses.
TEST(Experts, RowsAreRoutedBySigmoids) {
  for (const Target &target : testTargets())
    for (auto [experts, chosen] : {std::pair<int64_t, int64_t>{8, 2}, {128, 8}, {5, 1}, {3, 3}})
      for (bool renormalize : {false, true})
        for (bool bias : {false, true}) {
          ChooseExpertsSpec choose{experts, chosen, renormalize, true, bias, bias ? 2.5 : 1.0};
          SortChoicesSpec sort{experts, chosen};
          SCOPED_TRACE(symbolName(choose) + " " + target.name().str());
          KernelLibrary library(target, [&](mlir::ModuleOp module) {
            return llvm::SmallVector<mlir::func::FuncOp>{
                getOrEmitChooseExperts(module, choose, target),
                getOrEmitSortChoices(module, sort, target)};
          });
          for (int64_t rows : {1, 2, 7, 40})
            checkRouting({experts, chosen, rows, renormalize, true, bias, choose.scale},
                         library.kernel(symbolName(choose)), library.kernel(symbolName(sort)));
        }
}

// Whatever the logits are, what is written stays within bounds: the program refuses such logits.
TEST(Experts, LogitsWithoutOrderChooseSomeExperts) {
  const Target target = testTargets()[0];
  ChooseExpertsSpec spec{6, 3, true};
  KernelRunner run(
      target, [&](mlir::ModuleOp module) { return getOrEmitChooseExperts(module, spec, target); });
  for (float value : {std::nanf(""), -HUGE_VALF, HUGE_VALF}) {
    GuardedBuffer<float> logits(6, value), weights(3);
    GuardedBuffer<int32_t> places(3);
    auto in = MemRef<float, 2>::strided(logits.data(), {1, 6}, 6);
    auto out = MemRef<float, 2>::strided(weights.data(), {1, 3}, 3);
    MemRef<int32_t, 2> placeView(places.data(), {1, 3});
    run(in, placeView, out, int64_t(1));
    for (int32_t place : places.span())
      EXPECT_TRUE(place >= 0 && place < 6) << place;
  }
}

TEST(Experts, ResultsAreAddedUp) {
  for (const Target &target : testTargets())
    for (auto [columns, chosen] : {std::pair<int64_t, int64_t>{64, 2}, {7, 3}, {200, 8}, {1, 1}}) {
      CombineSpec spec{columns, chosen}, shared{columns, chosen, true};
      SCOPED_TRACE(symbolName(spec) + " " + target.name().str());
      KernelRunner run(
          target, [&](mlir::ModuleOp module) { return getOrEmitCombine(module, spec, target); });
      KernelRunner runShared(
          target, [&](mlir::ModuleOp module) { return getOrEmitCombine(module, shared, target); });
      for (int64_t rows : {1, 2, 19}) {
        std::vector<float> logits = makeLogits({8, chosen, rows, true});
        num::Routing routing =
            num::route({logits.data(), rows, 8}, {.chosen = chosen, .renormalize = true});
        std::mt19937 rng(5);
        std::normal_distribution<float> gauss;
        std::vector<float> x(rows * chosen * columns), expected(rows * columns);
        for (float &value : x)
          value = gauss(rng);
        num::combine({x.data(), rows * chosen, columns}, routing, {expected.data(), rows, columns});
        for (int64_t threads : {1, 3}) {
          GuardedBuffer<float> y(rows * columns);
          MemRef<int32_t, 2> places(routing.places.data(), {rows, chosen});
          auto weights = MemRef<float, 2>::strided(routing.weights.data(), {rows, chosen}, chosen);
          auto in = MemRef<float, 2>::strided(x.data(), {rows * chosen, columns}, columns);
          auto out = MemRef<float, 2>::strided(y.data(), {rows, columns}, columns);
          run(places, weights, in, out, threads);
          for (int64_t i = 0; i < rows * columns; ++i)
            ASSERT_NEAR(y[i], expected[i], 2e-6) << i;
          // One that computes all rows, behind its gate.
          std::vector<float> gates(rows);
          for (float &gate : gates)
            gate = gauss(rng);
          auto other = MemRef<float, 2>::strided(x.data(), {rows, columns}, columns);
          auto gate = MemRef<float, 2>::strided(gates.data(), {rows, 1}, 1);
          runShared(places, weights, in, other, gate, out, threads);
          for (int64_t i = 0; i < rows * columns; ++i)
            ASSERT_NEAR(y[i], expected[i] + x[i] / (1 + std::exp(-gates[i / columns])), 4e-6) << i;
        }
      }
    }
}

/// What each expert gives its rows are the bits of its columns in one linear of all.
void checkExperts(const LinearSpec &spec, const Target &target) {
  LinearSpec plain = spec;
  plain.n = spec.weightRows();
  plain.experts = 0;
  SCOPED_TRACE(symbolName(spec) + " " + target.name().str());
  KernelLibrary library(target, [&](mlir::ModuleOp module) {
    return llvm::SmallVector<mlir::func::FuncOp>{getOrEmitLinear(module, spec, target),
                                                 getOrEmitLinear(module, plain, target)};
  });
  Problem whole(plain, 11, /*extreme=*/false), parts = whole;
  parts.spec = spec;
  const Kernel one = library.kernel(symbolName(plain)), many = library.kernel(symbolName(spec));
  // Rows of each of four experts: none, one, few, many.
  for (std::vector<int32_t> rows : {std::vector<int32_t>{0, 1, 0, 0},
                                    {1, 1, 1, 1},
                                    {0, 17, 2, 0},
                                    {40, 0, 0, 5},
                                    {3, 4, 13, 1},
                                    {0, 0, 0, 2}}) {
    parts.offsets = {0};
    for (int32_t count : rows)
      parts.offsets.push_back(parts.offsets.back() + count);
    const int64_t m = parts.offsets.back();
    std::vector<float> x = whole.makeX(m, Inputs::Gaussian);
    num::QuantizedTokens tokens = whole.makeTokens(x, m, Inputs::Gaussian);
    const std::vector<float> all =
        Call(whole, target, one)(x, tokens, std::vector<float>(m * plain.n), 1);
    for (int64_t threads : {1, 2, 3, 7}) {
      const std::vector<float> found =
          Call(parts, target, many)(x, tokens, std::vector<float>(m * spec.n), threads);
      for (int64_t expert = 0; expert < spec.experts; ++expert)
        for (int64_t row = parts.offsets[expert]; row < parts.offsets[expert + 1]; ++row)
          ASSERT_EQ(std::memcmp(&found[row * spec.n], &all[row * plain.n + expert * spec.n],
                                spec.n * sizeof(float)),
                    0)
              << "row " << row << " of expert " << expert << ", " << threads << " threads";
    }
  }
}

TEST(Experts, LinearsGiveTheBitsOfOneLinear) {
  for (const Target &target : testTargets()) {
    LinearSpec spec{40, 90};
    spec.experts = 4;
    checkExperts(spec, target); // floats, of no whole panels
    spec.bias = true;
    spec.n = 96;
    for (WeightFormat weights : {WeightFormat::I8, WeightFormat::I4})
      for (bool quantized : {false, true})
        for (bool zeroPoints : {false, true}) {
          LinearSpec packed = spec;
          packed.weights = weights;
          packed.groupSize = weights == WeightFormat::I4 ? 32 : 0;
          packed.quantizedInput = quantized;
          packed.zeroPoints = zeroPoints;
          packed.inputZeroPoints = quantized && zeroPoints;
          checkExperts(packed, target);
        }
    LinearSpec minima = spec;
    minima.weights = WeightFormat::I4;
    minima.groupSize = 32;
    minima.numbers = {CodeFormat::Integer, ScaleFormat::F16, false, true};
    checkExperts(minima, target);
    LinearSpec own{64, 128, WeightFormat::I8, 0, true};
    own.groupSize = own.inputGroup = 32;
    own.inputZeroPoints = true;
    own.experts = 4;
    checkExperts(own, target);
  }
}

} // namespace
