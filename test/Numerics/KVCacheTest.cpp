//===- KVCacheTest.cpp ----------------------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Oracles: the formula of the float zero, q = clamp(rne(x s' + z)), in double precision; and for
// which token is float, the two lists of KIVI filled token by token.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/KVCache.h"
#include "easyquant/Numerics/Hadamard.h"

#include "RandomData.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

std::vector<float> nasty(int64_t rows, int64_t columns, unsigned seed, bool huge) {
  std::vector<float> x = gaussian(rows * columns, seed);
  for (int64_t i = 0; i < rows; ++i) {
    float *row = x.data() + i * columns;
    row[0] = 30.0f + 0.01f * row[0]; // an outlier channel, far from zero
    row[1] = 0.0f;
    row[2] = -7.5f;    // constant
    row[3] *= 1.0e-6f; // below f16's normal numbers
    if (huge)
      row[4] *= 1.0e6f; // beyond f16
  }
  if (huge)
    x[8 * columns + 5] = -(x[9 * columns + 5] = std::numeric_limits<float>::max());
  return x;
}

/// Checks the codes of one slice, its elements rounded to the cache's type.
void checkSlice(const std::vector<float> &x, const std::vector<uint8_t> &codes, KVSlice slice,
                int bits, CacheFloat type) {
  double levels = (1 << bits) - 1, largest = 0;
  auto [low, high] = std::minmax_element(x.begin(), x.end());
  for (float v : x)
    largest = std::max(largest, std::abs(double{v}));
  ASSERT_TRUE(std::isnormal(slice.scale) && slice.scale > 0);
  ASSERT_EQ(slice.minimum, *low);
  if (*low == *high)
    ASSERT_EQ(slice.scale, 1.0f);
  // Half a step, with what rounding the scale and the arithmetic may add.
  const double step = (1 + 0x1p-10) * (double{*high} - double{*low}) / levels;
  const double bound = std::max(step, double{kvLeastScale(type)}) / 2 + 0x1p-22 * largest;
  double inverse = 1.0 / double{slice.scale}, zero = -double{*low} * inverse;
  for (size_t i = 0; i < x.size(); ++i) {
    double steps = std::clamp(double{x[i]} * inverse + zero, 0.0, levels);
    // At a tie binary32 may decide either way.
    ASSERT_LE(std::abs(codes[i] - steps), 0.5 + 1e-4) << x[i];
    ASSERT_LE(std::abs(double{x[i]} - double{dequantizeKV(codes[i], slice)}), bound) << x[i];
  }
}

} // namespace

TEST(KVCache, CodesMatchTheFormulaAndTheBound) {
  for (CacheFloat type : {CacheFloat::F32, CacheFloat::F16})
    for (int bits : {2, 4, 8})
      for (KeySlices keys : {KeySlices::Channel, KeySlices::Token})
        for (auto [headDim, heads] : {std::pair<int64_t, int64_t>{64, 2}, {8, 1}}) {
          KVScheme scheme{bits, 32, 64, 3, keys};
          int64_t rows = 3 + 2 * 64 + 5, columns = headDim * heads;
          std::vector<float> x = nasty(rows, columns, static_cast<unsigned>(bits), headDim == 64);
          ConstMatrix view(x.data(), rows, columns);
          auto k = quantizeKeys(view, scheme, headDim, type);
          auto v = quantizeValues(view, scheme, headDim, type);
          ASSERT_TRUE(k && v);
          auto check = [&](const QuantizedKV &q, int64_t row, int64_t count, int64_t column,
                           int64_t width) {
            std::vector<float> elements;
            std::vector<uint8_t> codes;
            for (int64_t i = row; i < row + count; ++i)
              for (int64_t j = column; j < column + width; ++j) {
                elements.push_back(roundToCache(x[i * columns + j], type));
                codes.push_back(q.codes[i * columns + j]);
              }
            checkSlice(elements, codes, q.slices[row * columns + column], bits, type);
          };
          int64_t width = std::min<int64_t>(32, headDim);
          for (int64_t i = 3; i < rows; ++i)
            for (int64_t j = 0; j < columns; j += width)
              check(*v, i, 1, j, width);
          if (keys == KeySlices::Token)
            for (int64_t i = 3; i < 3 + 128; ++i)
              for (int64_t j = 0; j < columns; j += width)
                check(*k, i, 1, j, width);
          else
            for (int64_t i = 3; i < 3 + 128; i += 32)
              for (int64_t j = 0; j < columns; ++j)
                check(*k, i, 32, j, 1);
        }
}

TEST(KVCache, FloatTokensAreThoseOfTheTwoWindows) {
  for (KVScheme scheme :
       {KVScheme{4, 16, 32, 3}, KVScheme{4, 32, 32, 0}, KVScheme{8, 16, 48, 70}}) {
    int64_t floatKeys = 0, floatValues = 0; // in the windows, behind the sinks
    for (int64_t position = 0; position < 200; ++position) {
      // The token that is appended at `position` joins the windows before it attends.
      if (position >= scheme.sinks) {
        floatKeys = floatKeys == scheme.residual ? 1 : floatKeys + 1;
        floatValues = std::min(floatValues + 1, scheme.residual);
      }
      int64_t end = position + 1, behind = std::max<int64_t>(0, end - scheme.sinks);
      EXPECT_EQ(quantizedKeys(scheme, position), scheme.sinks + behind - floatKeys) << position;
      EXPECT_EQ(quantizedValues(scheme, position), scheme.sinks + behind - floatValues) << position;
    }
  }
}

TEST(KVCache, SeenIsFloatWhereItMustBe) {
  KVScheme scheme{4, 16, 32, 5};
  int64_t rows = 100, columns = 16;
  std::vector<float> k = gaussian(rows * columns, 1), v = gaussian(rows * columns, 2);
  std::vector<float> seenK(k.size()), seenV(k.size());
  ASSERT_TRUE(seenKeysAndValues({k.data(), rows, columns}, {v.data(), rows, columns}, scheme, 8,
                                CacheFloat::F32, 90, {seenK.data(), rows, columns},
                                {seenV.data(), rows, columns}));
  auto same = [&](const std::vector<float> &x, const std::vector<float> &seen, int64_t row) {
    return std::equal(x.begin() + row * columns, x.begin() + (row + 1) * columns,
                      seen.begin() + row * columns);
  };
  for (int64_t t = 0; t < rows; ++t) {
    EXPECT_EQ(same(k, seenK, t), t < 5 || t >= 5 + 64) << t; // two blocks are whole at 90
    EXPECT_EQ(same(v, seenV, t), t < 5 || t >= 91 - 32) << t;
  }
}

/// Behind H, by its definition in double, channels that are large in every token cost less.
TEST(KVCache, RotatedKeysAreThoseOfRotatedRows) {
  const int64_t rows = 80, headDim = 32, columns = 2 * headDim;
  const std::vector<float> k = nasty(rows, columns, 5, /*huge=*/false);
  KVScheme rotated{4, 16, 16, 4, KeySlices::Token, 32}, plain{4, 16, 16, 4, KeySlices::Token};
  std::vector<float> basis = k;
  rotateActivation(basis, rotated.hadamard);
  auto found = quantizeKeys({k.data(), rows, columns}, rotated, headDim, CacheFloat::F16);
  auto expected = quantizeKeys({basis.data(), rows, columns}, plain, headDim, CacheFloat::F16);
  auto without = quantizeKeys({k.data(), rows, columns}, plain, headDim, CacheFloat::F16);
  ASSERT_TRUE(found && expected && without);
  EXPECT_EQ(found->codes, expected->codes);
  std::vector<float> seenK(k.size()), seenV(k.size());
  ASSERT_TRUE(seenKeysAndValues({k.data(), rows, columns}, {k.data(), rows, columns}, rotated,
                                headDim, CacheFloat::F16, rows, {seenK.data(), rows, columns},
                                {seenV.data(), rows, columns}));
  double error = 0, errorWithout = 0;
  for (int64_t i = rotated.sinks; i < quantizedKeys(rotated, rows); ++i)
    for (int64_t j = 0; j < columns; ++j) {
      double back = 0; // H is its own inverse
      for (int64_t d = 0; d < headDim; ++d)
        back += (std::popcount(uint64_t(d & (j % headDim))) % 2 ? -1.0 : 1.0) *
                seenK[i * columns + j / headDim * headDim + d] / std::sqrt(double(headDim));
      error += std::pow(back - k[i * columns + j], 2);
      errorWithout += std::pow(double{without->dequantized(i, j)} - k[i * columns + j], 2);
    }
  EXPECT_LT(error, 0.25 * errorWithout);
  for (int64_t i : {int64_t(0), rows - 1})
    for (int64_t j = 0; j < columns; ++j)
      EXPECT_EQ(seenK[i * columns + j], roundToCache(basis[i * columns + j], CacheFloat::F16));
}

TEST(KVCache, RefusesBasesThatDoNotFit) {
  EXPECT_FALSE(checkKVScheme({4, 16, 16, 4, KeySlices::Channel, 32}, 32));
  EXPECT_FALSE(checkKVScheme({4, 16, 16, 4, KeySlices::Token, 64}, 32));
  EXPECT_FALSE(checkKVScheme({4, 16, 16, 4, KeySlices::Token, 24}, 48));
  EXPECT_TRUE(checkKVScheme({4, 16, 16, 4, KeySlices::Token, 16}, 48));
}

TEST(KVCache, RefusesWhatIsNoScheme) {
  auto message = [](KVScheme scheme, int64_t headDim) {
    auto ok = checkKVScheme(scheme, headDim);
    return ok ? std::string() : ok.error().message;
  };
  auto contains = [](const std::string &text, const char *part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_EQ(message({4, 64, 128, 4}, 64), "");
  EXPECT_EQ(message({2, 64, 64, 0}, 8), "");
  EXPECT_TRUE(contains(message({3, 64, 128, 4}, 64), "3 bits: expected 2, 4 or 8"));
  EXPECT_TRUE(contains(message({4, 48, 96, 4}, 64), "expected a power of two from 16 to 1024"));
  EXPECT_TRUE(contains(message({4, 64, 100, 4}, 64), "positive multiple of the group of 64"));
  EXPECT_TRUE(contains(message({4, 64, 0, 4}, 64), "positive multiple of the group of 64"));
  EXPECT_TRUE(contains(message({4, 64, 128, -1}, 64), "no negative number"));
  EXPECT_TRUE(contains(message({4, 64, 128, 4}, 12), "needs a multiple of 8"));
  EXPECT_TRUE(contains(message({4, 64, 128, 4}, 96), "such as 32"));
  std::vector<float> x(32 * 8, 0.0f);
  x[9] = std::nanf("");
  auto q = quantizeValues({x.data(), 32, 8}, {4, 16, 16, 0}, 8, CacheFloat::F32);
  ASSERT_FALSE(q);
  EXPECT_TRUE(contains(q.error().message, "token 1, column 1")) << q.error().message;
}
