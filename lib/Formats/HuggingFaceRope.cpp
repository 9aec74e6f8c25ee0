//===- HuggingFaceRope.cpp - Rotary positions in config.json --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "HuggingFaceFields.h"

#include "ConfigChecks.h"
#include "Text.h"

#include <algorithm>
#include <array>
#include <cmath>

using namespace easyquant;
using namespace easyquant::formats;
using namespace easyquant::formats::huggingFace;

/// How many dimensions of a head are rotated. transformers rounds down.
static void readPartialRotation(FieldReader &fields, ModelConfig &config) {
  if (!fields.find("partial_rotary_factor"))
    return;
  const double factor = positive(fields, "partial_rotary_factor", 1.0);
  if (factor != 1.0 && !config.architecture->rotatesPart)
    return fields.failInWords(ErrorCode::Unsupported,
                              "partial_rotary_factor: {} is not supported for {}; expected 1",
                              factor, config.architecture->name);
  const double dims = factor * static_cast<double>(config.ropeHeadDim());
  if (factor > 1.0 || dims < 2.0)
    return fields.failInWords(
        ErrorCode::Corrupt,
        "partial_rotary_factor: expected a part of 1 that gives at least 2 of "
        "the {} dimensions of a head, found {}",
        config.ropeHeadDim(), factor);
  config.rope.dims = static_cast<int64_t>(dims);
}

/// Turns so many of the pairs of a head, with the angles that they would have if all turned.
static void turnInProportion(FieldReader &fields, double part, ModelConfig &config) {
  numerics::RopeParams &rope = config.rope;
  rope.dims = config.ropeHeadDim();
  rope.turnedPairs = static_cast<int64_t>(part * static_cast<double>(rope.dims)) / 2;
  if (part > 1.0 || rope.turnedPairs < 1)
    return fields.failInWords(ErrorCode::Corrupt,
                              "partial_rotary_factor: expected a part of 1 that gives at least 2 "
                              "of the {} dimensions of a head, found {}",
                              rope.dims, part);
  if (2 * rope.turnedPairs < rope.dims)
    rope.scaling = numerics::RopeScaling::Proportional;
  else
    rope.turnedPairs = 0; // one form for each meaning
}

/// A divisor for each pair that is rotated.
static std::vector<float> readDivisors(FieldReader &scaling, const char *name,
                                       const ModelConfig &config) {
  std::vector<double> numbers;
  scaling.required(name, numbers, Numbers::Positive);
  if (!scaling.failed() && std::ssize(numbers) != config.rope.dims / 2)
    scaling.failInWords(ErrorCode::Corrupt,
                        "{}: found {} numbers, expected one for each of {} pairs of rotated "
                        "dimensions",
                        name, numbers.size(), config.rope.dims / 2);
  const std::vector<float> divisors(numbers.begin(), numbers.end());
  for (size_t i = 0; i < divisors.size(); ++i)
    if (!std::isnormal(divisors[i]))
      scaling.failInWords(ErrorCode::Corrupt,
                          "{}: expected positive numbers in the range of f32, "
                          "found {}",
                          name, numbers[i]);
  return divisors;
}

/// "longrope": the lists are for contexts of up to `original` tokens, and for longer ones.
static void readLongRope(FieldReader &scaling, int64_t original, ModelConfig &config) {
  numerics::RopeParams &rope = config.rope;
  rope.scaling = numerics::RopeScaling::LongRope;
  rope.originalPositions = original;
  rope.divisors = readDivisors(scaling, "short_factor", config);
  config.longDivisors = readDivisors(scaling, "long_factor", config);
  const double factor = positive(
      scaling, "factor", static_cast<double>(config.maxContext) / static_cast<double>(original));
  if (factor > 1.0 && original < 2)
    return scaling.failInWords(ErrorCode::Corrupt,
                               "original_max_position_embeddings: expected at least 2, found {}",
                               original);
  rope.attentionFactor =
      positive(scaling, "attention_factor", numerics::longRopeAttentionFactor(factor, original));
}

/// The frequencies that rope_scaling of transformers 4, or rope_parameters of 5, asks for.
/// `outside`: the original_max_position_embeddings beside it, which comes before that in it.
static void readRopeScaling(FieldReader &scaling, std::optional<int64_t> outside,
                            ModelConfig &config) {
  numerics::RopeParams &rope = config.rope;
  rope.theta = positive(scaling, "rope_theta", rope.theta);
  std::string kind =
      word(scaling, "rope_type", word(scaling, "type", "default")); // "type" of old files
  if (kind == "proportional" && config.architecture->proportionalPart != 0.0) {
    if (const double factor = positive(scaling, "factor", 1.0); factor != 1.0)
      return scaling.failInWords(ErrorCode::Unsupported,
                                 "factor: {} is not supported with rope_type {}; expected 1",
                                 factor, quote(kind));
    return turnInProportion(scaling, positive(scaling, "partial_rotary_factor", 1.0), config);
  }
  readPartialRotation(scaling, config);
  auto original = [&] {
    return outside ? *outside
                   : integer(scaling, "original_max_position_embeddings", kLargestContext,
                             config.maxContext);
  };
  // The first files of Phi-3 called it so.
  if (kind == "su" || (kind == "yarn" && scaling.find("short_factor")))
    kind = "longrope";
  auto need = [&](const char *name) {
    if (!scaling.find(name))
      scaling.failInWords(ErrorCode::Corrupt, "{}: missing; RoPE scaling {} needs it", name,
                          quote(kind));
    return positive(scaling, name, 1.0);
  };
  constexpr std::array<std::string_view, 6> kinds = {"default", "linear", "dynamic",
                                                     "llama3",  "yarn",   "longrope"};
  if (std::ranges::find(kinds, kind) == kinds.end())
    return scaling.failInWords(
        ErrorCode::Unsupported,
        "RoPE scaling {} is not supported; expected \"default\", \"linear\", "
        "\"dynamic\", \"llama3\", \"yarn\" or \"longrope\"",
        quote(kind));
  if (kind == "longrope")
    return readLongRope(scaling, original(), config);
  // "dynamic" (NTK) changes the base beyond max_position_embeddings tokens, where no context goes.
  if (kind != "default" && kind != "dynamic")
    rope.factor = need("factor");
  if (rope.factor < 1.0)
    scaling.failInWords(ErrorCode::Corrupt, "factor: expected a number from 1 on, found {}",
                        rope.factor);

  if (kind == "linear") {
    rope.scaling = numerics::RopeScaling::Linear;
  } else if (kind == "llama3") {
    rope.scaling = numerics::RopeScaling::Llama3;
    rope.lowFrequencyFactor = need("low_freq_factor");
    rope.highFrequencyFactor = need("high_freq_factor");
    rope.originalPositions =
        outside ? *outside : static_cast<int64_t>(need("original_max_position_embeddings"));
    if (rope.lowFrequencyFactor >= rope.highFrequencyFactor)
      scaling.failInWords(ErrorCode::Corrupt,
                          "low_freq_factor {} must be below high_freq_factor {}",
                          rope.lowFrequencyFactor, rope.highFrequencyFactor);
  } else if (kind == "yarn") {
    rope.scaling = numerics::RopeScaling::Yarn;
    rope.originalPositions = original();
    rope.betaFast = positive(scaling, "beta_fast", 32.0);
    rope.betaSlow = positive(scaling, "beta_slow", 1.0);
    rope.truncate = flag(scaling, "truncate", true);
    double factor = numerics::yarnAttentionFactor(rope.factor);
    if (scaling.find("mscale") && scaling.find("mscale_all_dim"))
      factor = numerics::yarnAttentionFactor(rope.factor, positive(scaling, "mscale", 1.0)) /
               numerics::yarnAttentionFactor(rope.factor, positive(scaling, "mscale_all_dim", 1.0));
    rope.attentionFactor = positive(scaling, "attention_factor", factor);
    if (const NumberField &gain = config.architecture->lateGain; gain && scaling.find(gain.key))
      rope.lateGain = positive(scaling, gain.key, 0.0);
    if (rope.betaSlow >= rope.betaFast)
      scaling.failInWords(ErrorCode::Corrupt, "beta_slow {} must be below beta_fast {}",
                          rope.betaSlow, rope.betaFast);
    if (rope.theta <= 1.0)
      scaling.failInWords(ErrorCode::Corrupt, "rope_theta {}: \"yarn\" needs one above 1",
                          rope.theta);
    // Qwen's instructions add the scaling and leave max_position_embeddings as it was.
    const double extended = rope.factor * static_cast<double>(rope.originalPositions);
    if (extended <= static_cast<double>(kLargestContext))
      config.maxContext = std::max(config.maxContext, static_cast<int64_t>(std::llround(extended)));
  }
  if (kind == "dynamic" && original() != config.maxContext)
    scaling.failInWords(ErrorCode::Unsupported,
                        "RoPE scaling \"dynamic\" with original_max_position_embeddings other than "
                        "max_position_embeddings is not supported");
  for (std::string_view name : {"mrope_section", "short_factor", "long_factor"})
    if (scaling.find(name.data()) &&
        !(config.architecture->readsSections && name == "mrope_section"))
      scaling.failInWords(ErrorCode::Unsupported, "{} is not supported with rope_type {}", name,
                          quote(kind));
  if (const char *key = "llama_4_scaling_beta"; scaling.find(key) && rope.lateGain == 0.0)
    scaling.failInWords(ErrorCode::Unsupported, "{} is not supported with rope_type {} in {}", key,
                        quote(kind), config.architecture->name);
}

/// rope_parameters of transformers 5 where kinds of layers have their own.
static void readRopeOfKinds(FieldReader &kinds, std::optional<int64_t> original,
                            ModelConfig &config) {
  if (kinds.find("full_attention"))
    kinds.object("full_attention",
                 [&](FieldReader &found) { readRopeScaling(found, original, config); });
  if (!kinds.find("sliding_attention"))
    return;
  kinds.object("sliding_attention", [&](FieldReader &found) {
    const std::string kind = word(found, "rope_type", "default");
    if (kind != "default")
      found.failInWords(ErrorCode::Unsupported,
                        "RoPE scaling {} in layers with a window is not supported; expected "
                        "\"default\"",
                        quote(kind));
    config.windowedRope->theta = positive(found, "rope_theta", config.windowedRope->theta);
    readPartialRotation(found, config);
  });
}

void huggingFace::readRope(FieldReader &fields, ModelConfig &config) {
  const Architecture &architecture = *config.architecture;
  const bool isByKind = architecture.proportionalPart != 0.0;
  config.rope.dims = static_cast<int64_t>(architecture.rotatedOtherwise *
                                          static_cast<double>(config.ropeHeadDim()));
  config.rope.theta =
      isByKind ? architecture.ropeTheta : positive(fields, "rope_theta", architecture.ropeTheta);
  if (!isByKind)
    readPartialRotation(fields, config);
  std::optional<int64_t> original;
  if (const char *key = "original_max_position_embeddings"; fields.find(key))
    original = integer(fields, key, kLargestContext);
  if (const NumberField &theta = architecture.windowedRopeTheta) {
    config.windowedRope = numerics::RopeParams{.dims = config.headDim};
    config.windowedRope->theta =
        isByKind ? theta.otherwise : positive(fields, theta.key, theta.otherwise);
  } else if (architecture.scalesUnwindowedRope) {
    config.windowedRope = numerics::RopeParams{.dims = config.headDim, .theta = config.rope.theta};
  }
  const Json *scaling = fields.find("rope_scaling"), *parameters = fields.find("rope_parameters");
  if (scaling && parameters && *scaling != *parameters)
    return fields.failInWords(ErrorCode::Corrupt,
                              "rope_scaling and rope_parameters say different things; remove one");
  // transformers has scaling of its own where these architectures have none.
  if ((architecture.lateGain || !architecture.truncatesYarn) && !parameters && !scaling)
    return fields.failInWords(ErrorCode::Corrupt,
                              "rope_parameters: missing; {} has no positions without it",
                              architecture.name);
  if (isByKind && !parameters)
    turnInProportion(fields, architecture.proportionalPart, config);
  if (parameters || (scaling && !isByKind))
    fields.object(parameters ? "rope_parameters" : "rope_scaling", [&](FieldReader &found) {
      if (isByKind && !found.find("full_attention"))
        found.failInWords(ErrorCode::Corrupt,
                          "full_attention: missing; layers of {} have "
                          "parameters by their kind",
                          architecture.name);
      else if (config.windowedRope &&
               (found.find("full_attention") || found.find("sliding_attention")))
        readRopeOfKinds(found, original, config);
      else
        readRopeScaling(found, original, config);
    });
  // One form for each meaning.
  if (architecture.scalesUnwindowedRope && config.windowedRope == config.rope)
    config.windowedRope.reset();
}
