//===- Passes.td - Models to upstream ops ------------------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CONVERSION_EQUANTTOLINALG_PASSES
#define EASYQUANT_CONVERSION_EQUANTTOLINALG_PASSES

include "easyquant/Recipe/Options.td"
include "easyquant/Support/PassOptions.td"

include "mlir/Pass/PassBase.td"

def NameSites : Pass<"equant-name-sites", "::mlir::ModuleOp"> {
  let summary = "Name the ops of linalg that have a weight";
  let description = [{
    A program that comes from elsewhere, such as torch-mlir, has no names of sites. Each `linalg.matmul`, `linalg.batch_matmul`,
    `linalg.contract` and convolution (`conv_*`, `depthwise_conv_*`) one of whose factors is a constant of the module gets one,
    the attribute `equant.site`, and is a quantizable op from then on: plan passes find it, and `ignore`, `targets` and recipes speak of it.
    The name is that of its location (`loc("up"(…))`), else function, op and a counter: `forward.matmul_0`. A name that is there stays.

    The constant is `dense<>`, `dense_resource<>`, an immutable `ml_program.global` or a parameter of IREE (`#flow.parameter.named`), behind `linalg.transpose`, `linalg.broadcast`,
    `tensor.collapse_shape`, `tensor.expand_shape` and `arith.extf` at most. Products of two activations, as in attention, get no name. What has a
    weight and cannot be quantized (one of integers or f64, for example) stays float, with a remark that says why. A name that
    somebody gave to such an op is an error.

    ```mlir
    %1 = linalg.matmul ins(%x, %w : tensor<4x16xf32>, tensor<16x32xf32>) outs(%0 : tensor<4x32xf32>) -> tensor<4x32xf32>
    ```
    becomes
    ```mlir
    %1 = linalg.matmul {equant.site = "forward.matmul_0"} ins(%x, %w : tensor<4x16xf32>, tensor<16x32xf32>) outs(%0 : tensor<4x32xf32>) -> tensor<4x32xf32>
    ```
  }];
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::mlir::linalg::LinalgDialect"];
}

def CalibrateSites : Pass<"equant-calibrate-sites", "::mlir::ModuleOp"> {
  let summary = "Give sites of linalg their static ranges, by running the module on inputs";
  let description = [{
    Runs a function of the module, in floats and on this machine, once for each file of `inputs`, and gives each op with a name
    (`equant-name-sites`) what static activations need: `equant.input_scale`, and with `zero-points` an `equant.input_zero_point`. The
    range is that of all values that its activations had, by the observer; `zero-points` belongs to plans that have them, as those of
    `equant-zeropoint`. `sinks=none` belongs to the plan: values are seen without their rows.

    A file is an array of NumPy (`FILE.npy`), for a function of one argument, or `FILE.safetensors` with the tensors `0`, `1`, … for its
    arguments. Types and static extents must be those of the function, whose dynamic ones the file gives. Upstream passes compile
    the module to loops over buffers. A site that no input reaches is an error, as are values that are not finite.

    ```mlir
    %1 = linalg.matmul {equant.site = "forward.matmul_0"} ins(%x, %w : tensor<4x16xf32>, tensor<16x32xf32>) outs(%0 : tensor<4x32xf32>) -> tensor<4x32xf32>
    ```
    becomes
    ```mlir
    %1 = linalg.matmul {equant.input_scale = 2.2e-02 : f32, equant.site = "forward.matmul_0"} ins(%x, %w : …
    ```
  }];
  let options = [
    ListOption<"inputs", "inputs", "std::string", "files of arguments, .npy or .safetensors; the function is called once for each">,
    Option<"function", "function", "std::string", "\"\"", "the function to call; by default the only public one">,
    NumberOption<"zeroPoints", "zero-points", "bool", "false", "also choose zero points">,
    Observer, ObserverPercentile,
  ];
}

def EvaluateConstants : Pass<"equant-evaluate-constants", "::mlir::ModuleOp"> {
  let summary = "Evaluate quantize on constants that stand in the module";
  let description = [{
    What `equant-plain-weights` does for a model that has a source, for weights that are `dense<>` or `dense_resource<>` in the module: codes
    and scales become constants, `equant.from_codes` of them the weight, and the floats go. Codes are `i8`, one a byte, which all
    tools read; scales are f16, bf16 or f32; those of other formats, and of two levels, become f32. `lib/Numerics` makes them. One weight
    is in memory as floats at a time.

    Weights that are IREE's parameters, `#flow.parameter.named<"SCOPE"::"KEY">` of `flow.tensor.constant` or of an immutable `util.global`, are
    tensors of the safetensors files that `parameters` names.

    What `equant` and `lm` say of the module (`equant.recipe`) and the names of sites go, too: the pass is the last one before
    `convert-equant-to-linalg`.

    ```mlir
    %w = arith.constant dense<[[0.5, -1.27], [0.3, 0.127]]> : tensor<2x2xf32>
    %q = equant.quantize %w rule absmax : (tensor<2x2xf32>) -> !equant.weight<2x2, #equant.scheme<i8, symmetric, channel>>
    ```
    becomes
    ```mlir
    %c = arith.constant dense<[[50, -127], [127, 54]]> : tensor<2x2xi8>
    %s = arith.constant dense<[[0.01], [2.3622048E-3]]> : tensor<2x1xf32>
    %q = equant.from_codes %c scale(%s) : (tensor<2x2xi8>, tensor<2x1xf32>) -> !equant.weight<2x2, #equant.scheme<i8, symmetric, channel>>
    ```
  }];
  let options = [
    ListOption<"parameters", "parameters", "std::string", "safetensors files of IREE's parameters, SCOPE=FILE each">,
  ];
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::mlir::arith::ArithDialect"];
}

def PlainWeights : Pass<"equant-plain-weights", "::mlir::ModuleOp"> {
  let summary = "Evaluate constants into plain tensors of a file";
  let description = [{
    What `equant-materialize-weights` does for kernels, for those who read codes as they are: every quantized weight becomes a
    global in the layout `plain`, whose parts are tensors of `weights.safetensors` in the folder `output`: codes as `I8`, one a
    byte, under the name of the checkpoint's tensor, scales as `F32` (`_scale`; products where a scale has one above it), zero points
    as `I8` (`_zero_point`), minima as `F32` (`_minimum`). Their names are the global's `equant.tensors`. Every other constant that the model reads is an `F32`
    tensor under the name of its global. Values are those of the artifact, to the bit: the same `lib/Numerics` makes them.

    Weights need scales per channel or per group. One is in memory at a time.

    ```mlir
    %q = equant.quantize %w rule absmax : (tensor<1536x576xf32>) -> !equant.weight<1536x576, #s>
    %y = equant.linear %x, %q {sites = ["up_proj"]} : (tensor<?x576xf32>, !equant.weight<1536x576, #s>) -> tensor<?x1536xf32>
    ```
    becomes
    ```mlir
    ml_program.global private @up_proj.weight(#ml_program.extern : !w) : !w {equant.tensors = ["up_proj.weight", "up_proj.weight_scale"]}
    ...
    %q = ml_program.global_load_const @up_proj.weight : !w  // !equant.weight<1536x576, #s, #equant.layout<plain>>
    %y = equant.packed_linear %x, %q {sites = ["up_proj"]} : (tensor<?x576xf32>, !w) -> tensor<?x1536xf32>
    ```
  }];
  let options = [
    Option<"output", "output", "std::string", "\"\"", "folder that weights.safetensors is written into; made if it is missing">,
    Threads,
  ];
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::mlir::ml_program::MLProgramDialect"];
}

def ConvertEquantToLinalg : Pass<"convert-equant-to-linalg", "::mlir::ModuleOp"> {
  let summary = "Say what every equant op means in upstream ops";
  let description = [{
    A weight becomes its parts: codes `tensor<NxKxi8>`, scales `tensor<NxGxf32>` and, of asymmetric schemes, zero points
    `tensor<NxGxi32>` or minima `tensor<NxGxf32>`; activations in codes likewise. Groups are a dimension of the loops; where they do not divide the columns, zeros
    follow these.

    - Activations are rounded as `easyquant/Numerics/Quantize.h` says, step by step (`math.roundeven`), to the same codes.
    - Products of codes less their zero points are summed by `linalg.contract` to i32: the sums of `reference::integerDots`, to the bit.
      Scales follow in f32, in the order of `reference::integerLinear`, and minima with the sums of the activations' codes.
    - With float activations a weight is dequantized, s (q − z) or s (q − q₀) + m from the lowest code q₀ on, and `linalg.contract` multiplies floats.
    - Codes that are no integers (FP8, FP4, tables) are looked up in a constant table of their values.
    - `equant.hadamard` is additions and subtractions of halves, in the order of kernels: the same bits. Constants are rotated in f64.

    Globals of plain weights become globals of their parts. Ops that have no such form are errors that say what to do, before anything
    is changed: caches of codes, online scales, ops of calibration and of ranks, packed layouts of kernels,
    and on weights that are not evaluated yet (`equant-plain-weights`) rules other than `absmax`.

    ```mlir
    %y = equant.linear %x, %w {input_scheme = #equant.scheme<i8, symmetric, token, dynamic>, sites = ["up_proj"]}
           : (tensor<?x576xf32>, !equant.weight<1536x576, #equant.scheme<i8, symmetric, channel>>) -> tensor<?x1536xf32>
    ```
    becomes, behind the codes `%q` of `%x` and their scales,
    ```mlir
    %dots = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
              ins(%q, %codes : tensor<?x576xi8>, tensor<1536x576xi8>) outs(%zeros : tensor<?x1536xi32>) -> tensor<?x1536xi32>
    %y = linalg.generic ... // s_x · (s_w · dots)
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
                           "::mlir::ml_program::MLProgramDialect", "::mlir::tensor::TensorDialect"];
}

def ConvertLMToLinalg : Pass<"convert-lm-to-linalg", "::mlir::ModuleOp"> {
  let summary = "Say what every lm op means in upstream ops, for one sequence from its first token on";
  let description = [{
    Row m of the activations is the token at position m of one sequence, of which nothing was seen before. So `!lm.batch` and
    `!lm.kv_cache` need no values, and functions lose these arguments; `lm.attention` attends among the rows. At most as many tokens
    as the rotation table, or that of positions, has rows.

    All is f32, summed in the order of columns: results differ from those of kernels by rounding. Gradients and embeddings of ranks are
    errors.

    ```mlir
    func.func @forward(%tokens: tensor<?xi32>, %batch: !lm.batch, %rows: tensor<?xi32>, %cache: !lm.kv_cache<…>) -> tensor<?x49152xf32>
    ```
    becomes
    ```mlir
    func.func @forward(%tokens: tensor<?xi32>, %rows: tensor<?xi32>) -> tensor<?x49152xf32>
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
                           "::mlir::tensor::TensorDialect"];
}

def BindWeights : Pass<"equant-bind-weights", "::mlir::ModuleOp"> {
  let summary = "Make external globals arguments, constants or IREE's parameters";
  let description = [{
    - `weights=arguments`: functions take the tensors that they load behind their own arguments, in the order of the globals; the attribute
      `equant.tensor` of an argument names the tensor of the weights file. Layers have to be inlined before.
    - `weights=constants`: the tensors of `file`, a safetensors file, stand in the module. For small models.
    - `weights=iree`: `#flow.parameter.named<"model"::"NAME">`, which `iree-run-module --parameters=model=weights.safetensors` finds in the file.
      easyquant-opt does not know IREE's dialects: it needs `--allow-unregistered-dialect`, and `--mlir-print-op-generic` writes what IREE reads.

    Attributes of the module that belong to `lm` and `equant` go.
  }];
  let options = [
    TextOption<"weights", "weights", "arguments", "what loads become: arguments, constants or iree">,
    Option<"file", "file", "std::string", "\"\"", "safetensors file of the constants">,
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::func::FuncDialect"];
}

#endif // EASYQUANT_CONVERSION_EQUANTTOLINALG_PASSES
