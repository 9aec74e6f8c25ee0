//===- Passes.td - The program of an artifact for CPUs -----*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TARGET_CPU_PASSES
#define EASYQUANT_TARGET_CPU_PASSES

include "easyquant/Recipe/Options.td"

include "mlir/Pass/PassBase.td"

def EmitProgram : Pass<"easyquant-emit-program", "::mlir::ModuleOp"> {
  let summary = "Compile a model on materialized weights for CPUs";
  let description = [{
    For every instruction set a copy of the module goes through `--easyquant-launches`, `convert-launches-to-llvm` and the lowering to LLVM, and
    becomes an object; those of a processor are linked to one file of `<output>`: `model.so` for x86-64, `model.aarch64.so` for
    64-bit Arm. Without `isa` the instruction sets are all that the compiling machine's processor may have. The module itself stays as it is, but for the
    attribute `equant.program`: what the runtime must know to call the program.
  }];
  let options = [
    Option<"output", "output", "std::string", "\"\"", "folder of the artifact">,
    Isas, MaxRows, KVCache,
  ];
}

#endif // EASYQUANT_TARGET_CPU_PASSES
