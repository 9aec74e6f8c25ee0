//===- ByteQuantized.cpp - int- and float-quantized of compressed-tensors --===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   weight             I8 or F8_E4M3 [N, K]   codes as they are, of fewer bits too
//   weight_scale       [N, G]                 in the type of the scheme
//   weight_zero_point  I8 [N, G]              of asymmetric schemes
//
//===----------------------------------------------------------------------===//

#include "CompressedTensors.h"

using namespace easyquant;
using namespace easyquant::formats;
using numerics::QuantizedMatrix;
using numerics::WeightTensor;

namespace {

class ByteQuantizedCodec final : public WeightCodec {
public:
  using WeightCodec::WeightCodec;

  std::vector<CodecTensor> tensors() const override;
  void pack(int64_t firstRow, const QuantizedMatrix &block,
            numerics::PackedWeight &out) const override;

protected:
  void unpackRows(int64_t firstRow, const StoredParts &stored,
                  QuantizedMatrix &rows) const override;

private:
  /// Integers are two's complement. Codes of floats count from -128 on, and are their bits.
  uint8_t byteOf(int8_t code) const {
    return static_cast<uint8_t>(scheme.isInteger() ? code : fieldOf(code));
  }
  int8_t codeOfByte(uint8_t byte) const {
    return static_cast<int8_t>(scheme.isInteger() ? byte : codeOf(byte));
  }
};

} // namespace

std::vector<CodecTensor> ByteQuantizedCodec::tensors() const {
  std::vector<CodecTensor> all = {
      {"weight",
       scheme.isInteger() ? DType::I8 : DType::F8E4M3,
       {rows, columns},
       WeightTensor::Codes},
      {"weight_scale", scaleType(scheme.scales), {rows, groups()}, WeightTensor::Scales}};
  if (!scheme.symmetric)
    all.push_back({"weight_zero_point", DType::I8, {rows, groups()}, WeightTensor::ZeroPoints});
  return all;
}

void ByteQuantizedCodec::pack(int64_t firstRow, const QuantizedMatrix &block,
                              numerics::PackedWeight &out) const {
  uint8_t *codes = out[WeightTensor::Codes].data() + firstRow * columns;
  for (size_t i = 0; i < block.codes.size(); ++i)
    codes[i] = byteOf(block.codes[i]);
  for (int64_t r = 0; r < block.rows; ++r)
    for (int64_t g = 0; g < groups(); ++g) {
      const int64_t index = paramIndex(block.params, r, g), at = (firstRow + r) * groups() + g;
      storeScale(out[WeightTensor::Scales].data(), at, block.params.scales[index], scheme.scales);
      if (!scheme.symmetric)
        out[WeightTensor::ZeroPoints][at] =
            static_cast<uint8_t>(zeroPointOf(scheme, block.params, index));
    }
}

void ByteQuantizedCodec::unpackRows(int64_t firstRow, const StoredParts &stored,
                                    QuantizedMatrix &block) const {
  const uint8_t *codes = stored[WeightTensor::Codes] + firstRow * columns;
  for (size_t i = 0; i < block.codes.size(); ++i)
    block.codes[i] = codeOfByte(codes[i]);
  for (int64_t i = 0; i < block.rows * groups(); ++i) {
    const int64_t at = firstRow * groups() + i;
    block.params.scales[i] = numerics::loadScale(stored[WeightTensor::Scales], at, scheme.scales);
    if (!scheme.symmetric)
      block.params.zeroPoints[i] = static_cast<int8_t>(stored[WeightTensor::ZeroPoints][at]);
  }
}

static Result<std::unique_ptr<WeightCodec>>
makeByteQuantized(const numerics::Scheme &scheme, int64_t rows, int64_t columns, const char *name,
                  numerics::CodeFormat codes, const char *what) {
  if (auto ok = checkCompressedTensors(scheme, rows, columns); !ok)
    return Unexpected(ok.error());
  if (scheme.codes != codes)
    return makeError(ErrorCode::Unsupported, "{} holds {}, found {}", name, what,
                     numerics::toString(scheme));
  return std::make_unique<ByteQuantizedCodec>(scheme, rows, columns);
}

Result<std::unique_ptr<WeightCodec>> formats::intQuantizedCodec(const numerics::Scheme &scheme,
                                                                int64_t rows, int64_t columns) {
  return makeByteQuantized(scheme, rows, columns, "int-quantized", numerics::CodeFormat::Integer,
                           "integers");
}

Result<std::unique_ptr<WeightCodec>> formats::floatQuantizedCodec(const numerics::Scheme &scheme,
                                                                  int64_t rows, int64_t columns) {
  return makeByteQuantized(scheme, rows, columns, "float-quantized", numerics::CodeFormat::F8E4M3FN,
                           "FP8 (E4M3)");
}
