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
    The caller of `@forward` says from which row on it wants logits, often the last one only. `lm.rows` drops the others;
    this pass moves it up through every op that computes a row of its result from the same row of its operands
    (`RowWise`), to the attention of the last layer, which needs all rows for its cache. The last layer is inlined on the
    way, if nobody else calls it. Results are the same, to the bit.

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
    %2 = lm.rows %1 from %first : tensor<?x64xf32>
    ```

    After:

    ```mlir
    %a = lm.attention ...
    %last_a = lm.rows %a from %first : tensor<?x64xf32>
    %o = lm.linear %last_a, %w {site = "o_proj"} : (tensor<?x64xf32>, tensor<64x64xf32>) -> tensor<?x64xf32>
    %last_x = lm.rows %0 from %first : tensor<?x64xf32>
    %2 = lm.add %last_x, %o : tensor<?x64xf32>
    ```
  }];
}

#endif // EASYQUANT_DIALECT_LM_TRANSFORMS_PASSES
