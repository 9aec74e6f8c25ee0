//===- Hadamard.cpp - A rotated basis for blocks of columns ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Hadamard.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <vector>

namespace easyquant::numerics {

/// The stages of one block, without the factor; its elements lie `stride` apart.
template <typename T> static void addAndSubtract(T *x, int64_t block, int64_t stride = 1) {
  for (int64_t h = 1; h < block; h *= 2)
    for (int64_t first = 0; first < block; first += 2 * h)
      for (int64_t i = first; i < first + h; ++i) {
        const T low = x[i * stride], high = x[(i + h) * stride];
        x[i * stride] = low + high;
        x[(i + h) * stride] = low - high;
      }
}

std::vector<float> rotatedMeanSquares(std::span<const float> meanSquares, int64_t block) {
  std::vector<float> rotated(meanSquares.begin(), meanSquares.end());
  for (auto at = rotated.begin(); at != rotated.end(); at += block)
    std::fill_n(
        at, block,
        static_cast<float>(std::accumulate(at, at + block, 0.0) / static_cast<double>(block)));
  return rotated;
}

void rotateConstant(std::span<float> row, int64_t block) {
  rotateConstant(row, std::ssize(row), /*rowBlock=*/1, block);
}

void rotateConstant(std::span<float> matrix, int64_t columns, int64_t rowBlock, int64_t columnBlock,
                    int64_t firstRow) {
  const int64_t rows = std::ssize(matrix) / columns;
  if (firstRow > 0 && rowBlock > 1) {
    const auto before = static_cast<size_t>(std::min(firstRow, rows) * columns);
    rotateConstant(matrix.first(before), columns, /*rowBlock=*/1, columnBlock);
    rotateConstant(matrix.subspan(before), columns, rowBlock, columnBlock);
    return;
  }
  assert((rowBlock == 1 || isHadamardBlock(rowBlock)) && rows % rowBlock == 0);
  assert((columnBlock == 1 || isHadamardBlock(columnBlock)) && columns % columnBlock == 0);
  const double root = std::sqrt(static_cast<double>(rowBlock * columnBlock));
  std::vector<double> tile(rowBlock * columnBlock);
  for (int64_t row = 0; row < rows; row += rowBlock)
    for (int64_t column = 0; column < columns; column += columnBlock) {
      float *corner = matrix.data() + row * columns + column;
      for (int64_t i = 0; i < rowBlock; ++i) {
        std::copy_n(corner + i * columns, columnBlock, tile.data() + i * columnBlock);
        addAndSubtract(tile.data() + i * columnBlock, columnBlock);
      }
      for (int64_t j = 0; j < columnBlock; ++j)
        addAndSubtract(tile.data() + j, rowBlock, columnBlock);
      for (int64_t i = 0; i < rowBlock; ++i)
        std::transform(tile.data() + i * columnBlock, tile.data() + (i + 1) * columnBlock,
                       corner + i * columns,
                       [root](double sum) { return static_cast<float>(sum / root); });
    }
}

void rotateActivation(std::span<float> row, int64_t block) {
  assert(isHadamardBlock(block) && std::ssize(row) % block == 0);
  const auto factor = static_cast<float>(1 / std::sqrt(static_cast<double>(block)));
  for (auto at = row.begin(); at != row.end(); at += block) {
    addAndSubtract(&*at, block);
    std::for_each_n(at, block, [factor](float &x) { x *= factor; });
  }
}

} // namespace easyquant::numerics
