//===- AssistantConfig.cpp - Models that draft for others -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConfigChecks.h"
#include "Descriptions.h"
#include "HuggingFaceFields.h"
#include "Text.h"

using namespace easyquant;
using namespace easyquant::formats;
using namespace easyquant::formats::huggingFace;

namespace {

/// An assistant's sizes beside those of the model that it is to draft for.
class Pairing {
public:
  Pairing(const ModelConfig &model, std::string_view modelName, FieldReader &fields)
      : model(model), modelName(modelName), fields(fields) {}

  void same(const char *field, int64_t found, int64_t expected) {
    if (found != expected)
      fields.failInWords(ErrorCode::Unsupported,
                         "{}: found {}, expected {} as {} has; give the assistant of this model",
                         field, found, expected, modelName);
  }
  /// Heads, windows and angles of the layers with a window, or of those without, and where the
  /// cache has what they read.
  void checkLayers(ModelConfig &config, bool isWindowed);

private:
  const ModelConfig &model;
  std::string_view modelName;
  FieldReader &fields;
};

} // namespace

void Pairing::checkLayers(ModelConfig &config, bool isWindowed) {
  int64_t layer = 0;
  while (layer < config.numLayers && (config.windowOf(layer) != 0) != isWindowed)
    ++layer;
  if (layer == config.numLayers)
    return;
  const char *kind = isWindowed ? "with" : "without";
  auto &source = isWindowed ? config.windowedSource : config.fullSource;
  source = model.lastCached(isWindowed);
  if (!source)
    return fields.failInWords(ErrorCode::Unsupported,
                              "layer_types: layer {} reads the keys and values of the last layer "
                              "{} a window, and {} has none; give the assistant of this model",
                              layer, kind, modelName);
  if (isWindowed && (config.slidingWindow < 2 || config.slidingWindow > model.slidingWindow))
    return fields.failInWords(ErrorCode::Unsupported,
                              "sliding_window: found {}, expected 2 to {}, the window of {}",
                              config.slidingWindow, model.slidingWindow, modelName);
  same(isWindowed || config.fullHeadDim == 0 ? "head_dim" : "global_head_dim",
       config.headDimOf(layer),
       isWindowed || model.fullHeadDim == 0 ? model.headDim : model.fullHeadDim);
  const bool hasOwn = isWindowed && config.windowedRope;
  const numerics::RopeParams &angles = hasOwn ? *config.windowedRope : config.rope,
                             &expected = isWindowed && model.windowedRope ? *model.windowedRope
                                                                          : model.rope;
  if (angles != expected)
    fields.failInWords(ErrorCode::Unsupported,
                       "rope_parameters: queries of layers {} a window rotate by other angles than "
                       "the keys of {} that they read; give the assistant of this model",
                       kind, modelName);
}

/// The model of text_config, whose layers read what another model has made.
static void readLayers(FieldReader &fields, const ModelConfig &model, std::string_view modelName,
                       ModelConfig &config) {
  readModel(fields, config);
  const int64_t shared = count(fields, "num_kv_shared_layers", kMostLayers, 0);
  if (shared != 0 && shared != config.numLayers)
    fields.failInWords(ErrorCode::Unsupported,
                       "num_kv_shared_layers: found {}, expected all {} layers", shared,
                       config.numLayers);
  if (count(fields, "hidden_size_per_layer_input", kLargestWidth, 0) != 0)
    fields.failInWords(ErrorCode::Unsupported,
                       "hidden_size_per_layer_input: embeddings of layers are not supported in an "
                       "assistant; expected 0");
  if (fields.failed())
    return;
  Pairing pairing(model, modelName, fields);
  pairing.same("vocab_size", config.vocabSize, model.vocabSize);
  pairing.checkLayers(config, /*isWindowed=*/true);
  pairing.checkLayers(config, /*isWindowed=*/false);
  config.numKVHeads = model.numKVHeads;
  config.fullKVHeads = model.fullKVHeads;
  config.sharesProjection = false;
}

static void readClusters(FieldReader &fields, const ModelConfig &config, Assistant &assistant) {
  if (!flag(fields, "use_ordered_embeddings", false))
    return;
  assistant.clusters = integer(fields, "num_centroids", kLargestWidth, 2048);
  assistant.chosenClusters = integer(fields, "centroid_intermediate_top_k", kLargestWidth, 32);
  if (config.vocabSize % assistant.clusters != 0)
    fields.failInWords(ErrorCode::Corrupt,
                       "num_centroids: {} tokens cannot be in {} clusters of one size; expected a "
                       "divisor",
                       config.vocabSize, assistant.clusters);
  if (assistant.chosenClusters > assistant.clusters)
    fields.failInWords(ErrorCode::Corrupt,
                       "centroid_intermediate_top_k: found {}, expected at most num_centroids, {}",
                       assistant.chosenClusters, assistant.clusters);
}

Result<Assistant> formats::parseAssistantConfig(std::string_view text, std::string_view fileName,
                                                const ModelConfig &model,
                                                std::string_view modelName) {
  static const Architecture architecture = gemma4Assistant();
  if (model.architecture->name != std::string_view("gemma4_text"))
    return makeError(ErrorCode::Unsupported,
                     "{} is a model of {}, for which there are no assistants; {} drafts for "
                     "gemma4_text: leave the assistant out",
                     modelName, model.architecture->name, fileName);
  Result<Json> object = Json::parseObject(text, fileName);
  if (!object)
    return Unexpected(object.error());
  FieldReader fields(*object, fileName, {.nullIsAbsent = true});
  std::string modelType;
  fields.required("model_type", modelType);
  if (!fields.failed() && modelType != architecture.name)
    fields.failInWords(ErrorCode::Unsupported,
                       "model_type: found {}, expected {}: a model that drafts by itself is given "
                       "to --speculate, as an artifact",
                       quote(modelType), quote(architecture.name));
  if (!fields.failed() && fields.find("quantization_config"))
    fields.failInWords(ErrorCode::Unsupported,
                       "quantization_config: an assistant in codes is not supported; give the "
                       "float checkpoint");
  if (fields.failed())
    return Unexpected(fields.result().error());

  auto config = std::make_shared<ModelConfig>();
  config->architecture = &architecture;
  Assistant assistant;
  Pairing(model, modelName, fields)
      .same("backbone_hidden_size", integer(fields, "backbone_hidden_size", kLargestWidth, 1536),
            model.hiddenSize);
  if (!fields.find("text_config"))
    fields.failInWords(ErrorCode::Corrupt, "text_config: missing; expected an object");
  if (!fields.failed())
    fields.object("text_config",
                  [&](FieldReader &part) { readLayers(part, model, modelName, *config); });
  config->tieWordEmbeddings = flag(fields, "tie_word_embeddings", true);
  if (!fields.failed())
    readClusters(fields, *config, assistant);
  if (fields.failed())
    return Unexpected(fields.result().error());
  if (Result<void> checked = checkConsistency(*config, fileName); !checked)
    return Unexpected(checked.error());
  config->sharedKVLayers = config->numLayers;
  assistant.config = std::move(config);
  return assistant;
}
