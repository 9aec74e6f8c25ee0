//===- LMDialect.td - Language model dialect ---------------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_LM_IR_LMDIALECT
#define EASYQUANT_DIALECT_LM_IR_LMDIALECT

include "mlir/IR/OpBase.td"

def LM_Dialect : Dialect {
  let name = "lm";
  let cppNamespace = "::easyquant::lm";
  let summary = "Transformer language models, one op a building block";
  let description = [{
    The `lm` dialect says what a decoder-only transformer computes in the vocabulary of its paper: linear, norm, rotary
    embedding, attention. Activations are `tensor<?xCxf32>` whose rows are tokens; there is no batch dimension. Weights
    are `ml_program.global`s that name a tensor of the checkpoint, so that a module stays small whatever the model.
    Session state is an operand: `!lm.kv_cache` is a handle that `lm.attention` reads and writes.

    The module attribute `lm.source` is the path of the checkpoint, `lm.model` a dictionary of the model's sizes. A global
    `tensor<PxHx2xf32>` with the attribute `lm.rope_table = {theta = T}` is computed rather than read: its element [p, i] is the
    (cos, sin) of p · T^(−i/H). Models of longer contexts scale these frequencies: `scaling` is then `"linear"` (with
    `factor`), `"llama3"` (with `factor`, `low_freq_factor`, `high_freq_factor` and `original_positions`), `"yarn"` (with
    `factor`, `beta_fast`, `beta_slow`, `attention_factor`, `original_positions` and `truncate`) or `"longrope"` (with `divisors`,
    one for each pair, and `attention_factor`); `"proportional"` turns the first `turned_pairs` pairs alone.
    `easyquant/Numerics/Rope.h` has the formulas.

    `docs/rationale/LM.md` says why.
  }];
  let hasOperationAttrVerify = 1;
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
}

/// Row m of every result depends on row m of the activation operands, and on no other row.
def LM_RowWise : NativeOpTrait<"RowWise">;

/// The first result may take the memory of the first operand, which the op then updates.
def LM_InPlace : NativeOpTrait<"InPlace">;

/// The results are rows or columns of the first operand, in its memory.
def LM_View : NativeOpTrait<"View">;

/// In a function, and no tensor among operands and results larger than
/// easyquant/Dialect/LM/IR/Limits.h says.
def LM_ModelOp : NativeOpTrait<"ModelOp">;

#endif // EASYQUANT_DIALECT_LM_IR_LMDIALECT
