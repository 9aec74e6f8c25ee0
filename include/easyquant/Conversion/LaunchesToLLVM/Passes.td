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
    %h = launch.buffer(%rows) {offset = 4096 : i64} : memref<?x576xf32>
    launch.kernel @rms_norm_576(%x, %w, %h) {phase = "other", site = "norm", writes = array<i64: 2>} : …
    ```
    becomes
    ```mlir
    %h = memref.view %arena[%c4096][%rows] : memref<?xi8> to memref<?x576xf32>
    call @rms_norm_576(%x, %w, %h, %threads) : …
    ```

    With `profile`, the entry takes a marking function and a context for it, pointers, and calls it before every kernel with the
    number of the phase and the name of the site (docs/Architecture.md, "The program ABI"), unless it is null:
    ```mlir
    call @mark_kernel(%mark, %context, %gemm, %site) : (!llvm.ptr, !llvm.ptr, i64, !llvm.ptr) -> ()
    call @linear_64x64_i8_q_accumulate(…) : …
    ```
  }];
  let options = [
    NumberOption<"profile", "profile", "bool", "false",
           "call a function that is given at run time before every kernel, with its phase and site">,
  ];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect", "::mlir::LLVM::LLVMDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect",
  ];
}

#endif // EASYQUANT_CONVERSION_LAUNCHESTOLLVM_PASSES
