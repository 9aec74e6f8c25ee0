//===- FragmentPacking.h - Codes and scales as GPUs read them ---*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Fragments: the weight layout of the GPU kernels (easyquant/Codegen/GPU/Kernels.h). A block is 512
// bytes, 16 for each lane of a warp, and holds R = 128 / b rows of 32 columns: what one 16-byte
// load a lane brings is what the lane hands to mma.sync, after shifts and masks. Blocks lie row by
// row: NB x KB x 512 bytes, NB = ceil(N / R), KB = ceil(K / 32). Codes are two's complement;
// padding rows and columns hold code 0. Lane l has g = l / 4, q = l mod 4. Its 16 bytes are four
// words of 32 bits.
//
// clang-format off
// Order M16N8K32 (int8 activations), with k(i) = 4q + i, h < 2:
//   I8  word 2t + h, t < 2: byte i = c(8t + g, 16h + k(i))
//   I4  word t, t < 4:      byte i = c(8t + g, k(i)) + 2^4 c(8t + g, 16 + k(i))
//   I2  word t, t < 4:      byte i = c(8t + g, k(i)) + 2^2 c(8t + g, 16 + k(i))
//                                  + 2^4 c(8t + 32 + g, k(i)) + 2^6 c(8t + 32 + g, 16 + k(i))
//
// Order M16N8K16 (f16 and bf16 activations): register r < 4 of two steps of 16 columns has
// columns k(r, i) = 8r + 2q + i, i < 2:
//   I8  word 2t + r / 2, t < 2: byte 2(r mod 2) + i = c(8t + g, k(r, i))
//   I4  word t, t < 4:          bits 16i + 4r .. = c(8t + g, k(r, i))
//   I2  word t, t < 4:          bits 16i + 2r .. = c(8t + g, k(r, i)),
//                               bits 16i + 8 + 2r .. = c(8t + 32 + g, k(r, i))
//   I3  768 bytes for 64 rows. The low two bits of all codes are the 512 bytes of I2. The third
//       bits are in the 256 bytes behind them, 8 for each lane: the bit of c(8t + g, k(r, i)),
//       t < 8, is bit (16i + 2r + 2 + {0, 1, 8, 9}[t mod 4]) mod 32 of word t / 4, so that turning
//       the word brings it above the other two
//   floats of 16 bits, 8 rows a block: word r, bits 16i .. = w(g, k(r, i)); padding 0
//
//   scales       G x Np, in their format: [g, n], Np = N rounded up to 64; padding 1
//   zero points  G x Np z / 8 bytes, z = zeroPointBits(b): that of row n, + 2^(b-1), in the field of z
//                bits from bit z (n mod 8/z) on of byte [g, n / (8/z)]; padding 0; asymmetric only
//   sums         G x Np int32: sum over k in group g of code - zero point; padding 0; what
//                asymmetric activations need
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

/// Bits of the field of a zero point: those of a code, rounded up to a power of two.
constexpr int zeroPointBits(int bits) { return bits == 3 ? 4 : bits; }

enum class FragmentOrder { M16N8K32, M16N8K16 };
inline constexpr std::array kFragmentOrders = {FragmentOrder::M16N8K32, FragmentOrder::M16N8K16};
/// "m16n8k32", after the instruction: the layout's name in the IR.
std::string_view nameOf(FragmentOrder order);

inline constexpr int64_t kFragmentBytes = 512;  ///< of a block, but for 3 bits
inline constexpr int64_t kFragmentColumns = 32; ///< of a block
/// Rows of a block; 16 bits are floats.
constexpr int64_t fragmentRows(int bits) { return bits == 3 ? 64 : 128 / bits; }
/// Bytes of a block.
constexpr int64_t fragmentBytes(int bits) {
  return fragmentRows(bits) * kFragmentColumns * bits / 8;
}
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

  FragmentOrder order; ///< codes of 3 bits are in the order M16N8K16 only

  int64_t rowBlocks() const {
    int64_t r = fragmentRows(scheme.bits);
    return (rows + r - 1) / r;
  }
  int64_t columnBlocks() const { return (columns + kFragmentColumns - 1) / kFragmentColumns; }

  std::vector<int64_t> shape(WeightTensor tensor) const override;
  int64_t blockRows() const override { return 64; }
  void pack(int64_t firstRow, const QuantizedMatrix &block, PackedWeight &out) const override;
};

/// Fails with Unsupported when kernels have no fragments for the scheme: dynamic, 3 bits in the
/// order M16N8K32, codes that are no integers, scales that are neither f32 nor f16, a group size
/// that is not a multiple of 32; with InvalidArgument when it is no scheme, or N or K is not
/// positive.
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
