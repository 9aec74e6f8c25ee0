//===- WeightLayout.h - Weights in the order of a kernel --------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A layout takes a quantized weight row by row, as quantization makes it, and puts its codes,
// scales, zero points and sums where a target's kernels read them. It knows nothing of how they
// were found.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_WEIGHTLAYOUT_H
#define EASYQUANT_NUMERICS_WEIGHTLAYOUT_H

#include "easyquant/Numerics/Quantize.h"
#include "easyquant/Numerics/Scheme.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

namespace easyquant::numerics {

/// The tensors that a packed weight may consist of.
enum class WeightTensor {
  Codes,
  Scales,     ///< in the format of the scheme
  ZeroPoints, ///< of asymmetric schemes without minima
  Minima,     ///< of schemes with them, in the format of the scales
  Sums,       ///< of code - zero point over each group: int32, where activations are asymmetric
  Outer,      ///< of schemes with outer scales: one f32 a row
  Codebook,   ///< of codes of a table: its values, f32
};
inline constexpr size_t kWeightTensors = 7;

/// The bytes of each tensor; empty where there is none.
struct PackedWeight {
  std::array<std::vector<uint8_t>, kWeightTensors> tensors;

  std::vector<uint8_t> &operator[](WeightTensor tensor) {
    return tensors[static_cast<size_t>(tensor)];
  }
  const std::vector<uint8_t> &operator[](WeightTensor tensor) const {
    return tensors[static_cast<size_t>(tensor)];
  }
};

class WeightLayout {
public:
  virtual ~WeightLayout() = default;

  Scheme scheme; ///< static; per tensor (the one scale repeated), channel or group
  int64_t rows = 0, columns = 0;
  bool withSums = false;

  int64_t groups() const { return groupCount(columns, scheme.groupSize); }
  virtual bool has(WeightTensor tensor) const;
  /// The shape of a tensor that there is. Codes, zero points and scales of ui6 share bytes, and
  /// their shape counts these; that of other tensors counts elements.
  virtual std::vector<int64_t> shape(WeightTensor tensor) const = 0;
  /// 0 where there is no such tensor.
  int64_t bytes(WeightTensor tensor) const;

  /// Blocks of so many rows may be packed apart, by any threads.
  virtual int64_t blockRows() const = 0;
  /// Rows firstRow .. of the weight, a multiple of blockRows() unless they are the last, into
  /// tensors of bytes() bytes each, whose padding was 0; scales in the padding become 1.
  virtual void pack(int64_t firstRow, const QuantizedMatrix &block, PackedWeight &out) const = 0;

  /// Room for all tensors, all 0.
  PackedWeight allocate() const;

protected:
  WeightLayout() = default;
  WeightLayout(const Scheme &scheme, int64_t rows, int64_t columns)
      : scheme(scheme), rows(rows), columns(columns) {}
  WeightLayout(const WeightLayout &) = default;
  WeightLayout &operator=(const WeightLayout &) = default;
};

/// A layout as the IR names it (#equant.layout), for weights of any scheme and size.
struct LayoutKind {
  std::string_view name;
  /// Unsupported, saying what the kernels take, on schemes that the layout has no place for.
  Result<std::unique_ptr<WeightLayout>> (*make)(const Scheme &scheme, int64_t rows,
                                                int64_t columns);
};
/// The layouts of all sources that lib/Numerics/CMakeLists.txt lists. Each source defines a
/// function that gives its own.
const std::vector<LayoutKind> &layoutKinds();
/// Null where there is none of this name.
const LayoutKind *findLayoutKind(std::string_view name);

/// What every layout of packed weights asks: a scheme, with static scales, and at least one
/// element. Unsupported, InvalidArgument.
Result<void> checkPackedWeight(const Scheme &scheme, int64_t rows, int64_t columns);

/// A whole weight.
PackedWeight pack(const WeightLayout &layout, const QuantizedMatrix &q);

//===- What layouts share -------------------------------------------------===//

/// The index of row `row` of the block and group g.
inline int64_t paramIndex(const QParams &params, int64_t row, int64_t g) {
  return (params.rows == 1 ? 0 : row * params.groups) + g;
}

/// Element i of an array of little-endian scales.
inline void storeScale(uint8_t *out, int64_t i, float scale, ScaleFormat format) {
  uint32_t bits = encodeScale(scale, format);
  int bytes = scaleBytes(format);
  std::memcpy(out + i * bytes, &bits, bytes);
}
inline float loadScale(const uint8_t *data, int64_t i, ScaleFormat format) {
  uint32_t bits = 0;
  const int bytes = scaleBytes(format);
  std::memcpy(&bits, data + i * bytes, bytes);
  return decodeScale(bits, format);
}
/// The scale of group g of row `row` as it is packed: without the outer one, which kernels apply at
/// the end.
inline float innerScale(const QParams &params, int64_t row, int64_t g, const Scheme &scheme) {
  const float scale = params.scales[paramIndex(params, row, g)];
  return scheme.outer ? roundScale(scale / params.outerOf(row), scheme.scales) : scale;
}

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_WEIGHTLAYOUT_H
