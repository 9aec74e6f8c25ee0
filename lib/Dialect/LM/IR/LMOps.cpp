//===- LMOps.cpp - Language model operations ------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/LM/IR/Attention.h"

#include "OpChecks.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Matchers.h"

#include <cmath>

using namespace mlir;
using namespace easyquant::lm;

#include "easyquant/Dialect/LM/IR/LMInterfaces.cpp.inc"

#define GET_OP_CLASSES
#include "easyquant/Dialect/LM/IR/LMOps.cpp.inc"

RankedTensorType easyquant::lm::activationType(MLIRContext *context, int64_t columns) {
  return RankedTensorType::get({ShapedType::kDynamic, columns}, Float32Type::get(context));
}

bool easyquant::lm::isActivationType(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.getRank() == 2 && tensor.isDynamicDim(0) &&
         tensor.getElementType().isF32();
}

Type easyquant::lm::columnVectorType(Type matrix) {
  auto type = dyn_cast<RankedTensorType>(matrix);
  if (!type || type.getRank() != 2)
    return nullptr;
  return RankedTensorType::get({type.getDimSize(1)}, type.getElementType());
}

int64_t easyquant::lm::columns(Value matrix) {
  return cast<RankedTensorType>(matrix.getType()).getDimSize(1);
}

int64_t easyquant::lm::rotatedDims(Value table) {
  return 2 * cast<RankedTensorType>(table.getType()).getDimSize(1);
}

LogicalResult easyquant::lm::verifyEpsilon(Operation *op, APFloat epsilon) {
  double value = epsilon.convertToDouble();
  if (!(value >= 0.0) || !std::isfinite(value))
    return op->emitOpError("epsilon must be finite and not negative, found ") << value;
  return success();
}

//===----------------------------------------------------------------------===//
// Embeddings
//===----------------------------------------------------------------------===//

void EmbeddingOp::build(OpBuilder &builder, OperationState &state, Value tokens, Value table) {
  build(builder, state, activationType(builder.getContext(), columns(table)), tokens, table);
}

LogicalResult EmbeddingOp::verify() {
  if (columns(getTable()) != columns(getOutput()))
    return emitOpError("result has ")
           << columns(getOutput()) << " columns, but the table has " << columns(getTable());
  return success();
}

LogicalResult PositionEmbeddingOp::verify() {
  if (columns(getTable()) != columns(getInput()))
    return emitOpError("input has ")
           << columns(getInput()) << " columns, but the table has " << columns(getTable());
  return success();
}

LogicalResult easyquant::lm::verifyRope(Operation *op, Value rows, Value rotation,
                                        int64_t headDim) {
  if (headDim % 2 != 0)
    return op->emitOpError("head_dim must be even, since dimensions turn in pairs; found ")
           << headDim;
  if (columns(rows) % headDim != 0)
    return op->emitOpError("input has ")
           << columns(rows) << " columns, which is no multiple of head_dim " << headDim;
  return verifyRotationTable(op, rotation, headDim);
}

LogicalResult easyquant::lm::verifyRotationTable(Operation *op, Value rotation, int64_t headDim) {
  auto table = cast<RankedTensorType>(rotation.getType());
  if (table.getDimSize(1) < 1 || table.getDimSize(1) > headDim / 2 || table.getDimSize(2) != 2)
    return op->emitOpError("table must be tensor<PxHx2xf32>, H from 1 to ")
           << headDim / 2 << " for head_dim " << headDim << ", found " << table;
  return success();
}

LogicalResult RopeOp::verify() {
  return verifyRope(*this, getInput(), getTable(), static_cast<int64_t>(getHeadDim()));
}

//===----------------------------------------------------------------------===//
// Norms and linear
//===----------------------------------------------------------------------===//

LogicalResult RmsNormOp::verify() { return verifyEpsilon(*this, getEpsilon()); }

LogicalResult easyquant::lm::verifyNormWeight(Operation *op, Value input, Value weight,
                                              APFloat epsilon) {
  if (columns(input) % extent(weight) != 0)
    return op->emitOpError("input has ") << columns(input) << " columns, which are no heads of "
                                         << extent(weight) << ", the elements of the weight";
  return verifyEpsilon(op, epsilon);
}

LogicalResult HeadRmsNormOp::verify() { return verifyHeadNorm(*this); }

int64_t HeadRmsNormOp::columnsOfHead() {
  return getWeight() ? extent(getWeight()) : static_cast<int64_t>(*getHeadDim());
}

LogicalResult LayerNormOp::verify() { return verifyEpsilon(*this, getEpsilon()); }

int64_t easyquant::lm::expertCount(Value offsets) { return offsets ? extent(offsets) - 1 : 1; }

Value easyquant::lm::rowOrder(Value offsets) {
  auto route = offsets ? offsets.getDefiningOp<RouteOp>() : RouteOp();
  return route ? route.getOrder() : Value();
}

bool easyquant::lm::isRowWise(Operation *op) {
  // A constant of that type is an order of columns.
  auto isOffsets = [](Value operand) {
    auto tensor = dyn_cast<RankedTensorType>(operand.getType());
    return tensor && tensor.getRank() == 1 && tensor.hasStaticShape() &&
           tensor.getElementType().isInteger(32) &&
           !operand.getDefiningOp<ml_program::GlobalLoadConstOp>();
  };
  return op->hasTrait<OpTrait::RowWise>() && llvm::none_of(op->getOperands(), isOffsets);
}

void LinearOp::build(OpBuilder &builder, OperationState &state, Value input, Value weight,
                     Value bias, StringRef site, Value experts) {
  build(builder, state, activationType(builder.getContext(), extent(weight) / expertCount(experts)),
        input, weight, bias, experts, builder.getStringAttr(site));
}

LogicalResult LinearOp::verify() {
  if (getSite().empty())
    return emitOpError("site must name the linear");
  int64_t all = extent(getWeight()), k = columns(getWeight()), experts = expertCount(getExperts());
  if (all % experts != 0)
    return emitOpError("weight of '")
           << getSite() << "' has " << all << " rows, which " << experts << " experts cannot share";
  const int64_t n = all / experts;
  if (columns(getInput()) != k)
    return emitOpError("input has ") << columns(getInput()) << " columns, but the weight of '"
                                     << getSite() << "' takes " << k;
  if (columns(getOutput()) != n)
    return emitOpError("result has ") << columns(getOutput()) << " columns, but the weight of '"
                                      << getSite() << "' gives " << n;
  if (getBias() && extent(getBias()) != all)
    return emitOpError("bias has ") << extent(getBias()) << " elements, but the weight of '"
                                    << getSite() << "' gives " << all;
  return success();
}

//===----------------------------------------------------------------------===//
// Mixtures of experts
//===----------------------------------------------------------------------===//

void RouteOp::build(OpBuilder &builder, OperationState &state, Value logits, int64_t topK,
                    bool renormalize, Value bias, Value factors, bool sigmoid, double scale) {
  Type i32 = builder.getI32Type();
  auto tensor = [&](ArrayRef<int64_t> shape, Type element) {
    return RankedTensorType::get(shape, element);
  };
  build(builder, state, tensor({ShapedType::kDynamic}, i32), tensor({columns(logits) + 1}, i32),
        tensor({ShapedType::kDynamic, topK}, i32), activationType(builder.getContext(), topK),
        logits, bias, factors, topK, renormalize, sigmoid, llvm::APFloat(scale));
}

LogicalResult RouteOp::verify() {
  const int64_t experts = columns(getLogits()), chosen = static_cast<int64_t>(getTopK());
  if (experts > kMaxExperts)
    return emitOpError("routes to at most ") << kMaxExperts << " experts, found " << experts;
  if (chosen > experts)
    return emitOpError("top_k is ") << chosen << ", but there are " << experts << " experts";
  if (expertCount(getOffsets()) != experts)
    return emitOpError("offsets of ") << experts << " experts are " << experts + 1
                                      << " numbers, found " << getOffsets().getType();
  if (columns(getPlaces()) != chosen || columns(getWeights()) != chosen)
    return emitOpError("places and weights have a column for each of ")
           << chosen << " choices, found " << getPlaces().getType() << " and "
           << getWeights().getType();
  if (getBias() && !getSigmoid())
    return emitOpError("a bias that only chooses goes with sigmoid scores; one that is added to "
                       "logits is that of the linear which makes them");
  for (auto [name, numbers] : {std::pair("bias", getBias()), {"factors", getFactors()}})
    if (numbers && extent(numbers) != experts)
      return emitOpError() << "'" << name << "' has one number for each of " << experts
                           << " experts, found " << extent(numbers);
  return verifyPositive(*this, "scale", getScale().convertToDouble());
}

LogicalResult CombineOp::verify() {
  if (columns(getPlaces()) != columns(getWeights()))
    return emitOpError("a choice has a place and a weight, found ")
           << getPlaces().getType() << " and " << getWeights().getType();
  OperandRange shared = getShared();
  if (shared.empty() || (shared.size() == 2 && shared[0].getType() == getOutput().getType() &&
                         columns(shared[1]) == 1))
    return success();
  InFlightDiagnostic error = emitOpError("shared are ")
                             << getOutput().getType()
                             << " and the gate before it, tensor<?x1xf32>, "
                             << "found ";
  llvm::interleaveComma(shared.getTypes(), error);
  return error;
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

/// `key` is null where none is appended.
LogicalResult easyquant::lm::verifyHeads(Operation *op, Value query, Value key, int64_t heads,
                                         int64_t kvHeads, int64_t headDim, double scale,
                                         double bound) {
  if (heads % kvHeads != 0)
    return op->emitOpError("num_heads ") << heads << " is no multiple of num_kv_heads " << kvHeads;
  // Divisions rather than products: a hostile head_dim must not overflow.
  auto isHeads = [&](int64_t width, int64_t count) {
    return width % headDim == 0 && width / headDim == count;
  };
  if (!isHeads(columns(query), heads))
    return op->emitOpError("query has ") << columns(query) << " columns, expected " << heads
                                         << " heads of " << headDim << " dimensions";
  if (key && !isHeads(columns(key), kvHeads))
    return op->emitOpError("key and value have ")
           << columns(key) << " columns, expected " << kvHeads << " heads of " << headDim
           << " dimensions";
  if (!std::isfinite(scale) || scale <= 0.0)
    return op->emitOpError("scale must be finite and positive, found ") << scale;
  return bound == 0.0 ? success() : verifyPositive(op, "bound", bound);
}

LogicalResult easyquant::lm::verifyAttention(Operation *op, Value query, Value key,
                                             KVCacheType cache, int64_t layer, int64_t heads,
                                             int64_t kvHeads, int64_t headDim, double scale,
                                             double bound, int64_t window, Value sinkLogits) {
  if (failed(verifyHeads(op, query, key, heads, kvHeads, headDim, scale, bound)))
    return failure();
  if (layer >= cache.getLayers())
    return op->emitOpError("layer ")
           << layer << " is not in a cache of " << cache.getLayers() << " layers";
  if (cache.kvHeadsOf(layer) != kvHeads || cache.headDimOf(layer) != headDim)
    return op->emitOpError("cache has ")
           << cache.kvHeadsOf(layer) << " heads of " << cache.headDimOf(layer)
           << " dimensions, expected " << kvHeads << " of " << headDim;
  if (int64_t kept = cache.windowOf(layer); kept > 0 && (window == 0 || window > kept))
    return op->emitOpError("reads ")
           << (window == 0 ? "all tokens" : "a window of " + std::to_string(window))
           << ", but the cache keeps the newest " << kept << " of layer " << layer;
  if (sinkLogits && extent(sinkLogits) != heads)
    return op->emitOpError("sink_logits have one number for each of ")
           << heads << " heads, found " << extent(sinkLogits);
  return success();
}

LogicalResult AttentionOp::verify() { return verifyAttention(*this); }

LogicalResult CachedAttentionOp::verify() {
  if (getWindow() == 1)
    return emitOpError(
        "has a window of one token, in which no row sees any: it does not see itself");
  return verifyAttention(*this, getQuery(), /*key=*/Value(), getCache().getType(),
                         static_cast<int64_t>(getLayer()), static_cast<int64_t>(getNumHeads()),
                         static_cast<int64_t>(getNumKvHeads()), static_cast<int64_t>(getHeadDim()),
                         getScale().convertToDouble(), /*bound=*/0.0,
                         static_cast<int64_t>(getWindow()), /*sinkLogits=*/Value());
}

LogicalResult Conv1dOp::verify() {
  const int64_t width = columns(getWeight()), count = columns(getInput());
  if (getOutput().getType() != getInput().getType())
    return emitOpError("result must be ")
           << getInput().getType() << ", found " << getOutput().getType();
  if (extent(getWeight()) != count || (getBias() && extent(getBias()) != count))
    return emitOpError("input has ") << count << " columns, expected weight and bias to have as "
                                     << "many rows";
  if (width < 2 || width > kMaxConvolution)
    return emitOpError("weight must have 2 to ") << kMaxConvolution << " columns, found " << width;
  const auto values = static_cast<int64_t>(getState().getType().getValues());
  const auto first = static_cast<int64_t>(getFirst());
  if (first > values || count > (values - first) / (width - 1))
    return emitOpError("has ") << width - 1 << " x " << count << " numbers of the state from "
                               << first << " on, which has only " << values;
  return success();
}

/// Heads of a gated delta net, or of its gradient.
template <typename OpT> static LogicalResult verifyDelta(OpT op) {
  const auto keyHeads = static_cast<int64_t>(op.getKeyHeads()),
             heads = static_cast<int64_t>(op.getValueHeads());
  const int64_t keys = columns(op.getKey()), count = columns(op.getValue());
  if (keys % keyHeads != 0 || count % heads != 0 || heads % keyHeads != 0)
    return op.emitOpError("has key and value of ")
           << keys << " and " << count << " columns; expected " << keyHeads << " and " << heads
           << " heads, these a multiple of those";
  if (columns(op.getDecay()) != heads || columns(op.getStrength()) != heads ||
      extent(op.getLogRate()) != heads || extent(op.getBias()) != heads)
    return op.emitOpError(
               "expected decay, strength, log_rate and bias to have one number for each of ")
           << heads << " value heads";
  return success();
}
LogicalResult GatedDeltaGradientOp::verify() { return verifyDelta(*this); }

LogicalResult GatedDeltaOp::verify() {
  const auto keyHeads = static_cast<int64_t>(getKeyHeads());
  const int64_t keys = columns(getKey()), count = columns(getValue());
  if (getQuery().getType() != getKey().getType() || getOutput().getType() != getValue().getType())
    return emitOpError("query must have the columns of key, and the result those of value");
  if (failed(verifyDelta(*this)))
    return failure();
  const auto values = static_cast<int64_t>(getState().getType().getValues());
  const auto first = static_cast<int64_t>(getFirst());
  if (first > values || count > (values - first) / (keys / keyHeads))
    return emitOpError("has ") << keys / keyHeads << " x " << count << " numbers of the state from "
                               << first << " on, which has only " << values;
  return success();
}

//===----------------------------------------------------------------------===//
// Activations
//===----------------------------------------------------------------------===//

LogicalResult easyquant::lm::verifyPositive(Operation *op, StringRef name, double value) {
  const auto rounded = static_cast<float>(value);
  if (!std::isnormal(rounded) || rounded <= 0.0f)
    return op->emitOpError() << name << " must be a positive number that f32 holds, found "
                             << value;
  return success();
}

LogicalResult MultiplyOp::verify() {
  return verifyPositive(*this, "factor", getFactor().convertToDouble());
}
LogicalResult SoftCapOp::verify() {
  return verifyPositive(*this, "bound", getBound().convertToDouble());
}
LogicalResult MaskClustersOp::verify() {
  const int64_t tokens = columns(getLogits()), clusters = columns(getScores());
  if (extent(getClusters()) != tokens)
    return emitOpError("clusters have ")
           << extent(getClusters()) << " numbers for " << tokens << " columns of logits";
  if (static_cast<int64_t>(getTopK()) > clusters)
    return emitOpError("chooses ") << getTopK() << " of " << clusters << " clusters";
  return success();
}

//===----------------------------------------------------------------------===//
// Parts
//===----------------------------------------------------------------------===//

void SplitOp::build(OpBuilder &builder, OperationState &state, Value input,
                    ArrayRef<int64_t> widths) {
  SmallVector<Type> types;
  for (int64_t width : widths)
    types.push_back(activationType(builder.getContext(), width));
  build(builder, state, types, input);
}

bool easyquant::lm::addUpTo(int64_t width, ValueRange parts) {
  for (Value part : parts)
    if (width -= columns(part); width < 0)
      return false;
  return width == 0;
}

LogicalResult SplitOp::verify() {
  if (getOutputs().empty())
    return emitOpError("must have a result");
  if (!addUpTo(columns(getInput()), getOutputs()))
    return emitOpError("widths of the results do not add up to the ")
           << columns(getInput()) << " columns of the input";
  return success();
}

LogicalResult ConcatOp::verify() {
  if (getInputs().empty())
    return emitOpError("must have an operand");
  if (!addUpTo(columns(getOutput()), getInputs()))
    return emitOpError("widths of the operands do not add up to the ")
           << columns(getOutput()) << " columns of the result";
  return success();
}

LogicalResult SplitOp::fold(FoldAdaptor, SmallVectorImpl<OpFoldResult> &results) {
  if (getNumResults() != 1)
    return failure();
  results.push_back(getInput());
  return success();
}

/// split(split(x)) is one split of x, provided that nobody else reads the part in between.
LogicalResult SplitOp::canonicalize(SplitOp op, PatternRewriter &rewriter) {
  auto outer = op.getInput().getDefiningOp<SplitOp>();
  if (!outer)
    return rewriter.notifyMatchFailure(op, "input is not a split");
  if (!op.getInput().hasOneUse())
    return rewriter.notifyMatchFailure(op, "the part has other readers");
  unsigned index = cast<OpResult>(op.getInput()).getResultNumber();
  SmallVector<int64_t> widths;
  for (auto [i, output] : llvm::enumerate(outer.getOutputs())) {
    if (i != index)
      widths.push_back(columns(output));
    else
      for (Value inner : op.getOutputs())
        widths.push_back(columns(inner));
  }
  rewriter.setInsertionPoint(outer);
  auto flat = SplitOp::create(rewriter, outer.getLoc(), outer.getInput(), widths);
  unsigned count = op.getNumResults();
  for (auto [i, output] : llvm::enumerate(outer.getOutputs()))
    if (i != index)
      rewriter.replaceAllUsesWith(output, flat.getResult(i < index ? i : i + count - 1));
  rewriter.replaceOp(op, flat.getOutputs().slice(index, count));
  rewriter.eraseOp(outer);
  return success();
}

//===----------------------------------------------------------------------===//
// Factors on columns of results
//===----------------------------------------------------------------------===//

ScaleFolding RmsNormOp::getScaleFolding() { return {.constants = {&getWeightMutable()}}; }

ScaleFolding LayerNormOp::getScaleFolding() {
  return {.constants = {&getWeightMutable(), &getBiasMutable()}};
}

ScaleFolding LinearOp::getScaleFolding() {
  if (getExperts())
    return {.obstacle = "whose experts have columns of their own"};
  ScaleFolding folding{.constants = {&getWeightMutable()}};
  for (OpOperand &bias : getBiasMutable())
    folding.constants.push_back(&bias);
  return folding;
}

/// A query head's columns are those of its value head, and a sum over tokens keeps their factors.
ScaleFolding AttentionOp::getScaleFolding() {
  if (getAppended())
    return {.obstacle = "which reads the values of another layer"};
  if (getNumHeads() != getNumKvHeads())
    return {.obstacle = "whose heads share values"};
  return {.activation = &getValueMutable()};
}

/// The gate goes through an activation function, `up` does not.
ScaleFolding GluOp::getScaleFolding() { return {.activation = &getUpMutable()}; }

ScaleFolding RowsOp::getScaleFolding() { return {.activation = &getInputMutable()}; }
