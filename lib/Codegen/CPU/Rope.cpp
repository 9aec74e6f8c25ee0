//===- Rope.cpp - Rotary position embedding -------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowKernel.h"
#include "Sequences.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace easyquant::cpu {

std::string symbolName(const RopeSpec &spec) {
  return llvm::formatv("rope_{0}x{1}_{2}{3}{4}", spec.heads, spec.headDim, spec.positions,
                       partOfHead(spec.rotated(), spec.headDim), spec.inverse ? "_inverse" : "");
}

std::string partOfHead(int64_t rotated, int64_t headDim) {
  return rotated == headDim ? "" : llvm::formatv("_first{0}", rotated).str();
}

Type rotationTable(Builder &b, int64_t positions, int64_t rotated) {
  return MemRefType::get({positions, rotated / 2, 2}, b.getF32Type());
}

void emitRotation(KernelBuilder &b, const RopeSpec &spec, Value x, Value table, Value row,
                  Value position) {
  int64_t half = spec.rotated() / 2;
  forColumns(b, 0, half, b.target.lanes(), [&](Value column, int64_t lanes) {
    // Pairs (cos, sin), taken apart once for all heads.
    Value pairs = b.loadVector(2 * lanes, table, {position, column, 0});
    SmallVector<int64_t> even, odd;
    for (int64_t i = 0; i < lanes; ++i) {
      even.push_back(2 * i);
      odd.push_back(2 * i + 1);
    }
    Value cosine = b.shuffle(pairs, pairs, even), sine = b.shuffle(pairs, pairs, odd);
    Value minusSine = b.negate(sine);
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

Description describe(const RopeSpec &spec, MLIRContext *context) {
  Describer d(context, symbolName(spec), Describer::Over::Rows);
  d.writes("x", d.rows(spec.heads * spec.headDim));
  d.reads("table", rotationTable(d, spec.positions, spec.rotated()));
  d.reads("sequences", sequencesType(d));
  return std::move(d.kernel);
}

func::FuncOp getOrEmitRope(ModuleOp module, const RopeSpec &spec, const Target &target) {
  return getOrEmitRowKernel(
      module, spec, target,
      [&](KernelBuilder &b, const KernelArguments &in, Value begin, Value end) {
        forPositions(b, in["sequences"], begin, end, [&](Value row, Value position) {
          emitRotation(b, spec, in["x"], in["table"], row, position);
        });
      });
}

} // namespace easyquant::cpu
