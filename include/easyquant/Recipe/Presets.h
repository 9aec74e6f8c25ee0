//===- Presets.h - Schemes by their names -----------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_RECIPE_PRESETS_H
#define EASYQUANT_RECIPE_PRESETS_H

#include <string>
#include <string_view>
#include <vector>

namespace easyquant::recipe {

/// What the name of a scheme means, _ASYM or not.
struct Preset {
  std::string_view name;
  int weightBits; ///< 0: float
  bool quantizedInput;
};

/// Null if there is no such scheme.
const Preset *findPreset(std::string_view scheme);
/// Does it ask for zero points, _ASYM?
bool isAsymmetric(std::string_view scheme);
/// All names that findPreset knows.
std::vector<std::string> schemeNames();
/// The scheme that the output head has in another one.
std::string headScheme(std::string_view scheme);

} // namespace easyquant::recipe

#endif // EASYQUANT_RECIPE_PRESETS_H
