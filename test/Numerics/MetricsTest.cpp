//===- MetricsTest.cpp ----------------------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Metrics.h"
#include "easyquant/Numerics/Bounds.h"
#include "easyquant/Numerics/Quantize.h"
#include "easyquant/Numerics/ScaleRules.h"

#include "RandomData.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

TEST(Metrics, ClosedForms) {
  std::vector<float> x = {3, 0, -4, 0, 0, 0, 0, 0, 0, 12}, y = x;
  EXPECT_EQ(relativeRms(x.data(), y.data(), 10), 0.0);
  y[2] = -1; // error 3 against a norm of 13
  y[9] = 16; // and 4
  EXPECT_DOUBLE_EQ(relativeRms(x.data(), y.data(), 10), 5.0 / 13.0);
  EXPECT_EQ(maxAbsError(x.data(), y.data(), 10), 4.0);
  std::vector<float> zero(10);
  EXPECT_EQ(relativeRms(zero.data(), zero.data(), 10), 0.0);
  EXPECT_TRUE(std::isinf(relativeRms(zero.data(), x.data(), 10)));
  EXPECT_EQ(relativeRms(zero.data(), zero.data(), 0), 0.0);
}

TEST(Metrics, NothingHidesANaN) {
  for (int64_t place : {0, 7, 8, 20}) {
    std::vector<float> x = gaussian(21, 1), y = x;
    y[place] = NAN;
    y[(place + 5) % 21] += 1;
    EXPECT_TRUE(std::isnan(relativeRms(x.data(), y.data(), 21)));
    EXPECT_TRUE(std::isnan(maxAbsError(x.data(), y.data(), 21)));
    ErrorSums sums;
    sums.add(x.data(), y.data(), 21);
    sums.add(x.data(), x.data(), 21);
    EXPECT_TRUE(std::isnan(sums.maxAbsError));
    y[place] = std::numeric_limits<float>::infinity();
    EXPECT_TRUE(std::isinf(maxAbsError(x.data(), y.data(), 21)));
  }
}

TEST(Metrics, PartsAddUp) {
  std::vector<float> x = gaussian(1000, 1), y = gaussian(1000, 2);
  std::vector<double> wide(x.begin(), x.end());
  ErrorSums parts;
  for (int64_t i = 0; i < 1000; i += 100) {
    ErrorSums part;
    part.add(x.data() + i, y.data() + i, 100);
    parts.add(part);
  }
  double error = 0, square = 0;
  for (int i = 0; i < 1000; ++i) {
    error += (wide[i] - y[i]) * (wide[i] - y[i]);
    square += wide[i] * wide[i];
  }
  EXPECT_NEAR(parts.relativeRms(), std::sqrt(error / square), 1e-12);
  EXPECT_EQ(relativeRms(wide.data(), y.data(), 1000), relativeRms(x.data(), y.data(), 1000));
  EXPECT_EQ(maxAbsError(wide.data(), y.data(), 1000), parts.maxAbsError);
}

// A uniform error of width s has variance s^2 / 12: the textbook figure for int8 of a Gaussian.
TEST(Metrics, ErrorOfInt8IsTheTextbookOne) {
  std::vector<float> x = gaussian(1 << 18, 5);
  Scheme scheme{8, true, Granularity::Tensor, 0, false};
  auto q = quantize(ConstMatrix(x.data(), 1 << 9, 1 << 9), scheme, {});
  ASSERT_TRUE(q);
  std::vector<float> back(x.size());
  dequantize(*q, Matrix(back.data(), 1 << 9, 1 << 9));
  double scale = q->params.scales[0];
  EXPECT_NEAR(relativeRms(x.data(), back.data(), x.size()) / (scale / std::sqrt(12.0)), 1, 0.01);
  EXPECT_LE(maxAbsError(x.data(), back.data(), x.size()), roundingErrorBound(scale) * (1 + 1e-4));
}

TEST(Bounds, AccumulatorLengths) {
  CodeRange narrow{-127, 127}, full{-128, 127}, stored = storedRange(Scheme{});
  EXPECT_EQ(stored, (CodeRange{1, 255}));
  EXPECT_EQ(maxAccumulationLength(narrow, narrow), 133144);
  EXPECT_EQ(maxAccumulationLength(full, full), 131071);
  EXPECT_EQ(maxAccumulationLength(stored, narrow), 66311);
  EXPECT_EQ(maxAccumulationLength({0, 0}, narrow), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(maxAccumulationLength({-1, 0}, {1, 1}), int64_t(1) << 31); // -2^31 is an int32
  EXPECT_EQ(maxAccumulationLength({0, 1}, {1, 1}), (int64_t(1) << 31) - 1);
}

// Kernels multiply the values of a table, not its codes.
TEST(Bounds, FactorsOfTables) {
  Scheme iq4{4, true, Granularity::Group, 32, false}, input{8, true, Granularity::Token, 0, true};
  iq4.codes = CodeFormat::Table;
  iq4.table = Codebook::iq4nl();
  EXPECT_EQ(factorRange(iq4), (CodeRange{-127, 113}));
  EXPECT_EQ(centredRange(iq4), (CodeRange{-127, 113}));
  EXPECT_EQ(storedRange(iq4), (CodeRange{1, 241}));
  EXPECT_EQ(maxDotLength(iq4, input, /*stored=*/true), 70163); // 2^31 / (241 * 127)
  EXPECT_EQ(maxDotLength(iq4, input, /*stored=*/false), 133144);
  EXPECT_EQ(factorRange(Scheme{}), (CodeRange{-127, 127}));
}

TEST(Bounds, TheLengthIsTight) {
  for (CodeRange a : {CodeRange{-127, 127}, CodeRange{-128, 127}, CodeRange{1, 255}})
    for (CodeRange b : {CodeRange{-127, 127}, CodeRange{-7, 7}, CodeRange{-128, 127}}) {
      int64_t length = maxAccumulationLength(a, b);
      bool tooLong = false;
      for (int64_t x : {a.min, a.max})
        for (int64_t y : {b.min, b.max}) {
          ASSERT_LE(x * y * length, std::numeric_limits<int32_t>::max());
          ASSERT_GE(x * y * length, std::numeric_limits<int32_t>::min());
          int64_t more = x * y * (length + 1);
          tooLong |= more > std::numeric_limits<int32_t>::max() ||
                     more < std::numeric_limits<int32_t>::min();
        }
      EXPECT_TRUE(tooLong);
      EXPECT_TRUE(checkAccumulator(length, a, b));
      auto refused = checkAccumulator(length + 1, a, b);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, ErrorCode::OutOfRange);
    }
}

} // namespace
