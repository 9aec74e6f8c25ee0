//===- Linears.cpp - Products of codes and of floats ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// reference::integerLinear of easyquant/Numerics/Reference.h: sums of products of codes less their
// zero points, one for each group, and then scales, in the order that it states.
//
//===----------------------------------------------------------------------===//

#include "Patterns.h"

#include "easyquant/Numerics/Quantize.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using namespace easyquant::linalgform;
using numerics::groupCount;

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

/// q - z in an integer type that holds it, or q itself where there are no zero points.
static Value centred(TensorBuilder &b, Value codes, int64_t group, Value zeroPoints,
                     unsigned bits) {
  if (!zeroPoints)
    return codes;
  Type element = bits < 8 ? b.getI8Type() : b.getI16Type();
  return mapGroups(b, codes, group, {zeroPoints}, element,
                   [&](TensorBuilder &in, ValueRange x) -> Value {
                     Value code = arith::ExtSIOp::create(in, in.getI32Type(), x[0]);
                     Value steps = arith::SubIOp::create(in, code, x[1]);
                     return arith::TruncIOp::create(in, element, steps);
                   });
}

/// What int8 activations are multiplied by: q - z, or the int8 value of a table. A minimum is added
/// to what its lowest code stands for, which is 0.
static Value factors(TensorBuilder &b, SchemeAttr scheme, const WeightParts &weight) {
  if (weight.minima) {
    Type element = scheme.getBits() < 8 ? b.getI8Type() : b.getI16Type();
    return b.map(weight.codes, element, [&](TensorBuilder &in, ValueRange x) -> Value {
      Value code = arith::ExtSIOp::create(in, in.getI32Type(), x[0]);
      Value steps = arith::SubIOp::create(in, code, in.i32(lowestCode(scheme)));
      return arith::TruncIOp::create(in, element, steps);
    });
  }
  if (scheme.isInteger())
    return centred(b, weight.codes, scheme.getGroupSize(), weight.zeroPoints, scheme.getBits());
  const numerics::Scheme plain = scheme.toNumerics();
  const int32_t half = 1 << (plain.bits - 1);
  SmallVector<int8_t> values;
  for (int32_t code = -half; code < half; ++code)
    values.push_back(static_cast<int8_t>(numerics::codeFactor(plain, code, 0)));
  Value table = b.table(values);
  return b.map(weight.codes, b.getI8Type(), [&](TensorBuilder &in, ValueRange x) -> Value {
    Value code = arith::ExtSIOp::create(in, in.getI32Type(), x[0]);
    code = arith::AddIOp::create(in, code, in.i32(half));
    return tensor::ExtractOp::create(in, table, in.asIndex(code));
  });
}

//===----------------------------------------------------------------------===//
// Sums of products
//===----------------------------------------------------------------------===//

namespace {
/// The groups of K columns: those of the weight and, within them, those of tokens. Where there are
/// none of a kind, it is no dimension.
struct Groups {
  int64_t columns, weight, token; ///< extents; 0: all columns

  Groups(int64_t columns, SchemeAttr weight, SchemeAttr input)
      : columns(columns), weight(weight.getGroupSize()), token(input.getTokenGroup()) {}

  /// How many there are, of the weight first.
  Dims counts() const {
    Dims counts;
    if (weight)
      counts.push_back(groupCount(columns, weight));
    if (token)
      counts.push_back(weight ? weight / token : groupCount(columns, token));
    return counts;
  }
  /// All dimensions that the columns become; their product may be more than there are.
  Dims extents() const {
    Dims extents = counts();
    extents.push_back(token ? token : weight ? weight : columns);
    return extents;
  }
  Value split(TensorBuilder &b, Value matrix) const {
    int64_t padded = 1;
    for (int64_t extent : extents())
      padded *= extent;
    return counts().empty() ? matrix : b.split(b.pad(matrix, padded), 1, extents());
  }
};
} // namespace

/// dims[m, n, groups...] of easyquant/Numerics/Reference.h, in i32.
static Value integerDots(TensorBuilder &b, Value x, Value w, const Groups &groups) {
  const Dims counts = groups.counts();
  const int64_t last = 2 + std::ssize(counts);
  Dims ofX = {0}, ofW = {1}, ofDots = {0, 1};
  Sizes sizes = {b.sizeOf(x, 0), b.sizeOf(w, 0)};
  for (auto [i, count] : llvm::enumerate(counts)) {
    const auto dim = static_cast<int64_t>(2 + i);
    for (Dims *dims : {&ofX, &ofW, &ofDots})
      dims->push_back(dim);
    sizes.push_back(b.size(count));
  }
  ofX.push_back(last);
  ofW.push_back(last);
  return b.contract(last + 1, {groups.split(b, x), ofX}, {groups.split(b, w), ofW}, ofDots, sizes,
                    b.getI32Type());
}

/// What minima are multiplied by: the sum of the activations' codes less their zero points, of each
/// group, in i32.
static Value sumsOfCodes(TensorBuilder &b, Value x, const Groups &groups) {
  Value grouped = groups.split(b, x);
  Sizes sizes = b.sizesOf(grouped);
  sizes.pop_back();
  Dims all, kept;
  for (int64_t dim = 0; dim <= std::ssize(sizes); ++dim)
    all.push_back(dim);
  kept.append(all.begin(), all.end() - 1);
  return b.reduce(std::ssize(all), kept, sizes, b.i32(0), {{grouped, all}},
                  [](TensorBuilder &in, ValueRange v) -> Value {
                    Value code = arith::ExtSIOp::create(in, in.getI32Type(), v[0]);
                    return arith::AddIOp::create(in, code, v[1]);
                  });
}

static Value asFloat(TensorBuilder &b, Value x) {
  return x.getType().isF32() ? x : arith::SIToFPOp::create(b, b.getF32Type(), x).getResult();
}

/// The sum of scale times x over the last dimension of x, one product behind the other.
static Value sumScaled(TensorBuilder &b, Value x, Value scales, const Dims &ofScales) {
  Sizes sizes = b.sizesOf(x);
  sizes.pop_back();
  Dims all, kept;
  for (int64_t dim = 0; dim <= std::ssize(sizes); ++dim)
    all.push_back(dim);
  kept.append(all.begin(), all.end() - 1);
  return b.reduce(std::ssize(all), kept, sizes, b.f32(0), {{x, all}, {scales, ofScales}},
                  [](TensorBuilder &in, ValueRange v) -> Value {
                    return math::FmaOp::create(in, v[1], asFloat(in, v[0]), v[2]);
                  });
}

/// The same for a weight with minima: each group adds its scale times x, then its minimum times the
/// sum of the activations.
static Value sumAbove(TensorBuilder &b, Value x, Value sums, const WeightParts &w) {
  Sizes sizes = b.sizesOf(x);
  sizes.pop_back();
  return b.reduce(3, {0, 1}, sizes, b.f32(0),
                  {{x, {0, 1, 2}}, {w.scales, {1, 2}}, {sums, {0, 2}}, {w.minima, {1, 2}}},
                  [](TensorBuilder &in, ValueRange v) -> Value {
                    Value sum = math::FmaOp::create(in, v[1], asFloat(in, v[0]), v[4]);
                    return math::FmaOp::create(in, v[3], asFloat(in, v[2]), sum);
                  });
}

/// Scales of the weight, then of rows, then the bias. `codes` are those of the rows less their zero
/// points.
static Value scaleDots(TensorBuilder &b, Value sums, Value codes, const Groups &groups,
                       const RowParts &x, const WeightParts &w, SchemeAttr weight, Value bias) {
  const Dims counts = groups.counts();
  Value ones = w.minima ? sumsOfCodes(b, codes, groups) : Value();
  if (groups.token) {
    int64_t all = 1;
    for (int64_t count : counts)
      all *= count;
    Value scales = b.pad(x.scales, all);
    if (groups.weight)
      scales = b.split(scales, 1, counts);
    sums = sumScaled(b, sums, scales, groups.weight ? Dims{0, 2, 3} : Dims{0, 2});
    if (ones) // in groups of the weight, which alone have minima
      ones = sumScaled(b, ones, scales, {0, 1, 2});
  }
  if (groups.weight)
    sums = ones ? sumAbove(b, sums, ones, w) : sumScaled(b, sums, w.scales, {1, 2});
  SmallVector<Indexed> inputs = {{sums, {0, 1}}};
  if (!groups.weight)
    inputs.push_back({b.merge(w.scales, 0, 2), {1}});
  if (!groups.token)
    inputs.push_back({x.scales, {0}});
  if (bias)
    inputs.push_back({bias, {1}});
  const float unit = numerics::codeUnit(weight.toNumerics());
  return b.map(
      b.sizesOf(sums), b.getF32Type(), inputs, [&](TensorBuilder &in, ValueRange v) -> Value {
        Value y = asFloat(in, v[0]), scale;
        v = v.drop_front();
        if (!groups.weight) {
          y = arith::MulFOp::create(in, v.front(), y);
          v = v.drop_front();
        }
        if (!groups.token) {
          scale = v.front();
          v = v.drop_front();
        }
        if (unit != 1)
          scale = scale ? arith::MulFOp::create(in, scale, in.f32(unit)).getResult() : in.f32(unit);
        if (scale)
          y = arith::MulFOp::create(in, scale, y);
        return bias ? arith::AddFOp::create(in, y, v.front()).getResult() : y;
      });
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

/// Zero points of rows as mapGroups takes them: a column for each group.
static Value columnsOf(TensorBuilder &b, Value params, int64_t group) {
  return group || !params ? params : b.split(params, 0, {ShapedType::kDynamic, 1});
}

static Value centredRows(TensorBuilder &b, const RowParts &x, SchemeAttr input) {
  const int64_t tokenGroup = input.getTokenGroup();
  return centred(b, x.codes, tokenGroup, columnsOf(b, x.zeroPoints, tokenGroup), 8);
}

static Value integerLinear(TensorBuilder &b, const RowParts &x, SchemeAttr input,
                           const WeightParts &w, SchemeAttr weight, Value bias, bool leavesSums) {
  const Groups groups(TensorBuilder::typeOf(x.codes).getDimSize(1), weight, input);
  Value codes = centredRows(b, x, input);
  Value dots = integerDots(b, codes, factors(b, weight, w), groups);
  return leavesSums ? dots : scaleDots(b, dots, codes, groups, x, w, weight, bias);
}

template <typename Op>
static SmallVector<Value> lowerLinear(TensorBuilder &b, Op op,
                                      typename FunctionPattern<Op>::Adaptor adaptor) {
  SchemeAttr weight = op.getWeight().getType().getScheme(), input = op.getInputSchemeAttr();
  const WeightParts w(weight, adaptor.getWeight());
  Value bias = oneOrNone(adaptor.getBias());
  const bool leavesSums = !op.getOutput().getType().getElementType().isF32();
  if (auto type = dyn_cast<RowsType>(Type(op.getInput().getType())))
    return {integerLinear(b, RowParts(type, adaptor.getInput()), type.getScheme(), w, weight, bias,
                          leavesSums)};
  Value x = one(adaptor.getInput());
  if (input && input.isInteger()) {
    const RowParts rows = quantizeRows(b, x,
                                       {input, op.getInputScaleAttr(), op.getInputZeroPointAttr(),
                                        oneOrNone(adaptor.getOnline())});
    return {integerLinear(b, rows, input, w, weight, bias, leavesSums)};
  }
  if (input)
    x = roundRows(b, x, input, op.getInputScaleAttr());
  return {addBias(b, floatLinear(b, x, dequantize(b, weight, w)), bias)};
}

static SmallVector<Value> lowerRescale(TensorBuilder &b, RescaleOp op,
                                       FunctionPattern<RescaleOp>::Adaptor adaptor) {
  RowsType rows = op.getRows().getType();
  SchemeAttr weight = op.getWeight().getType().getScheme();
  const Groups groups(rows.getColumns(), weight, rows.getScheme());
  const RowParts x(rows, adaptor.getRows());
  return {scaleDots(b, one(adaptor.getSums()), centredRows(b, x, rows.getScheme()), groups, x,
                    WeightParts(weight, adaptor.getWeight()), weight,
                    oneOrNone(adaptor.getBias()))};
}

static SmallVector<Value> lowerEmbedding(TensorBuilder &b, equant::EmbeddingOp op,
                                         FunctionPattern<equant::EmbeddingOp>::Adaptor adaptor) {
  SmallVector<Value> rows;
  for (Value part : adaptor.getTable())
    rows.push_back(b.gather(part, one(adaptor.getTokens())));
  SchemeAttr scheme = op.getTable().getType().getScheme();
  return {dequantize(b, scheme, WeightParts(scheme, rows))};
}

void linalgform::addLinearPatterns(RewritePatternSet &patterns, const TypeConverter &converter) {
  addPattern<equant::LinearOp>(patterns, converter, lowerLinear<equant::LinearOp>);
  addPattern<PackedLinearOp>(patterns, converter, lowerLinear<PackedLinearOp>);
  addPattern<RescaleOp>(patterns, converter, lowerRescale);
  addPattern<equant::EmbeddingOp>(patterns, converter, lowerEmbedding);
}
