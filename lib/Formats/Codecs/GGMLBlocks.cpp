//===- GGMLBlocks.cpp - The blocks of llama.cpp ---------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Types whose blocks are a scale, a minimum in some, and 32 codes, in the order of their bytes
// (GGMLType.h says what they stand for):
//
//   Q8_0, d, qs[32]      Q4_0, IQ4_NL, d, qs[16]      Q5_0, d, qh[4], qs[16]      MXFP4, e, qs[16]
//                        Q4_1, d, m, qs[16]           Q5_1, d, m, qh[4], qs[16]
//
// d and m are f16, e a power of two. A byte of qs has the low four bits of weights i and i + 16,
// bit i of qh the fifth of weight i.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/Codecs/GGMLBlocks.h"

#include "CheckpointFormats.h"
#include "GGMLSuperBlocks.h"

#include <cstring>

using namespace easyquant;
using namespace easyquant::formats;
using numerics::CodeFormat;
using numerics::QuantizedMatrix;
using numerics::ScaleFormat;
using numerics::Scheme;
using numerics::WeightTensor;

namespace {

constexpr int64_t kBlock = 32;

/// A type, and the schemes that it holds.
struct BlockType {
  GGMLType type;
  int bits;
  CodeFormat codes;
  ScaleFormat scales;
  bool minima = false;
};
constexpr BlockType kBlockTypes[] = {
    {GGMLType::Q8_0, 8, CodeFormat::Integer, ScaleFormat::F16},
    {GGMLType::Q5_0, 5, CodeFormat::Integer, ScaleFormat::F16},
    {GGMLType::Q4_0, 4, CodeFormat::Integer, ScaleFormat::F16},
    {GGMLType::IQ4_NL, 4, CodeFormat::Table, ScaleFormat::F16},
    {GGMLType::MXFP4, 4, CodeFormat::F4E2M1FN, ScaleFormat::F8E8M0FNU},
    {GGMLType::Q5_1, 5, CodeFormat::Integer, ScaleFormat::F16, /*minima=*/true},
    {GGMLType::Q4_1, 4, CodeFormat::Integer, ScaleFormat::F16, /*minima=*/true},
};

class GGMLCodec final : public WeightCodec {
public:
  GGMLCodec(const Scheme &scheme, int64_t rows, int64_t columns, const GGMLTypeInfo &info)
      : WeightCodec(scheme, rows, columns), info(info) {}

  std::vector<CodecTensor> tensors() const override {
    return {{"weight", DType::U8, {rows, rowBytes()}, WeightTensor::Codes}};
  }
  /// Blocks have their scales within them.
  bool has(WeightTensor tensor) const override { return tensor == WeightTensor::Codes; }
  void pack(int64_t firstRow, const QuantizedMatrix &block,
            numerics::PackedWeight &out) const override;

protected:
  void unpackRows(int64_t firstRow, const StoredParts &stored,
                  QuantizedMatrix &rows) const override;

private:
  int64_t rowBytes() const { return columns / kBlock * info.blockBytes; }
  /// Bytes of the scale, and of the minimum where there is one.
  int64_t paramBytes() const {
    return numerics::scaleBytes(scheme.scales) * (scheme.minima ? 2 : 1);
  }

  const GGMLTypeInfo &info;
};

} // namespace

void GGMLCodec::pack(int64_t firstRow, const QuantizedMatrix &block,
                     numerics::PackedWeight &out) const {
  uint8_t *bytes = out[WeightTensor::Codes].data() + firstRow * rowBytes();
  for (int64_t r = 0; r < block.rows; ++r)
    for (int64_t g = 0; g < groups(); ++g, bytes += info.blockBytes) {
      const int8_t *codes = &block.codes[r * columns + g * kBlock];
      const int64_t index = paramIndex(block.params, r, g);
      storeScale(bytes, 0, block.params.scales[index], scheme.scales);
      if (scheme.minima)
        storeScale(bytes, 1, block.params.minima[index], scheme.scales);
      uint8_t *qs = bytes + info.blockBytes - (scheme.bits == 8 ? kBlock : kBlock / 2);
      if (scheme.bits == 8) {
        std::memcpy(qs, codes, kBlock);
        continue;
      }
      uint32_t high = 0;
      for (int i = 0; i < kBlock; ++i) {
        const uint32_t field = fieldOf(codes[i]);
        qs[i % 16] |= static_cast<uint8_t>((field & 0xf) << (i / 16 * 4));
        high |= (field >> 4) << i;
      }
      if (scheme.bits == 5)
        std::memcpy(bytes + paramBytes(), &high, sizeof(high));
    }
}

void GGMLCodec::unpackRows(int64_t firstRow, const StoredParts &stored,
                           QuantizedMatrix &block) const {
  const uint8_t *bytes = stored[WeightTensor::Codes] + firstRow * rowBytes();
  for (int64_t r = 0; r < block.rows; ++r)
    for (int64_t g = 0; g < groups(); ++g, bytes += info.blockBytes) {
      int8_t *codes = &block.codes[r * columns + g * kBlock];
      block.params.scales[r * groups() + g] = numerics::loadScale(bytes, 0, scheme.scales);
      if (scheme.minima)
        block.params.minima[r * groups() + g] = numerics::loadScale(bytes, 1, scheme.scales);
      const uint8_t *qs = bytes + info.blockBytes - (scheme.bits == 8 ? kBlock : kBlock / 2);
      if (scheme.bits == 8) {
        std::memcpy(codes, qs, kBlock);
        continue;
      }
      uint32_t high = 0;
      if (scheme.bits == 5)
        std::memcpy(&high, bytes + paramBytes(), sizeof(high));
      for (int i = 0; i < kBlock; ++i) {
        const uint32_t low = qs[i % 16] >> (i / 16 * 4) & 0xf;
        codes[i] = static_cast<int8_t>(codeOf(low | (high >> i & 1) << 4));
      }
    }
}

const GGMLTypeInfo *formats::ggmlTypeOf(const Scheme &scheme) {
  if (scheme.superBlocks && scheme.hadamard == 0)
    return superBlockTypeOf(scheme);
  if (scheme.hasZeroPoints() || scheme.outer || scheme.hadamard != 0 ||
      scheme.groupSize != kBlock || (scheme.table && scheme.table != numerics::Codebook::iq4nl()))
    return nullptr;
  for (const BlockType &known : kBlockTypes)
    if (known.bits == scheme.bits && known.codes == scheme.codes && known.scales == scheme.scales &&
        known.minima == scheme.minima)
      return ggmlTypeInfo(static_cast<uint32_t>(known.type));
  return nullptr;
}

std::optional<Scheme> formats::schemeOf(GGMLType type) {
  for (const BlockType &known : kBlockTypes)
    if (known.type == type)
      return Scheme{.bits = known.bits,
                    .symmetric = !known.minima,
                    .granularity = numerics::Granularity::Group,
                    .groupSize = kBlock,
                    .fullRange = known.codes == CodeFormat::Integer && !known.minima,
                    .codes = known.codes,
                    .scales = known.scales,
                    .table =
                        known.codes == CodeFormat::Table ? numerics::Codebook::iq4nl() : nullptr,
                    .minima = known.minima};
  return type == GGMLType::NVFP4 ? nvfp4BlockScheme() : superBlockScheme(type);
}

Result<std::unique_ptr<WeightReader>> formats::ggmlReader(GGMLType type, int64_t rows,
                                                          int64_t columns) {
  if (type == GGMLType::NVFP4)
    return nvfp4BlockReader(rows, columns);
  auto codec = ggmlCodec(*schemeOf(type), rows, columns);
  if (!codec)
    return Unexpected(codec.error());
  return std::unique_ptr<WeightReader>(std::move(*codec));
}

static constexpr const char *kName = "gguf";

Result<std::unique_ptr<WeightCodec>> formats::ggmlCodec(const Scheme &scheme, int64_t rows,
                                                        int64_t columns) {
  if (auto ok = checkStoredWeight(kName, scheme, rows, columns, /*hasMinima=*/true); !ok)
    return Unexpected(ok.error());
  const GGMLTypeInfo *type = ggmlTypeOf(scheme);
  if (!type)
    return makeError(
        ErrorCode::Unsupported,
        "{} holds the schemes Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4A16, Q2_K, Q3_K, Q4_K, "
        "Q5_K, Q6_K and IQ4_XS, found {}",
        kName, numerics::toString(scheme));
  if (scheme.superBlocks)
    return superBlockCodec(scheme, rows, columns);
  return std::make_unique<GGMLCodec>(scheme, rows, columns, *type);
}

//===----------------------------------------------------------------------===//
// The format
//===----------------------------------------------------------------------===//

namespace {

class GGUFFormat final : public CheckpointFormat {
public:
  GGUFFormat() : CheckpointFormat(kName, /*isHalf=*/true) {}

  Result<std::unique_ptr<WeightCodec>> codecFor(const QuantizedSite &site) const override {
    if (auto ok = checkWeightOnly(name, site); !ok)
      return Unexpected(ok.error());
    return ggmlCodec(site.weight, site.rows, site.columns);
  }
  bool holdsHead() const override { return true; }
  bool isGGUF() const override { return true; }
};

} // namespace

const CheckpointFormat *formats::ggufFormat() {
  static const GGUFFormat format;
  return &format;
}
