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
