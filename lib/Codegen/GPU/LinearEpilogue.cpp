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
  Value index = b.add(b.mul(group, numerics::fragmentScaleRows(spec.n)), n);
  ColumnTerms terms;
  if (!spec.isPartial)
    terms.scales =
        params.loadScales(b.advance(arguments["wscales"], index, params.scaleType()), width);
  if (spec.zeroPoints)
    terms.zeros = params.loadZeros(arguments["wzeros"], index, width);
  if (spec.inputZeroPoints) {
    Type type = width == 1 ? b.i32() : Type(b.vec(width, b.i32()));
    terms.sums =
        b.elements(b.load(b.advance(arguments["wsums"], index, b.i32()), type, /*constant=*/true));
  }
  return terms;
}

Value LinearEpilogue::rowSum(Value m, Int group, Value valid) {
  if (!spec.zeroPoints)
    return Value();
  return b.guarded(valid, b.i32(0), [&] {
    Value row = b.rowOf(arguments["sums"], m, spec.groups(), b.i32());
    return b.load(b.advance(row, group, b.i32()), b.i32(), true);
  });
}
Value LinearEpilogue::rowZero(Value m, Value valid) {
  if (!spec.inputZeroPoints)
    return Value();
  return b.guarded(valid, b.i32(0), [&] {
    return b.load(b.advance(arguments["zeros"], m, b.i32()), b.i32(), true);
  });
}
Value LinearEpilogue::rowScale(Value m, Value valid) {
  if (spec.isPartial)
    return Value();
  return b.guarded(valid, b.zero(b.f32()), [&] {
    return b.load(b.advance(arguments["scales"], m, b.f32()), b.f32(), true);
  });
}

LinearEpilogue::Values LinearEpilogue::addGroup(ValueRange accumulators, const ColumnTerms &columns,
                                                Value rowSum, Value rowZero, ValueRange t) {
  Values sums;
  for (int64_t i = 0; i < width; ++i) {
    Value dot = accumulators[i];
    if (shift && !shiftsLast())
      dot = b.shrArithmetic(dot, shift);
    if (rowSum)
      dot = b.sub(dot, b.mul(columns.zeros[i], rowSum));
    if (rowZero)
      dot = b.sub(dot, b.mul(rowZero, columns.sums[i]));
    if (spec.isPartial) {
      sums.push_back(b.bitcast(dot, b.f32()));
      continue;
    }
    Value scale = columns.scales[i], value = b.toFloat(dot);
    sums.push_back(t.empty() ? b.mulf(scale, value) : b.fma(scale, value, t[i]));
  }
  return sums;
}

void LinearEpilogue::write(Value m, Value n, Value rowScale, ValueRange t) {
  if (spec.isPartial)
    return writer.write(m, n, t);
  Values results;
  for (Value sum : t) {
    if (shift && shiftsLast())
      sum = b.mulf(sum, b.constant(b.f32(), 1.0 / static_cast<double>(int64_t{1} << shift)));
    results.push_back(b.mulf(rowScale, sum));
  }
  writer.write(m, n, results);
}

} // namespace easyquant::gpu
