//===- GGMLType.cpp - Block-quantized types of GGUF -----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Layouts of the blocks, in the order of their bytes (ggml-common.h of ggml defines them):
//
//   Q4_0  d, qs[16]             Q5_0  d, qh[4], qs[16]       Q8_0  d, qs[32]
//   Q4_1  d, m, qs[16]          Q5_1  d, m, qh[4], qs[16]    Q8_K  d (fp32), qs[256], sums[16]
//   (i16) Q2_K  scales[16], qs[64], d, m Q3_K  qh[32], qs[64], scales[12], d Q4_K  d, m,
//   scales[12], qs[128] Q5_K  d, m, scales[12], qh[32], qs[128] Q6_K  ql[128], qh[64], scales[16],
//   d
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/GGMLType.h"

#include "Half.h"

#include "easyquant/Numerics/NumberFormats.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

// A fused multiply-add would round once where ggml rounds twice.
#pragma STDC FP_CONTRACT OFF

using namespace easyquant;
using namespace easyquant::formats;

static constexpr std::array kGGMLTypes = {
    GGMLTypeInfo{GGMLType::F32, "F32", 1, 4, true},
    GGMLTypeInfo{GGMLType::F16, "F16", 1, 2, true},
    GGMLTypeInfo{GGMLType::Q4_0, "Q4_0", 32, 18, true},
    GGMLTypeInfo{GGMLType::Q4_1, "Q4_1", 32, 20, true},
    GGMLTypeInfo{GGMLType::Q5_0, "Q5_0", 32, 22, true},
    GGMLTypeInfo{GGMLType::Q5_1, "Q5_1", 32, 24, true},
    GGMLTypeInfo{GGMLType::Q8_0, "Q8_0", 32, 34, true},
    GGMLTypeInfo{GGMLType::Q8_1, "Q8_1", 32, 36, false},
    GGMLTypeInfo{GGMLType::Q2_K, "Q2_K", 256, 84, true},
    GGMLTypeInfo{GGMLType::Q3_K, "Q3_K", 256, 110, true},
    GGMLTypeInfo{GGMLType::Q4_K, "Q4_K", 256, 144, true},
    GGMLTypeInfo{GGMLType::Q5_K, "Q5_K", 256, 176, true},
    GGMLTypeInfo{GGMLType::Q6_K, "Q6_K", 256, 210, true},
    GGMLTypeInfo{GGMLType::Q8_K, "Q8_K", 256, 292, true},
    GGMLTypeInfo{GGMLType::IQ2_XXS, "IQ2_XXS", 256, 66, false},
    GGMLTypeInfo{GGMLType::IQ2_XS, "IQ2_XS", 256, 74, false},
    GGMLTypeInfo{GGMLType::IQ3_XXS, "IQ3_XXS", 256, 98, false},
    GGMLTypeInfo{GGMLType::IQ1_S, "IQ1_S", 256, 50, false},
    GGMLTypeInfo{GGMLType::IQ4_NL, "IQ4_NL", 32, 18, true},
    GGMLTypeInfo{GGMLType::IQ3_S, "IQ3_S", 256, 110, false},
    GGMLTypeInfo{GGMLType::IQ2_S, "IQ2_S", 256, 82, false},
    GGMLTypeInfo{GGMLType::IQ4_XS, "IQ4_XS", 256, 136, true},
    GGMLTypeInfo{GGMLType::I8, "I8", 1, 1, false},
    GGMLTypeInfo{GGMLType::I16, "I16", 1, 2, false},
    GGMLTypeInfo{GGMLType::I32, "I32", 1, 4, false},
    GGMLTypeInfo{GGMLType::I64, "I64", 1, 8, false},
    GGMLTypeInfo{GGMLType::F64, "F64", 1, 8, false},
    GGMLTypeInfo{GGMLType::IQ1_M, "IQ1_M", 256, 56, false},
    GGMLTypeInfo{GGMLType::BF16, "BF16", 1, 2, true},
    GGMLTypeInfo{GGMLType::TQ1_0, "TQ1_0", 256, 54, false},
    GGMLTypeInfo{GGMLType::TQ2_0, "TQ2_0", 256, 66, false},
    GGMLTypeInfo{GGMLType::MXFP4, "MXFP4", 32, 17, true},
    GGMLTypeInfo{GGMLType::NVFP4, "NVFP4", 64, 36, true},
};

static constexpr const GGMLTypeInfo *findType(uint32_t type) {
  const auto *found = std::ranges::find(
      kGGMLTypes, type, [](const GGMLTypeInfo &info) { return static_cast<uint32_t>(info.type); });
  return found == kGGMLTypes.end() ? nullptr : found;
}

const GGMLTypeInfo *formats::ggmlTypeInfo(uint32_t type) { return findType(type); }

namespace {

uint8_t byteAt(const std::byte *data, int index) { return std::to_integer<uint8_t>(data[index]); }
int8_t signedAt(const std::byte *data, int index) { return static_cast<int8_t>(data[index]); }
float halfAt(const std::byte *data) { return halfToFloat(load<uint16_t>(data)); }

void dequantizeF32(const std::byte *block, float *out) { *out = load<float>(block); }
void dequantizeF16(const std::byte *block, float *out) { *out = halfAt(block); }
void dequantizeBF16(const std::byte *block, float *out) {
  *out = bfloatToFloat(load<uint16_t>(block));
}

/// out[i] = valueOf(nibble, i): weights 0 to 15 are the low nibbles of 16 bytes, 16 to 31 the high.
template <typename ValueOf> void eachNibble(const std::byte *qs, float *out, ValueOf valueOf) {
  for (int i = 0; i < 16; ++i) {
    out[i] = valueOf(byteAt(qs, i) & 0xf, i);
    out[i + 16] = valueOf(byteAt(qs, i) >> 4, i + 16);
  }
}

void dequantizeQ4_0(const std::byte *block, float *out) {
  const float d = halfAt(block);
  eachNibble(block + 2, out, [&](int q, int) { return static_cast<float>(q - 8) * d; });
}

void dequantizeQ4_1(const std::byte *block, float *out) {
  const float d = halfAt(block), m = halfAt(block + 2);
  eachNibble(block + 4, out, [&](int q, int) { return static_cast<float>(q) * d + m; });
}

/// The fifth bits of a block are one 32-bit word, bit i belonging to weight i.
int fiveBits(uint32_t high, int low, int index) {
  return low | static_cast<int>(high >> index & 1) << 4;
}

void dequantizeQ5_0(const std::byte *block, float *out) {
  const float d = halfAt(block);
  const auto qh = load<uint32_t>(block + 2);
  eachNibble(block + 6, out,
             [&](int q, int i) { return static_cast<float>(fiveBits(qh, q, i) - 16) * d; });
}

void dequantizeQ5_1(const std::byte *block, float *out) {
  const float d = halfAt(block), m = halfAt(block + 2);
  const auto qh = load<uint32_t>(block + 4);
  eachNibble(block + 8, out,
             [&](int q, int i) { return static_cast<float>(fiveBits(qh, q, i)) * d + m; });
}

void dequantizeQ8_0(const std::byte *block, float *out) {
  const float d = halfAt(block);
  for (int i = 0; i < 32; ++i)
    out[i] = static_cast<float>(signedAt(block + 2, i)) * d;
}

// The K-quants hold 256 weights. In Q2_K and Q3_K, weight 128h + 32j + l (h < 2, j < 4, l < 32) has
// its low two bits in byte 32h + l of qs, at bit 2j.

void dequantizeQ2_K(const std::byte *block, float *out) {
  const std::byte *scales = block, *qs = block + 16;
  const float d = halfAt(block + 80), m = halfAt(block + 82);
  for (int i = 0; i < 256; ++i) {
    const int q = byteAt(qs, i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3;
    const uint8_t scale = byteAt(scales, i / 16);
    out[i] = d * static_cast<float>(scale & 0xf) * static_cast<float>(q) -
             m * static_cast<float>(scale >> 4);
  }
}

void dequantizeQ3_K(const std::byte *block, float *out) {
  const std::byte *qh = block, *qs = block + 32, *packed = block + 96;
  const float d = halfAt(block + 108);
  // Scale i: its low nibble in byte i % 8 (the upper half of the byte for i >= 8), its two high
  // bits in byte 8 + i % 4 at bit 2 (i / 4).
  std::array<float, 16> scales;
  for (int i = 0; i < 16; ++i) {
    const int low = byteAt(packed, i % 8) >> (i / 8 * 4) & 0xf;
    const int high = byteAt(packed, 8 + i % 4) >> (i / 4 * 2) & 3;
    scales[i] = d * static_cast<float>((low | high << 4) - 32);
  }
  for (int i = 0; i < 256; ++i) {
    const int low = byteAt(qs, i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3;
    const int high = byteAt(qh, i % 32) >> (i / 32) & 1;
    out[i] = scales[i / 16] * static_cast<float>((low | high << 2) - 4);
  }
}

/// The eight 6-bit scales and minima of Q4_K and Q5_K in 12 bytes. Those of groups 0 to 3 are the
/// low six bits of bytes 0-3 and 4-7. For groups 4 to 7 the nibbles of bytes 8-11 hold four bits,
/// and the top bits of bytes 0-3 and 4-7 the other two.
struct ScaleMin {
  int scale, min;
};
ScaleMin scaleMinAt(const std::byte *packed, int group) {
  if (group < 4)
    return {byteAt(packed, group) & 63, byteAt(packed, group + 4) & 63};
  return {(byteAt(packed, group + 4) & 0xf) | byteAt(packed, group - 4) >> 6 << 4,
          byteAt(packed, group + 4) >> 4 | byteAt(packed, group) >> 6 << 4};
}

// In Q4_K and Q5_K, weight 32g + l (g < 8, l < 32) has its low four bits in byte 16 (g - g % 2) + l
// of qs, in the lower nibble if g is even; the fifth bit of Q5_K is bit g of byte l of qh.

void dequantizeQ4_K(const std::byte *block, float *out) {
  const float d = halfAt(block), m = halfAt(block + 2);
  const std::byte *packed = block + 4, *qs = block + 16;
  for (int group = 0; group < 8; ++group) {
    const auto [scale, min] = scaleMinAt(packed, group);
    const float step = d * static_cast<float>(scale), offset = m * static_cast<float>(min);
    for (int l = 0; l < 32; ++l) {
      const int q = byteAt(qs, group / 2 * 32 + l) >> (group % 2 * 4) & 0xf;
      out[32 * group + l] = step * static_cast<float>(q) - offset;
    }
  }
}

void dequantizeQ5_K(const std::byte *block, float *out) {
  const float d = halfAt(block), m = halfAt(block + 2);
  const std::byte *packed = block + 4, *qh = block + 16, *qs = block + 48;
  for (int group = 0; group < 8; ++group) {
    const auto [scale, min] = scaleMinAt(packed, group);
    const float step = d * static_cast<float>(scale), offset = m * static_cast<float>(min);
    for (int l = 0; l < 32; ++l) {
      const int low = byteAt(qs, group / 2 * 32 + l) >> (group % 2 * 4) & 0xf;
      const int high = byteAt(qh, l) >> group & 1;
      out[32 * group + l] = step * static_cast<float>(low | high << 4) - offset;
    }
  }
}

// In Q6_K, weight 128h + 32j + l has its low four bits in byte 64h + 32 (j % 2) + l of ql, in the
// upper nibble for j >= 2, and its high two in byte 32h + l of qh, at bit 2j.

void dequantizeQ6_K(const std::byte *block, float *out) {
  const std::byte *ql = block, *qh = block + 128, *scales = block + 192;
  const float d = halfAt(block + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, j = i % 128 / 32, l = i % 32;
    const int low = byteAt(ql, 64 * half + j % 2 * 32 + l) >> (j / 2 * 4) & 0xf;
    const int high = byteAt(qh, 32 * half + l) >> (2 * j) & 3;
    out[i] = d * static_cast<float>(signedAt(scales, i / 16)) *
             static_cast<float>((low | high << 4) - 32);
  }
}

void dequantizeQ8_K(const std::byte *block, float *out) {
  const auto d = load<float>(block);
  for (int i = 0; i < 256; ++i)
    out[i] = d * static_cast<float>(signedAt(block + 4, i));
}

void dequantizeIQ4_NL(const std::byte *block, float *out) {
  const float d = halfAt(block);
  eachNibble(block + 2, out, [&](int q, int) { return d * numerics::kIQ4NL[q]; });
}

// In IQ4_XS, group g (of 32) has the low four bits of its scale in byte g / 2 of scales, in the
// upper nibble if g is odd, and the high two in bits 2g and 2g + 1 of a 16-bit word before them.

void dequantizeIQ4_XS(const std::byte *block, float *out) {
  const float d = halfAt(block);
  const auto high = load<uint16_t>(block + 2);
  const std::byte *scales = block + 4, *qs = block + 8;
  for (int g = 0; g < 8; ++g, out += 32, qs += 16) {
    const int low = byteAt(scales, g / 2) >> (4 * (g % 2)) & 0xf;
    const float step = d * static_cast<float>((low | (high >> (2 * g) & 3) << 4) - 32);
    eachNibble(qs, out, [&](int q, int) { return step * numerics::kIQ4NL[q]; });
  }
}

/// Twice the values of FP4 (E2M1), for half of the scale.
constexpr int8_t kTwiceFP4[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// Half of a power of two, 2^(e - 127).
float halfOfPower(int e) {
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : static_cast<uint32_t>(e - 1) << 23);
}

/// Half of a number of FP8 (E4M3) without its sign; what is NaN counts as 0.
float halfOfFP8(int bits) {
  const int exponent = bits >> 3 & 0xf, mantissa = bits & 7;
  if ((bits & 0x7f) == 0x7f)
    return 0;
  return exponent ? std::ldexp(static_cast<float>(8 + mantissa), exponent - 11)
                  : std::ldexp(static_cast<float>(mantissa), -10);
}

void dequantizeMXFP4(const std::byte *block, float *out) {
  const float d = halfOfPower(byteAt(block, 0));
  eachNibble(block + 1, out, [&](int q, int) { return d * static_cast<float>(kTwiceFP4[q]); });
}

void dequantizeNVFP4(const std::byte *block, float *out) {
  for (int g = 0; g < 4; ++g, out += 16) {
    const float d = halfOfFP8(byteAt(block, g));
    for (int i = 0; i < 16; ++i)
      out[i] =
          d * static_cast<float>(kTwiceFP4[byteAt(block, 4 + 8 * g + i % 8) >> (i / 8 * 4) & 0xf]);
  }
}

template <GGMLType type, void (*dequantizeBlock)(const std::byte *, float *)>
void eachBlock(const std::byte *block, std::span<float> out) {
  constexpr const GGMLTypeInfo &info = *findType(static_cast<uint32_t>(type));
  for (size_t i = 0; i < out.size(); i += info.blockElements, block += info.blockBytes)
    dequantizeBlock(block, out.data() + i);
}

struct Dequantizer {
  GGMLType type;
  void (*run)(const std::byte *blocks, std::span<float> out);
};
template <GGMLType type, void (*dequantizeBlock)(const std::byte *, float *)>
constexpr Dequantizer kDequantizer = {type, eachBlock<type, dequantizeBlock>};

/// One for each type that canDequantize.
constexpr Dequantizer kDequantizers[] = {
    kDequantizer<GGMLType::F32, dequantizeF32>,
    kDequantizer<GGMLType::F16, dequantizeF16>,
    kDequantizer<GGMLType::BF16, dequantizeBF16>,
    kDequantizer<GGMLType::Q4_0, dequantizeQ4_0>,
    kDequantizer<GGMLType::Q4_1, dequantizeQ4_1>,
    kDequantizer<GGMLType::Q5_0, dequantizeQ5_0>,
    kDequantizer<GGMLType::Q5_1, dequantizeQ5_1>,
    kDequantizer<GGMLType::Q8_0, dequantizeQ8_0>,
    kDequantizer<GGMLType::Q2_K, dequantizeQ2_K>,
    kDequantizer<GGMLType::Q3_K, dequantizeQ3_K>,
    kDequantizer<GGMLType::Q4_K, dequantizeQ4_K>,
    kDequantizer<GGMLType::Q5_K, dequantizeQ5_K>,
    kDequantizer<GGMLType::Q6_K, dequantizeQ6_K>,
    kDequantizer<GGMLType::Q8_K, dequantizeQ8_K>,
    kDequantizer<GGMLType::IQ4_NL, dequantizeIQ4_NL>,
    kDequantizer<GGMLType::IQ4_XS, dequantizeIQ4_XS>,
    kDequantizer<GGMLType::MXFP4, dequantizeMXFP4>,
    kDequantizer<GGMLType::NVFP4, dequantizeNVFP4>,
};
static_assert(std::ranges::all_of(kGGMLTypes, [](const GGMLTypeInfo &info) {
  return info.canDequantize == std::ranges::count(kDequantizers, info.type, &Dequantizer::type);
}));

} // namespace

Result<void> formats::dequantize(GGMLType type, std::span<const std::byte> data,
                                 std::span<float> out) {
  const GGMLTypeInfo *info = ggmlTypeInfo(static_cast<uint32_t>(type));
  if (!info || !info->canDequantize)
    return makeError(ErrorCode::Unsupported, "dequantization of {} is not supported",
                     info ? info->name : "an unknown type");
  auto elements = static_cast<int64_t>(out.size()), bytes = static_cast<int64_t>(data.size());
  if (elements % info->blockElements != 0 ||
      bytes / info->blockBytes != elements / info->blockElements || bytes % info->blockBytes != 0)
    return makeError(ErrorCode::InvalidArgument, "{} bytes are not {} weights in blocks of {}",
                     bytes, elements, info->name);
  std::ranges::find(kDequantizers, type, &Dequantizer::type)->run(data.data(), out);
  return {};
}
