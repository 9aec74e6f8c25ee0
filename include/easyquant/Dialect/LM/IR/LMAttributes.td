//===- LMAttributes.td - Language model attributes ---------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_LM_IR_LMATTRIBUTES
#define EASYQUANT_DIALECT_LM_IR_LMATTRIBUTES

include "easyquant/Dialect/LM/IR/LMDialect.td"
include "mlir/IR/EnumAttr.td"

def LM_GeluApproximation
    : I32EnumAttr<"GeluApproximation", "how GELU is computed",
                  [I32EnumAttrCase<"None", 0, "none">, I32EnumAttrCase<"Tanh", 1, "tanh">]> {
  let cppNamespace = "::easyquant::lm";
  let genSpecializedAttr = 0;
}
def LM_GeluApproximationAttr
    : EnumAttr<LM_Dialect, LM_GeluApproximation, "gelu_approximation"> {
  let description = [{
    `none` is x Φ(x) with the error function, `tanh` is GPT-2's approximation
    x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))).
  }];
}

def LM_GluActivation
    : I32EnumAttr<"GluActivation", "the function of a gate",
                  [I32EnumAttrCase<"Silu", 0, "silu">, I32EnumAttrCase<"GeluTanh", 1, "gelu_tanh">,
                   I32EnumAttrCase<"None", 2, "none">, I32EnumAttrCase<"Sigmoid", 3, "sigmoid">,
                   I32EnumAttrCase<"Clamped", 4, "clamped">]> {
  let cppNamespace = "::easyquant::lm";
  let genSpecializedAttr = 0;
}
def LM_GluActivationAttr : EnumAttr<LM_Dialect, LM_GluActivation, "glu_activation"> {
  let description = [{
    `silu` is x / (1 + exp(−x)), `gelu_tanh` the approximation `tanh` of GELU, `none` x, `sigmoid` 1 / (1 + exp(−x)). `clamped` is
    that of gpt-oss, which clamps up, too, and adds 1 to it.
  }];
}

#endif // EASYQUANT_DIALECT_LM_IR_LMATTRIBUTES
