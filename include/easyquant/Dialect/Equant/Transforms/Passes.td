//===- Passes.td - Quantization passes ---------------------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_EQUANT_TRANSFORMS_PASSES
#define EASYQUANT_DIALECT_EQUANT_TRANSFORMS_PASSES

include "easyquant/Dialect/Equant/Transforms/MethodOptions.td"
include "easyquant/Dialect/Equant/Transforms/PlanPasses.td"
include "easyquant/Support/PassOptions.td"

include "mlir/Pass/PassBase.td"

def Rotate : Pass<"equant-rotate", "::mlir::ModuleOp"> {
  let summary = "Rotate the inputs and weights of sites that are planned in a rotated basis";
  let description = [{
    Where the plan of a site has a scheme with `hadamard = B`, the site reads `equant.hadamard` of its input and of its weight, so that
    what runs after this pass (ranges, rounding, quantization) sees both in that basis. Sites that read one input share it. An
    embedding of the same global as a rotated weight reads the rotated table, and its rows are rotated back.

    A site that reads `lm.attention` finds it rotated already, where one linear makes the values of that attention and nothing else
    reads them, or the result: the rows of that linear's weight and its bias are rotated, head by head, the last ones where the
    linear makes queries and keys before the values. Plans have a block for such sites that lies within a head; where heads have
    none of at least 16 columns, the result is rotated as for any other site.

    Before:

    ```mlir
    %w = ml_program.global_load_const @up_proj.weight : tensor<1536x576xf32>
    %y = lm.linear %x, %w {equant.plan = #equant.plan<methods = [], rule = absmax, weight = <i8, symmetric, channel, hadamard = 64>,
                                                      input = <i8, symmetric, token, dynamic, hadamard = 64>>, site = "up_proj"}
           : (tensor<?x576xf32>, tensor<1536x576xf32>) -> tensor<?x1536xf32>
    ```

    After:

    ```mlir
    %w = ml_program.global_load_const @up_proj.weight : tensor<1536x576xf32>
    %v = equant.hadamard %w {block = 64 : i64} : tensor<1536x576xf32>
    %r = equant.hadamard %x {block = 64 : i64} : tensor<?x576xf32>
    %y = lm.linear %r, %v {equant.plan = ..., site = "up_proj"} : (tensor<?x576xf32>, tensor<1536x576xf32>) -> tensor<?x1536xf32>
    ```
  }];
  let dependentDialects = ["::easyquant::equant::EquantDialect"];
}

def Quantize : Pass<"equant-quantize", "::mlir::ModuleOp"> {
  let summary = "Quantize every site as planned";
  let description = [{
    Turns each op with an `equant.plan` into `equant.linear` on a quantized weight: scales by the plan's rule, or those that a
    method has computed (`scale`, `zero_point` in the plan); the nearest codes, or those that a method has computed (`codes`).
    The op builds it. One of `linalg` gathers its activations as rows for `equant.linear`, and multiplies what
    `equant.dequantize` gives where activations stay float.
    An embedding that reads the same global as a planned head becomes `equant.embedding` of the same weight; any other stays
    float, as sites without a plan do.

    A site whose plan asks for static activations gets `input_scale`, and `input_zero_point` where they are asymmetric, by the
    observer from the statistics file that the module attribute `equant.statistics` names. Where an equivalence transform has
    scaled the columns of the weight since they were observed, minmax and absmax follow it channel by channel; the others cannot,
    which is an error, and no range follows `equant-rotate`.

    A site that cannot be quantized as planned, because an int32 accumulator might overflow, stays float and is listed with
    the reason in the module attribute `equant.fallbacks`; more than `max-fallback` of them are an error.

    Before:

    ```mlir
    %w = ml_program.global_load_const @up_proj.weight : tensor<1536x576xf32>
    %y = lm.linear %x, %w {equant.plan = #equant.plan<methods = [], rule = absmax, weight = <i8, symmetric, channel>,
                                                      input = <i8, symmetric, token, dynamic>>, site = "up_proj"}
           : (tensor<?x576xf32>, tensor<1536x576xf32>) -> tensor<?x1536xf32>
    ```

    After:

    ```mlir
    %w = ml_program.global_load_const @up_proj.weight : tensor<1536x576xf32>
    %q = equant.quantize %w rule absmax : (tensor<1536x576xf32>) -> !equant.weight<1536x576, #equant.scheme<i8, symmetric, channel>>
    %y = equant.linear %x, %q {input_scheme = #equant.scheme<i8, symmetric, token, dynamic>, sites = ["up_proj"]}
           : (tensor<?x576xf32>, !equant.weight<1536x576, #equant.scheme<i8, symmetric, channel>>) -> tensor<?x1536xf32>
    ```
  }];
  let options = [MaxFallback, Observer, ObserverPercentile];
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::mlir::ml_program::MLProgramDialect"];
}

def InsertObservers : Pass<"equant-insert-observers", "::mlir::ModuleOp"> {
  let summary = "Observe the activations that quantizable ops read";
  let description = [{
    Puts one `equant.observe` before the first reader of each activation that a chosen site reads. Sites that share an
    input share its observer, which names them all. That of experts is told which rows are whose, and is not asked for `sinks`.

    Before, with `statistics=absmax,mean_abs`:

    ```mlir
    %g = lm.linear %x, %wg {site = "gate_proj"} : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
    %u = lm.linear %x, %wu {site = "up_proj"} : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
    ```

    After:

    ```mlir
    equant.observe %x {sites = ["gate_proj", "up_proj"], statistics = ["absmax", "mean_abs"]} : tensor<?x8xf32>
    %g = lm.linear %x, %wg {site = "gate_proj"} : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
    %u = lm.linear %x, %wu {site = "up_proj"} : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
    ```
  }];
  let options = [
    ListOption<"statistics", "statistics", "std::string",
               "what to gather, by the names of statistics files; by default absmax and minmax">,
    ListOption<"sites", "sites", "std::string",
               "sites to observe, all when empty: names, or re: and a regular expression">,
  ];
  let dependentDialects = ["::easyquant::equant::EquantDialect"];
}

def AttachCalibration : Pass<"equant-attach-calibration", "::mlir::ModuleOp"> {
  let summary = "Give the module its statistics file and remove the observers";
  let description = [{
    Checks that a statistics file, by default the one that the module attribute `equant.statistics` names, is of this model
    and of its sites. Names it in `equant.statistics`, from where later passes read it, and removes the observers.
    Statistics of another model are an error.

    Before:

    ```mlir
    module attributes {lm.source = "SmolLM2-135M"} {
      ...
      equant.observe %x {sites = ["up_proj"], statistics = ["minmax"]} : tensor<?x8xf32>
      %u = lm.linear %x, %w {site = "up_proj"} : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
    ```

    After, with `statistics=statistics.safetensors`:

    ```mlir
    module attributes {equant.statistics = "statistics.safetensors", lm.source = "SmolLM2-135M"} {
      ...
      %u = lm.linear %x, %w {site = "up_proj"} : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
    ```
  }];
  let options = [
    Option<"statistics", "statistics", "std::string", "\"\"", "the file; by default that of the module">,
  ];
  let dependentDialects = ["::easyquant::equant::EquantDialect"];
}

def Shard : Pass<"equant-shard", "::mlir::ModuleOp"> {
  let summary = "Cut a model for ranks that compute it together";
  let description = [{
    Tensor parallelism after Megatron-LM: of `degree` ranks each has its share of the heads, with its part of the KV cache, of the
    columns of the MLP, and of the vocabulary where the degree divides it. Weights become `equant.all_slice`, and constants `shard.all_slice`, of what one rank would have, so
    that codes and scales are the same. The results of the linears behind attention and MLP are summed over ranks,
    before what is added to them; logits are gathered. All ranks run one program.

    Where one weight makes several projections, a rank has its part of each. In layers with a recurrent state it has its channels of
    convolutions and its heads of gated delta nets, with their part of the state. A norm of all heads together takes the squares of all
    ranks: `equant.part_rms_norm`.

    A bias is added once: behind the sum (`equant.add_bias`), or by rank 0 alone (`equant.first_rank`) where results of experts are
    weighted before they are summed. Every rank routes alike and has such parts of each expert; one sum is behind `lm.combine`. Keys and values that other layers read are a rank's own.

    A degree that does not divide the heads, or that would cut a group of weights, is an error that names the legal ones.

    Before, with `degree=3`:

    ```mlir
    %y = equant.linear %x, %w {sites = ["down_proj"]} : (tensor<?x1536xf32>, !equant.weight<576x1536, #w>) -> tensor<?x576xf32>
    ```

    After:

    ```mlir
    shard.grid @tensor_parallel(shape = 3)
    ...
    %v = equant.all_slice %w on @tensor_parallel axis 1 : !equant.weight<576x1536, #w> -> !equant.weight<576x512, #w>
    %p = equant.linear %x, %v {sites = ["down_proj"]} : (tensor<?x512xf32>, !equant.weight<576x512, #w>) -> tensor<?x576xf32>
    %y = shard.all_reduce %p on @tensor_parallel grid_axes = [0] : tensor<?x576xf32> -> tensor<?x576xf32>
    ```
  }];
  let options = [
    NumberOption<"degree", "degree", "int64_t", "1", "ranks that share the model">,
  ];
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::easyquant::lm::LMDialect", "::mlir::shard::ShardDialect"];
}

def InsertScaleSync : Pass<"equant-insert-scale-sync", "::mlir::ModuleOp"> {
  let summary = "Give rows that ranks share one scale";
  let description = [{
    A dynamic scale of activations whose columns lie on several ranks follows from the largest magnitude of all of them, which is
    reduced over ranks; with sinks apart that magnitude also says whether a row leaves the static range. Other static scales need
    nothing. Online scales are known before the step: one `equant.sync_extrema` behind the last of them, in one collective for all
    sites, gives `equant.advance` the extrema of whole rows.

    Before:

    ```mlir
    %q = equant.quantize_rows %x : tensor<?x512xf32> -> !equant.rows<?x512, #equant.scheme<i8, symmetric, token, dynamic>, sums = 0>
    ```

    After:

    ```mlir
    %own = equant.token_absmax %x : tensor<?x512xf32> -> tensor<?xf32>
    %all = shard.all_reduce %own on @tensor_parallel grid_axes = [0] reduction = max : tensor<?xf32> -> tensor<?xf32>
    %q = equant.quantize_rows %x absmax(%all : tensor<?xf32>) : …
    ```
  }];
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::mlir::shard::ShardDialect"];
}

def ReduceIntegers : Pass<"equant-reduce-integers", "::mlir::ModuleOp"> {
  let summary = "Sum products of codes over ranks before they are scaled";
  let description = [{
    A linear on int8 codes whose weight has a scale a channel, and whose result is summed over ranks, leaves its int32 sums, which are
    added exactly; `equant.rescale` scales them behind, and adds the bias that is behind the sum. The logits of any number of ranks are
    then equal to the bit.

    Before:

    ```mlir
    %p = equant.packed_linear %q, %w {…} : (…) -> tensor<?x576xf32>
    %y = shard.all_reduce %p on @tensor_parallel grid_axes = [0] : tensor<?x576xf32> -> tensor<?x576xf32>
    ```

    After:

    ```mlir
    %p = equant.packed_linear %q, %w {…} : (…) -> tensor<?x576xi32>
    %i = shard.all_reduce %p on @tensor_parallel grid_axes = [0] : tensor<?x576xi32> -> tensor<?x576xi32>
    %y = equant.rescale %i of %q, %w {…} : (tensor<?x576xi32>, !rows, !weight) -> tensor<?x576xf32>
    ```
  }];
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::mlir::shard::ShardDialect"];
}

def FuseSharedInput : Pass<"equant-fuse-shared-input", "::mlir::func::FuncOp"> {
  let summary = "Make one linear of quantized linears that read the same input";
  let description = [{
    q, k and v, or gate and up, read the same activations. One linear on their concatenated weights quantizes the input
    once and is one kernel call with more rows to share among threads. Every row is computed as before, to the bit. Linears
    are fused when they are in one block and agree in both schemes and in having a bias.

    Before:

    ```mlir
    %g = equant.linear %x, %gate {sites = ["gate_proj"]} : (tensor<?x8xf32>, !equant.weight<16x8, #w>) -> tensor<?x16xf32>
    %u = equant.linear %x, %up {sites = ["up_proj"]} : (tensor<?x8xf32>, !equant.weight<16x8, #w>) -> tensor<?x16xf32>
    ```

    After:

    ```mlir
    %w = equant.concat %gate, %up : (!equant.weight<16x8, #w>, !equant.weight<16x8, #w>) -> !equant.weight<32x8, #w>
    %y = equant.linear %x, %w {sites = ["gate_proj", "up_proj"]} : (tensor<?x8xf32>, !equant.weight<32x8, #w>) -> tensor<?x32xf32>
    %g, %u = lm.split %y : tensor<?x32xf32> -> tensor<?x16xf32>, tensor<?x16xf32>
    ```
  }];
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::easyquant::lm::LMDialect"];
}

def OnlineScales : Pass<"equant-online-scales", "::mlir::ModuleOp"> {
  let summary = "Give online scales their places in the state of sequences";
  let description = [{
    @forward, and the layers that it calls, get an operand for the state of sequences. A linear whose input scheme is online
    reads the scale that its row's sequence keeps, instead of `input_scale`, with which a sequence starts; the extrema of
    its input are tracked; the state of all sites is brought up to date at the end of the step. Linears that read the same
    activations share a place. Behind `lm.rows`, where a step computes only some of its rows, inputs are quantized per token
    instead.

    What sequences start with, and how many tokens a step has at most, is the module attribute `equant.online`.

    Before:

    ```mlir
    %y = equant.linear %x, %w {input_scale = 2.5e-02 : f32, input_scheme = #equant.scheme<i8, symmetric, tensor, online>, …} : …
    ```

    After:

    ```mlir
    equant.track %x in %state {index = 0 : i64} : tensor<?x576xf32>, !lm.state<sites = 1, fields = 2>
    %t = equant.online_scale %state, %batch {index = 0 : i64} : !lm.state<sites = 1, fields = 2> -> tensor<?xf32>
    %y = equant.linear %x, %w online(%t) {input_scheme = #equant.scheme<i8, symmetric, tensor, online>, …} : …
    …
    equant.advance %state, %batch {decay = 9.0e-01 : f64, window = 0 : i64} : !lm.state<sites = 1, fields = 2>
    ```
  }];
  let options = [OnlineDecay, OnlineWindow, OnlineTokens];
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::easyquant::lm::LMDialect"];
}

def LegalizeActivations : Pass<"equant-legalize-activations", "::mlir::ModuleOp"> {
  let summary = "Make explicit in which form linears of a target read activations";
  let description = [{
    What happens to activations before a linear multiplies them becomes ops of their own, one for all linears that read the
    same: int8 codes are made by `equant.quantize_rows`, and on a GPU those of FP8 that are multiplied by FP8. So are those of NVFP4 beside
    NVFP4 on a chip that multiplies them, which `target` has to name. Codes of other
    formats are not multiplied: linears read what these stand for, `equant.fake_quantize`, and lose their input scheme. On a GPU,
    linears on floats read bf16.

    Before:

    ```mlir
    %y = equant.packed_linear %x, %w {input_scheme = #equant.scheme<i8, symmetric, token, dynamic>, sites = ["up_proj"]}
           : (tensor<?x576xf32>, !weight) -> tensor<?x1536xf32>
    ```

    After:

    ```mlir
    %rows = equant.quantize_rows %x : tensor<?x576xf32> -> !equant.rows<?x576, #equant.scheme<i8, symmetric, token, dynamic>, sums = 0>
    %y = equant.packed_linear %rows, %w {sites = ["up_proj"]} : (!equant.rows<…>, !weight) -> tensor<?x1536xf32>
    ```
  }];
  let options = [
    TextOption<"target", "target", "cpu", "target or family; docs/Targets.md lists them">,
  ];
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::mlir::arith::ArithDialect"];
}

def FuseKernels : Pass<"equant-fuse-kernels", "::mlir::ModuleOp"> {
  let summary = "Put ops that one kernel computes into fusions";
  let description = [{
    * A norm or an activation function whose result is only quantized or cast; on a GPU, attention whose result is only cast or
      quantized.
    * A rotated basis with the norm or activation function before it, where nothing else reads its result, and with the quantization
      behind it; on a GPU, with a cast.
    * `x + linear(…)`, which adds into the memory of `x`, where nothing reads `x` any more.
    * Attention over a float cache with the rotations of its queries and keys, where nothing else reads these: keys are rotated as
      they are appended. On a GPU queries, keys and values are parts of one matrix side by side.
    * On a GPU, attention over codes of keys in a rotated basis with the rotations of its queries and keys, which go to the basis as
      they are rotated by their positions.
    * On a GPU, other rotations of queries and keys that are parts of one matrix side by side.

    Before:

    ```mlir
    %y = equant.packed_linear %rows, %w {sites = ["o_proj"]} : …
    %z = lm.add %residual, %y : tensor<?x576xf32>
    ```

    After:

    ```mlir
    %z = equant.fusion {
      %y = equant.packed_linear %rows, %w {sites = ["o_proj"]} : …
      %t = lm.add %residual, %y : tensor<?x576xf32>
      equant.yield %t : tensor<?x576xf32>
    } : tensor<?x576xf32>
    ```
  }];
  let options = [
    TextOption<"target", "target", "cpu", "target or family; docs/Targets.md lists them">,
  ];
  let dependentDialects = ["::easyquant::equant::EquantDialect"];
}

def MaterializeWeights : Pass<"equant-materialize-weights", "::mlir::ModuleOp"> {
  let summary = "Quantize and pack the weights into a file";
  let description = [{
    Replaces every quantized weight by a global of its packed parts, computed with lib/Numerics, and its linears by
    `equant.packed_linear`; writes
    `weights.safetensors` into the folder `output`: the packed tensors, and as f32 every other constant that the program
    reads (norms, biases, tables, float linears). Constants are globals of the model, globals with `equant.file` that a
    method has computed, and `equant.scale` of such. A global with `lm.rope_table` is computed.
    A table that embeddings alone read is there in the type that `lm.file_type` of its global names, f16 or bf16, and the
    global has that type from then on.

    Each global left has `equant.offset`, its first byte in the file's data section; a packed weight has one for each of its
    parts, which lie at multiples of 64.
    What is more than `max-shard-bytes` is sharded: `weights-00001-of-00002.safetensors` and so on, with
    `weights.safetensors.index.json`; offsets then count through the data sections, each rounded up to 4096 bytes.

    Layouts are those of the kernels of the `target`: panels of CPUs, or fragments of GPUs, in `weights.gpu.safetensors`, where
    every tensor lies at a multiple of 64 bytes. For GPUs the weight of a float linear is there as fragments of bf16, at
    `equant.bf16_offset` of its global; an embedding that is tied to it reads these, too. The module gets `equant.target` and
    `equant.weights_bytes`, the size of the data. For both targets there are two modules in it, @cpu and @gpu; each weight is
    evaluated once, for both files.

    A part of a constant may be read (`tensor.extract_slice` of rows or columns), or of a weight (`equant.slice`); no other
    rows are read then.

    The module attribute `equant.report` holds parts of the artifact's manifest: `source` (kind, name, types and checksum of
    the model), `quantization` (`equant.recipe`, with `equant.fallbacks` and `equant.transforms`) and `sites`. It has an
    entry for every site, quantized or not, under the name that it had before fusing: `name`, `out_features`, `in_features`, `weight` and `input` (the schemes; unit where
    float), `bytes`, `weight_error`, the relative RMS error ‖W − Ŵ‖ / ‖W‖, and `largest_error`, max |W − Ŵ|.

    One packed weight is in memory at a time. The file is the same, byte for byte, for any number of threads. A value that
    is not finite, a computed tensor that is missing, damaged or of another run, and a file that cannot be written are
    errors, and there is no file.

    Before:

    ```mlir
    module attributes {lm.source = "SmolLM2-135M"} {
      ml_program.global private @up_proj.weight(#ml_program.extern : tensor<1536x576xf32>) : tensor<1536x576xf32>
      ...
      %w = ml_program.global_load_const @up_proj.weight : tensor<1536x576xf32>
      %q = equant.quantize %w rule absmax : (tensor<1536x576xf32>) -> !equant.weight<1536x576, #equant.scheme<i8, symmetric, channel>>
      %y = equant.linear %x, %q {sites = ["up_proj"]}
             : (tensor<?x576xf32>, !equant.weight<1536x576, #equant.scheme<i8, symmetric, channel>>) -> tensor<?x1536xf32>
    ```

    After:

    ```mlir
    !w = !equant.weight<1536x576, #equant.scheme<i8, symmetric, channel>, #equant.layout<panel>>
    module attributes {lm.source = "SmolLM2-135M", equant.target = "cpu", equant.report = {quantization = {...}, sites = [...], source = {...}}} {
      ml_program.global private @up_proj.weight(#ml_program.extern : !w) : !w {equant.offset = array<i64: 0, 884736>}
      ...
      %q = ml_program.global_load_const @up_proj.weight : !w
      %y = equant.packed_linear %x, %q {sites = ["up_proj"]} : (tensor<?x576xf32>, !w) -> tensor<?x1536xf32>
    ```
  }];
  let options = [
    Option<"output", "output", "std::string", "\"\"", "existing folder that weights.safetensors is written into">,
    TargetsOption<"whose kernels read the weights">,
    Threads, MaxShardBytes,
  ];
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::easyquant::lm::LMDialect",
                           "::mlir::ml_program::MLProgramDialect"];
}

def SimQuantKV : Pass<"equant-simquant-kv", "::mlir::ModuleOp"> {
  let summary = "Keep keys and values of the past as codes";
  let description = [{
    Turns every `lm.attention` into `equant.attention` with the scheme that the options give: asymmetric codes, keys per
    channel in groups of tokens, values per token, and in float a window of the newest tokens and the first ones (SimQuant;
    KIVI, Liu et al., 2024). Weights and activations stay what they are, so that it goes with every method.

    `scheme=none` leaves the cache float. `keys=pre-rope` takes keys before their rotation, where a channel keeps its range from
    token to token (KVQuant, Hooper et al., 2024); the model must rotate them by `lm.rope`. Reading them costs a rotation each.
    `keys=hadamard` has one slice a token for keys that are rotated behind `lm.rope`, in the largest blocks that divide a head's
    columns (`hadamard` of `#equant.kv_scheme`). Kernels of CPUs rotate keys as they append them and queries as they read them, those
    of GPUs both where `lm.rope` is computed, or in launches of their own where there is none.

    Before, with `keys=pre-rope`:

    ```mlir
    %kr = lm.rope %k, %table, %batch {head_dim = 64 : i64} : tensor<?x192xf32>, tensor<8192x32x2xf32>
    %y = lm.attention %q, %kr, %v, %cache, %batch {...} : tensor<?x576xf32>, tensor<?x192xf32>, !lm.kv_cache<...>
    ```

    After:

    ```mlir
    %y = equant.attention %q, %k, %v, %cache, %batch rope(%table : tensor<8192x32x2xf32>)
           {kv_scheme = #equant.kv_scheme<code = i4, group = 64, residual = 128, sinks = 4, keys = channel>, ...}
           : tensor<?x576xf32>, tensor<?x192xf32>, !lm.kv_cache<...>
    ```
  }];
  let options = [KVScheme, KVGroup, KVResidual, KVSinks, KVKeys, KVKeyScales];
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::easyquant::lm::LMDialect"];
}

def SmoothQuant : Pass<"equant-smooth-quant", "::mlir::ModuleOp"> {
  let summary = "Move outliers from activations to weights";
  let description = [{
    SmoothQuant (Xiao et al., 2022): activations have outliers in few channels, weights have none, and quantizing suffers
    from outliers. Channel j of an activation is divided by s_j = max|X_j|^alpha / max|W_j|^(1 − alpha), and column j of all
    weights that read it is multiplied by s_j, so that the model computes the same function of floats. max|W_j| is over all
    readers (q, k, v; gate, up), max|X_j| comes from calibration (`<site>/absmax` of the file `statistics`); both maxima of
    weights and factors are at least 1e-5.

    The division costs nothing where it can go into the weights of the norm before (and its bias), of up_proj for the input of
    down_proj (through `lm.glu`), or of v_proj for the input of o_proj if every head has values of its own. Anything else
    (c_proj behind a GELU, o_proj under grouped queries) stays as it is; that is no fallback.

    Only what a site reads whose plan names the method `smoothquant` is scaled. Factors go into the work folder
    (`equant.work`) as `<first site>.smooth_scale`, one file a layer; a file that was computed from the same model,
    statistics and alpha is not computed again. The module attribute `equant.transforms` says for every activation what was
    scaled, or why not. Statistics of another model are an error.

    Before:

    ```mlir
    %n = lm.rms_norm %x, %norm {epsilon = 1.0e-05 : f64} : tensor<?x576xf32>
    %y = lm.linear %n, %w {equant.plan = #equant.plan<methods = ["smoothquant"], ...>, site = "up_proj"}
           : (tensor<?x576xf32>, tensor<1536x576xf32>) -> tensor<?x1536xf32>
    ```

    After:

    ```mlir
    %s = ml_program.global_load_const @up_proj.smooth_scale : tensor<576xf32>
    %norm2 = equant.scale %norm by %s {axis = 0 : i64, divide} : tensor<576xf32>, tensor<576xf32>
    %n = lm.rms_norm %x, %norm2 {epsilon = 1.0e-05 : f64} : tensor<?x576xf32>
    %w2 = equant.scale %w by %s {axis = 1 : i64} : tensor<1536x576xf32>, tensor<576xf32>
    %y = lm.linear %n, %w2 {equant.plan = #equant.plan<methods = ["smoothquant"], ...>, site = "up_proj"}
           : (tensor<?x576xf32>, tensor<1536x576xf32>) -> tensor<?x1536xf32>
    ```
  }];
  let options = [
    Option<"statistics", "statistics", "std::string", "\"\"",
           "the statistics file of the model's calibration; by default that of the module">,
    WorkFolder, Alpha,
  ] # MethodOptions;
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::easyquant::lm::LMDialect",
                           "::mlir::ml_program::MLProgramDialect"];
}

#endif // EASYQUANT_DIALECT_EQUANT_TRANSFORMS_PASSES
