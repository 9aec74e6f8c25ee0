//===- EmitProgram.cpp - Compile a model to model.so ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Conversion/EquantToLaunches/EquantToLaunches.h"
#include "easyquant/Conversion/LaunchesToLLVM/LaunchesToLLVM.h"
#include "easyquant/Dialect/Equant/Transforms/Passes.h"
#include "easyquant/Formats/Manifest.h"
#include "easyquant/Pipelines/Passes.h"
#include "easyquant/Support/Folders.h"
#include "easyquant/Support/ProgressAction.h"
#include "easyquant/Target/EmitObject.h"
#include "easyquant/Weights/TargetModules.h"

#include "mlir/IR/Threading.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <atomic>

namespace easyquant {
#define GEN_PASS_DEF_EMITPROGRAM
#include "easyquant/Pipelines/Passes.h.inc"
} // namespace easyquant

using namespace mlir;
using namespace easyquant;

/// The programs of all instruction sets are called alike: with the largest buffers of any.
static DictionaryAttr mergePrograms(MLIRContext *context, ArrayRef<DictionaryAttr> programs,
                                    ArrayRef<std::string> isas) {
  Builder b(context);
  NamedAttrList merged(programs.front());
  NamedAttrList entries;
  int64_t perThread = 0;
  for (auto [program, isa] : llvm::zip_equal(programs, isas)) {
    entries.append(isa, program.get("entry"));
    perThread = std::max(perThread, program.getAs<IntegerAttr>("arena_bytes_per_thread").getInt());
  }
  merged.erase("entry");
  merged.set("abi", b.getI64IntegerAttr(formats::kProgramAbi));
  merged.set("entries", entries.getDictionary(context));
  merged.set("arena_bytes_per_thread", b.getI64IntegerAttr(perThread));
  return merged.getDictionary(context);
}

namespace {

struct EmitProgram : public easyquant::impl::EmitProgramBase<EmitProgram> {
  using EmitProgramBase::EmitProgramBase;

  // The pass managers below run on several threads, where no dialect can be loaded any more.
  void getDependentDialects(DialectRegistry &registry) const override {
    OpPassManager pm(ModuleOp::getOperationName());
    buildLaunchesPipeline(pm);
    pm.addPass(createConvertLaunchesToLLVM());
    cpu::buildLowerToLLVMPipeline(pm);
    pm.getDependentDialects(registry);
    cpu::registerTranslations(registry);
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    SmallVector<std::string> isas(this->isas.begin(), this->isas.end());
    if (isas.empty())
      isas = {"avx2", "avx512vnni"};

    SmallVector<OwningOpRef<ModuleOp>> clones;
    for (size_t i = 0; i < isas.size(); ++i)
      clones.push_back(equant::moduleOf(module, equant::Target::CPU).clone());
    SmallVector<llvm::SmallVector<char, 0>> objects(isas.size());
    SmallVector<DictionaryAttr> programs(isas.size());
    std::atomic<size_t> done = 0;
    ProgressAction::report(&getContext(), "program", 0, isas.size());
    if (failed(failableParallelForEachN(&getContext(), 0, isas.size(), [&](size_t i) {
          auto object = compile(*clones[i], isas[i]);
          if (failed(object))
            return failure();
          objects[i] = std::move(*object);
          programs[i] = (*clones[i])->getAttrOfType<DictionaryAttr>(kProgramAttr);
          if (++done < isas.size())
            ProgressAction::report(&getContext(), "program", done, isas.size());
          return success();
        })))
      return signalPassFailure();
    module->setAttr(kProgramAttr, mergePrograms(&getContext(), programs, isas));

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

  FailureOr<llvm::SmallVector<char, 0>> compile(ModuleOp module, const std::string &isa) {
    PassManager pm(&getContext());
    buildLaunchesPipeline(pm, {isa, maxRows, kvCache});
    pm.addPass(createConvertLaunchesToLLVM({/*step=*/true}));
    cpu::buildLowerToLLVMPipeline(pm);
    if (failed(pm.run(module)))
      return failure();
    cpu::Target target;
    target.isa = isa == "avx2" ? cpu::Isa::AVX2 : cpu::Isa::AVX512VNNI;
    return cpu::emitObject(module, target);
  }
};

} // namespace
