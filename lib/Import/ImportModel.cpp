//===- ImportModel.cpp - Models on disk to lm IR --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Import/ImportModel.h"
#include "easyquant/Dialect/LM/IR/LM.h"
#include "easyquant/Formats/ModelTensors.h"

#include "BuildModel.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace easyquant;
using formats::LayerModules;
using formats::ModelConfig;
using formats::ModelSource;
using formats::ModuleName;

/// Bytes of a rotary table from which on the user is told.
static constexpr int64_t kLargeRopeTable = int64_t(128) << 20;

/// What the manifest says under "model".
static DictionaryAttr modelAttr(ModelBuilder &b) {
  const ModelConfig &config = b.config;
  auto integer = [&](StringRef name, int64_t value) {
    return b.getNamedAttr(name, b.getI64IntegerAttr(value));
  };
  SmallVector<NamedAttribute> fields = {
      b.getNamedAttr("architecture", b.getStringAttr(config.architecture->name)),
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

/// The part of a layer that a module belongs to: "self_attn" of "self_attn.o_proj".
static std::string partOf(const ModuleName &module) {
  return StringRef(module.name).rsplit('.').first.str();
}

/// Query, key and value of the normed input, before they are normed and rotated themselves; the
/// query alone where others make the rest.
static SmallVector<Value, 3> buildProjections(ModelBuilder &b, Value input, int64_t index,
                                              const std::string &prefix) {
  const ModelConfig &config = b.config;
  const LayerModules &modules = config.architecture->layer;
  if (modules.qkv) {
    const int64_t q = config.numHeads * config.headDim, kv = config.numKVHeads * config.headDim;
    Value all = b.linear(input, prefix, modules.qkv, config.qkvBias);
    auto parts = lm::SplitOp::create(b, b.at(prefix + partOf(modules.qkv)), all,
                                     ArrayRef<int64_t>{q, kv, kv});
    return {parts.getResult(0), parts.getResult(1), parts.getResult(2)};
  }
  Value q = b.linear(input, prefix, modules.q, config.qkvBias);
  if (config.sharesKV(index))
    return {q};
  Value k = b.linear(input, prefix, modules.k, config.qkvBias);
  return {q, k,
          config.sharesProjectionIn(index) ? k
                                           : b.linear(input, prefix, modules.v, config.qkvBias)};
}

/// What attention gives, and the keys and values that it read.
struct Attended {
  Value output, keys, values;
};

static Attended buildAttention(ModelBuilder &b, Value input, func::FuncOp layer, int64_t index,
                               const std::string &prefix) {
  const ModelConfig &config = b.config;
  const LayerModules &modules = config.architecture->layer;
  const std::string place = prefix + partOf(modules.o);
  SmallVector<Value, 3> projections = buildProjections(b, input, index, prefix);
  const bool shares = config.sharesKV(index);
  Value q = projections[0], k, v, gate;
  if (config.architecture->gatesAttention) {
    const int64_t columns = config.numHeads * config.headDim;
    auto parts = lm::SplitOp::create(b, b.at(place), q, ArrayRef<int64_t>{columns, columns});
    q = parts.getResult(0);
    gate = parts.getResult(1);
  }
  const bool byHead = config.architecture->qkNorm == formats::QKNorm::EachHead;
  auto norm = [&](Value rows, const ModuleName &module) {
    return byHead ? b.headNorm(rows, prefix, module) : b.norm(rows, prefix, module);
  };
  q = norm(q, modules.qNorm);
  if (shares && !config.isAssistant()) {
    k = b.ofOthers(layer)[0];
    v = b.ofOthers(layer)[1];
  } else if (!shares) {
    k = norm(projections[1], modules.kNorm);
    v = config.architecture->normsValues
            ? b.headNorm(projections[2], place, config.headDimOf(index))
            : projections[2];
  }
  if (config.rotates(index)) {
    Value keys =
        b.load((config.hasWindowedRope(index) ? kWindowedRopeTableName : kRopeTableName).str());
    const bool isLate = config.ropeIn(config.maxContext).lateGain != 0.0;
    Value queries = isLate ? b.load(kQueryRopeTableName.str()) : keys;
    auto rotate = [&](Value &rows, Value table) {
      rows = lm::RopeOp::create(b, b.at(place), rows, table, layer.getArgument(1),
                                config.headDimOf(index));
    };
    rotate(q, queries);
    if (!shares)
      rotate(k, keys);
  }
  Value sinkLogits = modules.sinks ? b.load(prefix + modules.sinks.name) : Value();
  Value attended = b.attention(q, k, v, layer, index, place, sinkLogits);
  if (gate)
    attended = lm::GluOp::create(b, b.at(place), lm::GluActivation::Sigmoid, gate, attended);
  return {b.linear(attended, prefix, modules.o, config.outputBias), k, v};
}

/// A gated short convolution: C * convolution(B * y).
static Value buildConvolution(ModelBuilder &b, Value input, func::FuncOp layer, int64_t index,
                              const std::string &prefix) {
  const ModelConfig &config = b.config;
  const LayerModules &modules = config.architecture->layer;
  const std::string place = prefix + partOf(modules.convolutionOut);
  Value all = b.linear(input, prefix, modules.convolutionIn, config.convolutionBias);
  auto parts = lm::SplitOp::create(b, b.at(place), all, SmallVector<int64_t>(3, config.hiddenSize));
  Value gated = lm::GluOp::create(b, b.at(place), lm::GluActivation::None, parts.getResult(0),
                                  parts.getResult(2));
  const std::string name = prefix + modules.convolution.name;
  Value bias = config.convolutionBias ? b.load(name + ".bias") : Value();
  Value convolved = lm::Conv1dOp::create(
      b, b.at(name), gated.getType(), gated, b.load(name + ".weight"), bias,
      /*state=*/layer.getArgument(3), /*batch=*/layer.getArgument(1),
      static_cast<uint64_t>(config.recurrentBefore(index) * config.recurrentState()),
      /*silu=*/false);
  Value mixed =
      lm::GluOp::create(b, b.at(place), lm::GluActivation::None, convolved, parts.getResult(1));
  return b.linear(mixed, prefix, modules.convolutionOut, config.convolutionBias);
}

/// A gated delta net: queries, keys and values by a convolution along the text, the recurrence, and
/// a gate on what it gives.
static Value buildDelta(ModelBuilder &b, Value input, func::FuncOp layer, int64_t index,
                        const std::string &prefix) {
  const ModelConfig &config = b.config;
  const formats::DeltaModules &modules = config.architecture->layer.delta;
  const formats::DeltaSizes &sizes = config.delta;
  const std::string place = prefix + partOf(modules.out);
  Value batch = layer.getArgument(1), state = layer.getArgument(3);
  const int64_t first = config.recurrentBefore(index) * config.recurrentState();
  Value mixed = b.linear(input, prefix, modules.in, /*bias=*/false);
  Value gate = b.linear(input, prefix, modules.gate, /*bias=*/false);
  Value strength = b.linear(input, prefix, modules.strength, /*bias=*/false);
  Value decay = b.linear(input, prefix, modules.decay, /*bias=*/false);
  const std::string convolution = prefix + modules.convolution.name;
  Value convolved = lm::Conv1dOp::create(b, b.at(convolution), mixed.getType(), mixed,
                                         b.load(convolution + ".weight"), /*bias=*/Value(), state,
                                         batch, static_cast<uint64_t>(first), /*silu=*/true);
  auto parts = lm::SplitOp::create(b, b.at(place), convolved,
                                   ArrayRef<int64_t>{sizes.keys(), sizes.keys(), sizes.values()});
  Value rate = b.load(prefix + modules.rate.name), bias = b.load(prefix + modules.bias.name);
  Value result = lm::GatedDeltaOp::create(
      b, b.at(place), parts.getResult(2).getType(), parts.getResult(0), parts.getResult(1),
      parts.getResult(2), decay, strength, rate, bias, state, batch,
      static_cast<uint64_t>(sizes.keyHeads), static_cast<uint64_t>(sizes.valueHeads),
      static_cast<uint64_t>(first + config.convolutionState()), sizes.isTiled);
  result = b.headNorm(result, prefix, modules.norm);
  result = lm::GluOp::create(b, b.at(place), lm::GluActivation::Silu, gate, result);
  return b.linear(result, prefix, modules.out, /*bias=*/false);
}

static lm::GluActivation gateOf(const ModelConfig &config) {
  return config.activation == formats::Activation::SiLU          ? lm::GluActivation::Silu
         : config.activation == formats::Activation::ClampedSiLU ? lm::GluActivation::Clamped
                                                                 : lm::GluActivation::GeluTanh;
}

/// The experts that each row of `routed` chooses, on the rows of their own that these choices are.
static Value buildExperts(ModelBuilder &b, Value routed, Value input, const std::string &prefix) {
  const ModelConfig &config = b.config;
  const LayerModules &modules = config.architecture->layer;
  const std::string place = prefix + partOf(modules.expertDown);
  Value logits =
      b.linear(routed, prefix, modules.router, /*bias=*/config.architecture->experts.biases);
  if (modules.routerScale)
    logits = b.multiply(logits, 1.0 / std::sqrt(static_cast<double>(config.hiddenSize)),
                        prefix + modules.router.name);
  auto numbers = [&](bool areThere, const ModuleName &module) {
    return areThere ? b.load(prefix + module.name) : Value();
  };
  auto route = lm::RouteOp::create(b, b.at(prefix + modules.router.name), logits,
                                   config.expertsPerRow, config.renormalizesExperts,
                                   numbers(config.biasesChoices, modules.choiceBias),
                                   numbers(bool(modules.expertFactors), modules.expertFactors),
                                   config.architecture->experts.sigmoid, config.expertScale);
  Value rows = lm::RowsOp::create(b, b.at(place), input, route.getOrder());
  Value gate = b.experts(rows, prefix, modules.expertGate, route.getOffsets());
  Value up = b.experts(rows, prefix, modules.expertUp, route.getOffsets());
  Value activated = lm::GluOp::create(b, b.at(place), gateOf(config), gate, up);
  Value down = b.experts(activated, prefix, modules.expertDown, route.getOffsets());
  SmallVector<Value> shared;
  if (config.sharedExpertSize != 0) {
    const std::string beside = prefix + partOf(modules.sharedDown);
    Value gateOfShared = b.linear(input, prefix, modules.sharedRouter, /*bias=*/false);
    Value sharedGate = b.linear(input, prefix, modules.sharedGate, /*bias=*/false);
    Value sharedUp = b.linear(input, prefix, modules.sharedUp, /*bias=*/false);
    Value both = lm::GluOp::create(b, b.at(beside), gateOf(config), sharedGate, sharedUp);
    shared = {b.linear(both, prefix, modules.sharedDown, /*bias=*/false), gateOfShared};
  }
  return lm::CombineOp::create(b, b.at(place), down, route.getPlaces(), route.getWeights(), shared);
}

static Value buildMlp(ModelBuilder &b, Value input, int64_t index, const std::string &prefix) {
  const ModelConfig &config = b.config;
  const LayerModules &modules = config.architecture->layer;
  const std::string place = prefix + partOf(modules.down);
  const lm::GluActivation kind = gateOf(config);
  Value activated;
  if (modules.gateUp) {
    Value both = b.linear(input, prefix, modules.gateUp, config.mlpBias);
    auto parts = lm::SplitOp::create(b, b.at(prefix + partOf(modules.gateUp)), both,
                                     SmallVector<int64_t>(2, b.config.intermediateOf(index)));
    activated = lm::GluOp::create(b, b.at(place), kind, parts.getResult(0), parts.getResult(1));
  } else if (modules.gate) {
    Value gate = b.linear(input, prefix, modules.gate, config.mlpBias);
    Value up = b.linear(input, prefix, modules.up, config.mlpBias);
    activated = lm::GluOp::create(b, b.at(place), kind, gate, up);
  } else {
    Value up = b.linear(input, prefix, modules.up, config.mlpBias);
    activated = lm::GeluOp::create(b, b.at(place), up,
                                   config.activation == formats::Activation::GeluTanh
                                       ? lm::GeluApproximation::Tanh
                                       : lm::GeluApproximation::None);
  }
  return b.linear(activated, prefix, modules.down, config.mlpBias);
}

/// What stands behind attention: an MLP, experts, or both.
static Value buildFeedForward(ModelBuilder &b, Value x, int64_t index, const std::string &prefix) {
  const ModelConfig &config = b.config;
  const LayerModules &modules = config.architecture->layer;
  Value normed = b.norm(x, prefix, modules.mlpNorm);
  if (!config.hasExperts(index))
    return buildMlp(b, normed, index, prefix);
  if (!config.hasMlp(index))
    return buildExperts(b, normed, normed, prefix);
  Value dense = b.norm(buildMlp(b, normed, index, prefix), prefix, modules.denseOutputNorm);
  const std::string scale = prefix + modules.routerScale.name;
  Value routed = lm::RmsNormOp::create(b, b.at(scale), x, b.load(scale),
                                       b.getF64FloatAttr(config.normEpsilon));
  Value mixed = buildExperts(b, routed, b.norm(x, prefix, modules.expertNorm), prefix);
  return b.add(dense, b.norm(mixed, prefix, modules.expertOutputNorm),
               prefix + partOf(modules.expertDown));
}

/// Adds what a layer makes of its embedding.
static Value buildLayerInput(ModelBuilder &b, Value x, Value inputs, const std::string &prefix) {
  const LayerModules &modules = b.config.architecture->layer;
  const std::string place = prefix + modules.inputProjection.name;
  Value gate = b.linear(x, prefix, modules.inputGate, /*bias=*/false);
  Value gated = lm::GluOp::create(b, b.at(place), gateOf(b.config), gate, inputs);
  Value projected = b.linear(gated, prefix, modules.inputProjection, /*bias=*/false);
  return b.add(x, b.norm(projected, prefix, modules.inputProjectionNorm), place);
}

void easyquant::buildLayer(ModelBuilder &b, int64_t index, double scalar) {
  const LayerModules &modules = b.config.architecture->layer;
  const std::string prefix = b.config.layerPrefix(index);
  func::FuncOp layer = b.startLayer(index);
  Value x = layer.getArgument(0);

  Value normed = b.norm(x, prefix, modules.attentionNorm);
  const bool isRecurrent = b.config.isRecurrent(index), hasDelta = bool(modules.delta.out);
  const std::string mixer = prefix + (!isRecurrent ? partOf(modules.o)
                                      : hasDelta   ? partOf(modules.delta.out)
                                                   : partOf(modules.convolutionOut));
  const Attended mixed = !isRecurrent ? buildAttention(b, normed, layer, index, prefix)
                         : hasDelta
                             ? Attended{buildDelta(b, normed, layer, index, prefix), {}, {}}
                             : Attended{buildConvolution(b, normed, layer, index, prefix), {}, {}};
  Value attended = b.norm(mixed.output, prefix, modules.attentionOutputNorm);
  attended = b.multiply(attended, b.config.residualFactor, mixer);
  x = b.add(x, attended, mixer);

  Value down = buildFeedForward(b, x, index, prefix);
  const std::string mlp =
      prefix + (b.config.hasMlp(index) ? partOf(modules.down) : partOf(modules.router));
  down = b.norm(down, prefix, modules.mlpOutputNorm);
  down = b.multiply(down, b.config.residualFactor, mlp);
  x = b.add(x, down, mlp);
  if (b.config.layerInputSize != 0 && index < b.config.numLayers)
    x = buildLayerInput(b, x, layer.getArguments().back(), prefix);
  x = b.multiply(x, scalar, prefix + "layer_scalar");
  if (b.config.isSource(index))
    b.finishLayer({x, mixed.keys, mixed.values});
  else
    b.finishLayer(x);
}

Block *easyquant::startFunction(ModelBuilder &b, ModuleOp module, const std::string &name,
                                ArrayRef<Type> inputs, ArrayRef<Type> results) {
  b.setInsertionPointToEnd(module.getBody());
  auto function = func::FuncOp::create(b, b.at(name), name, b.getFunctionType(inputs, results));
  Block *body = function.addEntryBlock();
  b.setInsertionPointToStart(body);
  return body;
}

Value easyquant::buildEmbedding(ModelBuilder &b, Value tokens) {
  const std::string name = b.config.architecture->embedding.name;
  Value table = b.load(name + ".weight");
  Value x = lm::EmbeddingOp::create(b, b.at(name), tokens, table);
  return b.multiply(x, b.config.embeddingFactor, name);
}

/// What each layer reads of its own beside the hidden state, if they do: made of a table's rows of
/// the tokens and of what the first layer reads.
static SmallVector<Value> buildLayerInputs(ModelBuilder &b, Value tokens, Value embedded) {
  const ModelConfig &config = b.config;
  const formats::Architecture &architecture = *config.architecture;
  if (config.layerInputSize == 0)
    return {};
  const std::string table = architecture.layerEmbedding.name,
                    projection = architecture.layerProjection.name;
  Value rows = lm::EmbeddingOp::create(b, b.at(table), tokens, b.load(table + ".weight"));
  rows = b.multiply(rows, std::sqrt(static_cast<double>(config.layerInputSize)), table);
  Value projected = b.linear(embedded, "", architecture.layerProjection, /*bias=*/false);
  projected =
      b.multiply(projected, 1.0 / std::sqrt(static_cast<double>(config.hiddenSize)), projection);
  projected = b.headNorm(projected, "", architecture.layerProjectionNorm);
  Value all = b.multiply(b.add(projected, rows, table), std::sqrt(0.5), table);
  auto parts = lm::SplitOp::create(b, b.at(table), all,
                                   SmallVector<int64_t>(config.numLayers, config.layerInputSize));
  return SmallVector<Value>(parts.getOutputs());
}

Value easyquant::buildHead(ModelBuilder &b, Value x, const std::string &site) {
  const ModelConfig &config = b.config;
  const std::string name =
      config.tieWordEmbeddings ? config.architecture->embedding.name : formats::kHeadModule;
  Value logits = lm::LinearOp::create(b, b.at(site), x, b.load(name + ".weight"),
                                      /*bias=*/Value(), site);
  logits = b.multiply(logits, 1.0 / config.logitDivisor, site);
  return config.logitBound == 0.0
             ? logits
             : lm::SoftCapOp::create(b, b.at(site), logits, b.getF64FloatAttr(config.logitBound))
                   .getResult();
}

static void buildForward(ModelBuilder &b, ModuleOp module) {
  const ModelConfig &config = b.config;
  const formats::Architecture &architecture = *config.architecture;
  auto numbersType = RankedTensorType::get({ShapedType::kDynamic}, b.getI32Type());
  SmallVector<Type> inputs = {numbersType, b.batchType(), numbersType, b.cacheType()};
  if (lm::RecurrentType recurrent = b.recurrentType())
    inputs.push_back(recurrent);
  SmallVector<Type> results = {b.activations(config.vocabSize)};
  const bool drafts = config.hasDraftHead || config.assistant;
  if (drafts)
    results.push_back(b.activations(config.hiddenSize));
  Block *body = startFunction(b, module, "forward", inputs, results);
  Value tokens = body->getArgument(0), batch = body->getArgument(1);
  Value logitRows = body->getArgument(2), cache = body->getArgument(3);

  Value x = buildEmbedding(b, tokens);
  if (architecture.positions) {
    const std::string positions = architecture.positions.name;
    Value table = b.rowsOfContext(b.load(positions + ".weight"));
    x = lm::PositionEmbeddingOp::create(b, b.at(positions), x, table, batch);
  }
  const SmallVector<Value> ofLayers = buildLayerInputs(b, tokens, x);
  llvm::DenseMap<int64_t, SmallVector<Value>> keysOf; ///< and values, of layers that others read
  for (int64_t layer = 0; layer < config.numLayers; ++layer) {
    const std::string name = b.layerName(layer);
    SmallVector<Value> operands = {x, batch, cache};
    llvm::append_range(operands, body->getArguments().drop_front(4)); // a recurrent state
    if (config.sharesKV(layer))
      llvm::append_range(operands, keysOf[config.sourceOf(layer)]);
    if (!ofLayers.empty())
      operands.push_back(ofLayers[static_cast<size_t>(layer)]);
    auto call = func::CallOp::create(b, b.at(name), name, b.resultsOf(layer), operands);
    x = call.getResult(0);
    if (config.isSource(layer))
      keysOf[layer] = llvm::to_vector(ValueRange(call.getResults()).drop_front());
  }
  auto chosen = [&](Value rows) {
    return lm::RowsOp::create(b, b.at(formats::kHeadModule), rows, logitRows).getOutput();
  };
  auto norm = [&](Value rows) { return b.norm(rows, "", architecture.finalNorm); };
  if (!drafts) {
    Value logits = buildHead(b, norm(chosen(x)), formats::kHeadModule);
    func::ReturnOp::create(b, b.at("forward"), logits);
    return;
  }
  x = norm(x); // of all rows
  Value logits = buildHead(b, chosen(x), formats::kHeadModule);
  func::ReturnOp::create(b, b.at("forward"), {logits, x});
}

/// Refuses what the dialect would refuse without the name of a file.
static LogicalResult check(MLIRContext &context, const ModelSource &source,
                           const ModelConfig &config, int64_t longestContext) {
  auto error = [&] {
    return emitError(UnknownLoc::get(&context)) << source.path().string() << ": ";
  };
  if (longestContext > source.config().maxContext)
    return error() << "a context of " << longestContext
                   << " tokens is asked for, but the model's is " << source.config().maxContext
                   << "; give a --context up to that, or none for all of it";
  const int64_t recurrent = config.recurrentBefore(config.numLayers);
  if (!cacheTypeOf(context, config, error) ||
      (recurrent > 0 &&
       failed(lm::RecurrentType::verify(error, recurrent * config.recurrentState()))))
    return failure();
  if (!config.architecture->isRotary())
    return success();
  const numerics::RopeParams rope = config.ropeIn(config.maxContext);
  if (auto legal = numerics::checkRope(rope, config.maxContext); !legal)
    return error() << legal.error().message;
  if (longestContext == 0 && rope.divisors != config.rope.divisors)
    emitRemark(UnknownLoc::get(&context))
        << source.path().string() << ": the context of " << config.maxContext
        << " tokens takes the long factors of the rotary positions, in short texts, too; --context "
        << rope.originalPositions << " or less takes the short ones";
  const int64_t tables = config.windowedRope || rope.lateGain != 0.0 ? 2 : 1;
  const int64_t dims = rope.dims + (config.windowedRope    ? config.windowedRope->dims
                                    : rope.lateGain != 0.0 ? rope.dims
                                                           : 0);
  const int64_t bytes = config.maxContext * dims * int64_t(sizeof(float));
  if (longestContext == 0 && bytes > kLargeRopeTable)
    emitRemark(UnknownLoc::get(&context))
        << source.path().string() << ": the rotary table" << (tables == 1 ? "" : "s") << " of "
        << config.maxContext << " positions take" << (tables == 1 ? "s " : " ") << bytes / 1000000
        << " MB; --context TOKENS makes " << (tables == 1 ? "it" : "them")
        << " for shorter sequences";
  return success();
}

/// What the result of each layer is times. 1 where a configuration alone has no weights.
static FailureOr<std::vector<double>> readScalars(MLIRContext &context, const ModelSource &source,
                                                  const ModelConfig &config) {
  const formats::Architecture &architecture = *config.architecture;
  std::vector<double> scalars(static_cast<size_t>(config.numLayers), 1.0);
  for (size_t layer = 0; architecture.layer.scalar && layer < scalars.size(); ++layer) {
    const std::string name =
        config.layerPrefix(static_cast<int64_t>(layer)) + architecture.layer.scalar.name;
    float scalar = 1.0f;
    if (auto read = source.read(name, {&scalar, 1}); !read) {
      if (read.error().code == ErrorCode::NotFound)
        continue;
      return emitError(UnknownLoc::get(&context)) << read.error().message;
    }
    if (!std::isnormal(scalar) || scalar < 0)
      return emitError(UnknownLoc::get(&context))
             << source.path().string() << ": tensor \"" << name
             << "\": expected a positive number, found " << scalar;
    scalars[layer] = scalar;
  }
  return scalars;
}

OwningOpRef<ModuleOp> easyquant::importModel(MLIRContext &context, const ModelSource &source,
                                             int64_t longestContext, bool drafts) {
  context.loadDialect<lm::LMDialect, func::FuncDialect, ml_program::MLProgramDialect,
                      tensor::TensorDialect>();
  ModelConfig config = source.config();
  if (longestContext > 0)
    config.maxContext = longestContext;
  config.hasDraftHead &= drafts;
  if (!drafts)
    config.assistant.reset();
  if (failed(check(context, source, config, longestContext)))
    return nullptr;
  FailureOr<std::vector<double>> scalars = readScalars(context, source, config);
  if (failed(scalars))
    return nullptr;
  FailureOr<std::vector<double>> ofAssistant =
      config.assistant ? readScalars(context, source, *config.assistant->config)
                       : std::vector<double>();
  if (failed(ofAssistant))
    return nullptr;
  OwningOpRef<ModuleOp> module = ModuleOp::create(UnknownLoc::get(&context));
  ModelBuilder b(*module, source, std::move(config));

  (*module)->setAttr(lm::kSourceAttr, b.getStringAttr(source.path().string()));
  if (b.config.assistant)
    (*module)->setAttr(lm::kAssistantAttr, b.getStringAttr(source.assistantPath().string()));
  (*module)->setAttr(lm::kModelAttr, modelAttr(b));
  b.setInsertionPointToEnd(module->getBody());
  b.declareWeights();
  if (b.config.architecture->isRotary())
    b.declareRopeTables();
  for (int64_t layer = 0; layer < b.config.numLayers; ++layer)
    buildLayer(b, layer, (*scalars)[static_cast<size_t>(layer)]);
  buildForward(b, *module);
  if (b.config.hasDraftHead) {
    buildLayer(b, b.config.numLayers, /*scalar=*/1.0);
    buildDraft(b, *module);
  }
  if (b.config.assistant)
    buildAssistant(b, *module, *ofAssistant);
  return module;
}
