//===- RopeTest.cpp - Rotary position embedding ---------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GuardedBuffer.h"
#include "SequenceTable.h"

#include "easyquant/Numerics/Reference.h"
#include "easyquant/Numerics/Rope.h"

#include <cmath>
#include <random>
#include <vector>

using namespace mlir;
using namespace easyquant::cpu;
namespace numerics = easyquant::numerics;

namespace {

constexpr int64_t kPositions = 160;
constexpr float kBetween = -3.0f;

} // namespace

// An element of the result is within two roundings of products of elements below 8 in magnitude.
TEST(Rope, MatchesReference) {
  for (const Target &target : testTargets())
    for (RopeSpec spec : {RopeSpec{8, 8},
                          {9, 64},
                          {1, 128},
                          {3, 96},
                          {2, 12},
                          {5, 2},
                          {4, 50},
                          {3, 128, 0, false, 96},
                          {4, 20, 0, false, 6},
                          {2, 7, 0, false, 2}}) {
      spec.positions = kPositions;
      const int64_t heads = spec.heads, headDim = spec.headDim;
      SCOPED_TRACE(symbolName(spec));
      numerics::RopeParams params;
      params.dims = spec.rotated();
      auto values = numerics::ropeTable(params, kPositions);
      ASSERT_TRUE(values.has_value()) << values.error().message;
      GuardedBuffer<float> table(values->size());
      std::copy(values->begin(), values->end(), table.data());
      MemRef<float, 3> tableView(table.data(), {kPositions, spec.rotated() / 2, 2});
      KernelRunner run(target,
                       [&](ModuleOp module) { return getOrEmitRope(module, spec, target); });

      int64_t columns = heads * headDim, stride = columns + 7;
      std::mt19937 random(7);
      std::uniform_real_distribution<float> uniform(-8.0f, 8.0f);
      for (int64_t rows : {1, 2, 3, 17, 60})
        for (int64_t position : {0, 1, 15, 100}) {
          GuardedBuffer<float> x((rows - 1) * stride + columns, kBetween);
          for (int64_t m = 0; m < rows; ++m)
            for (int64_t c = 0; c < columns; ++c)
              x[m * stride + c] = uniform(random);
          std::vector<double> expected(rows * columns);
          numerics::reference::rope({x.data(), rows, columns, stride}, *values, headDim, position,
                                    {expected.data(), rows, columns}, spec.rotated());
          std::vector<float> input(x.data(), x.data() + x.elementCount()), first;
          for (int64_t threads : {1, 2, 3}) {
            std::copy(input.begin(), input.end(), x.data());
            auto view = MemRef<float, 2>::strided(x.data(), {rows, columns}, stride);
            SequenceTable table(rows, position);
            auto sequences = table.view();
            run(view, tableView, sequences, threads);
            for (int64_t i = 0; i < static_cast<int64_t>(x.elementCount()); ++i) {
              int64_t row = i / stride, column = i % stride;
              if (column >= columns)
                ASSERT_EQ(x[i], kBetween);
              else
                ASSERT_NEAR(x[i], expected[row * columns + column], 0x1p-20)
                    << "row " << row << ", column " << column;
            }
            if (threads == 1)
              first.assign(x.data(), x.data() + x.elementCount());
            ASSERT_TRUE(std::equal(first.begin(), first.end(), x.data())) << threads << " threads";
          }
        }
    }
}
