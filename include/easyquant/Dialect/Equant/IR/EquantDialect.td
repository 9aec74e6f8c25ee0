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
    an attribute, `#equant.scheme<i4, symmetric, group = 128>`. A weight, its codes and scales and what else the scheme asks for,
    is one value, `!equant.weight`, and so are activations in codes, `!equant.rows`. `quantize`, which makes a weight of a
    constant, stays an op to the end, where it is evaluated; `quantize_rows` is what kernels are generated for.

    Attributes of the module: `equant.recipe` says what was asked for, `equant.report` what became of each site; both are
    written by the passes and read by the manifest writer. A global with `equant.offset` lies at that byte of the
    artifact's data section; a packed weight has an array of them, one for each of its parts:

    ```mlir
    !w = !equant.weight<40x24, #equant.scheme<i8, symmetric, channel>, #equant.layout<panel>>
    ml_program.global private @up_proj.weight(#ml_program.extern : !w) : !w {equant.offset = array<i64: 0, 1536>}
    ```

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
  let useDefaultTypePrinterParser = 1;
  let extraClassDeclaration = "void registerAttributes(); void registerTypes();";
}

#endif // EASYQUANT_DIALECT_EQUANT_IR_EQUANTDIALECT
