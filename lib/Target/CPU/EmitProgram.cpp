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

#include "mlir/IR/Threading.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/ScopeExit.h"
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
    merged.arenaBytesPerThread = std::max(merged.arenaBytesPerThread, program.arenaBytesPerThread);
  }
  return merged;
}

namespace {

/// Takes a module, which bears the name of an instruction set, to LLVM's dialect. A pass of its own
/// runs on the modules of all instruction sets at a time.
struct LowerStep : PassWrapper<LowerStep, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(LowerStep)

  LowerStep(int64_t maxRows, std::string kvCache) : maxRows(maxRows), kvCache(std::move(kvCache)) {}

  void addPasses(OpPassManager &pm, const std::string &isa) const {
    buildLaunchesPipeline(pm, {isa, maxRows, kvCache});
    pm.addPass(createConvertLaunchesToLLVM({/*step=*/true}));
    cpu::buildLowerToLLVMPipeline(pm);
  }

  // No dialect can be loaded any more where modules are lowered on several threads.
  void getDependentDialects(DialectRegistry &registry) const override {
    OpPassManager pm(ModuleOp::getOperationName());
    addPasses(pm, cpu::nameOf(cpu::kIsas.front()).str());
    pm.getDependentDialects(registry);
  }

  void runOnOperation() override {
    OpPassManager pm(ModuleOp::getOperationName());
    addPasses(pm, getOperation().getSymName()->str());
    if (failed(runPipeline(pm, getOperation())))
      signalPassFailure();
  }

  int64_t maxRows;
  std::string kvCache;
};

struct EmitProgram : public easyquant::impl::EmitProgramBase<EmitProgram> {
  using EmitProgramBase::EmitProgramBase;

  void getDependentDialects(DialectRegistry &registry) const override {
    LowerStep(maxRows, kvCache).getDependentDialects(registry);
    cpu::registerTranslations(registry);
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    SmallVector<std::string> isas(this->isas.begin(), this->isas.end());
    if (isas.empty())
      for (cpu::Isa isa : cpu::kIsas)
        isas.push_back(cpu::nameOf(isa).str());

    ProgressAction::report(&getContext(), "program", 0, isas.size());
    SmallVector<ModuleOp> lowered;
    for (const std::string &isa : isas) {
      lowered.push_back(equant::moduleOf(module, cpu::kFamily).clone());
      lowered.back().setSymName(isa);
    }
    // Within the module, so that printing and timing of passes reach those that run here.
    OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
    auto programs = ModuleOp::create(builder, module.getLoc());
    auto removePrograms = llvm::scope_exit([&] { programs.erase(); });
    for (ModuleOp program : lowered)
      programs.push_back(program);
    OpPassManager pm(ModuleOp::getOperationName());
    pm.addNestedPass<ModuleOp>(std::make_unique<LowerStep>(maxRows, kvCache));
    if (failed(runPipeline(pm, programs)))
      return signalPassFailure();

    SmallVector<llvm::SmallVector<char, 0>> objects(isas.size());
    std::vector<formats::Manifest::Program> facts(isas.size());
    std::atomic<size_t> done = 0;
    if (failed(failableParallelForEachN(&getContext(), 0, isas.size(), [&](size_t i) {
          auto object = cpu::emitObject(lowered[i], {cpu::isaOf(isas[i])});
          if (failed(object))
            return failure();
          objects[i] = std::move(*object);
          auto fact = formats::readPart<formats::Manifest::Program>(
              toJson(lowered[i]->getAttr(kProgramAttr)), kProgramAttr);
          if (!fact)
            return LogicalResult(lowered[i].emitError() << fact.error().message);
          facts[i] = std::move(*fact);
          if (++done < isas.size())
            ProgressAction::report(&getContext(), "program", done, isas.size());
          return success();
        })))
      return signalPassFailure();
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
