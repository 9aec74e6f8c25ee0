//===- InstructionsArm.cpp - NEON with dot products ---------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Instructions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace easyquant::cpu::arm {

/// `of(i)` of each register of `width` lanes, joined; `count` is a power of two.
static Value joinRegisters(KernelBuilder &b, int64_t count, llvm::function_ref<Value(int64_t)> of) {
  SmallVector<Value> parts;
  for (int64_t i = 0; i < count; ++i)
    parts.push_back(of(i));
  while (parts.size() > 1) {
    SmallVector<Value> joined;
    for (size_t i = 0; i < parts.size(); i += 2)
      joined.push_back(b.join(parts[i], parts[i + 1]));
    parts = std::move(joined);
  }
  return parts[0];
}

Value dotS8S8(KernelBuilder &b, Value acc, Value a, Value c) {
  const int64_t lanes = cast<VectorType>(acc.getType()).getNumElements();
  return joinRegisters(b, lanes / 4, [&](int64_t i) {
    return b.intrinsic("llvm.aarch64.neon.sdot", b.vec(4, b.i32()),
                       {b.slice(acc, 4 * i, 4), b.slice(a, 16 * i, 16), b.slice(c, 16 * i, 16)});
  });
}

Value dotMatrix(KernelBuilder &b, Value acc, Value rows, Value outputs) {
  return joinRegisters(b, 2, [&](int64_t i) {
    return b.intrinsic("llvm.aarch64.neon.smmla", b.vec(4, b.i32()),
                       {b.slice(acc, 4 * i, 4), rows, b.slice(outputs, 16 * i, 16)});
  });
}

Value dotPairs(KernelBuilder &b, Value a, Value c) {
  auto low = [&](Value words) { return b.shrArithmetic(b.shl(words, 16), 16); };
  auto high = [&](Value words) { return b.shrArithmetic(words, 16); };
  return b.addi(b.muli(low(a), low(c)), b.muli(high(a), high(c)));
}

Value lookup(KernelBuilder &b, Value table, Value index) {
  // The bytes 4i .. 4i + 3 of the table, which one to four registers hold.
  const int64_t lanes = cast<VectorType>(index.getType()).getNumElements();
  const int64_t size = cast<VectorType>(table.getType()).getNumElements(), registers = size / 4;
  VectorType bytes = b.vec(16, b.i8());
  SmallVector<Value> operands;
  for (int64_t i = 0; i < registers; ++i)
    operands.push_back(b.bitcast(b.slice(table, 4 * i, 4), bytes));
  Value inTable = b.andi(index, size - 1);
  Value places = b.addi(b.muli(inTable, b.constant(index.getType(), int64_t(0x04040404))),
                        b.constant(index.getType(), int64_t(0x03020100)));
  const std::string name = "llvm.aarch64.neon.tbl" + std::to_string(registers);
  return joinRegisters(b, lanes / 4, [&](int64_t i) {
    SmallVector<Value> all = operands;
    all.push_back(b.bitcast(b.slice(places, 4 * i, 4), bytes));
    return b.bitcast(b.intrinsic(name, bytes, all), b.vec(4, b.f32()));
  });
}

Value lookupBytes(KernelBuilder &b, Value table, Value index) {
  const int64_t lanes = cast<VectorType>(index.getType()).getNumElements();
  return joinRegisters(b, lanes / 16, [&](int64_t i) {
    return b.intrinsic("llvm.aarch64.neon.tbl1", b.vec(16, b.i8()),
                       {table, b.slice(index, 16 * i, 16)});
  });
}

} // namespace easyquant::cpu::arm
