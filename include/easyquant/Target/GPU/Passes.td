//===- Passes.td - The program of an artifact for GPUs -----*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TARGET_GPU_PASSES
#define EASYQUANT_TARGET_GPU_PASSES

include "easyquant/Recipe/Options.td"

include "mlir/Pass/PassBase.td"

def EmitGPUProgram : Pass<"easyquant-emit-gpu-program", "::mlir::ModuleOp"> {
  let summary = "Compile a model on materialized weights to kernels and a list of launches";
  let description = [{
    For every chip the functions of the model become a list of launches (`program.gpu.json`, which docs/Architecture.md
    describes), and the kernels of those PTX (`kernels.<chip>.ptx`). Where `ptxas` and `fatbinary` are found, `kernels.fatbin`
    has machine code for all chips, and PTX that a driver assembles for later ones; else a warning says that there is none.
    Where every chip has an architecture of its own (sm_90a), that PTX is of sm_80, and there is a program for it, too.

    The weights have to be materialized for `gpu`. The module stays as it is, but for the attribute
    `equant.gpu_program`, what the manifest says of all this.
  }];
  let options = [
    Option<"output", "output", "std::string", "\"\"", "folder of the artifact">,
    ListOption<"chips", "target", "std::string", "chips, such as sm_80; docs/Targets.md lists them">,
    // A chip is filled by more rows than a CPU.
    Option<"stepRows", "max-rows", "int64_t", "4096",
           "most tokens of one step of all sequences; buffers are planned for it (default: 4096)">,
    KVCache,
  ];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::gpu::GPUDialect", "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
    "::mlir::NVVM::NVVMDialect", "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect",
  ];
}

#endif // EASYQUANT_TARGET_GPU_PASSES
