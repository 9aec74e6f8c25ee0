//===- Passes.td - Upstream ops to models ------------------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CONVERSION_LINALGTOLM_PASSES
#define EASYQUANT_CONVERSION_LINALGTOLM_PASSES

include "mlir/Pass/PassBase.td"

def ConvertLinalgToLM : Pass<"convert-linalg-to-lm", "::mlir::ModuleOp"> {
  let summary = "Find the LLaMA in a program of linalg, as torch-mlir prints it";
  let description = [{
    The module has one function, from the tokens of one sequence, `tensor<1xTxi64>`, to logits, `tensor<1xTxVxf32>`. Its ops are followed from
    the logits back to the tokens. What they compute must be a LLaMA: embedding, blocks of RMSNorm, q, k and v with rotary positions, attention
    under a causal mask, grouped or not, and a gated SiLU, then the last norm and the head. Numbers are checked, not names: the table of
    rotations, whose `rope_theta` is found, the mask, the scale of attention, the epsilon of norms.

    `output` becomes a Hugging Face folder, `config.json` and `model.safetensors`, which every command that reads models takes; there is no
    tokenizer in it. The module becomes that model as `easyquant-translate --import-hf` gives it. An op without a place in the architecture
    is an error that names it and what was expected there; nothing is written.

    `context` is the longest context that the model says it has. The program has one, T, which is the default; rotary positions go on behind it.
  }];
  let options = [
    Option<"output", "output", "std::string", [{""}], "the folder of the model, which must not exist">,
    Option<"longestContext", "context", "int64_t", "0", "max_position_embeddings of the model; 0: the tokens that the program is for">,
  ];
  let dependentDialects = ["::easyquant::lm::LMDialect", "::mlir::func::FuncDialect", "::mlir::ml_program::MLProgramDialect"];
}

#endif // EASYQUANT_CONVERSION_LINALGTOLM_PASSES
