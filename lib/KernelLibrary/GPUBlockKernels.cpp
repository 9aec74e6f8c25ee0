//===- GPUBlockKernels.cpp - Launches of products of FP4 ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPULauncher.h"

using namespace mlir;
using namespace easyquant;
using numerics::FragmentOrder;

/// An error where a chip has no such products.
static LogicalResult checkChip(Operation *op, const easyquant::gpu::Chip &chip) {
  if (chip.multipliesFP4())
    return success();
  return op->emitOpError("is of codes that ")
         << chip.name
         << " does not multiply: run equant-legalize-activations with target=" << chip.name;
}

LogicalResult GPULauncher::blockCodes(LaunchBuilder &b, equant::QuantizeRowsOp op,
                                      const KernelOps &kernel) const {
  if (kernel.ops.size() != 1)
    return op.emitOpError("makes codes that a kernel of their own makes, not another op's");
  if (failed(checkChip(op, chip)))
    return failure();
  Arguments arguments(b, {{"x", b[op.getInput()]}});
  arguments.set("scale", b.constant(op.getScaleAttr()));
  arguments.setResultCodes(op.getRows(), b.rows(b[op.getInput()]));
  const easyquant::gpu::BlockCodesSpec spec{lm::columns(op.getInput())};
  return launch(b, op, getOrEmit(kernels, spec, chip), arguments, Phase::Quantize);
}

LogicalResult GPULauncher::blockScaledLinear(LaunchBuilder &b, equant::PackedLinearOp op,
                                             const KernelOps &kernel) const {
  equant::WeightType type = op.getWeight().getType();
  const numerics::Scheme scheme = type.getScheme().toNumerics();
  if (failed(checkChip(op, chip)))
    return failure();
  if (!easyquant::gpu::isBlockScaled(scheme, op.getRows().getScheme().toNumerics()))
    return op.emitError("site '") << siteOf(op) << "': no GPU kernel for weights as "
                                  << type.getScheme() << " on codes as "
                                  << op.getRows().getScheme();
  if (type.getLayout() !=
      equant::LayoutAttr::get(op.getContext(), numerics::nameOf(FragmentOrder::M16N8K16)))
    return op.emitOpError("expected weights packed as fragments of m16n8k16: run "
                          "equant-materialize-weights with target=gpu first");
  easyquant::gpu::BlockScaledSpec spec;
  static_cast<easyquant::gpu::WeightCodec &>(spec) = easyquant::gpu::WeightCodec::of(scheme);
  spec.n = type.getRows();
  spec.k = type.getColumns();
  spec.bias = op.getBias() != nullptr;
  Arguments arguments(b);
  arguments.setCodes(op.getInput());
  if (failed(arguments.setWeight(op.getWeight(), kWeightParts)) ||
      failed(arguments.setWeight("bias", op.getBias())))
    return failure();
  if (Value experts = op.getExperts())
    return expertLinear(b, op, kernel, spec, experts, arguments);
  spec.accumulate = bool(kernel.next<lm::AddOp>());
  arguments.set("y", b.linearResult(kernel, b.rows(b[op.getInput()])));
  return forRowRanges(
      b, inOneOrder(blockScaledKernels(spec, chip), op),
      [&](const easyquant::gpu::BlockScaledKernel &choice, RowRange range, int64_t) {
        return launch(b, op, getOrEmit(kernels, spec, choice), arguments, Phase::Gemm, range);
      });
}
