//===- EmitGPUProgram.cpp - Compile a model to GPU kernels ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Codegen/GPU/Choose.h"
#include "easyquant/Codegen/GPU/Embedding.h"
#include "easyquant/Conversion/EquantToLaunches/EquantToLaunches.h"
#include "easyquant/Conversion/GPUToNVVM/GPUToNVVM.h"
#include "easyquant/Conversion/LaunchesToLLVM/LaunchesToLLVM.h"
#include "easyquant/Dialect/Equant/IR/TensorParallel.h"
#include "easyquant/Dialect/LM/IR/LM.h"
#include "easyquant/Emit/Assemble.h"
#include "easyquant/Emit/EmitPTX.h"
#include "easyquant/Emit/LaunchList.h"
#include "easyquant/Formats/Manifest.h"
#include "easyquant/Support/AttributeJson.h"
#include "easyquant/Support/Folders.h"
#include "easyquant/Support/ProgressAction.h"
#include "easyquant/Support/WriteFile.h"
#include "easyquant/Target/GPU/GPUTarget.h"
#include "easyquant/Target/GPU/Passes.h"
#include "easyquant/Target/Target.h"
#include "easyquant/Weights/TargetModules.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Threading.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/FileSystem.h"

#include <atomic>

namespace easyquant {
#define GEN_PASS_DEF_EMITGPUPROGRAM
#include "easyquant/Target/GPU/Passes.h.inc"
} // namespace easyquant

using namespace mlir;
using namespace easyquant;
using formats::kFatbinFile;
using formats::kGpuProgramFile;

namespace {

/// What is made for one chip.
struct ChipCode {
  easyquant::gpu::Chip chip;
  bool asked = true; ///< else only its PTX is wanted, for later chips
  ModuleOp module{};
  mlir::gpu::GPUModuleOp kernels{};
  formats::LaunchList launches{};
  formats::Cache cache{}; ///< of its step
  std::optional<int64_t> recurrentValues{};
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
    buildLaunchesPipeline(pm, {.target = std::string(easyquant::gpu::chips().front().name)});
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
  /// Leaves at the module what the manifest says of the program.
  void describe(ArrayRef<ChipCode> codes, const std::string &later, bool hasMachineCode);
};

} // namespace

LogicalResult EmitGPUProgram::chooseChips(std::vector<ChipCode> &codes, size_t &later) {
  std::optional<size_t> newest;
  for (const easyquant::gpu::Chip &known : easyquant::gpu::chips()) {
    if (!llvm::is_contained(chips, known.name))
      continue;
    if (known.isCompatible())
      newest = codes.size();
    codes.push_back({known});
  }
  for (const std::string &name : chips)
    if (auto chip = easyquant::gpu::findChip(name); !chip)
      return getOperation().emitError("easyquant-emit-gpu-program: ") << chip.error().message;
  if (codes.empty())
    return getOperation().emitError("easyquant-emit-gpu-program: option target is missing: the "
                                    "GPUs to compile for");
  if (!newest) { // every driver takes the PTX of the oldest
    newest = codes.size();
    codes.push_back({easyquant::gpu::chips().front(), /*asked=*/false});
  }
  later = *newest;
  return success();
}

/// Adds a kernel that no op of the model asks for, and that may be there already: its number.
template <typename Spec> static size_t addKernel(ChipCode &code, const Spec &spec) {
  const easyquant::gpu::Description description = getOrEmit(code.kernels, spec, code.chip);
  std::vector<formats::LaunchKernel> &kernels = code.launches.kernels;
  const auto known = llvm::find_if(
      kernels, [&](const formats::LaunchKernel &each) { return each.name == description.name; });
  if (known != kernels.end())
    return static_cast<size_t>(known - kernels.begin());
  formats::LaunchKernel kernel;
  kernel.name = description.name;
  using From = easyquant::gpu::Parameter;
  using To = formats::LaunchKernel::Parameter;
  for (const From &parameter : description.parameters)
    kernel.parameters.push_back(parameter.kind == From::Pointer ? To::Pointer
                                : parameter.kind == From::F32   ? To::F32
                                                                : To::I32);
  for (auto [extent, own] : llvm::zip_equal(kernel.grid, description.grid))
    extent = {own.factor, own.rowsPerBlock};
  kernel.threads = description.threads;
  kernel.sharedBytes = description.sharedBytes;
  kernels.push_back(std::move(kernel));
  return kernels.size() - 1;
}

/// The kernels that choose tokens of logits.
static void addChoosing(ChipCode &code, int64_t vocabulary) {
  auto add = [&](const auto &spec) { return addKernel(code, spec); };
  formats::ChoosingKernels choosing;
  choosing.keep = add(easyquant::gpu::KeepLogitsSpec{vocabulary});
  choosing.change = add(easyquant::gpu::ChangeLogitsSpec{vocabulary});
  choosing.weigh = add(easyquant::gpu::WeighLogitsSpec{vocabulary});
  choosing.choose = add(easyquant::gpu::ChooseTokensSpec{vocabulary});
  code.launches.choosing = choosing;
}

/// The columns of an argument of the step; 0 where it has none of that name, or a part of them.
static int64_t columnsOf(func::FuncOp forward, StringRef argument) {
  for (unsigned i = 0; i < forward.getNumArguments(); ++i)
    if (auto name = forward.getArgAttrOfType<StringAttr>(i, launch::kArgumentAttr);
        name && name.getValue() == argument)
      if (auto type = dyn_cast<MemRefType>(forward.getArgument(i).getType()))
        return type.getDimSize(1);
  return 0;
}

LogicalResult EmitGPUProgram::convert(ChipCode &code) {
  OpPassManager pm(ModuleOp::getOperationName());
  buildLaunchesPipeline(pm, {code.name(), stepRows, kvCache});
  if (failed(runPipeline(pm, code.module)) || failed(verify(code.module)))
    return failure();
  FailureOr<formats::LaunchList> launches = easyquant::gpu::toLaunchList(code.module);
  if (failed(launches))
    return failure();
  code.launches = std::move(*launches);
  auto forward = code.module.lookupSymbol<func::FuncOp>(launch::kForward);
  code.cache = *launch::cacheOf(forward->getAttr(launch::kCacheAttr));
  code.recurrentValues = launch::recurrentValuesOf(forward);
  code.kernels = code.module.lookupSymbol<mlir::gpu::GPUModuleOp>(launch::kKernels);
  if (const int64_t vocabulary = columnsOf(forward, "logits");
      vocabulary > 0 && equant::degreeOf(code.module) == 1)
    addChoosing(code, vocabulary);
  if (auto &drafting = code.launches.drafting) {
    drafting->gather =
        addKernel(code, easyquant::gpu::GatherSpec{columnsOf(forward, "next_hidden")});
    drafting->fixedPosition = code.module->hasAttr(lm::kAssistantAttr);
  }
  easyquant::gpu::setTarget(code.kernels, code.chip);
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

void EmitGPUProgram::describe(ArrayRef<ChipCode> codes, const std::string &later,
                              bool hasMachineCode) {
  ModuleOp module = getOperation(), source = equant::moduleOf(module, easyquant::gpu::kFamily);
  auto set = [&](StringRef name, const auto &part) {
    module->setAttr(name, toAttribute(&getContext(), formats::partJson(part)));
  };
  const ChipCode &first = codes.front();
  auto bytes = source->getAttrOfType<IntegerAttr>(equant::kWeightsBytesAttr);
  formats::Manifest::Gpu gpu{
      .programFile = kGpuProgramFile,
      .fatbinFile = hasMachineCode ? std::optional<std::string>(kFatbinFile) : std::nullopt,
      .later = later,
      .chips = {},
      .maxRows = first.launches.maxRows,
      .weightsBytes = bytes ? bytes.getInt() : 0,
      .cache = first.cache.sizes,
      .cacheType = first.cache.type,
      .drafts = first.launches.drafting ? std::optional(true) : std::nullopt,
  };
  for (const ChipCode &code : codes)
    gpu.chips[code.name()] = {code.ptxFile(), code.cubin.has_value(),
                              std::ssize(code.launches.kernels), std::ssize(code.launches.launches),
                              code.launches.arenaBytes};
  set(kGPUProgramAttr, gpu);
  if (module->hasAttr(kProgramAttr))
    return;
  // A module without a program for CPUs says in its place what all programs have.
  formats::Manifest::Program program;
  program.maxRows = first.launches.maxRows;
  program.cache = first.cache;
  program.recurrentValues = first.recurrentValues;
  if (first.launches.drafting && first.launches.drafting->fixedPosition)
    program.fixedDraftPosition = true;
  if (const int64_t degree = equant::degreeOf(source); degree > 1)
    program.tensorParallel = {degree, {}};
  set(kProgramAttr, program);
}

LogicalResult EmitGPUProgram::emit() {
  ModuleOp module = getOperation();
  std::vector<ChipCode> codes;
  size_t later = 0;
  if (failed(chooseChips(codes, later)))
    return failure();
  for (ChipCode &code : codes) {
    code.module = equant::moduleOf(module, easyquant::gpu::kFamily).clone();
    code.module.setSymName(code.name());
  }
  // Within the module, so that printing and timing of passes reach those that run here.
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
  describe(codes, codes[later].name(), assembler.has_value());
  ProgressAction::report(&getContext(), "kernels", codes.size(), codes.size());
  return success();
}
