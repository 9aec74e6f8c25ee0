//===- ModelConfig.cpp - Hyperparameters of a model -----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/ModelConfig.h"

#include "ConfigChecks.h"
#include "Text.h"

#include <array>

using namespace easyquant;
using namespace easyquant::formats;

static constexpr std::array kArchitectures = {Architecture::LLaMA, Architecture::GPT2,
                                              Architecture::Mistral, Architecture::Qwen2,
                                              Architecture::Qwen3};

std::string_view formats::architectureName(Architecture architecture) {
  switch (architecture) {
  case Architecture::LLaMA:
    return "llama";
  case Architecture::GPT2:
    return "gpt2";
  case Architecture::Mistral:
    return "mistral";
  case Architecture::Qwen2:
    return "qwen2";
  case Architecture::Qwen3:
    return "qwen3";
  }
  return "";
}

std::string_view formats::activationName(Activation activation) {
  switch (activation) {
  case Activation::SiLU:
    return "silu";
  case Activation::GeluTanh:
    return "gelu_new";
  case Activation::GeluErf:
    return "gelu";
  }
  return "";
}

Result<Architecture> formats::parseArchitecture(std::string_view name, std::string_view fileName) {
  std::string supported;
  for (Architecture architecture : kArchitectures) {
    if (name == architectureName(architecture))
      return architecture;
    supported += (supported.empty() ? "" : ", ") + std::string(architectureName(architecture));
  }
  return makeError(ErrorCode::Unsupported, "{}: architecture {} is not supported; supported: {}",
                   fileName, quote(name), supported);
}

Result<void> formats::checkConsistency(const ModelConfig &config, std::string_view fileName) {
  if (config.numHeads % config.numKVHeads != 0)
    return makeError(ErrorCode::Corrupt,
                     "{}: {} attention heads cannot share {} key-value heads: expected a divisor",
                     fileName, config.numHeads, config.numKVHeads);
  if (config.isLLaMALike() && config.headDim % 2 != 0)
    return makeError(
        ErrorCode::Corrupt,
        "{}: head dimension {}: rotary position embedding turns pairs, so that it must "
        "be even",
        fileName, config.headDim);
  if (config.numHeads * config.headDim > kLargestWidth)
    return makeError(ErrorCode::Corrupt, "{}: {} heads of dimension {} are too wide", fileName,
                     config.numHeads, config.headDim);
  auto checkToken = [&](int64_t id, const char *what) -> Result<void> {
    if (id < 0 || id >= config.vocabSize)
      return makeError(ErrorCode::Corrupt, "{}: {} token id {} lies outside the vocabulary of {}",
                       fileName, what, id, config.vocabSize);
    return {};
  };
  if (config.bosTokenId)
    if (Result<void> checked = checkToken(*config.bosTokenId, "begin-of-text"); !checked)
      return checked;
  for (int64_t id : config.eosTokenIds)
    if (Result<void> checked = checkToken(id, "end-of-text"); !checked)
      return checked;
  return {};
}
