//===- QuantizePanel.cpp - Round to nearest in one pass -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PackRows.h"
#include "RowQuantize.h"

#include <cstring>

namespace easyquant::numerics {
namespace {

/// Eight weights at a time: vectors by name, since what the vectorizer makes of such a loop varies.
using Floats = float __attribute__((vector_size(32)));
using Doubles = double __attribute__((vector_size(64)));
using Words = int32_t __attribute__((vector_size(32)));
using Bytes = int8_t __attribute__((vector_size(8)));
constexpr int64_t kLanes = 8;

/// Weights that are quantized and measured at a time, and groups whose scales are: enough for the
/// CPU to work on several at once, waiting for none.
constexpr int64_t kPart = 32, kGroups = 16;

/// Sums of the errors of a row, in lanes.
struct RowErrors {
  Doubles error = {}, square = {};
  Floats largest = {};

  EASYQUANT_INLINE ErrorSums sums() const {
    ErrorSums total{};
    for (int64_t lane = 0; lane < kLanes; ++lane)
      total.add({error[lane], square[lane], largest[lane]});
    return total;
  }
};

/// absMaxBits for short slices.
EASYQUANT_INLINE int32_t absMaxBitsOfGroup(const float *x, int64_t count) {
  Words largest = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Words bits;
    std::memcpy(&bits, x + i, sizeof(bits));
    bits &= 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  return std::max(__builtin_reduce_max(largest), absMaxBits(x + i, count - i));
}

/// Codes of kPart weights with one absmax scale. They need no clamp: |x| / scale, rounded, is at
/// most the largest code. Errors are taken in units of the scale, where single precision neither
/// overflows nor vanishes, and summed in it over this part only.
EASYQUANT_INLINE void quantizePart(const float *x, float scale, int8_t *codes, RowErrors &errors) {
  constexpr float magic = 0x1.8p23f; // as in roundClamped; its last byte is zero
  Floats error = {}, square = {}, largest = {};
  for (int64_t i = 0; i < kPart; i += kLanes) {
    Floats steps;
    std::memcpy(&steps, x + i, sizeof(steps));
    steps /= scale;
    const Floats rounded = steps + magic, difference = steps - (rounded - magic);
    const Bytes bytes = __builtin_convertvector(__builtin_bit_cast(Words, rounded), Bytes);
    std::memcpy(codes + i, &bytes, sizeof(bytes));
    const Floats magnitude =
        __builtin_bit_cast(Floats, __builtin_bit_cast(Words, difference) & 0x7fffffff);
    error += difference * difference;
    square += steps * steps;
    largest = magnitude > largest ? magnitude : largest;
  }
  const double scaleSquared = static_cast<double>(scale) * scale;
  errors.error += __builtin_convertvector(error, Doubles) * scaleSquared;
  errors.square += __builtin_convertvector(square, Doubles) * scaleSquared;
  largest *= scale;
  errors.largest = largest > errors.largest ? largest : errors.largest;
}

/// The last weights of a slice, fewer than a part: zeros, which have no error, fill it up.
EASYQUANT_INLINE void quantizeRest(const float *x, int64_t count, float scale, int8_t *codes,
                                   RowErrors &errors) {
  float padded[kPart] = {};
  int8_t paddedCodes[kPart];
  std::copy_n(x, count, padded);
  quantizePart(padded, scale, paddedCodes, errors);
  std::copy_n(paddedCodes, count, codes);
}

/// One row: its codes, its scales, which lie `kPanelRows` apart, and its error. False where the row
/// is not finite. `next` is the row that follows, on its way from memory meanwhile.
EASYQUANT_VECTOR_CLONES
static bool quantizeRowAbsMax(const float *row, const float *next, const PanelLayout &layout,
                              CodeRange range, int8_t *codes, float *scales, ErrorSums &error) {
  RowErrors errors{};
  for (int64_t from = 0; from < layout.groups(); from += kGroups) {
    const int64_t groups = std::min(kGroups, layout.groups() - from);
    int32_t absMax[kGroups];
    for (int64_t g = 0; g < groups; ++g) {
      auto [begin, count] = groupColumns(from + g, layout.scheme.groupSize, layout.columns);
      absMax[g] = absMaxBitsOfGroup(row + begin, count);
    }
    for (int64_t g = 0; g < groups; ++g) {
      if (absMax[g] >= kInfinityBits)
        return false;
      scales[(from + g) * kPanelRows] = scaleFromAbsMax(std::bit_cast<float>(absMax[g]), range.max);
    }
    for (int64_t g = 0; g < groups; ++g) {
      auto [begin, count] = groupColumns(from + g, layout.scheme.groupSize, layout.columns);
      const float scale = scales[(from + g) * kPanelRows];
      const int64_t end = begin + count, whole = end - count % kPart;
      for (int64_t j = begin; j < whole; j += kPart) {
        for (int64_t line = 0; line < kPart; line += 16)
          __builtin_prefetch(next + j + line);
        quantizePart(row + j, scale, codes + j, errors);
      }
      if (whole < end)
        quantizeRest(row + whole, end - whole, scale, codes + whole, errors);
    }
  }
  error.add(errors.sums());
  return true;
}

} // namespace

Result<void> quantizePanelAbsMax(const PanelLayout &layout, ConstMatrix w, int64_t panel,
                                 uint8_t *codes, float *scales, ErrorSums &error) {
  const Scheme &scheme = layout.scheme;
  if (scheme.granularity != Granularity::Channel && scheme.granularity != Granularity::Group)
    return makeError(ErrorCode::Unsupported,
                     "panel-wise quantization as {}: its scale needs the whole tensor; use "
                     "chooseQParams",
                     toString(scheme));
  if (!scheme.symmetric || scheme.fullRange)
    return makeError(ErrorCode::InvalidArgument,
                     "absmax scales for {}: the absmax rule serves symmetric codes of the narrow "
                     "range; take another scheme or rule",
                     toString(scheme));
  if (w.rows != layout.rows || w.columns != layout.columns || panel < 0 || panel >= layout.panels())
    return makeError(ErrorCode::InvalidArgument,
                     "panel {} of a weight of {} x {}: the layout is one of {} panels for {} x {}",
                     panel, w.rows, w.columns, layout.panels(), layout.rows, layout.columns);

  CodeRange range = codeRange(scheme);
  int64_t rows = layout.panelRows(panel), columns = layout.columns;
  // Rows a power of two bytes apart would meet in the same few lines of the cache.
  const int64_t stride = (columns + 63) / 64 * 64 + 64;
  std::vector<int8_t> plain(rows * stride);
  std::fill_n(scales, layout.panelScales(), 1.0f);
  for (int64_t r = 0; r < rows; ++r) {
    const float *row = w.row(panel * kPanelRows + r);
    const float *next = w.row(std::min(panel * kPanelRows + r + 1, w.rows - 1));
    if (!quantizeRowAbsMax(row, next, layout, range, plain.data() + r * stride, scales + r, error))
      return notFiniteError(row, columns, panel * kPanelRows + r);
  }
  packRows(layout, rows, plain.data(), stride, codes);
  return {};
}

} // namespace easyquant::numerics
