//===- Passes.td - Passes that run the model ---------------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CALIBRATION_PASSES
#define EASYQUANT_CALIBRATION_PASSES

include "mlir/Pass/PassBase.td"

def Calibrate : Pass<"equant-calibrate", "::mlir::ModuleOp"> {
  let summary = "Run the model on calibration text and write what its observers see";
  let description = [{
    Takes the samples of a tokens file through the model, one layer after the other: each layer is compiled for this
    machine (equal layers once), its weights are read, all samples go through it, and what its `equant.observe` ops ask
    for is gathered. At any time the hidden states of the samples and the weights of one layer are in memory. Padding and
    the token that begins texts are not counted.

    The statistics file, whose path becomes the module attribute `equant.statistics`, is safetensors with tensors
    `<site>/<statistic>` (easyquant/Dialect/Equant/Analysis/StatisticsFile.h) and a stamp as its metadata: hashes of
    model, program, tokens, text and tokenizer, number and length of the samples, seed. It is the same, byte for byte,
    for any number of threads. A file that is there with the stamp of this run is left as it is.

    `work` holds a journal: after each layer, its statistics and the hidden states that go into the next one. A run that
    was ended goes on from there, and ends with the same bytes. The journal is removed when the file is whole.

    A value that is not finite, in a weight or in an activation, is an error that names the site.
  }];
  let options = [
    Option<"tokensFile", "tokens", "std::string", "\"\"", "safetensors file of the calibration tokens">,
    Option<"work", "work", "std::string", "\"\"", "folder of the journal">,
    Option<"statistics", "statistics", "std::string", "\"\"",
           "the file to write; by default statistics.safetensors in the work folder">,
    Option<"samples", "samples", "int64_t", "0", "samples that the tokens file must have at least; 0: any">,
    Option<"length", "length", "int64_t", "0", "tokens that its longest sample must have at least; 0: any">,
    Option<"threads", "threads", "unsigned", "0", "threads of the compiled layers; 0: one per core">,
    Option<"maxRows", "max-rows", "int64_t", "512", "tokens that go through a layer at a time">,
  ];
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::easyquant::lm::LMDialect"];
}

#endif // EASYQUANT_CALIBRATION_PASSES
