//===- Passes.td - Checkpoints for others -------------------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_EXPORT_PASSES
#define EASYQUANT_EXPORT_PASSES

include "easyquant/Recipe/Options.td"

include "mlir/Pass/PassBase.td"

def ExportCheckpoint : Pass<"equant-export-checkpoint", "::mlir::ModuleOp"> {
  let summary = "Write a quantized model as a checkpoint that others read";
  let description = [{
    Writes, into the folder `output`, the module that `equant-quantize` leaves (before `equant-fuse-shared-input`) as a Hugging Face
    folder of the `format`: config.json with its `quantization_config`, model.safetensors or its shards with the names of the
    checkpoint, and the tokenizer and generation files of the source. The module stays as it is.

    The weight of every `equant.linear` is evaluated with lib/Numerics, row by row, and stored as the format's codec has it
    (`easyquant/Formats/Codecs`): codes, scales and zero points are those of an artifact. What stays float, with the factors that
    methods have folded into it, is f16 where any scale is f16 or the format's clients compute in f16, and bf16 where else the source
    has bf16 or weights are FP4.

    ```mlir
    %w = ml_program.global_load_const @"model.layers.0.mlp.up_proj.weight" : tensor<1536x576xf32>
    %q = equant.quantize %w rule absmax : (tensor<1536x576xf32>) -> !equant.weight<1536x576, #equant.scheme<i4, symmetric, group = 64, scale = f16>>
    %y = equant.linear %x, %q {sites = ["model.layers.0.mlp.up_proj"]}
           : (tensor<?x576xf32>, !equant.weight<1536x576, #equant.scheme<i4, symmetric, group = 64, scale = f16>>) -> tensor<?x1536xf32>
    ```

    With `format=gptq` there are then `model.layers.0.mlp.up_proj.qweight` (I32, 72 x 1536), `.qzeros` (I32, 9 x 192), `.scales`
    (F16, 9 x 1536) and `.g_idx` (I32, 576).

    With `format=gguf` the folder has one file, `model.gguf`, with the tokenizer of the GGUF file `vocabulary`, or of the source where
    that is one. The head and embeddings may be quantized there.

    With `format=onnx` the folder has model.onnx, a decoder whose operators are those of the module and whose caches are inputs and
    outputs, its weights in model.onnx.data, config.json and the same files beside them. Weights are codes behind DequantizeLinear. Operators
    are of version `opset`, or of the least one that the model needs.

    Codes that are kept (`equant.stored`) lie in the format as they are, their scales once for each of its groups. Where scales have
    another type there, and with the reciprocal of an outer scale, weights may change: they are read back and compared before anything is
    written. A change is an error that says how large it is, unless `closest` accepts it.

    A scheme, a size or an activation that the format does not hold is an error that names the site and the format, before anything
    is written; so are embeddings that are quantized and linears that the checkpoint keeps transposed (GPT-2's Conv1D).
  }];
  let options = [
    ExportFormat,
    Option<"output", "output", "std::string", "\"\"", "folder of the checkpoint">,
    Closest, Threads, MaxShardBytes, CopyFiles, Vocabulary, Opset,
  ];
}

#endif // EASYQUANT_EXPORT_PASSES
