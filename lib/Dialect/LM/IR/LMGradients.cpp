//===- LMGradients.cpp - Gradients of operations --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What each op says of its gradients (DifferentiableOpInterface), and the verifiers of the ops that
// this takes.
//
//===----------------------------------------------------------------------===//

#include "OpChecks.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace easyquant::lm;

using llvm::BitVector;
using Gradients = SmallVector<Value>;

/// The operand has no gradient: a batch, tokens, a rotation table.
static LogicalResult refuse(Operation *op, const BitVector &wanted,
                            ArrayRef<unsigned> differentiable) {
  for (unsigned operand : wanted.set_bits())
    if (!llvm::is_contained(differentiable, operand))
      return op->emitOpError("has no gradient of operand #")
             << operand << ", " << op->getOperand(operand).getType();
  return success();
}

//===----------------------------------------------------------------------===//
// Embeddings
//===----------------------------------------------------------------------===//

FailureOr<Gradients> EmbeddingOp::buildGradients(OpBuilder &b, ArrayRef<Value> results,
                                                 const BitVector &wanted) {
  if (failed(refuse(*this, wanted, {1})))
    return failure();
  if (!getTable().getType().getElementType().isF32())
    return emitOpError("has a table of ") << getTable().getType().getElementType()
                                          << ", which has no gradient: build gradients before "
                                             "equant-materialize-weights";
  return Gradients{nullptr, EmbeddingGradientOp::create(b, getLoc(), getTable().getType(),
                                                        results[0], getTokens())};
}

FailureOr<Gradients> PositionEmbeddingOp::buildGradients(OpBuilder &b, ArrayRef<Value> results,
                                                         const BitVector &wanted) {
  if (failed(refuse(*this, wanted, {0, 1})))
    return failure();
  Gradients gradients(3);
  gradients[0] = results[0];
  if (wanted[1])
    gradients[1] = PositionEmbeddingGradientOp::create(b, getLoc(), getTable().getType(),
                                                       results[0], getBatch());
  return gradients;
}

FailureOr<Gradients> RopeOp::buildGradients(OpBuilder &b, ArrayRef<Value> results,
                                            const BitVector &wanted) {
  if (failed(refuse(*this, wanted, {0})))
    return failure();
  return Gradients{RopeGradientOp::create(b, getLoc(), getInput().getType(), results[0], getTable(),
                                          getBatch(), getHeadDimAttr()),
                   nullptr, nullptr};
}

template <typename OpT> static LogicalResult verifyTableGradient(OpT op) {
  const int64_t table = columns(op.getOutput()), gradient = columns(op.getGradient());
  if (gradient != table)
    return op.emitOpError("table has ") << table << " columns, but the gradient has " << gradient;
  return success();
}
LogicalResult EmbeddingGradientOp::verify() { return verifyTableGradient(*this); }
LogicalResult PositionEmbeddingGradientOp::verify() { return verifyTableGradient(*this); }

LogicalResult RopeGradientOp::verify() {
  return verifyRope(*this, getGradient(), getTable(), static_cast<int64_t>(getHeadDim()));
}

//===----------------------------------------------------------------------===//
// Norms and linear
//===----------------------------------------------------------------------===//

/// x and the weight of an RMS norm, of rows or of heads.
template <typename OpT>
static FailureOr<Gradients> rmsNormGradients(OpT op, OpBuilder &b, Value result,
                                             const BitVector &wanted, IntegerAttr headDim = {}) {
  Gradients gradients(op->getNumOperands());
  if (wanted[0])
    gradients[0] =
        RmsNormGradientOp::create(b, op.getLoc(), op.getInput().getType(), result, op.getInput(),
                                  op.getWeight(), op.getEpsilonAttr(), headDim);
  if (op.getWeight() && wanted[1])
    gradients[1] = RmsNormWeightGradientOp::create(b, op.getLoc(), op.getWeight().getType(), result,
                                                   op.getInput(), op.getEpsilonAttr());
  return gradients;
}

FailureOr<Gradients> RmsNormOp::buildGradients(OpBuilder &b, ArrayRef<Value> results,
                                               const BitVector &wanted) {
  return rmsNormGradients(*this, b, results[0], wanted);
}

FailureOr<Gradients> HeadRmsNormOp::buildGradients(OpBuilder &b, ArrayRef<Value> results,
                                                   const BitVector &wanted) {
  return rmsNormGradients(*this, b, results[0], wanted, getHeadDimAttr());
}

FailureOr<Gradients> LayerNormOp::buildGradients(OpBuilder &b, ArrayRef<Value> results,
                                                 const BitVector &wanted) {
  Gradients gradients(3);
  if (wanted[0])
    gradients[0] = LayerNormGradientOp::create(b, getLoc(), getInput().getType(), results[0],
                                               getInput(), getWeight(), getEpsilonAttr());
  if (wanted[1])
    gradients[1] = LayerNormWeightGradientOp::create(b, getLoc(), getWeight().getType(), results[0],
                                                     getInput(), getEpsilonAttr());
  if (wanted[2])
    gradients[2] = BiasGradientOp::create(b, getLoc(), getBias().getType(), results[0]);
  return gradients;
}

FailureOr<Gradients> LinearOp::buildGradients(OpBuilder &b, ArrayRef<Value> results,
                                              const BitVector &wanted) {
  Gradients gradients(getNumOperands());
  if (wanted[0])
    gradients[0] = LinearInputGradientOp::create(b, getLoc(), getInput().getType(), results[0],
                                                 getWeight(), getExperts());
  if (wanted[1])
    gradients[1] = LinearWeightGradientOp::create(b, getLoc(), getWeight().getType(), results[0],
                                                  getInput(), getExperts());
  if (getBias() && wanted[2] && getExperts())
    return emitOpError("of site '") << getSite() << "' has experts, whose biases have no gradients";
  if (getBias() && wanted[2])
    gradients[2] = BiasGradientOp::create(b, getLoc(), getBias().getType(), results[0]);
  return gradients;
}

LogicalResult RmsNormGradientOp::verify() { return verifyHeadNorm(*this); }

int64_t RmsNormGradientOp::columnsOfHead() {
  return getWeight() ? extent(getWeight()) : static_cast<int64_t>(*getHeadDim());
}
LogicalResult RmsNormWeightGradientOp::verify() {
  return verifyNormWeight(*this, getInput(), getOutput(), getEpsilon());
}
LogicalResult LayerNormGradientOp::verify() { return verifyEpsilon(*this, getEpsilon()); }
LogicalResult LayerNormWeightGradientOp::verify() { return verifyEpsilon(*this, getEpsilon()); }

/// A gradient of N columns and an input of K go with a weight of N x K, of each expert.
static LogicalResult verifyLinear(Operation *op, Value gradient, Value input, Value weight,
                                  Value experts) {
  const int64_t rows = expertCount(experts) * columns(gradient);
  if (extent(weight) == rows && columns(weight) == columns(input))
    return success();
  InFlightDiagnostic error = op->emitOpError("weight is ")
                             << extent(weight) << " x " << columns(weight) << ", but a linear of ";
  if (experts)
    error << expertCount(experts) << " experts, ";
  return error << columns(input) << " columns in and " << columns(gradient) << " out has one of "
               << rows << " x " << columns(input);
}

LogicalResult LinearInputGradientOp::verify() {
  return verifyLinear(*this, getGradient(), getOutput(), getWeight(), getExperts());
}
LogicalResult LinearWeightGradientOp::verify() {
  return verifyLinear(*this, getGradient(), getInput(), getOutput(), getExperts());
}

//===----------------------------------------------------------------------===//
// Mixtures of experts
//===----------------------------------------------------------------------===//

FailureOr<Gradients> RouteOp::buildGradients(OpBuilder &b, ArrayRef<Value> results,
                                             const BitVector &wanted) {
  if (failed(refuse(*this, wanted, {0})))
    return failure();
  Gradients gradients(getNumOperands());
  gradients[0] = RouteGradientOp::create(b, getLoc(), getLogits().getType(), results[3],
                                         getLogits(), getOffsets(), getPlaces(), getFactors(),
                                         getRenormalizeAttr(), getSigmoidAttr(), getScaleAttr());
  return gradients;
}

FailureOr<Gradients> CombineOp::buildGradients(OpBuilder &b, ArrayRef<Value> results,
                                               const BitVector &wanted) {
  Gradients gradients(getNumOperands());
  if (wanted[0]) {
    auto route = getPlaces().getDefiningOp<RouteOp>();
    if (!route)
      return emitOpError("has no gradient: no lm.route gives the places of its choices");
    Value rows = RowsOp::create(b, getLoc(), results[0], route.getOrder());
    gradients[0] = WeighChoicesOp::create(b, getLoc(), rows, getPlaces(), getWeights());
  }
  if (wanted[2])
    gradients[2] = ChoiceWeightsGradientOp::create(b, getLoc(), getWeights().getType(), results[0],
                                                   getInput(), getPlaces());
  if (getShared().empty() || (!wanted[3] && !wanted[4]))
    return gradients;
  auto shared =
      SharedExpertGradientOp::create(b, getLoc(), results[0], getShared()[0], getShared()[1]);
  gradients[3] = shared.getSharedGradient();
  gradients[4] = shared.getGateGradient();
  return gradients;
}

LogicalResult RouteGradientOp::verify() {
  const int64_t experts = columns(getLogits());
  if (columns(getGradient()) != columns(getPlaces()))
    return emitOpError("a choice has a place and a weight, found ")
           << getPlaces().getType() << " and gradients " << getGradient().getType();
  if (expertCount(getOffsets()) != experts)
    return emitOpError("offsets of ") << experts << " experts are " << experts + 1
                                      << " numbers, found " << getOffsets().getType();
  if (getFactors() && extent(getFactors()) != experts)
    return emitOpError("'factors' has one number for each of ")
           << experts << " experts, found " << extent(getFactors());
  return verifyPositive(*this, "scale", getScale().convertToDouble());
}

/// A number for each choice.
static LogicalResult verifyChoices(Operation *op, Value places, Value numbers) {
  if (columns(places) == columns(numbers))
    return success();
  return op->emitOpError("a choice has a place and a weight, found ")
         << places.getType() << " and " << numbers.getType();
}

LogicalResult WeighChoicesOp::verify() { return verifyChoices(*this, getPlaces(), getWeights()); }
LogicalResult ChoiceWeightsGradientOp::verify() {
  return verifyChoices(*this, getPlaces(), getOutput());
}
LogicalResult SharedExpertGradientOp::verify() {
  if (columns(getGate()) == 1)
    return success();
  return emitOpError("the gate is one number a row, found ") << getGate().getType();
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

FailureOr<Gradients> AttentionOp::buildGradients(OpBuilder &b, ArrayRef<Value> results,
                                                 const BitVector &wanted) {
  if (getSinkLogits())
    return emitOpError("of layer ") << getLayer() << " has sink logits, of which there are no "
                                    << "gradients yet";
  if (failed(refuse(*this, wanted, {0, 1, 2})))
    return failure();
  auto op = AttentionGradientOp::create(
      b, getLoc(), getQuery().getType(), getKey().getType(), getKey().getType(), results[0],
      getQuery(), getKey(), getValue(), getNumHeadsAttr(), getNumKvHeadsAttr(), getHeadDimAttr(),
      getScaleAttr(), getWindowAttr(), getBoundAttr());
  return Gradients{op.getQueryGradient(), op.getKeyGradient(), op.getValueGradient(), nullptr,
                   nullptr};
}

LogicalResult AttentionGradientOp::verify() {
  return verifyHeads(*this, getQuery(), getKey(), static_cast<int64_t>(getNumHeads()),
                     static_cast<int64_t>(getNumKvHeads()), static_cast<int64_t>(getHeadDim()),
                     getScale().convertToDouble(), getBound().convertToDouble());
}

//===----------------------------------------------------------------------===//
// Activations, residuals and views
//===----------------------------------------------------------------------===//

FailureOr<Gradients> GluOp::buildGradients(OpBuilder &b, ArrayRef<Value> results,
                                           const BitVector &) {
  if (getActivation() == GluActivation::Clamped)
    return emitOpError("has a clamped gate, of which there are no gradients yet");
  Type type = getGate().getType();
  auto op = GluGradientOp::create(b, getLoc(), type, type, getActivationAttr(), results[0],
                                  getGate(), getUp());
  return Gradients{op.getGateGradient(), op.getUpGradient()};
}

FailureOr<Gradients> GeluOp::buildGradients(OpBuilder &b, ArrayRef<Value> results,
                                            const BitVector &) {
  return Gradients{GeluGradientOp::create(b, getLoc(), getInput().getType(), results[0], getInput(),
                                          getApproximateAttr())};
}

FailureOr<Gradients> MultiplyOp::buildGradients(OpBuilder &b, ArrayRef<Value> results,
                                                const BitVector &) {
  return Gradients{MultiplyOp::create(b, getLoc(), results[0], getFactorAttr())};
}

FailureOr<Gradients> SoftCapOp::buildGradients(OpBuilder &b, ArrayRef<Value> results,
                                               const BitVector &) {
  return Gradients{SoftCapGradientOp::create(b, getLoc(), getInput().getType(), results[0],
                                             getInput(), getBoundAttr())};
}

LogicalResult SoftCapGradientOp::verify() {
  return verifyPositive(*this, "bound", getBound().convertToDouble());
}

FailureOr<Gradients> AddOp::buildGradients(OpBuilder &, ArrayRef<Value> results,
                                           const BitVector &) {
  return Gradients{results[0], results[0]};
}

FailureOr<Gradients> SplitOp::buildGradients(OpBuilder &b, ArrayRef<Value> results,
                                             const BitVector &) {
  for (auto [index, gradient] : llvm::enumerate(results))
    if (!gradient)
      return emitOpError("has no gradient, since nothing depends on its result #") << index;
  return Gradients{ConcatOp::create(b, getLoc(), getInput().getType(), results)};
}

FailureOr<Gradients> Conv1dOp::buildGradients(OpBuilder &b, ArrayRef<Value> results,
                                              const BitVector &wanted) {
  if (failed(refuse(*this, wanted, {0})))
    return failure();
  Gradients gradients(getNumOperands());
  gradients[0] =
      Conv1dGradientOp::create(b, getLoc(), results[0].getType(), results[0], getWeight(),
                               getSilu() ? getInput() : Value(), getSilu() ? getBias() : Value());
  return gradients;
}

FailureOr<Gradients> GatedDeltaOp::buildGradients(OpBuilder &b, ArrayRef<Value> results,
                                                  const BitVector &wanted) {
  if (failed(refuse(*this, wanted, {0, 1, 2, 3, 4})))
    return failure();
  Type keys = getKey().getType(), values = getValue().getType(), heads = getDecay().getType();
  auto op =
      GatedDeltaGradientOp::create(b, getLoc(), TypeRange{keys, keys, values, heads, heads},
                                   ValueRange{results[0], getQuery(), getKey(), getValue(),
                                              getDecay(), getStrength(), getLogRate(), getBias()});
  op.setKeyHeads(getKeyHeads());
  op.setValueHeads(getValueHeads());
  op.setTiled(getTiled());
  Gradients gradients(op.getResults().begin(), op.getResults().end());
  gradients.resize(getNumOperands());
  return gradients;
}

LogicalResult Conv1dGradientOp::verify() {
  if (getBias() && !getSiluOf())
    return emitOpError("bias goes with silu_of, without which the gradient is the same");
  if (getSiluOf() && getSiluOf().getType() != getGradient().getType())
    return emitOpError("silu_of must be ")
           << getGradient().getType() << ", found " << getSiluOf().getType();
  if (extent(getWeight()) == columns(getGradient()) &&
      (!getBias() || extent(getBias()) == columns(getGradient())))
    return success();
  return emitOpError("gradient has ")
         << columns(getGradient()) << " columns, expected weight and bias to have as many rows";
}

FailureOr<Gradients> RowsOp::buildGradients(OpBuilder &b, ArrayRef<Value> results,
                                            const BitVector &wanted) {
  if (failed(refuse(*this, wanted, {0})))
    return failure();
  return Gradients{
      RowsGradientOp::create(b, getLoc(), getInput().getType(), results[0], getInput(), getRows()),
      nullptr};
}
