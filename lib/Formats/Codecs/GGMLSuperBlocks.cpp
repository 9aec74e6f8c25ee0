//===- GGMLSuperBlocks.cpp - Blocks of blocks of llama.cpp ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// 256 weights under an f16, or one for scales and one for minima; each group of 16 or 32 of them
// has an integer that this is multiplied with. The product has at most 18 bits, so that f32 holds
// it as it is (GGMLType.cpp has the same layouts in floats). Minima are subtracted in the file and
// added in a scheme.
//
//===----------------------------------------------------------------------===//

#include "GGMLSuperBlocks.h"

#include <cstring>

using namespace easyquant;
using namespace easyquant::formats;
using numerics::QuantizedMatrix;
using numerics::Scheme;
using numerics::WeightTensor;

namespace {

constexpr int64_t kSuperBlock = 256;

/// Codes of 256 weights, and scales and minima of their groups.
using UnpackBlock = void(const uint8_t *block, int8_t *codes, float *scales, float *minima);

struct SuperBlockType {
  GGMLType type;
  int bits;
  int64_t group;
  UnpackBlock *unpack;
  bool isIQ4NL = false; ///< codes are indices of its table
  bool hasMinima = false;
};

class SuperBlockReader final : public WeightReader {
public:
  SuperBlockReader(const SuperBlockType &type, int64_t rows, int64_t columns)
      : WeightReader(*superBlockScheme(type.type), rows, columns), type(type),
        blockBytes(ggmlTypeInfo(static_cast<uint32_t>(type.type))->blockBytes) {}

  std::vector<CodecTensor> tensors() const override {
    return {{"weight", DType::U8, {rows, columns / kSuperBlock * blockBytes}, WeightTensor::Codes}};
  }

protected:
  void unpackRows(int64_t firstRow, const StoredParts &stored,
                  QuantizedMatrix &block) const override {
    const int64_t blocks = columns / kSuperBlock;
    const uint8_t *bytes = stored[WeightTensor::Codes] + firstRow * blocks * blockBytes;
    const int64_t groups = kSuperBlock / type.group;
    for (int64_t i = 0; i < block.rows * blocks; ++i)
      type.unpack(bytes + i * blockBytes, &block.codes[i * kSuperBlock],
                  &block.params.scales[i * groups],
                  type.hasMinima ? &block.params.minima[i * groups] : nullptr);
  }

private:
  const SuperBlockType &type;
  const int64_t blockBytes;
};

float halfAt(const uint8_t *bytes) {
  return numerics::loadScale(bytes, 0, numerics::ScaleFormat::F16);
}

/// hmask[32], qs[64], scales[12], d
void unpackQ3_K(const uint8_t *block, int8_t *codes, float *scales, float *) {
  const uint8_t *high = block, *low = block + 32, *packed = block + 96;
  const float d = halfAt(block + 108);
  for (int g = 0; g < 16; ++g) {
    const int nibble = packed[g % 8] >> (g / 8 * 4) & 0xf, top = packed[8 + g % 4] >> (g / 4 * 2);
    scales[g] = d * static_cast<float>((nibble | (top & 3) << 4) - 32);
  }
  for (int i = 0; i < kSuperBlock; ++i) {
    const int field = (low[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) |
                      (high[i % 32] >> (i / 32) & 1) << 2;
    codes[i] = static_cast<int8_t>(field - 4);
  }
}

/// ql[128], qh[64], scales[16], d
void unpackQ6_K(const uint8_t *block, int8_t *codes, float *scales, float *) {
  const uint8_t *low = block, *high = block + 128;
  const float d = halfAt(block + 208);
  for (int g = 0; g < 16; ++g)
    scales[g] = d * static_cast<float>(static_cast<int8_t>(block[192 + g]));
  for (int i = 0; i < kSuperBlock; ++i) {
    const int half = i / 128, j = i % 128 / 32, l = i % 32;
    const int field = (low[64 * half + 32 * (j % 2) + l] >> (j / 2 * 4) & 0xf) |
                      (high[32 * half + l] >> (2 * j) & 3) << 4;
    codes[i] = static_cast<int8_t>(field - 32);
  }
}

/// d, the high bits of the scales (u16), their low ones [4], qs[128]
void unpackIQ4_XS(const uint8_t *block, int8_t *codes, float *scales, float *) {
  const float d = halfAt(block);
  const int high = block[2] | block[3] << 8;
  for (int g = 0; g < 8; ++g) {
    const int scale = (block[4 + g / 2] >> (g % 2 * 4) & 0xf) | (high >> (2 * g) & 3) << 4;
    scales[g] = d * static_cast<float>(scale - 32);
    const uint8_t *qs = block + 8 + 16 * g;
    for (int i = 0; i < 32; ++i)
      codes[32 * g + i] = static_cast<int8_t>((qs[i % 16] >> (i / 16 * 4) & 0xf) - 8);
  }
}

/// scales[16], a scale in the low four bits and a minimum in the high ones, qs[64], d, dmin
void unpackQ2_K(const uint8_t *block, int8_t *codes, float *scales, float *minima) {
  const uint8_t *packed = block, *qs = block + 16;
  const float d = halfAt(block + 80), least = halfAt(block + 82);
  for (int g = 0; g < 16; ++g) {
    scales[g] = d * static_cast<float>(packed[g] & 0xf);
    minima[g] = -(least * static_cast<float>(packed[g] >> 4));
  }
  for (int i = 0; i < kSuperBlock; ++i)
    codes[i] = static_cast<int8_t>((qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) - 2);
}

/// d, dmin and scales[12]: six bits a group of each. Those of groups 0 to 3 are the low six bits of
/// bytes 0-3 and 4-7. Four bits of those of groups 4 to 7 are in bytes 8-11, the top two in the
/// others.
void unpackScalesAndMinima(const uint8_t *block, float *scales, float *minima) {
  const float d = halfAt(block), least = halfAt(block + 2);
  const uint8_t *packed = block + 4;
  for (int g = 0; g < 8; ++g) {
    const int scale = g < 4 ? packed[g] & 63 : (packed[g + 4] & 0xf) | packed[g - 4] >> 6 << 4;
    const int minimum = g < 4 ? packed[g + 4] & 63 : packed[g + 4] >> 4 | packed[g] >> 6 << 4;
    scales[g] = d * static_cast<float>(scale);
    minima[g] = -(least * static_cast<float>(minimum));
  }
}

/// The low four bits of weight i.
int nibbleAt(const uint8_t *qs, int i) {
  return qs[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 0xf;
}

/// d, dmin, scales[12], qs[128]
void unpackQ4_K(const uint8_t *block, int8_t *codes, float *scales, float *minima) {
  unpackScalesAndMinima(block, scales, minima);
  for (int i = 0; i < kSuperBlock; ++i)
    codes[i] = static_cast<int8_t>(nibbleAt(block + 16, i) - 8);
}

/// d, dmin, scales[12], qh[32], qs[128]
void unpackQ5_K(const uint8_t *block, int8_t *codes, float *scales, float *minima) {
  unpackScalesAndMinima(block, scales, minima);
  for (int i = 0; i < kSuperBlock; ++i) {
    const int high = block[16 + i % 32] >> (i / 32) & 1;
    codes[i] = static_cast<int8_t>((nibbleAt(block + 48, i) | high << 4) - 16);
  }
}

constexpr SuperBlockType kSuperBlocks[] = {
    {GGMLType::Q2_K, 2, 16, unpackQ2_K, false, /*hasMinima=*/true},
    {GGMLType::Q3_K, 3, 16, unpackQ3_K},
    {GGMLType::Q4_K, 4, 32, unpackQ4_K, false, /*hasMinima=*/true},
    {GGMLType::Q5_K, 5, 32, unpackQ5_K, false, /*hasMinima=*/true},
    {GGMLType::Q6_K, 6, 16, unpackQ6_K},
    {GGMLType::IQ4_XS, 4, 32, unpackIQ4_XS, /*isIQ4NL=*/true}};

const SuperBlockType *find(GGMLType type) {
  for (const SuperBlockType &known : kSuperBlocks)
    if (known.type == type)
      return &known;
  return nullptr;
}

} // namespace

std::optional<Scheme> formats::superBlockScheme(GGMLType type) {
  const SuperBlockType *known = find(type);
  if (!known)
    return std::nullopt;
  Scheme scheme{.bits = known->bits,
                .symmetric = !known->hasMinima,
                .granularity = numerics::Granularity::Group,
                .groupSize = known->group,
                .fullRange = !known->isIQ4NL && !known->hasMinima,
                .minima = known->hasMinima};
  if (known->isIQ4NL) {
    scheme.codes = numerics::CodeFormat::Table;
    scheme.table = numerics::Codebook::iq4nl();
  }
  return scheme;
}

Result<std::unique_ptr<WeightReader>> formats::superBlockReader(GGMLType type, int64_t rows,
                                                                int64_t columns) {
  if (columns % kSuperBlock != 0)
    return makeError(ErrorCode::Corrupt, "{} columns are no whole blocks of {}", columns,
                     kSuperBlock);
  return std::make_unique<SuperBlockReader>(*find(type), rows, columns);
}
