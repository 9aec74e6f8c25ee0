//===- PlainPacking.cpp - Weights as they are -----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/PlainPacking.h"

#include "PackParams.h"

namespace easyquant::numerics {

/// The scheme as it is stored: f32 scales with none above them.
static Scheme withProductsOfScales(Scheme scheme) {
  scheme.scales = ScaleFormat::F32;
  scheme.outer = false;
  return scheme;
}

PlainLayout::PlainLayout(const Scheme &scheme, int64_t rows, int64_t columns)
    : WeightLayout(withProductsOfScales(scheme), rows, columns) {}

std::vector<int64_t> PlainLayout::shape(WeightTensor tensor) const {
  if (tensor == WeightTensor::Codes)
    return {rows, columns};
  if (tensor == WeightTensor::Codebook)
    return {int64_t(1) << scheme.bits};
  return {rows, groups()};
}

void PlainLayout::pack(int64_t firstRow, const QuantizedMatrix &block, PackedWeight &out) const {
  if (firstRow == 0 && has(WeightTensor::Codebook))
    std::memcpy(out[WeightTensor::Codebook].data(), scheme.table->values().data(),
                bytes(WeightTensor::Codebook));
  std::memcpy(out[WeightTensor::Codes].data() + firstRow * columns, block.codes.data(),
              block.codes.size());
  for (int64_t r = 0; r < block.rows; ++r)
    for (int64_t g = 0; g < groups(); ++g) {
      const int64_t at = (firstRow + r) * groups() + g, from = paramIndex(block.params, r, g);
      storeScale(out[WeightTensor::Scales].data(), at, block.params.scales[from], ScaleFormat::F32);
      if (has(WeightTensor::ZeroPoints))
        out[WeightTensor::ZeroPoints][at] =
            static_cast<uint8_t>(zeroPointOf(scheme, block.params, from));
      if (has(WeightTensor::Minima))
        storeScale(out[WeightTensor::Minima].data(), at, block.params.minima[from],
                   ScaleFormat::F32);
      if (!withSums)
        continue;
      const int32_t sum = groupSum(block, r, g);
      std::memcpy(out[WeightTensor::Sums].data() + at * sizeof(sum), &sum, sizeof(sum));
    }
}

std::vector<LayoutKind> kindsOfPlainPacking() {
  return {{kPlainLayout,
           [](const Scheme &scheme, int64_t rows,
              int64_t columns) -> Result<std::unique_ptr<WeightLayout>> {
             if (auto ok = checkPackedWeight(scheme, rows, columns); !ok)
               return Unexpected(ok.error());
             return std::make_unique<PlainLayout>(scheme, rows, columns);
           }}};
}

} // namespace easyquant::numerics
