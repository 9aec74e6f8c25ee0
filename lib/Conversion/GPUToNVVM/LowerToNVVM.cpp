//===- LowerToNVVM.cpp - Kernels to the NVVM dialect ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Codegen/GPU/Kernels.h"
#include "easyquant/Conversion/GPUToNVVM/GPUToNVVM.h"
#include "easyquant/Emit/EmitPTX.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Pass/PassManager.h"

namespace easyquant {
#define GEN_PASS_DEF_LOWERTONVVM
#include "easyquant/Conversion/GPUToNVVM/Passes.h.inc"
} // namespace easyquant

using namespace mlir;

namespace {

struct LowerToNVVM : public easyquant::impl::LowerToNVVMBase<LowerToNVVM> {
  using LowerToNVVMBase::LowerToNVVMBase;

  void getDependentDialects(DialectRegistry &registry) const override {
    LowerToNVVMBase::getDependentDialects(registry);
    easyquant::gpu::registerKernelDialects(registry);
    OpPassManager pm(ModuleOp::getOperationName());
    easyquant::gpu::buildLowerToNVVMPipeline(pm);
    pm.getDependentDialects(registry);
  }

  void runOnOperation() override {
    auto chip = easyquant::gpu::findChip(target.getValue());
    if (!chip) {
      getOperation().emitError("equant-lower-to-nvvm: ") << chip.error().message;
      return signalPassFailure();
    }
    for (auto kernels : getOperation().getOps<mlir::gpu::GPUModuleOp>())
      easyquant::gpu::setTarget(kernels, *chip);
    OpPassManager pm(ModuleOp::getOperationName());
    easyquant::gpu::buildLowerToNVVMPipeline(pm);
    if (failed(runPipeline(pm, getOperation())))
      signalPassFailure();
  }
};

} // namespace
