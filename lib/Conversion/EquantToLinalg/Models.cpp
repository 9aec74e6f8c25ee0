//===- Models.cpp - What a model is made of besides attention -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Row m of the activations is the token at position m of one sequence.
//
//===----------------------------------------------------------------------===//

#include "Patterns.h"

#include "easyquant/Dialect/LM/IR/LM.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <cmath>
#include <numbers>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::lm;

//===----------------------------------------------------------------------===//
// Linears
//===----------------------------------------------------------------------===//

Value easyquant::addBias(TensorBuilder &b, Value y, Value bias) {
  if (!bias)
    return y;
  return b.map(b.sizesOf(y), TensorBuilder::elementOf(y), {{y, {0, 1}}, {bias, {1}}},
               [](TensorBuilder &in, ValueRange v) -> Value {
                 return arith::AddFOp::create(in, v[0], v[1]);
               });
}

Value easyquant::floatLinear(TensorBuilder &b, Value x, Value weight) {
  return b.contract(3, {x, {0, 2}}, {weight, {1, 2}}, {0, 1}, {b.sizeOf(x, 0), b.sizeOf(weight, 0)},
                    b.getF32Type());
}

static SmallVector<Value> lowerLinear(TensorBuilder &b, lm::LinearOp,
                                      FunctionPattern<lm::LinearOp>::Adaptor adaptor) {
  Value y = floatLinear(b, one(adaptor.getInput()), one(adaptor.getWeight()));
  return {addBias(b, y, oneOrNone(adaptor.getBias()))};
}

//===----------------------------------------------------------------------===//
// Embeddings and rows
//===----------------------------------------------------------------------===//

static SmallVector<Value> lowerEmbedding(TensorBuilder &b, lm::EmbeddingOp,
                                         FunctionPattern<lm::EmbeddingOp>::Adaptor adaptor) {
  return {b.gather(one(adaptor.getTable()), one(adaptor.getTokens()))};
}

static SmallVector<Value> lowerRows(TensorBuilder &b, RowsOp,
                                    FunctionPattern<RowsOp>::Adaptor adaptor) {
  return {b.gather(one(adaptor.getInput()), one(adaptor.getRows()))};
}

static SmallVector<Value>
lowerPositionEmbedding(TensorBuilder &b, PositionEmbeddingOp,
                       FunctionPattern<PositionEmbeddingOp>::Adaptor adaptor) {
  Value x = one(adaptor.getInput());
  Value positions = b.slice(one(adaptor.getTable()), 0, 0, b.sizeOf(x, 0));
  return {b.map(b.sizesOf(x), b.getF32Type(), {{x, {0, 1}}, {positions, {0, 1}}},
                [](TensorBuilder &in, ValueRange v) -> Value {
                  return arith::AddFOp::create(in, v[0], v[1]);
                })};
}

static SmallVector<Value> lowerRope(TensorBuilder &b, RopeOp op,
                                    FunctionPattern<RopeOp>::Adaptor adaptor) {
  Value x = one(adaptor.getInput());
  const auto headDim = static_cast<int64_t>(op.getHeadDim());
  const int64_t heads = TensorBuilder::typeOf(x).getDimSize(1) / headDim;
  const int64_t rotated = rotatedDims(op.getTable());
  Value all, halves; // all: where a part of each head turns
  if (rotated == headDim) {
    halves = b.split(x, 1, {heads, 2, headDim / 2});
  } else {
    all = b.split(x, 1, {heads, headDim});
    halves = b.split(b.slice(all, 2, 0, b.size(rotated)), 2, {2, rotated / 2});
  }
  Value turns = b.slice(one(adaptor.getTable()), 0, 0, b.sizeOf(x, 0));
  const Indexed low = {b.pick(halves, 2, 0), {0, 1, 3}}, high = {b.pick(halves, 2, 1), {0, 1, 3}};
  const Indexed cosine = {b.pick(turns, 2, 0), {0, 3}}, sine = {b.pick(turns, 2, 1), {0, 3}};
  Value turned = b.map(
      b.sizesOf(halves), b.getF32Type(), {low, high, cosine, sine},
      [](TensorBuilder &in, ValueRange v) -> Value {
        auto product = [&](int x, int y) -> Value { return arith::MulFOp::create(in, v[x], v[y]); };
        Value first = arith::SubFOp::create(in, product(0, 2), product(1, 3));
        Value second = arith::AddFOp::create(in, product(1, 2), product(0, 3));
        Value zero = arith::ConstantIndexOp::create(in, 0);
        Value isLow = arith::CmpIOp::create(in, arith::CmpIPredicate::eq, in.index(2), zero);
        return arith::SelectOp::create(in, isLow, first, second);
      });
  if (!all)
    return {b.merge(turned, 1, 3)};
  turned = b.merge(turned, 2, 2);
  const Sizes sizes = b.sizesOf(turned);
  Value put = tensor::InsertSliceOp::create(b, turned, all, Sizes(3, b.size(0)), sizes,
                                            Sizes(3, b.size(1)));
  return {b.merge(put, 1, 2)};
}

//===----------------------------------------------------------------------===//
// Norms
//===----------------------------------------------------------------------===//

/// The sum of body over the last dimension.
static Value sumOfRow(TensorBuilder &b, ArrayRef<Indexed> inputs, TensorBuilder::Body body) {
  Sizes sizes = b.sizesOf(inputs.front().tensor);
  const auto loops = std::ssize(sizes);
  Dims kept(inputs.front().dims.begin(), inputs.front().dims.end() - 1);
  sizes.pop_back();
  return b.reduce(loops, kept, sizes, b.f32(0), inputs,
                  [&](TensorBuilder &in, ValueRange v) -> Value {
                    return arith::AddFOp::create(in, v.back(), body(in, v.drop_back()));
                  });
}

/// 1 / sqrt(sum / count + epsilon), as a divisor.
static Value rootMean(TensorBuilder &b, Value sum, int64_t count, double epsilon) {
  Value mean = arith::DivFOp::create(b, sum, b.f32(static_cast<double>(count)));
  return math::SqrtOp::create(b, arith::AddFOp::create(b, mean, b.f32(epsilon)));
}

static Value square(TensorBuilder &b, Value x) { return arith::MulFOp::create(b, x, x); }

/// The norm of every part of the last dimension; x has two or three. The weight may be null.
static Value rmsNorm(TensorBuilder &b, Value x, Value weight, double epsilon) {
  const int64_t rank = TensorBuilder::typeOf(x).getRank();
  const int64_t count = TensorBuilder::typeOf(x).getDimSize(rank - 1);
  Dims all = rank == 2 ? Dims{0, 1} : Dims{0, 1, 2}, kept(all.begin(), all.end() - 1);
  Value sum =
      sumOfRow(b, {{x, all}}, [](TensorBuilder &in, ValueRange v) { return square(in, v[0]); });
  SmallVector<Indexed> inputs = {{x, all}, {sum, kept}};
  if (weight)
    inputs.push_back({weight, {rank - 1}});
  return b.map(b.sizesOf(x), b.getF32Type(), inputs, [&](TensorBuilder &in, ValueRange v) -> Value {
    Value y = arith::DivFOp::create(in, v[0], rootMean(in, v[1], count, epsilon));
    return weight ? arith::MulFOp::create(in, y, v[2]).getResult() : y;
  });
}

static SmallVector<Value> lowerRmsNorm(TensorBuilder &b, RmsNormOp op,
                                       FunctionPattern<RmsNormOp>::Adaptor adaptor) {
  return {rmsNorm(b, one(adaptor.getInput()), one(adaptor.getWeight()),
                  op.getEpsilon().convertToDouble())};
}

static SmallVector<Value> lowerHeadRmsNorm(TensorBuilder &b, HeadRmsNormOp op,
                                           FunctionPattern<HeadRmsNormOp>::Adaptor adaptor) {
  Value x = one(adaptor.getInput()), weight = oneOrNone(adaptor.getWeight());
  const int64_t headDim = op.columnsOfHead();
  Value heads = b.split(x, 1, {TensorBuilder::typeOf(x).getDimSize(1) / headDim, headDim});
  return {b.merge(rmsNorm(b, heads, weight, op.getEpsilon().convertToDouble()), 1, 2)};
}

static SmallVector<Value> lowerLayerNorm(TensorBuilder &b, LayerNormOp op,
                                         FunctionPattern<LayerNormOp>::Adaptor adaptor) {
  Value x = one(adaptor.getInput());
  const int64_t count = TensorBuilder::typeOf(x).getDimSize(1);
  const double epsilon = op.getEpsilon().convertToDouble();
  auto centre = [&](TensorBuilder &in, Value element, Value sum) -> Value {
    Value mean = arith::DivFOp::create(in, sum, in.f32(static_cast<double>(count)));
    return arith::SubFOp::create(in, element, mean);
  };
  Value sum = sumOfRow(b, {{x, {0, 1}}}, [](TensorBuilder &, ValueRange v) { return v[0]; });
  Value squares = sumOfRow(b, {{x, {0, 1}}, {sum, {0}}}, [&](TensorBuilder &in, ValueRange v) {
    return square(in, centre(in, v[0], v[1]));
  });
  return {b.map(b.sizesOf(x), b.getF32Type(),
                {{x, {0, 1}},
                 {sum, {0}},
                 {squares, {0}},
                 {one(adaptor.getWeight()), {1}},
                 {one(adaptor.getBias()), {1}}},
                [&](TensorBuilder &in, ValueRange v) -> Value {
                  Value y = centre(in, v[0], v[1]);
                  y = arith::DivFOp::create(in, y, rootMean(in, v[2], count, epsilon));
                  y = arith::MulFOp::create(in, y, v[3]);
                  return arith::AddFOp::create(in, y, v[4]);
                })};
}

//===----------------------------------------------------------------------===//
// Element by element
//===----------------------------------------------------------------------===//

/// of / (1 + exp(-x)).
static Value gated(TensorBuilder &in, Value of, Value x) {
  Value power = math::ExpOp::create(in, arith::NegFOp::create(in, x));
  return arith::DivFOp::create(in, of, arith::AddFOp::create(in, in.f32(1), power));
}

static Value gelu(TensorBuilder &in, Value x, GeluApproximation approximation) {
  Value inner;
  auto times = [&](Value a, Value c) -> Value { return arith::MulFOp::create(in, a, c); };
  if (approximation == GeluApproximation::Tanh) {
    Value cube = times(times(x, x), times(x, in.f32(0.044715)));
    inner = arith::AddFOp::create(in, x, cube);
    inner = times(inner, in.f32(std::sqrt(2 / std::numbers::pi)));
    inner = math::TanhOp::create(in, inner);
  } else {
    inner = math::ErfOp::create(in, times(x, in.f32(1 / std::numbers::sqrt2)));
  }
  inner = arith::AddFOp::create(in, inner, in.f32(1));
  return times(times(x, in.f32(0.5)), inner);
}

static Value activate(TensorBuilder &in, Value x, GluActivation activation) {
  switch (activation) {
  case GluActivation::Silu:
    return gated(in, x, x);
  case GluActivation::GeluTanh:
    return gelu(in, x, GeluApproximation::Tanh);
  case GluActivation::None:
    return x;
  case GluActivation::Sigmoid:
    return gated(in, in.f32(1), x);
  case GluActivation::Clamped:
    break;
  }
  llvm_unreachable("clamped gates are refused before");
}

static SmallVector<Value> lowerGlu(TensorBuilder &b, GluOp op,
                                   FunctionPattern<GluOp>::Adaptor adaptor) {
  Value gate = one(adaptor.getGate());
  return {b.map(b.sizesOf(gate), b.getF32Type(), {{gate, {0, 1}}, {one(adaptor.getUp()), {0, 1}}},
                [&](TensorBuilder &in, ValueRange v) -> Value {
                  return arith::MulFOp::create(in, activate(in, v[0], op.getActivation()), v[1]);
                })};
}

static SmallVector<Value> lowerGelu(TensorBuilder &b, GeluOp op,
                                    FunctionPattern<GeluOp>::Adaptor adaptor) {
  return {
      b.map(one(adaptor.getInput()), b.getF32Type(), [&](TensorBuilder &in, ValueRange v) -> Value {
        return gelu(in, v[0], op.getApproximate());
      })};
}

static SmallVector<Value> lowerMultiply(TensorBuilder &b, MultiplyOp op,
                                        FunctionPattern<MultiplyOp>::Adaptor adaptor) {
  const double factor = op.getFactor().convertToDouble();
  return {
      b.map(one(adaptor.getInput()), b.getF32Type(), [&](TensorBuilder &in, ValueRange v) -> Value {
        return arith::MulFOp::create(in, v[0], in.f32(factor));
      })};
}

static SmallVector<Value> lowerSoftCap(TensorBuilder &b, SoftCapOp op,
                                       FunctionPattern<SoftCapOp>::Adaptor adaptor) {
  const double bound = op.getBound().convertToDouble();
  return {b.map(one(adaptor.getInput()), b.getF32Type(),
                [&](TensorBuilder &in, ValueRange v) -> Value { return in.softCap(v[0], bound); })};
}

static SmallVector<Value> lowerAdd(TensorBuilder &b, AddOp,
                                   FunctionPattern<AddOp>::Adaptor adaptor) {
  Value lhs = one(adaptor.getLhs());
  return {b.map(b.sizesOf(lhs), b.getF32Type(), {{lhs, {0, 1}}, {one(adaptor.getRhs()), {0, 1}}},
                [](TensorBuilder &in, ValueRange v) -> Value {
                  return arith::AddFOp::create(in, v[0], v[1]);
                })};
}

namespace {
struct ConvertSplit : OpConversionPattern<SplitOp> {
  using OpConversionPattern::OpConversionPattern;

  LogicalResult matchAndRewrite(SplitOp op, OneToNOpAdaptor adaptor,
                                ConversionPatternRewriter &rewriter) const override {
    TensorBuilder b(op.getLoc(), rewriter);
    SmallVector<Value> parts;
    int64_t column = 0;
    for (Value output : op.getOutputs()) {
      const int64_t width = columns(output);
      parts.push_back(b.slice(one(adaptor.getInput()), 1, column, b.size(width)));
      column += width;
    }
    rewriter.replaceOp(op, parts);
    return success();
  }
};
} // namespace

void linalgform::addModelPatterns(RewritePatternSet &patterns, const TypeConverter &converter) {
  addPattern<lm::LinearOp>(patterns, converter, lowerLinear);
  addPattern<lm::EmbeddingOp>(patterns, converter, lowerEmbedding);
  addPattern<RowsOp>(patterns, converter, lowerRows);
  addPattern<PositionEmbeddingOp>(patterns, converter, lowerPositionEmbedding);
  addPattern<RopeOp>(patterns, converter, lowerRope);
  addPattern<RmsNormOp>(patterns, converter, lowerRmsNorm);
  addPattern<HeadRmsNormOp>(patterns, converter, lowerHeadRmsNorm);
  addPattern<LayerNormOp>(patterns, converter, lowerLayerNorm);
  addPattern<GluOp>(patterns, converter, lowerGlu);
  addPattern<GeluOp>(patterns, converter, lowerGelu);
  addPattern<MultiplyOp>(patterns, converter, lowerMultiply);
  addPattern<SoftCapOp>(patterns, converter, lowerSoftCap);
  addPattern<AddOp>(patterns, converter, lowerAdd);
  patterns.add<ConvertSplit>(converter, patterns.getContext());
}
