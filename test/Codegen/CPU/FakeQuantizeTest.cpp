//===- FakeQuantizeTest.cpp -----------------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GuardedBuffer.h"
#include "KernelRunner.h"

#include "easyquant/Numerics/ScaleRules.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::cpu;
namespace num = easyquant::numerics;

/// Rows of many magnitudes: zeros, one value, subnormals of the formats, outliers, ties.
static std::vector<float> someRows(int64_t rows, int64_t columns) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> x(rows * columns);
  for (int64_t m = 0; m < rows; ++m)
    for (int64_t c = 0; c < columns; ++c) {
      float value = normal(random);
      if (m % 5 == 1)
        value = 0;
      if (m % 5 == 2)
        value *= c == 0 ? 1e6f : 1e-2f;
      if (m % 5 == 3)
        value = static_cast<float>(c % 97 - 48) * 0.25f;
      if (m % 5 == 4)
        value *= 1e-30f;
      x[m * columns + c] = value;
    }
  return x;
}

// To the bit what quantization and dequantization give by Numerics.
TEST(FakeQuantize, GivesTheBitsOfNumerics) {
  for (const Target &target : testTargets())
    for (CodeFormat codes : {CodeFormat::F8E4M3FN, CodeFormat::F4E2M1FN})
      for (bool isStatic : {false, true})
        for (int64_t columns : {1, 7, 64, 172, 577}) {
          FakeQuantizeSpec spec{columns, codes, isStatic};
          SCOPED_TRACE(symbolName(spec));
          KernelRunner run(
              target, [&](ModuleOp module) { return getOrEmitFakeQuantize(module, spec, target); });
          for (int64_t rows : {1, 3, 40}) {
            std::vector<float> values = someRows(rows, columns), expected(values.size());
            num::Scheme scheme{.bits = codes == CodeFormat::F8E4M3FN ? 8 : 4,
                               .granularity =
                                   isStatic ? num::Granularity::Tensor : num::Granularity::Channel,
                               .codes = codes};
            num::ConstMatrix x(values.data(), rows, columns);
            num::QuantizedMatrix q{scheme, rows, columns, {}, {1, 1, {0.0625f}, {}}};
            q.codes.resize(values.size());
            if (!isStatic)
              q.params = *num::chooseQParams(x, scheme, {});
            ASSERT_TRUE(num::quantize(x, scheme, q.params, q.codes));
            num::dequantize(q, {expected.data(), rows, columns});

            GuardedBuffer<float> in(values.size()), out(values.size(), -3.0f);
            std::memcpy(in.data(), values.data(), values.size() * sizeof(float));
            auto from = MemRef<float, 2>::strided(in.data(), {rows, columns}, columns);
            auto to = MemRef<float, 2>::strided(out.data(), {rows, columns}, columns);
            for (int64_t threads : {1, 2, 3}) {
              if (isStatic)
                run(from, 0.0625f, to, threads);
              else
                run(from, to, threads);
              EXPECT_EQ(std::memcmp(out.data(), expected.data(), expected.size() * sizeof(float)),
                        0);
            }
          }
        }
}

// Groups with scales of their own.
TEST(FakeQuantize, OwnGroupsGiveTheBitsOfNumerics) {
  for (const Target &target : testTargets())
    for (int64_t columns : {1, 32, 40, 172, 320})
      for (int64_t group : {32, 128}) {
        FakeQuantizeSpec spec{columns, CodeFormat::F8E4M3FN, /*isStatic=*/false, group};
        SCOPED_TRACE(symbolName(spec));
        KernelRunner run(
            target, [&](ModuleOp module) { return getOrEmitFakeQuantize(module, spec, target); });
        for (int64_t rows : {1, 40}) {
          std::vector<float> values = someRows(rows, columns), expected(values.size());
          num::Scheme scheme{.bits = 8,
                             .granularity = num::Granularity::Group,
                             .groupSize = group,
                             .dynamic = true,
                             .codes = CodeFormat::F8E4M3FN};
          num::ConstMatrix x(values.data(), rows, columns);
          auto params = num::chooseQParams(x, scheme, {});
          ASSERT_TRUE(params) << params.error().message;
          num::QuantizedMatrix q{scheme, rows, columns, {}, *params};
          q.codes.resize(values.size());
          ASSERT_TRUE(num::quantize(x, scheme, q.params, q.codes));
          num::dequantize(q, {expected.data(), rows, columns});

          GuardedBuffer<float> in(values.size()), out(values.size(), -3.0f);
          std::memcpy(in.data(), values.data(), values.size() * sizeof(float));
          auto from = MemRef<float, 2>::strided(in.data(), {rows, columns}, columns);
          auto to = MemRef<float, 2>::strided(out.data(), {rows, columns}, columns);
          for (int64_t threads : {1, 3}) {
            run(from, to, threads);
            EXPECT_EQ(std::memcmp(out.data(), expected.data(), expected.size() * sizeof(float)), 0);
          }
        }
      }
}

// Scales of groups in units of one that calibration has found, which values may go beyond.
TEST(FakeQuantize, GroupsGiveTheBitsOfNumerics) {
  for (const Target &target : testTargets())
    for (int64_t columns : {1, 16, 40, 172}) {
      FakeQuantizeSpec spec{columns, CodeFormat::F4E2M1FN, /*isStatic=*/true, /*groupSize=*/16};
      SCOPED_TRACE(symbolName(spec));
      KernelRunner run(
          target, [&](ModuleOp module) { return getOrEmitFakeQuantize(module, spec, target); });
      for (float outer : {1.5e-3f, 3.1e-5f})
        for (int64_t rows : {1, 40}) {
          std::vector<float> values = someRows(rows, columns), expected(values.size());
          num::Scheme scheme{.bits = 4,
                             .granularity = num::Granularity::Group,
                             .groupSize = 16,
                             .dynamic = true,
                             .codes = CodeFormat::F4E2M1FN,
                             .scales = ScaleFormat::F8E4M3FN,
                             .outer = true};
          num::ConstMatrix x(values.data(), rows, columns);
          auto params = num::chooseQParams(x, scheme, {}, outer);
          ASSERT_TRUE(params) << params.error().message;
          num::QuantizedMatrix q{scheme, rows, columns, {}, *params};
          q.codes.resize(values.size());
          ASSERT_TRUE(num::quantize(x, scheme, q.params, q.codes));
          num::dequantize(q, {expected.data(), rows, columns});

          GuardedBuffer<float> in(values.size()), out(values.size(), -3.0f);
          std::memcpy(in.data(), values.data(), values.size() * sizeof(float));
          auto from = MemRef<float, 2>::strided(in.data(), {rows, columns}, columns);
          auto to = MemRef<float, 2>::strided(out.data(), {rows, columns}, columns);
          for (int64_t threads : {1, 3}) {
            run(from, outer, to, threads);
            EXPECT_EQ(std::memcmp(out.data(), expected.data(), expected.size() * sizeof(float)), 0);
          }
        }
    }
}
