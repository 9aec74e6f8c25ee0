//===- Packing.cpp - Panels of packed codes -------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Packing.h"

#include "PackRows.h"
#include "RowQuantize.h"

#include <bit>
#include <cassert>
#include <cstring>

namespace easyquant::numerics {
namespace {

// Four or eight codes at a time in a register, byte i of memory being byte i of the word.
static_assert(std::endian::native == std::endian::little, "EasyQuant runs on x86-64");

/// Codes from..from+7 of a row of K columns, 0 beyond its end or when there is no such row.
EASYQUANT_INLINE uint64_t loadCodes(const int8_t *row, int64_t from, int64_t columns) {
  uint64_t word = 0;
  if (row && from + 8 <= columns)
    std::memcpy(&word, row + from, 8);
  else if (row && from < columns)
    std::memcpy(&word, row + from, columns - from);
  return word;
}

void storeCodes(uint64_t word, int8_t *row, int64_t from, int64_t columns) {
  std::memcpy(row + from, &word, std::min<int64_t>(8, columns - from));
}

//===- Blocks of 8 columns ------------------------------------------------===//
// A field is a code + 2^(b-1) in a byte of its own; eight of them are a word.

constexpr uint64_t kOnes = 0x0101010101010101;

/// Two's complement + 2^(b-1) flips the sign bit.
template <int bits> EASYQUANT_INLINE uint64_t fieldsOf(uint64_t codes) {
  constexpr uint64_t mask = kOnes * ((1 << bits) - 1), signs = kOnes << (bits - 1);
  return (codes ^ signs) & mask;
}
/// Fields - 2^(b-1) without borrows: + 2^7 - 2^(b-1), which carries nothing, - 2^7.
template <int bits> uint64_t codesOf(uint64_t fields) {
  constexpr uint64_t rise = kOnes * (128 - (1 << (bits - 1)));
  return (fields + rise) ^ (kOnes << 7);
}

/// The last four columns `shift` bits above the first four.
EASYQUANT_INLINE uint32_t foldHalves(uint64_t fields, int shift) {
  return static_cast<uint32_t>(fields) | static_cast<uint32_t>(fields >> 32) << shift;
}
uint64_t unfoldHalves(uint32_t folded, int shift, uint64_t mask) {
  return (uint64_t(folded >> shift) << 32 | folded) & mask;
}

/// Words of 4 bytes in a block.
constexpr int64_t blockWords(int bits) { return kPanelRows * bits / 4; }

template <int bits> EASYQUANT_INLINE void packBlock(const uint64_t *codes, uint32_t *out) {
  uint64_t fields[kPanelRows];
  for (int64_t r = 0; r < kPanelRows; ++r)
    fields[r] = fieldsOf<bits>(codes[r]);
  if constexpr (bits == 8)
    for (int64_t r = 0; r < kPanelRows; ++r) {
      out[r] = static_cast<uint32_t>(fields[r]);
      out[kPanelRows + r] = static_cast<uint32_t>(fields[r] >> 32);
    }
  if constexpr (bits == 4)
    for (int64_t r = 0; r < kPanelRows; ++r)
      out[r] = foldHalves(fields[r], 4);
  if constexpr (bits == 2 || bits == 3) {
    constexpr uint64_t mask = kOnes * 3;
    for (int64_t r = 0; r < 16; ++r)
      out[r] = foldHalves((fields[r] >> (bits - 2)) & mask, 2) |
               foldHalves((fields[16 + r] >> (bits - 2)) & mask, 2) << 4;
  }
  if constexpr (bits == 3)
    for (int64_t r = 0; r < 8; ++r) {
      out[16 + r] = 0;
      for (int64_t f = 0; f < 4; ++f)
        out[16 + r] |= foldHalves(fields[8 * f + r] & kOnes, 1) << (2 * f);
    }
}

template <int bits> uint64_t unpackRow(const uint32_t *in, int64_t r) {
  if constexpr (bits == 8)
    return codesOf<8>(uint64_t(in[kPanelRows + r]) << 32 | in[r]);
  if constexpr (bits == 4)
    return codesOf<4>(unfoldHalves(in[r], 4, kOnes * 15));
  uint64_t fields = unfoldHalves(in[r % 16] >> (r / 16 * 4), 2, kOnes * 3);
  if constexpr (bits == 3)
    fields = fields << 1 | unfoldHalves(in[16 + r % 8] >> (r / 8 * 2), 1, kOnes);
  return codesOf<bits>(fields);
}

template <int bits>
EASYQUANT_INLINE void packPanelOf(const PanelLayout &layout, int64_t rows, const int8_t *codes,
                                  int64_t stride, uint8_t *out) {
  constexpr int64_t words = blockWords(bits);
  uint64_t block[kPanelRows];
  uint32_t packed[words];
  for (int64_t j = 0; j < layout.columns; j += 8, out += sizeof(packed)) {
    if (rows == kPanelRows && j + 8 <= layout.columns)
      for (int64_t r = 0; r < kPanelRows; ++r)
        std::memcpy(&block[r], codes + r * stride + j, 8);
    else
      for (int64_t r = 0; r < kPanelRows; ++r)
        block[r] = loadCodes(r < rows ? codes + r * stride : nullptr, j, layout.columns);
    packBlock<bits>(block, packed);
    std::memcpy(out, packed, sizeof(packed));
  }
}

template <int bits>
void unpackPanelOf(const PanelLayout &layout, int64_t rows, const uint8_t *packed, int8_t *codes) {
  uint32_t block[blockWords(bits)];
  for (int64_t j = 0; j < layout.columns; j += 8, packed += sizeof(block)) {
    std::memcpy(block, packed, sizeof(block));
    for (int64_t r = 0; r < rows; ++r)
      storeCodes(unpackRow<bits>(block, r), codes + r * layout.columns, j, layout.columns);
  }
}

/// The parameter of row `row` of the matrix, group g.
int64_t paramIndex(const PanelLayout &layout, const QParams &params, int64_t row, int64_t g) {
  return (params.rows == 1 ? 0 : row) * layout.groups() + g;
}

/// out[g, r] = value(row, index of its parameter, g), `padding` beyond the last row.
template <typename T, typename Value>
void packParams(const PanelLayout &layout, int64_t panel, const QParams &params, T padding,
                Value value, T *out) {
  int64_t rows = layout.panelRows(panel);
  for (int64_t g = 0; g < layout.groups(); ++g)
    for (int64_t r = 0; r < kPanelRows; ++r)
      out[g * kPanelRows + r] =
          r < rows ? value(r, paramIndex(layout, params, panel * kPanelRows + r, g), g) : padding;
}

template <typename T, typename U>
void unpackParams(const PanelLayout &layout, int64_t panel, const T *packed,
                  std::vector<U> &params) {
  int64_t rows = layout.panelRows(panel), groups = layout.groups();
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t g = 0; g < groups; ++g)
      params[(panel * kPanelRows + r) * groups + g] = packed[g * kPanelRows + r];
}

} // namespace

Result<void> checkPackedWeight(const Scheme &scheme, int64_t rows, int64_t columns) {
  if (auto ok = checkScheme(scheme); !ok)
    return ok;
  if (rows < 1 || columns < 1)
    return makeError(ErrorCode::InvalidArgument,
                     "packed weight of {} x {}: expected at least one row and one column", rows,
                     columns);
  if (scheme.dynamic)
    return makeError(ErrorCode::Unsupported,
                     "weights as {}: scales of weights are constants; make it static",
                     toString(scheme));
  return {};
}

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

EASYQUANT_VECTOR_CLONES
void packRows(const PanelLayout &layout, int64_t rows, const int8_t *codes, int64_t stride,
              uint8_t *out) {
  switch (layout.scheme.bits) {
  case 2:
    return packPanelOf<2>(layout, rows, codes, stride, out);
  case 3:
    return packPanelOf<3>(layout, rows, codes, stride, out);
  case 4:
    return packPanelOf<4>(layout, rows, codes, stride, out);
  case 8:
    return packPanelOf<8>(layout, rows, codes, stride, out);
  default:
    assert(false && "panelLayout lets no other scheme through");
  }
}

void packPanel(const PanelLayout &layout, int64_t panel, const int8_t *codes, uint8_t *out) {
  packRows(layout, layout.panelRows(panel), codes, layout.columns, out);
}

void unpackPanel(const PanelLayout &layout, int64_t panel, const uint8_t *packed, int8_t *codes) {
  int64_t rows = layout.panelRows(panel);
  switch (layout.scheme.bits) {
  case 2:
    return unpackPanelOf<2>(layout, rows, packed, codes);
  case 3:
    return unpackPanelOf<3>(layout, rows, packed, codes);
  case 4:
    return unpackPanelOf<4>(layout, rows, packed, codes);
  case 8:
    return unpackPanelOf<8>(layout, rows, packed, codes);
  default:
    assert(false && "panelLayout lets no other scheme through");
  }
}

void packPanelScales(const PanelLayout &layout, int64_t panel, const QParams &params, float *out) {
  auto scale = [&](int64_t, int64_t index, int64_t) { return params.scales[index]; };
  packParams(layout, panel, params, 1.0f, scale, out);
}

void unpackPanelScales(const PanelLayout &layout, int64_t panel, const float *packed,
                       QParams &params) {
  unpackParams(layout, panel, packed, params.scales);
}

static int32_t zeroPointOf(const QParams &params, int64_t index) {
  return params.zeroPoints.empty() ? 0 : params.zeroPoints[index];
}

void packPanelZeroPoints(const PanelLayout &layout, int64_t panel, const QParams &params,
                         int8_t *out) {
  auto zero = [&](int64_t, int64_t index, int64_t) {
    return static_cast<int8_t>(zeroPointOf(params, index));
  };
  packParams(layout, panel, params, int8_t(0), zero, out);
}

void unpackPanelZeroPoints(const PanelLayout &layout, int64_t panel, const int8_t *packed,
                           QParams &params) {
  unpackParams(layout, panel, packed, params.zeroPoints);
}

void packPanelSums(const PanelLayout &layout, int64_t panel, const int8_t *codes,
                   const QParams &params, int32_t *out) {
  auto sum = [&](int64_t row, int64_t index, int64_t g) {
    auto [begin, count] = groupColumns(g, layout.scheme.groupSize, layout.columns);
    const int8_t *first = codes + row * layout.columns + begin;
    int32_t total = 0;
    for (int64_t k = 0; k < count; ++k)
      total += first[k];
    return total - static_cast<int32_t>(count) * zeroPointOf(params, index);
  };
  packParams(layout, panel, params, int32_t(0), sum, out);
}

PackedWeights packPanels(const PanelLayout &layout, const QuantizedMatrix &q) {
  PackedWeights packed{layout, {}, {}, {}};
  packed.codes.resize(layout.codeBytes());
  packed.scales.resize(layout.scaleCount());
  packed.zeroPoints.resize(layout.scheme.symmetric ? 0 : layout.scaleCount());
  for (int64_t p = 0; p < layout.panels(); ++p) {
    packPanel(layout, p, q.codes.data() + p * kPanelRows * layout.columns,
              packed.codes.data() + p * layout.panelBytes());
    packPanelScales(layout, p, q.params, packed.scales.data() + p * layout.panelScales());
    if (!layout.scheme.symmetric)
      packPanelZeroPoints(layout, p, q.params, packed.zeroPoints.data() + p * layout.panelScales());
  }
  return packed;
}

Result<QuantizedMatrix> unpackPanels(const PackedWeights &packed) {
  const PanelLayout &layout = packed.layout;
  bool symmetric = layout.scheme.symmetric;
  int64_t zeroPoints = symmetric ? 0 : layout.scaleCount();
  if (std::ssize(packed.codes) != layout.codeBytes() ||
      std::ssize(packed.scales) != layout.scaleCount() ||
      std::ssize(packed.zeroPoints) != zeroPoints)
    return makeError(ErrorCode::InvalidArgument,
                     "packed {} weight of {} x {} with {} bytes of codes, {} scales and {} zero "
                     "points: expected {}, {} and {}",
                     toString(layout.scheme), layout.rows, layout.columns, packed.codes.size(),
                     packed.scales.size(), packed.zeroPoints.size(), layout.codeBytes(),
                     layout.scaleCount(), zeroPoints);
  QuantizedMatrix q{layout.scheme, layout.rows, layout.columns, {}, {}};
  q.codes.resize(layout.rows * layout.columns);
  bool perTensor = layout.scheme.granularity == Granularity::Tensor;
  q.params.rows = perTensor ? 1 : layout.rows;
  q.params.groups = layout.groups();
  q.params.scales.resize(q.params.rows * q.params.groups);
  q.params.zeroPoints.resize(symmetric ? 0 : q.params.scales.size());
  if (perTensor)
    q.params.scales[0] = packed.scales[0];
  if (perTensor && !symmetric)
    q.params.zeroPoints[0] = packed.zeroPoints[0];
  for (int64_t p = 0; p < layout.panels(); ++p) {
    unpackPanel(layout, p, packed.codes.data() + p * layout.panelBytes(),
                q.codes.data() + p * kPanelRows * layout.columns);
    if (perTensor)
      continue;
    unpackPanelScales(layout, p, packed.scales.data() + p * layout.panelScales(), q.params);
    if (!symmetric)
      unpackPanelZeroPoints(layout, p, packed.zeroPoints.data() + p * layout.panelScales(),
                            q.params);
  }
  return q;
}

std::vector<int32_t> packSums(const PanelLayout &layout, const QuantizedMatrix &q) {
  std::vector<int32_t> sums(layout.scaleCount());
  for (int64_t p = 0; p < layout.panels(); ++p)
    packPanelSums(layout, p, q.codes.data() + p * kPanelRows * layout.columns, q.params,
                  sums.data() + p * layout.panelScales());
  return sums;
}

} // namespace easyquant::numerics
