//===- EmitGPUKernels.cpp - The GPU kernels that a model needs ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelSpecs.h"

#include "easyquant/Codegen/GPU/Emit.h"
#include "easyquant/Conversion/GPUKernels/GPUKernels.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace easyquant {
#define GEN_PASS_DEF_EMITGPUKERNELS
#include "easyquant/Conversion/GPUKernels/Passes.h.inc"
} // namespace easyquant

using namespace mlir;
using namespace easyquant;

namespace {

/// How `value` is quantized for linears that alone read it, if so.
std::optional<easyquant::gpu::LinearSpec> onlyLinearUse(Value value) {
  std::optional<easyquant::gpu::LinearSpec> common;
  for (Operation *user : value.getUsers()) {
    auto linear = dyn_cast<equant::LinearOp>(user);
    auto spec = linear ? linearSpec(linear) : std::nullopt;
    if (!spec || !linear.getInputScheme()->getDynamic() ||
        (common &&
         (common->groupSize != spec->groupSize || common->zeroPoints != spec->zeroPoints)))
      return std::nullopt;
    common = spec;
  }
  return common;
}

struct EmitGPUKernels : public easyquant::impl::EmitGPUKernelsBase<EmitGPUKernels> {
  using EmitGPUKernelsBase::EmitGPUKernelsBase;

  void runOnOperation() override {
    auto target = easyquant::gpu::findChip(chip.getValue());
    if (!target) {
      getOperation().emitError("equant-emit-gpu-kernels: ") << target.error().message;
      return signalPassFailure();
    }
    ModuleOp module = getOperation();
    OpBuilder b(module.getBodyRegion());
    mlir::gpu::GPUModuleOp kernels = mlir::gpu::GPUModuleOp::create(b, module.getLoc(), "kernels");
    WalkResult result = module.walk([&](Operation *op) {
      SmallVector<StringRef> names;
      auto linear = dyn_cast<equant::LinearOp>(op);
      if (auto spec = linear ? linearSpec(linear) : std::nullopt) {
        // Of an input that others read too, the codes are made by a kernel of their own.
        if (!onlyLinearUse(linear.getInput()) || !producesCodes(linear.getInput()))
          names.push_back(emitRow(kernels, quantizing({}, *spec, spec->k), *target));
        for (const easyquant::gpu::LinearKernel &kernel : linearKernels(*spec, *target))
          names.push_back(getOrEmitLinear(kernels, *spec, kernel, *target).getName());
      } else if (auto spec = weightOnlySpec(op)) {
        for (const easyquant::gpu::WeightOnlyKernel &kernel : weightOnlyKernels(*spec, *target))
          names.push_back(getOrEmitLinear(kernels, *spec, kernel, *target).getName());
      } else if (auto row = rowSpec(op)) {
        if (auto use = onlyLinearUse(op->getResult(0)); use && !op->use_empty())
          *row = quantizing(*row, *use, row->columns);
        names.push_back(emitRow(kernels, *row, *target));
      } else if (failed(emitHeads(kernels, op, *target, names))) {
        return WalkResult::interrupt();
      }
      if (names.empty())
        return WalkResult::advance();
      op->setAttr(kKernelsAttr, b.getArrayAttr(llvm::map_to_vector(names, [&](StringRef name) {
        return Attribute(SymbolRefAttr::get(b.getContext(), kernels.getName(),
                                            FlatSymbolRefAttr::get(b.getContext(), name)));
      })));
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }

private:
  /// What is between projections and attention, and attention itself.
  static LogicalResult emitHeads(mlir::gpu::GPUModuleOp kernels, Operation *op,
                                 const easyquant::gpu::Chip &chip,
                                 SmallVectorImpl<StringRef> &names) {
    if (auto rope = dyn_cast<lm::RopeOp>(op))
      names.push_back(getOrEmitHeads(kernels, headsSpec(rope), chip).getName());
    else if (auto norm = dyn_cast<lm::HeadRmsNormOp>(op))
      names.push_back(getOrEmitHeads(kernels, headsSpec(norm), chip).getName());
    if (!isa<lm::AttentionOp, equant::AttentionOp>(op))
      return success();
    easyquant::gpu::AttentionSpec spec = gpuAttentionSpec(op);
    auto choices = attentionKernels(spec, chip);
    if (!choices)
      return op->emitError(choices.error().message);
    for (const easyquant::gpu::AttentionKernel &kernel : *choices)
      for (mlir::gpu::GPUFuncOp function : getOrEmitAttention(kernels, spec, kernel, chip))
        names.push_back(function.getName());
    return success();
  }
  static bool producesCodes(Value value) {
    Operation *producer = value.getDefiningOp();
    return producer && rowSpec(producer);
  }
  static easyquant::gpu::RowSpec
  quantizing(easyquant::gpu::RowSpec row, const easyquant::gpu::LinearSpec &use, int64_t columns) {
    row.columns = columns;
    row.quantization = easyquant::gpu::RowQuantization::Dynamic;
    row.sums = use.zeroPoints;
    row.groupSize = row.sums ? use.groupSize : 0;
    return row;
  }
  static StringRef emitRow(mlir::gpu::GPUModuleOp kernels, const easyquant::gpu::RowSpec &spec,
                           const easyquant::gpu::Chip &chip) {
    return getOrEmitRowOp(kernels, spec, chip).getName();
  }
};

} // namespace
