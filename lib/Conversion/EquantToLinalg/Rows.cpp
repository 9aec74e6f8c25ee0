//===- Rows.cpp - Activations in codes ------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The definitions of easyquant/Numerics/Quantize.h, step by step, so that codes are those of
// kernels to the bit.
//
//===----------------------------------------------------------------------===//

#include "Patterns.h"

#include "easyquant/Numerics/NumberFormats.h"
#include "easyquant/Numerics/Quantize.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using namespace easyquant::linalgform;
using arith::CmpFPredicate;
using numerics::FloatFormat;

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

static Value select(TensorBuilder &b, Value condition, Value yes, Value no) {
  return arith::SelectOp::create(b, condition, yes, no);
}
static Value isLess(TensorBuilder &b, Value x, double than) {
  return arith::CmpFOp::create(b, CmpFPredicate::OLT, x, b.f32(than));
}
static Value isBelow(TensorBuilder &b, Value x) { return isLess(b, x, numerics::kMinAbsMax); }

/// rne(min(max(x, low), high)) as an integer.
static Value roundClamped(TensorBuilder &b, Value x, Value low, Value high) {
  x = arith::MaximumFOp::create(b, x, low);
  x = arith::MinimumFOp::create(b, x, high);
  return arith::FPToSIOp::create(b, b.getI32Type(), math::RoundEvenOp::create(b, x).getResult());
}

//===----------------------------------------------------------------------===//
// Scales
//===----------------------------------------------------------------------===//

namespace {
/// What the values of a row, or of each group of one, are multiplied by, and the rest.
struct Steps {
  Value inverse, scale, zeroPoint; ///< null: 0
};

/// Rows of columns, or of groups of columns.
class Rows {
public:
  Rows(TensorBuilder &b, Value values) : b(b), values(values), sizes(b.sizesOf(values)) {
    sizes.pop_back();
    for (int64_t dim = 0; dim < TensorBuilder::typeOf(values).getRank(); ++dim)
      all.push_back(dim);
    slices.append(all.begin(), all.end() - 1);
  }

  Value largest(TensorBuilder::Body magnitude) {
    return b.reduce(std::ssize(all), slices, sizes, b.f32(0), {{values, all}},
                    [&](TensorBuilder &in, ValueRange x) {
                      return arith::MaximumFOp::create(in, magnitude(in, x), x[1]).getResult();
                    });
  }
  Value absMax() {
    return largest(
        [](TensorBuilder &in, ValueRange x) { return math::AbsFOp::create(in, x[0]).getResult(); });
  }
  Steps symmetric(Value absMax);
  Steps asymmetric();
  Steps withSinks(Steps steps, numerics::CodeRange range, const RowScales &given);
  Value codes(const Steps &steps, numerics::CodeRange range);
  Value rounded(Value scales, const FloatFormat &format);

  /// One value for every row.
  Value fill(Value scalar) {
    return b.map(sizes, scalar.getType(), {}, [&](TensorBuilder &, ValueRange) { return scalar; });
  }
  Value perSlice(ArrayRef<Value> params, Type element, TensorBuilder::Body body) {
    SmallVector<Indexed> inputs;
    for (Value param : params)
      inputs.push_back({param, slices});
    return b.map(sizes, element, inputs, body);
  }

private:
  TensorBuilder &b;
  Value values;
  Sizes sizes; ///< of slices
  Dims all, slices;
};
} // namespace

/// Definition 2.
Steps Rows::symmetric(Value absMax) {
  Type f32 = b.getF32Type();
  Value scale = perSlice({absMax}, f32, [](TensorBuilder &in, ValueRange x) {
    Value quotient = arith::DivFOp::create(in, x[0], in.f32(127));
    return select(in, isBelow(in, x[0]), in.f32(1), quotient);
  });
  Value inverse = perSlice({absMax}, f32, [](TensorBuilder &in, ValueRange x) {
    Value quotient = arith::DivFOp::create(in, in.f32(127), x[0]);
    return select(in, isBelow(in, x[0]), in.f32(0), quotient);
  });
  return {inverse, scale, nullptr};
}

/// Definition 5.
Steps Rows::asymmetric() {
  Type f32 = b.getF32Type();
  Value up = largest([](TensorBuilder &, ValueRange x) { return x[0]; });
  Value down = largest(
      [](TensorBuilder &in, ValueRange x) { return arith::NegFOp::create(in, x[0]).getResult(); });
  Value half = perSlice({up, down}, f32, [](TensorBuilder &in, ValueRange x) {
    Value upper = arith::MulFOp::create(in, x[0], in.f32(0.5));
    Value lower = arith::MulFOp::create(in, x[1], in.f32(0.5));
    return arith::AddFOp::create(in, upper, lower).getResult();
  });
  Value scale = perSlice({half}, f32, [](TensorBuilder &in, ValueRange x) {
    Value quotient = arith::DivFOp::create(in, x[0], in.f32(127.5));
    return select(in, isBelow(in, x[0]), in.f32(1), quotient);
  });
  Value inverse = perSlice({half}, f32, [](TensorBuilder &in, ValueRange x) {
    Value quotient = arith::DivFOp::create(in, in.f32(127.5), x[0]);
    return select(in, isBelow(in, x[0]), in.f32(0), quotient);
  });
  Value zeroPoint =
      perSlice({half, down, inverse}, b.getI32Type(), [](TensorBuilder &in, ValueRange x) {
        Value steps = arith::MulFOp::create(in, x[1], x[2]);
        steps = arith::SubFOp::create(in, steps, in.f32(128));
        Value nearest = roundClamped(in, steps, in.f32(-128), in.f32(127));
        return select(in, isBelow(in, x[0]), in.i32(0), nearest);
      });
  return {inverse, scale, zeroPoint};
}

/// Definition 4: rows that leave the static range have steps of their own.
Steps Rows::withSinks(Steps steps, numerics::CodeRange range, const RowScales &given) {
  const auto zeroPoint = given.zeroPoint ? static_cast<int32_t>(given.zeroPoint.getInt()) : 0;
  const numerics::StaticReach reach(range, zeroPoint);
  Value absMax = given.absmax ? given.absmax : this->absMax();
  Value farthest;
  if (given.absmax) {
    farthest =
        perSlice({absMax, steps.inverse}, b.getF32Type(), [](TensorBuilder &in, ValueRange x) {
          return arith::MulFOp::create(in, x[0], x[1]).getResult();
        });
  } else {
    farthest = b.reduce(2, slices, sizes, b.f32(0), {{values, all}, {steps.inverse, slices}},
                        [&](TensorBuilder &in, ValueRange x) {
                          Value step = arith::MulFOp::create(in, x[0], x[1]);
                          step = arith::SubFOp::create(in, step, in.f32(reach.centre));
                          step = math::AbsFOp::create(in, step);
                          return arith::MaximumFOp::create(in, step, x[2]).getResult();
                        });
  }
  auto choose = [&](Value own, Value other) {
    return perSlice({farthest, own, other}, TensorBuilder::elementOf(own),
                    [&](TensorBuilder &in, ValueRange x) {
                      Value leaves =
                          arith::CmpFOp::create(in, CmpFPredicate::OGT, x[0], in.f32(reach.reach));
                      return select(in, leaves, x[1], x[2]);
                    });
  };
  const Steps own = symmetric(absMax);
  Value zeroPoints;
  if (steps.zeroPoint)
    zeroPoints = choose(fill(b.i32(0)), steps.zeroPoint);
  return {choose(own.inverse, steps.inverse), choose(own.scale, steps.scale), zeroPoints};
}

/// clamp(rne(x * inverse) + z)
Value Rows::codes(const Steps &steps, numerics::CodeRange range) {
  SmallVector<Indexed> inputs = {{values, all}, {steps.inverse, slices}};
  if (steps.zeroPoint)
    inputs.push_back({steps.zeroPoint, slices});
  Type i8 = b.getI8Type();
  return b.map(b.sizesOf(values), i8, inputs, [&](TensorBuilder &in, ValueRange x) {
    Value scaled = arith::MulFOp::create(in, x[0], x[1]);
    if (!steps.zeroPoint) {
      Value code = roundClamped(in, scaled, in.f32(range.min), in.f32(range.max));
      return arith::TruncIOp::create(in, i8, code).getResult();
    }
    auto end = [&](int32_t code) {
      Value steps = arith::SubIOp::create(in, in.i32(code), x[2]);
      return arith::SIToFPOp::create(in, in.getF32Type(), steps).getResult();
    };
    Value code = roundClamped(in, scaled, end(range.min), end(range.max));
    code = arith::AddIOp::create(in, code, x[2]);
    return arith::TruncIOp::create(in, i8, code).getResult();
  });
}

RowParts linalgform::quantizeRows(TensorBuilder &b, Value x, const RowScales &given) {
  SchemeAttr scheme = given.scheme;
  const int64_t columns = TensorBuilder::typeOf(x).getDimSize(1), group = scheme.getTokenGroup();
  const numerics::CodeRange range = numerics::codeRange(scheme.toNumerics());
  if (group) {
    // Zeros change neither a largest magnitude nor a range around 0.
    const int64_t groups = numerics::groupCount(columns, group);
    Rows rows(b, b.split(b.pad(x, groups * group), 1, {groups, group}));
    const Steps steps = scheme.getSymmetric() ? rows.symmetric(rows.absMax()) : rows.asymmetric();
    Value codes = b.merge(rows.codes(steps, range), 1, 2);
    if (groups * group != columns)
      codes = b.slice(codes, 1, 0, b.size(columns));
    return {codes, steps.scale, steps.zeroPoint};
  }
  Rows rows(b, x);
  Steps steps;
  if (scheme.getDynamic()) {
    steps = rows.symmetric(given.absmax ? given.absmax : rows.absMax());
  } else {
    steps.scale = given.online ? given.online : rows.fill(b.f32(given.scale.getValueAsDouble()));
    steps.inverse =
        rows.perSlice({steps.scale}, b.getF32Type(), [](TensorBuilder &in, ValueRange s) {
          return arith::DivFOp::create(in, in.f32(1), s[0]).getResult();
        });
    if (!scheme.getSymmetric())
      steps.zeroPoint = rows.fill(b.i32(static_cast<int32_t>(given.zeroPoint.getInt())));
    if (scheme.getSinks())
      steps = rows.withSinks(steps, range, given);
  }
  return {rows.codes(steps, range), steps.scale, steps.zeroPoint};
}

//===----------------------------------------------------------------------===//
// Codes that are no integers
//===----------------------------------------------------------------------===//

/// The value of the format that is nearest to a magnitude, as its codec in lib/Numerics finds it.
static Value nearest(TensorBuilder &b, const FloatFormat &format, Value magnitude) {
  const int32_t dropped = 23 - format.mantissaBits;
  magnitude = arith::MinimumFOp::create(b, magnitude, b.f32(format.largest));
  Value small = arith::MulFOp::create(b, magnitude, b.f32(1 / format.step()));
  small = math::RoundEvenOp::create(b, small);
  small = arith::MulFOp::create(b, small, b.f32(format.step()));
  // Half of the last bit kept is added to the bits below it, a little less where that is even.
  Value bits = arith::BitcastOp::create(b, b.getI32Type(), magnitude);
  Value last = arith::ShRUIOp::create(b, bits, b.i32(dropped));
  last = arith::AndIOp::create(b, last, b.i32(1));
  bits = arith::AddIOp::create(b, bits, b.i32((1 << (dropped - 1)) - 1));
  bits = arith::AddIOp::create(b, bits, last);
  bits = arith::AndIOp::create(b, bits, b.i32(-(1 << dropped)));
  Value normal = arith::BitcastOp::create(b, b.getF32Type(), bits);
  return select(b, isLess(b, magnitude, format.leastNormal), small, normal);
}

/// A scale for a largest magnitude, in whole steps of f8E4M3FN of the one above it, if any.
static Value scaleOf(TensorBuilder &b, Value absMax, const FloatFormat &format, FloatAttr outer) {
  const FloatFormat &scales = *numerics::floatFormat(numerics::CodeFormat::F8E4M3FN);
  Value scale = arith::DivFOp::create(b, absMax, b.f32(format.largest)), ofZeros = b.f32(1);
  if (outer) {
    ofZeros = b.f32(outer.getValueAsDouble());
    scale = nearest(b, scales, arith::DivFOp::create(b, scale, ofZeros));
    scale = arith::MaximumFOp::create(b, scale, b.f32(scales.step())); // 0 would make codes values
    scale = arith::MulFOp::create(b, scale, ofZeros);
  }
  return select(b, isBelow(b, absMax), ofZeros, scale);
}

/// s · value(nearest(x / s))
Value Rows::rounded(Value scales, const FloatFormat &format) {
  return b.map(b.sizesOf(values), b.getF32Type(), {{values, all}, {scales, slices}},
               [&](TensorBuilder &in, ValueRange x) {
                 Value steps = arith::DivFOp::create(in, x[0], x[1]);
                 Value value = nearest(in, format, math::AbsFOp::create(in, steps));
                 value = math::CopySignOp::create(in, value, steps);
                 return arith::MulFOp::create(in, x[1], value).getResult();
               });
}

Value linalgform::roundRows(TensorBuilder &b, Value x, SchemeAttr scheme, FloatAttr scale) {
  const FloatFormat &format = *numerics::floatFormat(scheme.toNumerics().codes);
  const int64_t columns = TensorBuilder::typeOf(x).getDimSize(1), group = scheme.getGroupSize();
  const int64_t groups = numerics::groupCount(columns, group);
  Rows rows(b, group ? b.split(b.pad(x, groups * group), 1, {groups, group}) : x);
  Value scales;
  if (scheme.getDynamic())
    scales =
        rows.perSlice({rows.absMax()}, b.getF32Type(), [&](TensorBuilder &in, ValueRange absMax) {
          return scaleOf(in, absMax[0], format, scale);
        });
  else
    scales = rows.fill(b.f32(scale.getValueAsDouble()));
  Value rounded = rows.rounded(scales, format);
  if (!group)
    return rounded;
  rounded = b.merge(rounded, 1, 2);
  return groups * group == columns ? rounded : b.slice(rounded, 1, 0, b.size(columns));
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

RowParts::RowParts(RowsType type, ValueRange parts) : codes(parts[0]), scales(parts[1]) {
  parts = parts.drop_front(2);
  if (type.getPart(RowsType::Part::Sums)) {
    sums = parts.front();
    parts = parts.drop_front();
  }
  if (type.getPart(RowsType::Part::ZeroPoints))
    zeroPoints = parts.front();
}

SmallVector<Value> RowParts::all() const {
  SmallVector<Value> parts;
  for (Value part : {codes, scales, sums, zeroPoints})
    if (part)
      parts.push_back(part);
  return parts;
}

SmallVector<Type> linalgform::partTypes(RowsType type) {
  using Part = RowsType::Part;
  SmallVector<Type> types;
  for (Part part : {Part::Codes, Part::Scales, Part::Sums, Part::ZeroPoints})
    if (RankedTensorType present = type.getPart(part))
      types.push_back(present);
  return types;
}

/// The sum of the codes of each group of columns.
static Value sumCodes(TensorBuilder &b, Value codes, int64_t group) {
  const int64_t columns = TensorBuilder::typeOf(codes).getDimSize(1);
  group = group ? group : columns;
  const int64_t groups = numerics::groupCount(columns, group);
  Value grouped = b.split(b.pad(codes, groups * group), 1, {groups, group});
  return b.reduce(3, {0, 1}, {b.sizeOf(codes, 0), b.size(groups)}, b.i32(0), {{grouped, {0, 1, 2}}},
                  [](TensorBuilder &in, ValueRange x) {
                    Value code = arith::ExtSIOp::create(in, in.getI32Type(), x[0]);
                    return arith::AddIOp::create(in, code, x[1]).getResult();
                  });
}

static SmallVector<Value> lowerQuantizeRows(TensorBuilder &b, QuantizeRowsOp op,
                                            FunctionPattern<QuantizeRowsOp>::Adaptor adaptor) {
  RowParts rows = quantizeRows(b, one(adaptor.getInput()),
                               {op.getScheme(), op.getScaleAttr(), op.getZeroPointAttr(),
                                oneOrNone(adaptor.getOnline()), oneOrNone(adaptor.getAbsmax())});
  if (std::optional<int64_t> group = op.getRows().getType().getSums())
    rows.sums = sumCodes(b, rows.codes, *group);
  return rows.all();
}

static SmallVector<Value> lowerTokenAbsMax(TensorBuilder &b, TokenAbsMaxOp,
                                           FunctionPattern<TokenAbsMaxOp>::Adaptor adaptor) {
  return {Rows(b, one(adaptor.getInput())).absMax()};
}

static SmallVector<Value> lowerFakeQuantize(TensorBuilder &b, FakeQuantizeOp op,
                                            FunctionPattern<FakeQuantizeOp>::Adaptor adaptor) {
  return {roundRows(b, one(adaptor.getInput()), op.getScheme(), op.getScaleAttr())};
}

void linalgform::addRowPatterns(RewritePatternSet &patterns, const TypeConverter &converter) {
  addPattern<QuantizeRowsOp>(patterns, converter, lowerQuantizeRows);
  addPattern<TokenAbsMaxOp>(patterns, converter, lowerTokenAbsMax);
  addPattern<FakeQuantizeOp>(patterns, converter, lowerFakeQuantize);
}
