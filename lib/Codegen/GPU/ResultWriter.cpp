//===- ResultWriter.cpp - What linears do with their sums -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ResultWriter.h"

using namespace mlir;

namespace easyquant::gpu {

void ResultWriter::writeColumns(Value row, Value n, ValueRange values) {
  Type element = b.type(spec.output);
  int64_t count = values.size();
  Value at = b.advance(row, n, element);
  Type type = count == 1 ? element : Type(b.vec(count, element));
  Type floats = count == 1 ? b.f32() : Type(b.vec(count, b.f32()));
  Value bias, old;
  if (spec.bias)
    bias = b.load(b.advance(arguments["bias"], n, b.f32()), floats, /*constant=*/true);
  if (spec.accumulate)
    old = b.toF32(b.load(at, type));
  KernelBuilder::Values results;
  for (auto [i, value] : llvm::enumerate(values)) {
    if (bias)
      value = b.addf(value, b.extract(bias, i));
    if (old)
      value = b.addf(b.extract(old, i), value);
    results.push_back(value);
  }
  b.store(b.fromF32(b.join(results), spec.output), at);
}

void ResultWriter::write(Value m, Value n, ValueRange values) {
  Value row = b.rowOf(arguments["y"], m, arguments["y_stride"], b.type(spec.output));
  if (columnsAreWhole)
    return writeColumns(row, n, values);
  if (spec.n % width == 0)
    return b.ifThen(b.less(n, spec.n), [&] { writeColumns(row, n, values); });
  for (auto [i, value] : llvm::enumerate(values)) {
    Value column = b.add(n, i);
    b.ifThen(b.less(column, spec.n), [&] { writeColumns(row, column, value); });
  }
}

} // namespace easyquant::gpu
