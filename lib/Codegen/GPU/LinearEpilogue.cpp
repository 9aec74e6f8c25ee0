//===- LinearEpilogue.cpp - From accumulators to y ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LinearEpilogue.h"

#include "easyquant/Numerics/FragmentPacking.h"

using namespace mlir;

namespace easyquant::gpu {

LinearEpilogue::ColumnTerms LinearEpilogue::columnTerms(Int group, Value n) {
  ColumnTerms terms;
  if (!spec.isPartial)
    terms.scales = params.scales(group, n, width);
  if (spec.zeroPoints)
    terms.zeros = params.zeros(group, n, width);
  if (spec.minima) {
    terms.zeros.assign(width, b.i32(-(int64_t{1} << (spec.bits - 1))));
    terms.minima = params.minima(group, n, width);
  }
  if (spec.inputZeroPoints && !spec.sumsWeights()) {
    Type type = width == 1 ? b.i32() : Type(b.vec(width, b.i32()));
    Value index =
        b.add(b.mul(group, numerics::fragmentScaleRows(spec.weightRows())), params.rowOf(n));
    terms.sums =
        b.elements(b.load(b.advance(arguments["wsums"], index, b.i32()), type, /*constant=*/true));
  }
  return terms;
}

LinearEpilogue::RowTerms LinearEpilogue::rowTerms(Value m, Int group, Value valid) {
  auto load = [&](StringRef name, Type type, int64_t stride, Int at) {
    return b.guarded(valid, b.zero(type), [&] {
      return b.load(b.advance(b.rowOf(arguments[name], m, stride, type), at, type), type, true);
    });
  };
  RowTerms terms;
  if (spec.readsSums())
    terms.sum = load("sums", b.i32(), spec.dotGroups(), group);
  if (spec.inputGroup)
    terms.scale = load("scales", b.f32(), spec.dotGroups(), group);
  if (spec.sumsWeights())
    terms.zero = load("zeros", b.i32(), spec.dotGroups(), group);
  if (spec.readsSums() && spec.inputZeroPoints)
    terms.count = columnsOf(group);
  return terms;
}

Value LinearEpilogue::columnsOf(Int group) {
  const int64_t size = spec.dotGroup() ? spec.dotGroup() : spec.k;
  return b.min(b.sub(spec.k, b.mul(group, size)), size);
}

LinearEpilogue::Values LinearEpilogue::weightSums(ValueRange accumulators,
                                                  const ColumnTerms &columns, Value count) {
  Values sums;
  for (int64_t i = 0; i < width; ++i) {
    Value sum = shift ? b.shrArithmetic(accumulators[i], shift) : Value(accumulators[i]);
    sums.push_back(spec.readsSums() ? b.sub(sum, b.mul(columns.zeros[i], count)) : sum);
  }
  return sums;
}

Value LinearEpilogue::rowZero(Value m, Value valid) {
  if (!spec.inputZeroPoints || spec.sumsWeights())
    return Value();
  return b.guarded(valid, b.i32(0), [&] {
    return b.load(b.advance(arguments["zeros"], m, b.i32()), b.i32(), true);
  });
}

Value LinearEpilogue::rowScale(Value m, Value valid) {
  if (spec.isPartial || spec.inputGroup)
    return Value();
  return b.guarded(valid, b.zero(b.f32()), [&] {
    return b.load(b.advance(arguments["scales"], m, b.f32()), b.f32(), true);
  });
}

Value LinearEpilogue::onesOf(const RowTerms &row) {
  return row.zero ? b.sub(row.sum, b.mul(row.zero, row.count)) : row.sum;
}

Value LinearEpilogue::dotOf(Value accumulator, const ColumnTerms &columns, const RowTerms &row,
                            int64_t column) {
  Value dot = accumulator;
  if (shift && !shiftsLast())
    dot = b.shrArithmetic(dot, shift);
  if (row.sum)
    dot = b.sub(dot, b.mul(columns.zeros[column], row.sum));
  if (row.zero)
    dot = b.sub(dot, b.mul(row.zero, columns.sums[column]));
  return dot;
}

LinearEpilogue::Values LinearEpilogue::addGroup(ValueRange accumulators, const ColumnTerms &columns,
                                                const RowTerms &row, ValueRange t) {
  Values sums;
  for (int64_t i = 0; i < width; ++i) {
    Value dot = dotOf(accumulators[i], columns, row, i);
    if (spec.isPartial) {
      sums.push_back(b.bitcast(dot, b.f32()));
      continue;
    }
    Value scale = columns.scales[i], value = floatOf(dot);
    Value sum = t.empty() ? b.mulf(scale, value) : b.fma(scale, value, t[i]);
    if (spec.minima)
      sum = b.fma(columns.minima[i], b.toFloat(onesOf(row)), sum);
    sums.push_back(sum);
  }
  return sums;
}

LinearEpilogue::Values LinearEpilogue::addDots(ValueRange accumulators, const ColumnTerms &columns,
                                               const RowTerms &row, ValueRange s) {
  Values sums;
  for (int64_t i = 0; i < width; ++i) {
    Value value = floatOf(dotOf(accumulators[i], columns, row, i));
    if (row.scale)
      sums.push_back(s.empty() ? b.mulf(row.scale, value) : b.fma(row.scale, value, s[i]));
    else
      sums.push_back(s.empty() ? value : b.addf(value, s[i]));
  }
  return sums;
}

Value LinearEpilogue::addOnes(const RowTerms &row, Value ones) {
  return spec.minima ? b.fma(row.scale, b.toFloat(onesOf(row)), ones) : ones;
}

LinearEpilogue::Values LinearEpilogue::addInputGroups(ValueRange s, Value ones,
                                                      const ColumnTerms &columns, ValueRange t) {
  Values sums;
  for (int64_t i = 0; i < width; ++i) {
    Value scale = columns.scales[i];
    Value sum = t.empty() ? b.mulf(scale, s[i]) : b.fma(scale, s[i], t[i]);
    if (spec.minima)
      sum = b.fma(columns.minima[i], ones, sum);
    sums.push_back(sum);
  }
  return sums;
}

void LinearEpilogue::write(Value m, Value n, Value rowScale, ValueRange t) {
  if (spec.isPartial)
    return writer.write(m, n, t);
  double unit = spec.unit;
  if (shift && shiftsLast())
    unit /= static_cast<double>(int64_t{1} << shift);
  Values results;
  for (Value sum : t) {
    if (unit != 1)
      sum = b.mulf(sum, b.constant(b.f32(), unit));
    results.push_back(rowScale ? b.mulf(rowScale, sum) : sum);
  }
  writer.write(m, n, results);
}

} // namespace easyquant::gpu
