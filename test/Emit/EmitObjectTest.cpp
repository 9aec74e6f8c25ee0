//===- EmitObjectTest.cpp - The road from kernel IR to a call -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelRunner.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/FileSystem.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <vector>

using namespace mlir;
using namespace easyquant::cpu;

// A share of the rows, stack buffer, vectors and a reduction: what kernels are made of.
static constexpr const char *source = R"mlir(
func.func @scale(%x: memref<?x19xf32, strided<[?, 1], offset: ?>>, %y: memref<?xf32>, %state: !llvm.ptr, %t: index, %threads: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %zero = arith.constant 0.0 : f32
  %rows = memref.dim %x, %c0 : memref<?x19xf32, strided<[?, 1], offset: ?>>
  %buffer = memref.alloca() : memref<16xf32>
  %begin0 = arith.muli %rows, %t : index
  %begin = arith.divui %begin0, %threads : index
  %t1 = arith.addi %t, %c1 : index
  %end0 = arith.muli %rows, %t1 : index
  %end = arith.divui %end0, %threads : index
  scf.for %i = %begin to %end step %c1 {
    %v = vector.load %x[%i, %c0] : memref<?x19xf32, strided<[?, 1], offset: ?>>, vector<16xf32>
    vector.store %v, %buffer[%c0] : memref<16xf32>, vector<16xf32>
    %w = vector.load %buffer[%c0] : memref<16xf32>, vector<16xf32>
    %s = vector.reduction <add>, %w : vector<16xf32> into f32
    %c19 = arith.constant 19 : index
    %tail = scf.for %j = %c16 to %c19 step %c1 iter_args(%a = %s) -> f32 {
      %e = memref.load %x[%i, %j] : memref<?x19xf32, strided<[?, 1], offset: ?>>
      %b = arith.addf %a, %e : f32
      scf.yield %b : f32
    }
    memref.store %tail, %y[%i] : memref<?xf32>
  }
  return
}
)mlir";

TEST(EmitObject, ParallelKernelRuns) {
  for (const Target &target : testTargets()) {
    KernelRunner run(target, [](ModuleOp module) {
      OwningOpRef<ModuleOp> parsed = parseSourceString<ModuleOp>(source, module.getContext());
      auto function = *parsed->getOps<func::FuncOp>().begin();
      function->remove();
      module.push_back(function);
      return function;
    });
    constexpr int64_t rows = 7, stride = 23;
    std::vector<float> x(rows * stride, 1000.0f), y(rows);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < 19; ++j)
        x[i * stride + j] = static_cast<float>(i + j);
    auto xs = MemRef<float, 2>::strided(x.data(), {rows, 19}, stride);
    MemRef<float, 1> ys(y.data(), {rows});
    for (int64_t threads : {1, 2, 3}) {
      std::fill(y.begin(), y.end(), -1.0f);
      run(xs, ys, threads);
      for (int64_t i = 0; i < rows; ++i)
        EXPECT_EQ(y[i], static_cast<float>(19 * i + 171)) << target.name().str();
    }
  }
}

// Two programs with a kernel in common, which has a helper and a constant of its own.
static constexpr const char *program = R"mlir(
llvm.mlir.global private constant @two(2 : i32) : i32
func.func private @helper(%x: i32) -> i32 {
  %address = llvm.mlir.addressof @two : !llvm.ptr
  %two = llvm.load %address : !llvm.ptr -> i32
  %y = arith.muli %x, %two : i32
  return %y : i32
}
func.func private @kernel(%x: memref<1xi32>) attributes {launch.parameters = ["x"]} {
  %c0 = arith.constant 0 : index
  %v = memref.load %x[%c0] : memref<1xi32>
  %w = func.call @helper(%v) : (i32) -> i32
  memref.store %w, %x[%c0] : memref<1xi32>
  return
}
func.func @entry_of_NAME(%x: memref<1xi32>) attributes {llvm.emit_c_interface} {
  CALLS
  return
}
)mlir";

static std::string replaced(std::string text, const std::string &word, const std::string &by) {
  return text.replace(text.find(word), word.size(), by);
}

TEST(EmitObject, KernelsAreCompiledOnceForAllPrograms) {
  DialectRegistry registry;
  registerTranslations(registry);
  MLIRContext context(registry);
  context.loadDialect<arith::ArithDialect, func::FuncDialect, LLVM::LLVMDialect,
                      memref::MemRefDialect>();
  const std::string call = "func.call @kernel(%x) : (memref<1xi32>) -> ()\n";
  for (const auto &[name, calls, lowered] :
       {std::tuple("once", call, 2), {"twice", call + call, 1}, {"again", call, 1}}) {
    SCOPED_TRACE(name);
    const auto expected = static_cast<int32_t>(2 * calls.size() / call.size());
    const std::string text = replaced(replaced(program, "NAME", name), "CALLS", calls);
    OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context);
    ASSERT_TRUE(module);
    int count = 0;
    auto objects = emitObjects(*module, Target{Isa::AVX2}, [&](ModuleOp part) {
      ++count;
      PassManager pm(&context);
      buildLowerToLLVMPipeline(pm);
      return pm.run(part);
    });
    ASSERT_TRUE(succeeded(objects));
    EXPECT_EQ(count, lowered);
    EXPECT_EQ(objects->size(), 2u);
    llvm::SmallString<128> folder;
    ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("easyquant-emit", folder));
    const std::string path = (folder + "/program.so").str();
    ASSERT_TRUE(succeeded(linkSharedObject(UnknownLoc::get(&context), *objects, path)));
    void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_TRUE(library) << dlerror();
    llvm::sys::fs::remove_directories(folder);
    EXPECT_FALSE(dlsym(library, "kernel.avx2")) << "another library could take it for its own";
    auto *entry = reinterpret_cast<void (*)(MemRef<int32_t, 1> *)>(
        dlsym(library, (std::string("_mlir_ciface_entry_of_") + name).c_str()));
    ASSERT_TRUE(entry);
    int32_t value = 1;
    MemRef<int32_t, 1> x(&value, {1});
    entry(&x);
    EXPECT_EQ(value, expected);
    dlclose(library);
  }
}
