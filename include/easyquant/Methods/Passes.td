//===- Passes.td - Methods that run the model -----------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_METHODS_PASSES
#define EASYQUANT_METHODS_PASSES

include "easyquant/Dialect/Equant/Transforms/MethodOptions.td"
include "easyquant/Support/PassOptions.td"

include "mlir/Pass/PassBase.td"

def Awq : Pass<"equant-awq", "::mlir::ModuleOp"> {
  let summary = "Scale and clip weights so that those which matter are rounded finely";
  let description = [{
    AWQ (Lin et al., 2023, https://arxiv.org/abs/2306.00978) at the sites of layers whose `equant.plan` names `awq`. For every
    activation that such sites read it tries factors s made of the mean magnitudes of its channels (r = 0, 1/20 … 19/20, and
    none), each time with the rounded weights in the place of these sites, and keeps those that change the output of the
    enclosing block (attention, MLP) least. The columns of the weights are multiplied by s; what makes the activation is
    divided by it: a norm, up_proj under down_proj, v_proj under o_proj unless heads share values. Where nothing can take the
    division the step is left out, and `equant.transforms` of the module says why.

    Then the ranges of weights shrink as long as that lowers the error of their part of the output (20 steps, down to one half),
    but not at linears that make queries and keys, and only where `awq` is the last method of the plan: what rounds after it
    chooses ranges of its own.

    Where the rule is `hessian_diagonal`, candidates are rounded in ranges of small Σⱼ E[xⱼ²] (wⱼ − ŵⱼ)², and ranges are refined, scale
    and codes in turn, as long as the error of their part of the output falls.

    Layers see activations of the float model. Means are over the first samples that hold 16384 tokens, losses over the first 512 tokens
    of the first `search-samples` samples. `easyquant/Numerics/Awq.h` has the formulas. What is computed for layer i goes into `awq_<i>.safetensors` and
    `awq_clip_<i>.safetensors` in the module's work folder (`equant.work`), and is not computed again when it is there with
    the right stamp.

    Before:

    ```mlir
    %n = lm.rms_norm %x, %wn {epsilon = 1.0e-05 : f64} : tensor<?x576xf32>
    %y = lm.linear %n, %w {equant.plan = #equant.plan<methods = ["awq"], rule = zeropoint, weight = <i4, asymmetric, group = 128>>,
                           site = "up_proj"} : (tensor<?x576xf32>, tensor<1536x576xf32>) -> tensor<?x1536xf32>
    ```

    After:

    ```mlir
    %s = ml_program.global_load_const @up_proj.awq_scale : tensor<576xf32>
    %ns = equant.scale %wn by %s {axis = 0 : i64, divide} : tensor<576xf32>, tensor<576xf32>
    %n = lm.rms_norm %x, %ns {epsilon = 1.0e-05 : f64} : tensor<?x576xf32>
    %ws = equant.scale %w by %s {axis = 1 : i64} : tensor<1536x576xf32>, tensor<576xf32>
    %y = lm.linear %n, %ws {equant.plan = #equant.plan<methods = ["awq"], rule = zeropoint,
                                                       weight = <i4, asymmetric, group = 128>, scale = @up_proj.weight_scale,
                                                       zero_point = @up_proj.weight_zero_point>,
                            site = "up_proj"} : (tensor<?x576xf32>, tensor<1536x576xf32>) -> tensor<?x1536xf32>
    ```
  }];
  let options = [
    TokensFile, WorkFolder, Threads, SearchSamples, Clip,
  ] # MethodOptions;
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::mlir::ml_program::MLProgramDialect"];
}

def LearnTables : Pass<"equant-learn-tables", "::mlir::ModuleOp"> {
  let summary = "Learn the tables of values that codes stand for";
  let description = [{
    Puts a table in the place of `learned2`, `learned3` or `learned4` in `equant.plan`: by weighted k-means of the weights in units
    of the scales that the plan's rule gives them, each counting E[xⱼ²] of what it is multiplied by
    (`easyquant/Numerics/LearnedTable.h`). The module's statistics (`equant.statistics`) must have the `moments` of each site;
    without statistics all columns count alike. Sites that read one activation get one table, so that they fuse. Rows are a sample,
    256 of each weight, evenly spread. `learned2_int8` and the other two, which stand beside int8 activations, become tables of
    int8 values in units of 1/128. These are rounded in every turn of learning, so that nothing is rounded twice.

    Before:

    ```mlir
    %y = lm.linear %x, %w {equant.plan = #equant.plan<methods = [], rule = absmax, weight = <i2, codebook = learned2, group = 64>>,
                           site = "up_proj"} : (tensor<?x576xf32>, tensor<1536x576xf32>) -> tensor<?x1536xf32>
    ```

    After:

    ```mlir
    %y = lm.linear %x, %w {equant.plan = #equant.plan<methods = [], rule = absmax,
                                                      weight = <i2, codebook = [-1.0, -0.3, 0.25, 0.9], group = 64>>,
                           site = "up_proj"} : (tensor<?x576xf32>, tensor<1536x576xf32>) -> tensor<?x1536xf32>
    ```
  }];
  let options = [Threads];
  let dependentDialects = ["::easyquant::equant::EquantDialect"];
}

def ChooseRanges : Pass<"equant-choose-ranges", "::mlir::ModuleOp"> {
  let summary = "Choose ranges of weights by what they are multiplied by";
  let description = [{
    The rule `hessian_diagonal` of `equant.plan`: scales and zero points of small Σⱼ E[xⱼ²] (wⱼ − ŵⱼ)², x being what the linear
    reads in the float model, methods that transform weights included, E over the first samples that hold 16384 tokens, or with `expert-tokens`
    over all that `equant-take-windows` has taken.
    `easyquant/Numerics/ScaleRules.h` has the search. Sites
    whose ranges a method has chosen already are left as they are, and so are those whose plan names `gptq`, which has weights
    of its own. A module without such sites needs no tokens. Each expert of a mixture has ranges by the rows that chose it; with fewer than 128 of them its
    mean squares are filled up (`numerics::fillUp`), by those of all rows where experts read rows of tokens.

    With `hessian=loss` or `loss-both` a token counts as much as the model's loss makes of it: E[xⱼ²] is E[|g|² xⱼ²], g the gradient
    of the loss at the linear's output (`equant-calibrate-loss`, whose file `statistics` may name), over all samples. The head
    has E[xⱼ²] still.

    What is chosen for layer i goes into `choose-ranges_<i>.safetensors`, of the output head into
    `choose-ranges_head.safetensors` in the module's work folder (`equant.work`), and is not computed again when it is there
    with the right stamp.

    Before:

    ```mlir
    %y = lm.linear %x, %w {equant.plan = #equant.plan<methods = [], rule = hessian_diagonal, weight = <i4, symmetric, group = 128>>,
                           site = "up_proj"} : (tensor<?x576xf32>, tensor<1536x576xf32>) -> tensor<?x1536xf32>
    ```

    After:

    ```mlir
    %y = lm.linear %x, %w {equant.plan = #equant.plan<methods = [], rule = hessian_diagonal, weight = <i4, symmetric, group = 128>,
                                                      scale = @up_proj.weight_scale>,
                           site = "up_proj"} : (tensor<?x576xf32>, tensor<1536x576xf32>) -> tensor<?x1536xf32>
    ```
  }];
  let options = [TokensFile, WorkFolder, Threads, LossStatistics, Hessian, ExpertTokens];
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::mlir::ml_program::MLProgramDialect"];
}

def Gptq : Pass<"equant-gptq", "::mlir::ModuleOp"> {
  let summary = "Round weights so that later columns make up for the errors of earlier ones";
  let description = [{
    GPTQ (Frantar et al., 2022, https://arxiv.org/abs/2210.17323) at the sites of layers whose `equant.plan` names `gptq`.
    For each input x of a linear it gathers H = (2/n) Σ x xᵀ over the calibration tokens and rounds the weight W to the Ŵ of
    small tr((W − Ŵ) H (W − Ŵ)ᵀ); scales follow from the plan's rule, and from the weights as corrected so far unless
    an option asks for those of the weights as they were. `easyquant/Numerics/Gptq.h` has the formulas.

    Layers are done in order, and inside a layer the sites by what they read (q, k and v; o; gate and up; down): each sees
    the activations that the rounded weights before it produce, those of sites without `gptq` being rounded by their plan.

    Each expert of a mixture is rounded by itself, with H over the rows that chose it, which is filled up (`numerics::fillUp`) where these are fewer than its
    columns: by H of all rows where experts read rows of tokens, else by a multiple of 1. `equant.transforms` names such experts.

    With `hessian=sinks` a token counts in the Hessians of k and v as much as the attention that it receives, the mean over heads of the
    sum of the softmax probabilities by which it is read, those at the beginning of texts, too.

    With `hessian=loss` H is (2/n) Σ |g|² x xᵀ with g the gradient of the model's loss at the linear's output (`equant-calibrate-loss`), and
    with `hessian=loss-both` errors go to later rows, too, by (2/n) Σ g gᵀ. Both are of the float model: layers are done from the last one
    to the first, and no site depends on another. `statistics` names a file of `equant-calibrate-loss` on the same tokens; then the model is not run.
    Each expert has both over the rows that chose it, tokens that begin texts included. Its Hout is filled up where it has more rows than that, as if all were alike.

    What is computed for layer i goes into `gptq_<i>.safetensors` in the module's work folder (`equant.work`). A layer whose
    file is there with the right stamp (of the model, the tokens, the options, the plans and all layers before it) is not
    computed again: a run that was ended goes on where it stopped, and ends with the same bytes.

    Before:

    ```mlir
    %y = lm.linear %x, %w {equant.plan = #equant.plan<methods = ["gptq"], rule = absmax, weight = <i4, symmetric, group = 128>>,
                           site = "up_proj"} : (tensor<?x576xf32>, tensor<1536x576xf32>) -> tensor<?x1536xf32>
    ```

    After:

    ```mlir
    ml_program.global private @up_proj.weight_codes(#ml_program.extern : tensor<1536x576xi4>) : tensor<1536x576xi4>
      {equant.file = "gptq_0.safetensors", equant.stamp = "d41d8c…"}
    ...
    %y = lm.linear %x, %w {equant.plan = #equant.plan<methods = ["gptq"], rule = absmax, weight = <i4, symmetric, group = 128>,
                                                      codes = @up_proj.weight_codes, scale = @up_proj.weight_scale>,
                           site = "up_proj"} : (tensor<?x576xf32>, tensor<1536x576xf32>) -> tensor<?x1536xf32>
    ```
  }];
  let options = [
    TokensFile, WorkFolder, Threads, LossStatistics, Hessian, ActOrder, StaticGroups, Damping,
  ] # MethodOptions;
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::mlir::ml_program::MLProgramDialect"];
}

def Lkd : Pass<"equant-lkd", "::mlir::ModuleOp"> {
  let summary = "Distill each layer into its quantized self";
  let description = [{
    ZeroQuant's layer-by-layer distillation (Yao et al., 2022, https://arxiv.org/abs/2206.01861) at the sites of layers whose
    `equant.plan` names `lkd`: the weights behind the codes of a layer are trained with Adam until the quantized layer gives
    what the float layer gives, on hidden states of the float model. An eighth of the samples, at least one, is held out: what
    is kept is the best on these, the weights as they came included. A remark says by how much the error of each layer fell.
    `easyquant/Numerics/Lkd.h` has the details. It takes two samples at least. Gradients are those of `lm-build-gradients`, compiled, whatever the
    architecture. Experts that no row chose are rounded to nearest; a remark and `equant.transforms` name them.

    What is computed for layer i goes into `lkd_<i>.safetensors` in the module's work folder (`equant.work`), and is not
    computed again when it is there with the right stamp.

    The plans change as `equant-gptq` changes them: they name the tensors with codes, scales and zero points.
  }];
  let options = [
    TokensFile, WorkFolder, Threads, Epochs,
    NumberOption<"learningRate", "learning-rate", "double", "0.005", "largest step, in units of a weight's mean scale">,
  ] # MethodOptions;
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::mlir::ml_program::MLProgramDialect"];
}

def SignRound : Pass<"equant-signround", "::mlir::ModuleOp"> {
  let summary = "Learn which way weights are rounded";
  let description = [{
    SignRound (Cheng et al., 2023, https://arxiv.org/abs/2309.05516), known as AutoRound, at the sites of layers whose
    `equant.plan` names `signround`, of schemes of integers or tables: offsets that are added to weights before they are rounded, and
    factors of their scales, follow the signs of the gradients of a layer's squared error, in steps that fall linearly. They begin with
    round to nearest in the ranges that the plan names (`equant-choose-ranges`, say) or that follow from its rule.
    Layers see hidden states of the float model on sequences of 128 tokens that samples are split into, 64 of them at most; activations stay
    float while rounding is learned. An eighth of the sequences, at least one, is held out: what is kept is the best on these, the beginning included. A
    remark says by how much the error of each layer fell. `easyquant/Numerics/SignRound.h` has the details. Experts that no row of the sequences chose are rounded
    to nearest; a remark and `equant.transforms` name them.

    What is computed for layer i goes into `signround_<i>.safetensors` in the module's work folder (`equant.work`), and is not
    computed again when it is there with the right stamp. The plans change as `equant-gptq` changes them.
  }];
  let options = [TokensFile, WorkFolder, Threads, Steps] # MethodOptions;
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::mlir::ml_program::MLProgramDialect"];
}

#endif // EASYQUANT_METHODS_PASSES
