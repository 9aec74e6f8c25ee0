//===- EquantInterfaces.td - Quantization interfaces -------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_EQUANT_IR_EQUANTINTERFACES
#define EASYQUANT_DIALECT_EQUANT_IR_EQUANTINTERFACES

include "mlir/IR/OpBase.td"

def QuantizableOpInterface : OpInterface<"QuantizableOpInterface"> {
  let cppNamespace = "::easyquant::equant";
  let description = [{
    An op that multiplies activations with a weight and may do so with quantized ones. Method passes see this interface,
    never a concrete op. The result is y = x Wᵀ + b for a weight of N × K.

    `lm.linear` is such an op, with activations tensor<?xKxf32> and a weight tensor<NxKxf32>. An op of `linalg` is one as soon as
    it has a name, the attribute `equant.site` that `equant-name-sites` gives it; its tensors have any order of dimensions, and
    convolutions have windows of x for rows. It builds its weight as rows, and what replaces it.
  }];
  let extraClassOf = "return ::easyquant::equant::isSite($_op);";
  let methods = [
    InterfaceMethod<"The name by which patterns, reports and errors speak of the op.",
                    "::llvm::StringRef", "getSite">,
    InterfaceMethod<"Why the op cannot be quantized, whatever its plan; empty if it can.", "std::string", "whyNoLinear">,
    InterfaceMethod<"The activations x.", "::mlir::OpOperand &", "getActivationOperand">,
    InterfaceMethod<"The weight W.", "::mlir::OpOperand &", "getWeightOperand">,
    InterfaceMethod<"N and K, the features of the output and of the input; 0 of an op that cannot be quantized.",
                    "::easyquant::equant::Features", "getFeatures">,
    InterfaceMethod<"The weight as rows of output features, tensor<NxKxf32>: the operand itself, or what ops before this one make of it.",
                    "::mlir::Value", "buildRows", (ins "::mlir::OpBuilder &":$builder)>,
    InterfaceMethod<"What replaces the result: the same with a quantized weight and, if asked, quantized activations.",
                    "::mlir::Value", "buildQuantized",
                    (ins "::mlir::OpBuilder &":$builder, "::mlir::Value":$weight, "const ::easyquant::equant::QuantizedInput &":$input)>,
  ];
}

#endif // EASYQUANT_DIALECT_EQUANT_IR_EQUANTINTERFACES
