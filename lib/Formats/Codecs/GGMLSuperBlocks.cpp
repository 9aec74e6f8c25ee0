//===- GGMLSuperBlocks.cpp - Blocks of blocks of llama.cpp ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// 256 weights under an f16, or one for scales and one for minima; each group of 16 or 32 of them
// has an integer that this is multiplied with (SuperBlocks.h; GGMLType.cpp has the same layouts in
// floats). Minima are subtracted in the file and added in a scheme. Each type has one description
// of where its fields lie, by which blocks are read and written.
//
//===----------------------------------------------------------------------===//

#include "GGMLSuperBlocks.h"

#include "easyquant/Numerics/ScaleRules.h"
#include "easyquant/Numerics/SuperBlocks.h"

#include <array>

using namespace easyquant;
using namespace easyquant::formats;
using numerics::QuantizedMatrix;
using numerics::Scheme;
using numerics::WeightTensor;

namespace {

using numerics::kSuperBlock;

/// Reads or writes fields of a block.
class Fields {
public:
  /// The bytes were 0 before.
  static Fields toWrite(uint8_t *block) { return {block, true}; }
  static Fields toRead(const uint8_t *block) { return {const_cast<uint8_t *>(block), false}; }

  /// `bits` of `value` from bit `from` on are those of byte `at` from bit `to` on.
  void bits(int64_t at, int to, int bits, int from, uint32_t &value) const {
    const uint32_t mask = (1u << bits) - 1;
    if (isWriting)
      block[at] |= static_cast<uint8_t>((value >> from & mask) << to);
    else
      value |= (block[at] >> to & mask) << from;
  }
  /// A byte in two's complement; `value` is counted from -128 on.
  void complement(int64_t at, uint32_t &value) const {
    if (isWriting)
      block[at] = static_cast<uint8_t>(value ^ 0x80);
    else
      value = block[at] ^ 0x80;
  }
  void half(int64_t at, float &value) const {
    if (isWriting)
      numerics::storeScale(block + at, 0, value, numerics::ScaleFormat::F16);
    else
      value = numerics::loadScale(block + at, 0, numerics::ScaleFormat::F16);
  }

private:
  Fields(uint8_t *block, bool isWriting) : block(block), isWriting(isWriting) {}

  uint8_t *block;
  bool isWriting;
};

/// What a block has: codes, and the integers of scales and minima, counted from the lowest of
/// their range on, with the f16 that they are in units of.
struct SuperBlock {
  std::array<uint32_t, kSuperBlock> codes = {};
  std::array<uint32_t, 16> scales = {}, minima = {};
  float scaleUnit = 0, minimumUnit = 0;
};
using Layout = void(const Fields &fields, SuperBlock &block);

/// The low two bits of weight i of Q2_K and Q3_K.
void pairAt(const Fields &fields, int64_t at, int i, uint32_t &code) {
  fields.bits(at + i / 128 * 32 + i % 32, i % 128 / 32 * 2, 2, 0, code);
}

/// The low four bits of weight i of Q4_K and Q5_K.
void nibbleAt(const Fields &fields, int64_t at, int i, uint32_t &code) {
  fields.bits(at + i / 64 * 32 + i % 32, i / 32 % 2 * 4, 4, 0, code);
}

/// scales[16], a scale in the low four bits and a minimum in the high ones, qs[64], d, dmin
void layoutQ2_K(const Fields &fields, SuperBlock &block) {
  for (int g = 0; g < 16; ++g) {
    fields.bits(g, 0, 4, 0, block.scales[g]);
    fields.bits(g, 4, 4, 0, block.minima[g]);
  }
  for (int i = 0; i < kSuperBlock; ++i)
    pairAt(fields, 16, i, block.codes[i]);
  fields.half(80, block.scaleUnit);
  fields.half(82, block.minimumUnit);
}

/// hmask[32], qs[64], scales[12], d
void layoutQ3_K(const Fields &fields, SuperBlock &block) {
  for (int g = 0; g < 16; ++g) {
    fields.bits(96 + g % 8, g / 8 * 4, 4, 0, block.scales[g]);
    fields.bits(104 + g % 4, g / 4 * 2, 2, 4, block.scales[g]);
  }
  for (int i = 0; i < kSuperBlock; ++i) {
    pairAt(fields, 32, i, block.codes[i]);
    fields.bits(i % 32, i / 32, 1, 2, block.codes[i]);
  }
  fields.half(108, block.scaleUnit);
}

/// d, dmin and scales[12]: six bits a group of each. Those of groups 0 to 3 are the low six bits of
/// bytes 0-3 and 4-7. Four bits of those of groups 4 to 7 are in bytes 8-11, the top two in the
/// others.
void layoutScalesAndMinima(const Fields &fields, SuperBlock &block) {
  fields.half(0, block.scaleUnit);
  fields.half(2, block.minimumUnit);
  for (int g = 0; g < 4; ++g) {
    fields.bits(4 + g, 0, 6, 0, block.scales[g]);
    fields.bits(8 + g, 0, 6, 0, block.minima[g]);
    fields.bits(12 + g, 0, 4, 0, block.scales[4 + g]);
    fields.bits(12 + g, 4, 4, 0, block.minima[4 + g]);
    fields.bits(4 + g, 6, 2, 4, block.scales[4 + g]);
    fields.bits(8 + g, 6, 2, 4, block.minima[4 + g]);
  }
}

/// d, dmin, scales[12], qs[128]
void layoutQ4_K(const Fields &fields, SuperBlock &block) {
  layoutScalesAndMinima(fields, block);
  for (int i = 0; i < kSuperBlock; ++i)
    nibbleAt(fields, 16, i, block.codes[i]);
}

/// d, dmin, scales[12], qh[32], qs[128]
void layoutQ5_K(const Fields &fields, SuperBlock &block) {
  layoutScalesAndMinima(fields, block);
  for (int i = 0; i < kSuperBlock; ++i) {
    nibbleAt(fields, 48, i, block.codes[i]);
    fields.bits(16 + i % 32, i / 32, 1, 4, block.codes[i]);
  }
}

/// ql[128], qh[64], scales[16], d. Scales are two's complement.
void layoutQ6_K(const Fields &fields, SuperBlock &block) {
  for (int i = 0; i < kSuperBlock; ++i) {
    const int half = i / 128, j = i % 128 / 32, l = i % 32;
    fields.bits(64 * half + 32 * (j % 2) + l, j / 2 * 4, 4, 0, block.codes[i]);
    fields.bits(128 + 32 * half + l, 2 * j, 2, 4, block.codes[i]);
  }
  for (int g = 0; g < 16; ++g)
    fields.complement(192 + g, block.scales[g]);
  fields.half(208, block.scaleUnit);
}

/// d, the high bits of the scales (u16), their low ones [4], qs[128]
void layoutIQ4_XS(const Fields &fields, SuperBlock &block) {
  fields.half(0, block.scaleUnit);
  for (int g = 0; g < 8; ++g) {
    fields.bits(4 + g / 2, g % 2 * 4, 4, 0, block.scales[g]);
    fields.bits(2 + g / 4, g % 4 * 2, 2, 4, block.scales[g]);
    for (int i = 0; i < 32; ++i)
      fields.bits(8 + 16 * g + i % 16, i / 16 * 4, 4, 0, block.codes[32 * g + i]);
  }
}

struct SuperBlockType {
  GGMLType type;
  int bits;
  int64_t group;
  Layout *layout;
  bool isIQ4NL = false; ///< codes are indices of its table
  bool hasMinima = false;
};
constexpr SuperBlockType kSuperBlocks[] = {
    {GGMLType::Q2_K, 2, 16, layoutQ2_K, false, /*hasMinima=*/true},
    {GGMLType::Q3_K, 3, 16, layoutQ3_K},
    {GGMLType::Q4_K, 4, 32, layoutQ4_K, false, /*hasMinima=*/true},
    {GGMLType::Q5_K, 5, 32, layoutQ5_K, false, /*hasMinima=*/true},
    {GGMLType::Q6_K, 6, 16, layoutQ6_K},
    {GGMLType::IQ4_XS, 4, 32, layoutIQ4_XS, /*isIQ4NL=*/true}};

const SuperBlockType *find(GGMLType type) {
  for (const SuperBlockType &known : kSuperBlocks)
    if (known.type == type)
      return &known;
  return nullptr;
}

class SuperBlockCodec final : public WeightCodec {
public:
  SuperBlockCodec(const Scheme &scheme, const SuperBlockType &type, int64_t rows, int64_t columns)
      : WeightCodec(scheme, rows, columns), type(type), integers(*numerics::superIntegers(scheme)),
        blockBytes(ggmlTypeInfo(static_cast<uint32_t>(type.type))->blockBytes) {}

  std::vector<CodecTensor> tensors() const override {
    return {{"weight", DType::U8, {rows, blocks() * blockBytes}, WeightTensor::Codes}};
  }
  /// Blocks have their scales within them.
  bool has(WeightTensor tensor) const override { return tensor == WeightTensor::Codes; }
  void pack(int64_t firstRow, const QuantizedMatrix &block,
            numerics::PackedWeight &out) const override;

protected:
  void unpackRows(int64_t firstRow, const StoredParts &stored,
                  QuantizedMatrix &block) const override;

private:
  int64_t blocks() const { return columns / kSuperBlock; }
  int64_t blockGroups() const { return kSuperBlock / type.group; }

  const SuperBlockType &type;
  const numerics::SuperIntegers &integers;
  const int64_t blockBytes;
};

} // namespace

void SuperBlockCodec::unpackRows(int64_t firstRow, const StoredParts &stored,
                                 QuantizedMatrix &block) const {
  const uint8_t *bytes = stored[WeightTensor::Codes] + firstRow * blocks() * blockBytes;
  for (int64_t b = 0; b < block.rows * blocks(); ++b, bytes += blockBytes) {
    SuperBlock fields;
    type.layout(Fields::toRead(bytes), fields);
    for (int64_t i = 0; i < kSuperBlock; ++i)
      block.codes[b * kSuperBlock + i] = static_cast<int8_t>(codeOf(fields.codes[i]));
    for (int64_t g = 0; g < blockGroups(); ++g) {
      auto integer = [](uint32_t field, numerics::CodeRange range) {
        return static_cast<float>(static_cast<int32_t>(field) + range.min);
      };
      const int64_t at = b * blockGroups() + g;
      block.params.scales[at] = fields.scaleUnit * integer(fields.scales[g], integers.scales);
      if (scheme.minima)
        block.params.minima[at] =
            -(fields.minimumUnit * integer(fields.minima[g], integers.minima));
    }
  }
}

void SuperBlockCodec::pack(int64_t firstRow, const QuantizedMatrix &block,
                           numerics::PackedWeight &out) const {
  uint8_t *bytes = out[WeightTensor::Codes].data() + firstRow * blocks() * blockBytes;
  const std::vector<numerics::ScaleUnits> units = numerics::unitsOf(block.params, scheme);
  for (int64_t b = 0; b < block.rows * blocks(); ++b, bytes += blockBytes) {
    const int64_t first = b * blockGroups();
    SuperBlock fields;
    fields.scaleUnit = units[first].scale;
    fields.minimumUnit = units[first].minimum;
    for (int64_t i = 0; i < kSuperBlock; ++i)
      fields.codes[i] = fieldOf(block.codes[b * kSuperBlock + i]);
    for (int64_t g = 0; g < blockGroups(); ++g) {
      auto field = [](float product, float unit, numerics::CodeRange range) {
        return static_cast<uint32_t>(numerics::superInteger(product, unit) - range.min);
      };
      fields.scales[g] = field(block.params.scales[first + g], fields.scaleUnit, integers.scales);
      if (scheme.minima)
        fields.minima[g] =
            field(-block.params.minima[first + g], fields.minimumUnit, integers.minima);
    }
    type.layout(Fields::toWrite(bytes), fields);
  }
}

std::optional<Scheme> formats::superBlockScheme(GGMLType type) {
  const SuperBlockType *known = find(type);
  if (!known)
    return std::nullopt;
  Scheme scheme{.bits = known->bits,
                .symmetric = !known->hasMinima,
                .granularity = numerics::Granularity::Group,
                .groupSize = known->group,
                .fullRange = !known->isIQ4NL && !known->hasMinima,
                .minima = known->hasMinima,
                .superBlocks = true};
  if (known->isIQ4NL) {
    scheme.codes = numerics::CodeFormat::Table;
    scheme.table = numerics::Codebook::iq4nl();
  }
  return scheme;
}

const GGMLTypeInfo *formats::superBlockTypeOf(const Scheme &scheme) {
  for (const SuperBlockType &known : kSuperBlocks)
    if (scheme.superBlocks && scheme.bits == known.bits && scheme.minima == known.hasMinima &&
        (scheme.table != nullptr) == known.isIQ4NL)
      return ggmlTypeInfo(static_cast<uint32_t>(known.type));
  return nullptr;
}

Result<std::unique_ptr<WeightCodec>> formats::superBlockCodec(const Scheme &scheme, int64_t rows,
                                                              int64_t columns) {
  const GGMLTypeInfo *type = superBlockTypeOf(scheme);
  if (columns % kSuperBlock != 0)
    return makeError(ErrorCode::Unsupported,
                     "{} holds whole blocks of {} columns: {} columns are none; take a scheme with "
                     "groups of 32, such as {}",
                     type->name, kSuperBlock, columns, scheme.bits <= 4 ? "Q4_0" : "Q8_0");
  return std::make_unique<SuperBlockCodec>(scheme, *find(type->type), rows, columns);
}
