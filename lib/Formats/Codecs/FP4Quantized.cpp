//===- FP4Quantized.cpp - FP4 in compressed-tensors -----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// nvfp4-pack-quantized and mxfp4-pack-quantized:
//
//   weight_packed        U8 [N, K/2]          two codes a byte, the first one in the lower nibble
//   weight_scale         F8_E4M3 or U8 [N, G] the bits of FP8, or of a power of two
//   weight_global_scale  F32 [1]              of NVFP4: what scales are divided by
//
//===----------------------------------------------------------------------===//

#include "BitString.h"
#include "CompressedTensors.h"

#include <cmath>
#include <cstring>

using namespace easyquant;
using namespace easyquant::formats;
using numerics::QuantizedMatrix;
using numerics::Scheme;
using numerics::WeightTensor;

namespace {

class FP4Codec final : public WeightCodec {
public:
  using WeightCodec::WeightCodec;

  std::vector<CodecTensor> tensors() const override;
  /// While it is packed there is an outer scale for each row.
  std::vector<int64_t> shape(WeightTensor tensor) const override {
    return tensor == WeightTensor::Outer ? std::vector{rows} : WeightCodec::shape(tensor);
  }
  void pack(int64_t firstRow, const QuantizedMatrix &block,
            numerics::PackedWeight &out) const override;
  Result<std::vector<uint8_t>> take(const CodecTensor &tensor,
                                    numerics::PackedWeight &packed) const override;

protected:
  void unpackRows(int64_t firstRow, const StoredParts &stored,
                  QuantizedMatrix &rows) const override;
};

/// The codes of row n.
template <typename Byte> BitString<Byte> nibbles(Byte *data, int64_t n, int64_t columns) {
  return {data + n * columns / 2, 1, 4};
}

} // namespace

/// The divisor whose reciprocal, rounded, is the factor; where no float is, the closest one.
static float divisorOf(float factor) {
  const float closest = 1 / factor;
  for (float divisor : {closest, std::nextafter(closest, 0.0f), std::nextafter(closest, INFINITY)})
    if (1 / divisor == factor)
      return divisor;
  return closest;
}

std::vector<CodecTensor> FP4Codec::tensors() const {
  std::vector<CodecTensor> all = {
      {"weight_packed", DType::U8, {rows, columns / 2}, WeightTensor::Codes},
      {"weight_scale", scaleType(scheme.scales), {rows, groups()}, WeightTensor::Scales}};
  if (scheme.outer)
    all.push_back({"weight_global_scale", DType::F32, {1}, WeightTensor::Outer});
  return all;
}

void FP4Codec::pack(int64_t firstRow, const QuantizedMatrix &block,
                    numerics::PackedWeight &out) const {
  for (int64_t r = 0; r < block.rows; ++r) {
    const int64_t n = firstRow + r;
    const auto row = nibbles(out[WeightTensor::Codes].data(), n, columns);
    for (int64_t k = 0; k < columns; ++k)
      row.put(k, fieldOf(block.codes[r * columns + k]));
    for (int64_t g = 0; g < groups(); ++g)
      storeScale(out[WeightTensor::Scales].data(), n * groups() + g,
                 innerScale(block.params, r, g, scheme), scheme.scales);
    if (scheme.outer)
      storeScale(out[WeightTensor::Outer].data(), n, block.params.outerOf(r),
                 numerics::ScaleFormat::F32);
  }
}

Result<std::vector<uint8_t>> FP4Codec::take(const CodecTensor &tensor,
                                            numerics::PackedWeight &packed) const {
  if (tensor.part != WeightTensor::Outer)
    return WeightCodec::take(tensor, packed);
  auto outer = [&](int64_t row) {
    return numerics::loadScale(packed[WeightTensor::Outer].data(), row, numerics::ScaleFormat::F32);
  };
  for (int64_t row = 1; row < rows; ++row)
    if (outer(row) != outer(0))
      return makeError(ErrorCode::Unsupported,
                       "the outer scale of row {} is {}, that of row 0 {}; nvfp4-pack-quantized "
                       "holds one for all rows",
                       row, outer(row), outer(0));
  std::vector<uint8_t> bytes(4);
  storeScale(bytes.data(), 0, divisorOf(outer(0)), numerics::ScaleFormat::F32);
  return bytes;
}

void formats::unpackFP4(const Scheme &scheme, int64_t firstRow, const StoredParts &stored,
                        float outer, QuantizedMatrix &block) {
  if (scheme.outer)
    block.params.outer = {outer};
  const int64_t groups = block.params.groups;
  for (int64_t r = 0; r < block.rows; ++r) {
    const int64_t n = firstRow + r;
    const auto row = nibbles(stored[WeightTensor::Codes], n, block.columns);
    for (int64_t k = 0; k < block.columns; ++k)
      block.codes[r * block.columns + k] = static_cast<int8_t>(static_cast<int>(row.get(k)) - 8);
    for (int64_t g = 0; g < groups; ++g) {
      const float scale =
          numerics::loadScale(stored[WeightTensor::Scales], n * groups + g, scheme.scales);
      block.params.scales[r * groups + g] = scheme.outer ? scale * outer : scale;
    }
  }
}

void FP4Codec::unpackRows(int64_t firstRow, const StoredParts &stored,
                          QuantizedMatrix &block) const {
  const float divisor =
      scheme.outer ? numerics::loadScale(stored[WeightTensor::Outer], 0, numerics::ScaleFormat::F32)
                   : 1;
  unpackFP4(scheme, firstRow, stored, 1 / divisor, block);
}

static Result<std::unique_ptr<WeightCodec>> makeFP4(const numerics::Scheme &scheme, int64_t rows,
                                                    int64_t columns, const char *name,
                                                    numerics::ScaleFormat scales, int64_t group,
                                                    const char *what) {
  if (auto ok = checkCompressedTensors(scheme, rows, columns); !ok)
    return Unexpected(ok.error());
  const bool hasOuter = scales == numerics::ScaleFormat::F8E4M3FN;
  if (scheme.codes != numerics::CodeFormat::F4E2M1FN || scheme.groupSize != group ||
      scheme.scales != scales || scheme.outer != hasOuter)
    return makeError(ErrorCode::Unsupported, "{} holds FP4 (E2M1) in groups of {}, found {}", name,
                     what, numerics::toString(scheme));
  return std::make_unique<FP4Codec>(scheme, rows, columns);
}

Result<std::unique_ptr<WeightCodec>> formats::mxfp4PackCodec(const numerics::Scheme &scheme,
                                                             int64_t rows, int64_t columns) {
  return makeFP4(scheme, rows, columns, "mxfp4-pack-quantized", numerics::ScaleFormat::F8E8M0FNU,
                 32, "32 with powers of two as scales");
}

Result<std::unique_ptr<WeightCodec>> formats::nvfp4PackCodec(const numerics::Scheme &scheme,
                                                             int64_t rows, int64_t columns) {
  return makeFP4(scheme, rows, columns, "nvfp4-pack-quantized", numerics::ScaleFormat::F8E4M3FN, 16,
                 "16 with scales of FP8 in units of one f32 of the tensor");
}
