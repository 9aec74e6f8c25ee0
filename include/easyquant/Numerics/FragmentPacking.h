//===- FragmentPacking.h - Codes and scales as GPUs read them ---*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Fragments: the weight layout of the GPU kernels (easyquant/Codegen/GPU/Kernels.h). A block holds
// what one or two loads a lane of a warp bring and the lane hands to mma.sync, after shifts and
// masks. A code of 2, 4 or 8 bits lies in one plane, of 512 bytes, 16 for each lane: R = 128 / b
// rows of 32 columns. Codes of 3, 5 and 6 bits have their low 2 or 4 bits there, as codes of so
// many bits lie, and the others in a plane behind it. Blocks lie row by row: NB x KB of them,
// NB = ceil(N / R), KB = ceil(K / 32). Integers are two's complement, other codes the bits of their
// format; padding is 0. Lane l has g = l / 4, q = l mod 4. Its 16 bytes are four words of 32 bits.
//
// clang-format off
// Order M16N8K32 (int8 activations), with k(i) = 4q + i, h < 2:
//   8 bits   word 2t + h, t < 2: byte i = c(8t + g, 16h + k(i))
//   4 bits   word t, t < 4:      byte i = c(8t + g, k(i)) + 2^4 c(8t + g, 16 + k(i))
//   2 bits   word t, t < 4:      byte i = c(8t + g, k(i)) + 2^2 c(8t + g, 16 + k(i))
//                                       + 2^4 c(8t + 32 + g, k(i)) + 2^6 c(8t + 32 + g, 16 + k(i))
//   the u upper bits of 3 (u = 1), 5 (1) and 6 bits (2): T = 4 / u tiles t a word,
//            word t / T of the lane: bits 8i + u (2 (t mod T) + h) .. = c(8t + g, 16h + k(i))
//
// Order M16N8K16 (f16 and bf16 activations): register r < 4 of two steps of 16 columns has
// columns k(r, i) = 8r + 2q + i, i < 2:
//   8 bits   word 2t + r / 2, t < 2: byte 2(r mod 2) + i = c(8t + g, k(r, i))
//   4 bits   word t, t < 4:          bits 16i + 4r .. = c(8t + g, k(r, i))
//   2 bits   word t, t < 4:          bits 16i + 2r .. = c(8t + g, k(r, i)),
//                                    bits 16i + 8 + 2r .. = c(8t + 32 + g, k(r, i))
//   the u upper bits of codes whose others are l: word t / T of the lane, bits
//            (16i + l r + l + turn) mod 32 .. = c(8t + g, k(r, i)), turn = fragmentTurn(b, t), so
//            that turning the word to the right by it brings them above the low ones
//   floats of 16 bits, 8 rows a block: word r, bits 16i .. = w(g, k(r, i)); padding 0
//
// Numbers of b bits, one for each of 64 rows, are 8b bytes: the upper u bits of all, u the largest
// power of two up to b, that of row r in the field of u bits from bit u (r mod 8/u) on of byte
// r / (8/u), and behind them the lower b - u bits likewise. Np is N rounded up to 64.
//   scales       G x Np, in their format: [g, n]; padding 1. Scales of two levels (ui6) are the f16
//                of the super-groups, ceil(G / 8) x Np, and behind them G x Np/64 numbers of 6 bits
//   zero points  G x Np/64 numbers of b bits: that of row n, + 2^(b-1); padding 0; asymmetric only
//   minima       G x Np, in the format of the scales; padding 0
//   sums         G x Np int32: sum over k in group g of code - zero point; padding 0; what
//                asymmetric activations need
//   outer        Np floats; padding 1
//   codebook     2^b floats
// clang-format on
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_FRAGMENTPACKING_H
#define EASYQUANT_NUMERICS_FRAGMENTPACKING_H

#include "easyquant/Numerics/WeightLayout.h"

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace easyquant::numerics {

/// Bits of a code in its first plane; the others are in the second.
constexpr int lowPlaneBits(int bits) { return bits == 3 ? 2 : bits == 5 || bits == 6 ? 4 : bits; }
constexpr int highPlaneBits(int bits) { return bits - lowPlaneBits(bits); }

enum class FragmentOrder { M16N8K32, M16N8K16 };
inline constexpr std::array kFragmentOrders = {FragmentOrder::M16N8K32, FragmentOrder::M16N8K16};
/// "m16n8k32", after the instruction: the layout's name in the IR.
std::string_view nameOf(FragmentOrder order);

inline constexpr int64_t kFragmentBytes = 512;  ///< of a block's first plane
inline constexpr int64_t kFragmentColumns = 32; ///< of a block
inline constexpr int64_t kFragmentStep = 16;    ///< columns of an mma on floats
/// Rows of a block; 16 bits are floats.
constexpr int64_t fragmentRows(int bits) { return 128 / lowPlaneBits(bits); }
/// Bytes of a block.
constexpr int64_t fragmentBytes(int bits) {
  return fragmentRows(bits) * kFragmentColumns * bits / 8;
}
/// Words of a lane in the second plane, and how many tiles of eight rows share one.
constexpr int64_t highPlaneWords(int bits) { return fragmentRows(bits) * highPlaneBits(bits) / 32; }
constexpr int64_t highPlaneTiles(int bits) { return 4 / highPlaneBits(bits); }
/// By how much the word with the upper bits of tile t is turned; order M16N8K16.
constexpr int64_t fragmentTurn(int bits, int64_t t) {
  const int64_t inWord = t % highPlaneTiles(bits);
  return bits == 3 ? inWord % 2 + inWord / 2 * 8 : inWord * highPlaneBits(bits);
}
/// Columns that share a scale where tensor cores multiply codes with scales, and those of an mma.
inline constexpr int64_t kBlockColumns = 16, kBlockStep = 64;
/// Does a scheme, of weights or of activations, have codes of f4E2M1FN in such groups, and scales
/// of f8E4M3FN?
bool hasScaledBlocks(const Scheme &scheme);
/// Scales and zero points come in blocks of so many rows.
inline constexpr int64_t kFragmentScaleRows = 64;
/// N as scales and zero points have it.
constexpr int64_t fragmentScaleRows(int64_t n) {
  return (n + kFragmentScaleRows - 1) / kFragmentScaleRows * kFragmentScaleRows;
}

/// Where the codes and scales of an N x K weight lie. Made by fragmentLayout.
struct FragmentLayout final : WeightLayout {
  FragmentLayout(const Scheme &scheme, FragmentOrder order, int64_t rows, int64_t columns)
      : WeightLayout(scheme, rows, columns), order(order) {}

  FragmentOrder order;

  int64_t rowBlocks() const {
    int64_t r = fragmentRows(scheme.bits);
    return (rows + r - 1) / r;
  }
  int64_t columnBlocks() const { return (columns + kFragmentColumns - 1) / kFragmentColumns; }

  std::vector<int64_t> shape(WeightTensor tensor) const override;
  int64_t blockRows() const override { return 64; }
  void pack(int64_t firstRow, const QuantizedMatrix &block, PackedWeight &out) const override;

private:
  /// Scales of row `row` of a block, which is row n, or padding where it is negative.
  void packScales(const QParams &params, int64_t row, int64_t n, std::vector<uint8_t> &out) const;
};

/// Fails with Unsupported when kernels have no fragments for the scheme: dynamic; a group size that
/// is no multiple of 32, nor 16 in the order M16N8K16; in the other order codes without integer
/// values but f8E4M3FN; with InvalidArgument when it is no scheme, or N or K is not positive.
Result<FragmentLayout> fragmentLayout(const Scheme &scheme, FragmentOrder order, int64_t rows,
                                      int64_t columns);

/// Floats of 16 bits, whichever: weights is N x K, out floatFragmentBytes(N, K) bytes, all written.
constexpr int64_t floatFragmentBytes(int64_t rows, int64_t columns) {
  int64_t r = fragmentRows(16);
  return (rows + r - 1) / r * ((columns + kFragmentColumns - 1) / kFragmentColumns) *
         kFragmentBytes;
}
void packFloatFragments(int64_t rows, int64_t columns, const uint16_t *weights, uint8_t *out);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_FRAGMENTPACKING_H
