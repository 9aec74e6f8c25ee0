//===- Packing.cpp - Panels of packed codes -------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Packing.h"

#include "RowQuantize.h"

#include <cstring>

namespace easyquant::numerics {
namespace {

// Four or eight codes at a time in a register, byte i of memory being byte i of the word.
static_assert(std::endian::native == std::endian::little, "EasyQuant runs on x86-64");

template <typename Word> Word load(const int8_t *from) {
  Word word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

/// Codes from..from+7 of a row of K columns, 0 beyond its end or when there is no such row.
uint64_t loadCodes(const int8_t *row, int64_t from, int64_t columns) {
  if (!row || from >= columns)
    return 0;
  if (from + 8 <= columns)
    return load<uint64_t>(row + from);
  uint64_t word = 0;
  std::memcpy(&word, row + from, columns - from);
  return word;
}

void storeCodes(uint64_t word, int8_t *row, int64_t from, int64_t columns) {
  std::memcpy(row + from, &word, std::min<int64_t>(8, columns - from));
}

/// Offset binary of eight codes: + 128 flips the sign bit of each byte.
constexpr uint64_t kSignBits = 0x8080808080808080;
/// Two's complement nibbles + 8, likewise.
constexpr uint32_t kLowNibbles = 0x0f0f0f0f, kNibbleSigns = 0x08080808;

/// Sign-extends the low nibble of each byte, given in offset binary: v - 8 without borrows.
uint32_t nibblesToCodes(uint32_t offsetNibbles) {
  uint32_t nibbles = offsetNibbles ^ kNibbleSigns;
  uint32_t negative = nibbles & kNibbleSigns;
  return nibbles | (negative << 1) | (negative << 2) | (negative << 3) | (negative << 4);
}

} // namespace

Result<PanelLayout> panelLayout(const Scheme &scheme, int64_t rows, int64_t columns) {
  if (auto ok = checkScheme(scheme); !ok)
    return Unexpected(ok.error());
  if (rows < 1 || columns < 1)
    return makeError(ErrorCode::InvalidArgument,
                     "packed weight of {} x {}: expected at least one row and one column", rows,
                     columns);
  if (!scheme.symmetric || (scheme.bits != 8 && scheme.bits != 4))
    return makeError(ErrorCode::Unsupported,
                     "weights as {}: the CPU kernels take symmetric int8 and int4 weights",
                     toString(scheme));
  if (scheme.dynamic)
    return makeError(ErrorCode::Unsupported,
                     "weights as {}: scales of weights are constants; make it static",
                     toString(scheme));
  if (scheme.groupSize % 8 != 0)
    return makeError(ErrorCode::Unsupported,
                     "weights as {}: the CPU kernels take group sizes that are multiples of 8 "
                     "(such as {})",
                     toString(scheme), (scheme.groupSize + 7) / 8 * 8);
  return PanelLayout{scheme, rows, columns};
}

void packPanel(const PanelLayout &layout, int64_t panel, const int8_t *codes, uint8_t *out) {
  int64_t columns = layout.columns, rows = layout.panelRows(panel);
  for (int64_t j = 0; j < columns; j += 8)
    for (int64_t r = 0; r < kPanelRows; ++r) {
      uint64_t word = loadCodes(r < rows ? codes + r * columns : nullptr, j, columns);
      if (layout.scheme.bits == 8) {
        word ^= kSignBits;
        uint32_t low = static_cast<uint32_t>(word), high = static_cast<uint32_t>(word >> 32);
        uint8_t *place = out + (j / 4 * kPanelRows + r) * 4;
        std::memcpy(place, &low, 4);
        std::memcpy(place + kPanelRows * 4, &high, 4);
      } else {
        uint32_t low = (static_cast<uint32_t>(word) & kLowNibbles) ^ kNibbleSigns;
        uint32_t high = (static_cast<uint32_t>(word >> 32) & kLowNibbles) ^ kNibbleSigns;
        uint32_t both = low | (high << 4);
        std::memcpy(out + (j / 8 * kPanelRows + r) * 4, &both, 4);
      }
    }
}

void unpackPanel(const PanelLayout &layout, int64_t panel, const uint8_t *packed, int8_t *codes) {
  int64_t columns = layout.columns, rows = layout.panelRows(panel);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < columns; j += 8) {
      uint32_t low, high;
      if (layout.scheme.bits == 8) {
        const uint8_t *place = packed + (j / 4 * kPanelRows + r) * 4;
        std::memcpy(&low, place, 4);
        std::memcpy(&high, place + kPanelRows * 4, 4);
        storeCodes((uint64_t(high) << 32 | low) ^ kSignBits, codes + r * columns, j, columns);
      } else {
        uint32_t both;
        std::memcpy(&both, packed + (j / 8 * kPanelRows + r) * 4, 4);
        low = nibblesToCodes(both & kLowNibbles);
        high = nibblesToCodes((both >> 4) & kLowNibbles);
        storeCodes(uint64_t(high) << 32 | low, codes + r * columns, j, columns);
      }
    }
}

void packPanelScales(const PanelLayout &layout, int64_t panel, const QParams &params, float *out) {
  int64_t rows = layout.panelRows(panel), groups = layout.groups();
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t r = 0; r < kPanelRows; ++r) {
      int64_t row = params.rows == 1 ? 0 : panel * kPanelRows + r;
      out[g * kPanelRows + r] = r < rows ? params.scales[row * groups + g] : 1.0f;
    }
}

void unpackPanelScales(const PanelLayout &layout, int64_t panel, const float *packed,
                       QParams &params) {
  int64_t rows = layout.panelRows(panel), groups = layout.groups();
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t g = 0; g < groups; ++g)
      params.scales[(panel * kPanelRows + r) * groups + g] = packed[g * kPanelRows + r];
}

Result<void> quantizePanelAbsMax(const PanelLayout &layout, ConstMatrix w, int64_t panel,
                                 uint8_t *codes, float *scales, ErrorSums &error) {
  const Scheme &scheme = layout.scheme;
  if (scheme.granularity != Granularity::Channel && scheme.granularity != Granularity::Group)
    return makeError(ErrorCode::Unsupported,
                     "panel-wise quantization as {}: its scale needs the whole tensor; use "
                     "chooseQParams",
                     toString(scheme));
  if (w.rows != layout.rows || w.columns != layout.columns || panel < 0 || panel >= layout.panels())
    return makeError(ErrorCode::InvalidArgument,
                     "panel {} of a weight of {} x {}: the layout is one of {} panels for {} x {}",
                     panel, w.rows, w.columns, layout.panels(), layout.rows, layout.columns);

  CodeRange range = codeRange(scheme);
  int64_t rows = layout.panelRows(panel), columns = layout.columns, groups = layout.groups();
  std::vector<int8_t> plain(rows * columns);
  std::vector<float> back(columns);
  std::fill_n(scales, layout.panelScales(), 1.0f);
  for (int64_t r = 0; r < rows; ++r) {
    const float *row = w.row(panel * kPanelRows + r);
    int8_t *rowCodes = plain.data() + r * columns;
    for (int64_t g = 0; g < groups; ++g) {
      auto [begin, count] = groupColumns(g, scheme.groupSize, columns);
      int32_t bits = absMaxBits(row + begin, count);
      if (bits >= kInfinityBits)
        return notFiniteError(row, columns, panel * kPanelRows + r);
      float scale = scaleFromAbsMax(std::bit_cast<float>(bits), range.max);
      scales[g * kPanelRows + r] = scale;
      quantizeSlice(row + begin, count, scale, 0, range, rowCodes + begin);
      for (int64_t j = begin; j < begin + count; ++j)
        back[j] = scale * static_cast<float>(rowCodes[j]);
    }
    error.add(row, back.data(), columns);
  }
  packPanel(layout, panel, plain.data(), codes);
  return {};
}

PackedWeights packPanels(const PanelLayout &layout, const QuantizedMatrix &q) {
  PackedWeights packed{layout, {}, {}};
  packed.codes.resize(layout.codeBytes());
  packed.scales.resize(layout.scaleCount());
  for (int64_t p = 0; p < layout.panels(); ++p) {
    packPanel(layout, p, q.codes.data() + p * kPanelRows * layout.columns,
              packed.codes.data() + p * layout.panelBytes());
    packPanelScales(layout, p, q.params, packed.scales.data() + p * layout.panelScales());
  }
  return packed;
}

Result<QuantizedMatrix> unpackPanels(const PackedWeights &packed) {
  const PanelLayout &layout = packed.layout;
  if (static_cast<int64_t>(packed.codes.size()) != layout.codeBytes() ||
      static_cast<int64_t>(packed.scales.size()) != layout.scaleCount())
    return makeError(
        ErrorCode::InvalidArgument,
        "packed {} weight of {} x {} with {} bytes of codes and {} scales: expected {} "
        "and {}",
        toString(layout.scheme), layout.rows, layout.columns, packed.codes.size(),
        packed.scales.size(), layout.codeBytes(), layout.scaleCount());
  QuantizedMatrix q{layout.scheme, layout.rows, layout.columns, {}, {}};
  q.codes.resize(layout.rows * layout.columns);
  bool perTensor = layout.scheme.granularity == Granularity::Tensor;
  q.params.rows = perTensor ? 1 : layout.rows;
  q.params.groups = layout.groups();
  q.params.scales.resize(q.params.rows * q.params.groups);
  if (perTensor)
    q.params.scales[0] = packed.scales[0];
  for (int64_t p = 0; p < layout.panels(); ++p) {
    unpackPanel(layout, p, packed.codes.data() + p * layout.panelBytes(),
                q.codes.data() + p * kPanelRows * layout.columns);
    if (!perTensor)
      unpackPanelScales(layout, p, packed.scales.data() + p * layout.panelScales(), q.params);
  }
  return q;
}

} // namespace easyquant::numerics
