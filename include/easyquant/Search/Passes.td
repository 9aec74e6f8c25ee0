//===- Passes.td - Formats within a budget -----------------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_SEARCH_PASSES
#define EASYQUANT_SEARCH_PASSES

include "easyquant/Dialect/Equant/Transforms/MethodOptions.td"
include "easyquant/Support/PassOptions.td"

include "mlir/Pass/PassBase.td"

def SearchBitwidths : Pass<"equant-search-bitwidths", "::mlir::ModuleOp"> {
  let summary = "Give each group of sites the format that is worth its bytes";
  let description = [{
    Changes the schemes of the `equant.plan`s that it finds in layers, within a budget of bytes, and notes them in `equant.recipe`
    as rules. Sites that read one activation get one format (with `per-site` each its own): a scheme of `formats` with a group
    size of `group-sizes`, in a basis of `activation-bases` and with a group size of activations of `activation-group-sizes`, with
    the methods of the recipe. Formats that a target has no kernel for are refused, or, with
    `formats=all` (every scheme whose activations are those of the recipe's, in groups of at most 32 also with two-level scales), left out; `SCHEME+two-level`
    names such scales. The name of a format of checkpoints, as in `formats=gguf`, stands for all of these that it holds: each site gets its own, and bytes are those of its tensors. Codes and ranges that methods have
    computed before are dropped; run it before `equant-rotate` and the methods that round.

    What is measured, on the first `search-samples` samples, activations being rounded where the format rounds them by dynamic
    scales of tokens, and float elsewhere:

      * of a group and a format that no other one of the same activations beats in bytes, Σⱼ E[xⱼ²] Σₙ (w − ŵ)² and, where they are limited, times: the error of the
        hidden states behind the enclosing block (attention, MLP), the mean over tokens of ‖h − ĥ‖² / ‖h‖², from its float input, rounded
        by the method that will round it (GPTQ on one Hessian for all formats; everything else to nearest by the plan's rule);
      * of a block: the `objective` of the whole model with that block as its plans would have it, which turns errors into loss;
      * of one pair in twenty, at most one a layer: the objective of the whole model with it. The report has the rank correlation
        with what is predicted.

    With `sensitivity=loss` no block is run: a candidate's loss is tr(Hout E H Eᵀ) / (4 tr(Hout)), E being the error of its weight and H and Hout the Hessians of
    the model's loss (`easyquant/Execution/LossHessians.h`), which a pass backward gathers or `statistics` has. Weights are then weighed by H, too. It knows nothing of activations that are
    rounded, and runs on one rank. The head is measured as before.

    With `search-head` the output head, if it has a plan, is a group as well, and an embedding tied to it has its format; its formats'
    losses are measured on the whole model, and it is rounded by the base of the method alone.

    Losses are taken to add up. `strategy` says what is chosen:

    | strategy | choice |
    |---|---|
    | `grid` | the least predicted loss within the budget: branch and bound |
    | `greedy` | from there by changes and exchanges that lower the objective of the whole model, at most `evaluations` |
    | `learned` | the least loss when each kind of site has a coefficient, learned from the objectives of `evaluations` sampled choices, or the choice of `grid`, if it is better |
    | `entropy` | the least Σ entropy of a site's activations × ‖W − Ŵ‖² / ‖W‖², from the histograms of a statistics file: nothing runs without tokens |

    A budget is `avg-bits` (codes, scales and zero points of the searched weights), `max-bytes` (all weights of the first target),
    or `lambda`, which adds so many nats for each average bit. With `max-decode-ms` and `max-prefill-ms` choices must also be fast: each candidate's
    kernels are compiled and timed on one token and on 512, weights cold, once for each shape and scheme; a price of a millisecond of either is sought at
    which what is chosen within the budget is fast enough (Lagrangian relaxation). Several budgets share what was measured; the first one's choice is
    what plans get. Times are kept in `search_times_<hash>.safetensors`, one file for each of the two. `output` is its recipe, `report` a JSON file of all of it. What is measured of layer i goes into
    `search_<i>.safetensors` in the module's work folder, losses of whole models into `search_choice_<hash>.safetensors`: a run
    that was ended goes on from them, and ends with the same bytes. `easyquant/Numerics/FormatChoice.h` has the algorithms.

    ```
    easyquant-compile MODEL --pipeline='equant-absmax{scheme=W4A16 group-size=32},equant-search-bitwidths{tokens=tokens.safetensors
      work=work formats=all group-sizes=32,64,128 avg-bits=4 output=recipe.json}'
    ```
  }];
  let options = [
    TokensFile, WorkFolder, Threads, SearchSamples,
    ListOption<"formats", "formats", "std::string", "schemes to choose from, or all">,
    ListOption<"groupSizes", "group-sizes", "int64_t", "group sizes to choose from, 0 being a whole row; by default 32, 64 and 128">,
    ListOption<"activationBases", "activation-bases", "std::string", "bases to choose from: plain, hadamard; by default both where activations are int8 with dynamic scales, and else that of the scheme">,
    ListOption<"activationGroupSizes", "activation-group-sizes", "int64_t", "group sizes of int8 activations with dynamic scales to choose from, 0 being a whole token; by default 0">,
    TargetsOption<"what has to have kernels">,
    TextOption<"strategy", "strategy", "grid", "grid, entropy, greedy or learned">,
    TextOption<"objective", "objective", "kl", "kl or loss">,
    TextOption<"sensitivity", "sensitivity", "blocks", "where losses of layers come from: blocks, which are run, or the Hessians of the loss">,
    ListOption<"avgBits", "avg-bits", "double", "budgets: bits a weight of the layers">,
    ListOption<"maxBytes", "max-bytes", "int64_t", "budgets: bytes of all weights">,
    ListOption<"lambdas", "lambda", "double", "budgets: nats that an average bit is worth">,
    NumberOption<"maxDecodeMs", "max-decode-ms", "double", "0", "milliseconds that the kernels of planned linears may take for one token, measured on this machine; 0: any">,
    NumberOption<"maxPrefillMs", "max-prefill-ms", "double", "0", "the same for 512 tokens, of which the output head sees the last; 0: any">,
    NumberOption<"perSite", "per-site", "bool", "false", "formats of single sites, which then may not fuse with those beside them">,
    NumberOption<"searchHead", "search-head", "bool", "false", "the format of the output head, too, and of an embedding tied to it">,
    ListOption<"fit", "fit", "std::string", "methods that fit the weights of what was chosen when it is compiled, in order; losses are those of weights before">,
    NumberOption<"evaluations", "evaluations", "int64_t", "64", "whole models that greedy and learned may run for each budget">,
    Option<"statistics", "statistics", "std::string", "\"\"", "the statistics file of entropy; by default that of the module. With sensitivity=loss that of the Hessians, of this very text; by default the model is run backward">,
    Option<"output", "output", "std::string", "\"\"", "the recipe to write, JSON">,
    Option<"report", "report", "std::string", "\"\"", "the report to write, JSON">,
  ];
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::mlir::ml_program::MLProgramDialect"];
}

#endif // EASYQUANT_SEARCH_PASSES
