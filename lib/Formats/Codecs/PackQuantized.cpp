//===- PackQuantized.cpp - pack-quantized of compressed-tensors -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   weight_packed      I32 [N, ⌈K·b/32⌉]   the codes of a row of W, dense
//   weight_scale       [N, G]              in the type of the scheme
//   weight_zero_point  I32 [⌈N·b/32⌉, G]   of a group, row by row of W, down a column
//   weight_shape       I64 [2]             N, K
//
// Codes and zero points count from 0 on. There are no zero points of symmetric schemes.
//
//===----------------------------------------------------------------------===//

#include "BitString.h"
#include "CompressedTensors.h"

#include <cstring>

using namespace easyquant;
using namespace easyquant::formats;
using numerics::QuantizedMatrix;
using numerics::WeightTensor;

namespace {

class PackQuantizedCodec final : public WeightCodec {
public:
  using WeightCodec::WeightCodec;

  std::vector<CodecTensor> tensors() const override;
  void pack(int64_t firstRow, const QuantizedMatrix &block,
            numerics::PackedWeight &out) const override;

protected:
  void unpackRows(int64_t firstRow, const StoredParts &stored,
                  QuantizedMatrix &rows) const override;

private:
  template <typename Byte> BitString<Byte> codes(Byte *data, int64_t n) const {
    return {data + 4 * n * wordsOf(columns, scheme.bits), 1, scheme.bits};
  }
  template <typename Byte> BitString<Byte> zeros(Byte *data, int64_t g) const {
    return {data + 4 * g, groups(), scheme.bits};
  }
};

} // namespace

std::vector<CodecTensor> PackQuantizedCodec::tensors() const {
  const int bits = scheme.bits;
  std::vector<CodecTensor> all = {
      {"weight_packed", DType::I32, {rows, wordsOf(columns, bits)}, WeightTensor::Codes},
      {"weight_scale", scaleType(scheme.scales), {rows, groups()}, WeightTensor::Scales}};
  if (!scheme.symmetric)
    all.push_back({"weight_zero_point",
                   DType::I32,
                   {wordsOf(rows, bits), groups()},
                   WeightTensor::ZeroPoints});
  CodecTensor sizes{"weight_shape", DType::I64, {2}};
  sizes.constant.resize(2 * sizeof(int64_t));
  std::memcpy(sizes.constant.data(), &rows, sizeof(rows));
  std::memcpy(sizes.constant.data() + sizeof(rows), &columns, sizeof(columns));
  all.push_back(std::move(sizes));
  return all;
}

void PackQuantizedCodec::pack(int64_t firstRow, const QuantizedMatrix &block,
                              numerics::PackedWeight &out) const {
  for (int64_t r = 0; r < block.rows; ++r) {
    const int64_t n = firstRow + r;
    const auto row = codes(out[WeightTensor::Codes].data(), n);
    for (int64_t k = 0; k < columns; ++k)
      row.put(k, fieldOf(block.codes[r * columns + k]));
    for (int64_t g = 0; g < groups(); ++g) {
      const int64_t index = paramIndex(block.params, r, g);
      storeScale(out[WeightTensor::Scales].data(), n * groups() + g, block.params.scales[index],
                 scheme.scales);
      if (!scheme.symmetric)
        zeros(out[WeightTensor::ZeroPoints].data(), g)
            .put(n, fieldOf(zeroPointOf(scheme, block.params, index)));
    }
  }
}

void PackQuantizedCodec::unpackRows(int64_t firstRow, const StoredParts &stored,
                                    QuantizedMatrix &block) const {
  for (int64_t r = 0; r < block.rows; ++r) {
    const int64_t n = firstRow + r;
    const auto row = codes(stored[WeightTensor::Codes], n);
    for (int64_t k = 0; k < columns; ++k)
      block.codes[r * columns + k] = static_cast<int8_t>(codeOf(row.get(k)));
    for (int64_t g = 0; g < groups(); ++g) {
      const int64_t index = r * groups() + g;
      block.params.scales[index] =
          numerics::loadScale(stored[WeightTensor::Scales], n * groups() + g, scheme.scales);
      if (!scheme.symmetric)
        block.params.zeroPoints[index] = codeOf(zeros(stored[WeightTensor::ZeroPoints], g).get(n));
    }
  }
}

Result<std::unique_ptr<WeightCodec>> formats::packQuantizedCodec(const numerics::Scheme &scheme,
                                                                 int64_t rows, int64_t columns) {
  if (auto ok = checkCompressedTensors(scheme, rows, columns); !ok)
    return Unexpected(ok.error());
  if (!scheme.isInteger())
    return makeError(ErrorCode::Unsupported, "pack-quantized holds integers, found {}",
                     numerics::toString(scheme));
  return std::make_unique<PackQuantizedCodec>(scheme, rows, columns);
}

//===----------------------------------------------------------------------===//
// The older packing, which is read only
//===----------------------------------------------------------------------===//

namespace {

class PaddedPackReader final : public WeightReader {
public:
  using WeightReader::WeightReader;

  std::vector<CodecTensor> tensors() const override {
    std::vector<CodecTensor> all = {
        {"weight_packed", DType::I32, paddedShape(scheme, rows, columns), WeightTensor::Codes},
        {"weight_scale", scaleType(scheme.scales), {rows, groups()}, WeightTensor::Scales}};
    if (!scheme.symmetric)
      all.push_back({"weight_zero_point",
                     DType::I32,
                     {paddedWords(rows), groups()},
                     WeightTensor::ZeroPoints});
    return all;
  }

protected:
  void unpackRows(int64_t firstRow, const StoredParts &stored,
                  QuantizedMatrix &block) const override {
    for (int64_t r = 0; r < block.rows; ++r) {
      const int64_t n = firstRow + r;
      const uint8_t *row = stored[WeightTensor::Codes] + 4 * n * paddedWords(columns);
      for (int64_t k = 0; k < columns; ++k)
        block.codes[r * columns + k] = static_cast<int8_t>(codeOf(field(row, 1, k)));
      for (int64_t g = 0; g < groups(); ++g) {
        const int64_t index = r * groups() + g;
        block.params.scales[index] =
            numerics::loadScale(stored[WeightTensor::Scales], n * groups() + g, scheme.scales);
        if (!scheme.symmetric)
          block.params.zeroPoints[index] =
              codeOf(field(stored[WeightTensor::ZeroPoints] + 4 * g, groups(), n));
      }
    }
  }

private:
  int64_t perWord() const { return 32 / scheme.bits; }
  int64_t paddedWords(int64_t count) const { return (count + perWord() - 1) / perWord(); }
  /// Field i of a line whose words are `stride` apart.
  uint32_t field(const uint8_t *line, int64_t stride, int64_t i) const {
    uint32_t word;
    std::memcpy(&word, line + 4 * stride * (i / perWord()), sizeof(word));
    return word >> (i % perWord() * scheme.bits) & ((1u << scheme.bits) - 1);
  }
};

} // namespace

std::vector<int64_t> formats::paddedShape(const numerics::Scheme &scheme, int64_t rows,
                                          int64_t columns) {
  const int64_t perWord = 32 / scheme.bits;
  return {rows, (columns + perWord - 1) / perWord};
}

Result<std::unique_ptr<WeightReader>> formats::paddedPackReader(const numerics::Scheme &scheme,
                                                                int64_t rows, int64_t columns) {
  if (auto ok = checkCompressedTensors(scheme, rows, columns); !ok)
    return Unexpected(ok.error());
  return std::make_unique<PaddedPackReader>(scheme, rows, columns);
}
