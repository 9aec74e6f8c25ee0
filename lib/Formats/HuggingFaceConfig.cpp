//===- HuggingFaceConfig.cpp - Reading config.json ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which fields there are, and what is meant where one is missing, the description of the
// architecture says (Architectures.cpp).
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/ModelConfig.h"
#include "easyquant/Support/FieldReader.h"

#include "ConfigChecks.h"
#include "HuggingFaceFields.h"
#include "NewFields.h"
#include "Text.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/ranges.h>

using namespace easyquant;
using namespace easyquant::formats;
using namespace easyquant::formats::huggingFace;

/// A token id or a list of them.
static std::vector<int64_t> tokens(FieldReader &fields, const char *key) {
  const Bounds bounds{0, kLargestVocabulary};
  std::vector<int64_t> ids;
  const Json *value = fields.find(key);
  if (value && value->isArray()) {
    fields.required(key, ids, bounds);
  } else if (value) {
    ids.resize(1);
    fields.required(key, ids.front(), bounds);
  }
  return ids;
}

/// layer_types, a kind for each layer, where it is there: which layers are of kind `recurrent`, and
/// not "full_attention".
static void readRecurrentLayers(FieldReader &fields, const char *recurrent, ModelConfig &config) {
  std::vector<std::string> types;
  fields.required("layer_types", types);
  if (!fields.failed() && std::ssize(types) != config.numLayers)
    fields.failInWords(ErrorCode::Corrupt,
                       "layer_types: found {} kinds, expected one for each of {} layers",
                       types.size(), config.numLayers);
  for (size_t layer = 0; !fields.failed() && layer < types.size(); ++layer) {
    if (types[layer] != recurrent && types[layer] != "full_attention")
      return fields.failInWords(ErrorCode::Unsupported,
                                "layer_types: expected {} or \"full_attention\", found {}",
                                quote(recurrent), quote(types[layer]));
    config.recurrentLayers[layer] = types[layer] == recurrent;
  }
}

/// One form for each meaning.
static void normalizeRecurrentLayers(ModelConfig &config) {
  if (std::ranges::find(config.recurrentLayers, true) == config.recurrentLayers.end())
    config.recurrentLayers.clear();
}

/// The layers of LFM2 that have no attention; the width of their convolutions; and the size of the
/// MLP, which is not the one that the file names but two thirds of it, rounded up.
static void readConvolutions(FieldReader &fields, ModelConfig &config) {
  config.convolutionWidth = integer(fields, "conv_L_cache", kWidestConvolution, 3);
  config.convolutionBias = flag(fields, "conv_bias", false);
  if (config.convolutionWidth < 2)
    return fields.failInWords(ErrorCode::Unsupported,
                              "conv_L_cache: a convolution of one token is not supported; expected "
                              "2 to {}",
                              kWidestConvolution);
  config.recurrentLayers.assign(static_cast<size_t>(config.numLayers), false);
  if (fields.find("layer_types")) {
    readRecurrentLayers(fields, "conv", config);
  } else if (fields.find("full_attn_idxs")) {
    std::vector<int64_t> attending;
    fields.required("full_attn_idxs", attending, Bounds{0, config.numLayers - 1});
    config.recurrentLayers.flip();
    for (size_t i = 0; !fields.failed() && i < attending.size(); ++i)
      config.recurrentLayers[static_cast<size_t>(attending[i])] = false;
  }
  normalizeRecurrentLayers(config);

  // Sizes of models with experts are as they are.
  int64_t &inner = config.intermediateSize;
  if (!config.architecture->experts)
    inner = integer(fields, "block_ff_dim", kLargestWidth, inner);
  if (!config.architecture->experts && flag(fields, "block_auto_adjust_ff_dim", true)) {
    const int64_t unit = integer(fields, "block_multiple_of", kLargestWidth, 256);
    inner = static_cast<int64_t>(positive(fields, "block_ffn_dim_multiplier", 1.0) *
                                 static_cast<double>(2 * inner / 3));
    inner = std::max<int64_t>(1, (inner + unit - 1) / unit) * unit;
    if (inner > kLargestWidth)
      fields.failInWords(ErrorCode::Corrupt, "block_ff_dim: an MLP of {} is too wide", inner);
  }
  config.tieWordEmbeddings = flag(fields, "tie_embedding", config.tieWordEmbeddings);
}

/// The gated delta nets of Qwen3.5, in all layers but every full_attention_interval-th where there
/// are no layer_types.
static void readGatedDelta(FieldReader &fields, ModelConfig &config) {
  config.convolutionWidth = integer(fields, "linear_conv_kernel_dim", kWidestConvolution, 4);
  if (config.convolutionWidth < 2)
    return fields.failInWords(ErrorCode::Unsupported,
                              "linear_conv_kernel_dim: a convolution of one token is not "
                              "supported; expected 2 to {}",
                              kWidestConvolution);
  config.delta = {.keyHeads = integer(fields, "linear_num_key_heads", kMostHeads, 16),
                  .keyDim = integer(fields, "linear_key_head_dim", kLargestWidth, 128),
                  .valueHeads = integer(fields, "linear_num_value_heads", kMostHeads, 32),
                  .valueDim = integer(fields, "linear_value_head_dim", kLargestWidth, 128)};
  const int64_t every = integer(fields, "full_attention_interval", kMostLayers, 4);
  config.recurrentLayers = everyButNth(every, config.numLayers);
  if (fields.find("layer_types"))
    readRecurrentLayers(fields, "linear_attention", config);
  normalizeRecurrentLayers(config);
  config.draftLayers = count(fields, "mtp_num_hidden_layers", kMostLayers, 0);
}

/// In all layers; what the architecture has if nothing is said, none if null.
static void readWindow(FieldReader &fields, ModelConfig &config) {
  const int64_t otherwise = config.architecture->windowOtherwise;
  const bool isThere = fields.find("sliding_window");
  if (!isThere && (fields.names("sliding_window") || otherwise == 0))
    return;
  config.slidingWindow = integer(fields, "sliding_window", kLargestContext, otherwise);
}

/// layer_types, where it is there.
static void readLayerTypes(FieldReader &fields, ModelConfig &config) {
  const Json *types = fields.find("layer_types");
  if (!types)
    return;
  if (!types->isArray() || types->size() != static_cast<size_t>(config.numLayers))
    return fields.failInWords(
        ErrorCode::Corrupt, "layer_types: expected a list of {} kinds of layers", config.numLayers);
  config.windowedLayers.resize(types->size());
  for (size_t layer = 0; layer < types->size(); ++layer) {
    const Json &type = (*types)[layer];
    if (!type.is("full_attention") && !type.is("sliding_attention"))
      return fields.failInWords(
          ErrorCode::Unsupported,
          "layer_types: expected \"full_attention\" or \"sliding_attention\", "
          "found {}",
          type.describe());
    config.windowedLayers[layer] = type.is("sliding_attention");
  }
}

/// In the layers that layer_types names, else in all but every sliding_window_pattern-th.
static void readWindowPattern(FieldReader &fields, ModelConfig &config) {
  readWindow(fields, config);
  int64_t pattern = config.architecture->windowPattern;
  // The second name is that of files that transformers 4.5x wrote.
  for (const char *key : {"sliding_window_pattern", "_sliding_window_pattern"})
    pattern = integer(fields, key, kMostLayers, pattern);
  config.windowedLayers = windowedLayers(pattern, config.numLayers);
  readLayerTypes(fields, config);
  const int64_t window = config.slidingWindow;
  normalizeWindows(config);
  // Which heads a layer has would depend on a window that there is not.
  if (window == 0 && config.fullHeadDim != 0)
    fields.failInWords(ErrorCode::Unsupported,
                       "sliding_window: null is not supported for {}; expected an integer",
                       config.architecture->name);
}

/// In the layers that layer_types names, else in those from max_window_layers on, and only if
/// use_sliding_window says so.
static void readWindowOfSomeLayers(FieldReader &fields, ModelConfig &config) {
  if (!flag(fields, "use_sliding_window", false))
    return;
  readWindow(fields, config);
  if (config.slidingWindow == 0)
    return;
  const int64_t first = count(fields, "max_window_layers", kMostLayers, 28);
  for (int64_t layer = 0; layer < config.numLayers; ++layer)
    config.windowedLayers.push_back(layer >= first);
  readLayerTypes(fields, config);
  normalizeWindows(config);
}

/// The factors and bounds of values and of products of queries and keys.
static void readFactors(FieldReader &fields, ModelConfig &config) {
  const Architecture &architecture = *config.architecture;
  auto number = [&](const NumberField &field, double otherwise) {
    return field ? positive(fields, field.key, field.otherwise) : otherwise;
  };
  auto bound = [&](const NumberField &field) { // null: none
    return field && fields.names(field.key) && !fields.find(field.key) ? 0.0 : number(field, 0.0);
  };
  config.embeddingFactor = number(architecture.embeddingFactor, embeddingFactor(config));
  config.residualFactor = number(architecture.residualFactor, 1.0);
  config.logitDivisor = number(architecture.logitDivisor, 1.0);
  const NumberField &width = architecture.attentionWidth;
  const double usual = width.otherwise != 0 ? width.otherwise : static_cast<double>(config.headDim);
  config.attentionScale =
      number(architecture.attentionFactor, 1.0 / std::sqrt(number(width, usual)));
  config.attentionBound = bound(architecture.attentionBound);
  config.logitBound = bound(architecture.logitBound);
}

static void readSizes(FieldReader &fields, ModelConfig &config) {
  const Architecture &architecture = *config.architecture;
  for (const ConfigSize &size : configSizes()) {
    SizeField field = architecture.*size.field;
    if (config.isDenseForm && size.member == &ModelConfig::intermediateSize)
      field.key = architecture.denseForm.intermediateSize;
    const bool isThere = field.key && fields.find(field.key);
    if (!isThere && field.otherwise == SizeField::HiddenPerHead &&
        config.hiddenSize % config.numHeads != 0)
      fields.failInWords(ErrorCode::Corrupt, "{} {} is not a multiple of {} {}{}",
                         architecture.hiddenSize.key, config.hiddenSize, architecture.numHeads.key,
                         config.numHeads,
                         field.key ? fmt::format(" and {} is missing", field.key) : std::string());
    int64_t &value = config.*size.member;
    const int64_t otherwise = defaultSize(field.otherwise, config);
    value = !field.key ? otherwise
                       : integer(fields, field.key, size.largest,
                                 field.otherwise == SizeField::Required ? std::nullopt
                                                                        : std::optional(otherwise));
  }
}

/// The heads of layers without a window, where these have others.
static void readFullLayers(FieldReader &fields, ModelConfig &config) {
  const Architecture &architecture = *config.architecture;
  const SizeField &size = architecture.fullHeadDim;
  if (!size.key)
    return;
  config.fullHeadDim = integer(fields, size.key, kLargestWidth, size.otherwise);
  config.sharesProjection = flag(fields, architecture.sharedProjectionKey, false);
  config.fullKVHeads = config.sharesProjection ? integer(fields, architecture.fullKVHeadsKey,
                                                         kMostHeads, config.numKVHeads)
                                               : config.numKVHeads;
}

/// Layers that read the keys and values of others, and embeddings of layers.
static void readSharedLayers(FieldReader &fields, ModelConfig &config) {
  const Architecture &architecture = *config.architecture;
  auto read = [&](const CountField &field, int64_t largest) {
    const bool isNull = field && fields.names(field.key) && !fields.find(field.key);
    return field ? count(fields, field.key, largest, isNull ? 0 : field.otherwise) : 0;
  };
  config.sharedKVLayers = read(architecture.sharedKVLayers, config.numLayers - 1);
  config.widensSharing = architecture.doubleWidthKey &&
                         flag(fields, architecture.doubleWidthKey, false) &&
                         config.sharedKVLayers != 0;
  config.layerInputSize = read(architecture.layerInputSize, kLargestWidth);
  if (config.layerInputSize == 0)
    return;
  const SizeField &vocab = architecture.layerInputVocab;
  const int64_t rows = integer(fields, vocab.key, kLargestVocabulary, vocab.otherwise);
  if (rows != config.vocabSize)
    fields.failInWords(ErrorCode::Unsupported,
                       "{}: expected a row of embeddings of layers for each of {} tokens, found {}",
                       vocab.key, config.vocabSize, rows);
}

/// The experts in place of MLPs. What some layers alone have is not read as what all have.
static void readExperts(FieldReader &fields, ModelConfig &config) {
  const ExpertFields &experts = config.architecture->experts;
  if (!experts || (experts.enabledKey && !flag(fields, experts.enabledKey, false)))
    return;
  auto size = [&](const SizeField &field, int64_t largest) {
    return integer(fields, field.key, largest,
                   field.otherwise == SizeField::Required ? std::nullopt
                                                          : std::optional(field.otherwise));
  };
  config.experts = size(experts.count, kMostExperts);
  config.expertsPerRow = size(experts.chosen, kMostExperts);
  config.expertSize =
      experts.size.key ? size(experts.size, kLargestWidth) : config.intermediateSize;
  config.renormalizesExperts = !experts.renormalizesKey ||
                               flag(fields, experts.renormalizesKey, experts.renormalizesOtherwise);
  config.biasesChoices = experts.choiceBias && flag(fields, experts.choiceBias, true);
  if (const NumberField &scale = experts.scale)
    config.expertScale = positive(fields, scale.key, scale.otherwise);
  if (const NumberField &dense = experts.denseLayers)
    config.denseLayers =
        count(fields, dense.key, kMostLayers, static_cast<int64_t>(dense.otherwise));
  if (experts.sharedSize.key)
    config.sharedExpertSize = size(experts.sharedSize, kLargestWidth);
  const int64_t step = integer(fields, "decoder_sparse_step", kMostLayers, 1);
  const Json *without = fields.find("mlp_only_layers");
  if (step != 1 || (without && !(without->isArray() && without->size() == 0)))
    fields.failInWords(ErrorCode::Unsupported,
                       "{}: layers without experts are not supported for {}; expected {}",
                       step != 1 ? "decoder_sparse_step" : "mlp_only_layers",
                       config.architecture->name, step != 1 ? "1" : "an empty list");
}

static void readActivation(FieldReader &fields, ModelConfig &config) {
  const Architecture &architecture = *config.architecture;
  const std::string name =
      word(fields, architecture.activationKey, architecture.activations.front().name);
  std::string expected;
  for (size_t i = 0; i < architecture.activations.size(); ++i) {
    const ActivationName &known = architecture.activations[i];
    if (name == known.name) {
      config.activation = known.activation;
      // Where it clamps is in its definition.
      constexpr double limit = 7.0;
      if (known.activation == Activation::ClampedSiLU &&
          positive(fields, "swiglu_limit", limit) != limit)
        fields.failInWords(ErrorCode::Unsupported, "swiglu_limit: expected {}", limit);
      return;
    }
    expected += (i == 0                                    ? ""
                 : i + 1 < architecture.activations.size() ? ", "
                                                           : " or ") +
                quote(known.name);
  }
  fields.failInWords(ErrorCode::Unsupported, "{} {} is not supported for {}; expected {}",
                     architecture.activationKey, quote(name), architecture.name, expected);
}

/// no_rope_layers: a 1 for each layer that is rotated, else a 0; or every no_rope_layer_interval-th
/// is not.
static void readRotatedLayers(FieldReader &fields, ModelConfig &config) {
  const int64_t every =
      integer(fields, "no_rope_layer_interval", kMostLayers, config.architecture->unrotatedEvery);
  config.rotatedLayers = rotatedLayers(every, config.numLayers);
  if (!fields.find("no_rope_layers"))
    return;
  std::vector<int64_t> listed;
  fields.required("no_rope_layers", listed, Bounds{0, 1});
  if (!fields.failed() && listed.size() < static_cast<size_t>(config.numLayers))
    return fields.failInWords(
        ErrorCode::Corrupt, "no_rope_layers: found {} numbers, expected one for each of {} layers",
        listed.size(), config.numLayers);
  listed.resize(static_cast<size_t>(config.numLayers), 1);
  config.rotatedLayers.assign(listed.begin(), listed.end());
  if (std::ranges::find(listed, 0) == listed.end())
    config.rotatedLayers.clear(); // one form for each meaning
}

/// What models of an architecture's dense form could have beside it: experts, layers without
/// attention, and, if nothing is said, attention that is not rotated.
static void checkDenseForm(FieldReader &fields, const ModelConfig &config) {
  const std::string_view type = config.architecture->denseForm.modelType;
  if (const int64_t experts = count(fields, "num_local_experts", kMostExperts, 8); experts != 0)
    fields.failInWords(ErrorCode::Unsupported,
                       "num_local_experts: {} experts are not supported for {}; expected 0",
                       experts, type);
  const Json *types = fields.find("layer_types");
  const bool isListed = types && types->isArray();
  if (!isListed || types->size() != static_cast<size_t>(config.numLayers))
    return fields.failInWords(ErrorCode::Unsupported,
                              "layer_types: expected \"attention\" for each of {} layers, found {}",
                              config.numLayers,
                              isListed ? fmt::format("{} of them", types->size())
                              : types  ? types->describe()
                                       : "nothing, which means state spaces");
  for (size_t layer = 0; layer < types->size(); ++layer)
    if (!(*types)[layer].is("attention"))
      return fields.failInWords(
          ErrorCode::Unsupported,
          "layer_types: expected \"attention\" for each layer of {}, found {}", type,
          (*types)[layer].describe());
  if (const std::string positions = word(fields, "position_embedding_type", "nope");
      positions != "rope")
    fields.failInWords(ErrorCode::Unsupported,
                       "position_embedding_type: {} is not supported for {}; expected \"rope\"",
                       quote(positions), type);
}

void huggingFace::readModel(FieldReader &fields, ModelConfig &config) {
  const Architecture &architecture = *config.architecture;
  config.vocabSize = integer(fields, "vocab_size", kLargestVocabulary);
  readSizes(fields, config);
  if (config.isDenseForm)
    checkDenseForm(fields, config);
  readFullLayers(fields, config);
  readSharedLayers(fields, config);
  readExperts(fields, config);
  config.normEpsilon = positive(fields, architecture.epsilonKey, architecture.epsilon);
  if (architecture.isRotary())
    readRope(fields, config);
  if (architecture.unrotatedEvery != 0)
    readRotatedLayers(fields, config);
  readActivation(fields, config);
  for (const FixedFlag &fixed : architecture.fixedFlags)
    if (flag(fields, fixed.key, fixed.value) != fixed.value)
      fields.failInWords(ErrorCode::Unsupported, "{}: {} is not supported for {}", fixed.key,
                         !fixed.value, architecture.name);
  for (auto [key, word] : architecture.fixedNulls)
    if (const Json *found = fields.find(key); found && !(word && found->is(word)))
      fields.failInWords(ErrorCode::Unsupported, "{}: {} is not supported for {}; expected null{}",
                         key, found->describe(), architecture.name,
                         word ? fmt::format(" or {}", quote(word)) : std::string());
  config.tieWordEmbeddings = flag(fields, "tie_word_embeddings", architecture.tiesHead);
  auto hasBias = [&](const BiasRule &rule) {
    return rule.key ? flag(fields, rule.key, false) : rule.always;
  };
  config.qkvBias = hasBias(architecture.qkvBias);
  config.outputBias = hasBias(architecture.outputBias);
  config.mlpBias = hasBias(architecture.mlpBias);
  if (architecture.window == WindowKind::AllLayers)
    readWindow(fields, config);
  else if (architecture.window == WindowKind::SomeLayers)
    readWindowOfSomeLayers(fields, config);
  else if (architecture.window == WindowKind::Pattern)
    readWindowPattern(fields, config);
  if (architecture.layerKinds == LayerKinds::Convolution)
    readConvolutions(fields, config);
  else if (architecture.layerKinds == LayerKinds::GatedDelta)
    readGatedDelta(fields, config);
  readFactors(fields, config);
}

/// The architecture of the text part of a model that has other parts, too; null if it has none.
static const Architecture *textPart(FieldReader &fields, std::string_view modelType) {
  std::vector<const Architecture *> known;
  for (const Architecture &architecture : architectures())
    if (architecture.withOtherParts && modelType == architecture.withOtherParts)
      known.push_back(&architecture);
  if (known.empty())
    return nullptr;
  std::string name = known.front()->name; // transformers leaves out what is the default
  fields.object("text_config", [&](FieldReader &part) { name = word(part, "model_type", name); });
  const auto found = std::ranges::find(known, std::string_view(name), &Architecture::name);
  if (found != known.end())
    return *found;
  std::vector<std::string_view> names;
  for (const Architecture *architecture : known)
    names.emplace_back(architecture->name);
  fields.failInWords(ErrorCode::Unsupported,
                     "text_config.model_type: found {}, expected of {} one of {}", quote(name),
                     quote(modelType), fmt::join(names, ", "));
  return nullptr;
}

Result<ModelConfig> formats::parseHuggingFaceConfig(std::string_view text,
                                                    std::string_view fileName) {
  Result<Json> object = Json::parseObject(text, fileName);
  if (!object)
    return Unexpected(object.error());
  FieldReader fields(*object, fileName, {.nullIsAbsent = true});

  std::string modelType;
  fields.required("model_type", modelType);
  if (fields.failed())
    return Unexpected(fields.result().error());
  const Architecture *architecture = textPart(fields, modelType);
  const bool isTextPart = architecture != nullptr;
  if (fields.failed())
    return Unexpected(fields.result().error());
  if (!isTextPart)
    architecture = findArchitecture(modelType);
  const auto dense = std::ranges::find_if(architectures(), [&](const Architecture &known) {
    return known.denseForm.modelType && modelType == known.denseForm.modelType;
  });
  const bool isDenseForm = dense != architectures().end();
  if (isDenseForm)
    architecture = &*dense;
  if (!architecture)
    return Unexpected(unsupportedArchitecture(fileName, modelType, &Architecture::name,
                                              newFields(*object, fileName, readModel)));

  ModelConfig config;
  config.architecture = architecture;
  config.isTextPart = isTextPart;
  config.isDenseForm = isDenseForm;
  auto readTokens = [&](FieldReader &part) {
    if (std::vector<int64_t> bos = tokens(part, "bos_token_id"); !bos.empty())
      config.bosTokenId = bos.front();
    if (std::vector<int64_t> eos = tokens(part, "eos_token_id"); !eos.empty())
      config.eosTokenIds = std::move(eos);
  };
  bool saysTied = true; // of the text part
  if (isTextPart)
    fields.object("text_config", [&](FieldReader &part) {
      readModel(part, config);
      readTokens(part);
      saysTied = part.names("tie_word_embeddings");
    });
  else
    readModel(fields, config);
  readTokens(fields);
  if (!saysTied)
    config.tieWordEmbeddings = flag(fields, "tie_word_embeddings", config.tieWordEmbeddings);
  if (fields.failed())
    return Unexpected(fields.result().error());
  if (Result<void> checked = checkConsistency(config, fileName); !checked)
    return Unexpected(checked.error());
  return config;
}

Result<std::vector<int64_t>> formats::parseEosTokenIds(std::string_view text,
                                                       std::string_view fileName) {
  Result<Json> object = Json::parseObject(text, fileName);
  if (!object)
    return Unexpected(object.error());
  FieldReader fields(*object, fileName, {.nullIsAbsent = true});
  std::vector<int64_t> ids = tokens(fields, "eos_token_id");
  if (fields.failed())
    return Unexpected(fields.result().error());
  return ids;
}
