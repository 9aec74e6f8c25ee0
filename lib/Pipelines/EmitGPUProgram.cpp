//===- EmitGPUProgram.cpp - Compile a model to GPU kernels ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Codegen/GPU/Emit.h"
#include "easyquant/Conversion/EquantToLaunches/EquantToLaunches.h"
#include "easyquant/Conversion/GPUToNVVM/GPUToNVVM.h"
#include "easyquant/Conversion/LaunchesToLLVM/LaunchesToLLVM.h"
#include "easyquant/Dialect/Equant/IR/TensorParallel.h"
#include "easyquant/Formats/Manifest.h"
#include "easyquant/Pipelines/Passes.h"
#include "easyquant/Support/Folders.h"
#include "easyquant/Support/ProgressAction.h"
#include "easyquant/Support/WriteFile.h"
#include "easyquant/Target/Assemble.h"
#include "easyquant/Target/EmitPTX.h"
#include "easyquant/Target/LaunchList.h"
#include "easyquant/Weights/TargetModules.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Threading.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/FileSystem.h"

#include <atomic>

namespace easyquant {
#define GEN_PASS_DEF_EMITGPUPROGRAM
#include "easyquant/Pipelines/Passes.h.inc"
} // namespace easyquant

using namespace mlir;
using namespace easyquant;
using formats::kFatbinFile;
using formats::kGpuProgramFile;

/// Of chips without a letter behind their number, the first: every later driver takes its PTX.
static constexpr easyquant::gpu::ChipId kOldest = easyquant::gpu::ChipId::SM80;

namespace {

/// What is made for one chip.
struct ChipCode {
  easyquant::gpu::Chip chip;
  bool asked = true; ///< else only its PTX is wanted, for later chips
  ModuleOp module{};
  mlir::gpu::GPUModuleOp kernels{};
  formats::LaunchList launches{};
  DictionaryAttr cache{}; ///< launch.cache of its step
  std::string ptx{};
  std::optional<easyquant::gpu::Cubin> cubin{};

  std::string name() const { return std::string(chip.name); }
  std::string ptxFile() const { return formats::ptxFileName(chip.name); }
};

struct EmitGPUProgram : public easyquant::impl::EmitGPUProgramBase<EmitGPUProgram> {
  using EmitGPUProgramBase::EmitGPUProgramBase;

  // No dialect can be loaded any more where the modules of chips are lowered on several threads.
  void getDependentDialects(DialectRegistry &registry) const override {
    EmitGPUProgramBase::getDependentDialects(registry);
    easyquant::gpu::registerKernelDialects(registry);
    easyquant::gpu::registerTranslations(registry);
    OpPassManager pm(ModuleOp::getOperationName());
    buildLaunchesPipeline(pm, {.target = "sm_80"});
    easyquant::gpu::buildLowerToNVVMPipeline(pm);
    pm.getDependentDialects(registry);
  }

  void runOnOperation() override {
    if (failed(emit()))
      signalPassFailure();
  }

private:
  LogicalResult emit();
  /// Every chip once, and who makes PTX for later ones.
  LogicalResult chooseChips(std::vector<ChipCode> &codes, size_t &later);
  /// The launches of a chip's program, and a module of its kernels.
  LogicalResult convert(ChipCode &code);
  LogicalResult generate(ChipCode &code, const easyquant::gpu::Assembler *assembler);
  LogicalResult write(StringRef name, StringRef bytes);
  DictionaryAttr describe(ArrayRef<ChipCode> codes, StringRef later, bool hasMachineCode);
  /// What a module without a program for CPUs says in its place.
  void describeProgram(const ChipCode &code);
};

} // namespace

LogicalResult EmitGPUProgram::chooseChips(std::vector<ChipCode> &codes, size_t &later) {
  auto isLater = [](const easyquant::gpu::Chip &chip) { return llvm::isDigit(chip.name.back()); };
  std::optional<size_t> newest;
  for (const easyquant::gpu::Chip &known : easyquant::gpu::chips()) {
    if (!llvm::is_contained(chips, known.name))
      continue;
    if (isLater(known))
      newest = codes.size();
    codes.push_back({known});
  }
  for (const std::string &name : chips)
    if (auto chip = easyquant::gpu::findChip(name); !chip)
      return getOperation().emitError("easyquant-emit-gpu-program: ") << chip.error().message;
  if (codes.empty())
    return getOperation().emitError("easyquant-emit-gpu-program: option chip is missing: the GPUs "
                                    "to compile for");
  if (!newest) {
    newest = codes.size();
    codes.push_back({easyquant::gpu::chip(kOldest), /*asked=*/false});
  }
  later = *newest;
  return success();
}

LogicalResult EmitGPUProgram::convert(ChipCode &code) {
  OpPassManager pm(ModuleOp::getOperationName());
  buildLaunchesPipeline(pm, {code.name(), maxRows, kvCache});
  if (failed(runPipeline(pm, code.module)))
    return failure();
  FailureOr<formats::LaunchList> launches = easyquant::gpu::toLaunchList(code.module);
  if (failed(launches))
    return failure();
  code.launches = std::move(*launches);
  auto forward = code.module.lookupSymbol<func::FuncOp>(launch::kForward);
  code.cache = forward->getAttrOfType<DictionaryAttr>(launch::kCacheAttr);
  code.kernels = code.module.lookupSymbol<mlir::gpu::GPUModuleOp>(launch::kKernels);
  for (Operation &op : llvm::make_early_inc_range(*code.module.getBody()))
    if (&op != code.kernels)
      op.erase();
  return success();
}

LogicalResult EmitGPUProgram::generate(ChipCode &code, const easyquant::gpu::Assembler *assembler) {
  FailureOr<std::string> ptx = easyquant::gpu::emitPTX(code.kernels, code.chip);
  if (failed(ptx))
    return failure();
  code.ptx = std::move(*ptx);
  if (!assembler || !code.asked)
    return success();
  auto cubin = assembler->assemble(code.ptx, code.name());
  if (!cubin)
    return getOperation().emitError() << cubin.error().message;
  code.cubin = std::move(*cubin);
  return success();
}

LogicalResult EmitGPUProgram::write(StringRef name, StringRef bytes) {
  if (auto done = writeFile(std::filesystem::path(output.getValue()) / name.str(), bytes); !done)
    return getOperation().emitError() << done.error().message;
  return success();
}

DictionaryAttr EmitGPUProgram::describe(ArrayRef<ChipCode> codes, StringRef later,
                                        bool hasMachineCode) {
  Builder b(&getContext());
  auto integer = [&](int64_t value) { return b.getI64IntegerAttr(value); };
  NamedAttrList entries;
  for (const ChipCode &code : codes) {
    NamedAttrList entry;
    entry.set("ptx", b.getStringAttr(code.ptxFile()));
    entry.set("machine_code", b.getBoolAttr(code.cubin.has_value()));
    const formats::LaunchList &launches = code.launches;
    entry.set("kernels", integer(launches.kernels.size()));
    entry.set("launches", integer(launches.launches.size()));
    entry.set("arena_bytes", integer(launches.arenaBytes));
    entries.set(code.name(), entry.getDictionary(&getContext()));
  }
  const formats::LaunchList &program = codes.front().launches;
  NamedAttrList description;
  description.set("abi", integer(formats::kGpuProgramAbi));
  description.set("program", b.getStringAttr(kGpuProgramFile));
  description.set("fatbin", hasMachineCode ? Attribute(b.getStringAttr(kFatbinFile))
                                           : Attribute(b.getUnitAttr()));
  description.set("later", b.getStringAttr(later));
  description.set("chips", entries.getDictionary(&getContext()));
  description.set("max_rows", integer(program.maxRows));
  description.set("cache", codes.front().cache.get("sizes"));
  description.set("cache_type", b.getStringAttr("f16"));
  ModuleOp source = equant::moduleOf(getOperation(), equant::Target::GPU);
  auto bytes = source->getAttrOfType<IntegerAttr>(equant::kWeightsBytesAttr);
  description.set("weights_bytes", integer(bytes ? bytes.getInt() : 0));
  return description.getDictionary(&getContext());
}

void EmitGPUProgram::describeProgram(const ChipCode &code) {
  Builder b(&getContext());
  NamedAttrList entry;
  for (auto [name, value] :
       {std::pair("abi", formats::kProgramAbi), std::pair("max_rows", code.launches.maxRows),
        std::pair("arena_bytes", int64_t(0)), std::pair("arena_bytes_per_thread", int64_t(0))})
    entry.set(name, b.getI64IntegerAttr(value));
  entry.set("cache", code.cache.get("sizes"));
  entry.set("entries", b.getDictionaryAttr({}));
  entry.set("cache_scheme", code.cache.get("scheme"));
  entry.set("cache_type", b.getStringAttr("f16"));
  ModuleOp source = equant::moduleOf(getOperation(), equant::Target::GPU);
  if (const int64_t degree = equant::degreeOf(source); degree > 1)
    entry.set("tensor_parallel",
              b.getDictionaryAttr({b.getNamedAttr("degree", b.getI64IntegerAttr(degree)),
                                   b.getNamedAttr("collectives", b.getArrayAttr({}))}));
  getOperation()->setAttr(kProgramAttr, entry.getDictionary(&getContext()));
}

LogicalResult EmitGPUProgram::emit() {
  ModuleOp module = getOperation();
  std::vector<ChipCode> codes;
  size_t later = 0;
  if (failed(chooseChips(codes, later)))
    return failure();
  for (ChipCode &code : codes) {
    code.module = equant::moduleOf(module, equant::Target::GPU).clone();
    code.module.setSymName(code.name());
  }
  // Within the module, so that whoever prints and times passes sees those that run here.
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  auto programs = ModuleOp::create(builder, module.getLoc());
  auto removePrograms = llvm::scope_exit([&] { programs.erase(); });
  for (ChipCode &code : codes)
    programs.push_back(code.module);
  for (ChipCode &code : codes)
    if (failed(convert(code)))
      return failure();

  auto assembler = easyquant::gpu::Assembler::find();
  if (!assembler)
    module.emitWarning() << assembler.error().message;
  std::atomic<size_t> done = 0;
  ProgressAction::report(&getContext(), "kernels", 0, codes.size());
  OpPassManager pm(ModuleOp::getOperationName());
  easyquant::gpu::buildLowerToNVVMPipeline(pm.nest<ModuleOp>());
  if (failed(runPipeline(pm, programs)))
    return failure();
  if (failed(failableParallelForEachN(&getContext(), 0, codes.size(), [&](size_t i) {
        if (failed(generate(codes[i], assembler ? &*assembler : nullptr)))
          return failure();
        if (++done < codes.size())
          ProgressAction::report(&getContext(), "kernels", done, codes.size());
        return success();
      })))
    return failure();

  if (Result<void> made = makeFolders(output.getValue()); !made)
    return module.emitError() << made.error().message;
  std::map<std::string, formats::LaunchList> lists;
  for (const ChipCode &code : codes) {
    if (failed(write(code.ptxFile(), code.ptx)))
      return failure();
    lists[code.name()] = code.launches;
  }
  if (assembler) {
    std::vector<easyquant::gpu::Cubin> cubins;
    for (ChipCode &code : codes)
      if (code.cubin)
        cubins.push_back(*code.cubin);
    auto fatbin = assembler->makeFatbin(cubins, codes[later].ptx, codes[later].name());
    if (!fatbin)
      return module.emitError() << fatbin.error().message;
    if (failed(write(kFatbinFile, *fatbin)))
      return failure();
  }
  if (failed(write(kGpuProgramFile, formats::launchListText(lists))))
    return failure();
  module->setAttr(kGPUProgramAttr, describe(codes, codes[later].name(), assembler.has_value()));
  if (!module->hasAttr(kProgramAttr))
    describeProgram(codes.front());
  ProgressAction::report(&getContext(), "kernels", codes.size(), codes.size());
  return success();
}
