//===- Passes.td - Models to launches ----------------------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CONVERSION_EQUANTTOLAUNCHES_PASSES
#define EASYQUANT_CONVERSION_EQUANTTOLAUNCHES_PASSES

include "easyquant/Recipe/Options.td"
include "easyquant/Support/PassOptions.td"

include "mlir/Pass/PassBase.td"

def ConvertEquantToLaunches : Pass<"convert-equant-to-launches", "::mlir::ModuleOp"> {
  let summary = "Turn every lm and equant op into launches of kernels, on buffers";
  let description = [{
    Takes a model of one function, whose activations are legalized for the target, on weights that are materialized for it. The
    function becomes a step: tensors are buffers, weights `memref.get_global`s, views parts of memory, and every other op, or
    fusion of ops, is launches of the kernels that the target's library has for it. Kernels are generated as they are asked for,
    one for each different spec: functions of the module for CPUs, of the `gpu.module` `@kernels` for GPUs. Where a session that
    went back needs launches before its next call (a cache of codes on a GPU), they are a step of their own, `@forward.restore`.

    ```mlir
    %z = equant.fusion {
      %y = equant.packed_linear %rows, %w {sites = ["o_proj"]} : …
      %sum = lm.add %x, %y : tensor<?x576xf32>
      equant.yield %sum : tensor<?x576xf32>
    } : tensor<?x576xf32>
    ```
    becomes
    ```mlir
    %w = memref.get_global @o_proj.weight : memref<18x144x32x4xi8>
    %scratch = launch.scratch 18432 per_thread : memref<?xi8>
    launch.kernel gemm @linear_576x576_i8_q_accumulate(%codes, %rs, %t, %w, %s, %x, %scratch)
      {site = "o_proj", writes = array<i64: 5, 6>} : …
    ```
  }];
  let options = [
    TextOption<"target", "target", "avx2", "instruction set or chip; docs/Targets.md lists them">,
    MaxRows, KVCache,
  ];
  let dependentDialects = [
    "::easyquant::launch::LaunchDialect", "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect", "::mlir::gpu::GPUDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect", "::mlir::NVVM::NVVMDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect",
  ];
}

#endif // EASYQUANT_CONVERSION_EQUANTTOLAUNCHES_PASSES
