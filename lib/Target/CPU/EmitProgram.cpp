//===- EmitProgram.cpp - Compile a model for CPUs -------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Conversion/EquantToLaunches/EquantToLaunches.h"
#include "easyquant/Conversion/LaunchesToLLVM/LaunchesToLLVM.h"
#include "easyquant/Emit/EmitObject.h"
#include "easyquant/Formats/InstructionSets.h"
#include "easyquant/Formats/Manifest.h"
#include "easyquant/Support/AttributeJson.h"
#include "easyquant/Support/Folders.h"
#include "easyquant/Support/ProgressAction.h"
#include "easyquant/Target/CPU/CPUTarget.h"
#include "easyquant/Target/CPU/Passes.h"
#include "easyquant/Weights/TargetModules.h"

#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <atomic>

namespace easyquant {
#define GEN_PASS_DEF_EMITPROGRAM
#include "easyquant/Target/CPU/Passes.h.inc"
} // namespace easyquant

using namespace mlir;
using namespace easyquant;

/// The programs of all instruction sets are called alike: with the largest buffers of any.
static formats::Manifest::Program mergePrograms(ArrayRef<formats::Manifest::Program> programs) {
  formats::Manifest::Program merged = programs.front();
  for (const formats::Manifest::Program &program : programs.drop_front()) {
    merged.entries.insert(program.entries.begin(), program.entries.end());
    merged.draftEntries.insert(program.draftEntries.begin(), program.draftEntries.end());
    merged.arenaBytesPerThread = std::max(merged.arenaBytesPerThread, program.arenaBytesPerThread);
  }
  return merged;
}

namespace {

/// What becomes of the module of an instruction set, which bears its name.
struct Parts {
  SmallVector<cpu::KernelModule> kernels;
  SmallVector<cpu::Object> objects; ///< of each kernel, then of what calls them
};

/// What the passes below work on: passes of their own run on the modules of all instruction sets at
/// a time, and on all kernels.
struct Emission {
  int64_t maxRows;
  std::string kvCache;
  llvm::StringMap<Parts> parts = {}; ///< by instruction set, each of which is there
  std::atomic<size_t> done = 0;

  static std::string isaOf(ModuleOp module) { return module.getSymName()->str(); }
  Parts &of(ModuleOp module) { return parts.find(isaOf(module))->second; }
};

void addLaunchPasses(OpPassManager &pm, const ConvertEquantToLaunchesOptions &options) {
  buildLaunchesPipeline(pm, options);
  pm.addPass(createConvertLaunchesToLLVM({/*step=*/true}));
}

/// No dialect can be loaded any more where modules are lowered on several threads.
void getLoweringDialects(DialectRegistry &registry) {
  OpPassManager pm(ModuleOp::getOperationName());
  addLaunchPasses(pm, {cpu::nameOf(cpu::kIsas.front()).str(), 1, "f32"});
  cpu::buildLowerToLLVMPipeline(pm);
  pm.getDependentDialects(registry);
}

/// Makes launches of a module, and modules of their kernels.
struct TakeKernels : PassWrapper<TakeKernels, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(TakeKernels)
  explicit TakeKernels(Emission *emission) : emission(emission) {}

  void getDependentDialects(DialectRegistry &registry) const override {
    getLoweringDialects(registry);
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    const std::string isa = Emission::isaOf(module);
    OpPassManager launches(ModuleOp::getOperationName());
    addLaunchPasses(launches, {isa, emission->maxRows, emission->kvCache});
    if (failed(runPipeline(launches, module)))
      return signalPassFailure();
    Parts &own = emission->of(module);
    own.kernels = cpu::takeKernelsApart(module, {cpu::isaOf(isa)});
    own.objects.resize(own.kernels.size() + 1);
  }

  Emission *emission;
};

/// Compiles a kernel's module, or with `callers` that of an instruction set, whose kernels are
/// done.
struct EmitCode : PassWrapper<EmitCode, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(EmitCode)
  EmitCode(Emission *emission, bool callers) : emission(emission), callers(callers) {}

  void getDependentDialects(DialectRegistry &registry) const override {
    getLoweringDialects(registry);
  }

  void runOnOperation() override {
    ModuleOp module = getOperation(),
             program = callers ? module : module->getParentOfType<ModuleOp>();
    Parts &own = emission->of(program);
    const cpu::Target target{cpu::isaOf(Emission::isaOf(program))};
    auto lower = [&](ModuleOp part) {
      OpPassManager lower(ModuleOp::getOperationName());
      cpu::buildLowerToLLVMPipeline(lower);
      return runPipeline(lower, part);
    };
    auto *kernel = llvm::find_if(
        own.kernels, [&](const cpu::KernelModule &each) { return each.module == module; });
    FailureOr<cpu::Object> object = callers ? cpu::emitCallers(module, own.kernels, target, lower)
                                            : cpu::emitKernel(*kernel, target, lower);
    if (failed(object))
      return signalPassFailure();
    own.objects[kernel - own.kernels.begin()] = std::move(*object);
    if (callers && ++emission->done < emission->parts.size())
      ProgressAction::report(&getContext(), "program", emission->done, emission->parts.size());
  }

  Emission *emission;
  bool callers;
};

struct EmitProgram : public easyquant::impl::EmitProgramBase<EmitProgram> {
  using EmitProgramBase::EmitProgramBase;

  void getDependentDialects(DialectRegistry &registry) const override {
    getLoweringDialects(registry);
    cpu::registerTranslations(registry);
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    SmallVector<std::string> isas(this->isas.begin(), this->isas.end());
    if (isas.empty())
      for (const std::string &isa : formats::instructionSetsOf(formats::hostProcessor()))
        isas.push_back(isa);

    ProgressAction::report(&getContext(), "program", 0, isas.size());
    SmallVector<ModuleOp> compiled;
    for (const std::string &isa : isas) {
      compiled.push_back(equant::moduleOf(module, cpu::kFamily).clone());
      compiled.back().setSymName(isa);
    }
    // Within the module, so that printing and timing of passes reach those that run here.
    OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
    auto programs = ModuleOp::create(builder, module.getLoc());
    auto removePrograms = llvm::scope_exit([&] { programs.erase(); });
    for (ModuleOp program : compiled)
      programs.push_back(program);
    Emission emission{maxRows, kvCache};
    for (const std::string &isa : isas)
      emission.parts.try_emplace(isa);
    OpPassManager pm(ModuleOp::getOperationName());
    OpPassManager &program = pm.nest<ModuleOp>();
    program.addPass(std::make_unique<TakeKernels>(&emission));
    program.addNestedPass<ModuleOp>(std::make_unique<EmitCode>(&emission, /*callers=*/false));
    program.addPass(std::make_unique<EmitCode>(&emission, /*callers=*/true));
    if (failed(runPipeline(pm, programs)))
      return signalPassFailure();

    llvm::MapVector<StringRef, SmallVector<cpu::Object>> objects; // by file
    std::vector<formats::Manifest::Program> facts;
    for (ModuleOp program : compiled) {
      llvm::append_range(objects[formats::programFileOf(Emission::isaOf(program))],
                         std::move(emission.of(program).objects));
      auto fact = formats::readPart<formats::Manifest::Program>(
          toJson(program->getAttr(kProgramAttr)), kProgramAttr);
      if (!fact) {
        program.emitError() << fact.error().message;
        return signalPassFailure();
      }
      facts.push_back(std::move(*fact));
    }
    module->setAttr(kProgramAttr,
                    toAttribute(&getContext(), formats::partJson(mergePrograms(facts))));

    if (Result<void> made = makeFolders(output.getValue()); !made) {
      module.emitError() << made.error().message;
      return signalPassFailure();
    }
    for (const auto &[file, parts] : objects) {
      llvm::SmallString<128> path(output);
      llvm::sys::path::append(path, file);
      if (failed(cpu::linkSharedObject(module.getLoc(), parts, path)))
        return signalPassFailure();
    }
    ProgressAction::report(&getContext(), "program", isas.size(), isas.size());
  }
};

} // namespace
