//===- GPURecurrentKernels.cpp - Layers that keep a state on GPUs ---------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPULauncher.h"

#include "easyquant/Codegen/GPU/Recurrent.h"

#include <limits>

using namespace mlir;
using namespace easyquant;

/// What kernels of layers with a recurrent state take: `stateValues` and `first` are numbers of 32
/// bits there.
template <typename Op>
static LogicalResult addState(LaunchBuilder &b, Arguments &arguments, Op op, int64_t &stateValues) {
  stateValues = static_cast<int64_t>(op.getState().getType().getValues());
  if (stateValues > std::numeric_limits<int32_t>::max())
    return op.emitError("site '") << siteOf(op) << "': sequences keep " << stateValues
                                  << " numbers, and GPU kernels know of 2147483647; compile it "
                                     "with --target cpu";
  arguments.set("state", b[op.getState()]);
  arguments.set("first", b.index(static_cast<int64_t>(op.getFirst())));
  arguments.set("sequences", b[op.getBatch()]);
  arguments.set("row_places", b.argument("row_places"));
  return success();
}

void GPULauncher::addRecurrent(KernelLibrary &library) const {
  library.add<lm::Conv1dOp>([*this](auto &b, auto op, const KernelOps &) -> LogicalResult {
    easyquant::gpu::Conv1dSpec spec;
    spec.columns = lm::columns(op.getInput());
    spec.width = lm::columns(op.getWeight());
    spec.bias = bool(op.getBias());
    spec.silu = op.getSilu();
    Arguments arguments(b, {{"x", b[op.getInput()]}});
    if (failed(addState(b, arguments, op, spec.stateValues)) ||
        failed(arguments.setWeight("w", op.getWeight())) ||
        failed(arguments.setWeight("bias", op.getBias())))
      return failure();
    arguments.set("y", b.result(op.getOutput(), b.rows(b[op.getInput()])));
    return launch(b, op, getOrEmit(kernels, spec, chip), arguments, Phase::Other);
  });
  library.add<lm::GatedDeltaOp>([*this](auto &b, auto op, const KernelOps &) -> LogicalResult {
    easyquant::gpu::GatedDeltaSpec spec;
    spec.keyHeads = static_cast<int64_t>(op.getKeyHeads());
    spec.keyDim = lm::columns(op.getKey()) / spec.keyHeads;
    spec.valueHeads = static_cast<int64_t>(op.getValueHeads());
    spec.valueDim = lm::columns(op.getValue()) / spec.valueHeads;
    spec.tiled = op.getTiled();
    if (spec.keyDim > easyquant::gpu::kMaxDeltaKeys)
      return op.emitError("site '")
             << siteOf(op) << "': keys of " << spec.keyDim
             << " dimensions have no GPU kernel, which are for up to "
             << easyquant::gpu::kMaxDeltaKeys << "; compile it with --target cpu";
    Arguments arguments(b, {{"q", b[op.getQuery()]},
                            {"k", b[op.getKey()]},
                            {"v", b[op.getValue()]},
                            {"decay", b[op.getDecay()]},
                            {"beta", b[op.getStrength()]}});
    if (failed(addState(b, arguments, op, spec.stateValues)) ||
        failed(arguments.setWeight("log_rate", op.getLogRate())) ||
        failed(arguments.setWeight("bias", op.getBias())))
      return failure();
    arguments.set("y", b.result(op.getOutput(), b.rows(b[op.getValue()])));
    return launch(b, op, getOrEmit(kernels, spec, chip), arguments, Phase::Other);
  });
}
