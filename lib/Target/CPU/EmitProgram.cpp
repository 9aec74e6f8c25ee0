//===- EmitProgram.cpp - Compile a model to model.so ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Conversion/EquantToLaunches/EquantToLaunches.h"
#include "easyquant/Conversion/LaunchesToLLVM/LaunchesToLLVM.h"
#include "easyquant/Emit/EmitObject.h"
#include "easyquant/Formats/Manifest.h"
#include "easyquant/Support/AttributeJson.h"
#include "easyquant/Support/Folders.h"
#include "easyquant/Support/ProgressAction.h"
#include "easyquant/Target/CPU/CPUTarget.h"
#include "easyquant/Target/CPU/Passes.h"
#include "easyquant/Weights/TargetModules.h"

#include "mlir/Pass/PassManager.h"
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

using Object = llvm::SmallVector<char, 0>;
using Objects = SmallVector<Object>;

/// Compiles a module, which bears the name of an instruction set. A pass of its own runs on the
/// modules of all instruction sets at a time.
struct EmitStep : PassWrapper<EmitStep, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(EmitStep)

  EmitStep(int64_t maxRows, std::string kvCache, llvm::StringMap<Objects> *objects,
           std::atomic<size_t> *done)
      : maxRows(maxRows), kvCache(std::move(kvCache)), objects(objects), done(done) {}

  void addLaunchPasses(OpPassManager &pm, const std::string &isa) const {
    buildLaunchesPipeline(pm, {isa, maxRows, kvCache});
    pm.addPass(createConvertLaunchesToLLVM({/*step=*/true}));
  }

  // No dialect can be loaded any more where modules are lowered on several threads.
  void getDependentDialects(DialectRegistry &registry) const override {
    OpPassManager pm(ModuleOp::getOperationName());
    addLaunchPasses(pm, cpu::nameOf(cpu::kIsas.front()).str());
    cpu::buildLowerToLLVMPipeline(pm);
    pm.getDependentDialects(registry);
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    const std::string isa = module.getSymName()->str();
    OpPassManager launches(ModuleOp::getOperationName());
    addLaunchPasses(launches, isa);
    if (failed(runPipeline(launches, module)))
      return signalPassFailure();
    auto emitted =
        cpu::emitObjects(module, {cpu::isaOf(isa)}, cpu::Kernels::Together, [&](ModuleOp part) {
          OpPassManager lower(ModuleOp::getOperationName());
          cpu::buildLowerToLLVMPipeline(lower);
          return runPipeline(lower, part);
        });
    if (failed(emitted))
      return signalPassFailure();
    objects->find(isa)->second = std::move(*emitted);
    if (++*done < objects->size())
      ProgressAction::report(&getContext(), "program", *done, objects->size());
  }

  int64_t maxRows;
  std::string kvCache;
  llvm::StringMap<Objects> *objects; ///< by instruction set, each of which is there
  std::atomic<size_t> *done;
};

struct EmitProgram : public easyquant::impl::EmitProgramBase<EmitProgram> {
  using EmitProgramBase::EmitProgramBase;

  void getDependentDialects(DialectRegistry &registry) const override {
    EmitStep(maxRows, kvCache, nullptr, nullptr).getDependentDialects(registry);
    cpu::registerTranslations(registry);
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    SmallVector<std::string> isas(this->isas.begin(), this->isas.end());
    if (isas.empty())
      for (cpu::Isa isa : cpu::kIsas)
        isas.push_back(cpu::nameOf(isa).str());

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
    llvm::StringMap<Objects> objectsOf;
    for (const std::string &isa : isas)
      objectsOf.try_emplace(isa);
    std::atomic<size_t> done = 0;
    OpPassManager pm(ModuleOp::getOperationName());
    pm.addNestedPass<ModuleOp>(std::make_unique<EmitStep>(maxRows, kvCache, &objectsOf, &done));
    if (failed(runPipeline(pm, programs)))
      return signalPassFailure();

    Objects objects;
    std::vector<formats::Manifest::Program> facts;
    for (ModuleOp program : compiled) {
      llvm::append_range(objects, std::move(objectsOf.find(*program.getSymName())->second));
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
    llvm::SmallString<128> path(output);
    llvm::sys::path::append(path, formats::kProgramFile);
    if (failed(cpu::linkSharedObject(module.getLoc(), objects, path)))
      return signalPassFailure();
    ProgressAction::report(&getContext(), "program", isas.size(), isas.size());
  }
};

} // namespace
