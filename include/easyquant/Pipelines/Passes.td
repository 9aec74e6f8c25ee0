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

def PrintPlans : Pass<"easyquant-print-plans", "::mlir::ModuleOp"> {
  let summary = "Print what would become of each site as JSON";
  let description = [{
    Prints to standard output, of a module whose sites have plans, what `easyquant compile --dry-run` and `easyquant recipe
    check` show: for every site its name and shape, the schemes of its weight and input (null: float), the methods, the bytes
    of its weight in the files of all targets, or in a checkpoint of the `format`, and, under `reason`, why it cannot be quantized as asked, if it cannot. A site that stays
    float unless it is named has under `float_by_default` what it does, and one of experts their number and how many a row chooses. Beside them the recipe, the bytes of all other constants and, at most, of the header of the weights file, the bytes of the tables of which a
    step reads a row a token and no more, the sizes of the KV cache, the floats of the largest
    layer, the model's sizes, and `passes` as they are given. The module stays as it is.
  }];
  let options = [
    ListOption<"passes", "passes", "std::string", "the passes that quantization would run">,
    TargetsOption<"families whose files the weights would be in">,
    ExportFormat, KVCache,
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
