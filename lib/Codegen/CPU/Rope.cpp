//===- Rope.cpp - Rotary position embedding -------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Rope.h"

#include "RowKernel.h"
#include "Sequences.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace easyquant::cpu {

std::string symbolName(const RopeSpec &spec) {
  return llvm::formatv("rope_{0}x{1}_{2}{3}", spec.heads, spec.headDim, spec.positions,
                       spec.inverse ? "_inverse" : "");
}

Type rotationTable(KernelBuilder &b, int64_t positions, int64_t headDim) {
  return b.memref({positions, headDim / 2, 2}, b.f32());
}

void emitRotation(KernelBuilder &b, const RopeSpec &spec, Value x, Value table, Value row,
                  Value position) {
  int64_t half = spec.headDim / 2;
  forColumns(b, 0, half, b.target.lanes(), [&](Value column, int64_t lanes) {
    // Pairs (cos, sin), taken apart once for all heads.
    Value pairs = b.loadVector(2 * lanes, table, {position, column, 0});
    SmallVector<int64_t> even, odd;
    for (int64_t i = 0; i < lanes; ++i) {
      even.push_back(2 * i);
      odd.push_back(2 * i + 1);
    }
    Value cosine = b.shuffle(pairs, pairs, even), sine = b.shuffle(pairs, pairs, odd);
    Value minusSine = arith::NegFOp::create(b, sine);
    if (spec.inverse)
      std::swap(sine, minusSine);
    b.forLoop(0, spec.heads * spec.headDim, spec.headDim, [&](Value head) {
      Value first = b.add(head, column), second = b.add(first, half);
      Value u = b.loadVector(lanes, x, {row, first});
      Value v = b.loadVector(lanes, x, {row, second});
      b.storeVector(b.fma(u, cosine, b.mulf(v, minusSine)), x, {row, first});
      b.storeVector(b.fma(v, cosine, b.mulf(u, sine)), x, {row, second});
    });
  });
}

func::FuncOp getOrEmitRope(ModuleOp module, const RopeSpec &spec, const Target &target) {
  auto inputs = [&](KernelBuilder &b) {
    return SmallVector<Type>{b.rows(spec.heads * spec.headDim),
                             rotationTable(b, spec.positions, spec.headDim), sequencesType(b)};
  };
  return getOrEmitRowKernel(module, symbolName(spec), target, inputs,
                            [&](KernelBuilder &b, ValueRange args, Value begin, Value end) {
                              forPositions(b, args[2], begin, end, [&](Value row, Value position) {
                                emitRotation(b, spec, args[0], args[1], row, position);
                              });
                            });
}

} // namespace easyquant::cpu
