//===- WeightCodec.cpp - Weights as others store them ---------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/Codecs/WeightCodec.h"

#include <algorithm>
#include <cmath>

using namespace easyquant;
using namespace easyquant::formats;
using numerics::QuantizedMatrix;
using numerics::WeightTensor;

std::vector<int64_t> WeightCodec::shape(WeightTensor tensor) const {
  for (const CodecTensor &stored : tensors()) {
    if (stored.part != tensor)
      continue;
    if (tensor == WeightTensor::Scales)
      return stored.shape;
    return {tensorBytes(stored.dtype, stored.shape).value_or(0)};
  }
  return {0};
}

Result<std::vector<uint8_t>> WeightCodec::take(const CodecTensor &tensor,
                                               numerics::PackedWeight &packed) const {
  return tensor.part ? std::exchange(packed[*tensor.part], {}) : tensor.constant;
}

WeightReader::~WeightReader() = default;

Result<StoredParts> WeightReader::partsOf(std::span<const std::span<const uint8_t>> stored) const {
  StoredParts parts;
  const std::vector<CodecTensor> all = tensors();
  if (stored.size() != all.size())
    return makeError(ErrorCode::InvalidArgument, "{} tensors for a weight of {}", stored.size(),
                     all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const int64_t bytes = tensorBytes(all[i].dtype, all[i].shape).value_or(-1);
    if (std::ssize(stored[i]) != bytes)
      return makeError(ErrorCode::Corrupt, "'{}' has {} bytes, expected {} for {} x {} weights",
                       all[i].name, stored[i].size(), bytes, rows, columns);
    if (all[i].part)
      parts[*all[i].part] = stored[i].data();
    else if (!std::ranges::equal(stored[i], all[i].constant))
      return makeError(ErrorCode::Unsupported, "'{}' is not what it is for {}", all[i].name,
                       numerics::toString(scheme));
  }
  return parts;
}

Result<QuantizedMatrix> WeightReader::unpack(int64_t firstRow, int64_t count,
                                             const StoredParts &stored) const {
  if (firstRow < 0 || count < 1 || firstRow > rows - count)
    return makeError(ErrorCode::InvalidArgument, "rows {} to {} of a weight of {} rows", firstRow,
                     firstRow + count - 1, rows);
  QuantizedMatrix block{scheme, count, columns, {}, {}};
  block.codes.resize(static_cast<size_t>(count * columns));
  block.params.rows = count;
  block.params.groups = groups();
  block.params.scales.resize(static_cast<size_t>(count * groups()));
  if (scheme.hasZeroPoints())
    block.params.zeroPoints.resize(block.params.scales.size());
  if (scheme.minima)
    block.params.minima.resize(block.params.scales.size());
  unpackRows(firstRow, stored, block);
  for (auto [what, values] : {std::pair("scale", std::span<const float>(block.params.scales)),
                              {"minimum", block.params.minima}})
    for (int64_t i = 0; i < std::ssize(values); ++i)
      if (!std::isfinite(values[i]))
        return makeError(ErrorCode::Corrupt, "the {} of row {}, group {} is {}, which is no number",
                         what, firstRow + i / groups(), i % groups(), values[i]);
  if (scheme.codes == numerics::CodeFormat::F8E4M3FN)
    for (int64_t i = 0; i < std::ssize(block.codes); ++i)
      if ((fieldOf(block.codes[i]) & 0x7f) == 0x7f)
        return makeError(ErrorCode::Corrupt, "the weight in row {}, column {} is no number (NaN)",
                         firstRow + i / columns, i % columns);
  return block;
}

Result<void> formats::checkStoredWeight(std::string_view format, const numerics::Scheme &scheme,
                                        int64_t rows, int64_t columns, bool hasMinima) {
  if (auto ok = numerics::checkPackedWeight(scheme, rows, columns); !ok)
    return ok;
  if (scheme.granularity != numerics::Granularity::Channel &&
      scheme.granularity != numerics::Granularity::Group)
    return makeError(ErrorCode::Unsupported, "{} holds scales per row or per group, found {}",
                     format, numerics::toString(scheme));
  if (scheme.minima && !hasMinima)
    return makeError(ErrorCode::Unsupported,
                     "{} holds zero points, which are codes, and no minima, found {}", format,
                     numerics::toString(scheme));
  if (scheme.groupSize != 0 && columns % scheme.groupSize != 0)
    return makeError(ErrorCode::Unsupported,
                     "{} holds whole groups: {} columns are no multiple of {}; give a group size "
                     "that divides them, or 0 for a scale a row",
                     format, columns, scheme.groupSize);
  return {};
}
