//===- Passes.td - Quantization passes ---------------------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_EQUANT_TRANSFORMS_PASSES
#define EASYQUANT_DIALECT_EQUANT_TRANSFORMS_PASSES

include "mlir/Pass/PassBase.td"

def AbsMax : Pass<"equant-absmax", "::mlir::ModuleOp"> {
  let summary = "Quantize linears with scales from the largest magnitude";
  let description = [{
    Gives every quantizable site a scheme and the scale rule s = max|w| / qmax. Weights of 8 bits have a scale per output
    channel, or per group if a group size is given; weights of 4 bits one per group. With A8 activations are quantized per
    token at run time. The method of the first column of any table: round to nearest.

    The output head, site `lm_head`, has an option of its own. If it is quantized it has int8 weights per channel in every
    scheme, and an embedding that is tied to it (reads the same global) becomes `equant.embedding` of the same codes. Any
    other embedding stays float.

    Before, with `scheme=W8A8`:

    ```mlir
    %w = ml_program.global_load_const @up_proj.weight : tensor<1536x576xf32>
    %y = lm.linear %x, %w {site = "up_proj"} : (tensor<?x576xf32>, tensor<1536x576xf32>) -> tensor<?x1536xf32>
    ```

    After:

    ```mlir
    %w = ml_program.global_load_const @up_proj.weight : tensor<1536x576xf32>
    %scale = equant.choose_qparams %w rule absmax {scheme = #equant.scheme<i8, symmetric, channel>}
               : (tensor<1536x576xf32>) -> tensor<1536x1xf32>
    %codes = equant.quantize %w scale(%scale) {scheme = #equant.scheme<i8, symmetric, channel>}
               : (tensor<1536x576xf32>, tensor<1536x1xf32>) -> tensor<1536x576xi8>
    %y = equant.linear %x, %codes scale(%scale)
           {input_scheme = #equant.scheme<i8, symmetric, token, dynamic>, sites = ["up_proj"],
            weight_scheme = #equant.scheme<i8, symmetric, channel>}
           : (tensor<?x576xf32>, tensor<1536x576xi8>, tensor<1536x1xf32>) -> tensor<?x1536xf32>
    ```

    What was asked for is recorded in the module attribute `equant.recipe`.
  }];
  let options = [
    Option<"scheme", "scheme", "std::string", "\"W8A8\"", "W8A8, W8A16, W4A16, W4A8, or none (leave the model float)">,
    Option<"groupSize", "group-size", "int64_t", "-1",
           "input features that share a weight scale: a positive multiple of 8, or 0 for a scale per channel (W8 only); "
           "by default 128 with W4 and 0 with W8">,
    Option<"head", "head", "std::string", "\"\"",
           "the output head and an embedding tied to it: int8 or float; by default int8, and float with none">,
    ListOption<"ignore", "ignore", "std::string",
               "sites to leave float: names, or re: and a regular expression">,
    ListOption<"targets", "targets", "std::string",
               "sites to quantize, all when empty: names, or re: and a regular expression">,
  ];
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::easyquant::lm::LMDialect"];
}

def InsertObservers : Pass<"equant-insert-observers", "::mlir::ModuleOp"> {
  let summary = "Observe the activations that quantizable ops read";
  let description = [{
    Puts one `equant.observe` before the first reader of each activation that a chosen site reads. Sites that share an
    input share its observer, which names them all.

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
               "what to gather: absmax, minmax, mean_abs, moments, histogram, hessian, ema; by default absmax and minmax">,
    ListOption<"sites", "sites", "std::string",
               "sites to observe, all when empty: names, or re: and a regular expression">,
  ];
  let dependentDialects = ["::easyquant::equant::EquantDialect"];
}

def FuseSharedInput : Pass<"equant-fuse-shared-input", "::mlir::func::FuncOp"> {
  let summary = "Make one linear of quantized linears that read the same input";
  let description = [{
    q, k and v, or gate and up, read the same activations. One linear on their concatenated weights quantizes the input
    once and is one kernel call with more rows to share among threads. Every row is computed as before, to the bit. Linears
    are fused when they are in one block and agree in both schemes and in having a bias.

    Before:

    ```mlir
    %g = equant.linear %x, %gc scale(%gs) {sites = ["gate_proj"], weight_scheme = #equant.scheme<i8, symmetric, channel>}
           : (tensor<?x8xf32>, tensor<16x8xi8>, tensor<16x1xf32>) -> tensor<?x16xf32>
    %u = equant.linear %x, %uc scale(%us) {sites = ["up_proj"], weight_scheme = #equant.scheme<i8, symmetric, channel>}
           : (tensor<?x8xf32>, tensor<16x8xi8>, tensor<16x1xf32>) -> tensor<?x16xf32>
    ```

    After:

    ```mlir
    %c = equant.concat %gc, %uc : (tensor<16x8xi8>, tensor<16x8xi8>) -> tensor<32x8xi8>
    %s = equant.concat %gs, %us : (tensor<16x1xf32>, tensor<16x1xf32>) -> tensor<32x1xf32>
    %y = equant.linear %x, %c scale(%s)
           {sites = ["gate_proj", "up_proj"], weight_scheme = #equant.scheme<i8, symmetric, channel>}
           : (tensor<?x8xf32>, tensor<32x8xi8>, tensor<32x1xf32>) -> tensor<?x32xf32>
    %g, %u = lm.split %y : tensor<?x32xf32> -> tensor<?x16xf32>, tensor<?x16xf32>
    ```
  }];
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::easyquant::lm::LMDialect"];
}

def MaterializeWeights : Pass<"equant-materialize-weights", "::mlir::ModuleOp"> {
  let summary = "Quantize and pack the weights into a file";
  let description = [{
    Replaces every quantized weight by globals of its packed codes and scales, computed with lib/Numerics, and writes
    `weights.safetensors` into the folder `output`: the packed tensors, and as f32 every other constant that the program
    reads (norms, biases, tables, float linears). Constants are globals of the model, globals with `equant.file` that a
    method has computed, and `equant.scale` of such. A global with `lm.rope_table` is computed.
    Each global left has `equant.offset`, its first byte in the file's data section; packed ones lie at multiples of 64.
    What is more than `max-shard-bytes` is sharded: `weights-00001-of-00002.safetensors` and so on, with
    `weights.safetensors.index.json`; offsets then count through the data sections, each rounded up to 4096 bytes.

    The module attribute `equant.report` holds parts of the artifact's manifest: `source` (kind, name, types and checksum of
    the model), `quantization` (`equant.recipe`) and `sites`. It has an entry for every site, quantized or not, under the
    name that it had before fusing: `name`, `out_features`, `in_features`, `weight` and `input` (the schemes; unit where
    float), `bytes`, and `weight_error`, the relative RMS error ‖W − Ŵ‖ / ‖W‖.

    One packed weight is in memory at a time. The file is the same, byte for byte, for any number of threads. A value that
    is not finite, a computed tensor that is missing, damaged or of another run, and a file that cannot be written are
    errors, and there is no file.

    Before:

    ```mlir
    module attributes {lm.source = "SmolLM2-135M"} {
      ml_program.global private @up_proj.weight(#ml_program.extern : tensor<1536x576xf32>) : tensor<1536x576xf32>
      ...
      %w = ml_program.global_load_const @up_proj.weight : tensor<1536x576xf32>
      %s = equant.choose_qparams %w rule absmax {scheme = #equant.scheme<i8, symmetric, channel>}
             : (tensor<1536x576xf32>) -> tensor<1536x1xf32>
      %c = equant.quantize %w scale(%s) {scheme = #equant.scheme<i8, symmetric, channel>}
             : (tensor<1536x576xf32>, tensor<1536x1xf32>) -> tensor<1536x576xi8>
      %y = equant.linear %x, %c scale(%s) {sites = ["up_proj"], weight_scheme = #equant.scheme<i8, symmetric, channel>}
             : (tensor<?x576xf32>, tensor<1536x576xi8>, tensor<1536x1xf32>) -> tensor<?x1536xf32>
    ```

    After:

    ```mlir
    module attributes {lm.source = "SmolLM2-135M", equant.report = {quantization = {...}, sites = [...], source = {...}}} {
      ml_program.global private @up_proj.weight(#ml_program.extern : tensor<48x144x32x4xi8>) : tensor<48x144x32x4xi8>
        {equant.offset = 0}
      ml_program.global private @up_proj.weight_scale(#ml_program.extern : tensor<48x1x32xf32>) : tensor<48x1x32xf32>
        {equant.offset = 884736}
      ...
      %c = ml_program.global_load_const @up_proj.weight : tensor<48x144x32x4xi8>
      %s = ml_program.global_load_const @up_proj.weight_scale : tensor<48x1x32xf32>
      %y = equant.linear %x, %c scale(%s)
             {layout = #equant.layout<panel, rows = 32, depth = 4>, sites = ["up_proj"],
              weight_scheme = #equant.scheme<i8, symmetric, channel>}
             : (tensor<?x576xf32>, tensor<48x144x32x4xi8>, tensor<48x1x32xf32>) -> tensor<?x1536xf32>
    ```
  }];
  let options = [
    Option<"output", "output", "std::string", "\"\"", "existing folder that weights.safetensors is written into">,
    Option<"threads", "threads", "unsigned", "0", "threads that quantize; 0: one per core">,
    Option<"maxShardBytes", "max-shard-bytes", "int64_t", "5000000000",
           "bytes of tensors that one file holds, unless a single tensor is larger">,
  ];
  let dependentDialects = ["::easyquant::equant::EquantDialect", "::easyquant::lm::LMDialect",
                           "::mlir::ml_program::MLProgramDialect"];
}

#endif // EASYQUANT_DIALECT_EQUANT_TRANSFORMS_PASSES
