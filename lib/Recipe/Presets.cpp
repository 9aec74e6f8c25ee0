//===- Presets.cpp - Schemes by their names -------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Recipe/Presets.h"

#include <algorithm>
#include <array>

using easyquant::numerics::Codebook;
using easyquant::numerics::CodeFormat;
using easyquant::numerics::ScaleFormat;

namespace easyquant::recipe {

static constexpr std::string_view kAsymmetric = "_ASYM";
static constexpr std::array<std::string_view, 6> kWeights = {"W8", "W6", "W5", "W4", "W3", "W2"};
static constexpr std::array<std::string_view, 2> kActivations = {"A8", "A16"};

static Preset tablePreset(const Codebook *table, InputCodes input = InputCodes::None) {
  return {.weightBits = table->bits(), .codes = CodeFormat::Table, .table = table, .input = input};
}

/// One of llama.cpp's types whose blocks of 32 have one scale.
static constexpr Preset llamaCppPreset(int bits) {
  return {
      .weightBits = bits, .scales = ScaleFormat::F16, .groupSize = 32, .withoutZeroPoints = true};
}

/// The same with a minimum beside the scale.
static constexpr Preset llamaCppMinimaPreset(int bits) {
  Preset preset = llamaCppPreset(bits);
  preset.asymmetric = preset.minima = true;
  return preset;
}

/// One of llama.cpp's types whose blocks of 256 have groups.
static constexpr Preset superBlockPreset(int bits, int64_t group, std::string_view fallback) {
  return {.weightBits = bits,
          .scales = ScaleFormat::F32,
          .groupSize = group,
          .withoutZeroPoints = true,
          .superBlocks = true,
          .fallback = fallback};
}

/// The same with minima.
static constexpr Preset superMinimaPreset(int bits, int64_t group, std::string_view fallback) {
  Preset preset = superBlockPreset(bits, group, fallback);
  preset.asymmetric = preset.minima = true;
  return preset;
}

/// Beside int8 activations, the table of a name that is int8, too.
static Preset int8TablePreset(std::string_view table) {
  return tablePreset(Codebook::named(table), InputCodes::Int8);
}

std::span<const NamedScheme> namedSchemes() {
  static constexpr Preset kFP8{.weightBits = 8,
                               .codes = CodeFormat::F8E4M3FN,
                               .input = InputCodes::F8E4M3FN,
                               .scales = ScaleFormat::F32,
                               .groupSize = 0};
  static constexpr auto fp8 = [](bool isStatic) {
    Preset preset = kFP8;
    preset.isStatic = isStatic;
    return preset;
  };
  static constexpr Preset kMXFP4{.weightBits = 4,
                                 .codes = CodeFormat::F4E2M1FN,
                                 .scales = ScaleFormat::F8E8M0FNU,
                                 .groupSize = 32};
  static constexpr Preset kNVFP4Weights{.weightBits = 4,
                                        .codes = CodeFormat::F4E2M1FN,
                                        .scales = ScaleFormat::F8E4M3FN,
                                        .groupSize = 16,
                                        .outer = true};
  // As NVIDIA's ModelOpt and compressed-tensors have it: the scale of all activations is
  // calibrated.
  static constexpr Preset kNVFP4 = [] {
    Preset preset = kNVFP4Weights;
    preset.input = InputCodes::F4E2M1FN;
    preset.isStatic = true;
    return preset;
  }();
  static const Preset kIQ4NL = [] {
    Preset preset = tablePreset(Codebook::iq4nl());
    preset.scales = ScaleFormat::F16;
    preset.groupSize = 32;
    return preset;
  }();
  static const Preset kIQ4XS = [] {
    Preset preset = superBlockPreset(4, 32, "IQ4_NL");
    preset.codes = CodeFormat::Table;
    preset.table = Codebook::iq4nl();
    return preset;
  }();
  static constexpr const char *kFP8Rows = "FP8 (E4M3), a scale per output channel";
  static constexpr const char *kNVFP4Groups = "FP4 (E2M1) in groups of 16 with scales of FP8 "
                                              "(E4M3), these in units of one f32 of the tensor";
  static constexpr const char *kInt8Tokens = "int8, a scale per token at run time";
  static const NamedScheme kSchemes[] = {
      {"FP8", fp8(true), kFP8Rows, "FP8, a scale per tensor from calibration (`--calib`)"},
      {"FP8_DYNAMIC", fp8(false), kFP8Rows, "FP8, a scale per token at run time"},
      {"MXFP4A16", kMXFP4,
       "FP4 (E2M1) in groups of 32, each with a power of two (OCP Microscaling)"},
      {"NVFP4", kNVFP4, kNVFP4Groups,
       "the same: the f32 of the tensor from calibration (`--calib`), scales of groups from each "
       "row"},
      {"NVFP4A16", kNVFP4Weights, kNVFP4Groups},
      {"Q8_0", llamaCppPreset(8), "8 bits in groups of 32 with f16 scales (llama.cpp)"},
      {"Q5_0", llamaCppPreset(5), "the same with 5 bits"},
      {"Q4_0", llamaCppPreset(4), "the same with 4 bits"},
      {"Q5_1", llamaCppMinimaPreset(5),
       "5 bits in groups of 32, each with a scale and a minimum in f16 (llama.cpp)"},
      {"Q4_1", llamaCppMinimaPreset(4), "the same with 4 bits"},
      {"IQ4_NL", kIQ4NL, "the 16 values of IQ4_NL in groups of 32 with f16 scales (llama.cpp)"},
      {"Q6_K", superBlockPreset(6, 16, "Q8_0"),
       "6 bits in groups of 16 with scales of 8 bits, in units of an f16 for 256 columns "
       "(llama.cpp); where 256 does not divide the columns, `Q8_0`"},
      {"Q5_K", superMinimaPreset(5, 32, "Q5_1"),
       "5 bits in groups of 32 with scales and minima of 6 bits, these in units of two f16 for 256 "
       "columns (llama.cpp); else `Q5_1`"},
      {"Q4_K", superMinimaPreset(4, 32, "Q5_0"), "the same with 4 bits; else `Q5_0`"},
      {"Q3_K", superBlockPreset(3, 16, "IQ4_NL"),
       "as `Q6_K`, with 3 bits and scales of 6; else `IQ4_NL`"},
      {"Q2_K", superMinimaPreset(2, 16, "IQ4_NL"),
       "as `Q4_K`, with 2 bits in groups of 16, scales and minima of 4; else `IQ4_NL`"},
      {"IQ4_XS", kIQ4XS,
       "the 16 values of IQ4_NL in groups of 32, with scales of 6 bits as those of `Q3_K`; else "
       "`IQ4_NL`"},
      {"NF4A16", tablePreset(Codebook::nf4()), "the 16 values of NF4 (QLoRA), a scale per group"},
      {"IQ4NLA16", tablePreset(Codebook::iq4nl()),
       "the 16 values of IQ4_NL (llama.cpp), a scale per group"},
      {"T4A16", tablePreset(Codebook::learned(4)),
       "16 values that are [learned from the weights](#learned-tables), a scale per group"},
      {"T3A16", tablePreset(Codebook::learned(3)), "the same with 8 values"},
      {"T2A16", tablePreset(Codebook::learned(2)), "the same with 4 values"},
      {"NF4A8", int8TablePreset("nf4_int8"),
       "the 16 values of NF4 to the nearest of 127, a scale per group", kInt8Tokens},
      {"IQ4NLA8", int8TablePreset("iq4_nl"), "as IQ4NLA16, whose values are int8", kInt8Tokens},
      {"T4A8", int8TablePreset("learned4_int8"),
       "16 values of int8 that are [learned from the weights](#learned-tables), a scale per group",
       kInt8Tokens},
      {"T3A8", int8TablePreset("learned3_int8"), "the same with 8 values", kInt8Tokens},
      {"T2A8", int8TablePreset("learned2_int8"), "the same with 4 values", kInt8Tokens}};
  return kSchemes;
}

/// W{2,3,4,5,6,8}A{8,16}[_ASYM].
static std::optional<Preset> integerPreset(std::string_view scheme) {
  Preset preset;
  preset.asymmetric = scheme.ends_with(kAsymmetric);
  if (preset.asymmetric)
    scheme.remove_suffix(kAsymmetric.size());
  if (std::ranges::count(kWeights, scheme.substr(0, 2)) == 0 ||
      std::ranges::count(kActivations, scheme.substr(std::min<size_t>(2, scheme.size()))) == 0)
    return std::nullopt;
  preset.weightBits = scheme[1] - '0';
  preset.input = scheme.ends_with("A8") ? InputCodes::Int8 : InputCodes::None;
  return preset;
}

std::optional<Preset> findPreset(std::string_view scheme) {
  if (scheme == "none" || scheme == kKeepScheme)
    return Preset();
  if (scheme == kKeepA8Scheme)
    return Preset{.input = InputCodes::Int8};
  for (const NamedScheme &named : namedSchemes())
    if (named.name == scheme)
      return named.preset;
  return integerPreset(scheme);
}

std::vector<std::string> schemeNames() {
  std::vector<std::string> names = {"none", std::string(kKeepScheme), std::string(kKeepA8Scheme)};
  for (std::string_view suffix : {std::string_view(), kAsymmetric})
    for (std::string_view weights : kWeights)
      for (std::string_view activations : kActivations)
        names.push_back(std::string(weights).append(activations).append(suffix));
  for (const NamedScheme &named : namedSchemes())
    names.emplace_back(named.name);
  return names;
}

std::vector<std::string> weightSchemeNames() {
  std::vector<std::string> names = schemeNames();
  std::erase_if(names, [](const std::string &name) {
    const Preset preset = *findPreset(name);
    return preset.isFloat() ||
           (preset.input != InputCodes::None && preset.input != InputCodes::Int8);
  });
  return names;
}

std::string headScheme(std::string_view scheme) {
  std::optional<Preset> preset = findPreset(scheme);
  if (!preset || preset->isFloat())
    return std::string(scheme);
  if (preset->input == InputCodes::F8E4M3FN || preset->input == InputCodes::F4E2M1FN)
    return "FP8_DYNAMIC";
  std::string name = preset->input == InputCodes::Int8 ? "W8A8" : "W8A16";
  return preset->asymmetric ? name.append(kAsymmetric) : name;
}

} // namespace easyquant::recipe
