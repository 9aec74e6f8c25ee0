//===- LMInterfaces.td - Interfaces of model operations ----*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_LM_IR_LMINTERFACES
#define EASYQUANT_DIALECT_LM_IR_LMINTERFACES

include "mlir/IR/OpBase.td"

def DifferentiableOpInterface : OpInterface<"DifferentiableOpInterface"> {
  let cppNamespace = "::easyquant::lm";
  let description = [{
    An op that says how its gradients are computed. For a number L that depends on its results, the gradient of a value v
    is ∂L/∂v, of the type of v. `easyquant/Dialect/LM/Transforms/Gradients.h` puts the gradients of the ops of a layer
    together.
  }];
  let methods = [
    InterfaceMethod<[{
      Builds ops that give the gradients of the operands for which `wanted` is true (activations, weights, biases), as
      functions of those of the results: `results` has one for each, null where L does not depend on it, though not all
      are. The returned values are by operand, null where not wanted. Fails with a diagnostic where an operand that is
      wanted has no gradient, such as tokens.
    }], "::mlir::FailureOr<::llvm::SmallVector<::mlir::Value>>", "buildGradients",
    (ins "::mlir::OpBuilder &":$builder, "::llvm::ArrayRef<::mlir::Value>":$results,
         "const ::llvm::BitVector &":$wanted)>,
  ];
}

def LM_Differentiable : DeclareOpInterfaceMethods<DifferentiableOpInterface>;

def ScaleFoldableOpInterface : OpInterface<"ScaleFoldableOpInterface"> {
  let cppNamespace = "::easyquant::lm";
  let description = [{
    An op that says where a factor on the columns of its result can go instead, so that it costs nothing at run time. An op
    without it lets no factor through: a GELU and a residual sum do not commute with one.
  }];
  let methods = [
    InterfaceMethod<"What takes the factor in place of the result.",
                    "::easyquant::lm::ScaleFolding", "getScaleFolding">,
  ];
}

def LM_ScaleFoldable : DeclareOpInterfaceMethods<ScaleFoldableOpInterface>;

/// Computed by a function of lib/Numerics that the program is given when it is called: only subgraphs of calibration
/// have such ops.
def LM_HostOp : NativeOpTrait<"HostOp">;

#endif // EASYQUANT_DIALECT_LM_IR_LMINTERFACES
