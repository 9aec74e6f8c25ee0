//===- Hadamard.cpp - Rows in a rotated basis -----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Hadamard.h"

#include <cmath>

using namespace mlir;

namespace easyquant::cpu {

/// The stage of Numerics/Hadamard.h that adds and subtracts lanes `distance` apart, in a register.
static Value addAndSubtractLanes(KernelBuilder &b, Value x, int64_t distance) {
  auto type = cast<VectorType>(x.getType());
  SmallVector<int64_t> partners, chosen;
  for (int64_t lane = 0; lane < type.getNumElements(); ++lane) {
    partners.push_back(lane ^ distance);
    chosen.push_back(lane & distance ? type.getNumElements() + lane : lane);
  }
  Value partner = b.shuffle(x, x, partners);
  return b.shuffle(b.addf(x, partner), b.subf(partner, x), chosen);
}

/// The stages of Numerics/Hadamard.h that add and subtract whole registers.
static void addAndSubtractRegisters(KernelBuilder &b, MutableArrayRef<Value> registers) {
  const auto count = static_cast<int64_t>(registers.size());
  for (int64_t distance = 1; distance < count; distance *= 2)
    for (int64_t i = 0; i < count; ++i) {
      if (i & distance)
        continue;
      Value low = registers[i], high = registers[i + distance];
      registers[i] = b.addf(low, high);
      registers[i + distance] = b.subf(low, high);
    }
}

/// One pass: `count` vectors that `distance` columns lie between; the last one has the factor.
static SmallVector<Value> emitPass(KernelBuilder &b, ArrayRef<Value> columns, bool isLast,
                                   int64_t block, llvm::function_ref<Value(Value column)> load) {
  SmallVector<Value> registers = llvm::map_to_vector(columns, load);
  addAndSubtractRegisters(b, registers);
  if (isLast) {
    Value factor =
        b.constant(registers.front().getType(), 1 / std::sqrt(static_cast<double>(block)));
    for (Value &x : registers)
      x = b.mulf(x, factor);
  }
  return registers;
}

static SmallVector<Value> columnsFrom(KernelBuilder &b, Value first, int64_t distance,
                                      int64_t count) {
  SmallVector<Value> columns;
  for (int64_t i = 0; i < count; ++i)
    columns.push_back(b.add(first, i * distance));
  return columns;
}

void emitHadamard(KernelBuilder &b, const HadamardRow &row) {
  const int64_t lanes = b.target.lanes();
  auto pass = [&](Value first, int64_t distance, int64_t count,
                  llvm::function_ref<Value(Value column)> load) {
    SmallVector<Value> columns = columnsFrom(b, first, distance, count);
    SmallVector<Value> values =
        emitPass(b, columns, distance * count == row.block, row.block, load);
    for (auto [value, column] : llvm::zip_equal(values, columns))
      b.storeVector(value, row.rotated, row.at(column));
  };
  int64_t together = row.together;
  b.forLoop(0, row.columns, together, [&](Value first) {
    pass(first, lanes, together / lanes, [&](Value column) {
      Value x = row.load(column);
      for (int64_t distance = 1; distance < lanes; distance *= 2)
        x = addAndSubtractLanes(b, x, distance);
      return x;
    });
  });
  while (together < row.block) {
    const int64_t distance = together, count = std::min<int64_t>(8, row.block / distance);
    together *= count;
    b.forLoop(0, row.columns, together, [&](Value block) {
      b.forLoop(0, distance, lanes, [&](Value offset) {
        pass(b.add(block, offset), distance, count,
             [&](Value column) { return b.loadVector(lanes, row.rotated, row.at(column)); });
      });
    });
  }
}

void emitHadamardAcross(KernelBuilder &b, int64_t columns, int64_t block, Value memory,
                        llvm::function_ref<Value(Value dim)> at,
                        llvm::function_ref<Value(Value x)> finish) {
  for (int64_t distance = 1; distance < block;) {
    const int64_t count = std::min<int64_t>(8, block / distance);
    b.forLoop(0, columns, distance * count, [&](Value first) {
      b.forLoop(0, distance, 1, [&](Value offset) {
        SmallVector<Value> dims = columnsFrom(b, b.add(first, offset), distance, count);
        const bool isLast = distance * count == block;
        SmallVector<Value> values = emitPass(b, dims, isLast, block, [&](Value dim) {
          return b.loadVector(b.target.lanes(), memory, {at(dim)});
        });
        for (auto [value, dim] : llvm::zip_equal(values, dims))
          b.storeVector(isLast ? finish(value) : value, memory, {at(dim)});
      });
    });
    distance *= count;
  }
}

} // namespace easyquant::cpu
