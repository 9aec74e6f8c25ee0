//===- Codec.h - From values to codes and back ------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Private to lib/Numerics. A codec knows the codes of one scheme. Code that rounds is written once,
// as a template over codecs, and vectorized for each. Codecs have no branches and are inlined. They
// have no constructors, since clang drops constructors that only clones of a function call.
// Values are in units of the scale; the zero point of an integer code is subtracted.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_NUMERICS_CODEC_H
#define EASYQUANT_LIB_NUMERICS_CODEC_H

#include "RowQuantize.h"

namespace easyquant::numerics {

/// A code and what it stands for.
struct Rounded {
  int32_t code;
  float value;
};

struct IntegerCodec {
  CodeRange range;

  EASYQUANT_INLINE Rounded round(float steps, int32_t zeroPoint) const {
    float lo = static_cast<float>(range.min - zeroPoint);
    float hi = static_cast<float>(range.max - zeroPoint);
    int32_t nearest = roundClamped(steps, lo, hi);
    return {nearest + zeroPoint, static_cast<float>(nearest)};
  }
  EASYQUANT_INLINE float value(int32_t code, int32_t zeroPoint) const {
    return static_cast<float>(code - zeroPoint);
  }
};

struct F8E4M3FNCodec {
  static constexpr float kLargest = 448, kLeastNormal = 0x1p-6f, kStep = 0x1p-9f;

  static EASYQUANT_INLINE int32_t encode(float x) {
    int32_t bits = std::bit_cast<int32_t>(x), sign = (bits >> 24) & 0x80;
    float magnitude = std::bit_cast<float>(bits & 0x7fffffff);
    magnitude = magnitude > kLargest ? kLargest : magnitude;
    int32_t small = roundClamped(magnitude * (1 / kStep), 0, kLeastNormal / kStep);
    // Half of the last bit kept is added to the bits below it, a little less where that is even.
    int32_t wide = std::bit_cast<int32_t>(magnitude);
    int32_t normal = ((wide + 0x7ffff + ((wide >> 20) & 1)) >> 20) - ((127 - 7) << 3);
    return sign | (magnitude < kLeastNormal ? small : normal);
  }
  static EASYQUANT_INLINE float decode(int32_t bits) {
    // Subnormals of the format are subnormals of f32 on the way, and normal again at its end.
    float magnitude = std::bit_cast<float>((bits & 0x7f) << 20) * 0x1p120f;
    return std::bit_cast<float>(std::bit_cast<int32_t>(magnitude) | (bits & 0x80) << 24);
  }
  EASYQUANT_INLINE Rounded round(float steps, int32_t) const {
    int32_t bits = encode(steps);
    return {bits - 128, decode(bits)};
  }
  EASYQUANT_INLINE float value(int32_t code, int32_t) const { return decode(code + 128); }
};

struct F4E2M1FNCodec {
  static EASYQUANT_INLINE int32_t encode(float x) {
    int32_t bits = std::bit_cast<int32_t>(x), sign = (bits >> 28) & 8;
    float m = std::bit_cast<float>(bits & 0x7fffffff);
    // Between two magnitudes, ties to the one whose last bit is 0.
    return sign | ((m > 0.25f) + (m >= 0.75f) + (m > 1.25f) + (m >= 1.75f) + (m > 2.5f) +
                   (m >= 3.5f) + (m > 5.0f));
  }
  static EASYQUANT_INLINE float decode(int32_t bits) {
    // As f32 but for the bias; the one subnormal is 0.5.
    int32_t magnitude = bits & 7;
    float normal = std::bit_cast<float>((magnitude << 22) + (126 << 23));
    float value = magnitude < 2 ? static_cast<float>(magnitude) * 0.5f : normal;
    return std::bit_cast<float>(std::bit_cast<int32_t>(value) | (bits & 8) << 28);
  }
  EASYQUANT_INLINE Rounded round(float steps, int32_t) const {
    int32_t bits = encode(steps);
    return {bits - 8, decode(bits)};
  }
  EASYQUANT_INLINE float value(int32_t code, int32_t) const { return decode(code + 8); }
};

template <int bits> struct TableCodec {
  static constexpr int kSize = 1 << bits;
  float table[kSize];
  float middles[kSize - 1];

  static EASYQUANT_INLINE TableCodec of(const Codebook &codebook) {
    TableCodec codec{};
    for (int i = 0; i < kSize; ++i)
      codec.table[i] = codebook.values()[i];
    for (int i = 0; i + 1 < kSize; ++i)
      codec.middles[i] = static_cast<float>((double(codec.table[i]) + codec.table[i + 1]) / 2);
    return codec;
  }
  EASYQUANT_INLINE Rounded round(float steps, int32_t) const {
    int32_t index = 0;
    float value = table[0];
    for (int i = 0; i + 1 < kSize; ++i) {
      index += steps > middles[i];
      value = steps > middles[i] ? table[i + 1] : value;
    }
    return {index - kSize / 2, value};
  }
  EASYQUANT_INLINE float value(int32_t code, int32_t) const { return table[code + kSize / 2]; }
};

/// body(codec) with the codec of a scheme that checkScheme lets through.
template <typename Body> EASYQUANT_INLINE auto withCodec(const Scheme &scheme, Body &&body) {
  switch (scheme.codes) {
  case CodeFormat::F8E4M3FN:
    return body(F8E4M3FNCodec{});
  case CodeFormat::F4E2M1FN:
    return body(F4E2M1FNCodec{});
  case CodeFormat::Table:
    switch (scheme.bits) {
    case 2:
      return body(TableCodec<2>::of(*scheme.table));
    case 3:
      return body(TableCodec<3>::of(*scheme.table));
    default:
      return body(TableCodec<4>::of(*scheme.table));
    }
  case CodeFormat::Integer:
    break;
  }
  return body(IntegerCodec{codeRange(scheme)});
}

/// The codes of a slice that has one scale: definition 1 of Quantize.h. The slice is finite.
template <typename Codec>
EASYQUANT_INLINE void quantizeSlice(const Codec &codec, const float *x, int64_t count, float scale,
                                    int32_t zeroPoint, int8_t *codes) {
  for (int64_t i = 0; i < count; ++i)
    codes[i] = static_cast<int8_t>(codec.round(x[i] / scale, zeroPoint).code);
}

/// The same of a slice with a minimum, which `lowest` stands for.
template <typename Codec>
EASYQUANT_INLINE void quantizeAbove(const Codec &codec, const float *x, int64_t count, float scale,
                                    float minimum, int32_t lowest, int8_t *codes) {
  for (int64_t i = 0; i < count; ++i)
    codes[i] = static_cast<int8_t>(codec.round((x[i] - minimum) / scale, lowest).code);
}

/// And back.
template <typename Codec>
EASYQUANT_INLINE void dequantizeSlice(const Codec &codec, const int8_t *codes, int64_t count,
                                      float scale, int32_t zeroPoint, float *out) {
  for (int64_t i = 0; i < count; ++i)
    out[i] = scale * codec.value(codes[i], zeroPoint);
}

} // namespace easyquant::numerics

#endif // EASYQUANT_LIB_NUMERICS_CODEC_H
