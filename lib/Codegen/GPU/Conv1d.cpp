//===- Conv1d.cpp - Causal depthwise convolution --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A thread has a column of one row, and reads the rows before it, which blocks next to it have
// brought to a cache. That of a sequence's last row leaves what the next step reads.
//
//===----------------------------------------------------------------------===//

#include "ScalarMath.h"
#include "SequenceRuns.h"

#include "easyquant/Codegen/GPU/Recurrent.h"

using namespace mlir;

namespace easyquant::gpu {
namespace {

class ConvolutionEmitter {
public:
  ConvolutionEmitter(KernelBuilder &b, const Conv1dSpec &spec, const KernelArguments &arguments,
                     Value row, Value column)
      : b(b), spec(spec), arguments(arguments), row(row), column(column),
        entry(PlaceOfRow(b, arguments, row).sequence), own(b, arguments, entry),
        sequence(b, arguments, firstOfRun(b, arguments, entry)),
        number(b.sub(row, sequence.firstRow)) {
    Value isLast = b.equal(row, b.sub(b.add(own.firstRow, own.rows), 1));
    leaves = b.both(isLast, leavesState(b, own));
  }

  void emit();

private:
  /// Number `i` of the rows that a slot holds, in this column.
  Value placeOf(Value slot, Value i) {
    Value first = b.advance(b.rowOf(arguments["state"], slot, spec.stateValues, b.f32()),
                            arguments["first"], b.f32());
    return b.advance(first, b.add(b.mul(i, spec.columns), column), b.f32());
  }
  /// What weight `i` is for.
  Value token(Value i);

  KernelBuilder &b;
  const Conv1dSpec &spec;
  const KernelArguments &arguments;
  Value row, column;
  Value entry;                      ///< of the table, whose row it is
  const StepSequence own, sequence; ///< that one, and the first one of the same sequence
  Value number;                     ///< of the row among all of the sequence
  Value leaves;                     ///< does it leave what the next step reads?
};

} // namespace

Value ConvolutionEmitter::token(Value i) {
  Value zero = b.constant(b.f32(), 0.0), before = b.sub(spec.width - 1, i);
  Value isKept = b.less(number, before), isThere = b.less(0, sequence.position);
  Value kept = b.guarded(b.both(isKept, isThere), zero,
                         [&] { return b.load(placeOf(sequence.slot, b.add(number, i)), b.f32()); });
  return b.guarded(b.less(before, b.add(number, 1)), kept, [&] {
    Value from = b.rowOf(arguments["x"], b.sub(row, before), arguments["x_stride"], b.f32());
    return b.load(b.advance(from, column, b.f32()), b.f32());
  });
}

void ConvolutionEmitter::emit() {
  auto loadOf = [&](StringRef name, Value at) {
    return b.load(b.advance(arguments[name], at, b.f32()), b.f32(), /*constant=*/true);
  };
  // -0 changes no product.
  Value sum = spec.bias ? loadOf("bias", column) : b.constant(b.f32(), -0.0);
  sum = b.forLoop(0, spec.width, 1, sum, [&](Value i, ValueRange sums) -> KernelBuilder::Values {
           Value value = token(i);
           b.ifThen(b.both(leaves, b.less(0, i)),
                    [&] { b.store(value, placeOf(own.nextSlot, b.sub(i, 1))); });
           return {b.fma(value, loadOf("w", b.add(b.mul(column, spec.width), i)), sums.front())};
         }).front();
  if (spec.silu)
    sum = b.mulf(sum, logistic(b, sum));
  Value to = b.rowOf(arguments["y"], row, arguments["y_stride"], b.f32());
  b.store(sum, b.advance(to, column, b.f32()));
}

Description getOrEmit(mlir::gpu::GPUModuleOp module, const Conv1dSpec &spec, const Chip &) {
  constexpr int64_t kColumns = 128; // of a block
  Description kernel;
  kernel.name = fmt::format("conv1d_{}x{}_of{}{}{}", spec.columns, spec.width, spec.stateValues,
                            spec.bias ? "_bias" : "", spec.silu ? "_silu" : "");
  kernel.threads = kColumns;
  kernel.grid[0].rowsPerBlock = 1;
  kernel.grid[1].factor = divideCeil(spec.columns, kColumns);
  kernel.parameters =
      Parameters()
          .readsRows("x", true, bytesOf(Float::F32)) // perhaps columns of wider rows
          .constants("w")
          .constants("bias", spec.bias)
          .writes("state")
          .number("first")
          .constants("sequences")
          .constants("row_places")
          .writesRows("y")
          .rows();
  return getOrEmitKernel(module, kernel, [&](KernelBuilder &b, const KernelArguments &arguments) {
    Value column = b.add(b.mul(b.block(1), kColumns), b.thread());
    Value inside = spec.columns % kColumns == 0 ? Value() : b.less(column, spec.columns);
    b.ifThen(inside, [&] { ConvolutionEmitter(b, spec, arguments, b.block(0), column).emit(); });
  });
}

} // namespace easyquant::gpu
