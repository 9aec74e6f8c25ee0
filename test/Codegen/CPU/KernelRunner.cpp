//===- KernelRunner.cpp - Compiles a kernel and calls it ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelRunner.h"

#include "easyquant/Codegen/CPU/Team.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/OpenMP/OpenMPDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Verifier.h"
#include "llvm/Support/FileSystem.h"

#include <cstdlib>
#include <dlfcn.h>
#include <fstream>
#include <gtest/gtest.h>

using namespace mlir;

namespace easyquant::cpu {

bool cpuRuns(const Target &target) {
  if (target.isArm())
    return false;
  bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (target.isa == Isa::AVX2 || target.emulateDot)
    return avx2;
  return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

/// EASYQUANT_TEST_PROCESSOR says another processor than that of this machine.
static bool testsArm() {
  const char *processor = std::getenv("EASYQUANT_TEST_PROCESSOR");
  return processor && std::string_view(processor) == formats::kProcessors[1].name;
}

std::array<Target, 2> testTargets() {
  if (testsArm())
    return {Target{Isa::NeonDot}, Target{Isa::NeonI8mm}};
  Target avx512{Isa::AVX512VNNI, /*emulateDot=*/false};
  avx512.emulateDot = !cpuRuns(avx512);
  return {Target{Isa::AVX2}, avx512};
}

namespace {
/// Who asks for an emulator has one: GoogleTest tells tests that are skipped here as passed.
struct NeedsEmulator : testing::Environment {
  void SetUp() override {
    if (const std::string missing = emulated::Emulator::missing(); testsArm() && !missing.empty())
      FAIL() << missing;
  }
};
} // namespace

static testing::Environment *const needsEmulator =
    testing::AddGlobalTestEnvironment(new NeedsEmulator);

static bool takesTeam(func::FuncOp function) {
  return function.getNumArguments() >= 3 &&
         isa<LLVM::LLVMPointerType>(function.getArgumentTypes().take_back(3)[0]);
}

/// A function (..., threads: index) that calls `kernel`, a function (..., team), in so many
/// threads.
static func::FuncOp emitTeamCall(ModuleOp module, func::FuncOp kernel) {
  std::string name = (kernel.getSymName() + "_team").str();
  auto b = ImplicitLocOpBuilder::atBlockEnd(module.getLoc(), module.getBody());
  SmallVector<Type> types(kernel.getArgumentTypes().drop_back(3));
  types.push_back(b.getIndexType());
  auto entry = func::FuncOp::create(b, name, b.getFunctionType(types, {}));
  b.setInsertionPointToStart(entry.addEntryBlock());
  ValueRange inputs = ValueRange(entry.getArguments()).drop_back();
  emitTeam(b, module, entry.getArguments().back(), /*stop=*/nullptr,
           [&](ImplicitLocOpBuilder &b, const Team &team) {
             SmallVector<Value> arguments(inputs);
             team.append(arguments);
             func::CallOp::create(b, kernel, arguments);
           });
  func::ReturnOp::create(b);
  return entry;
}

using Build = llvm::function_ref<SmallVector<func::FuncOp>(ModuleOp)>;

KernelLibrary::KernelLibrary(const Target &target, Build build) { compile(target, build); }

void KernelLibrary::compile(const Target &target, Build build) {
  DialectRegistry registry;
  registerTranslations(registry);
  MLIRContext context(registry);
  context.loadDialect<arith::ArithDialect, func::FuncDialect, LLVM::LLVMDialect, math::MathDialect,
                      memref::MemRefDialect, omp::OpenMPDialect, scf::SCFDialect,
                      vector::VectorDialect>();
  OwningOpRef<ModuleOp> module = ModuleOp::create(UnknownLoc::get(&context));
  for (func::FuncOp kernel : build(*module)) {
    func::FuncOp entry = takesTeam(kernel) ? emitTeamCall(*module, kernel) : kernel;
    entries[kernel.getSymName().str()] = "_mlir_ciface_" + entry.getSymName().str();
    entry.setPublic();
    entry->setAttr("llvm.emit_c_interface", UnitAttr::get(&context));
  }
  ASSERT_TRUE(succeeded(verify(*module)));

  auto code = emitObjects(*module, target, [&](ModuleOp part) {
    PassManager pm(&context);
    buildLowerToLLVMPipeline(pm);
    return pm.run(part);
  });
  ASSERT_TRUE(succeeded(code));

  llvm::SmallString<128> path;
  ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("easyquant-kernel", path));
  folder = path.str().str();
  object = folder + "/kernel.o";
  std::ofstream(object, std::ios::binary).write(code->front().data(), code->front().size());
  std::string shared = folder + "/kernel.so";
  ASSERT_TRUE(succeeded(linkSharedObject(UnknownLoc::get(&context), *code, shared)));
  if (target.isArm()) {
    emulator = std::make_unique<emulated::Emulator>(target, shared);
    return;
  }
  library = dlopen(shared.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(library) << dlerror();
}

Kernel KernelLibrary::kernel(StringRef symbol) const {
  const auto found = entries.find(std::string_view(symbol));
  if (found == entries.end()) {
    ADD_FAILURE() << symbol.str();
    return Kernel(nullptr);
  }
  if (emulator)
    return Kernel(emulator.get(), found->second);
  void *entry = library ? dlsym(library, found->second.c_str()) : nullptr;
  EXPECT_TRUE(entry) << symbol.str();
  return Kernel(entry);
}

KernelLibrary::~KernelLibrary() {
  emulator.reset(); // waits for a process that may be opening the file
  if (library)
    dlclose(library);
  if (!folder.empty())
    llvm::sys::fs::remove_directories(folder);
}

} // namespace easyquant::cpu
