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
  auto load = [&](StringRef name, Type element) {
    Type type = width == 1 ? element : Type(b.vec(width, element));
    Value loaded = b.load(b.advance(arguments[name], index, element), type, /*constant=*/true);
    Values values;
    for (int64_t i = 0; i < width; ++i)
      values.push_back(b.extract(loaded, i));
    return values;
  };
  ColumnTerms terms;
  terms.scales = load("wscales", b.f32());
  if (spec.zeroPoints)
    for (Value zero : load("wzeros", b.i8()))
      terms.zeros.push_back(arith::ExtSIOp::create(b, b.i32(), zero));
  if (spec.inputZeroPoints)
    terms.sums = load("wsums", b.i32());
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
    Value scale = columns.scales[i], value = b.toFloat(dot);
    sums.push_back(t.empty() ? b.mulf(scale, value) : b.fma(scale, value, t[i]));
  }
  return sums;
}

void LinearEpilogue::writeColumns(Value row, Value n, Value rowScale, ValueRange t) {
  Type element = b.type(spec.output);
  int64_t count = t.size();
  Value at = b.advance(row, n, element);
  Type type = count == 1 ? element : Type(b.vec(count, element));
  auto pick = [&](StringRef name) {
    return b.load(b.advance(arguments[name], n, b.f32()),
                  count == 1 ? b.f32() : Type(b.vec(count, b.f32())), true);
  };
  Value bias = spec.bias ? pick("bias") : Value();
  Value old = spec.accumulate ? b.toF32(b.load(at, type)) : Value();
  Values results;
  for (int64_t i = 0; i < count; ++i) {
    Value sum = t[i];
    if (shift && shiftsLast())
      sum = b.mulf(sum, b.constant(b.f32(), 1.0 / static_cast<double>(int64_t{1} << shift)));
    Value value = b.mulf(rowScale, sum);
    if (bias)
      value = b.addf(value, b.extract(bias, i));
    if (old)
      value = b.addf(b.extract(old, i), value);
    results.push_back(value);
  }
  b.store(b.fromF32(b.join(results), spec.output), at);
}

void LinearEpilogue::write(Value m, Value n, Value rowScale, ValueRange t) {
  Value row = b.rowOf(arguments["y"], m, arguments["y_stride"], b.type(spec.output));
  if (columnsAreWhole)
    return writeColumns(row, n, rowScale, t);
  if (spec.n % width == 0)
    return b.ifThen(b.less(n, spec.n), [&] { writeColumns(row, n, rowScale, t); });
  for (int64_t i = 0; i < width; ++i) {
    Value column = b.add(n, i);
    b.ifThen(b.less(column, spec.n), [&] { writeColumns(row, column, rowScale, t[i]); });
  }
}

} // namespace easyquant::gpu
