//===- ImportModel.cpp - Models on disk to lm IR --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Import/ImportModel.h"
#include "easyquant/Dialect/LM/IR/LM.h"

#include "ModelBuilder.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"

using namespace mlir;
using namespace easyquant;
using formats::ModelConfig;
using formats::ModelSource;

/// What the manifest says under "model".
static DictionaryAttr modelAttr(ModelBuilder &b) {
  const ModelConfig &config = b.config;
  auto integer = [&](StringRef name, int64_t value) {
    return b.getNamedAttr(name, b.getI64IntegerAttr(value));
  };
  SmallVector<NamedAttribute> fields = {
      b.getNamedAttr("architecture",
                     b.getStringAttr(formats::architectureName(config.architecture))),
      integer("vocab_size", config.vocabSize),
      integer("max_context", config.maxContext),
      integer("hidden_size", config.hiddenSize),
      integer("intermediate_size", config.intermediateSize),
      integer("num_layers", config.numLayers),
      integer("num_heads", config.numHeads),
      integer("num_kv_heads", config.numKVHeads),
      integer("head_dim", config.headDim),
      b.getNamedAttr("eos_token_ids", b.getI64ArrayAttr(config.eosTokenIds)),
      integer("parameters", b.source.parameters()),
  };
  if (config.bosTokenId)
    fields.push_back(integer("bos_token_id", *config.bosTokenId));
  return b.getDictionaryAttr(fields);
}

static func::FuncOp buildForward(ModelBuilder &b, ModuleOp module,
                                 const ArchitectureImporter &importer) {
  const ModelConfig &config = b.config;
  b.setInsertionPointToEnd(module.getBody());
  auto numbersType = RankedTensorType::get({ShapedType::kDynamic}, b.getI32Type());
  auto type = b.getFunctionType({numbersType, b.batchType(), numbersType, b.cacheType()},
                                {b.activations(config.vocabSize)});
  auto forward = func::FuncOp::create(b, b.at("forward"), "forward", type);
  Block *body = forward.addEntryBlock();
  b.setInsertionPointToStart(body);
  Value tokens = body->getArgument(0), batch = body->getArgument(1);
  Value logitRows = body->getArgument(2), cache = body->getArgument(3);

  Value x = importer.embed(b, tokens, batch);
  for (int64_t layer = 0; layer < config.numLayers; ++layer) {
    std::string name = "layer_" + std::to_string(layer);
    x = func::CallOp::create(b, b.at(name), name, x.getType(), ValueRange{x, batch, cache})
            .getResult(0);
  }
  x = lm::RowsOp::create(b, b.at("lm_head"), x, logitRows);
  x = importer.finalNorm(b, x);
  Value head = b.load(config.tieWordEmbeddings ? importer.embeddingName : "lm_head.weight");
  Value logits = lm::LinearOp::create(b, b.at("lm_head"), x, head, /*bias=*/Value(), "lm_head");
  func::ReturnOp::create(b, b.at("forward"), logits);
  return forward;
}

OwningOpRef<ModuleOp> easyquant::importModel(MLIRContext &context, const ModelSource &source) {
  context.loadDialect<lm::LMDialect, func::FuncDialect, ml_program::MLProgramDialect>();
  OwningOpRef<ModuleOp> module = ModuleOp::create(UnknownLoc::get(&context));
  ModelBuilder b(*module, source);
  const ArchitectureImporter &importer = b.config.isLLaMALike() ? kLLaMAImporter : kGPT2Importer;

  (*module)->setAttr(lm::kSourceAttr, b.getStringAttr(source.path().string()));
  (*module)->setAttr(lm::kModelAttr, modelAttr(b));
  b.setInsertionPointToEnd(module->getBody());
  b.declareWeights();
  if (importer.usesRope)
    b.declareRopeTable();
  for (int64_t layer = 0; layer < b.config.numLayers; ++layer)
    importer.buildLayer(b, layer);
  buildForward(b, *module, importer);
  return module;
}
