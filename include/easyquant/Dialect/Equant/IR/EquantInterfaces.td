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
  }];
  let methods = [
    InterfaceMethod<"The name by which patterns, reports and errors speak of the op.",
                    "::llvm::StringRef", "getSite">,
    InterfaceMethod<"The activations x, tensor<?xKxf32>.",
                    "::mlir::OpOperand &", "getActivationOperand">,
    InterfaceMethod<"The weight W, out × in features.", "::mlir::OpOperand &", "getWeightOperand">,
    InterfaceMethod<"The bias tensor<Nxf32>, or null.", "::mlir::Value", "getBiasValue">,
  ];
}

#endif // EASYQUANT_DIALECT_EQUANT_IR_EQUANTINTERFACES
