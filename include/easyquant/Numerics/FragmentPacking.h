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
// Order Bytes (int8 activations, m16n8k32), with k(i) = 4q + i, h < 2:
//   I8  word 2t + h, t < 2: byte i = c(8t + g, 16h + k(i))
//   I4  word t, t < 4:      byte i = c(8t + g, k(i)) + 2^4 c(8t + g, 16 + k(i))
//   I2  word t, t < 4:      byte i = c(8t + g, k(i)) + 2^2 c(8t + g, 16 + k(i))
//                                  + 2^4 c(8t + 32 + g, k(i)) + 2^6 c(8t + 32 + g, 16 + k(i))
//
// Order Halves (f16 and bf16 activations, m16n8k16): register r < 4 of two steps of 16 columns has
// columns k(r, i) = 8r + 2q + i, i < 2:
//   I8  word 2t + r / 2, t < 2: byte 2(r mod 2) + i = c(8t + g, k(r, i))
//   I4  word t, t < 4:          bits 16i + 4r .. = c(8t + g, k(r, i))
//   I2  word t, t < 4:          bits 16i + 2r .. = c(8t + g, k(r, i)),
//                               bits 16i + 8 + 2r .. = c(8t + 32 + g, k(r, i))
//
//   scales       G x Np floats: [g, n], Np = N rounded up to 64; padding 1
//   zero points  G x Np int8; padding 0; asymmetric schemes only
//   sums         G x Np int32: sum over k in group g of code - zero point; padding 0; what
//                asymmetric activations need
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_FRAGMENTPACKING_H
#define EASYQUANT_NUMERICS_FRAGMENTPACKING_H

#include "easyquant/Numerics/Quantize.h"
#include "easyquant/Numerics/Scheme.h"

#include <cstdint>
#include <vector>

namespace easyquant::numerics {

enum class FragmentOrder { Bytes, Halves };

inline constexpr int64_t kFragmentBytes = 512;  ///< of a block
inline constexpr int64_t kFragmentColumns = 32; ///< of a block
constexpr int64_t fragmentRows(int bits) { return 128 / bits; }
/// N as scales and zero points have it.
constexpr int64_t fragmentScaleRows(int64_t n) { return (n + 63) / 64 * 64; }

/// Where the codes and scales of an N x K weight lie. Made by fragmentLayout.
struct FragmentLayout {
  Scheme scheme; ///< static; 2, 4 or 8 bits; per tensor (the one scale repeated), channel or group
  FragmentOrder order = FragmentOrder::Bytes;
  int64_t rows = 0, columns = 0;

  int64_t rowBlocks() const {
    int64_t r = fragmentRows(scheme.bits);
    return (rows + r - 1) / r;
  }
  int64_t columnBlocks() const { return (columns + kFragmentColumns - 1) / kFragmentColumns; }
  int64_t groups() const { return groupCount(columns, scheme.groupSize); }
  int64_t codeBytes() const { return rowBlocks() * columnBlocks() * kFragmentBytes; }
  int64_t scaleCount() const { return groups() * fragmentScaleRows(rows); }
};

/// Fails with Unsupported when kernels have no fragments for the scheme: dynamic, 3 bits, a group
/// size that is not a multiple of 32; with InvalidArgument when it is no scheme, or N or K is not
/// positive.
Result<FragmentLayout> fragmentLayout(const Scheme &scheme, FragmentOrder order, int64_t rows,
                                      int64_t columns);

/// codes: N x K. out: layout.codeBytes() bytes, all written.
void packFragments(const FragmentLayout &layout, const int8_t *codes, uint8_t *out);
/// The inverse; padding is dropped.
void unpackFragments(const FragmentLayout &layout, const uint8_t *packed, int8_t *codes);

/// params: of the whole matrix; layout.scaleCount() values each.
std::vector<float> fragmentScales(const FragmentLayout &layout, const QParams &params);
/// All 0 when params has none.
std::vector<int8_t> fragmentZeroPoints(const FragmentLayout &layout, const QParams &params);
std::vector<int32_t> fragmentSums(const FragmentLayout &layout, const QuantizedMatrix &q);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_FRAGMENTPACKING_H
