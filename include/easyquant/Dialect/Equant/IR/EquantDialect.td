//===- EquantDialect.td - Quantization dialect -------------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_EQUANT_IR_EQUANTDIALECT
#define EASYQUANT_DIALECT_EQUANT_IR_EQUANTDIALECT

include "mlir/IR/OpBase.td"

def Equant_Dialect : Dialect {
  let name = "equant";
  let cppNamespace = "::easyquant::equant";
  let summary = "Quantization as operations on values";
  let description = [{
    The `equant` dialect carries quantization from the choice of a scheme to the packed weights of an artifact. A scheme is
    an attribute, `#equant.scheme<i4, symmetric, group = 128>`; scales and codes are ordinary SSA values, so that scales of
    any size, constant or computed at run time, move through one set of ops. `choose_qparams` and `quantize` stay
    ops to the end, where they are evaluated, for their operands are constants; `quantize_rows` is what kernels are generated for.

    Attributes of the module: `equant.recipe` says what was asked for, `equant.report` what became of each site; both are
    written by the passes and read by the manifest writer. A global with `equant.offset` lies at that byte of the
    artifact's data section.

    What a method computes (equalization factors, scales, codes) are tensors of safetensors files in the folder that the
    module attribute `equant.work` names. A global with `equant.file = "layer_3.safetensors"` is the tensor of its own name in
    that file there, f32 as F32, codes as I8 (one a byte), i32 as I32; with `equant.stamp`, the file's metadata must say the
    same stamp. Constant expressions of loads and `equant.scale` may stand wherever a weight or a bias may:

    ```mlir
    module attributes {equant.work = "work"} {
      ml_program.global private @up_proj.smooth_scale(#ml_program.extern : tensor<576xf32>) : tensor<576xf32>
        {equant.file = "smooth_3.safetensors", equant.stamp = "a3c5"}
      ...
      %w = ml_program.global_load_const @up_proj.weight : tensor<1536x576xf32>
      %s = ml_program.global_load_const @up_proj.smooth_scale : tensor<576xf32>
      %w2 = equant.scale %w by %s {axis = 1} : tensor<1536x576xf32>, tensor<576xf32>
    ```

    A quantizable op may have `equant.plan`, a `#equant.plan`: how it is going to be quantized.

    `docs/rationale/Equant.md` says why.
  }];
  let dependentDialects = ["::easyquant::lm::LMDialect"];
  let hasOperationAttrVerify = 1;
  let useDefaultAttributePrinterParser = 1;
  let extraClassDeclaration = "void registerAttributes();";
}

#endif // EASYQUANT_DIALECT_EQUANT_IR_EQUANTDIALECT
