//===- Passes.td - Passes over models ----------------------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_LM_TRANSFORMS_PASSES
#define EASYQUANT_DIALECT_LM_TRANSFORMS_PASSES

include "mlir/Pass/PassBase.td"

def HoistRows : Pass<"lm-hoist-rows", "::mlir::ModuleOp"> {
  let summary = "Compute only the rows that are asked for as early as they are known";
  let description = [{
    The caller of `@forward` says of which rows it wants logits, often the last one only. `lm.rows` drops the others;
    this pass moves it up through every op that computes a row of its result from the same row of its operands
    (`RowWise`), and above a mixture of experts, of which fewer rows then choose, to the attention of the last layer,
    which needs all rows for its cache. The last layer is inlined on the way, if nobody else calls it. Results are the same,
    to the bit.

    Before:

    ```mlir
    func.func private @layer_1(%x: tensor<?x64xf32>, ...) -> tensor<?x64xf32> {
      %a = lm.attention ...
      %o = lm.linear %a, %w {site = "o_proj"} : (tensor<?x64xf32>, tensor<64x64xf32>) -> tensor<?x64xf32>
      %y = lm.add %x, %o : tensor<?x64xf32>
      return %y : tensor<?x64xf32>
    }
    ...
    %1 = call @layer_1(%0, ...) : ...
    %2 = lm.rows %1 at %rows : tensor<?x64xf32>, tensor<?xi32>
    ```

    After:

    ```mlir
    %a = lm.attention ...
    %last_a = lm.rows %a at %rows : tensor<?x64xf32>, tensor<?xi32>
    %o = lm.linear %last_a, %w {site = "o_proj"} : (tensor<?x64xf32>, tensor<64x64xf32>) -> tensor<?x64xf32>
    %last_x = lm.rows %0 at %rows : tensor<?x64xf32>, tensor<?xi32>
    %2 = lm.add %last_x, %o : tensor<?x64xf32>
    ```
  }];
}

def BuildGradients : Pass<"lm-build-gradients", "::mlir::ModuleOp"> {
  let summary = "Write the gradients of layers as ops";
  let description = [{
    For every private function of one activation in and one of its type out a function `@NAME.gradients` that computes the
    same, takes the gradient of its result besides, and returns the result and the gradients of weights: reverse-mode
    differentiation by `DifferentiableOpInterface`. The gradient of an activation is the sum over its readers. What leads
    to none of the weights is not differentiated: the gradient of the layer's input, here. Ops with `lm.stored` make what
    the gradients read of the way forward; norms and activation functions are cheap enough to be computed again from it. So is
    everything that has a row for each choice of an expert: gradients go through the gathered rows and the weights of the choices,
    and who is chosen is constant.

    This is what `equant-lkd` compiles, for the weights that it trains.

    Before:

    ```mlir
    func.func private @layer_0(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
      %norm = ml_program.global_load_const @norm : tensor<64xf32>
      %w = ml_program.global_load_const @w : tensor<64x64xf32>
      %n = lm.rms_norm %x, %norm {epsilon = 1.0e-05 : f64} : tensor<?x64xf32>
      %y = lm.linear %n, %w {site = "w"} : (tensor<?x64xf32>, tensor<64x64xf32>) -> tensor<?x64xf32>
      %z = lm.add %x, %y : tensor<?x64xf32>
      return %z : tensor<?x64xf32>
    }
    ```

    After, besides:

    ```mlir
    func.func private @layer_0.gradients(%x: tensor<?x64xf32>, %dz: tensor<?x64xf32>) -> (tensor<?x64xf32>, tensor<64x64xf32>) {
      ...
      %z = lm.add %x, %y : tensor<?x64xf32>
      %dw = lm.linear_weight_gradient %dz, %n : tensor<?x64xf32>, tensor<?x64xf32> -> tensor<64x64xf32>
      return %z, %dw : tensor<?x64xf32>, tensor<64x64xf32>
    }
    ```
  }];
  let dependentDialects = ["::easyquant::lm::LMDialect"];
  let options = [
    ListOption<"weights", "weights", "std::string", "globals whose gradients are wanted (none: the weights of all lm.linear)">,
  ];
}

#endif // EASYQUANT_DIALECT_LM_TRANSFORMS_PASSES
