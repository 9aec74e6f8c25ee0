//===- HadamardTest.cpp - Rotated blocks against the definition -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Hadamard.h"

#include "RandomData.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

using namespace easyquant::numerics;

namespace {

/// row H by the definition, in double.
std::vector<double> expected(const std::vector<float> &row, int64_t block) {
  std::vector<double> y(row.size());
  for (size_t j = 0; j < row.size(); ++j)
    for (size_t i = j / block * block; i < (j / block + 1) * block; ++i)
      y[j] += (std::popcount((i % block) & (j % block)) % 2 ? -1.0 : 1.0) * row[i] /
              std::sqrt(double(block));
  return y;
}

class Hadamard : public testing::TestWithParam<int64_t> {};

TEST_P(Hadamard, IsTheDefinition) {
  const int64_t block = GetParam();
  const std::vector<float> row = gaussian(3 * block, 7);
  std::vector<float> constant = row, activation = row;
  rotateConstant(constant, block);
  rotateActivation(activation, block);
  const std::vector<double> y = expected(row, block);
  double norm = 0;
  for (double value : y)
    norm = std::max(norm, std::fabs(value));
  for (size_t j = 0; j < y.size(); ++j) {
    EXPECT_NEAR(constant[j], y[j], 1e-7 * norm) << j;
    EXPECT_NEAR(activation[j], y[j], 1e-6 * norm) << j;
  }
}

/// Rows and columns, rounded once: the nearest binary32 numbers to what the definition gives.
TEST_P(Hadamard, OfRowsAndColumns) {
  const int64_t block = GetParam(), other = 32;
  for (auto [rowBlock, columnBlock] :
       {std::pair(block, other), {other, block}, {block, int64_t(1)}, {int64_t(1), block}}) {
    const int64_t rows = 2 * rowBlock, columns = 3 * columnBlock;
    const std::vector<float> matrix = gaussian(rows * columns, 9);
    std::vector<float> found = matrix;
    rotateConstant(found, columns, rowBlock, columnBlock);
    for (auto [i, j] : {std::pair<int64_t, int64_t>(0, 0),
                        {rows - 1, columns - 1},
                        {rowBlock, columnBlock - 1},
                        {rows / 2 - 1, columns / 2}}) {
      double sum = 0;
      for (int64_t k = 0; k < rowBlock; ++k)
        for (int64_t l = 0; l < columnBlock; ++l) {
          const int64_t row = i / rowBlock * rowBlock + k,
                        column = j / columnBlock * columnBlock + l;
          const int signs = std::popcount(uint64_t(i % rowBlock & k)) +
                            std::popcount(uint64_t(j % columnBlock & l));
          sum += (signs % 2 ? -1.0 : 1.0) * matrix[row * columns + column];
        }
      const double expected = sum / std::sqrt(double(rowBlock * columnBlock));
      EXPECT_NEAR(found[i * columns + j], expected, std::max(6.1e-8 * std::fabs(expected), 1e-14))
          << i << ", " << j;
    }
  }
}

TEST_P(Hadamard, LeavesTheFirstRows) {
  const int64_t block = GetParam(), columns = 32, size = 2 * block * columns;
  const std::vector<float> above = gaussian(size, 3), below = gaussian(size, 4);
  for (int64_t columnBlock : {int64_t(1), columns}) {
    std::vector<float> found = above, first = above, last = below;
    found.insert(found.end(), below.begin(), below.end());
    rotateConstant(found, columns, block, columnBlock, /*firstRow=*/2 * block);
    rotateConstant(first, columns, /*rowBlock=*/1, columnBlock);
    rotateConstant(last, columns, block, columnBlock);
    first.insert(first.end(), last.begin(), last.end());
    EXPECT_EQ(found, first);
  }
}

TEST_P(Hadamard, IsItsOwnInverse) {
  const std::vector<float> row = gaussian(2 * GetParam(), 8);
  std::vector<float> twice = row;
  rotateConstant(twice, GetParam());
  rotateConstant(twice, GetParam());
  for (size_t i = 0; i < row.size(); ++i)
    EXPECT_NEAR(twice[i], row[i], 1e-6);
}
INSTANTIATE_TEST_SUITE_P(, Hadamard, testing::Values(16, 32, 64, 128, 256, 512));

TEST(HadamardBlock, IsTheLargestThatDivides) {
  EXPECT_EQ(hadamardBlock(576), 64);
  EXPECT_EQ(hadamardBlock(1536), 512);
  EXPECT_EQ(hadamardBlock(1536, 64), 64);
  EXPECT_EQ(hadamardBlock(896), 128);
  EXPECT_EQ(hadamardBlock(4864), 256);
  EXPECT_EQ(hadamardBlock(40), 0);
  for (int64_t block : {0, 1, 8, 24, 1024, -64})
    EXPECT_FALSE(isHadamardBlock(block)) << block;
}

} // namespace
