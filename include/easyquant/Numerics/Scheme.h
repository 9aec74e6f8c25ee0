//===- Scheme.h - How a tensor is quantized ---------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A scheme says which codes stand for the values of a tensor, which values share a scale, and what
// numbers codes and scales are (NumberFormats.h). It is plain data; the IR carries it as
// #equant.scheme.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_SCHEME_H
#define EASYQUANT_NUMERICS_SCHEME_H

#include "easyquant/Numerics/NumberFormats.h"
#include "easyquant/Support/Result.h"

#include <cstdint>
#include <string>

namespace easyquant::numerics {

/// Which elements of a matrix (rows x columns, contraction along the columns) share a scale.
enum class Granularity {
  Tensor,  ///< all of them
  Channel, ///< a row of a weight: one output feature
  Group,   ///< `groupSize` consecutive columns of a row; the last group of a row may be short
  Token,   ///< a row of an activation: one token, its scale computed at run time; or every
           ///< `groupSize` consecutive columns of it, the last ones possibly fewer
};

/// Integers that codes may take, both ends included.
struct CodeRange {
  int32_t min = 0, max = 0;
  friend bool operator==(const CodeRange &, const CodeRange &) = default;
};

/// Columns whose groups share an f16 in the K types of llama.cpp (SuperBlocks.h).
inline constexpr int64_t kSuperBlock = 256;

/// Integer codes have 2, 3, 4, 5, 6 or 8 bits.
constexpr bool isCodeWidth(int64_t bits) { return (bits >= 2 && bits <= 6) || bits == 8; }

struct Scheme {
  int bits = 8; ///< of a code: see isCodeWidth
  /// Symmetric: zero point 0 and the narrow range [-(2^(b-1)-1), 2^(b-1)-1], so that negation is
  /// exact, unless `fullRange`. Otherwise a zero point and the full range [-2^(b-1), 2^(b-1)-1].
  bool symmetric = true;
  Granularity granularity = Granularity::Channel;
  int64_t groupSize = 0; ///< of Granularity::Group, and of Granularity::Token; 0: no groups
  /// Scales are computed from each input at run time (activations only) instead of being constants.
  bool dynamic = false;
  /// Symmetric only: the codes of the full range, with s = absmax / (2^(b-1) - 0.5) (SYQ; Faraone
  /// et al., 2018, https://arxiv.org/abs/1807.00301).
  bool fullRange = false;
  /// Other codes than integers are symmetric, without zero points, and not `fullRange`.
  CodeFormat codes = CodeFormat::Integer;
  ScaleFormat scales = ScaleFormat::F32;
  /// The scales are themselves scaled, by one f32 factor a tensor (NVFP4).
  bool outer = false;
  const Codebook *table = nullptr; ///< of CodeFormat::Table
  /// Static int8 activations only: tokens that leave the range, attention sinks above all, have
  /// scales of their own (definition 4 of Quantize.h).
  bool sinks = false;
  /// Codes are those of rows in the basis of Hadamard.h, of blocks of so many columns; 0: as they
  /// are.
  int64_t hadamard = 0;
  /// Asymmetric integers in groups only: in place of a zero point, a group has the float that its
  /// lowest code stands for, in the format of the scales.
  bool minima = false;
  /// Scales, and minima, are integers in units of an f16 that groups share (SuperBlocks.h); as the
  /// products that they are, they are f32.
  bool superBlocks = false;

  /// Scales of either sign: the lowest code is farther from 0 than the highest one, and a negative
  /// scale turns it to the other side.
  bool hasSignedScales() const { return superBlocks && fullRange; }
  /// Do several groups share what their scales are in units of?
  bool isTwoLevel() const { return superBlocks || scales == ScaleFormat::UI6; }
  /// How many do, where several do.
  int64_t sharingGroups() const { return superBlocks ? kSuperBlock / groupSize : kSuperGroups; }
  bool isInteger() const { return codes == CodeFormat::Integer; }
  bool hasZeroPoints() const { return !symmetric && !minima; }
  /// Are codes integers, or indices of int8 values, so that int8 activations can be multiplied?
  bool hasIntegerValues() const { return isInteger() || (table && table->int8Unit()); }
  friend bool operator==(const Scheme &, const Scheme &) = default;
};

/// Smallest and largest code; [-127, 127] and [-7, 7] for symmetric int8 and int4.
constexpr CodeRange codeRange(int bits, bool symmetric) {
  int32_t half = int32_t(1) << (bits - 1);
  return {symmetric ? 1 - half : -half, half - 1};
}
constexpr CodeRange codeRange(const Scheme &scheme) {
  bool narrow = scheme.symmetric && !scheme.fullRange && scheme.codes == CodeFormat::Integer;
  return codeRange(scheme.bits, narrow);
}

/// What codes stand for, in units of the scale and before a zero point: -127, 127 and 1; -448, 448
/// and 32; -1, 1 and 0.304 (NF4).
struct CodeValues {
  float least = 0, greatest = 0;
  float gap = 1; ///< the widest between two neighbours

  float absMax() const { return -least > greatest ? -least : greatest; }
};
CodeValues codeValues(const Scheme &scheme);

/// Scales along one row of K columns: ceil(K / groupSize), 1 when the scheme has no groups.
constexpr int64_t groupCount(int64_t k, int64_t groupSize) {
  return groupSize == 0 ? 1 : (k + groupSize - 1) / groupSize;
}

/// Rows of the scale matrix of an N x K tensor: 1 per tensor, N otherwise.
constexpr int64_t scaleRows(const Scheme &scheme, int64_t rows) {
  return scheme.granularity == Granularity::Tensor ? 1 : rows;
}

/// Columns of a token that may share a scale (isTokenGroup), beside all of them.
inline constexpr int64_t kTokenGroups[] = {32, 64, 128};
constexpr bool isTokenGroup(int64_t size) {
  return size == kTokenGroups[0] || size == kTokenGroups[1] || size == kTokenGroups[2];
}

/// Do groups of a token lie within those of a weight it is multiplied with? A size of 0 is a row.
constexpr bool fitsGroups(int64_t tokenGroup, int64_t weightGroup) {
  return tokenGroup == 0 || weightGroup % tokenGroup == 0;
}

/// Is this a scheme at all? InvalidArgument or Unsupported otherwise: a bit width that is no
/// isCodeWidth, or not that of the codes' format, a group size without groups (or the reverse),
/// scales per token that are not dynamic, groups of a token that are no isTokenGroup or not of
/// 8 bits, dynamic scales of weights, an asymmetric scheme with `fullRange` (it has that range
/// anyway), zero points or `fullRange` of codes that are no integers, `sinks` of anything but int8
/// with one static scale, a block that is no isHadamardBlock, minima of anything but static
/// asymmetric groups with scales of f32 or f16, super-blocks of codes and groups that no type has.
/// A group size need not divide K, nor be below it.
Result<void> checkScheme(const Scheme &scheme);

/// For people: "int4 symmetric, groups of 128, f16 scales", "int8 symmetric, per token, dynamic",
/// "int8 symmetric, per token in groups of 32, dynamic",
/// "int4 with minima, groups of 32, f16 scales", "int6 symmetric, groups of 16, super-blocks",
/// "int8 symmetric full range, per channel", "int8 symmetric, per tensor, sinks apart", "f4E2M1FN,
/// groups of 16, f8E4M3FN scales, scaled".
std::string toString(const Scheme &scheme);
/// "tensor", "channel", "group" or "token": the name in manifests and in IR.
const char *toString(Granularity granularity);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_SCHEME_H
