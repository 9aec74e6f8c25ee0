//===- SequenceRuns.cpp - Runs of a sequence in a step as IR --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SequenceRuns.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace easyquant::gpu {

Value countOfSequences(KernelBuilder &b, const KernelArguments &arguments) {
  return b.add(PlaceOfRow(b, arguments, b.sub(arguments["rows"], 1)).sequence, 1);
}

Value goesOn(KernelBuilder &b, const StepSequence &sequence) {
  return b.equal(sequence.slot, formats::kGoesOn);
}

Value leavesState(KernelBuilder &b, const StepSequence &sequence) {
  return b.less(formats::kNobodyReads, sequence.nextSlot);
}

/// From `start` on in steps of `stride` to the first number for which `goes` does not hold.
static Value walk(KernelBuilder &b, Value start, int64_t stride,
                  llvm::function_ref<Value(Value)> goes) {
  auto loop = scf::WhileOp::create(
      b, start.getType(), start,
      [&](OpBuilder &, Location, ValueRange numbers) {
        scf::ConditionOp::create(b, goes(numbers.front()), numbers);
      },
      [&](OpBuilder &, Location, ValueRange numbers) {
        scf::YieldOp::create(b, b.add(numbers.front(), stride));
      });
  return loop.getResult(0);
}

Value firstOfRun(KernelBuilder &b, const KernelArguments &arguments, Value number) {
  return walk(b, number, -1, [&](Value n) { return goesOn(b, StepSequence(b, arguments, n)); });
}

Value endOfRun(KernelBuilder &b, const KernelArguments &arguments, Value number) {
  Value count = countOfSequences(b, arguments), no = b.equal(0, 1);
  return walk(b, b.add(number, 1), 1, [&](Value n) {
    return b.guarded(b.less(n, count), no,
                     [&] { return goesOn(b, StepSequence(b, arguments, n)); });
  });
}

} // namespace easyquant::gpu
