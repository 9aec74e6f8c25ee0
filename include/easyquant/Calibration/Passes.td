//===- Passes.td - Measurements on text -----------------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CALIBRATION_PASSES
#define EASYQUANT_CALIBRATION_PASSES

include "easyquant/Dialect/Equant/Transforms/MethodOptions.td"
include "easyquant/Support/PassOptions.td"

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
    for any number of threads. A file that is there with the stamp of this run is left as it is. A site whose weight has
    `equant.scale` or `equant.hadamard` on its columns has `<site>/basis`, too: 0 for the one, the block for the other, in their order.

    `work` holds a journal: after each layer, its statistics and the hidden states that go into the next one. A run that
    was ended goes on from there, and ends with the same bytes. The journal is removed when the file is whole.

    A value that is not finite, in a weight or in an activation, is an error that names the site.
  }];
  let options = [
    TokensFile, WorkFolder, Threads,
    Option<"statistics", "statistics", "std::string", "\"\"",
           "the file to write; by default one of the work folder">,
    TextOption<"file", "file", "statistics.safetensors", "its name there">,
    Option<"samples", "samples", "int64_t", "0", "samples that the tokens file must have at least; 0: any">,
    Option<"length", "length", "int64_t", "0", "tokens that its longest sample must have at least; 0: any">,
    NumberOption<"layerRows", "layer-rows", "int64_t", "512", "tokens that go through a layer at a time">,
  ];
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::easyquant::lm::LMDialect"];
}

def TakeWindows : Pass<"equant-take-windows", "::mlir::ModuleOp"> {
  let summary = "Take so many windows of calibration text that every expert sees some of it";
  let description = [{
    The tokens file has more samples than its metadata `samples` say: first those that were asked for, then more of the same text.
    Writes `windows.safetensors` in the work folder, a tokens file of the first n of them. n is the least number, not below that which
    was asked for, of which each expert of every layer computes at least `expert-tokens` tokens in the float model; all samples where
    these are not enough. Tokens that begin texts are not counted. Passes that follow read that file, so that all sites have the same text.

    Samples are taken through the layers in turns: those that were asked for, as many again, and twice as many in each turn from then on. No turn runs
    that is not needed. The rows that each sample gave to each expert are in `expert_rows_<turn>.safetensors` of the work folder. They serve
    any `expert-tokens`, and a journal, as of `equant-calibrate`, has those of the layers of a turn that was ended. They are the same for any number of threads and
    ranks.

    A remark, and an entry of `equant.transforms` for each layer, name experts that still have seen fewer tokens. A model without experts is an error.
  }];
  let options = [TokensFile, WorkFolder, Threads, ExpertTokens];
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::easyquant::lm::LMDialect"];
}

def CalibrateLoss : Pass<"equant-calibrate-loss", "::mlir::ModuleOp"> {
  let summary = "Run the model forward and backward on calibration text and write what errors of weights cost it";
  let description = [{
    What goes back from the logits is drawn so that its products have the mean of those of the loss's gradients, labels being what the
    model itself predicts: √p e − p Σ √p e with p the softmax and e random signs. With x what a linear reads and g the
    gradient of the loss at its output, the statistics file gets for every linear of the layers

    | tensor | shape | what it is |
    |---|---|---|
    | `<site>/loss_inputs` | K (K + 1) / 2 | (2/n) Σ \|g\|² x xᵀ over n tokens, the lower triangle, row by row |
    | `<site>/loss_outputs` | N (N + 1) / 2 | (2/n) Σ g gᵀ |
    | `<site>/held_out_inputs`, `<site>/held_out_outputs` | the same | those of the last quarter of the samples, at least one, which judge what the others choose; none of a single sample |
    | `<site>/loss_tokens` | 2 | n, of all and of those |

    A linear of E experts has those of each expert over the rows that chose it, one behind the other: `<site>/loss_inputs` is E × K (K + 1) / 2,
    `<site>/loss_tokens` E × 2. Those of an expert that no row chose are 0. Which experts a token chooses counts as constant. The rows of all samples of a
    layer's experts are in memory, and the Hessians of one expert at a time are made of them.

    The first two are factors, but for a number, of an approximation of the Fisher information of its weight W (Tseng, Sun, De Sa, 2025,
    https://arxiv.org/abs/2505.22988): an error E of W costs about tr(loss_outputs E loss_inputs Eᵀ). All tokens count, those that begin texts, too:
    the values that attention sinks have matter most.

    The hidden states before every layer are kept on the way forward. Layers are then gone through from the last one to the first, and the
    gradients of their linears are computed by what `lm-build-gradients` makes. Logits are in memory for 64 tokens at a time. The file is the same, byte for
    byte, for any number of threads, and of ranks if they are 1, 2, 4 or 8. `work` holds a journal, as of `equant-calibrate`; a run that goes on runs forward again.

    An op without a gradient (before the model is run), a site that the loss does not depend on, a gradient that is not finite and a weight that has been transformed already are
    errors that name it.
  }];
  let options = [
    TokensFile, WorkFolder, Threads,
    Option<"statistics", "statistics", "std::string", "\"\"", "the file to write">,
  ];
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::easyquant::lm::LMDialect"];
}

def MeasureBounds : Pass<"equant-measure-bounds", "::mlir::ModuleOp"> {
  let summary = "Measure what quantization does to a model, and compute what it can do at most";
  let description = [{
    Runs the float model on calibration tokens, layer by layer, and beside it the layers as their `equant.plan`s would have
    them, rounded to nearest. Writes JSON; the module is left as it is. Every entry has `measured`, `bound` and `share`,
    measured / bound (null where the bound is 0 and the error is not). What exceeds its bound is written as it is; bounds hold
    in exact arithmetic, so that a share may be over 1 by the rounding of floats. `easyquant/Numerics/Bounds.h` has the
    formulas.

    | key | entries | measured | bound |
    |---|---|---|---|
    | `weights` | a site | \|W − Ŵ\| in the group of weights with the greatest share | half its step, or what its range cuts off |
    | `outputs` | a site | \|x Wᵀ − x̂ Ŵᵀ\| of the output with the greatest share, over `rows` tokens, in double | `linearErrorBound` of x, W and the steps |
    | `layers` | a layer | largest error of the hidden states behind it when all layers so far are quantized | `local` and `measured_gain` of the layers so far, compounded |
    | `keys_values` | a layer, `keys` or `values`, 8, 4, 2 bits | largest error of keys (post-rope) or values | that of SimQuant: the widest slice |
    | `sampling` | an activation, n samples | the mean of the int8 scales of n samples, less that of all | Hoeffding's, at `risk`; draws without replacement |

    `largest`, of a site, is the largest error anywhere. `local`, of a layer, is the largest error that it adds when its input
    is exact; `measured_gain` how much it stretches, on this text, the error that comes in: the quantized layer's largest
    difference between exact and inexact inputs over the largest difference of these inputs. `smoothing` has for each
    activation that is quantized and can be scaled the mean and range of `bestExponents`, the exponent that SmoothQuant's
    search finds, and the error bound E(s) of both and without smoothing. `bytes_per_token` counts what one token moves at a
    site with fused kernels and with separate ones (`easyquant/Numerics/MovedBytes.h`). `left_out` says what could not be
    measured and why.

    The first `samples` samples go through the quantized layers, all samples through the float model. The embedding is exact,
    also where the head that it is tied to is quantized. Plans that name computed codes or static inputs are refused.

    ```
    easyquant-compile MODEL --pipeline='equant-absmax{scheme=W8A8},equant-measure-bounds{tokens=tokens.safetensors output=bounds.json}'
    ```
  }];
  let options = [
    TokensFile, Threads,
    NumberOption<"samples", "samples", "int64_t", "2", "samples, the first ones, that go through quantized layers">,
    NumberOption<"rows", "rows", "int64_t", "32", "tokens of them on which outputs of sites are compared">,
    Option<"output", "output", "std::string", "\"\"", "the JSON file to write">,
  ];
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::mlir::ml_program::MLProgramDialect"];
}

#endif // EASYQUANT_CALIBRATION_PASSES
