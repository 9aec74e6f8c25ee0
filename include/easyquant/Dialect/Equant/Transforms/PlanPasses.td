//===- PlanPasses.td - Passes that plan how sites are quantized -*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_EQUANT_TRANSFORMS_PLANPASSES
#define EASYQUANT_DIALECT_EQUANT_TRANSFORMS_PLANPASSES

include "easyquant/Dialect/Equant/Transforms/MethodOptions.td"

include "mlir/Pass/PassBase.td"

/// A pass that plans: it decides how each site is quantized, and changes nothing else.
class PlanPass<string flag> : Pass<flag, "::mlir::ModuleOp"> {
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::easyquant::lm::LMDialect"];
}

/// What all of them but `equant-recipe` take.
defvar PlanOptions = [
  Scheme, GroupSize, ScaleType, Activations, ActivationGroupSize, ActivationZeroPoints, ActivationBasis, HadamardBlock, Sinks, Observer, WeightObserver, WeightPercentile, Head, HeadGroupSize,
  Ignore, Targets, Dequantize,
  ListOption<"methods", "methods", "std::string",
             "names of the methods that later passes apply at the planned sites, in order">,
] # MethodOptions;

def AbsMax : PlanPass<"equant-absmax"> {
  let summary = "Plan symmetric codes with scales from the largest magnitude";
  let description = [{
    s = max|w| / (2^(b−1) − 1): codes −127 … 127 for 8 bits. Weights of 8 bits have a scale per output channel, or per group if
    a group size is given; weights of fewer bits one per group of 128. With A8 activations are quantized to int8, per token at
    run time or per tensor with scales from calibration. The first column of any table: round to nearest.

    The output head, site `lm_head`, has an option of its own: int8 weights per channel in every scheme, or a scheme without
    activations that it alone has.

    Before, with `scheme=W8A8`:

    ```mlir
    %y = lm.linear %x, %w {site = "up_proj"} : (tensor<?x576xf32>, tensor<1536x576xf32>) -> tensor<?x1536xf32>
    ```

    After:

    ```mlir
    %y = lm.linear %x, %w {equant.plan = #equant.plan<methods = [], rule = absmax, weight = <i8, symmetric, channel>,
                                                      input = <i8, symmetric, token, dynamic>>, site = "up_proj"}
           : (tensor<?x576xf32>, tensor<1536x576xf32>) -> tensor<?x1536xf32>
    ```

    With scheme `keep` a site has the codes, scales and zero points that the model's source has for it, as they are, and the scheme
    of its activations: the plan names globals with the attribute `equant.stored`, which are read from the source. Sites that the
    source has in floats stay float. A site whose codes no scheme has is an error, or becomes float with `dequantize`.

    What was asked for is recorded in the module attribute `equant.recipe`. A module without a quantizable op is left as it is,
    with a warning; with `require-sites`, that is an error. So it is of every method.
  }];
  let options = PlanOptions;
}

def ZeroPoint : PlanPass<"equant-zeropoint"> {
  let summary = "Plan asymmetric codes with scales and zero points from the extrema";
  let description = [{
    s = (max − min) / (2^b − 1) over a range stretched to contain 0, and a zero point with every scale, so that 0 is a code:
    the whole range is used where it is lopsided. Weights are asymmetric whether or not the scheme says `_ASYM`; dynamic
    activations are symmetric, static ones asymmetric.

    ```mlir
    %y = lm.linear %x, %w {equant.plan = #equant.plan<methods = [], rule = zeropoint,
                                                      weight = <i4, asymmetric, group = 128>>, site = "up_proj"}
           : (tensor<?x576xf32>, tensor<1536x576xf32>) -> tensor<?x1536xf32>
    ```
  }];
  let options = PlanOptions;
}

def Symmetric : PlanPass<"equant-symmetric"> {
  let summary = "Plan symmetric codes of the full range (SYQ)";
  let description = [{
    s = max|w| / (2^(b−1) − 0.5) and codes −2^(b−1) … 2^(b−1) − 1, all of them (Faraone et al., 2018,
    https://arxiv.org/abs/1807.00301). A slice's largest positive value is clipped by half a step.

    ```mlir
    %y = lm.linear %x, %w {equant.plan = #equant.plan<methods = [], rule = symmetric, weight = <i8, symmetric, full, channel>>,
                           site = "up_proj"} : (tensor<?x576xf32>, tensor<1536x576xf32>) -> tensor<?x1536xf32>
    ```
  }];
  let options = PlanOptions;
}

def ZeroQuant : PlanPass<"equant-zeroquant"> {
  let summary = "Plan symmetric weights per group and activations per token";
  let description = [{
    ZeroQuant (Yao et al., 2022, https://arxiv.org/abs/2206.01861): absmax scales, per group of 128 input features also with 8
    bits. `mixed` gives MLP weights 4 bits and leaves attention 8; a linear belongs to attention if its result reaches
    `lm.attention` or it reads what that gives. `methods=lkd` is its layer-by-layer knowledge distillation.

    ```mlir
    %y = lm.linear %x, %w {equant.plan = #equant.plan<methods = ["lkd"], rule = absmax, weight = <i8, symmetric, group = 128>,
                                                      input = <i8, symmetric, token, dynamic>>, site = "up_proj"}
           : (tensor<?x576xf32>, tensor<1536x576xf32>) -> tensor<?x1536xf32>
    ```
  }];
  let options = PlanOptions # [Mixed];
}

def ApplyRecipe : PlanPass<"equant-recipe"> {
  let summary = "Plan per site as a file says";
  let description = [{
    The file is a JSON object. Its keys are the options of the other plan passes (`method`, which may be joined by `+`, and
    with `_` for `-`), and `sites`, a list of rules: each has `match`, the name of a site or `re:` and a regular expression, and
    what is to be otherwise there. `easyquant/Recipe/Options.td` says which options a rule may have.

    ```json
    {"method": "absmax", "scheme": "W4A16",
     "sites": [{"match": "re:\\.down_proj$", "scheme": "W8A16"}, {"match": "model.layers.0.mlp.up_proj", "scheme": "none"} ]}
    ```

    A rule that names no site, two rules for one site, an unknown key and a value of the wrong type are errors.
  }];
  let options = [Option<"file", "file", "std::string", "\"\"", "the recipe">, Observer] # MethodOptions;
}

def CheckPlans : Pass<"equant-check-plans", "::mlir::ModuleOp"> {
  let summary = "Check that targets have kernels for the plans of sites";
  let description = [{
    Fails at the first site whose weight, on activations as its plan has them, no kernel of some target reads, with the reason.
    A site that cannot be quantized as planned stays float, and is none of these. Nothing has been computed for the plans yet.
    Linears of experts have to have as many outputs as targets read at a time, of which `degree` ranks have equal parts.
    With `dequantize` a site that keeps the codes of the source (scheme `keep`) becomes float instead: its plan is taken away.

    With a `format`, checkpoints of that format have to hold the plans instead, those of ONNX by operators of version `opset`.
  }];
  let options = [
    TargetsOption<"what has to have kernels">,
    ExportFormat, Opset, Dequantize,
    NumberOption<"degree", "degree", "int64_t", "1", "ranks that share the model">,
  ];
}

def FitBasis : Pass<"equant-fit-basis", "::mlir::ModuleOp"> {
  let summary = "Rotate blocks that lie within the columns of a rank";
  let description = [{
    Where `degree` ranks have parts of what a site reads (behind attention, and behind the activation of the MLP), the site's plan gets
    the largest block, up to its own, that divides the columns of a rank. A site without a block of at least 16 stays in the plain
    basis, with a remark. It runs right after the plans, so that methods know the basis.

    Before, with `degree=2`:

    ```mlir
    %y = lm.linear %x, %w {equant.plan = #equant.plan<methods = [], rule = absmax, weight = <i8, symmetric, channel, hadamard = 512>,
                                                      input = <i8, symmetric, token, dynamic, hadamard = 512>>, site = "down_proj"}
           : (tensor<?x1536xf32>, tensor<576x1536xf32>) -> tensor<?x576xf32>
    ```

    After:

    ```mlir
    %y = lm.linear %x, %w {equant.plan = #equant.plan<methods = [], rule = absmax, weight = <i8, symmetric, channel, hadamard = 256>,
                                                      input = <i8, symmetric, token, dynamic, hadamard = 256>>, site = "down_proj"}
           : (tensor<?x1536xf32>, tensor<576x1536xf32>) -> tensor<?x576xf32>
    ```
  }];
  let options = [
    NumberOption<"degree", "degree", "int64_t", "1", "ranks that share the model">,
  ];
}

#endif // EASYQUANT_DIALECT_EQUANT_TRANSFORMS_PLANPASSES
