//===- GGUFCheckpoint.cpp - Models in GGUF files --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Checkpoint.h"
#include "ConfigChecks.h"
#include "Text.h"

#include "easyquant/Formats/DType.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

using namespace easyquant;
using namespace easyquant::formats;

/// The numbers of such a tensor, one for each pair that is rotated.
static Result<std::vector<float>> readFactors(const GGUFFile &gguf, const GGUFTensor &tensor,
                                              const ModelConfig &config, const std::string &path) {
  const std::vector<int64_t> expected = {config.rope.dims / 2};
  if (tensor.type != GGMLType::F32 || tensor.shape != expected)
    return makeError(ErrorCode::Corrupt, "{}: tensor {}: expected F32 of shape {}, found {} of {}",
                     path, quote(tensor.name), shapeText(expected),
                     ggmlTypeInfo(static_cast<uint32_t>(tensor.type))->name,
                     shapeText(tensor.shape));
  std::vector<float> factors(static_cast<size_t>(expected.front()));
  std::memcpy(factors.data(), gguf.data(tensor).data(), factors.size() * sizeof(float));
  return factors;
}

/// The divisors of LongRope.
static Result<std::vector<float>> readDivisors(const GGUFFile &gguf, const char *name,
                                               const ModelConfig &config, const std::string &path) {
  auto found = gguf.contents().indexByName.find(name);
  if (found == gguf.contents().indexByName.end())
    return makeError(ErrorCode::NotFound,
                     "{}: tensor {} is missing; RoPE scaling \"longrope\" needs it", path,
                     quote(name));
  auto divisors = readFactors(gguf, gguf.tensors()[found->second], config, path);
  for (size_t i = 0; divisors && i < divisors->size(); ++i)
    if (!std::isnormal((*divisors)[i]) || (*divisors)[i] < 0)
      return makeError(ErrorCode::Corrupt,
                       "{}: tensor {}: element {}: expected a positive number, found {}", path,
                       quote(name), i, (*divisors)[i]);
  return divisors;
}

/// Finds how many pairs turn: llama.cpp's converter divides the frequencies of the others by 1e30.
static Result<void> readTurnedPairs(const GGUFFile &gguf, const GGUFTensor &tensor,
                                    ModelConfig &config, const std::string &path) {
  auto factors = readFactors(gguf, tensor, config, path);
  if (!factors)
    return Unexpected(factors.error());
  const auto turned = std::ranges::find_if(*factors, [](float factor) { return factor != 1.0f; });
  numerics::RopeParams &rope = config.rope;
  rope.turnedPairs = turned - factors->begin();
  constexpr float least = 1e20f; // an angle that f32 cannot tell from 0 in any context
  if (rope.turnedPairs == 0 ||
      !std::all_of(turned, factors->end(), [](float factor) { return factor >= least; }))
    return makeError(ErrorCode::Unsupported,
                     "{}: tensor {}: expected a factor of 1 for each pair that turns, and then "
                     "one from {} on for each that does not, found {} first; import the Hugging "
                     "Face checkpoint",
                     path, quote(tensor.name), least, factors->front());
  if (2 * rope.turnedPairs < rope.dims)
    rope.scaling = numerics::RopeScaling::Proportional;
  else
    rope.turnedPairs = 0; // one form for each meaning
  return {};
}

/// Finds the scaling "llama3" that the factors of the frequencies were computed from, so that the
/// model is the one of the Hugging Face checkpoint. All models that have it agree on its
/// parameters but the factor of the lowest frequencies.
static Result<void> readRopeFactors(const GGUFFile &gguf, const GGUFTensor &tensor,
                                    ModelConfig &config, const std::string &path) {
  numerics::RopeParams &rope = config.rope;
  auto read = readFactors(gguf, tensor, config, path);
  if (!read)
    return Unexpected(read.error());
  const std::vector<float> &factors = *read;
  rope.scaling = numerics::RopeScaling::Llama3;
  rope.factor = *std::ranges::max_element(factors);
  rope.lowFrequencyFactor = 1.0;
  rope.highFrequencyFactor = 4.0;
  rope.originalPositions = 8192;
  for (size_t i = 0; i < factors.size(); ++i) {
    const double turns =
        static_cast<double>(rope.originalPositions) / (2 * std::numbers::pi) *
        std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(rope.dims));
    const double kept = std::clamp((turns - rope.lowFrequencyFactor) /
                                       (rope.highFrequencyFactor - rope.lowFrequencyFactor),
                                   0.0, 1.0);
    const double factor = 1 / ((1 - kept) / rope.factor + kept);
    if (!(std::abs(factors[i] - factor) <= 1e-4 * factor)) // NaN, too
      return makeError(
          ErrorCode::Unsupported,
          "{}: tensor {}: element {} is {}; the scaling of Llama 3.1 and 3.2 by {} has "
          "{}, and no other is supported; import the Hugging Face checkpoint",
          path, quote(tensor.name), i, factors[i], rope.factor, factor);
  }
  return {};
}

Result<Checkpoint> formats::openGGUF(const std::filesystem::path &path) {
  Result<GGUFFile> file = GGUFFile::open(path);
  if (!file)
    return Unexpected(file.error());
  Checkpoint checkpoint;
  checkpoint.gguf = std::make_unique<GGUFFile>(std::move(*file));
  const GGUFFile &gguf = *checkpoint.gguf;
  Result<ModelConfig> config = parseGGUFConfig(gguf.contents(), path.string());
  if (!config)
    return Unexpected(config.error());
  checkpoint.config = std::move(*config);
  checkpoint.files = {&gguf.mapping()};
  const bool isLongRope = checkpoint.config.rope.scaling == numerics::RopeScaling::LongRope;
  if (isLongRope)
    for (auto [name, divisors] :
         {std::pair(kGGUFShortRopeFactors, &checkpoint.config.rope.divisors),
          std::pair(kGGUFLongRopeFactors, &checkpoint.config.longDivisors)}) {
      auto read = readDivisors(gguf, name, checkpoint.config, path.string());
      if (!read)
        return Unexpected(read.error());
      *divisors = std::move(*read);
    }
  for (const GGUFTensor &tensor : gguf.tensors()) {
    if (isLongRope && (tensor.name == kGGUFShortRopeFactors || tensor.name == kGGUFLongRopeFactors))
      continue;
    if (tensor.name == kGGUFRopeFactors && checkpoint.config.architecture->isRotary()) {
      const bool isProportional = checkpoint.config.architecture->proportionalPart != 0.0;
      Result<void> read = (isProportional ? readTurnedPairs : readRopeFactors)(
          gguf, tensor, checkpoint.config, path.string());
      if (!read)
        return Unexpected(read.error());
      continue;
    }
    const GGMLTypeInfo *type = ggmlTypeInfo(static_cast<uint32_t>(tensor.type));
    checkpoint.tensors.emplace(tensor.name, StoredTensor{&gguf.mapping(), gguf.data(tensor),
                                                         tensor.shape, std::string(type->name),
                                                         type->canDequantize ? type : nullptr});
  }
  return checkpoint;
}
