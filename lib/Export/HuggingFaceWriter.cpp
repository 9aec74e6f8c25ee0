//===- HuggingFaceWriter.cpp - Models as Hugging Face folders -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Export/HuggingFaceWriter.h"

#include "easyquant/Formats/ModelTensors.h"
#include "easyquant/Formats/ShardedSafetensors.h"
#include "easyquant/Support/Json.h"
#include "easyquant/Support/StagedFolder.h"
#include "easyquant/Support/WriteFile.h"

#include <algorithm>
#include <cmath>

using namespace easyquant;
using namespace easyquant::formats;
namespace fs = std::filesystem;

namespace {

/// Rows are read and written in pieces of about this many floats.
constexpr int64_t kPiece = int64_t(1) << 22;

constexpr const char *kCompanions[] = {"generation_config.json",
                                       "tokenizer.json",
                                       "tokenizer_config.json",
                                       "tokenizer.model",
                                       "special_tokens_map.json",
                                       "chat_template.jinja",
                                       "added_tokens.json",
                                       "vocab.json",
                                       "merges.txt"};

/// A Conv1D weight, N x K, in the K x N of the checkpoint.
Result<void> writeTransposed(const ModelSource &source, const ModelTensor &tensor,
                             ShardedSafetensorsWriter &writer) {
  const int64_t n = tensor.shape[0], k = tensor.shape[1];
  std::vector<float> values(static_cast<size_t>(n * k)), transposed(values.size());
  if (Result<void> done = source.read(tensor.name, values); !done)
    return done;
  for (int64_t column = 0; column < k; ++column)
    for (int64_t row = 0; row < n; ++row)
      transposed[column * n + row] = values[row * k + column];
  return writer.write(tensor.name, std::as_bytes(std::span(transposed)));
}

/// A weight whose rows or columns the checkpoint has in another order.
Result<void> writeReordered(const ModelSource &source, const ModelTensor &tensor,
                            const ExpectedTensor &like, ShardedSafetensorsWriter &writer) {
  const int64_t rows = tensor.shape.front(), columns = tensor.elements() / rows;
  std::vector<float> values(static_cast<size_t>(rows * columns)), stored(values.size());
  if (Result<void> done = source.read(tensor.name, values); !done)
    return done;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      stored[like.rows.stored(row) * columns + like.columns.stored(column)] =
          values[row * columns + column];
  return writer.write(tensor.name, std::as_bytes(std::span(stored)));
}

/// One tensor, or one for each expert.
Result<void> writeRows(const ModelSource &source, const ModelTensor &tensor,
                       const ExpectedTensor &like, ShardedSafetensorsWriter &writer) {
  const int64_t rows = like.partShape().front(), columns = tensor.elements() / tensor.shape.front();
  const int64_t step = std::clamp<int64_t>(kPiece / columns, 1, rows);
  std::vector<float> values(static_cast<size_t>(step * columns));
  int64_t first = 0;
  for (const std::string &name : like.parts()) {
    for (int64_t row = 0; row < rows; row += step) {
      const int64_t count = std::min(step, rows - row);
      std::span<float> piece = std::span(values).first(static_cast<size_t>(count * columns));
      if (Result<void> done = source.readRows(tensor.name, first + row, count, piece); !done)
        return done;
      for (float &value : piece)
        value -= like.offset;
      if (Result<void> done = writer.write(name, std::as_bytes(piece)); !done)
        return done;
    }
    first += rows;
  }
  return {};
}

using ExpectedTensors = std::unordered_map<std::string, ExpectedTensor>;

/// All experts of a stack, one behind the other, from the weights that it is made of.
Result<void> writeStack(const ModelSource &source, const ExpectedTensors &expected,
                        const ExpectedTensor &like, ShardedSafetensorsWriter &writer) {
  std::vector<std::string> names(static_cast<size_t>(like.stackParts));
  for (const auto &[name, tensor] : expected)
    if (tensor.stack == like.stack)
      names[static_cast<size_t>(tensor.stackPart)] = name;
  const int64_t rows = like.shape.front() / like.experts, wide = rows * like.stackParts;
  const int64_t columns = like.shape.size() == 1 ? 1 : like.shape[1];
  std::vector<float> part(static_cast<size_t>(rows * columns)),
      whole(static_cast<size_t>(wide * columns));
  for (int64_t expert = 0; expert < like.experts; ++expert) {
    for (int64_t p = 0; p < like.stackParts; ++p) {
      if (auto done =
              source.readRows(names[static_cast<size_t>(p)], expert * rows, rows, std::span(part));
          !done)
        return done;
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t column = 0; column < columns; ++column)
          whole[like.stacksRows ? (p * rows + row) * columns + column
                                : column * wide + row * like.stackParts + p] =
              part[row * columns + column];
    }
    if (Result<void> done = writer.write(like.stack, std::as_bytes(std::span(whole))); !done)
      return done;
  }
  return {};
}

Result<void> writeWeights(const ModelSource &source, const fs::path &folder) {
  ExpectedTensors expected;
  for (const ExpectedTensor &tensor : expectedTensors(source.config()))
    expected[tensor.name] = tensor;
  std::vector<SafetensorsWriter::Tensor> declarations;
  for (const ModelTensor &tensor : source.tensors()) {
    const ExpectedTensor &like = expected[tensor.name];
    if (like.stackPart != 0) // written with the first one of its stack
      continue;
    for (std::string &name : like.parts())
      declarations.push_back({std::move(name), "F32", like.partShape()});
  }
  // transformers asks for the key "format".
  Result<ShardedSafetensorsWriter> writer = ShardedSafetensorsWriter::create(
      folder, "model", std::move(declarations), kDefaultShardBytes, {{"format", "pt"}});
  if (!writer)
    return Unexpected(writer.error());
  for (const ModelTensor &tensor : source.tensors()) {
    const ExpectedTensor &like = expected[tensor.name];
    const bool isInOrder = like.rows.isSame() && like.columns.isSame();
    if (like.stackPart != 0)
      continue;
    if (Result<void> done = like.isConv1D         ? writeTransposed(source, tensor, *writer)
                            : !like.stack.empty() ? writeStack(source, expected, like, *writer)
                            : isInOrder           ? writeRows(source, tensor, like, *writer)
                                                  : writeReordered(source, tensor, like, *writer);
        !done)
      return done;
  }
  return writer->finish();
}

} // namespace

/// The least factor whose product with the head's dimension, rounded down, is what is rotated.
static double partialRotaryFactor(int64_t rotated, int64_t headDim) {
  const auto dims = static_cast<double>(rotated), all = static_cast<double>(headDim);
  double factor = dims / all;
  while (factor * all < dims)
    factor = std::nextafter(factor, 1.0);
  return factor;
}

/// rope_scaling of LongRope. transformers 4 insists on three fields and these names where they say
/// all.
static Json longRopeJson(const ModelConfig &config) {
  const numerics::RopeParams &rope = config.rope;
  Json::Object json = {
      {"type", "longrope"}, {"short_factor", rope.divisors}, {"long_factor", config.longDivisors}};
  const double factor =
      static_cast<double>(config.maxContext) / static_cast<double>(rope.originalPositions);
  if (rope.attentionFactor != numerics::longRopeAttentionFactor(factor, rope.originalPositions))
    json["attention_factor"] = rope.attentionFactor;
  return json;
}

/// rope_scaling; null where positions are not scaled.
static Json ropeScalingJson(const ModelConfig &config) {
  const numerics::RopeParams &rope = config.rope;
  Json::Object json;
  switch (rope.scaling) {
  case numerics::RopeScaling::None:
    return nullptr;
  case numerics::RopeScaling::LongRope:
    return longRopeJson(config);
  case numerics::RopeScaling::Proportional:
    return Json::Object{
        {"rope_type", "proportional"},
        {"partial_rotary_factor", partialRotaryFactor(2 * rope.turnedPairs, rope.dims)}};
  case numerics::RopeScaling::Linear:
    return Json::Object{{"rope_type", "linear"}, {"factor", rope.factor}};
  case numerics::RopeScaling::Llama3:
    json = {{"rope_type", "llama3"},
            {"low_freq_factor", rope.lowFrequencyFactor},
            {"high_freq_factor", rope.highFrequencyFactor}};
    break;
  case numerics::RopeScaling::Yarn:
    json = {{"rope_type", "yarn"},
            {"beta_fast", rope.betaFast},
            {"beta_slow", rope.betaSlow},
            {"attention_factor", rope.attentionFactor},
            {"truncate", rope.truncate}};
    if (rope.lateGain != 0.0)
      json[config.architecture->lateGain.key] = rope.lateGain;
    break;
  }
  json["factor"] = rope.factor;
  json["original_max_position_embeddings"] = rope.originalPositions;
  return json;
}

/// The same, of layers of each kind, where they have bases of their own.
static void nameRopeOfKinds(Json::Object &json, const ModelConfig &config) {
  const Json scaling = ropeScalingJson(config);
  Json::Object full = scaling.isNull() ? Json::Object{{"rope_type", "default"}} : scaling.members();
  full["rope_theta"] = config.rope.theta;
  const double windowed = config.windowedRope ? config.windowedRope->theta
                                              : config.architecture->windowedRopeTheta.otherwise;
  json.erase("rope_scaling");
  json["rope_parameters"] = Json::Object{
      {"full_attention", full},
      {"sliding_attention", Json::Object{{"rope_type", "default"}, {"rope_theta", windowed}}}};
}

/// The window as the architecture's configuration speaks of it.
static void addWindow(Json::Object &json, const ModelConfig &config) {
  const WindowKind kind = config.architecture->window;
  if (kind == WindowKind::None)
    return;
  const bool namesLayers = kind == WindowKind::SomeLayers || kind == WindowKind::Pattern;
  if (kind == WindowKind::SomeLayers)
    json["use_sliding_window"] = config.slidingWindow != 0;
  json["sliding_window"] = config.slidingWindow;
  if (config.slidingWindow == 0 && config.fullHeadDim != 0) { // an integer, which no layer has
    json["sliding_window"] = config.architecture->windowOtherwise;
  } else if (config.slidingWindow == 0) {
    json["sliding_window"] = nullptr;
    return;
  }
  if (!namesLayers)
    return;
  std::vector<std::string> types;
  types.reserve(config.numLayers);
  for (int64_t layer = 0; layer < config.numLayers; ++layer)
    types.push_back(config.windowOf(layer) != 0 ? "sliding_attention" : "full_attention");
  // Read where there are no layer_types: layers from this one on have the window.
  if (kind == WindowKind::SomeLayers)
    json["max_window_layers"] =
        std::find(types.begin(), types.end(), "sliding_attention") - types.begin();
  json["layer_types"] = types;
}

/// The heads of layers without a window, and what layers read beside the hidden state.
static void addFullLayers(Json::Object &json, const ModelConfig &config) {
  const Architecture &architecture = *config.architecture;
  for (auto [field, number] : {std::pair(&architecture.sharedKVLayers, config.sharedKVLayers),
                               std::pair(&architecture.layerInputSize, config.layerInputSize)})
    if (*field)
      json[field->key] = number;
  if (config.layerInputSize != 0)
    json[architecture.layerInputVocab.key] = config.vocabSize;
  if (architecture.doubleWidthKey)
    json[architecture.doubleWidthKey] = config.widensSharing;
  if (!architecture.fullHeadDim.key)
    return;
  json[architecture.fullHeadDim.key] = config.fullHeadDim;
  json[architecture.sharedProjectionKey] = config.sharesProjection;
  json[architecture.fullKVHeadsKey] =
      config.sharesProjection ? Json(config.fullKVHeads) : Json(nullptr);
}

static void addExperts(Json::Object &json, const ModelConfig &config) {
  const ExpertFields &experts = config.architecture->experts;
  if (experts.enabledKey)
    json[experts.enabledKey] = config.experts != 0;
  if (config.experts == 0)
    return;
  json[experts.count.key] = config.experts;
  json[experts.chosen.key] = config.expertsPerRow;
  if (experts.size.key)
    json[experts.size.key] = config.expertSize;
  if (experts.sharedSize.key)
    json[experts.sharedSize.key] = config.sharedExpertSize;
  if (experts.renormalizesKey)
    json[experts.renormalizesKey] = config.renormalizesExperts;
  if (experts.choiceBias)
    json[experts.choiceBias] = config.biasesChoices;
  if (experts.scale)
    json[experts.scale.key] = config.expertScale;
  if (experts.denseLayers)
    json[experts.denseLayers.key] = config.denseLayers;
}

/// Which layers have no attention, and what they have. The size of the MLP of LFM2 has been
/// adjusted already.
static void addRecurrentLayers(Json::Object &json, const ModelConfig &config) {
  const LayerKinds kinds = config.architecture->layerKinds;
  if (kinds == LayerKinds::Attention)
    return;
  const bool hasDelta = kinds == LayerKinds::GatedDelta;
  std::vector<std::string> types;
  types.reserve(config.numLayers);
  for (int64_t layer = 0; layer < config.numLayers; ++layer)
    types.emplace_back(!config.isRecurrent(layer) ? "full_attention"
                       : hasDelta                 ? "linear_attention"
                                                  : "conv");
  json["layer_types"] = types;
  if (hasDelta) {
    json["linear_conv_kernel_dim"] = config.convolutionWidth;
    json["linear_num_key_heads"] = config.delta.keyHeads;
    json["linear_key_head_dim"] = config.delta.keyDim;
    json["linear_num_value_heads"] = config.delta.valueHeads;
    json["linear_value_head_dim"] = config.delta.valueDim;
    if (config.hasDraftHead)
      json["mtp_num_hidden_layers"] = 1;
    return;
  }
  json["conv_L_cache"] = config.convolutionWidth;
  json["conv_bias"] = config.convolutionBias;
  json["block_auto_adjust_ff_dim"] = false;
}

/// The factors and bounds for which the architecture has fields.
static void addFactors(Json::Object &json, const ModelConfig &config) {
  const Architecture &architecture = *config.architecture;
  if (const char *key = architecture.attentionWidth.key) {
    // An integer in models, and so for transformers.
    const double width = 1.0 / (config.attentionScale * config.attentionScale);
    const auto whole = static_cast<int64_t>(std::llround(width));
    const bool isWhole = std::abs(width - static_cast<double>(whole)) < 1e-12 * width;
    json[key] = isWhole ? Json(whole) : Json(width);
  }
  for (auto [field, value] : {std::pair(&architecture.embeddingFactor, config.embeddingFactor),
                              std::pair(&architecture.residualFactor, config.residualFactor),
                              std::pair(&architecture.logitDivisor, config.logitDivisor),
                              std::pair(&architecture.attentionFactor, config.attentionScale)})
    if (*field)
      json[field->key] = value;
  for (auto [field, value] : {std::pair(&architecture.attentionBound, config.attentionBound),
                              std::pair(&architecture.logitBound, config.logitBound)})
    if (*field)
      json[field->key] = value == 0.0 ? Json(nullptr) : Json(value);
}

/// The name that torch has for a type of floats.
static const char *torchName(DType type) {
  return type == DType::F16 ? "float16" : type == DType::BF16 ? "bfloat16" : "float32";
}

std::string formats::huggingFaceConfigText(const ModelConfig &config, DType floats,
                                           const Json &quantization) {
  const Architecture &architecture = *config.architecture;
  Json::Object json;
  json["architectures"] = Json::Array{architecture.className};
  json["model_type"] = architecture.name;
  json["vocab_size"] = config.vocabSize;
  for (const ConfigSize &size : configSizes())
    if (const char *key = (architecture.*size.field).key)
      json[key] = config.*size.member;
  addFullLayers(json, config);
  addExperts(json, config);
  json[architecture.epsilonKey] = config.normEpsilon;
  if (architecture.proportionalPart != 0.0) {
    nameRopeOfKinds(json, config);
  } else if (architecture.isRotary()) {
    json["rope_theta"] = config.rope.theta;
    json["rope_scaling"] = ropeScalingJson(config);
    // transformers has scaling of its own where gpt_oss says nothing.
    if (config.rope.scaling == numerics::RopeScaling::None && !architecture.truncatesYarn)
      json["rope_scaling"] = Json::Object{{"rope_type", "default"}};
    if (architecture.rotatesPart)
      json["partial_rotary_factor"] = partialRotaryFactor(config.rope.dims, config.headDim);
    if (config.rope.scaling == numerics::RopeScaling::LongRope)
      json["original_max_position_embeddings"] = config.rope.originalPositions;
  }
  if (config.windowedRope && architecture.windowedRopeTheta && architecture.proportionalPart == 0.0)
    json[architecture.windowedRopeTheta.key] = config.windowedRope->theta;
  else if (config.windowedRope && architecture.scalesUnwindowedRope &&
           config.windowedRope->theta != config.rope.theta)
    nameRopeOfKinds(json, config);
  addFactors(json, config);
  if (architecture.unrotatedEvery != 0) {
    std::vector<int> rotated;
    for (int64_t layer = 0; layer < config.numLayers; ++layer)
      rotated.push_back(config.rotates(layer));
    json["no_rope_layers"] = rotated;
  }
  json[architecture.activationKey] =
      std::ranges::find(architecture.activations, config.activation, &ActivationName::activation)
          ->name;
  for (auto [rule, has] : {std::pair(architecture.qkvBias, config.qkvBias),
                           std::pair(architecture.outputBias, config.outputBias),
                           std::pair(architecture.mlpBias, config.mlpBias)})
    if (rule.key)
      json[rule.key] = has;
  addWindow(json, config);
  addRecurrentLayers(json, config);
  json["tie_word_embeddings"] = config.tieWordEmbeddings;
  json["torch_dtype"] = torchName(floats);
  if (config.bosTokenId)
    json["bos_token_id"] = *config.bosTokenId;
  if (config.eosTokenIds.size() == 1)
    json["eos_token_id"] = config.eosTokenIds.front();
  else if (!config.eosTokenIds.empty())
    json["eos_token_id"] = config.eosTokenIds;
  if (!quantization.isNull())
    json["quantization_config"] = quantization;
  return Json(std::move(json)).document();
}

Result<void> formats::copyCompanions(const ModelSource &source, const fs::path &folder) {
  if (source.kind() != ModelSource::Kind::HuggingFace)
    return {};
  std::error_code error;
  for (const char *name : kCompanions)
    if (fs::exists(source.path() / name, error) &&
        !fs::copy_file(source.path() / name, folder / name, error))
      return makeError(ErrorCode::IO, "{}: cannot copy {}: {}", folder.string(), name,
                       error.message());
  return {};
}

Result<void> formats::writeHuggingFace(const ModelSource &source, const fs::path &folder) {
  Result<StagedFolder> staged = StagedFolder::create(
      folder.string(), {/*allowed=*/false, /*mark=*/"", "choose another folder"});
  if (!staged)
    return Unexpected(staged.error());
  const fs::path path = staged->path();
  if (Result<void> done = writeFile(path / "config.json", huggingFaceConfigText(source.config()));
      !done)
    return done;
  if (Result<void> done = writeWeights(source, path); !done)
    return done;
  if (Result<void> done = copyCompanions(source, path); !done)
    return done;
  return staged->commit();
}
