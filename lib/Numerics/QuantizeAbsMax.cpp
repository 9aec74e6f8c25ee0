//===- QuantizeAbsMax.cpp - Round to nearest in one pass ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Packing.h"
#include "easyquant/Numerics/ScaleRules.h"

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

/// What became of a row.
enum class RowResult { Done, NotFinite, NoScale };

/// One row: its codes, its scales and its error. NoScale where f16 does not hold a scale. `next` is
/// the row that follows, on its way from memory meanwhile.
EASYQUANT_VECTOR_CLONES
static RowResult quantizeRowAbsMax(const float *row, const float *next, int64_t columns,
                                   const Scheme &scheme, int8_t *codes, float *scales,
                                   ErrorSums &error) {
  const CodeRange range = codeRange(scheme);
  const int64_t allGroups = groupCount(columns, scheme.groupSize);
  RowErrors errors{};
  const bool isHalf = scheme.scales == ScaleFormat::F16;
  bool areScales = true;
  for (int64_t from = 0; from < allGroups; from += kGroups) {
    const int64_t groups = std::min(kGroups, allGroups - from);
    int32_t absMax[kGroups];
    for (int64_t g = 0; g < groups; ++g) {
      auto [begin, count] = groupColumns(from + g, scheme.groupSize, columns);
      absMax[g] = absMaxBitsOfGroup(row + begin, count);
    }
    for (int64_t g = 0; g < groups; ++g) {
      if (absMax[g] >= kInfinityBits)
        return RowResult::NotFinite;
      float scale = scaleFromAbsMax(std::bit_cast<float>(absMax[g]), range.max);
      if (isHalf) {
        scale = static_cast<float>(static_cast<_Float16>(scale));
        areScales &= isScale(scale, ScaleFormat::F16);
      }
      scales[from + g] = scale;
    }
    for (int64_t g = 0; g < groups; ++g) {
      auto [begin, count] = groupColumns(from + g, scheme.groupSize, columns);
      const float scale = scales[from + g];
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
  return areScales ? RowResult::Done : RowResult::NoScale;
}

} // namespace

bool canQuantizeAbsMax(const Scheme &scheme) {
  bool perRow =
      scheme.granularity == Granularity::Channel || scheme.granularity == Granularity::Group;
  bool isFloat = scheme.scales == ScaleFormat::F32 || scheme.scales == ScaleFormat::F16;
  return perRow && isFloat && scheme.isInteger() && scheme.symmetric && !scheme.fullRange &&
         !scheme.outer && !scheme.superBlocks;
}

Result<QuantizedMatrix> quantizeAbsMax(ConstMatrix w, const Scheme &scheme, int64_t firstRow,
                                       ErrorSums &error) {
  if (!canQuantizeAbsMax(scheme))
    return makeError(ErrorCode::Unsupported,
                     "quantization in one pass as {}: expected symmetric integers of the narrow "
                     "range per channel or group, with scales of f32 or f16; use chooseQParams",
                     toString(scheme));
  QuantizedMatrix q{scheme, w.rows, w.columns, {}, {}};
  q.params.rows = w.rows;
  q.params.groups = groupCount(w.columns, scheme.groupSize);
  q.params.scales.resize(q.params.rows * q.params.groups);
  q.codes.resize(w.rows * w.columns);
  for (int64_t r = 0; r < w.rows; ++r) {
    float *scales = q.params.scales.data() + r * q.params.groups;
    RowResult result = quantizeRowAbsMax(w.row(r), w.row(std::min(r + 1, w.rows - 1)), w.columns,
                                         scheme, q.codes.data() + r * w.columns, scales, error);
    if (result == RowResult::NotFinite)
      return notFiniteError(w.row(r), w.columns, firstRow + r);
    if (result == RowResult::NoScale)
      return Unexpected(checkScales(q.params, scheme).error());
  }
  return q;
}

} // namespace easyquant::numerics
