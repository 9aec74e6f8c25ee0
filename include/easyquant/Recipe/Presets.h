//===- Presets.h - Schemes by their names -----------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The names that people give to schemes of one format, read here and nowhere else; Mixes.h has
// those of several. W{2,3,4,5,6,8}A{8,16}[_ASYM] are integer weights of so many bits beside int8
// activations or float ones, with zero points if _ASYM. None is float, and keep is what the source
// has. The others are rows of Presets.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_RECIPE_PRESETS_H
#define EASYQUANT_RECIPE_PRESETS_H

#include "easyquant/Numerics/NumberFormats.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace easyquant::recipe {

/// The schemes of a checkpoint that is quantized: its codes as they are, the rest float. A8:
/// linears with float activations have int8 ones where their codes stand for integers.
inline constexpr std::string_view kKeepScheme = "keep", kKeepA8Scheme = "keepA8";

/// What activations are quantized to.
enum class InputCodes { None, Int8, F8E4M3FN, F4E2M1FN };

/// What the name of a scheme means.
struct Preset {
  int weightBits = 0; ///< 0: float, or what the source has
  bool asymmetric = false;
  numerics::CodeFormat codes = numerics::CodeFormat::Integer;
  const numerics::Codebook *table = nullptr; ///< of CodeFormat::Table
  InputCodes input = InputCodes::None;
  /// What the name fixes, if anything: the format of scales, the group size (0: none), and whether
  /// scales of activations are static.
  std::optional<numerics::ScaleFormat> scales = std::nullopt;
  std::optional<int64_t> groupSize = std::nullopt;
  std::optional<bool> isStatic = std::nullopt;
  bool withoutZeroPoints = false; ///< whichever method does not ask for them by name
  bool minima = false;            ///< asymmetric, with minima in place of zero points
  bool outer = false;             ///< scales of groups, of activations too, have one of the tensor
  /// Scales are integers in units of an f16 of 256 columns; weights of other columns have the
  /// scheme `fallback`, as llama.cpp gives it to them.
  bool superBlocks = false;
  std::string_view fallback = {};

  /// The base method that chooses such codes, where none is asked for.
  const char *base() const {
    return asymmetric ? "zeropoint" : superBlocks && isInteger() ? "symmetric" : "absmax";
  }
  bool isFloat() const { return weightBits == 0; }
  bool isInteger() const { return codes == numerics::CodeFormat::Integer; }
};

/// A scheme with a name of its own, and its row in docs/guide/compile.md.
struct NamedScheme {
  std::string_view name;
  Preset preset;
  const char *weights, *activations = "float";
};
std::span<const NamedScheme> namedSchemes();

/// Nothing if there is no such scheme.
std::optional<Preset> findPreset(std::string_view scheme);
/// All names that findPreset knows.
std::vector<std::string> schemeNames();
/// The names of schemes that quantize weights and leave activations float.
std::vector<std::string> weightSchemeNames();
/// The scheme that the output head has in another one: codes of 8 bits, a scale a row.
std::string headScheme(std::string_view scheme);

} // namespace easyquant::recipe

#endif // EASYQUANT_RECIPE_PRESETS_H
