//===- EmitObject.cpp - Kernel-level IR to machine code of CPUs -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Emit/EmitObject.h"

#include "GenerateCode.h"

#include "easyquant/Support/Folders.h"
#include "easyquant/Support/WriteFile.h"

#include "mlir/Conversion/AffineToStandard/AffineToStandard.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVMPass.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/OpenMPToLLVM/ConvertOpenMPToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Conversion/VectorToSCF/VectorToSCF.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/OpenMP/OpenMPToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"

using namespace mlir;

namespace easyquant::cpu {

void buildLowerToLLVMPipeline(OpPassManager &pm) {
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addNestedPass<func::FuncOp>(createConvertVectorToSCFPass());
  pm.addPass(memref::createExpandStridedMetadataPass());
  pm.addPass(createLowerAffinePass());
  pm.addPass(createConvertVectorToLLVMPass());
  pm.addPass(createFinalizeMemRefToLLVMConversionPass());
  pm.addPass(createSCFToControlFlowPass());
  pm.addPass(createConvertMathToLLVMPass());
  pm.addPass(createArithToLLVMConversionPass());
  pm.addPass(createConvertFuncToLLVMPass());
  pm.addPass(createConvertControlFlowToLLVMPass());
  pm.addPass(createConvertOpenMPToLLVMPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
}

void registerTranslations(DialectRegistry &registry) {
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerOpenMPDialectTranslation(registry);
}

static std::unique_ptr<llvm::TargetMachine> createTargetMachine(const Target &target,
                                                                std::string &error) {
  static const bool initialized = [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeX86AsmParser();
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
    LLVMInitializeAArch64AsmParser();
    return true;
  }();
  (void)initialized;
  llvm::Triple triple(target.triple());
  const llvm::Target *llvmTarget = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!llvmTarget)
    return nullptr;
  return std::unique_ptr<llvm::TargetMachine>(llvmTarget->createTargetMachine(
      triple, target.cpu(), target.features(), llvm::TargetOptions(), llvm::Reloc::PIC_,
      std::nullopt, llvm::CodeGenOptLevel::Default));
}

/// The object of a module in the LLVM dialect. Functions in `hidden` are of the same library.
static FailureOr<Code> compileLowered(ModuleOp module, const Target &target,
                                      const llvm::StringSet<> &hidden) {
  if (failed(verify(module)))
    return failure();
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine = createTargetMachine(target, error);
  if (!machine)
    return module.emitError("no code generator for ")
           << target.triple() << " in this LLVM: " << error;

  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> llvmModule =
      translateModuleToLLVMIR(module, context, "easyquant-model");
  if (!llvmModule)
    return module.emitError("translation of the kernels to LLVM IR failed");
  llvmModule->setTargetTriple(machine->getTargetTriple());
  llvmModule->setDataLayout(machine->createDataLayout());
  for (llvm::Function &function : *llvmModule) {
    if (hidden.contains(function.getName()))
      function.setVisibility(llvm::GlobalValue::HiddenVisibility);
    if (function.isDeclaration())
      continue;
    // Two instruction sets share one library: only entries may be seen.
    auto source = module.lookupSymbol<LLVM::LLVMFuncOp>(function.getName());
    if (!source || source.isPrivate())
      function.setLinkage(llvm::GlobalValue::InternalLinkage);
    // Outlined parallel regions are created by the translation, so the attributes are set here.
    function.addFnAttr("target-cpu", machine->getTargetCPU());
    function.addFnAttr("target-features", machine->getTargetFeatureString());
    if (target.isArm())
      continue;
    // Spilled vectors must not straddle cache lines: LLVM aligns them only where the stack is.
    function.addFnAttr(llvm::Attribute::getWithStackAlignment(context, llvm::Align(64)));
    function.addFnAttr("stackrealign");
    // A 256-bit preference would split the 512-bit vectors that the kernels were built for.
    function.addFnAttr("prefer-vector-width", "512");
    function.addFnAttr("min-legal-vector-width", "512");
  }
  return generateCode(module.getLoc(), *llvmModule, *machine, Passes::CleanUp,
                      llvm::CodeGenFileType::ObjectFile);
}

static FailureOr<Object> emit(ModuleOp module, const Target &target, Keep keep,
                              const llvm::StringSet<> &hidden, Lower lower) {
  return keptCode(module, target.name() + " " + target.features(), keep, [&]() -> FailureOr<Code> {
    if (failed(lower(module)))
      return failure();
    return compileLowered(module, target, hidden);
  });
}

FailureOr<Object> emitKernel(const KernelModule &kernel, const Target &target, Lower lower) {
  return emit(kernel.module, target, Keep::InProcess, {kernel.symbol}, lower);
}

FailureOr<Object> emitCallers(ModuleOp module, ArrayRef<KernelModule> kernels, const Target &target,
                              Lower lower) {
  llvm::StringSet<> hidden;
  for (const KernelModule &kernel : kernels) {
    hidden.insert(kernel.symbol);
    ModuleOp(kernel.module).erase();
  }
  return emit(module, target, Keep::InFolder, hidden, lower);
}

FailureOr<SmallVector<Object>> emitObjects(ModuleOp module, const Target &target, Lower lower) {
  SmallVector<Object> objects;
  SmallVector<KernelModule> kernels = takeKernelsApart(module, target);
  for (const KernelModule &kernel : kernels) {
    FailureOr<Object> object = emitKernel(kernel, target, lower);
    if (failed(object))
      return failure();
    objects.push_back(std::move(*object));
  }
  FailureOr<Object> callers = emitCallers(module, kernels, target, lower);
  if (failed(callers))
    return failure();
  objects.push_back(std::move(*callers));
  return objects;
}

/// The linker of the LLVM that this was built with, or else the one on the PATH.
static llvm::ErrorOr<std::string> findLinker() {
  if (llvm::sys::fs::can_execute(EASYQUANT_LLD))
    return EASYQUANT_LLD;
  llvm::ErrorOr<std::string> linker =
      llvm::sys::findProgramByName("ld.lld-" + std::to_string(LLVM_VERSION_MAJOR));
  return linker ? linker : llvm::sys::findProgramByName("ld.lld");
}

LogicalResult linkSharedObject(Location loc, ArrayRef<Object> objects, StringRef output) {
  llvm::ErrorOr<std::string> linker = findLinker();
  if (!linker)
    return emitError(loc, "no linker found: install lld-")
           << LLVM_VERSION_MAJOR << ", or put ld.lld on the PATH";

  // In a folder of its own, with whatever the linker leaves there: a file that it could not rename
  // keeps its temporary name. None of these names reaches the output.
  const std::string name = llvm::sys::path::filename(output).str(),
                    folder = (output + ".link").str(), linked = folder + "/" + name,
                    log = folder + "/log", soname = "-soname=" + name;
  if (Result<void> made = makeFolders(folder); !made)
    return emitError(loc) << made.error().message;
  auto removeFolder = llvm::scope_exit([&] { llvm::sys::fs::remove_directories(folder); });
  SmallVector<std::string> files;
  for (const auto &[index, object] : llvm::enumerate(objects)) {
    std::string path = (folder + "/" + Twine(index) + ".o").str();
    files.push_back(path);
    if (auto done = writeFile(path, {object.data(), object.size()}); !done)
      return emitError(loc) << done.error().message;
  }

  SmallVector<StringRef> args = {*linker,
                                 "-shared",
                                 soname,
                                 "--error-limit=3",
                                 "--no-undefined-version",
                                 "--build-id=none",
                                 "-z",
                                 "noexecstack",
                                 "--strip-debug",
                                 "-o",
                                 linked};
  args.append(files.begin(), files.end());
  std::optional<StringRef> redirects[] = {StringRef(), StringRef(log), StringRef(log)};
  std::string message;
  if (llvm::sys::ExecuteAndWait(*linker, args, std::nullopt, redirects, 0, 0, &message) == 0) {
    std::error_code code = llvm::sys::fs::rename(linked, output);
    if (!code)
      return success();
    message = code.message();
  }
  if (auto text = llvm::MemoryBuffer::getFile(log))
    message += (*text)->getBuffer();
  return emitError(loc) << *linker << " could not write " << output << ": " << message;
}

} // namespace easyquant::cpu
