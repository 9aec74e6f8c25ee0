//===- Weights.cpp - Weights as codes and scales --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What makes a weight, as ops on its parts. Constants of a model are evaluated before by
// equant-plain-weights; this is what the ops mean on any operands.
//
//===----------------------------------------------------------------------===//

#include "Patterns.h"

#include "easyquant/Numerics/Quantize.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <cmath>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using namespace easyquant::linalgform;
using numerics::groupCount;

SmallVector<Type> linalgform::partTypes(WeightType type) {
  Builder b(type.getContext());
  const int64_t rows = type.getRows(), columns = type.getColumns();
  const int64_t groups = groupCount(columns, type.getScheme().getGroupSize());
  SmallVector<Type> types = {RankedTensorType::get({rows, columns}, b.getI8Type()),
                             RankedTensorType::get({rows, groups}, b.getF32Type())};
  if (!type.getScheme().getSymmetric()) // zero points or minima
    types.push_back(RankedTensorType::get(
        {rows, groups}, type.getScheme().getMinima() ? Type(b.getF32Type()) : b.getI32Type()));
  return types;
}

int32_t linalgform::lowestCode(SchemeAttr scheme) {
  return numerics::codeRange(scheme.toNumerics()).min;
}

//===----------------------------------------------------------------------===//
// Codes and scales that exist
//===----------------------------------------------------------------------===//

/// Codes as the conversion has them: i8, and of formats that are no integers their bits less
/// 2^(b-1).
static Value codesAsI8(TensorBuilder &b, Value codes) {
  Type element = TensorBuilder::elementOf(codes), i8 = b.getI8Type();
  if (element == i8)
    return codes;
  return b.map(codes, i8, [&](TensorBuilder &in, ValueRange x) -> Value {
    const unsigned bits = element.getIntOrFloatBitWidth();
    if (isa<IntegerType>(element))
      return arith::ExtSIOp::create(in, i8, x[0]);
    Value code = arith::BitcastOp::create(in, in.getIntegerType(bits), x[0]);
    if (bits < 8)
      code = arith::ExtUIOp::create(in, i8, code);
    Value first =
        arith::ConstantOp::create(in, in.getI8IntegerAttr(static_cast<int8_t>(-(1 << (bits - 1)))));
    return arith::AddIOp::create(in, code, first); // modulo 2^8
  });
}

static Value wide(TensorBuilder &b, Value x) {
  return x.getType().isF32() ? x : arith::ExtFOp::create(b, b.getF32Type(), x).getResult();
}

/// Parameters of a scheme per tensor for every row.
static Value forRows(TensorBuilder &b, Value params, int64_t rows) {
  if (TensorBuilder::typeOf(params).getDimSize(0) == rows)
    return params;
  return b.map({b.size(rows), b.size(1)}, TensorBuilder::elementOf(params),
               {{b.pick(params, 0, 0), {1}}}, [](TensorBuilder &, ValueRange x) { return x[0]; });
}

/// Scales of any float type, with the one above them, as f32 for each row.
static Value scalesOf(TensorBuilder &b, Value scales, Value outer, int64_t rows) {
  scales = forRows(b, scales, rows);
  if (outer)
    return b.map(b.sizesOf(scales), b.getF32Type(), {{scales, {0, 1}}, {b.pick(outer, 1, 0), {0}}},
                 [](TensorBuilder &in, ValueRange x) -> Value {
                   return arith::MulFOp::create(in, wide(in, x[0]), x[1]);
                 });
  if (TensorBuilder::elementOf(scales).isF32())
    return scales;
  return b.map(scales, b.getF32Type(),
               [](TensorBuilder &in, ValueRange x) { return wide(in, x[0]); });
}

static SmallVector<Value> lowerFromCodes(TensorBuilder &b, FromCodesOp op,
                                         FunctionPattern<FromCodesOp>::Adaptor adaptor) {
  const int64_t rows = op.getWeight().getType().getRows();
  SmallVector<Value> parts = {
      codesAsI8(b, one(adaptor.getCodes())),
      scalesOf(b, one(adaptor.getScale()), oneOrNone(adaptor.getOuter()), rows)};
  if (Value zeroPoint = oneOrNone(adaptor.getZeroPoint()))
    parts.push_back(forRows(b, zeroPoint, rows));
  if (Value minimum = oneOrNone(adaptor.getMinimum()))
    parts.push_back(scalesOf(b, minimum, /*outer=*/nullptr, rows));
  return parts;
}

//===----------------------------------------------------------------------===//
// Quantization
//===----------------------------------------------------------------------===//

Value linalgform::mapGroups(TensorBuilder &b, Value values, int64_t group, ArrayRef<Value> params,
                            Type element, TensorBuilder::Body body) {
  const int64_t columns = TensorBuilder::typeOf(values).getDimSize(1);
  SmallVector<Indexed> inputs;
  if (!group) {
    inputs.push_back({values, {0, 1}});
    for (Value param : params)
      inputs.push_back({b.merge(param, 0, 2), {0}});
    return b.map(b.sizesOf(values), element, inputs, body);
  }
  const int64_t groups = groupCount(columns, group);
  Value grouped = b.split(b.pad(values, groups * group), 1, {groups, group});
  inputs.push_back({grouped, {0, 1, 2}});
  for (Value param : params)
    inputs.push_back({param, {0, 1}});
  Value result = b.merge(b.map(b.sizesOf(grouped), element, inputs, body), 1, 2);
  return groups * group == columns ? result : b.slice(result, 1, 0, b.size(columns));
}

/// The largest of all rows in each of them.
static Value overRows(TensorBuilder &b, Value params) {
  Value largest = b.reduce(2, {1}, {b.sizeOf(params, 1)}, b.f32(0), {{params, {0, 1}}},
                           [](TensorBuilder &in, ValueRange v) -> Value {
                             return arith::MaximumFOp::create(in, v[0], v[1]);
                           });
  return b.map(b.sizesOf(params), b.getF32Type(), {{largest, {1}}},
               [](TensorBuilder &, ValueRange x) { return x[0]; });
}

/// Rule absmax: the largest magnitude of each group, or of all, over the largest code, rounded to
/// the type of scales.
static Value absMaxScales(TensorBuilder &b, Value x, SchemeAttr scheme) {
  const int64_t columns = TensorBuilder::typeOf(x).getDimSize(1);
  const int64_t group = scheme.getGroupSize() ? scheme.getGroupSize() : columns;
  const int64_t groups = groupCount(columns, group);
  Value grouped = b.split(b.pad(x, groups * group), 1, {groups, group});
  Sizes sizes = {b.sizeOf(x, 0), b.size(groups)};
  Value absMax = b.reduce(3, {0, 1}, sizes, b.f32(0), {{grouped, {0, 1, 2}}},
                          [](TensorBuilder &in, ValueRange v) -> Value {
                            Value magnitude = math::AbsFOp::create(in, v[0]);
                            return arith::MaximumFOp::create(in, magnitude, v[1]);
                          });
  if (scheme.getGranularity() == Granularity::Tensor)
    absMax = overRows(b, absMax);
  const int32_t largest = numerics::codeRange(scheme.toNumerics()).max;
  return b.map(absMax, b.getF32Type(), [&](TensorBuilder &in, ValueRange a) -> Value {
    Value isZero =
        arith::CmpFOp::create(in, arith::CmpFPredicate::OLT, a[0], in.f32(numerics::kMinAbsMax));
    Value scale = arith::DivFOp::create(in, a[0], in.f32(largest));
    scale = arith::SelectOp::create(in, isZero, in.f32(1), scale);
    if (scheme.getScale().isF32())
      return scale;
    scale = arith::TruncFOp::create(in, scheme.getScale(), scale);
    return arith::ExtFOp::create(in, in.getF32Type(), scale);
  });
}

/// Definition 1 of easyquant/Numerics/Quantize.h: the codes of values, whose parameters are scales
/// and, of asymmetric schemes, zero points or minima.
static Value roundToCodes(TensorBuilder &b, Value x, SchemeAttr scheme, ArrayRef<Value> params) {
  const numerics::CodeRange range = numerics::codeRange(scheme.toNumerics());
  return mapGroups(b, x, scheme.getGroupSize(), params, b.getI8Type(),
                   [&](TensorBuilder &in, ValueRange v) -> Value {
                     Value value = v[0], zero; // a code, in i32
                     if (scheme.getMinima()) {
                       value = arith::SubFOp::create(in, value, v[2]);
                       zero = in.i32(range.min);
                     } else if (scheme.hasZeroPoints()) {
                       zero = v[2];
                     }
                     auto end = [&](int32_t code) -> Value {
                       if (!scheme.hasZeroPoints())
                         return in.f32(scheme.getMinima() ? code - range.min : code);
                       Value steps = arith::SubIOp::create(in, in.i32(code), zero);
                       return arith::SIToFPOp::create(in, in.getF32Type(), steps);
                     };
                     Value steps = arith::DivFOp::create(in, value, v[1]);
                     steps = arith::MaximumFOp::create(in, steps, end(range.min));
                     steps = arith::MinimumFOp::create(in, steps, end(range.max));
                     steps = math::RoundEvenOp::create(in, steps);
                     Value code = arith::FPToSIOp::create(in, in.getI32Type(), steps);
                     if (zero)
                       code = arith::AddIOp::create(in, code, zero);
                     return arith::TruncIOp::create(in, in.getI8Type(), code);
                   });
}

static SmallVector<Value> lowerQuantize(TensorBuilder &b, QuantizeOp op,
                                        FunctionPattern<QuantizeOp>::Adaptor adaptor) {
  WeightType type = op.getWeight().getType();
  SchemeAttr scheme = type.getScheme();
  Value x = one(adaptor.getInput()), given = oneOrNone(adaptor.getScale());
  SmallVector<Value> params = {
      given ? scalesOf(b, given, oneOrNone(adaptor.getOuter()), type.getRows())
            : absMaxScales(b, x, scheme)};
  if (Value zeroPoints = oneOrNone(adaptor.getZeroPoint()))
    params.push_back(forRows(b, zeroPoints, type.getRows()));
  if (Value minima = oneOrNone(adaptor.getMinimum()))
    params.push_back(scalesOf(b, minima, /*outer=*/nullptr, type.getRows()));
  Value codes = oneOrNone(adaptor.getRounded());
  SmallVector<Value> parts = {codes ? codesAsI8(b, codes) : roundToCodes(b, x, scheme, params)};
  llvm::append_range(parts, params);
  return parts;
}

/// The values of all codes in units of the scale, from the lowest on.
static Value valueTable(TensorBuilder &b, SchemeAttr scheme) {
  const numerics::Scheme plain = scheme.toNumerics();
  const int32_t half = 1 << (plain.bits - 1);
  SmallVector<float> values;
  for (int32_t code = -half; code < half; ++code)
    values.push_back(numerics::codeValue(plain, code, 0));
  return b.table(values);
}

Value linalgform::dequantize(TensorBuilder &b, SchemeAttr scheme, const WeightParts &weight) {
  SmallVector<Value> params = {weight.scales};
  if (weight.zeroPoints || weight.minima)
    params.push_back(weight.zeroPoints ? weight.zeroPoints : weight.minima);
  Value table = scheme.isInteger() ? Value() : valueTable(b, scheme);
  return mapGroups(b, weight.codes, scheme.getGroupSize(), params, b.getF32Type(),
                   [&](TensorBuilder &in, ValueRange x) -> Value {
                     Value code = arith::ExtSIOp::create(in, in.getI32Type(), x[0]), value;
                     if (table) {
                       code = arith::AddIOp::create(in, code, in.i32(1 << (scheme.getBits() - 1)));
                       value = tensor::ExtractOp::create(in, table, in.asIndex(code));
                     } else {
                       if (weight.zeroPoints)
                         code = arith::SubIOp::create(in, code, x[2]);
                       if (weight.minima)
                         code = arith::SubIOp::create(in, code, in.i32(lowestCode(scheme)));
                       value = arith::SIToFPOp::create(in, in.getF32Type(), code);
                     }
                     value = arith::MulFOp::create(in, x[1], value);
                     return weight.minima ? arith::AddFOp::create(in, value, x[2]).getResult()
                                          : value;
                   });
}

//===----------------------------------------------------------------------===//
// Parts of weights, and constants
//===----------------------------------------------------------------------===//

static SmallVector<Value> lowerSlice(TensorBuilder &b, SliceOp op,
                                     FunctionPattern<SliceOp>::Adaptor adaptor) {
  const int64_t group = op.getInput().getType().getScheme().getGroupSize();
  ArrayRef<int64_t> offsets = op.getOffsets(), sizes = op.getSizes();
  SmallVector<Value> parts;
  for (auto [index, part] : llvm::enumerate(adaptor.getInput())) {
    int64_t offset = offsets[1], count = sizes[1];
    if (index != 0) { // scales, zero points, minima
      offset = group ? offset / group : 0;
      count = groupCount(count, group);
    }
    parts.push_back(b.slice(part, {offsets[0], offset}, {b.size(sizes[0]), b.size(count)}));
  }
  return parts;
}

static SmallVector<Value> lowerDequantize(TensorBuilder &b, DequantizeOp op,
                                          FunctionPattern<DequantizeOp>::Adaptor adaptor) {
  SchemeAttr scheme = op.getWeight().getType().getScheme();
  return {dequantize(b, scheme, WeightParts(scheme, adaptor.getWeight()))};
}

static SmallVector<Value> lowerConcat(TensorBuilder &b, equant::ConcatOp,
                                      FunctionPattern<equant::ConcatOp>::Adaptor adaptor) {
  ArrayRef<ValueRange> inputs = adaptor.getInputs();
  SmallVector<Value> parts;
  for (size_t part = 0; part < inputs.front().size(); ++part)
    parts.push_back(b.concat(
        llvm::map_to_vector(inputs, [&](ValueRange input) -> Value { return input[part]; })));
  return parts;
}

static SmallVector<Value> lowerScale(TensorBuilder &b, ScaleOp op,
                                     FunctionPattern<ScaleOp>::Adaptor adaptor) {
  Value x = one(adaptor.getInput());
  Dims all = TensorBuilder::typeOf(x).getRank() == 1 ? Dims{0} : Dims{0, 1};
  return {b.map(b.sizesOf(x), b.getF32Type(),
                {{x, all}, {one(adaptor.getFactor()), {op.getAxisAttr().getInt()}}},
                [&](TensorBuilder &in, ValueRange v) -> Value {
                  if (op.getDivide())
                    return arith::DivFOp::create(in, v[0], v[1]);
                  return arith::MulFOp::create(in, v[0], v[1]);
                })};
}

/// Activations as kernels rotate them, in f32; constants in f64, rounded once.
static SmallVector<Value> lowerHadamard(TensorBuilder &b, HadamardOp op,
                                        FunctionPattern<HadamardOp>::Adaptor adaptor) {
  const int64_t block = op.getBlockAttr().getInt(), axis = op.getAxisAttr().getInt();
  const int64_t first = op.getFirstAttr().getInt();
  const double root = std::sqrt(static_cast<double>(block));
  Value x = one(adaptor.getInput());
  Type f32 = b.getF32Type(), f64 = b.getF64Type();
  if (!op.getInput().getType().hasStaticShape()) {
    Value rotated = b.addAndSubtract(x, axis, block);
    return {b.map(rotated, f32, [&](TensorBuilder &in, ValueRange v) -> Value {
      return arith::MulFOp::create(in, v[0], in.f32(static_cast<float>(1 / root)));
    })};
  }
  SmallVector<Value> rows;
  if (axis == 0 && first > 0) {
    rows.push_back(b.slice(x, 0, 0, b.size(first)));
    x = b.slice(x, 0, first, b.size(TensorBuilder::typeOf(x).getDimSize(0) - first));
  }
  x = b.map(x, f64, [&](TensorBuilder &in, ValueRange v) -> Value {
    return arith::ExtFOp::create(in, f64, v[0]);
  });
  rows.push_back(
      b.map(b.addAndSubtract(x, axis, block), f32, [&](TensorBuilder &in, ValueRange v) -> Value {
        Value value = arith::DivFOp::create(in, v[0], in.scalar(f64, root));
        return arith::TruncFOp::create(in, f32, value);
      }));
  return {b.concat(rows)};
}

static SmallVector<Value> lowerGatherColumns(TensorBuilder &b, GatherColumnsOp,
                                             FunctionPattern<GatherColumnsOp>::Adaptor adaptor) {
  Value x = one(adaptor.getInput());
  return {b.map(b.sizesOf(x), b.getF32Type(), {{one(adaptor.getOrder()), {1}}},
                [&](TensorBuilder &in, ValueRange column) -> Value {
                  Value at[] = {in.index(0), in.asIndex(column[0])};
                  return tensor::ExtractOp::create(in, x, at);
                })};
}

void linalgform::addWeightPatterns(RewritePatternSet &patterns, const TypeConverter &converter) {
  addPattern<QuantizeOp>(patterns, converter, lowerQuantize);
  addPattern<FromCodesOp>(patterns, converter, lowerFromCodes);
  addPattern<DequantizeOp>(patterns, converter, lowerDequantize);
  addPattern<SliceOp>(patterns, converter, lowerSlice);
  addPattern<equant::ConcatOp>(patterns, converter, lowerConcat);
  addPattern<ScaleOp>(patterns, converter, lowerScale);
  addPattern<HadamardOp>(patterns, converter, lowerHadamard);
  addPattern<GatherColumnsOp>(patterns, converter, lowerGatherColumns);
}
