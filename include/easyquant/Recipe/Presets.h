//===- Presets.h - Schemes by their names -----------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The names that people give to schemes of one format, read here and nowhere else; Mixes.h has
// those of several:
//
// clang-format off
//      none                        float
//      W{2,3,4,5,6,8}A{8,16}[_ASYM]
//                                  integer weights of so many bits, int8 activations or float ones;
//                                  _ASYM: with zero points
//      FP8, FP8_DYNAMIC            f8E4M3FN weights, a scale a row, and activations, a static scale
//                                  a tensor or one a token
//      MXFP4A16                    f4E2M1FN weights in groups of 32 with f8E8M0FNU scales
//      NVFP4, NVFP4A16             f4E2M1FN weights in groups of 16 with f8E4M3FN scales and an
//                                  f32 one a tensor; activations the same, the scale of the tensor from
//                                  calibration and those of groups from each row, or float ones
//      NF4A16, IQ4NLA16            weights of the table NF4 (QLoRA), or IQ4_NL (llama.cpp)
//      T{2,3,4}A16                 weights of a table of so many bits that is learned from them
// clang-format on
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_RECIPE_PRESETS_H
#define EASYQUANT_RECIPE_PRESETS_H

#include "easyquant/Numerics/NumberFormats.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace easyquant::recipe {

/// What activations are quantized to.
enum class InputCodes { None, Int8, F8E4M3FN, F4E2M1FN };

/// What the name of a scheme means.
struct Preset {
  int weightBits = 0; ///< 0: float
  bool asymmetric = false;
  numerics::CodeFormat codes = numerics::CodeFormat::Integer;
  const numerics::Codebook *table = nullptr; ///< of CodeFormat::Table
  InputCodes input = InputCodes::None;
  /// What the name fixes, if anything: the format of scales, the group size (0: none), and whether
  /// scales of activations are static.
  std::optional<numerics::ScaleFormat> scales = std::nullopt;
  std::optional<int64_t> groupSize = std::nullopt;
  std::optional<bool> isStatic = std::nullopt;
  bool outer = false; ///< scales of groups, of activations too, have one of the tensor

  bool isFloat() const { return weightBits == 0; }
  bool isInteger() const { return codes == numerics::CodeFormat::Integer; }
};

/// Nothing if there is no such scheme.
std::optional<Preset> findPreset(std::string_view scheme);
/// All names that findPreset knows.
std::vector<std::string> schemeNames();
/// Of these, the ones that quantize weights and leave activations float.
std::vector<std::string> weightSchemeNames();
/// The scheme that the output head has in another one: codes of 8 bits, a scale a row.
std::string headScheme(std::string_view scheme);

} // namespace easyquant::recipe

#endif // EASYQUANT_RECIPE_PRESETS_H
