//===- DecoderMatch.cpp - A layer as one that can be trained --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DecoderMatch.h"

#include <map>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::calibration;
using namespace easyquant::numerics;

namespace {

/// Follows a layer from its attention in both directions.
class Matcher {
public:
  explicit Matcher(func::FuncOp layer) : layer(layer) {}
  FailureOr<DecoderMatch> run();

private:
  LogicalResult fail(Location loc, const Twine &message) {
    return emitError(loc) << "function '" << layer.getSymName()
                          << "' cannot be distilled: " << message
                          << "; layer-by-layer distillation knows layers of LLaMA and GPT-2";
  }
  LogicalResult matchProjection(DecoderLinear which, Value value);
  LogicalResult matchNorm(Value value, Value input, Operation *&norm);
  LogicalResult matchMlp(Value middle);

  func::FuncOp layer;
  DecoderMatch match;
};

/// The only user of a value that is an OpT; null if there is none or another.
template <typename OpT> OpT onlyUser(Value value) {
  return value.hasOneUse() ? dyn_cast<OpT>(*value.user_begin()) : OpT();
}

/// The other operand of the sum that is the only reader of `value`, if it is `residual`.
lm::AddOp residualSum(Value value, Value residual) {
  auto sum = onlyUser<lm::AddOp>(value);
  if (!sum || (sum.getLhs() == value ? sum.getRhs() : sum.getLhs()) != residual)
    return {};
  return sum;
}

int64_t rowsOf(lm::LinearOp op) {
  return cast<RankedTensorType>(op.getWeight().getType()).getDimSize(0);
}

} // namespace

/// Through rotation and splitting to the linear.
LogicalResult Matcher::matchProjection(DecoderLinear which, Value value) {
  MatchedLinear &linear = match.linears[which];
  linear.rows = lm::columns(value);
  if (auto rope = value.getDefiningOp<lm::RopeOp>(); rope && which != kValue) {
    match.rope = rope.getTable();
    value = rope.getInput();
  }
  if (auto split = value.getDefiningOp<lm::SplitOp>()) {
    for (Value part : split.getOutputs().take_front(cast<OpResult>(value).getResultNumber()))
      linear.first += lm::columns(part);
    value = split.getInput();
  }
  linear.op = value.getDefiningOp<lm::LinearOp>();
  if (!linear.op)
    return fail(value.getLoc(), "queries, keys and values must come from linears");
  return success();
}

LogicalResult Matcher::matchNorm(Value value, Value input, Operation *&norm) {
  norm = value.getDefiningOp();
  if (!isa_and_nonnull<lm::RmsNormOp, lm::LayerNormOp>(norm) || norm->getOperand(0) != input)
    return fail(value.getLoc(), "linears must read the norm of the residual stream");
  auto epsilon = norm->getAttrOfType<FloatAttr>("epsilon").getValueAsDouble();
  auto kind = isa<lm::LayerNormOp>(norm) ? DecoderNorm::Layer : DecoderNorm::Rms;
  if (match.norm1 != norm && (epsilon != match.shape.epsilon || kind != match.shape.norm))
    return fail(norm->getLoc(), "its two norms must be of one kind");
  match.shape.epsilon = epsilon;
  match.shape.norm = kind;
  return success();
}

LogicalResult Matcher::matchMlp(Value middle) {
  Operation *activation = nullptr;
  for (Operation &op : layer.front())
    if (isa<lm::SiluMulOp, lm::GeluOp>(op))
      activation = &op;
  if (!activation)
    return fail(layer.getLoc(), "its MLP must have lm.silu_mul or lm.gelu");
  auto setLinear = [&](DecoderLinear which, Value value) {
    match.linears[which].op = value.getDefiningOp<lm::LinearOp>();
    if (match.linears[which].op)
      match.linears[which].rows = rowsOf(match.linears[which].op);
    return match.linears[which].op != nullptr;
  };
  bool found = true;
  if (auto gated = dyn_cast<lm::SiluMulOp>(activation)) {
    match.shape.activation = DecoderActivation::SiluMul;
    found = setLinear(kGate, gated.getGate()) && setLinear(kUp, gated.getUp());
  } else {
    auto gelu = cast<lm::GeluOp>(activation);
    match.shape.activation = gelu.getApproximate() == lm::GeluApproximation::Tanh
                                 ? DecoderActivation::GeluTanh
                                 : DecoderActivation::GeluErf;
    found = setLinear(kUp, gelu.getInput());
  }
  auto down = onlyUser<lm::LinearOp>(activation->getResult(0));
  if (!found || !down)
    return fail(activation->getLoc(), "the activation must stand between linears");
  match.linears[kDown] = {down, 0, rowsOf(down)};
  match.shape.intermediate = lm::columns(activation->getResult(0));
  Value input = match.linears[kUp].op.getInput();
  if (match.linears[kGate].op && match.linears[kGate].op.getInput() != input)
    return fail(activation->getLoc(), "gate and up must read the same activation");
  if (failed(matchNorm(input, middle, match.norm2)))
    return failure();
  lm::AddOp sum = residualSum(down.getOutput(), middle);
  if (!sum || layer.front().getTerminator()->getOperand(0) != sum.getOutput())
    return fail(down.getLoc(), "it must end in the sum of the MLP and the residual stream");
  return success();
}

FailureOr<DecoderMatch> Matcher::run() {
  Value input = layer.getArgument(0);
  auto attentions = llvm::to_vector(layer.front().getOps<lm::AttentionOp>());
  if (attentions.size() != 1)
    return fail(layer.getLoc(), "it must have one lm.attention");
  lm::AttentionOp attention = attentions.front();
  if (attention.getWindow() != 0)
    return fail(attention.getLoc(), "its attention has a sliding window");
  match.shape.hidden = lm::columns(input);
  match.shape.heads = static_cast<int64_t>(attention.getNumHeads());
  match.shape.kvHeads = static_cast<int64_t>(attention.getNumKvHeads());
  match.shape.headDim = static_cast<int64_t>(attention.getHeadDim());
  match.shape.attentionScale = attention.getScale().convertToDouble();
  if (failed(matchProjection(kQuery, attention.getQuery())) ||
      failed(matchProjection(kKey, attention.getKey())) ||
      failed(matchProjection(kValue, attention.getValue())))
    return failure();
  Value normed = match.linears[kQuery].op.getInput();
  match.norm1 = normed.getDefiningOp();
  if (match.linears[kKey].op.getInput() != normed || match.linears[kValue].op.getInput() != normed)
    return fail(attention.getLoc(), "queries, keys and values must be made of one activation");
  if (failed(matchNorm(normed, input, match.norm1)))
    return failure();
  auto output = onlyUser<lm::LinearOp>(attention.getOutput());
  lm::AddOp middle = output ? residualSum(output.getOutput(), input) : lm::AddOp();
  if (!middle)
    return fail(attention.getLoc(), "attention must be followed by a linear and the residual sum");
  match.linears[kOutput] = {output, 0, rowsOf(output)};
  if (failed(matchMlp(middle.getOutput())))
    return failure();
  return std::move(match);
}

FailureOr<DecoderMatch> easyquant::calibration::matchDecoder(func::FuncOp layer) {
  return Matcher(layer).run();
}

FailureOr<DecoderValues> DecoderValues::read(const DecoderMatch &match,
                                             const ModelConstants &constants, int64_t positions) {
  DecoderValues values;
  auto load = [&](Value value, StringRef name, int64_t rows) -> const float * {
    auto type = cast<RankedTensorType>(value.getType());
    auto data =
        std::make_unique<std::vector<float>>(type.getNumElements() / type.getDimSize(0) * rows);
    if (failed(constants.read(value, name, *data)))
      return nullptr;
    values.memory.push_back(std::move(data));
    return values.memory.back()->data();
  };
  std::map<Operation *, std::pair<const float *, const float *>> loaded;
  for (auto [matched, weight, bias] :
       llvm::zip_equal(match.linears, values.weights.weights, values.weights.biases)) {
    lm::LinearOp op = matched.op;
    if (!op)
      continue;
    auto [entry, isNew] = loaded.try_emplace(op);
    auto &[data, biasData] = entry->second;
    if (isNew) {
      data = load(op.getWeight(), op.getSite(), rowsOf(op));
      if (!data)
        return failure();
      if (op.getBias() && !(biasData = load(op.getBias(), op.getSite(), rowsOf(op))))
        return failure();
    }
    int64_t columns = lm::columns(op.getInput());
    weight = {data + matched.first * columns, matched.rows, columns};
    bias = biasData ? biasData + matched.first : nullptr;
  }
  auto loadNorm = [&](Operation *norm, const float *&weight, const float *&bias) {
    weight = load(norm->getOperand(1), "a norm", match.shape.hidden);
    if (weight && isa<lm::LayerNormOp>(norm))
      bias = load(norm->getOperand(2), "a norm", match.shape.hidden);
    return success(weight && (bias || !isa<lm::LayerNormOp>(norm)));
  };
  if (failed(loadNorm(match.norm1, values.weights.norm1, values.weights.norm1Bias)) ||
      failed(loadNorm(match.norm2, values.weights.norm2, values.weights.norm2Bias)))
    return failure();
  if (match.rope) {
    const float *table = load(match.rope, "the rotation table", positions);
    if (!table)
      return failure();
    values.weights.rope = {table, positions, match.shape.headDim};
  }
  return values;
}
