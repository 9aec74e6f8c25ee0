//===- ConfigChecks.h - What both kinds of configuration share ----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_FORMATS_CONFIGCHECKS_H
#define EASYQUANT_LIB_FORMATS_CONFIGCHECKS_H

#include "easyquant/Formats/ModelConfig.h"

namespace easyquant::formats {

/// Largest values that a configuration may name. Beyond any model, and small enough that no product
/// of two overflows.
constexpr int64_t kLargestVocabulary = (int64_t(1) << 31) - 1; // tokens are int32
constexpr int64_t kLargestContext = (int64_t(1) << 31) - 1;
constexpr int64_t kLargestWidth = int64_t(1) << 24;
constexpr int64_t kMostLayers = 4096;
constexpr int64_t kMostHeads = 1 << 16;
constexpr int64_t kMostExperts = 1 << 12;
constexpr int64_t kLargestStack = (int64_t(1) << 31) - 1; ///< rows of all experts of a module
constexpr int64_t kWidestConvolution = 64;

/// A SizeField::Rule or a number, as a number; the sizes that the rule speaks of are known.
int64_t defaultSize(int64_t rule, const ModelConfig &config);

/// One flag a layer, false at every `n`-th.
std::vector<bool> everyButNth(int64_t n, int64_t layers);

/// ModelConfig::rotatedLayers where every `unrotatedEvery`-th layer is not rotated; 0: none.
std::vector<bool> rotatedLayers(int64_t unrotatedEvery, int64_t layers);

/// ModelConfig::windowedLayers where every `pattern`-th layer sees all tokens; 0: all have the
/// window.
std::vector<bool> windowedLayers(int64_t pattern, int64_t layers);

/// ModelConfig::embeddingFactor of an architecture that has no field for it, in f32 as transformers
/// and llama.cpp compute it.
double embeddingFactor(const ModelConfig &config);

/// What products of queries and keys are divided by the root of, where GGUF does not say it.
double ggufAttentionWidth(const ModelConfig &config);

/// One form for each meaning: no window where no layer has it, and no list where all have it.
void normalizeWindows(ModelConfig &config);

/// "config.json: architecture "mistrall" is not supported; supported: …; did you mean 'mistral'?":
/// `names` is what files of the kind call an architecture, `details` what stands before the hint.
Error unsupportedArchitecture(std::string_view fileName, std::string_view name,
                              const char *Architecture::*names, std::string_view details = {});

/// Checks what follows from several fields together. `fileName` is for messages.
Result<void> checkConsistency(const ModelConfig &config, std::string_view fileName);

/// eosTokenIds of a generation_config.json, which overrides config.json in the transformers
/// library; empty where it names none.
Result<std::vector<int64_t>> parseEosTokenIds(std::string_view text, std::string_view fileName);

} // namespace easyquant::formats

#endif // EASYQUANT_LIB_FORMATS_CONFIGCHECKS_H
