//===- Packing.h - Codes and scales in memory -------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Panels: the weight layout of the CPU kernels (easyquant/Codegen/CPU/Kernels.h), one for M = 1 and
// for large M. P = 32 output rows make a panel; NP = ceil(N / 32); Kp = K rounded up to 8; padding
// rows and columns hold code 0. Codes are stored + 2^(b-1), which of formats that are no integers
// gives their bits; c(r, k) stands for code(32p + r, k) + 2^(b-1). Eight columns of a panel are one
// block of 32 b bytes:
// clang-format off
//   8 bits  NP x Kp/4 x 32 x 4 bytes: [p, j, r, i] = c(r, 4j + i)
//   6 bits  NP x Kp/8 x 48 x 4 bytes: the upper four bits of each code as 4 bits have them, in
//                                     [p, j, 0..31], then the lower two as 2 bits have them
//   5 bits  NP x Kp/8 x 40 x 4 bytes: the upper four bits the same, then the lowest as 3 bits
//                                     have them
//   4 bits  NP x Kp/8 x 32 x 4 bytes: [p, j, r, i] = c(r, 8j + i) + 2^4 c(r, 8j + 4 + i)
//   3 bits  NP x Kp/8 x 24 x 4 bytes: the upper two bits of each code as 2 bits have them, in
//                                     [p, j, 0..15], then the lowest bits: [p, j, 16 + r, i], r < 8,
//                                     holds that of c(8f + r, 8j + i) in bit 2f, that of
//                                     c(8f + r, 8j + 4 + i) in bit 2f + 1
//   2 bits  NP x Kp/8 x 16 x 4 bytes: [p, j, r, i] = c(r, 8j + i) + 2^2 c(r, 8j + 4 + i)
//                                                  + 2^4 c(16 + r, 8j + i)
//                                                  + 2^6 c(16 + r, 8j + 4 + i)
// so that a shift and a mask of a vector of bytes give four columns of each of its rows. Numbers of
// b bits, one a row, are 4b bytes. First come their upper u bits, with u the largest power of two
// up to b: row r is in field r / 4u, of u bits, of byte r mod 4u. Then come their lower l = b - u
// bits: row r is in field r / 4l of byte 4u + r mod 4l.
//   scales       NP x G x 32, in their format: [p, g, r] = scale(32p + r, g); padding 1. Scales of
//                two levels (ui6) are NP x (64 S + 24 G) bytes, S = ceil(G / 8): S x 32 f16, one
//                for each super-group of a row, then for each group the n of its 32 rows in six bits
//   zero points  NP x G x 4b bytes: for each group those of its 32 rows in b bits, each + 2^(b-1);
//                padding 0
//   minima       as scales; padding 0
//   sums         NP x G x 32 int32: [p, g, r] = sum over k in group g of code(32p + r, k) - z(32p + r, g);
//                padding 0; what asymmetric activations need
//   outer        NP x 32 floats; padding 1
//   codebook     2^b floats
// clang-format on
// Panels are independent: a caller may process them from as many threads as it likes.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_PACKING_H
#define EASYQUANT_NUMERICS_PACKING_H

#include "easyquant/Numerics/Matrix.h"
#include "easyquant/Numerics/Metrics.h"
#include "easyquant/Numerics/WeightLayout.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace easyquant::numerics {

inline constexpr std::string_view kPanelLayout = "panel"; ///< its name in the IR
inline constexpr int64_t kPanelRows = 32;
/// How many bits of a number of `bits` bits are in the upper plane. The others are in the lower
/// one.
constexpr int upperBits(int bits) { return std::bit_floor(static_cast<unsigned>(bits)); }
/// Bytes of numbers of `bits` bits, one for each row of a panel.
constexpr int64_t panelFieldBytes(int bits) { return kPanelRows * bits / 8; }
constexpr int64_t paddedColumns(int64_t k) { return (k + 7) / 8 * 8; }
constexpr int64_t panelCount(int64_t n) { return (n + kPanelRows - 1) / kPanelRows; }

/// Where the codes and scales of an N x K weight lie when packed. Made by panelLayout.
struct PanelLayout final : WeightLayout {
  PanelLayout() = default;
  PanelLayout(const Scheme &scheme, int64_t rows, int64_t columns)
      : WeightLayout(scheme, rows, columns) {}

  int64_t panels() const { return panelCount(rows); }
  std::vector<int64_t> shape(WeightTensor tensor) const override;
  int64_t blockRows() const override { return kPanelRows; }
  void pack(int64_t firstRow, const QuantizedMatrix &block, PackedWeight &out) const override;
};

/// Fails with Unsupported when kernels have no panels for the scheme: dynamic, a group size that is
/// not a multiple of 8; with InvalidArgument when it is no scheme, or N or K is not positive.
Result<PanelLayout> panelLayout(const Scheme &scheme, int64_t rows, int64_t columns);

/// Does quantizeAbsMax take the scheme: symmetric integers of the narrow range per channel or per
/// group, with scales of f32 or f16?
bool canQuantizeAbsMax(const Scheme &scheme);
/// Quantizes w by the absmax rule, and adds the quantization error of its rows to `error`, in one
/// pass over the weights. Bits are those of chooseQParams and quantize. Fails as chooseQParams
/// does, and with Unsupported on schemes that it does not take; rows are counted from firstRow.
Result<QuantizedMatrix> quantizeAbsMax(ConstMatrix w, const Scheme &scheme, int64_t firstRow,
                                       ErrorSums &error);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_PACKING_H
