//===- Subgraph.cpp - A part of a layer as a program of its own -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Execution/Subgraph.h"

#include "HostOperations.h"

#include "easyquant/Conversion/EquantToLaunches/EquantToLaunches.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;
using equant::ObserveOp;

namespace {

bool isStatic(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.hasStaticShape();
}

/// Constants have static shapes and activations never have; gradients of constants are made of
/// activations.
bool isConstant(Value value) {
  Operation *op = value.getDefiningOp();
  return isStatic(value) && (!op || llvm::all_of(op->getOperands(), isStatic));
}

/// The rows whose logits are asked for.
bool areRowNumbers(Value value) {
  return isa<RankedTensorType>(value.getType()) &&
         llvm::all_of(value.getUsers(), llvm::IsaPred<lm::RowsOp, lm::RowsGradientOp>);
}

/// The numbers of a sequence's state that are an op's.
int64_t stateOf(Operation *op) {
  if (auto convolution = dyn_cast<lm::Conv1dOp>(op))
    return lm::columns(convolution.getInput()) * (lm::columns(convolution.getWeight()) - 1);
  if (auto delta = dyn_cast<lm::GatedDeltaOp>(op))
    return lm::columns(delta.getKey()) / static_cast<int64_t>(delta.getKeyHeads()) *
           lm::columns(delta.getValue());
  return 0;
}

class Outliner {
public:
  Outliner(const Subgraph &subgraph, int64_t length) : subgraph(subgraph), length(length) {}
  FailureOr<OutlinedSubgraph> run();

private:
  LogicalResult collect();
  LogicalResult require(Value value);
  SubgraphWeight weightInSubgraph(Value value);
  void declareWeights(OpBuilder &builder, ModuleOp module);
  void addObservation(ObserveOp observe);
  void observeExperts(OpBuilder &builder, IRMapping &mapping);
  LogicalResult build();
  void cloneInto(OpBuilder &builder, Operation &op, IRMapping &mapping);
  void anonymize(Operation *op);

  const Subgraph &subgraph;
  int64_t length;
  Block *block = nullptr;
  llvm::SetVector<Value> weights;
  llvm::SmallPtrSet<Operation *, 16> ops;
  llvm::SmallPtrSet<Value, 4> arguments; ///< of the function: batch, rows, cache
  std::optional<uint64_t> layer;         ///< of the attention in it
  int64_t sites = 0;
  int64_t placed = 0;                             ///< numbers of the state that are an op's already
  llvm::DenseMap<Operation *, size_t> roundingOf; ///< of a linear
  llvm::DenseMap<std::pair<size_t, Value>, Value> rounded; ///< in the subgraph, of its inputs
  OutlinedSubgraph result;
};

} // namespace

LogicalResult Outliner::require(Value value) {
  SmallVector<Value> worklist = {value};
  while (!worklist.empty()) {
    Value value = worklist.pop_back_val();
    if (llvm::is_contained(subgraph.inputs, value))
      continue;
    if (isConstant(value)) {
      weights.insert(value);
      continue;
    }
    if (isa<BlockArgument>(value) &&
        (isa<lm::BatchType, lm::KVCacheType, lm::RecurrentType>(value.getType()) ||
         areRowNumbers(value))) {
      arguments.insert(value);
      continue;
    }
    Operation *op = value.getDefiningOp();
    if (!op || op->getBlock() != block)
      return emitError(value.getLoc()) << "the subgraph reads " << value.getType()
                                       << ", which is none of its inputs and not computed in it";
    if (isa<func::CallOp>(op))
      return op->emitOpError("cannot be in a subgraph: a subgraph is a part of one function");
    if (auto attention = dyn_cast<lm::AttentionOp>(op)) {
      if (layer && *layer != attention.getLayer())
        return op->emitOpError("of a second layer in one subgraph");
      layer = attention.getLayer();
    }
    // Its cache has a part of each sequence beside the pages, which only the runtime has.
    if (isa<equant::AttentionOp>(op))
      return op->emitOpError("has keys and values that become codes, and what runs a model on "
                             "calibration text takes a float cache; run equant-simquant-kv after "
                             "the passes that need tokens");
    if (ops.insert(op).second)
      llvm::append_range(worklist, op->getOperands());
  }
  return success();
}

/// "'model.layers.0.mlp.experts': ", where its location says so.
static std::string nameOf(Value value) {
  auto name = dyn_cast<NameLoc>(value.getLoc());
  return name ? "'" + name.getName().str() + "': " : "";
}

/// Has it a row for each choice of an expert, rather than for each token?
static bool hasRowsOfChoices(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (auto rows = dyn_cast<lm::RowsOp>(op); rows && rows.getRows().getDefiningOp<lm::RouteOp>())
      return true;
    auto linear = dyn_cast<lm::LinearOp>(op);
    if (linear && linear.getExperts())
      return true;
    if (!op->hasTrait<OpTrait::RowWise>() || op->getNumOperands() == 0)
      return false;
    value = op->getOperand(0);
  }
  return false;
}

LogicalResult Outliner::collect() {
  for (ArrayRef<Value> values :
       {ArrayRef<Value>(subgraph.inputs), ArrayRef<Value>(subgraph.outputs)})
    for (Value value : values)
      if (hasRowsOfChoices(value))
        return emitError(value.getLoc())
               << nameOf(value)
               << "what experts read and give has a row for each choice of a token, which this "
                  "pass does not take yet; leave experts out of it, or give them other methods";
  if (subgraph.inputs.empty())
    return emitError(subgraph.outputs.front().getLoc()) << "a subgraph without inputs";
  block = Value(subgraph.inputs.front()).getParentBlock();
  for (Value output : subgraph.outputs)
    if (failed(require(output)))
      return failure();
  for (const ChoiceRows &choices : subgraph.observed) {
    if (!lm::rowOrder(choices.offsets))
      return emitError(choices.rows.getLoc())
             << "site '" << choices.site
             << "' cannot be observed: no lm.route gives the rows of its experts";
    if (failed(require(choices.rows)) || failed(require(choices.offsets)))
      return failure();
  }
  for (Operation *op : ops) {
    result.recurrentValues += stateOf(op);
    if (result.recurrentValues > lm::kMaxRecurrentValues)
      return op->emitOpError("makes the recurrent state of its layer more than ")
             << lm::kMaxRecurrentValues << " numbers";
  }
  if (!subgraph.observers)
    return success();
  for (auto observe : block->getOps<ObserveOp>()) {
    Operation *producer = observe.getInput().getDefiningOp();
    if ((producer && ops.contains(producer)) ||
        llvm::is_contained(subgraph.inputs, observe.getInput()))
      ops.insert(observe);
  }
  return success();
}

static std::string globalOf(Value constant) {
  while (Operation *op = constant.getDefiningOp()) {
    if (auto load = dyn_cast<ml_program::GlobalLoadConstOp>(op))
      return load.getGlobal().getLeafReference().str();
    if (op->getNumOperands() == 0)
      break;
    constant = op->getOperand(0);
  }
  return "";
}

/// Tables are cut to the rows that the subgraph will read.
SubgraphWeight Outliner::weightInSubgraph(Value value) {
  SubgraphWeight weight{globalOf(value), value, cast<RankedTensorType>(value.getType()),
                        result.weightBytes};
  auto onlyRead = [&](auto isReader) {
    return llvm::all_of(value.getUsers(),
                        [&](Operation *user) { return !ops.contains(user) || isReader(user); });
  };
  int64_t rows = weight.type.getDimSize(0);
  if (subgraph.vocabulary != 0 && onlyRead(llvm::IsaPred<lm::EmbeddingOp>)) {
    weight.isEmbedding = true;
    rows = subgraph.vocabulary;
  } else if (onlyRead(llvm::IsaPred<lm::RopeOp, lm::RopeGradientOp>)) {
    rows = std::min(rows, length);
  }
  SmallVector<int64_t> shape(weight.type.getShape());
  shape[0] = rows;
  weight.type = weight.type.clone(shape);
  result.weightBytes += launch::alignUp(weight.type.getNumElements() * sizeof(float));
  return weight;
}

void Outliner::declareWeights(OpBuilder &builder, ModuleOp module) {
  for (Value value : weights) {
    const SubgraphWeight &weight = result.weights.emplace_back(weightInSubgraph(value));
    auto global = ml_program::GlobalOp::create(
        builder, builder.getUnknownLoc(), "w" + std::to_string(result.weights.size() - 1),
        weight.type, /*is_mutable=*/false,
        ml_program::ExternAttr::get(builder.getContext(), weight.type),
        builder.getStringAttr("private"));
    global->setAttr(equant::kOffsetAttr, builder.getI64IntegerAttr(weight.offset));
  }
}

/// Takes away what differs between equal layers and no kernel asks for.
void Outliner::anonymize(Operation *op) {
  Builder builder(op->getContext());
  op->setDiscardableAttrs(builder.getDictionaryAttr({}));
  StringAttr name = builder.getStringAttr("s" + std::to_string(sites));
  if (auto linear = dyn_cast<lm::LinearOp>(op)) {
    linear.setSiteAttr(name);
    ++sites;
  } else if (auto observe = dyn_cast<ObserveOp>(op)) {
    observe.setSitesAttr(builder.getArrayAttr(name));
    ++sites;
  } else if (auto attention = dyn_cast<lm::AttentionOp>(op)) {
    attention.setLayer(0);
  } else if (auto convolution = dyn_cast<lm::Conv1dOp>(op)) {
    convolution.setFirst(static_cast<uint64_t>(placed));
  } else if (auto delta = dyn_cast<lm::GatedDeltaOp>(op)) {
    delta.setFirst(static_cast<uint64_t>(placed));
  }
  placed += stateOf(op);
}

/// A linear whose input is to be rounded reads it through an op that those beside it share.
void Outliner::cloneInto(OpBuilder &builder, Operation &op, IRMapping &mapping) {
  auto found = roundingOf.find(&op);
  if (found == roundingOf.end())
    return anonymize(builder.clone(op, mapping));
  const size_t number = found->second;
  OpOperand &input = cast<equant::QuantizableOpInterface>(op).getActivationOperand();
  Value &shared = rounded[{number, input.get()}];
  if (!shared) {
    Value plain = mapping.lookup(input.get());
    auto round =
        equant::RoundActivationOp::create(builder, builder.getUnknownLoc(), plain.getType(), plain,
                                          builder.getI64IntegerAttr(static_cast<int64_t>(number)));
    result.calls.push_back({-1, hostOperation(round), static_cast<int64_t>(number)});
    shared = round.getOutput();
  }
  Operation *clone = builder.clone(op, mapping);
  clone->setOperand(input.getOperandNumber(), shared);
  anonymize(clone);
}

void Outliner::addObservation(ObserveOp observe) {
  Observation &observation = result.observations.emplace_back();
  for (StringRef site : observe.getSites().getAsValueRange<StringAttr>())
    observation.sites.push_back(site.str());
  for (StringRef name : observe.getStatistics().getAsValueRange<StringAttr>())
    observation.statistics.push_back(name.str());
  observation.columns = lm::columns(observe.getInput());
  if (Value offsets = observe.getOffsets())
    observation.experts = lm::expertCount(offsets);
  result.calls.push_back({static_cast<int64_t>(result.observations.size()) - 1, nullptr});
}

/// Observers that the model has not.
void Outliner::observeExperts(OpBuilder &builder, IRMapping &mapping) {
  for (const ChoiceRows &choices : subgraph.observed) {
    auto observe = ObserveOp::create(
        builder, builder.getUnknownLoc(), mapping.lookup(choices.rows),
        mapping.lookup(lm::rowOrder(choices.offsets)), mapping.lookup(choices.offsets),
        builder.getStrArrayAttr({choices.site}), builder.getStrArrayAttr({"moments"}));
    addObservation(observe);
    anonymize(observe);
  }
}

LogicalResult Outliner::build() {
  MLIRContext *context = block->getParentOp()->getContext();
  OpBuilder builder(context);
  result.module = ModuleOp::create(builder.getUnknownLoc());
  builder.setInsertionPointToEnd(result.module->getBody());
  declareWeights(builder, *result.module);

  SmallVector<Type> types(ValueRange(subgraph.inputs).getTypes());
  SmallVector<Value> taken; // of the function's arguments, in its order
  for (Value argument : block->getArguments()) {
    if (!arguments.contains(argument))
      continue;
    taken.push_back(argument);
    Type type = argument.getType();
    if (auto cache = dyn_cast<lm::KVCacheType>(type)) {
      type = cache.ofLayer(static_cast<int64_t>(layer.value_or(0)));
    } else if (isa<lm::RecurrentType>(type)) {
      type = lm::RecurrentType::get(context, result.recurrentValues);
      result.arguments.push_back(StepArgument::Recurrent);
    } else {
      result.arguments.push_back(isa<lm::BatchType>(type) ? StepArgument::Batch
                                                          : StepArgument::LogitRows);
    }
    types.push_back(type);
  }
  SmallVector<Type> results(ValueRange(subgraph.outputs).getTypes());
  Location loc = block->getParentOp()->getLoc();
  auto function =
      func::FuncOp::create(builder, loc, "forward", builder.getFunctionType(types, results));
  Block *body = function.addEntryBlock();
  builder.setInsertionPointToStart(body);

  IRMapping mapping;
  mapping.map(subgraph.inputs, body->getArguments().take_front(subgraph.inputs.size()));
  mapping.map(taken, body->getArguments().drop_front(subgraph.inputs.size()));
  for (auto [index, value] : llvm::enumerate(weights))
    mapping.map(value, ml_program::GlobalLoadConstOp::create(
                           builder, value.getLoc(), result.weights[index].type,
                           FlatSymbolRefAttr::get(context, "w" + std::to_string(index)))
                           .getResult());
  for (Operation &op : *block) {
    if (!ops.contains(&op))
      continue;
    if (auto observe = dyn_cast<ObserveOp>(op)) {
      addObservation(observe);
    } else if (isHostCall(&op)) {
      result.calls.push_back({-1, hostOperation(&op)});
      result.isWhole = true;
    }
    cloneInto(builder, op, mapping);
  }
  observeExperts(builder, mapping);
  SmallVector<Value> outputs;
  for (Value output : subgraph.outputs)
    outputs.push_back(mapping.lookup(output));
  func::ReturnOp::create(builder, loc, outputs);
  return success();
}

FailureOr<OutlinedSubgraph> Outliner::run() {
  for (auto [number, linears] : llvm::enumerate(subgraph.roundings))
    for (Operation *linear : linears)
      roundingOf[linear] = number;
  if (failed(collect()) || failed(build()))
    return failure();
  return std::move(result);
}

FailureOr<OutlinedSubgraph> easyquant::execution::outline(const Subgraph &subgraph,
                                                          int64_t length) {
  return Outliner(subgraph, length).run();
}
