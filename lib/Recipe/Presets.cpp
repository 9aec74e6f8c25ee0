//===- Presets.cpp - Schemes by their names -------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Recipe/Presets.h"

#include <algorithm>

namespace easyquant::recipe {

static constexpr std::string_view kAsymmetric = "_ASYM";
static constexpr Preset kPresets[] = {{"none", 0, false},  {"W8A8", 8, true}, {"W8A16", 8, false},
                                      {"W4A16", 4, false}, {"W4A8", 4, true}, {"W3A16", 3, false},
                                      {"W2A16", 2, false}};

bool isAsymmetric(std::string_view scheme) { return scheme.ends_with(kAsymmetric); }

const Preset *findPreset(std::string_view scheme) {
  bool asymmetric = isAsymmetric(scheme);
  if (asymmetric)
    scheme.remove_suffix(kAsymmetric.size());
  const Preset *preset = std::ranges::find(kPresets, scheme, &Preset::name);
  if (preset == std::end(kPresets) || (asymmetric && preset->weightBits == 0))
    return nullptr;
  return preset;
}

std::vector<std::string> schemeNames() {
  std::vector<std::string> names;
  for (const Preset &preset : kPresets)
    names.emplace_back(preset.name);
  for (const Preset &preset : kPresets)
    if (preset.weightBits != 0)
      names.push_back(std::string(preset.name).append(kAsymmetric));
  return names;
}

std::string headScheme(std::string_view scheme) {
  const Preset *preset = findPreset(scheme);
  if (!preset || preset->weightBits == 0)
    return std::string(scheme);
  std::string name = preset->quantizedInput ? "W8A8" : "W8A16";
  return isAsymmetric(scheme) ? name.append(kAsymmetric) : name;
}

} // namespace easyquant::recipe
