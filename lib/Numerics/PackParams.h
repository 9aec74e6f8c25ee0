//===- PackParams.h - Scales, zero points and sums in bytes -----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Private to lib/Numerics: what the layouts of weights share.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_NUMERICS_PACKPARAMS_H
#define EASYQUANT_LIB_NUMERICS_PACKPARAMS_H

#include "RowQuantize.h"

#include "easyquant/Numerics/Packing.h"

namespace easyquant::numerics {

/// The layout, if the weight has one, as those who do not know which it is have it.
template <typename Layout> Result<std::unique_ptr<WeightLayout>> asLayout(Result<Layout> layout) {
  if (!layout)
    return Unexpected(layout.error());
  return std::make_unique<Layout>(std::move(*layout));
}

/// Field i, of `bits` bits, of bytes that are 0: fields begin at the low end.
inline void orField(uint8_t *out, int64_t byte, int64_t field, int bits, int32_t value) {
  out[byte] = static_cast<uint8_t>(out[byte] | value << (field * bits));
}

/// The number of row r of a panel, of `bits` bits, in bytes that are 0 (Packing.h).
inline void orPanelField(uint8_t *out, int64_t r, int bits, int32_t value) {
  const int upper = upperBits(bits), lower = bits - upper;
  orField(out, r % (4 * upper), r / (4 * upper), upper, value >> lower);
  if (lower)
    orField(out, 4 * upper + r % (4 * lower), r / (4 * lower), lower, value & ((1 << lower) - 1));
}

/// Sum of code - zero point over group g of row `row` of the block, of tables of int8 values.
inline int32_t groupSum(const QuantizedMatrix &block, int64_t row, int64_t g) {
  auto [begin, count] = groupColumns(g, block.scheme.groupSize, block.columns);
  const int8_t *codes = block.codes.data() + row * block.columns + begin;
  int32_t total = 0;
  if (block.scheme.table) {
    for (int64_t k = 0; k < count; ++k)
      total += codeFactor(block.scheme, codes[k], 0);
    return total;
  }
  for (int64_t k = 0; k < count; ++k)
    total += codes[k];
  int64_t index = paramIndex(block.params, row, g);
  return total - static_cast<int32_t>(count) * zeroPointOf(block.scheme, block.params, index);
}

} // namespace easyquant::numerics

#endif // EASYQUANT_LIB_NUMERICS_PACKPARAMS_H
