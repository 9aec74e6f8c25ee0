//===- HeadNormTest.cpp - RMS norm of every head --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GuardedBuffer.h"
#include "KernelRunner.h"

#include <cmath>
#include <deque>
#include <random>
#include <vector>

using namespace mlir;
using namespace easyquant::cpu;

// Each head of a row against the formula in double: relative to its largest element, within the
// roundings of a sum of squares and three products. Zeros stay zeros, and outliers do not overflow.
TEST(HeadNorm, MatchesTheFormula) {
  constexpr float between = -3.0f;
  for (const Target &target : testTargets())
    for (auto [heads, headDim, hasWeight] : {std::tuple<int64_t, int64_t, bool>{8, 8, true},
                                             {16, 128, true},
                                             {1, 64, true},
                                             {3, 96, true},
                                             {2, 12, true},
                                             {5, 2, true},
                                             {4, 50, true},
                                             {4, 128, false},
                                             {3, 50, false}}) {
      HeadNormSpec spec{heads, headDim, 1e-6, hasWeight};
      SCOPED_TRACE(symbolName(spec));
      KernelRunner run(target,
                       [&](ModuleOp module) { return getOrEmitHeadNorm(module, spec, target); });
      std::mt19937 random(3);
      std::normal_distribution<float> normal;
      GuardedBuffer<float> weight(headDim);
      for (int64_t i = 0; i < headDim; ++i)
        weight[i] = hasWeight ? normal(random) : 1.0f;
      MemRef<float, 1> weightView(weight.data(), {headDim});
      const int64_t columns = heads * headDim, stride = columns + 5;
      for (int64_t rows : {1, 2, 3, 17, 70}) {
        GuardedBuffer<float> x((rows - 1) * stride + columns, between);
        for (int64_t m = 0; m < rows; ++m)
          for (int64_t c = 0; c < columns; ++c) {
            bool zeros = m % 3 == 1 && c < headDim, outlier = m % 3 == 2 && c == columns - 1;
            x[m * stride + c] = zeros ? 0.0f : outlier ? 3e15f : normal(random);
          }
        std::vector<float> input(x.data(), x.data() + x.elementCount()), first;
        for (int64_t threads : {1, 2, 3}) {
          std::copy(input.begin(), input.end(), x.data());
          MemRef<float, 2> all = MemRef<float, 2>::strided(x.data(), {rows, columns}, stride);
          hasWeight ? run(all, weightView, threads) : run(all, threads);
          for (int64_t m = 0; m < rows; ++m)
            for (int64_t head = 0; head < heads; ++head) {
              const int64_t at = m * stride + head * headDim;
              double squares = 0;
              for (int64_t i = 0; i < headDim; ++i)
                squares += double(input[at + i]) * input[at + i];
              double root = std::sqrt(squares / double(headDim) + 1e-6);
              for (int64_t i = 0; i < headDim; ++i) {
                double expected = input[at + i] / root * weight[i];
                ASSERT_NEAR(x[at + i], expected, 1e-6 * std::abs(expected) + 1e-30)
                    << "row " << m << ", head " << head << ", dimension " << i;
              }
            }
          for (int64_t i = 0; i < static_cast<int64_t>(x.elementCount()); ++i)
            if (i % stride >= columns)
              ASSERT_EQ(x[i], between);
          if (threads == 1)
            first.assign(x.data(), x.data() + x.elementCount());
          ASSERT_TRUE(std::equal(first.begin(), first.end(), x.data())) << threads << " threads";
        }
      }
    }
}

// Ranks with parts of the columns of a row: each sums the squares of its own, and norms them with
// the sum of all, which is that of the formula in double but for roundings.
TEST(PartNorm, MatchesTheFormulaOfWholeRows) {
  for (const Target &target : testTargets())
    for (auto [ranks, columns] :
         {std::pair<int64_t, int64_t>{2, 64}, {4, 8}, {3, 50}, {2, 129}, {1, 16}}) {
      const int64_t all = ranks * columns, rows = 17;
      const TokenSquaresSpec squaresSpec{columns};
      const PartNormSpec normSpec{columns, all, 1e-6};
      SCOPED_TRACE(symbolName(normSpec));
      KernelRunner sum(target, [&](ModuleOp module) {
        return getOrEmitTokenSquares(module, squaresSpec, target);
      });
      KernelRunner norm(
          target, [&](ModuleOp module) { return getOrEmitPartNorm(module, normSpec, target); });
      std::mt19937 random(3);
      std::normal_distribution<float> normal;
      std::deque<GuardedBuffer<float>> parts, weights;
      GuardedBuffer<float> squares(rows), own(rows);
      std::fill_n(squares.data(), rows, 0.0f);
      MemRef<float, 1> squaresView(squares.data(), {rows}), ownView(own.data(), {rows});
      for (int64_t rank = 0; rank < ranks; ++rank) {
        parts.emplace_back(rows * columns);
        weights.emplace_back(columns);
        for (int64_t i = 0; i < rows * columns; ++i)
          parts.back()[i] = i / columns == 1 ? 0.0f : normal(random); // a row of zeros
        for (int64_t i = 0; i < columns; ++i)
          weights.back()[i] = normal(random);
        auto x = MemRef<float, 2>::strided(parts.back().data(), {rows, columns}, columns);
        sum(x, ownView, /*threads=*/2);
        for (int64_t m = 0; m < rows; ++m)
          squares[m] += own[m];
      }
      for (int64_t rank = 0; rank < ranks; ++rank) {
        GuardedBuffer<float> result(rows * columns);
        MemRef<float, 1> weight(weights[rank].data(), {columns});
        auto x = MemRef<float, 2>::strided(parts[rank].data(), {rows, columns}, columns);
        auto y = MemRef<float, 2>::strided(result.data(), {rows, columns}, columns);
        norm(x, weight, squaresView, y, /*threads=*/2);
        for (int64_t m = 0; m < rows; ++m) {
          double exact = 0;
          for (const GuardedBuffer<float> &part : parts)
            for (int64_t i = 0; i < columns; ++i)
              exact += double(part[m * columns + i]) * part[m * columns + i];
          const double root = std::sqrt(exact / double(all) + 1e-6);
          for (int64_t i = 0; i < columns; ++i) {
            const double expected = parts[rank][m * columns + i] / root * weights[rank][i];
            ASSERT_NEAR(result[m * columns + i], expected, 1e-6 * std::abs(expected) + 1e-30)
                << "rank " << rank << ", row " << m << ", column " << i;
          }
        }
      }
    }
}
