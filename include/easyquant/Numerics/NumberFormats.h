//===- NumberFormats.h - What codes and scales are --------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A code stands for a value before scaling. Formats have the names of MLIR and of ml_dtypes:
//
//      integers       two's complement of 2, 3, 4, 5, 6 or 8 bits, less their zero point
//      f8E4M3FN       s eeee mmm, bias 7, no infinity; +-448 (Micikevicius et al., FP8 Formats for
//                     Deep Learning, 2022, https://arxiv.org/abs/2209.05433)
//      f4E2M1FN       s ee m, bias 1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives (OCP
//                     Microscaling Formats v1.0, 2023)
//      a table        2^b values in ascending order: NF4 (Dettmers et al., QLoRA, 2023,
//                     https://arxiv.org/abs/2305.14314), IQ4_NL (llama.cpp), or learned; beside
//                     int8 activations they are int8 themselves, in units of a power of two
//
// and of scales, all of which are positive:
//
//      f32, f16, bf16, f8E4M3FN
//      f8E8M0FNU      2^(e - 127): a power of two (OCP Microscaling)
//      ui6            n / 64, n = 1 .. 63, in units of one f16 for every kSuperGroups groups of a
//      row:
//                     two levels, as llama.cpp's K-quants have them
//
// A number is rounded to the nearest value of its format, ties to even, in a table to the lower;
// what lies beyond the ends becomes an end. As codes, formats that are no integers count from
// -2^(b-1) on: the code of bits x is x - 2^(b-1), so that memory, which holds code + 2^(b-1), holds
// the bits.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_NUMBERFORMATS_H
#define EASYQUANT_NUMERICS_NUMBERFORMATS_H

#include "easyquant/Support/Result.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace easyquant::numerics {

enum class CodeFormat { Integer, F8E4M3FN, F4E2M1FN, Table };
enum class ScaleFormat { F32, F16, BF16, F8E4M3FN, F8E8M0FNU, UI6 };

/// Groups of a row whose scales of ui6 share an f16; at the end of a row there may be fewer.
inline constexpr int64_t kSuperGroups = 8;
constexpr int64_t superGroupCount(int64_t groups) {
  return (groups + kSuperGroups - 1) / kSuperGroups;
}

/// "f8E4M3FN", ...; "table" and "integer".
const char *toString(CodeFormat format);
const char *toString(ScaleFormat format);

//===- Codes --------------------------------------------------------------===//

/// A format whose codes are floats of few bits.
struct FloatFormat {
  const char *name;
  int bits, mantissaBits;
  float leastNormal, largest;
  uint8_t (*encode)(float x); ///< the bits of the nearest value, ties to even; x is no NaN
  float (*decode)(uint8_t bits);
  /// The distance of two neighbouring values at the least normal one, and at the largest one.
  float step() const { return leastNormal / static_cast<float>(1 << mantissaBits); }
  float largestStep() const;
};
/// Null for integers and tables.
const FloatFormat *floatFormat(CodeFormat format);

//===- Tables -------------------------------------------------------------===//

/// llama.cpp's table for four bits: steps that widen towards the ends.
inline constexpr std::array<float, 16> kIQ4NL = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                 1,    13,   25,  38,  53,  69,  89,  113};

/// A table of 2^b ascending values, b = 2, 3 or 4. Equal tables are one object, which lives as long
/// as the process, so that schemes hold and compare pointers.
class Codebook {
public:
  /// InvalidArgument unless there are 4, 8 or 16 finite values, each larger than the one before.
  static Result<const Codebook *> of(std::span<const float> values);
  static const Codebook *nf4();
  static const Codebook *iq4nl(); ///< which is int8 as it is
  /// The table of 2^b values, b = 2, 3 or 4, that stands for one to be learned (LearnedTable.h) and
  /// gives learning its start: the levels of least squared error for a normal distribution of
  /// variance 1 (Max, Quantizing for Minimum Distortion, 1960, table I).
  static const Codebook *learned(int bits);
  /// The same for a table of int8 values: integers, of which none is a table that learning gives
  /// (n / 128), the start among these.
  static const Codebook *learnedInt8(int bits);
  /// The nearest table whose values are int8, n / 128 with 127 or -127 for the largest magnitude;
  /// one that is int8 already is itself. InvalidArgument where two values get one n.
  Result<const Codebook *> inInt8() const;

  std::span<const float> values() const;
  int bits() const;
  bool hasZero() const;
  /// The power of two of which all values are multiples by -127 to 127, and the largest magnitude
  /// by 64 or more; nothing where there is none.
  std::optional<float> int8Unit() const { return unit; }
  /// Value i in this unit, which there is.
  int32_t int8Value(size_t i) const { return static_cast<int32_t>(table[i] / *unit); }
  /// Is it one of learned(b) or learnedInt8(b)?
  bool isToBeLearned() const;
  /// "nf4", "iq4_nl", "nf4_int8" of NF4 in int8; "learned2", ... of learned(b), "learned2_int8",
  /// ... of learnedInt8(b); empty: any other.
  std::string_view name() const;
  /// The table of a name, or null.
  static const Codebook *named(std::string_view name);
  /// All names that there are.
  static std::vector<std::string_view> names();

private:
  explicit Codebook(std::vector<float> values);
  std::vector<float> table;
  std::optional<float> unit;
};

//===- Scales -------------------------------------------------------------===//

/// The nearest scale of the format for a positive normal x; f16 may become infinite or subnormal
/// (see isScale). f8E8M0FNU: the power of two not above x.
float roundScale(float x, ScaleFormat format);
/// Is x, which roundScale has given, one that the format holds with all its bits: finite, and of
/// f16 and bf16 normal?
bool isScale(float x, ScaleFormat format);
/// The least of them.
float leastScale(ScaleFormat format);
/// The bits of a scale that the format holds, in 1, 2 or 4 bytes (of ui6 in six bits), and back.
uint32_t encodeScale(float scale, ScaleFormat format);
float decodeScale(uint32_t bits, ScaleFormat format);
constexpr int scaleBytes(ScaleFormat format) {
  return format == ScaleFormat::F32                                  ? 4
         : format == ScaleFormat::F16 || format == ScaleFormat::BF16 ? 2
                                                                     : 1;
}

/// Bits of the scales of a row, of so many groups.
constexpr int64_t rowScaleBits(ScaleFormat format, int64_t groups) {
  return format == ScaleFormat::UI6 ? 6 * groups + 16 * superGroupCount(groups)
                                    : 8 * scaleBytes(format) * groups;
}

/// The f16 that scales of ui6 of a super-group are in units of, so that the largest of them is 63:
/// the least normal f16 at least, and infinite where f16 does not hold it (see isScale).
float superScale(float largest);
/// The same found from products of the f16 and ui6, as QParams has them; nothing where they are
/// none.
std::optional<float> superScaleOf(std::span<const float> scales);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_NUMBERFORMATS_H
