//===- HostProgram.cpp - A module compiled for this machine ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "HostProgram.h"

#include "easyquant/Conversion/EquantToLaunches/EquantToLaunches.h"
#include "easyquant/Conversion/LaunchesToLLVM/LaunchesToLLVM.h"
#include "easyquant/Emit/EmitObject.h"
#include "easyquant/Formats/InstructionSets.h"
#include "easyquant/Formats/Manifest.h"
#include "easyquant/Support/AttributeJson.h"
#include "easyquant/Target/CPU/CPUTarget.h"

#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <array>
#include <dlfcn.h>
#include <utility>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;

Result<std::string> HostProgram::chooseIsa(StringRef asked, StringRef purpose) {
  std::map<std::string, std::string> known;
  for (const std::string &isa : formats::instructionSetsOf(formats::hostProcessor()))
    known[isa];
  return runtime::selectIsa(asked.str(), known, runtime::CpuFeatures::host(), purpose.str());
}

void HostProgram::getDependentDialects(DialectRegistry &registry) {
  cpu::registerTarget();
  OpPassManager pm(ModuleOp::getOperationName());
  buildLaunchesPipeline(pm);
  pm.addPass(createConvertLaunchesToLLVM());
  cpu::buildLowerToLLVMPipeline(pm);
  pm.getDependentDialects(registry);
  cpu::registerTranslations(registry);
}

FailureOr<std::shared_ptr<const HostProgram>>
HostProgram::compile(ModuleOp module, const std::string &isa, int64_t maxRows) {
  std::shared_ptr<HostProgram> program(new HostProgram());
  Result<const runtime::OpenMP *> openmp = runtime::OpenMP::get();
  if (!openmp)
    return emitError(module.getLoc()) << openmp.error().message;
  program->openmp = *openmp;

  // A module of its own, which no running pass manager reaches. What a command line says of
  // printing IR and of crash reproducers holds for it, too, where there are such options.
  PassManager pm(module.getContext());
  (void)applyPassManagerCLOptions(pm);
  pm.enableVerifier(false); // emitObjects does
  buildLaunchesPipeline(pm, {isa, maxRows, /*kvCache=*/"f32"});
  pm.addPass(createConvertLaunchesToLLVM());
  if (failed(pm.run(module)))
    return failure();
  Result<formats::Manifest::Program> facts = formats::readPart<formats::Manifest::Program>(
      toJson(module->getAttr(kProgramAttr)), kProgramAttr);
  if (!facts)
    return emitError(module.getLoc()) << facts.error().message;
  program->arenaBytes = facts->arenaBytes;
  program->arenaBytesPerThread = facts->arenaBytesPerThread;
  program->cache = facts->cache.sizes;
  std::string symbol = "_mlir_ciface_" + facts->entries.at(isa);

  auto objects = cpu::emitObjects(module, {cpu::isaOf(isa)}, [&](ModuleOp part) {
    pm.clear();
    cpu::buildLowerToLLVMPipeline(pm);
    return pm.run(part);
  });
  if (failed(objects))
    return failure();

  // The mapping of a loaded library outlives its file.
  llvm::SmallString<128> folder;
  if (std::error_code error = llvm::sys::fs::createUniqueDirectory("easyquant-calibration", folder))
    return emitError(module.getLoc()) << "no temporary folder can be made: " << error.message();
  auto removeFolder =
      llvm::scope_exit([&] { llvm::sys::fs::remove_directories(folder, /*IgnoreErrors=*/true); });
  llvm::SmallString<128> path = folder;
  llvm::sys::path::append(path, "subgraph.so");
  if (failed(cpu::linkSharedObject(module.getLoc(), *objects, path)))
    return failure();
  program->library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!program->library)
    return emitError(module.getLoc()) << path << " cannot be loaded: " << ::dlerror();
  program->entry = ::dlsym(program->library, symbol.c_str());
  if (!program->entry)
    return emitError(module.getLoc()) << path << " does not define " << symbol;
  return std::shared_ptr<const HostProgram>(program);
}

HostProgram::~HostProgram() {
  if (library)
    ::dlclose(library);
}

/// In the calling conventions of x86-64 and 64-bit Arm an integer is as good as a pointer, and only
/// the number of arguments matters.
template <size_t... I>
static void callWith(void *entry, const uintptr_t *arguments, std::index_sequence<I...>) {
  reinterpret_cast<void (*)(decltype(I)...)>(entry)(arguments[I]...);
}

template <size_t... N> static constexpr auto callTable(std::index_sequence<N...>) {
  using Call = void (*)(void *, const uintptr_t *);
  return std::array<Call, sizeof...(N)>{[](void *entry, const uintptr_t *arguments) {
    callWith(entry, arguments, std::make_index_sequence<N>());
  }...};
}

Result<void> HostProgram::call(ArrayRef<uintptr_t> arguments, int32_t threads) const {
  static constexpr auto table = callTable(std::make_index_sequence<kMaxArguments + 1>());
  if (auto ready = openmp->prepare(threads); !ready)
    return ready;
  table[arguments.size()](entry, arguments.data());
  return {};
}
