//===- Passes.td - From a module to the files of an artifact --*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_PIPELINES_PASSES
#define EASYQUANT_PIPELINES_PASSES

include "easyquant/Recipe/Options.td"
include "easyquant/Support/PassOptions.td"

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

def EmitGPUProgram : Pass<"easyquant-emit-gpu-program", "::mlir::ModuleOp"> {
  let summary = "Compile a model on materialized weights to kernels and a list of launches";
  let description = [{
    For every chip the functions of the model become a list of launches (`program.gpu.json`, which docs/Architecture.md
    describes), and the kernels of those PTX (`kernels.<chip>.ptx`). Where `ptxas` and `fatbinary` are found, `kernels.fatbin`
    has machine code for all chips, and PTX that a driver assembles for later ones; else a warning says that there is none.
    Where every chip has an architecture of its own (sm_90a), that PTX is of sm_80, and there is a program for it, too.

    The weights have to be materialized with the packing `gpu`. The module stays as it is, but for the attribute
    `equant.gpu_program`, what the manifest says of all this.
  }];
  let options = [
    Option<"output", "output", "std::string", "\"\"", "folder of the artifact">,
    ListOption<"chips", "chip", "std::string", "GPUs: sm_80, sm_86, sm_87, sm_89, sm_90a">,
    MaxRows, KVCache,
  ];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::gpu::GPUDialect", "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
    "::mlir::NVVM::NVVMDialect", "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect",
  ];
}

def PrintPlans : Pass<"easyquant-print-plans", "::mlir::ModuleOp"> {
  let summary = "Print what would become of each site as JSON";
  let description = [{
    Prints to standard output, of a module whose sites have plans, what `easyquant compile --dry-run` and `easyquant recipe
    check` show: for every site its name and shape, the schemes of its weight and input (null: float), the methods, the bytes
    of its weight as it will be stored, and, under `reason`, why it cannot be quantized as asked, if it cannot. Beside them
    the recipe, the bytes of all other constants and, at most, of the header of the weights file, the floats of the largest
    layer, the model's sizes, and `passes` as they are given. The module stays as it is.
  }];
  let options = [
    ListOption<"passes", "passes", "std::string", "the passes that quantization would run">,
  ];
}

def WriteManifest : Pass<"easyquant-write-manifest", "::mlir::ModuleOp"> {
  let summary = "Complete the artifact: copy the tokenizer's files, write manifest.json";
  let description = [{
    Copies `copy-files` into the folder and writes `<output>/manifest.json` from the module's attributes `lm.model`,
    `equant.report`, `equant.program` and `equant.gpu_program`, with size and checksum of every file of the folder.
  }];
  let options = [
    Option<"output", "output", "std::string", "\"\"", "folder of the artifact">,
    CopyFiles,
  ];
}

#endif // EASYQUANT_PIPELINES_PASSES
