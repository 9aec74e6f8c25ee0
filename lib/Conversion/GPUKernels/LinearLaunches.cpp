//===- LinearLaunches.cpp - Linears ---------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ProgramBuilder.h"

#include "easyquant/Codegen/GPU/Emit.h"

using namespace mlir;
using namespace easyquant;

/// What is multiplied with what, for messages.
static std::string describeSchemes(equant::LinearOp op) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "weights as " << op.getWeightScheme();
  if (op.getInputScheme())
    os << " on activations as " << *op.getInputScheme();
  else
    os << " on float activations";
  return text;
}

static LogicalResult refuse(equant::LinearOp op) {
  auto order =
      op.getInputScheme() ? numerics::FragmentOrder::Bytes : numerics::FragmentOrder::Halves;
  auto layout = numerics::fragmentLayout(op.getWeightScheme().toNumerics(), order,
                                         columnsOf(op.getOutput()), columnsOf(op.getInput()));
  return op.emitError("site '") << siteOf(op) << "': "
                                << (layout ? "no GPU kernel for " + describeSchemes(op)
                                           : layout.error().message)
                                << "; compile it with --target cpu or another scheme";
}

/// Do the kernels find the weight as they read it?
static LogicalResult checkLayout(equant::LinearOp op) {
  auto order = op.getInputScheme() ? equant::FragmentOrder::Bytes : equant::FragmentOrder::Halves;
  if (op.getLayoutAttr() == equant::LayoutAttr::mmaSync(op.getContext(), order))
    return success();
  return op.emitOpError("expected weights packed as fragments in the order of its activations: run "
                        "equant-materialize-weights with target=gpu first");
}

LogicalResult ProgramBuilder::emitLinear(equant::LinearOp op) {
  if (!op.getInputScheme())
    return emitFloatLinear(op);
  std::optional<easyquant::gpu::LinearSpec> spec = linearSpec(op);
  if (!spec)
    return refuse(op);
  if (failed(checkLayout(op)))
    return failure();
  FailureOr<Codes> input = quantizedRows(op, op.getInput(), CodesKind::of(op));
  if (failed(input))
    return failure();
  Arguments arguments;
  arguments["codes"] = place(Kind::Arena, input->codes);
  arguments["scales"] = place(Kind::Arena, input->scales);
  arguments["sums"] = place(Kind::Arena, input->sums);
  arguments["zeros"] = place(Kind::Arena, input->zeros);
  addCodes(arguments, op);
  if (op.getCodeSums())
    arguments["wsums"] = constants.lookup(op.getCodeSums());
  if (op.getBias())
    arguments["bias"] = constants.lookup(op.getBias());
  add(arguments, "y", linearDestination(op, input->lastRows, spec->accumulate));
  return forRowRanges(linearKernels(*spec, chip), [&](const easyquant::gpu::LinearKernel &kernel,
                                                      RowRange range, int64_t) {
    getOrEmitLinear(kernels, *spec, kernel, chip);
    return launch(op, kernel.description, arguments, Phase::Gemm, input->lastRows, range);
  });
}

LogicalResult ProgramBuilder::emitFloatLinear(Operation *op) {
  std::optional<easyquant::gpu::WeightOnlySpec> spec = weightOnlySpec(op);
  auto quantized = dyn_cast<equant::LinearOp>(op);
  if (!spec)
    return refuse(quantized);
  if (quantized && failed(checkLayout(quantized)))
    return failure();
  Arguments arguments;
  Value bias;
  if (quantized) {
    bias = quantized.getBias();
    addCodes(arguments, quantized);
  } else {
    auto linear = cast<lm::LinearOp>(op);
    bias = linear.getBias();
    if (!halves.contains(linear.getWeight()))
      return op->emitOpError("its weight is not in the weights for GPUs as fragments of bf16");
    arguments["w"] = halves.lookup(linear.getWeight());
  }
  if (bias)
    arguments["bias"] = constants.lookup(bias);
  std::optional<CodesKind> kind = quantizedUse(op->getOpOperand(0), kRules);
  FailureOr<Codes> input = quantizedRows(op, op->getOperand(0), *kind);
  if (failed(input))
    return failure();
  arguments["x"] = place(Kind::Arena, input->codes);
  arguments["x_stride"] = integer(easyquant::gpu::paddedColumns(spec->k));
  add(arguments, "y", linearDestination(op, input->lastRows, spec->accumulate));
  return forRowRanges(
      weightOnlyKernels(*spec, chip),
      [&](const easyquant::gpu::WeightOnlyKernel &kernel, RowRange range, int64_t most) {
        arguments["partials"] = scratch(kernel.partialBytes(most));
        arguments["counters"] = counters(kernel.counterCount(most));
        getOrEmitLinear(kernels, *spec, kernel, chip);
        return launch(op, kernel.description, arguments, Phase::Gemm, input->lastRows, range);
      });
}
