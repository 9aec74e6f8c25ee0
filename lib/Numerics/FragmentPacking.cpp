//===- FragmentPacking.cpp - Codes and scales as GPUs read them -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/FragmentPacking.h"

#include "PackParams.h"

#include <cstring>

namespace easyquant::numerics {
namespace {

/// Where a code of a block is: bit `bit` .. of the block's bytes as little-endian words.
struct Place {
  int64_t word; ///< of the block
  int bit;
};

/// The bits of a code that lie side by side: a code of 3 bits is in two places.
struct Part {
  int first, count; ///< of the code's bits
};
constexpr Part kPartsOfThree[] = {{0, 2}, {2, 1}};

/// The third bit of a code of 3 bits, order M16N8K16.
Place placeOfThirdBit(int64_t r, int64_t k) {
  constexpr int kTurns[] = {0, 1, 8, 9};
  int64_t g = r % 8, tile = r / 8;
  int64_t reg = k / 8, q = k % 8 / 2, i = k % 2, lane = 4 * g + q;
  int64_t bit = (16 * i + 2 * reg + 2 + kTurns[tile % 4]) % 32;
  return {kFragmentBytes / 4 + 2 * lane + tile / 4, static_cast<int>(bit)};
}

/// Row r < fragmentRows(bits) and column k < 32 of a block; of 3 bits the low two.
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

/// body(code index in rows first .. first + count - 1, part of the code, byte of the packed weight,
/// bit in that byte) for every part of every code.
template <typename Body>
void forCodes(const FragmentLayout &layout, int64_t first, int64_t count, Body body) {
  int bits = layout.scheme.bits;
  int64_t blockRows = fragmentRows(bits);
  for (int64_t n = first; n < first + count; ++n)
    for (int64_t k = 0; k < layout.columns; ++k) {
      int64_t block = n / blockRows * layout.columnBlocks() + k / kFragmentColumns;
      int64_t row = n % blockRows, column = k % kFragmentColumns;
      auto visit = [&](Part part, Place place) {
        body((n - first) * layout.columns + k, part,
             block * fragmentBytes(bits) + 4 * place.word + place.bit / 8, place.bit % 8);
      };
      if (bits == 3) {
        visit(kPartsOfThree[0], placeOf(2, layout.order, row, column));
        visit(kPartsOfThree[1], placeOfThirdBit(row, column));
      } else {
        visit({0, bits}, placeOf(bits, layout.order, row, column));
      }
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

Result<FragmentLayout> fragmentLayout(const Scheme &scheme, FragmentOrder order, int64_t rows,
                                      int64_t columns) {
  if (auto ok = checkPackedWeight(scheme, rows, columns); !ok)
    return Unexpected(ok.error());
  if (scheme.minima)
    return makeError(ErrorCode::Unsupported,
                     "weights as {}: the GPU kernels take zero points, and no minima",
                     toString(scheme));
  if (scheme.bits == 5 || scheme.bits == 6)
    return makeError(ErrorCode::Unsupported,
                     "weights as {}: the GPU kernels take 2, 3, 4 or 8 bits", toString(scheme));
  if (scheme.bits == 3 && order == FragmentOrder::M16N8K32)
    return makeError(ErrorCode::Unsupported,
                     "weights as {}: the GPU kernels on int8 activations take 2, 4 or 8 bits",
                     toString(scheme));
  if (!scheme.isInteger() || scheme.outer ||
      (scheme.scales != ScaleFormat::F32 && scheme.scales != ScaleFormat::F16))
    return makeError(ErrorCode::Unsupported,
                     "weights as {}: the GPU kernels take integers with scales of f32 or f16",
                     toString(scheme));
  if (scheme.groupSize % kFragmentColumns != 0)
    return makeError(ErrorCode::Unsupported,
                     "weights as {}: the GPU kernels take group sizes that are multiples of 32 "
                     "(such as {})",
                     toString(scheme), (scheme.groupSize + 31) / 32 * 32);
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
  if (tensor == WeightTensor::Codes)
    return {rowBlocks(), columnBlocks(), fragmentBytes(scheme.bits) / laneBytes, laneBytes};
  const bool isZeroPoints = tensor == WeightTensor::ZeroPoints;
  return {groups(), fragmentScaleRows(rows) / kFragmentScaleRows,
          isZeroPoints ? kFragmentScaleRows * zeroPointBits(scheme.bits) / 8 : kFragmentScaleRows};
}

void FragmentLayout::pack(int64_t firstRow, const QuantizedMatrix &block, PackedWeight &out) const {
  uint8_t *codes = out[WeightTensor::Codes].data();
  forCodes(*this, firstRow, block.rows, [&](int64_t index, Part part, int64_t byte, int bit) {
    int field = (block.codes[index] >> part.first) & ((1 << part.count) - 1);
    codes[byte] |= static_cast<uint8_t>(field << bit);
  });
  const int64_t padded = fragmentScaleRows(rows), end = firstRow + block.rows;
  const int bits = zeroPointBits(scheme.bits), fields = 8 / bits;
  const int32_t offset = int32_t(1) << (scheme.bits - 1);
  for (int64_t g = 0; g < groups(); ++g)
    for (int64_t n = firstRow; n < (end == rows ? padded : end); ++n) {
      const bool isRow = n < end;
      const int64_t at = g * padded + n;
      const int64_t index = isRow ? paramIndex(block.params, n - firstRow, g) : 0;
      storeScale(out[WeightTensor::Scales].data(), at, isRow ? block.params.scales[index] : 1.0f,
                 scheme.scales);
      if (!scheme.symmetric)
        orField(out[WeightTensor::ZeroPoints].data(), at / fields, at % fields, bits,
                (isRow ? zeroPointOf(scheme, block.params, index) : 0) + offset);
      if (withSums) {
        const int32_t sum = isRow ? groupSum(block, n - firstRow, g) : 0;
        std::memcpy(out[WeightTensor::Sums].data() + at * sizeof(sum), &sum, sizeof(sum));
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
