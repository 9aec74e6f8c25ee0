//===- WeightLayout.cpp - Weights in the order of a kernel ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/WeightLayout.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace easyquant::numerics {

#define EASYQUANT_LAYOUTS(source) std::vector<LayoutKind> kindsOf##source();
#include "WeightLayouts.inc"
#undef EASYQUANT_LAYOUTS

const std::vector<LayoutKind> &layoutKinds() {
  static const std::vector<LayoutKind> kinds = [] {
    std::vector<LayoutKind> all;
#define EASYQUANT_LAYOUTS(source) std::ranges::copy(kindsOf##source(), std::back_inserter(all));
#include "WeightLayouts.inc"
#undef EASYQUANT_LAYOUTS
    return all;
  }();
  return kinds;
}

const LayoutKind *findLayoutKind(std::string_view name) {
  auto found = std::ranges::find(layoutKinds(), name, &LayoutKind::name);
  return found == layoutKinds().end() ? nullptr : &*found;
}

bool WeightLayout::has(WeightTensor tensor) const {
  switch (tensor) {
  case WeightTensor::Codes:
  case WeightTensor::Scales:
    return true;
  case WeightTensor::ZeroPoints:
    return scheme.hasZeroPoints();
  case WeightTensor::Minima:
    return scheme.minima;
  case WeightTensor::Sums:
    return withSums;
  case WeightTensor::Outer:
    return scheme.outer;
  case WeightTensor::Codebook:
    return scheme.codes == CodeFormat::Table;
  }
  return false;
}

int64_t WeightLayout::bytes(WeightTensor tensor) const {
  if (!has(tensor))
    return 0;
  const std::vector<int64_t> extents = shape(tensor);
  const bool isBytes = tensor == WeightTensor::Codes || tensor == WeightTensor::ZeroPoints;
  const bool isLikeScales = tensor == WeightTensor::Scales || tensor == WeightTensor::Minima;
  const int64_t element = isBytes        ? 1
                          : isLikeScales ? scaleBytes(scheme.scales)
                                         : 4; // int32 or f32
  return std::accumulate(extents.begin(), extents.end(), element, std::multiplies<>());
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
