//===- ModelBuilder.cpp - What importing a model takes ----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ModelBuilder.h"

#include "easyquant/Dialect/LM/IR/LM.h"
#include "easyquant/Dialect/LM/IR/RopeTable.h"
#include "easyquant/Formats/ModelTensors.h"
#include "easyquant/Import/ImportModel.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace easyquant;

ModelBuilder::ModelBuilder(ModuleOp module, const formats::ModelSource &source,
                           formats::ModelConfig config)
    : OpBuilder(module.getBodyRegion()), source(source), config(std::move(config)), module(module) {
}

ModelBuilder::ModelBuilder(ModelBuilder &model)
    : OpBuilder(model), source(model.source), config(*model.config.assistant->config),
      module(model.module), cache(model.cacheType()), firstLayer(model.config.numLayers),
      globals(model.globals) {}

Location ModelBuilder::at(const std::string &name) { return NameLoc::get(getStringAttr(name)); }

RankedTensorType ModelBuilder::activations(int64_t columns) {
  return lm::activationType(getContext(), columns);
}

lm::BatchType ModelBuilder::batchType() { return lm::BatchType::get(getContext()); }

lm::KVCacheType easyquant::cacheTypeOf(MLIRContext &context, const formats::ModelConfig &config,
                                       function_ref<InFlightDiagnostic()> error) {
  SmallVector<int64_t> kvHeads, headDims, windows;
  for (int64_t layer = 0; layer < config.allLayers(); ++layer)
    if (!config.isRecurrent(layer) && !config.sharesKV(layer)) {
      kvHeads.push_back(config.kvHeadsOf(layer));
      headDims.push_back(config.headDimOf(layer));
      windows.push_back(config.windowOf(layer));
    }
  return lm::KVCacheType::getChecked(error, &context, ArrayRef<int64_t>(kvHeads),
                                     ArrayRef<int64_t>(headDims), ArrayRef<int64_t>(windows));
}

lm::KVCacheType ModelBuilder::cacheType() {
  if (cache)
    return cache;
  return cacheTypeOf(*getContext(), config, [&] { return emitError(module.getLoc()); });
}

lm::RecurrentType ModelBuilder::recurrentType() {
  const int64_t layers = config.recurrentBefore(config.numLayers);
  return layers == 0 ? nullptr
                     : lm::RecurrentType::get(getContext(), layers * config.recurrentState());
}

ml_program::GlobalOp ModelBuilder::declare(StringRef name, ArrayRef<int64_t> shape) {
  auto type = RankedTensorType::get(shape, getF32Type());
  auto global = ml_program::GlobalOp::create(
      *this, at(name.str()), name, type, /*is_mutable=*/false,
      ml_program::ExternAttr::get(getContext(), type), getStringAttr("private"));
  globals[name] = type;
  return global;
}

void ModelBuilder::declareWeights() {
  const std::string table = std::string(config.architecture->embedding.name) + ".weight";
  const formats::ModuleName &ofLayers = config.architecture->layerEmbedding;
  const std::string layerTable = ofLayers ? std::string(ofLayers.name) + ".weight" : "";
  const char *draft = config.architecture->draft.prefix;
  for (const formats::ModelTensor &tensor : source.tensors()) {
    if (draft && !config.hasDraftHead && StringRef(tensor.name).starts_with(draft))
      continue;
    if (!config.assistant && StringRef(tensor.name).starts_with(formats::kAssistantPrefix))
      continue;
    ml_program::GlobalOp global = declare(tensor.name, tensor.shape);
    // Rows of what no linear multiplies with are as good in the type that the file has.
    Type stored = tensor.storedType == "BF16"  ? Type(getBF16Type())
                  : tensor.storedType == "F16" ? Type(getF16Type())
                                               : Type();
    const bool isTable =
        (tensor.name == table && !config.tieWordEmbeddings) || tensor.name == layerTable;
    if (stored && isTable)
      global->setAttr(lm::kFileTypeAttr, TypeAttr::get(stored));
  }
}

void ModelBuilder::declareRopeTables() {
  auto declareTable = [&](StringRef name, const numerics::RopeParams &rope) {
    declare(name, {config.maxContext, rope.dims / 2, 2})
        ->setAttr(lm::kRopeTableAttr, lm::ropeTableAttr(getContext(), rope));
  };
  const numerics::RopeParams queries = config.ropeIn(config.maxContext);
  numerics::RopeParams keys = queries;
  keys.lateGain = 0.0;
  declareTable(kRopeTableName, keys);
  if (queries != keys)
    declareTable(kQueryRopeTableName, queries);
  if (config.windowedRope)
    declareTable(kWindowedRopeTableName, *config.windowedRope);
}

Value ModelBuilder::load(const std::string &name) {
  return ml_program::GlobalLoadConstOp::create(*this, at(name), globals.at(name),
                                               FlatSymbolRefAttr::get(getContext(), name));
}

Value ModelBuilder::rowsOfContext(Value table) {
  auto type = cast<RankedTensorType>(table.getType());
  if (type.getDimSize(0) == config.maxContext)
    return table;
  OpFoldResult none = getIndexAttr(0), one = getIndexAttr(1);
  OpFoldResult rows = getIndexAttr(config.maxContext), columns = getIndexAttr(type.getDimSize(1));
  return tensor::ExtractSliceOp::create(*this, table.getLoc(), table, {none, none}, {rows, columns},
                                        {one, one});
}

SmallVector<Type> ModelBuilder::resultsOf(int64_t index) {
  RankedTensorType keys = activations(config.kvHeadsOf(index) * config.headDimOf(index));
  SmallVector<Type> results = {activations(config.hiddenSize)};
  if (config.isSource(index))
    results.append(2, keys);
  return results;
}

ValueRange ModelBuilder::ofOthers(func::FuncOp layer) {
  return ValueRange(layer.getArguments()).drop_front(recurrentType() ? 4 : 3);
}

func::FuncOp ModelBuilder::startLayer(int64_t index) {
  setInsertionPointToEnd(module.getBody());
  const std::string name = layerName(index);
  RankedTensorType hidden = activations(config.hiddenSize);
  SmallVector<Type> inputs = {hidden, batchType(), cacheType()};
  if (lm::RecurrentType recurrent = recurrentType(); recurrent && index < config.numLayers)
    inputs.push_back(recurrent);
  if (config.sharesKV(index) && !config.isAssistant())
    inputs.append(2, activations(config.kvHeadsOf(index) * config.headDimOf(index)));
  if (config.layerInputSize != 0 && index < config.numLayers)
    inputs.push_back(activations(config.layerInputSize));
  auto layer =
      func::FuncOp::create(*this, at(name), name, getFunctionType(inputs, resultsOf(index)));
  layer.setPrivate();
  setInsertionPointToStart(layer.addEntryBlock());
  return layer;
}

void ModelBuilder::finishLayer(ArrayRef<Value> results) {
  func::ReturnOp::create(*this, results.front().getLoc(), results);
}

Value ModelBuilder::linear(Value input, const std::string &prefix,
                           const formats::ModuleName &module, bool bias) {
  const std::string site = prefix + module.name;
  Value weight = load(site + ".weight");
  return lm::LinearOp::create(*this, at(site), input, weight, bias ? load(site + ".bias") : Value(),
                              site);
}

Value ModelBuilder::experts(Value input, const std::string &prefix,
                            const formats::ModuleName &module, Value offsets) {
  const std::string site = prefix + module.name;
  Value bias = config.architecture->experts.biases ? load(site + ".bias") : Value();
  return lm::LinearOp::create(*this, at(site), input, load(site + ".weight"), bias, site, offsets);
}

Value ModelBuilder::norm(Value input, const std::string &prefix,
                         const formats::ModuleName &module) {
  if (!module)
    return input;
  const std::string name = prefix + module.name;
  Value weight = load(name + ".weight");
  FloatAttr epsilon = getF64FloatAttr(config.normEpsilon);
  if (config.architecture->norm == formats::NormKind::RMS)
    return lm::RmsNormOp::create(*this, at(name), input, weight, epsilon);
  Value bias = load(name + ".bias");
  return lm::LayerNormOp::create(*this, at(name), input, weight, bias, epsilon);
}

Value ModelBuilder::headNorm(Value input, const std::string &prefix,
                             const formats::ModuleName &module) {
  const std::string name = prefix + module.name;
  Value weight = load(name + ".weight");
  return lm::HeadRmsNormOp::create(*this, at(name), input.getType(), input, weight,
                                   getF64FloatAttr(config.normEpsilon), /*headDim=*/IntegerAttr());
}

Value ModelBuilder::headNorm(Value input, const std::string &name, int64_t headDim) {
  return lm::HeadRmsNormOp::create(*this, at(name), input.getType(), input, /*weight=*/Value(),
                                   getF64FloatAttr(config.normEpsilon), getI64IntegerAttr(headDim));
}

Value ModelBuilder::attention(Value query, Value key, Value value, func::FuncOp layer,
                              int64_t index, const std::string &name, Value sinkLogits) {
  if (config.isAssistant())
    return lm::CachedAttentionOp::create(
        *this, at(name), query.getType(), query, /*cache=*/layer.getArgument(2),
        /*batch=*/layer.getArgument(1), static_cast<uint64_t>(config.cachedLayer(index)),
        static_cast<uint64_t>(config.numHeads), static_cast<uint64_t>(config.kvHeadsOf(index)),
        static_cast<uint64_t>(config.headDimOf(index)), llvm::APFloat(config.attentionScale),
        static_cast<uint64_t>(config.windowOf(index)));
  return lm::AttentionOp::create(*this, at(name), query, key, value,
                                 /*cache=*/layer.getArgument(2), /*batch=*/layer.getArgument(1),
                                 sinkLogits, config.cachedLayer(index), config.numHeads,
                                 config.kvHeadsOf(index), config.headDimOf(index),
                                 llvm::APFloat(config.attentionScale), config.windowOf(index),
                                 llvm::APFloat(config.attentionBound), config.sharesKV(index));
}

Value ModelBuilder::multiply(Value input, double factor, const std::string &name) {
  if (factor == 1.0)
    return input;
  return lm::MultiplyOp::create(*this, at(name), input, getF64FloatAttr(factor));
}

Value ModelBuilder::add(Value a, Value b, const std::string &name) {
  return lm::AddOp::create(*this, at(name), a, b);
}
