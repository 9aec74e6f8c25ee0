//===- GGMLSuperBlocks.cpp - Blocks of blocks of llama.cpp ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// 256 weights under an f16; each group of 16 or 32 of them has an integer that this is multiplied
// with. The product has at most 18 bits, so that f32 holds it as it is (GGMLType.cpp has the same
// layouts in floats).
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

/// Codes of 256 weights, and scales of their groups.
using UnpackBlock = void(const uint8_t *block, int8_t *codes, float *scales);

struct SuperBlockType {
  GGMLType type;
  int bits;
  int64_t group;
  bool isIQ4NL; ///< codes are indices of its table
  UnpackBlock *unpack;
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
    for (int64_t i = 0; i < block.rows * blocks; ++i)
      type.unpack(bytes + i * blockBytes, &block.codes[i * kSuperBlock],
                  &block.params.scales[i * (kSuperBlock / type.group)]);
  }

private:
  const SuperBlockType &type;
  const int64_t blockBytes;
};

float halfAt(const uint8_t *bytes) {
  return numerics::loadScale(bytes, 0, numerics::ScaleFormat::F16);
}

/// hmask[32], qs[64], scales[12], d
void unpackQ3_K(const uint8_t *block, int8_t *codes, float *scales) {
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
void unpackQ6_K(const uint8_t *block, int8_t *codes, float *scales) {
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
void unpackIQ4_XS(const uint8_t *block, int8_t *codes, float *scales) {
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

constexpr SuperBlockType kSuperBlocks[] = {{GGMLType::Q3_K, 3, 16, false, unpackQ3_K},
                                           {GGMLType::Q6_K, 6, 16, false, unpackQ6_K},
                                           {GGMLType::IQ4_XS, 4, 32, true, unpackIQ4_XS}};

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
                .granularity = numerics::Granularity::Group,
                .groupSize = known->group,
                .fullRange = !known->isIQ4NL};
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
