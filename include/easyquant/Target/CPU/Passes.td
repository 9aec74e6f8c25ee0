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
  let summary = "Compile a model on materialized weights to model.so";
  let description = [{
    For every instruction set a copy of the module goes through `--easyquant-launches`, `convert-launches-to-llvm` and the lowering to LLVM, and
    becomes an object; the objects are linked to `<output>/model.so`. The module itself stays as it is, but for the
    attribute `equant.program`: what the runtime must know to call the program.
  }];
  let options = [
    Option<"output", "output", "std::string", "\"\"", "folder of the artifact">,
    Isas, MaxRows, KVCache,
  ];
}

#endif // EASYQUANT_TARGET_CPU_PASSES
