//===- Hadamard.h - A rotated basis for blocks of columns -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// H, the orthogonal Hadamard matrix of Sylvester over blocks of b = 2^n columns:
//
//   H[i, j] = (-1)^popcount(i & j) / sqrt(b)    for places i and j of one block, else 0
//
// It is symmetric and its own inverse, so that x Wᵀ = (x H)(W H)ᵀ. What a linear reads has a few
// columns that are far larger than the others. H shares them among a block, and one scale a row
// then serves them all (Ashkboos et al., "QuaRot", 2024, https://arxiv.org/abs/2404.00456, whose H
// is folded into weights; here it acts on what a linear reads, behind norms and everything else).
//
// Constants are rotated in double and rounded to binary32 once. Activations are rotated by kernels,
// whose bits are those of n stages of binary32 additions, h = 1, 2, 4, ..., b / 2:
//
//   (x[i], x[i + h]) := (x[i] + x[i + h], x[i] - x[i + h])    for i with i & h = 0
//
// and then one product with the binary32 number nearest to 1 / sqrt(b).
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_HADAMARD_H
#define EASYQUANT_NUMERICS_HADAMARD_H

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace easyquant::numerics {

/// Blocks are powers of two from 16 to 512.
inline constexpr int64_t kLeastHadamard = 16, kLargestHadamard = 512;
constexpr bool isHadamardBlock(int64_t block) {
  return block >= kLeastHadamard && block <= kLargestHadamard &&
         std::has_single_bit(static_cast<uint64_t>(block));
}

/// The largest block up to `limit` that divides the columns; 0 if there is none.
constexpr int64_t hadamardBlock(int64_t columns, int64_t limit = kLargestHadamard) {
  for (int64_t block = kLargestHadamard; block >= kLeastHadamard; block /= 2)
    if (block <= limit && columns % block == 0)
      return block;
  return 0;
}

/// E[(x H)_j^2] where E[x_j^2] is known and the columns of a block do not move together: its mean.
std::vector<float> rotatedMeanSquares(std::span<const float> meanSquares, int64_t block);

/// row := row H, as constants are rotated; the size is a multiple of the block.
void rotateConstant(std::span<float> row, int64_t block);
/// matrix := R matrix C, as constants are rotated: R acts on blocks of rows, C on blocks of
/// columns. The two commute and are rounded once. A block of 1 leaves its side as it is; others
/// divide it. R leaves rows before `firstRow`, a multiple of its block, as they are.
void rotateConstant(std::span<float> matrix, int64_t columns, int64_t rowBlock, int64_t columnBlock,
                    int64_t firstRow = 0);
/// row := row H, as kernels rotate activations.
void rotateActivation(std::span<float> row, int64_t block);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_HADAMARD_H
