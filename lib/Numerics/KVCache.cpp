//===- KVCache.cpp - Quantized keys and values ----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/KVCache.h"

#include "easyquant/Numerics/Hadamard.h"

#include <bit>
#include <cmath>
#include <limits>

namespace easyquant::numerics {

Result<void> checkKVScheme(const KVScheme &scheme, int64_t headDim) {
  if (scheme.bits != 2 && scheme.bits != 4 && scheme.bits != 8)
    return makeError(ErrorCode::InvalidArgument, "KV cache of {} bits: expected 2, 4 or 8",
                     scheme.bits);
  if (scheme.group < 16 || scheme.group > 1024 ||
      !std::has_single_bit(static_cast<uint64_t>(scheme.group)))
    return makeError(ErrorCode::InvalidArgument,
                     "KV group of {}: expected a power of two from 16 to 1024", scheme.group);
  if (scheme.residual < 1 || scheme.residual % scheme.group != 0)
    return makeError(ErrorCode::InvalidArgument,
                     "KV residual of {} tokens: expected a positive multiple of the group of {}, "
                     "for keys leave the window in whole groups",
                     scheme.residual, scheme.group);
  // The upper bounds keep sizes of caches far from overflow.
  if (scheme.residual > 65536 || scheme.sinks < 0 || scheme.sinks > 65536)
    return makeError(ErrorCode::InvalidArgument,
                     "KV residual of {} tokens and {} sinks: expected at most 65536 of each, and "
                     "no negative number",
                     scheme.residual, scheme.sinks);
  if (headDim % 8 != 0)
    return makeError(ErrorCode::InvalidArgument,
                     "heads of {} dimensions: a quantized KV cache needs a multiple of 8; leave "
                     "the cache float",
                     headDim);
  if (headDim > scheme.group && headDim % scheme.group != 0)
    return makeError(ErrorCode::InvalidArgument,
                     "KV group of {}: does not divide heads of {} dimensions; give a power of two "
                     "that does, or that is not less, such as {}",
                     scheme.group, headDim,
                     headDim % 32 == 0   ? 32
                     : headDim % 16 == 0 ? 16
                                         : std::bit_ceil(static_cast<uint64_t>(headDim)));
  if (scheme.hadamard && scheme.keys != KeySlices::Token)
    return makeError(ErrorCode::InvalidArgument,
                     "keys that are rotated in blocks of {} dimensions have scales per token, "
                     "found scales per channel",
                     scheme.hadamard);
  if (scheme.hadamard && (!isHadamardBlock(scheme.hadamard) || headDim % scheme.hadamard != 0))
    return makeError(ErrorCode::InvalidArgument,
                     "heads of {} dimensions whose keys are rotated in blocks of {}: expected a "
                     "power of two from {} to {} that divides them",
                     headDim, scheme.hadamard, kLeastHadamard, kLargestHadamard);
  return {};
}

Result<void> checkKeysBeforeRotation(int64_t dims) {
  if (dims % 8 != 0)
    return makeError(ErrorCode::InvalidArgument,
                     "{} dimensions of a head are rotated: a quantized KV cache of keys before "
                     "their rotation needs a multiple of 8; keep keys behind it",
                     dims);
  return {};
}

float roundToCache(float x, CacheFloat type) {
  if (type == CacheFloat::F32)
    return x;
  constexpr float largest = 65504.0f;
  x = x > largest ? largest : x;
  x = x < -largest ? -largest : x;
  return static_cast<float>(static_cast<_Float16>(x));
}

KVSlice chooseKVSlice(float minimum, float maximum, int bits, CacheFloat type) {
  if (minimum == maximum)
    return {minimum, 1.0f};
  // Two quotients: max - min may overflow.
  float levels = static_cast<float>((1 << bits) - 1);
  float scale = roundToCache(maximum / levels - minimum / levels, type);
  return {minimum, std::max(scale, kvLeastScale(type))};
}

uint8_t quantizeKV(float x, KVSlice slice, int bits) {
  float levels = static_cast<float>((1 << bits) - 1);
  float steps = std::min((x - slice.minimum) / slice.scale, levels);
  return static_cast<uint8_t>(std::nearbyintf(steps));
}

namespace {

Result<void> checkFinite(ConstMatrix x, const char *name) {
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t j = 0; j < x.columns; ++j)
      if (!std::isfinite(x(i, j)))
        return makeError(ErrorCode::InvalidArgument, "{}: token {}, column {} is {}", name, i, j,
                         x(i, j));
  return {};
}

/// Quantizes the elements of rows [firstRow, + rows) and columns [firstColumn, + columns): a slice.
void quantizeSlice(ConstMatrix x, int64_t firstRow, int64_t rows, int64_t firstColumn,
                   int64_t columns, int bits, CacheFloat type, QuantizedKV &out) {
  float minimum = std::numeric_limits<float>::infinity(), maximum = -minimum;
  auto forAll = [&](auto body) {
    for (int64_t i = firstRow; i < firstRow + rows; ++i)
      for (int64_t j = firstColumn; j < firstColumn + columns; ++j)
        body(i * x.columns + j, roundToCache(x(i, j), type));
  };
  forAll([&](int64_t, float value) {
    minimum = std::min(minimum, value);
    maximum = std::max(maximum, value);
  });
  KVSlice slice = chooseKVSlice(minimum, maximum, bits, type);
  forAll([&](int64_t at, float value) {
    out.slices[at] = slice;
    out.codes[at] = quantizeKV(value, slice, bits);
  });
}

Result<QuantizedKV> start(ConstMatrix x, const KVScheme &scheme, int64_t headDim,
                          const char *name) {
  if (auto ok = checkKVScheme(scheme, headDim); !ok)
    return Unexpected(ok.error());
  if (x.columns % headDim != 0)
    return makeError(ErrorCode::InvalidArgument, "{}: {} columns are no heads of {} dimensions",
                     name, x.columns, headDim);
  if (auto ok = checkFinite(x, name); !ok)
    return Unexpected(ok.error());
  QuantizedKV out{x.rows, x.columns, {}, {}};
  out.codes.resize(x.rows * x.columns);
  out.slices.resize(x.rows * x.columns);
  return out;
}

void quantizeTokens(ConstMatrix x, int64_t begin, int64_t end, const KVScheme &scheme,
                    int64_t headDim, CacheFloat type, QuantizedKV &out) {
  int64_t columns = std::min(scheme.group, headDim);
  for (int64_t i = begin; i < end; ++i)
    for (int64_t j = 0; j < x.columns; j += columns)
      quantizeSlice(x, i, 1, j, columns, scheme.bits, type, out);
}

/// The keys as the scheme rotates them; themselves where it does not.
ConstMatrix rotatedKeys(ConstMatrix k, const KVScheme &scheme, std::vector<float> &memory) {
  if (scheme.hadamard == 0)
    return k;
  memory.assign(k.data, k.data + k.rows * k.columns);
  rotateActivation(memory, scheme.hadamard);
  return {memory.data(), k.rows, k.columns};
}

} // namespace

Result<QuantizedKV> quantizeKeys(ConstMatrix k, const KVScheme &scheme, int64_t headDim,
                                 CacheFloat type) {
  auto out = start(k, scheme, headDim, "keys");
  if (!out)
    return out;
  std::vector<float> memory;
  k = rotatedKeys(k, scheme, memory);
  int64_t end = quantizedKeys(scheme, k.rows);
  if (scheme.keys == KeySlices::Token) {
    quantizeTokens(k, scheme.sinks, end, scheme, headDim, type, *out);
    return out;
  }
  for (int64_t i = scheme.sinks; i < end; i += scheme.group)
    for (int64_t j = 0; j < k.columns; ++j)
      quantizeSlice(k, i, scheme.group, j, 1, scheme.bits, type, *out);
  return out;
}

Result<QuantizedKV> quantizeValues(ConstMatrix v, const KVScheme &scheme, int64_t headDim,
                                   CacheFloat type) {
  auto out = start(v, scheme, headDim, "values");
  if (out)
    quantizeTokens(v, scheme.sinks, v.rows, scheme, headDim, type, *out);
  return out;
}

Result<void> seenKeysAndValues(ConstMatrix k, ConstMatrix v, const KVScheme &scheme,
                               int64_t headDim, CacheFloat type, int64_t position, Matrix seenKeys,
                               Matrix seenValues) {
  auto keys = quantizeKeys(k, scheme, headDim, type);
  if (!keys)
    return Unexpected(keys.error());
  auto values = quantizeValues(v, scheme, headDim, type);
  if (!values)
    return Unexpected(values.error());
  auto see = [&](ConstMatrix x, const QuantizedKV &q, int64_t end, Matrix out) {
    for (int64_t i = 0; i < x.rows; ++i)
      for (int64_t j = 0; j < x.columns; ++j)
        out(i, j) =
            i >= scheme.sinks && i < end ? q.dequantized(i, j) : roundToCache(x(i, j), type);
  };
  std::vector<float> memory;
  see(rotatedKeys(k, scheme, memory), *keys, quantizedKeys(scheme, position), seenKeys);
  see(v, *values, quantizedValues(scheme, position), seenValues);
  return {};
}

} // namespace easyquant::numerics
