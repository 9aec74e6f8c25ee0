//===- BuildDraft.cpp - What drafts for a model ---------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Both kinds of @draft read a token in each row, and the hidden state of the token before it.
//
//===----------------------------------------------------------------------===//

#include "BuildModel.h"

#include "easyquant/Formats/ModelTensors.h"

using namespace mlir;
using namespace easyquant;
using formats::ModelConfig;

/// Its block, into which `b` moves.
static Block *startDraft(ModelBuilder &b, ModuleOp module) {
  auto numbersType = RankedTensorType::get({ShapedType::kDynamic}, b.getI32Type());
  RankedTensorType hidden = b.activations(b.config.hiddenSize);
  return startFunction(b, module, lm::kDraft.str(),
                       {numbersType, hidden, b.batchType(), numbersType, b.cacheType()},
                       {b.activations(b.config.vocabSize), hidden});
}

void easyquant::buildDraft(ModelBuilder &b, ModuleOp module) {
  const ModelConfig &config = b.config;
  const formats::DraftModules &modules = config.architecture->draft;
  const std::string prefix = modules.prefix;
  Block *body = startDraft(b, module);
  Value batch = body->getArgument(2), cache = body->getArgument(4);
  Value embedded = b.norm(buildEmbedding(b, body->getArgument(0)), prefix, modules.embeddingNorm);
  Value before = b.norm(body->getArgument(1), prefix, modules.hiddenNorm);
  Value x =
      lm::ConcatOp::create(b, b.at(prefix + modules.fc.name), b.activations(2 * config.hiddenSize),
                           ValueRange{embedded, before});
  x = b.linear(x, prefix, modules.fc, /*bias=*/false);
  const std::string layer = b.layerName(config.numLayers);
  x = func::CallOp::create(b, b.at(layer), layer, x.getType(), ValueRange{x, batch, cache})
          .getResult(0);
  x = b.norm(x, prefix, modules.norm);
  Value chosen = lm::RowsOp::create(b, b.at(prefix + modules.norm.name), x, body->getArgument(3));
  Value logits = buildHead(b, chosen, formats::kHeadModule);
  func::ReturnOp::create(b, b.at(lm::kDraft.str()), {logits, x});
}

/// The logits of the tokens that the assistant chooses among, by what its final norm gives.
static Value buildAssistantHead(ModelBuilder &b, const formats::Assistant &assistant, Value x) {
  const std::string site = formats::kAssistantHead;
  const std::string table =
      b.config.tieWordEmbeddings ? b.config.architecture->embedding.name : formats::kAssistantHead;
  Value logits = lm::LinearOp::create(b, b.at(site), x, b.load(table + ".weight"),
                                      /*bias=*/Value(), site);
  if (assistant.clusters == 0)
    return logits;
  Value scores = b.linear(x, "", {formats::kCentroids, ""}, /*bias=*/false);
  return lm::MaskClustersOp::create(b, b.at(formats::kCentroids), logits.getType(), logits, scores,
                                    b.load(formats::kTokenClusters),
                                    static_cast<uint64_t>(assistant.chosenClusters));
}

void easyquant::buildAssistant(ModelBuilder &model, ModuleOp module, ArrayRef<double> scalars) {
  const formats::Assistant &assistant = *model.config.assistant;
  ModelBuilder b(model);
  for (int64_t layer = 0; layer < b.config.numLayers; ++layer)
    buildLayer(b, layer, scalars[static_cast<size_t>(layer)]);

  Block *body = startDraft(model, module);
  Value batch = body->getArgument(2), cache = body->getArgument(4);
  Value x = lm::ConcatOp::create(
      model, model.at(formats::kPreProjection), model.activations(2 * model.config.hiddenSize),
      ValueRange{buildEmbedding(model, body->getArgument(0)), body->getArgument(1)});
  b.setInsertionPointToEnd(body);
  x = b.linear(x, "", {formats::kPreProjection, ""}, /*bias=*/false);
  for (int64_t layer = 0; layer < b.config.numLayers; ++layer) {
    const std::string name = b.layerName(layer);
    x = func::CallOp::create(b, b.at(name), name, x.getType(), ValueRange{x, batch, cache})
            .getResult(0);
  }
  const formats::ModuleName &norm = b.config.architecture->finalNorm;
  x = b.norm(x, "", norm);
  Value chosen = lm::RowsOp::create(b, b.at(norm.name), x, body->getArgument(3));
  Value logits = buildAssistantHead(b, assistant, chosen);
  Value state = b.linear(x, "", {formats::kPostProjection, ""}, /*bias=*/false);
  func::ReturnOp::create(b, b.at(lm::kDraft.str()), {logits, state});
}
