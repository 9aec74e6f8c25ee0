//===- Passes.td - Steps to programs for CPUs --------------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CONVERSION_LAUNCHESTOLLVM_PASSES
#define EASYQUANT_CONVERSION_LAUNCHESTOLLVM_PASSES

include "easyquant/Support/PassOptions.td"

include "mlir/Pass/PassBase.td"

def ConvertLaunchesToLLVM : Pass<"convert-launches-to-llvm", "::mlir::ModuleOp"> {
  let summary = "Turn a step for a CPU into the function that a program is entered by";
  let description = [{
    Takes a step whose buffers are placed. Weights, arena and cache become arguments, flat ranges of bytes, of which buffers and
    constants are views; launches become calls. The lowering to LLVM of func, memref and the kernels' dialects comes behind it.

    ```mlir
    launch.kernel quantize @rms_norm_64_quantize(%x, %w, %codes, %scales, %sums) {shares = array<i64: 0, 1, 2, 3, 4>, …}
    launch.kernel gemm @linear_64x64_i8_q_accumulate(%codes, %scales, %sums, %weights, %wscales, %x, %scratch) {…}
    ```
    becomes
    ```mlir
    call @rms_norm_64_quantize(%x, %w, %codes, %scales, %sums, %state, %thread, %threads) : …
    %stops = call @team_barrier(%state, %threads) : (!llvm.ptr, index) -> i1
    call @linear_64x64_i8_q_accumulate(%codes, %scales, %sums, %weights, %wscales, %x, %scratch, %state, %thread, %threads) : …
    ```
    The entry runs all of it in one parallel region: every thread of the team calls every kernel, and a barrier stands before one
    that reads or overwrites what another thread's share of an earlier one has to do with.

    With `step`, the entry is the function of `easyquant/Formats/Step.h`. The body then takes a marking function and a context for
    it behind the team, pointers, and calls it before every kernel with the number of the phase and the name of the site
    (docs/Architecture.md, "The program ABI"), unless it is null; and it returns after a barrier that tells it to stop:
    ```mlir
      %stops = call @team_barrier(%state, %threads) : (!llvm.ptr, index) -> i1
      cf.cond_br %stops, ^stopped, ^next
    ^next:
      call @call_profiler(%mark, %context, %gemm, %site) : (!llvm.ptr, !llvm.ptr, i64, !llvm.ptr) -> ()
      call @linear_64x64_i8_q_accumulate(…) : …
    ```
  }];
  let options = [
    NumberOption<"step", "step", "bool", "false",
           "make an entry that is called with an eq_step, marks kernels and can be stopped; else one with @forward's arguments">,
  ];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::cf::ControlFlowDialect", "::mlir::func::FuncDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::memref::MemRefDialect", "::mlir::omp::OpenMPDialect", "::mlir::scf::SCFDialect",
  ];
}

#endif // EASYQUANT_CONVERSION_LAUNCHESTOLLVM_PASSES
