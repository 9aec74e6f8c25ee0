//===- WeightLayout.cpp - Weights in the order of a kernel ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/WeightLayout.h"

namespace easyquant::numerics {

bool WeightLayout::has(WeightTensor tensor) const {
  switch (tensor) {
  case WeightTensor::Codes:
  case WeightTensor::Scales:
    return true;
  case WeightTensor::ZeroPoints:
    return !scheme.symmetric;
  case WeightTensor::Sums:
    return withSums;
  case WeightTensor::Outer:
    return scheme.outer;
  case WeightTensor::Codebook:
    return scheme.codes == CodeFormat::Table;
  }
  return false;
}

PackedWeight WeightLayout::allocate() const {
  PackedWeight weight;
  for (size_t i = 0; i < kWeightTensors; ++i)
    if (auto tensor = static_cast<WeightTensor>(i); has(tensor))
      weight.tensors[i].resize(bytes(tensor));
  return weight;
}

Result<void> checkPackedWeight(const Scheme &scheme, int64_t rows, int64_t columns) {
  if (auto ok = checkScheme(scheme); !ok)
    return ok;
  if (rows < 1 || columns < 1)
    return makeError(ErrorCode::InvalidArgument,
                     "packed weight of {} x {}: expected at least one row and one column", rows,
                     columns);
  if (scheme.dynamic)
    return makeError(ErrorCode::Unsupported,
                     "weights as {}: scales of weights are constants; make it static",
                     toString(scheme));
  return {};
}

PackedWeight pack(const WeightLayout &layout, const QuantizedMatrix &q) {
  PackedWeight packed = layout.allocate();
  layout.pack(0, q, packed);
  return packed;
}

} // namespace easyquant::numerics
