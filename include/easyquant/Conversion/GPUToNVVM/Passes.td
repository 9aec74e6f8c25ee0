//===- Passes.td - GPU kernels and their lowering ----------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CONVERSION_GPUTONVVM_PASSES
#define EASYQUANT_CONVERSION_GPUTONVVM_PASSES

include "easyquant/Support/PassOptions.td"

include "mlir/Pass/PassBase.td"

def LowerToNVVM : Pass<"equant-lower-to-nvvm", "::mlir::ModuleOp"> {
  let summary = "Lower the kernels of every gpu.module to the NVVM dialect";
  let description = [{
    `gpu.func`, `scf`, `arith`, `math` and `vector` become `llvm` and `nvvm`; the `gpu.module` gets the target
    `#nvvm.target<chip = …>`, for which `equant-emit-gpu-binary` makes code.
  }];
  let options = [
    TextOption<"target", "target", "sm_80", "chip; docs/Targets.md lists them">,
  ];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect"];
}

def EmitGPUBinary : Pass<"equant-emit-gpu-binary", "::mlir::ModuleOp"> {
  let summary = "Write lowered kernels as PTX and as machine code";
  let description = [{
    Takes a module after `equant-lower-to-nvvm` and writes the kernels of its `gpu.module` to the files that are named:
    `ptx` is text, made by LLVM; `cubin` is the machine code of the chip, made by `ptxas`, which has to be there. The IR stays
    as it is.
  }];
  let options = [
    Option<"ptx", "ptx", "std::string", "\"\"", "file for the PTX (- for standard output)">,
    Option<"cubin", "cubin", "std::string", "\"\"", "file for the machine code">,
  ];
}

#endif // EASYQUANT_CONVERSION_GPUTONVVM_PASSES
