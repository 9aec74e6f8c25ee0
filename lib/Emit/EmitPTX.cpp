//===- EmitPTX.cpp - Kernels to PTX ---------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Emit/EmitPTX.h"

#include "GenerateCode.h"
#include "OrderLaunches.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/GPUToNVVM/GPUToNVVMPass.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/GPU/GPUToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"

using namespace mlir;

namespace easyquant::gpu {

/// PTX of this version knows all that the kernels use; the oldest that does keeps the PTX
/// acceptable to the oldest driver.
static const char *ptxVersion(const Chip &chip) {
  if (chip.id >= ChipId::SM120a)
    return "+ptx87";
  return chip.multipliesFP8() ? "+ptx84" : "+ptx80";
}

void setTarget(mlir::gpu::GPUModuleOp kernels, const Chip &chip) {
  auto target = NVVM::NVVMTargetAttr::get(kernels.getContext(), /*optLevel=*/2,
                                          "nvptx64-nvidia-cuda", chip.name);
  kernels.setTargetsAttr(ArrayAttr::get(kernels.getContext(), target));
}

void buildLowerToNVVMPipeline(OpPassManager &pm) {
  OpPassManager &kernels = pm.nest<mlir::gpu::GPUModuleOp>();
  kernels.addPass(createOrderLaunchesPass());
  kernels.addPass(createCanonicalizerPass());
  kernels.addPass(createCSEPass());
  kernels.addPass(createSCFToControlFlowPass());
  // Left to convert-gpu-to-nvvm, math would become calls of libdevice, which nothing links.
  kernels.addPass(createConvertMathToLLVMPass());
  kernels.addPass(createConvertVectorToLLVMPass());
  kernels.addPass(createArithToLLVMConversionPass());
  kernels.addPass(createConvertGpuOpsToNVVMOps());
  kernels.addPass(createCanonicalizerPass());
  kernels.addPass(createCSEPass());
  kernels.addPass(createReconcileUnrealizedCastsPass());
}

void registerTranslations(DialectRegistry &registry) {
  registerBuiltinDialectTranslation(registry);
  registerGPUDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerNVVMDialectTranslation(registry);
}

static std::unique_ptr<llvm::TargetMachine> createTargetMachine(const Chip &chip,
                                                                std::string &error) {
  static const bool initialized = [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    return true;
  }();
  (void)initialized;
  llvm::Triple triple("nvptx64-nvidia-cuda");
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return nullptr;
  return std::unique_ptr<llvm::TargetMachine>(
      target->createTargetMachine(triple, chip.name, ptxVersion(chip), llvm::TargetOptions(),
                                  std::nullopt, std::nullopt, llvm::CodeGenOptLevel::Aggressive));
}

static FailureOr<Code> compileLowered(mlir::gpu::GPUModuleOp module, const Chip &chip) {
  if (failed(verify(module)))
    return failure();
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine = createTargetMachine(chip, error);
  if (!machine)
    return module.emitError("no PTX code generator in this LLVM: ") << error;

  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> llvmModule =
      translateModuleToLLVMIR(module, context, module.getName());
  if (!llvmModule)
    return module.emitError("translation of the kernels to LLVM IR failed");
  llvmModule->setTargetTriple(machine->getTargetTriple());
  llvmModule->setDataLayout(machine->createDataLayout());
  return generateCode(module.getLoc(), *llvmModule, *machine, Passes::Default,
                      llvm::CodeGenFileType::AssemblyFile);
}

FailureOr<std::string> emitPTX(mlir::gpu::GPUModuleOp module, const Chip &chip) {
  FailureOr<Code> text =
      keptCode(module, chip.name, Keep::InFolder, [&] { return compileLowered(module, chip); });
  if (failed(text))
    return failure();
  return std::string(text->data(), text->size());
}

} // namespace easyquant::gpu
