//===- Passes.td - Models to kernel calls ------------------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CONVERSION_EQUANTTOKERNELS_PASSES
#define EASYQUANT_CONVERSION_EQUANTTOKERNELS_PASSES

include "easyquant/Recipe/Options.td"
include "easyquant/Support/PassOptions.td"

include "mlir/Pass/PassBase.td"

def ConvertEquantToKernels : Pass<"convert-equant-to-kernels", "::mlir::ModuleOp"> {
  let summary = "Turn every lm and equant op into a call of a kernel, on planned buffers";
  let description = [{
    Takes a model whose weights are materialized. Every function becomes one on memrefs: weights, arena and cache are flat
    byte buffers, and a tensor is a view of one at a constant offset. Kernels are generated as they are asked for, one for
    each different spec.

    On the way, without leaving a trace in the `lm` program:
      * `x + linear(…)` adds into the memory of `x`, RoPE and layer functions work in place;
      * an activation that only linears with quantized input read is written as codes by the kernel that makes it;
      * buffers whose lifetimes do not meet share memory.

    ```mlir
    %h = lm.rms_norm %x, %w {epsilon = 1.0e-05 : f64} : tensor<?x64xf32>
    %y = equant.linear %h, %codes scale(%s) {…, input_scheme = #equant.scheme<i8, symmetric, token, dynamic>} : …
    %z = lm.add %x, %y : tensor<?x64xf32>
    ```
    becomes
    ```mlir
    call @rms_norm_64_quantize(%x, %w, %codes, %scales, %sums, %state, %thread, %threads) : …
    %stops = call @team_barrier(%state, %threads) : (!llvm.ptr, index) -> i1
    call @linear_64x64_i8_q_accumulate(%codes, %scales, %sums, %weights, %wscales, %x, %scratch, %state, %thread, %threads) : …
    ```
    The entry runs all of it in one parallel region: every thread of the team calls every kernel, and a barrier stands before one
    that reads or overwrites what another thread's share of an earlier one has to do with.

    With `step`, the entry is the function of `easyquant/Formats/Step.h`. Every function then takes a marking function and a context
    for it behind the team, pointers, and calls it before every kernel with the number of the phase and the name of the site
    (docs/Architecture.md, "The program ABI"), unless it is null; and it returns after a barrier that tells it to stop:
    ```mlir
      %stops = call @team_barrier(%state, %threads) : (!llvm.ptr, index) -> i1
      cf.cond_br %stops, ^stopped, ^next
    ^next:
      call @mark_kernel(%mark, %context, %gemm, %site) : (!llvm.ptr, !llvm.ptr, i64, !llvm.ptr) -> ()
      call @linear_64x64_i8_q_accumulate(…) : …
    ```
  }];
  let options = [
    TextOption<"isa", "isa", "avx2", "instruction set of the kernels: avx2 or avx512vnni">,
    MaxRows, KVCache,
    NumberOption<"step", "step", "bool", "false",
           "make an entry that is called with an eq_step, marks kernels and can be stopped; else one with @forward's arguments">,
  ];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::cf::ControlFlowDialect", "::mlir::func::FuncDialect", "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
    "::mlir::memref::MemRefDialect", "::mlir::omp::OpenMPDialect", "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect",
  ];
}

#endif // EASYQUANT_CONVERSION_EQUANTTOKERNELS_PASSES
