//===- KVCache.h - Quantized keys and values --------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// SimQuant: THE definition of a KV cache in integers (the asymmetric groups and the float window of
// KIVI, Liu et al., 2024; sinks after Xiao et al., 2023; keys before their rotation after
// Hooper et al., KVQuant, 2024).
//
// Elements that share a scale are a slice x_1 ... x_n of the cache's float type T (f32 or f16; what
// comes in is rounded to it first, beyond 65504 saturated). With b bits, L = 2^b - 1:
//
//   m = min x          s = roundT(max / L - min / L), at least kvLeastScale(T); 1 if max = min
//   q = clamp(rne((x - m) / s), 0, L)                 xhat = fma(s, q, m)
//
// every step one IEEE binary32 operation. In the notation of a float zero, s' = 1 / s and
// z = -m s': q = rne(x s' + z). m is itself an x, hence exact in T, so that rounding s is the only
// loss that storing costs. |x - xhat| is at most half a step, (max - min) / (2 L), beside what
// rounding s to T and the arithmetic may add.
//
// Slices
//   keys     per channel: one channel of one head, G consecutive tokens. Or, for comparisons, per
//            token, as values are
//   values   per token: min(G, D) consecutive dimensions of one head
//
// Keys may be rotated before anything else is done with them, in blocks of columns of their heads
// (Hadamard.h, as activations are). Few large channels then do not take the codes of a token, and
// slices per token are as good as those per channel. Queries that are rotated alike give the scores
// of the plain ones.
//
// When a token is float: the first S tokens (sinks) always are. The others are counted in blocks of
// R tokens from token S. A call that appends tokens at `position` p sees
//   keys     codes below S + R floor((p - S) / R): whole blocks, R at a time
//   values   codes below p + 1 - R: all but the newest R, its own first one included
// and its own tokens in float.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_KVCACHE_H
#define EASYQUANT_NUMERICS_KVCACHE_H

#include "easyquant/Numerics/Matrix.h"
#include "easyquant/Support/Result.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

namespace easyquant::numerics {

/// Tokens of a page of a float cache, and attention's step: what is done with keys and values is
/// done with so many of one page at a time.
constexpr int64_t kPageTokens = 64;
/// Tokens of a page in a cache of codes, whose groups of `group` tokens belong to one page each.
constexpr int64_t pageTokens(int64_t group) { return std::lcm(kPageTokens, group); }

enum class KeySlices { Channel, Token };
enum class CacheFloat { F32, F16 };

struct KVScheme {
  int bits = 4;           ///< 2, 4 or 8
  int64_t group = 64;     ///< G: a power of two from 16 to 1024
  int64_t residual = 128; ///< R: a positive multiple of G
  int64_t sinks = 4;      ///< S
  KeySlices keys = KeySlices::Channel;
  int64_t hadamard = 0; ///< columns of a head that are rotated together; 0: keys are plain
};

/// Is this a scheme for heads of `headDim` dimensions? InvalidArgument otherwise, saying what is
/// possible. headDim must be a multiple of 8, and of the group where it is larger than that.
Result<void> checkKVScheme(const KVScheme &scheme, int64_t headDim);
/// Can keys be kept before their rotation, which turns so many dimensions of a head?
/// InvalidArgument if not.
Result<void> checkKeysBeforeRotation(int64_t dims);

/// Slices of one head of one token: D / min(G, D).
constexpr int64_t kvSlices(const KVScheme &scheme, int64_t headDim) {
  return headDim / std::min(scheme.group, headDim);
}

/// Keys of tokens below it are codes for a call at `position`.
constexpr int64_t quantizedKeys(const KVScheme &scheme, int64_t position) {
  int64_t behind = std::max<int64_t>(0, position - scheme.sinks);
  return scheme.sinks + behind / scheme.residual * scheme.residual;
}
/// Values of tokens below it are codes, except those of sinks.
constexpr int64_t quantizedValues(const KVScheme &scheme, int64_t position) {
  return std::max(scheme.sinks, position + 1 - scheme.residual);
}

/// x in the cache's float type.
float roundToCache(float x, CacheFloat type);
/// The least scale of a slice that is not constant: 2^-14, the least normal f16, or 2^-100.
constexpr float kvLeastScale(CacheFloat type) {
  return type == CacheFloat::F16 ? 0x1p-14f : 0x1p-100f;
}

struct KVSlice {
  float minimum = 0, scale = 1;
};
/// The parameters of a slice whose elements, of type `type`, lie in [minimum, maximum].
KVSlice chooseKVSlice(float minimum, float maximum, int bits, CacheFloat type);
/// The code of an element of a slice.
uint8_t quantizeKV(float x, KVSlice slice, int bits);
inline float dequantizeKV(uint8_t code, KVSlice slice) {
  return std::fma(slice.scale, static_cast<float>(code), slice.minimum);
}

/// Tokens of one layer as codes: T x columns of each, row-major; the parameters of a slice are
/// repeated for each of its elements. Rows that are not quantized are all zero.
struct QuantizedKV {
  int64_t rows = 0, columns = 0;
  std::vector<uint8_t> codes;
  std::vector<KVSlice> slices;
  float dequantized(int64_t row, int64_t column) const {
    return dequantizeKV(codes[row * columns + column], slices[row * columns + column]);
  }
};

/// k, v: T x kvHeads * D, the tokens of a cache from its first on. Keys: all whole blocks; values:
/// all tokens but sinks. InvalidArgument on elements that are not finite (naming row and column).
Result<QuantizedKV> quantizeKeys(ConstMatrix k, const KVScheme &scheme, int64_t headDim,
                                 CacheFloat type);
Result<QuantizedKV> quantizeValues(ConstMatrix v, const KVScheme &scheme, int64_t headDim,
                                   CacheFloat type);

/// What a call at `position` sees of the keys and values (T x kvHeads * D each) of all tokens, its
/// own included.
Result<void> seenKeysAndValues(ConstMatrix k, ConstMatrix v, const KVScheme &scheme,
                               int64_t headDim, CacheFloat type, int64_t position, Matrix seenKeys,
                               Matrix seenValues);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_KVCACHE_H
