//===- Hadamard.cpp - A rotated basis for blocks of columns ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Hadamard.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

namespace easyquant::numerics {

/// The stages of one block, without the factor.
template <typename T> static void addAndSubtract(T *x, int64_t block) {
  for (int64_t h = 1; h < block; h *= 2)
    for (int64_t first = 0; first < block; first += 2 * h)
      for (int64_t i = first; i < first + h; ++i) {
        const T low = x[i], high = x[i + h];
        x[i] = low + high;
        x[i + h] = low - high;
      }
}

void rotateConstant(std::span<float> row, int64_t block) {
  assert(isHadamardBlock(block) && std::ssize(row) % block == 0);
  const double root = std::sqrt(static_cast<double>(block));
  std::array<double, kLargestHadamard> x;
  for (auto at = row.begin(); at != row.end(); at += block) {
    std::copy_n(at, block, x.begin());
    addAndSubtract(x.data(), block);
    std::transform(x.begin(), x.begin() + block, at,
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
