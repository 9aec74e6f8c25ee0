//===- FragmentPacking.cpp - Codes and scales as GPUs read them -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/FragmentPacking.h"

#include "PackParams.h"

#include <algorithm>
#include <cstring>

namespace easyquant::numerics {
namespace {

/// Where a code of a block is: bit `bit` .. of the block's bytes as little-endian words.
struct Place {
  int64_t word; ///< of the block
  int bit;
};

/// Where the upper bits of a code in two planes are.
Place placeOfUpperBits(int bits, FragmentOrder order, int64_t r, int64_t k) {
  const int64_t upper = highPlaneBits(bits), low = lowPlaneBits(bits);
  const int64_t g = r % 8, tile = r / 8;
  auto place = [&](int64_t q, int64_t bit) {
    const int64_t lane = 4 * g + q;
    return Place{kFragmentBytes / 4 + highPlaneWords(bits) * lane + tile / highPlaneTiles(bits),
                 static_cast<int>(bit % 32)};
  };
  if (order == FragmentOrder::M16N8K32) {
    const int64_t half = k / 16, q = k % 16 / 4, i = k % 4;
    return place(q, 8 * i + upper * (2 * (tile % highPlaneTiles(bits)) + half));
  }
  const int64_t reg = k / 8, q = k % 8 / 2, i = k % 2;
  return place(q, 16 * i + low * reg + low + fragmentTurn(bits, tile));
}

/// Row r < fragmentRows(bits), column k < 32 of a block; codes in two planes have low bits there.
Place placeOf(int bits, FragmentOrder order, int64_t r, int64_t k) {
  int64_t g = r % 8, tile = r / 8; // an 8-row tile of mma's B operand
  if (order == FragmentOrder::M16N8K32) {
    int64_t half = k / 16, q = k % 16 / 4, i = k % 4, lane = 4 * g + q;
    switch (bits) {
    case 8:
      return {4 * lane + 2 * tile + half, static_cast<int>(8 * i)};
    case 4:
      return {4 * lane + tile, static_cast<int>(8 * i + 4 * half)};
    default:
      return {4 * lane + tile % 4, static_cast<int>(8 * i + 4 * (tile / 4) + 2 * half)};
    }
  }
  int64_t reg = k / 8, q = k % 8 / 2, i = k % 2, lane = 4 * g + q;
  switch (bits) {
  case 8:
    return {4 * lane + 2 * tile + reg / 2, static_cast<int>(16 * (reg % 2) + 8 * i)};
  case 4:
    return {4 * lane + tile, static_cast<int>(16 * i + 4 * reg)};
  default:
    return {4 * lane + tile % 4, static_cast<int>(16 * i + 8 * (tile / 4) + 2 * reg)};
  }
}

/// body(code index in rows first .. first + count - 1, first bit of the code, how many of its bits,
/// byte of the packed weight, bit in that byte) for every part of every code.
template <typename Body>
void forCodes(const FragmentLayout &layout, int64_t first, int64_t count, Body body) {
  const int bits = layout.scheme.bits, low = lowPlaneBits(bits), upper = highPlaneBits(bits);
  int64_t blockRows = fragmentRows(bits);
  for (int64_t n = first; n < first + count; ++n)
    for (int64_t k = 0; k < layout.columns; ++k) {
      int64_t block = n / blockRows * layout.columnBlocks() + k / kFragmentColumns;
      int64_t row = n % blockRows, column = k % kFragmentColumns;
      auto visit = [&](int begin, int bitCount, Place place) {
        body((n - first) * layout.columns + k, begin, bitCount,
             block * fragmentBytes(bits) + 4 * place.word + place.bit / 8, place.bit % 8);
      };
      visit(0, low, placeOf(low, layout.order, row, column));
      if (upper)
        visit(low, upper, placeOfUpperBits(bits, layout.order, row, column));
    }
}

/// body(index in the matrix, index of the packed 16-bit element) for every float.
template <typename Body> void forFloats(int64_t rows, int64_t columns, Body body) {
  constexpr int64_t kRows = fragmentRows(16);
  int64_t columnBlocks = (columns + kFragmentColumns - 1) / kFragmentColumns;
  for (int64_t n = 0; n < rows; ++n)
    for (int64_t k = 0; k < columns; ++k) {
      int64_t block = n / kRows * columnBlocks + k / kFragmentColumns, g = n % kRows;
      int64_t reg = k % kFragmentColumns / 8, q = k % 8 / 2, i = k % 2;
      body(n * columns + k, block * (kFragmentBytes / 2) + 8 * (4 * g + q) + 2 * reg + i);
    }
}

} // namespace

std::string_view nameOf(FragmentOrder order) {
  static constexpr std::string_view names[] = {"m16n8k32", "m16n8k16"};
  return names[static_cast<int>(order)];
}

bool hasScaledBlocks(const Scheme &scheme) {
  return scheme.codes == CodeFormat::F4E2M1FN && scheme.scales == ScaleFormat::F8E4M3FN &&
         scheme.groupSize == kBlockColumns;
}

Result<FragmentLayout> fragmentLayout(const Scheme &scheme, FragmentOrder order, int64_t rows,
                                      int64_t columns) {
  if (auto ok = checkPackedWeight(scheme, rows, columns); !ok)
    return Unexpected(ok.error());
  const bool isBytes = order == FragmentOrder::M16N8K32;
  if (isBytes && !scheme.hasIntegerValues() && scheme.codes != CodeFormat::F8E4M3FN)
    return makeError(ErrorCode::Unsupported,
                     "weights as {}: the GPU kernels on codes take integers, tables of int8 values "
                     "or f8E4M3FN",
                     toString(scheme));
  if (scheme.groupSize % kFragmentColumns != 0 && (isBytes || scheme.groupSize != kFragmentStep))
    return makeError(ErrorCode::Unsupported,
                     "weights as {}: the GPU kernels{} take group sizes that are {}multiples of {} "
                     "(such as {})",
                     toString(scheme), isBytes ? " on int8 activations" : "",
                     isBytes ? "" : fmt::format("{} or ", kFragmentStep), kFragmentColumns,
                     !isBytes && scheme.groupSize < kFragmentStep
                         ? kFragmentStep
                         : (scheme.groupSize + kFragmentColumns - 1) / kFragmentColumns *
                               kFragmentColumns);
  return FragmentLayout{scheme, order, rows, columns};
}

template <FragmentOrder order> static LayoutKind kindOf() {
  return {nameOf(order), [](const Scheme &scheme, int64_t rows, int64_t columns) {
            return asLayout(fragmentLayout(scheme, order, rows, columns));
          }};
}

std::vector<LayoutKind> kindsOfFragmentPacking() {
  return {kindOf<FragmentOrder::M16N8K32>(), kindOf<FragmentOrder::M16N8K16>()};
}

std::vector<int64_t> FragmentLayout::shape(WeightTensor tensor) const {
  constexpr int64_t laneBytes = 16;
  const int64_t blocks = fragmentScaleRows(rows) / kFragmentScaleRows;
  switch (tensor) {
  case WeightTensor::Codes:
    return {rowBlocks(), columnBlocks(), fragmentBytes(scheme.bits) / laneBytes, laneBytes};
  case WeightTensor::Scales:
    if (scheme.scales == ScaleFormat::UI6)
      return {1, blocks, kFragmentScaleRows * rowScaleBits(scheme.scales, groups()) / 8};
    break;
  case WeightTensor::ZeroPoints:
    return {groups(), blocks, kFragmentScaleRows * scheme.bits / 8};
  case WeightTensor::Minima:
  case WeightTensor::Sums:
    break;
  case WeightTensor::Outer:
    return {1, blocks, kFragmentScaleRows};
  case WeightTensor::Codebook:
    return {int64_t(1) << scheme.bits};
  }
  return {groups(), blocks, kFragmentScaleRows};
}

/// The number of row n, of `bits` bits, in bytes that are 0, 8 b of them for every 64 rows.
static void orRowField(uint8_t *out, int64_t n, int bits, int32_t value) {
  const int upper = upperBits(bits), lower = bits - upper;
  const int64_t r = n % kFragmentScaleRows;
  uint8_t *block = out + n / kFragmentScaleRows * (kFragmentScaleRows * bits / 8);
  orField(block, r / (8 / upper), r % (8 / upper), upper, value >> lower);
  if (lower)
    orField(block + kFragmentScaleRows * upper / 8, r / (8 / lower), r % (8 / lower), lower,
            value & ((1 << lower) - 1));
}

void FragmentLayout::packScales(const QParams &params, int64_t row, int64_t n,
                                std::vector<uint8_t> &out) const {
  const int64_t padded = fragmentScaleRows(rows);
  const bool isRow = row >= 0;
  if (scheme.scales != ScaleFormat::UI6) {
    for (int64_t g = 0; g < groups(); ++g)
      storeScale(out.data(), g * padded + n, isRow ? innerScale(params, row, g, scheme) : 1.0f,
                 scheme.scales);
    return;
  }
  uint8_t *numbers = out.data() + superGroupCount(groups()) * padded * 2;
  for (int64_t first = 0; first < groups(); first += kSuperGroups) {
    const int64_t count = std::min(kSuperGroups, groups() - first);
    auto part = isRow ? std::span(params.scales).subspan(row * groups() + first, count)
                      : std::span<const float>();
    // checkScales lets no scales through that are no products.
    const float super = isRow ? superScaleOf(part).value_or(1) : 1.0f;
    storeScale(out.data(), first / kSuperGroups * padded + n, super, ScaleFormat::F16);
    for (int64_t i = 0; i < count; ++i) {
      const float number = isRow ? roundScale(part[i] / super, ScaleFormat::UI6) : 63.0f / 64;
      orRowField(numbers + (first + i) * (padded * 6 / 8), n, 6,
                 static_cast<int32_t>(encodeScale(number, ScaleFormat::UI6)));
    }
  }
}

void FragmentLayout::pack(int64_t firstRow, const QuantizedMatrix &block, PackedWeight &out) const {
  uint8_t *codes = out[WeightTensor::Codes].data();
  // Two's complement of integers; the bits of other formats are code + 2^(b-1).
  const int32_t offset = int32_t(1) << (scheme.bits - 1);
  const int32_t origin = scheme.isInteger() ? 0 : offset;
  forCodes(*this, firstRow, block.rows,
           [&](int64_t index, int first, int count, int64_t byte, int bit) {
             int field = ((block.codes[index] + origin) >> first) & ((1 << count) - 1);
             codes[byte] |= static_cast<uint8_t>(field << bit);
           });
  // There is one for the whole weight, and the block of the first rows has it.
  if (firstRow == 0 && has(WeightTensor::Codebook))
    std::memcpy(out[WeightTensor::Codebook].data(), scheme.table->values().data(),
                bytes(WeightTensor::Codebook));
  const int64_t padded = fragmentScaleRows(rows), end = firstRow + block.rows;
  for (int64_t n = firstRow; n < (end == rows ? padded : end); ++n) {
    const bool isRow = n < end;
    packScales(block.params, isRow ? n - firstRow : -1, n, out[WeightTensor::Scales]);
    if (scheme.outer)
      storeScale(out[WeightTensor::Outer].data(), n,
                 isRow ? block.params.outerOf(n - firstRow) : 1.0f, ScaleFormat::F32);
    for (int64_t g = 0; g < groups(); ++g) {
      const int64_t at = g * padded + n;
      const int64_t index = isRow ? paramIndex(block.params, n - firstRow, g) : 0;
      if (scheme.hasZeroPoints())
        orRowField(out[WeightTensor::ZeroPoints].data() + g * (padded * scheme.bits / 8), n,
                   scheme.bits, (isRow ? zeroPointOf(scheme, block.params, index) : 0) + offset);
      if (scheme.minima)
        storeScale(out[WeightTensor::Minima].data(), at, isRow ? block.params.minima[index] : 0.0f,
                   scheme.scales);
      if (withSums) {
        const int32_t sum = isRow ? groupSum(block, n - firstRow, g) : 0;
        std::memcpy(out[WeightTensor::Sums].data() + at * sizeof(sum), &sum, sizeof(sum));
      }
    }
  }
}

void packFloatFragments(int64_t rows, int64_t columns, const uint16_t *weights, uint8_t *out) {
  std::fill_n(out, floatFragmentBytes(rows, columns), uint8_t(0));
  forFloats(rows, columns, [&](int64_t index, int64_t place) {
    std::memcpy(out + 2 * place, weights + index, 2);
  });
}

} // namespace easyquant::numerics
