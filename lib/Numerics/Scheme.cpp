//===- Scheme.cpp - Which schemes there are -------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Scheme.h"

#include "easyquant/Numerics/Hadamard.h"
#include "easyquant/Numerics/SuperBlocks.h"

#include <algorithm>

namespace easyquant::numerics {

/// The format of codes that are no integers.
static Result<void> checkFormat(const Scheme &scheme) {
  if ((scheme.codes == CodeFormat::Table) != (scheme.table != nullptr))
    return makeError(ErrorCode::InvalidArgument, "{} codes {} a table of values",
                     toString(scheme.codes), scheme.table ? "with" : "without");
  if (scheme.isInteger())
    return {};
  const int bits = scheme.table ? scheme.table->bits() : floatFormat(scheme.codes)->bits;
  if (scheme.bits != bits)
    return makeError(ErrorCode::InvalidArgument, "{} codes of {} bits: they have {}",
                     toString(scheme.codes), scheme.bits, bits);
  if (!scheme.symmetric || scheme.fullRange)
    return makeError(
        ErrorCode::InvalidArgument, "{} codes {}: only integers have zero points and a full range",
        toString(scheme.codes), scheme.symmetric ? "of the full range" : "with zero points");
  return {};
}

CodeValues codeValues(const Scheme &scheme) {
  if (const FloatFormat *format = floatFormat(scheme.codes))
    return {-format->largest, format->largest, format->largestStep()};
  if (scheme.table) {
    std::span<const float> table = scheme.table->values();
    CodeValues values{table.front(), table.back(), 0};
    for (size_t i = 1; i < table.size(); ++i)
      values.gap = std::max(values.gap, table[i] - table[i - 1]);
    return values;
  }
  CodeRange range = codeRange(scheme);
  return {static_cast<float>(range.min), static_cast<float>(range.max), 1};
}

Result<void> checkScheme(const Scheme &scheme) {
  if (!isCodeWidth(scheme.bits))
    return makeError(ErrorCode::Unsupported,
                     "scheme of {} bits: codes have 2, 3, 4, 5, 6 or 8 bits; choose one of these",
                     scheme.bits);
  if (auto ok = checkFormat(scheme); !ok)
    return ok;
  if (scheme.granularity == Granularity::Group && scheme.groupSize < 1)
    return makeError(ErrorCode::InvalidArgument,
                     "scheme with a scale per group and group size {}: expected a group size of at "
                     "least 1 (32, 64 and 128 are usual)",
                     scheme.groupSize);
  if (scheme.granularity == Granularity::Token && scheme.groupSize != 0) {
    if (scheme.bits != 8)
      return makeError(ErrorCode::Unsupported,
                       "{}-bit {} codes of tokens in groups: groups of a token are those of int8 "
                       "and FP8; ask for one scale a token",
                       scheme.bits, toString(scheme.codes));
    if (!isTokenGroup(scheme.groupSize))
      return makeError(ErrorCode::InvalidArgument,
                       "groups of {} columns of a token: expected 32, 64 or 128, or 0 for one "
                       "scale a token",
                       scheme.groupSize);
  } else if (scheme.granularity != Granularity::Group && scheme.groupSize != 0)
    return makeError(ErrorCode::InvalidArgument,
                     "scheme with a scale per {} and group size {}: only a scale per group has a "
                     "group size; set it to 0, or ask for groups",
                     toString(scheme.granularity), scheme.groupSize);
  if (scheme.scales == ScaleFormat::UI6 &&
      (scheme.granularity != Granularity::Group || scheme.dynamic || scheme.outer))
    return makeError(ErrorCode::InvalidArgument,
                     "two-level scales (ui6) per {}: they are those of groups, static, and have no "
                     "other scale above them; ask for groups",
                     toString(scheme.granularity));
  if (scheme.fullRange && !scheme.symmetric)
    return makeError(
        ErrorCode::InvalidArgument,
        "asymmetric scheme with the full range asked for: asymmetric codes always have "
        "it; only symmetric schemes choose");
  if (scheme.minima && (!scheme.isInteger() || scheme.symmetric || scheme.dynamic || scheme.outer ||
                        scheme.granularity != Granularity::Group ||
                        (scheme.scales != ScaleFormat::F32 && scheme.scales != ScaleFormat::F16)))
    return makeError(ErrorCode::InvalidArgument,
                     "{} minima of {} codes per {} with {} scales: they are those of asymmetric "
                     "integers in groups, static, with scales of f32 or f16; leave them out",
                     scheme.dynamic ? "dynamic" : "static",
                     scheme.symmetric ? "symmetric" : "asymmetric", toString(scheme.granularity),
                     toString(scheme.scales));
  if (scheme.superBlocks && !superIntegers(scheme))
    return makeError(
        ErrorCode::InvalidArgument,
        "super-blocks of {}-bit {} codes{} in groups of {} with {} scales: no type has "
        "them; those of 2 bits with minima, 3 and 6 bits have groups of 16, those of 4 "
        "and 5 bits with minima and of the table iq4_nl groups of 32, with f32 scales",
        scheme.bits, toString(scheme.codes), scheme.minima ? " with minima" : "", scheme.groupSize,
        toString(scheme.scales));
  if (scheme.granularity == Granularity::Token && !scheme.dynamic)
    return makeError(ErrorCode::InvalidArgument,
                     "static scheme with a scale per token: tokens are known only at run time; "
                     "make it dynamic, or ask for one scale per tensor");
  if (scheme.sinks && (!scheme.isInteger() || scheme.bits != 8 || scheme.dynamic ||
                       scheme.granularity != Granularity::Tensor))
    return makeError(ErrorCode::InvalidArgument,
                     "sinks apart of {}-bit codes with a {} scale per {}: they are those of int8 "
                     "activations with one static scale; leave them out",
                     scheme.bits, scheme.dynamic ? "dynamic" : "static",
                     toString(scheme.granularity));
  if (scheme.hadamard != 0 && !isHadamardBlock(scheme.hadamard))
    return makeError(ErrorCode::InvalidArgument,
                     "basis that is rotated in blocks of {} columns: blocks are powers of two from "
                     "{} to {}",
                     scheme.hadamard, kLeastHadamard, kLargestHadamard);
  bool isDynamicGroup = scheme.granularity == Granularity::Group && !scheme.isInteger();
  if (scheme.dynamic && scheme.granularity != Granularity::Token &&
      scheme.granularity != Granularity::Tensor && !isDynamicGroup)
    return makeError(ErrorCode::Unsupported,
                     "dynamic scheme with a scale per {}: scales computed at run time are per "
                     "token or per tensor, of codes that are no integers also per group",
                     toString(scheme.granularity));
  return {};
}

const char *toString(Granularity granularity) {
  static constexpr const char *names[] = {"tensor", "channel", "group", "token"};
  return names[static_cast<int>(granularity)];
}

std::string toString(const Scheme &scheme) {
  std::string text;
  if (scheme.isInteger())
    text = fmt::format("int{} {}", scheme.bits,
                       scheme.symmetric ? "symmetric"
                       : scheme.minima  ? "with minima"
                                        : "asymmetric");
  else if (scheme.table && !scheme.table->name().empty())
    text = scheme.table->name();
  else
    text = scheme.table ? fmt::format("table of {}", scheme.table->values().size())
                        : toString(scheme.codes);
  if (scheme.fullRange)
    text += " full range";
  text += scheme.granularity == Granularity::Group
              ? fmt::format(", groups of {}", scheme.groupSize)
              : fmt::format(", per {}", toString(scheme.granularity));
  if (scheme.granularity == Granularity::Token && scheme.groupSize)
    text += fmt::format(" in groups of {}", scheme.groupSize);
  if (scheme.dynamic)
    text += ", dynamic";
  if (scheme.sinks)
    text += ", sinks apart";
  if (scheme.scales != ScaleFormat::F32)
    text += fmt::format(", {} scales", toString(scheme.scales));
  if (scheme.outer)
    text += ", scaled";
  if (scheme.superBlocks)
    text += ", super-blocks";
  if (scheme.hadamard)
    text += fmt::format(", behind H{}", scheme.hadamard);
  return text;
}

} // namespace easyquant::numerics
