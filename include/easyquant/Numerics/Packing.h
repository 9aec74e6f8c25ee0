//===- Packing.h - Codes and scales in memory -------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Panels: the weight layout of the CPU kernels (easyquant/Codegen/CPU/Kernels.h), one for M = 1 and
// for large M. P = 32 output rows make a panel; NP = ceil(N / 32); Kp = K rounded up to 8; padding
// rows and columns hold code 0, padding scales are 1.
//   I8  NP x Kp/4 x 32 x 4 bytes: [p, j, r, i] = code(32p + r, 4j + i) + 128
//   I4  NP x Kp/8 x 32 x 4 bytes: [p, j, r, i] = code(32p + r, 8j + i) + 8 in the low nibble,
//                                                code(32p + r, 8j + 4 + i) + 8 in the high nibble
//   scales  NP x G x 32 floats:   [p, g, r] = scale(32p + r, g)
// Panels are independent: a caller may process them from as many threads as it likes.
//
// Dense: a little-endian bit stream of b-bit fields, field i = code i + 2^(b-1) in bits
// i*b .. i*b + b - 1, for storage and exchange.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_PACKING_H
#define EASYQUANT_NUMERICS_PACKING_H

#include "easyquant/Numerics/Matrix.h"
#include "easyquant/Numerics/Metrics.h"
#include "easyquant/Numerics/Quantize.h"
#include "easyquant/Numerics/Scheme.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace easyquant::numerics {

inline constexpr int64_t kPanelRows = 32;
constexpr int64_t paddedColumns(int64_t k) { return (k + 7) / 8 * 8; }
constexpr int64_t panelCount(int64_t n) { return (n + kPanelRows - 1) / kPanelRows; }

/// Where the codes and scales of an N x K weight lie when packed. Made by panelLayout.
struct PanelLayout {
  Scheme scheme; ///< symmetric int8 or int4; per tensor (the one scale repeated), channel or group
  int64_t rows = 0, columns = 0;

  int64_t panels() const { return panelCount(rows); }
  int64_t groups() const { return groupCount(columns, scheme.groupSize); }
  /// Rows of this panel that are rows of the matrix: 32, fewer in the last one.
  int64_t panelRows(int64_t panel) const { return std::min(kPanelRows, rows - panel * kPanelRows); }
  int64_t panelBytes() const { return kPanelRows * paddedColumns(columns) * scheme.bits / 8; }
  int64_t panelScales() const { return kPanelRows * groups(); }
  int64_t codeBytes() const { return panels() * panelBytes(); }
  int64_t scaleCount() const { return panels() * panelScales(); }
};

/// Fails with Unsupported when kernels have no panels for the scheme: asymmetric, 2 or 3 bits,
/// dynamic, a group size that is not a multiple of 8; with InvalidArgument when it is no scheme, or
/// N or K is not positive.
Result<PanelLayout> panelLayout(const Scheme &scheme, int64_t rows, int64_t columns);

/// codes: panelRows(panel) x K, the codes of this panel's rows. out: panelBytes() bytes, all
/// written.
void packPanel(const PanelLayout &layout, int64_t panel, const int8_t *codes, uint8_t *out);
/// The inverse; padding is dropped.
void unpackPanel(const PanelLayout &layout, int64_t panel, const uint8_t *packed, int8_t *codes);

/// params: of the whole matrix (those that quantize takes). out: panelScales() floats, all written.
void packPanelScales(const PanelLayout &layout, int64_t panel, const QParams &params, float *out);
/// Writes this panel's rows of params.scales, which has its final size; not for one scale per
/// tensor.
void unpackPanelScales(const PanelLayout &layout, int64_t panel, const float *packed,
                       QParams &params);

/// Quantizes rows 32 * panel .. of w (N x K) by the absmax rule, packs them, and adds the
/// quantization error of these rows to `error`. One pass over the weights: what
/// equant-materialize-weights runs. Bits are those of chooseQParams, quantize and packPanel. Per
/// channel and per group only. Fails as chooseQParams does.
Result<void> quantizePanelAbsMax(const PanelLayout &layout, ConstMatrix w, int64_t panel,
                                 uint8_t *codes, float *scales, ErrorSums &error);

/// A whole weight in panels.
struct PackedWeights {
  PanelLayout layout;
  std::vector<uint8_t> codes; ///< layout.codeBytes()
  std::vector<float> scales;  ///< layout.scaleCount()
};
PackedWeights packPanels(const PanelLayout &layout, const QuantizedMatrix &q);
/// Fails with InvalidArgument when the sizes are not those of the layout.
Result<QuantizedMatrix> unpackPanels(const PackedWeights &packed);

/// ceil(count * bits / 8).
constexpr int64_t denseBytes(int64_t count, int bits) { return (count * bits + 7) / 8; }
/// Fails with InvalidArgument when out is not denseBytes long, bits is not 2, 3, 4 or 8, or a code
/// is outside [-2^(b-1), 2^(b-1) - 1] (naming its index). Unused bits of the last byte are 0.
Result<void> packDense(std::span<const int8_t> codes, int bits, std::span<uint8_t> out);
/// Fails with InvalidArgument when packed is not denseBytes(codes.size(), bits) long.
Result<void> unpackDense(std::span<const uint8_t> packed, int bits, std::span<int8_t> codes);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_PACKING_H
