//===- Packing.cpp - Panels of packed codes -------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Packing.h"

#include "PackParams.h"

#include <bit>
#include <cassert>
#include <cstring>

namespace easyquant::numerics {
namespace {

// Four or eight codes at a time in a register, byte i of memory being byte i of the word.
static_assert(std::endian::native == std::endian::little,
              "EasyQuant runs on little-endian machines");

/// Codes from..from+7 of a row of K columns, 0 beyond its end or when there is no such row.
EASYQUANT_INLINE uint64_t loadCodes(const int8_t *row, int64_t from, int64_t columns) {
  uint64_t word = 0;
  if (row && from + 8 <= columns)
    std::memcpy(&word, row + from, 8);
  else if (row && from < columns)
    std::memcpy(&word, row + from, columns - from);
  return word;
}

//===- Blocks of 8 columns ------------------------------------------------===//
// A field is a code + 2^(b-1) in a byte of its own; eight of them are a word.

constexpr uint64_t kOnes = 0x0101010101010101;

/// Two's complement + 2^(b-1) flips the sign bit.
template <int bits> EASYQUANT_INLINE uint64_t fieldsOf(uint64_t codes) {
  constexpr uint64_t mask = kOnes * ((1 << bits) - 1), signs = kOnes << (bits - 1);
  return (codes ^ signs) & mask;
}
/// The last four columns `shift` bits above the first four.
EASYQUANT_INLINE uint32_t foldHalves(uint64_t fields, int shift) {
  return static_cast<uint32_t>(fields) | static_cast<uint32_t>(fields >> 32) << shift;
}
/// Words of 4 bytes in a block.
constexpr int64_t blockWords(int bits) { return kPanelRows * bits / 4; }

/// `count` bits of each field from bit `first` on, as codes of so many bits are packed.
template <int count>
EASYQUANT_INLINE void packPlane(const uint64_t *fields, int first, uint32_t *out) {
  constexpr uint64_t mask = kOnes * ((1 << count) - 1);
  auto plane = [&](int64_t r) { return (fields[r] >> first) & mask; };
  if constexpr (count == 4)
    for (int64_t r = 0; r < kPanelRows; ++r)
      out[r] = foldHalves(plane(r), 4);
  if constexpr (count == 2)
    for (int64_t r = 0; r < 16; ++r)
      out[r] = foldHalves(plane(r), 2) | foldHalves(plane(16 + r), 2) << 4;
  if constexpr (count == 1)
    for (int64_t r = 0; r < 8; ++r) {
      out[r] = 0;
      for (int64_t f = 0; f < 4; ++f)
        out[r] |= foldHalves(plane(8 * f + r), 1) << (2 * f);
    }
}

template <int bits> EASYQUANT_INLINE void packBlock(const uint64_t *codes, uint32_t *out) {
  uint64_t fields[kPanelRows];
  for (int64_t r = 0; r < kPanelRows; ++r)
    fields[r] = fieldsOf<bits>(codes[r]);
  if constexpr (bits == 8)
    for (int64_t r = 0; r < kPanelRows; ++r) {
      out[r] = static_cast<uint32_t>(fields[r]);
      out[kPanelRows + r] = static_cast<uint32_t>(fields[r] >> 32);
    }
  else {
    // The widest plane first; it has four bits, or two.
    constexpr int upper = bits >= 4 ? 4 : 2, lower = bits - upper;
    packPlane<upper>(fields, lower, out);
    if constexpr (lower > 0)
      packPlane<lower>(fields, 0, out + blockWords(upper));
  }
}

/// Columns that are taken from every row at a time: whole cache lines, since rows a power of two
/// bytes apart meet in the same few lines of the cache.
constexpr int64_t kTileColumns = 64;

template <int bits>
EASYQUANT_INLINE void packPanelOf(int64_t columns, int64_t rows, const int8_t *codes,
                                  uint8_t *out) {
  constexpr int64_t words = blockWords(bits), blocks = kTileColumns / 8;
  uint64_t tile[blocks][kPanelRows];
  uint32_t packed[words];
  for (int64_t j = 0; j < columns; j += kTileColumns) {
    const int64_t used = std::min(blocks, (columns - j + 7) / 8);
    for (int64_t r = 0; r < kPanelRows; ++r) {
      const int8_t *row = r < rows ? codes + r * columns : nullptr;
      for (int64_t i = 0; i < used; ++i)
        tile[i][r] = loadCodes(row, j + 8 * i, columns);
    }
    for (int64_t i = 0; i < used; ++i, out += sizeof(packed)) {
      packBlock<bits>(tile[i], packed);
      std::memcpy(out, packed, sizeof(packed));
    }
  }
}

} // namespace

Result<PanelLayout> panelLayout(const Scheme &scheme, int64_t rows, int64_t columns) {
  if (auto ok = checkPackedWeight(scheme, rows, columns); !ok)
    return Unexpected(ok.error());
  if (scheme.groupSize % 8 != 0)
    return makeError(ErrorCode::Unsupported,
                     "weights as {}: the CPU kernels take group sizes that are multiples of 8 "
                     "(such as {})",
                     toString(scheme), (scheme.groupSize + 7) / 8 * 8);
  return PanelLayout{scheme, rows, columns};
}

std::vector<LayoutKind> kindsOfPacking() {
  return {{kPanelLayout, [](const Scheme &scheme, int64_t rows, int64_t columns) {
             return asLayout(panelLayout(scheme, rows, columns));
           }}};
}

EASYQUANT_VECTOR_CLONES
static void packRows(int bits, int64_t columns, int64_t rows, const int8_t *codes, uint8_t *out) {
  switch (bits) {
  case 2:
    return packPanelOf<2>(columns, rows, codes, out);
  case 3:
    return packPanelOf<3>(columns, rows, codes, out);
  case 4:
    return packPanelOf<4>(columns, rows, codes, out);
  case 5:
    return packPanelOf<5>(columns, rows, codes, out);
  case 6:
    return packPanelOf<6>(columns, rows, codes, out);
  case 8:
    return packPanelOf<8>(columns, rows, codes, out);
  default:
    assert(false && "panelLayout lets no other scheme through");
  }
}

//===- Parameters ---------------------------------------------------------===//

/// Places of ui6 scales in a panel.
constexpr int kSubBits = 6;
constexpr int64_t kSuperBytes = kPanelRows * 2, kSubBytes = panelFieldBytes(kSubBits);

/// Row r of a panel, whose bytes were 0; padding rows have 63/64 of 1.
static void packSuperScales(uint8_t *out, int64_t r, std::span<const float> scales) {
  const auto groups = std::ssize(scales);
  uint8_t *subs = out + superGroupCount(groups) * kSuperBytes;
  for (int64_t first = 0; first < groups; first += kSuperGroups) {
    auto part = scales.subspan(first, std::min(kSuperGroups, groups - first));
    const float outer = superScaleOf(part).value_or(1); // checkScales lets no others through
    storeScale(out + first / kSuperGroups * kSuperBytes, r, outer, ScaleFormat::F16);
    for (int64_t g = first; g < first + std::ssize(part); ++g) {
      const auto n = static_cast<int32_t>(
          encodeScale(roundScale(scales[g] / outer, ScaleFormat::UI6), ScaleFormat::UI6));
      orPanelField(subs + g * kSubBytes, r, kSubBits, n);
    }
  }
}

std::vector<int64_t> PanelLayout::shape(WeightTensor tensor) const {
  const int64_t words = paddedColumns(columns) / 4; // of four columns of a row
  switch (tensor) {
  case WeightTensor::Codes:
    return scheme.bits == 8 ? std::vector{panels(), words, kPanelRows, int64_t(4)}
                            : std::vector{panels(), words / 2, blockWords(scheme.bits), int64_t(4)};
  case WeightTensor::Scales:
    if (scheme.scales == ScaleFormat::UI6)
      return {panels(), 1, kPanelRows * rowScaleBits(scheme.scales, groups()) / 8};
    break;
  case WeightTensor::ZeroPoints:
    return {panels(), groups(), panelFieldBytes(scheme.bits)};
  case WeightTensor::Minima:
  case WeightTensor::Sums:
    break;
  case WeightTensor::Outer:
    return {panels(), 1, kPanelRows};
  case WeightTensor::Codebook:
    return {int64_t(1) << scheme.bits};
  }
  return {panels(), groups(), kPanelRows};
}

void PanelLayout::pack(int64_t firstRow, const QuantizedMatrix &block, PackedWeight &out) const {
  const QParams &params = block.params;
  // There is one for the whole weight, and the block of the first rows has it.
  if (firstRow == 0 && has(WeightTensor::Codebook))
    std::memcpy(out[WeightTensor::Codebook].data(), scheme.table->values().data(),
                bytes(WeightTensor::Codebook));
  const int32_t offset = int32_t(1) << (scheme.bits - 1);
  for (int64_t first = 0; first < block.rows; first += kPanelRows) {
    const int64_t panel = (firstRow + first) / kPanelRows;
    auto place = [&](WeightTensor tensor) {
      return has(tensor) ? out[tensor].data() + panel * (bytes(tensor) / panels()) : nullptr;
    };
    const int64_t inside = std::min(kPanelRows, block.rows - first);
    packRows(scheme.bits, columns, inside, block.codes.data() + first * columns,
             place(WeightTensor::Codes));
    uint8_t *scales = place(WeightTensor::Scales), *zeros = place(WeightTensor::ZeroPoints);
    uint8_t *sums = place(WeightTensor::Sums), *outer = place(WeightTensor::Outer);
    uint8_t *minima = place(WeightTensor::Minima);
    const bool isTwoLevel = scheme.scales == ScaleFormat::UI6;
    const std::vector<float> padding(isTwoLevel ? groups() : 0, 63.0f / 64);
    for (int64_t r = 0; isTwoLevel && r < kPanelRows; ++r)
      packSuperScales(scales, r,
                      r < inside
                          ? std::span(params.scales).subspan((first + r) * groups(), groups())
                          : padding);
    for (int64_t g = 0; g < groups(); ++g)
      for (int64_t r = 0; r < kPanelRows; ++r) {
        const bool isRow = r < inside;
        const int64_t at = g * kPanelRows + r;
        const int64_t index = isRow ? paramIndex(params, first + r, g) : 0;
        if (!isTwoLevel)
          storeScale(scales, at, isRow ? innerScale(params, first + r, g, scheme) : 1.0f,
                     scheme.scales);
        if (zeros)
          orPanelField(zeros + g * panelFieldBytes(scheme.bits), r, scheme.bits,
                       isRow ? zeroPointOf(scheme, params, index) + offset : offset);
        if (minima)
          storeScale(minima, at, isRow ? params.minima[index] : 0.0f, scheme.scales);
        if (sums) {
          const int32_t sum = isRow ? groupSum(block, first + r, g) : 0;
          std::memcpy(sums + at * sizeof(sum), &sum, sizeof(sum));
        }
      }
    for (int64_t r = 0; outer && r < kPanelRows; ++r)
      storeScale(outer, r, r < inside ? params.outerOf(first + r) : 1.0f, ScaleFormat::F32);
  }
}

} // namespace easyquant::numerics
