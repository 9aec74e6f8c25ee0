//===- EmitGPUBinary.cpp - Kernels to PTX and machine code ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Conversion/GPUToNVVM/GPUToNVVM.h"
#include "easyquant/Emit/Assemble.h"
#include "easyquant/Emit/EmitPTX.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Support/FileUtilities.h"
#include "llvm/Support/ToolOutputFile.h"

namespace easyquant {
#define GEN_PASS_DEF_EMITGPUBINARY
#include "easyquant/Conversion/GPUToNVVM/Passes.h.inc"
} // namespace easyquant

using namespace mlir;

namespace {

struct EmitGPUBinary : public easyquant::impl::EmitGPUBinaryBase<EmitGPUBinary> {
  using EmitGPUBinaryBase::EmitGPUBinaryBase;

  void getDependentDialects(DialectRegistry &registry) const override {
    easyquant::gpu::registerTranslations(registry);
  }

  void runOnOperation() override {
    if (failed(emit(getOperation())))
      signalPassFailure();
  }

private:
  LogicalResult emit(ModuleOp module) {
    auto modules = module.getOps<mlir::gpu::GPUModuleOp>();
    if (std::distance(modules.begin(), modules.end()) != 1)
      return module.emitError("equant-emit-gpu-binary: expected one gpu.module of kernels, found ")
             << std::distance(modules.begin(), modules.end());
    mlir::gpu::GPUModuleOp kernels = *modules.begin();
    auto targets = kernels.getTargetsAttr();
    auto target = targets && targets.size() == 1 ? dyn_cast<NVVM::NVVMTargetAttr>(targets[0])
                                                 : NVVM::NVVMTargetAttr();
    if (!target)
      return kernels.emitError("has no #nvvm.target: run equant-lower-to-nvvm first");
    auto chip = easyquant::gpu::findChip(target.getChip().str());
    if (!chip)
      return kernels.emitError(chip.error().message);
    FailureOr<std::string> text = easyquant::gpu::emitPTX(kernels, *chip);
    if (failed(text))
      return failure();
    if (!ptx.empty() && failed(write(kernels, ptx, *text)))
      return failure();
    if (cubin.empty())
      return success();
    auto assembler = easyquant::gpu::Assembler::find();
    if (!assembler)
      return kernels.emitError(assembler.error().message);
    auto code = assembler->assemble(*text, std::string(chip->name));
    if (!code)
      return kernels.emitError(code.error().message);
    return write(kernels, cubin, code->code);
  }

  static LogicalResult write(mlir::gpu::GPUModuleOp kernels, StringRef path, StringRef text) {
    std::string error;
    auto file = openOutputFile(path, &error);
    if (!file)
      return kernels.emitError(error);
    file->os() << text;
    file->keep();
    return success();
  }
};

} // namespace
