//===- EquantRankOps.td - Operations of ranks that share a model -*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_EQUANT_IR_EQUANTRANKOPS
#define EASYQUANT_DIALECT_EQUANT_IR_EQUANTRANKOPS

include "easyquant/Dialect/Equant/IR/EquantOpBase.td"

def Equant_ExpertRows : AnyTypeOf<[LM_Vector, LM_Matrix, Equant_Weight]>;

def Equant_ExpertSliceOp : Equant_Op<"expert_slice"> {
  let summary = "the part of each expert's rows that a rank has";
  let description = [{
    The rows of `experts` experts lie one below the other, as many of each. Rank r of D ranks has the r-th of D equal parts of the rows
    of every expert, one below the other: what `equant.all_slice` along axis 0 is for the weight of one linear.

    ```mlir
    %v = equant.expert_slice %w on @tensor_parallel experts 8 : !equant.weight<6144x576, #s> -> !equant.weight<3072x576, #s>
    %c = equant.expert_slice %bias on @tensor_parallel experts 8 : tensor<6144xf32> -> tensor<3072xf32>
    ```
  }];
  let arguments = (ins Equant_ExpertRows:$input, FlatSymbolRefAttr:$grid, ConfinedAttr<I64Attr, [IntPositive]>:$experts);
  let results = (outs Equant_ExpertRows:$output);
  let assemblyFormat = "$input `on` $grid `experts` $experts attr-dict `:` qualified(type($input)) `->` qualified(type($output))";
  let hasVerifier = 1;
}

def Equant_FirstRankOp : Equant_Op<"first_rank", [AllTypesMatch<["input", "output"]>]> {
  let summary = "a constant on rank 0, zeros on the others";
  let description = [{
    What is to count once in a sum over ranks, of which each rank adds a term: the biases of experts, whose results are weighted before
    they are added.

    ```mlir
    %b = equant.first_rank %bias on @tensor_parallel : tensor<4608xf32>
    ```
  }];
  let arguments = (ins LM_Vector:$input, FlatSymbolRefAttr:$grid);
  let results = (outs LM_Vector:$output);
  let assemblyFormat = "$input `on` $grid attr-dict `:` type($input)";
}

def Equant_AddBiasOp : Equant_Op<"add_bias", [LM_RowWise, AllTypesMatch<["input", "output"]>]> {
  let summary = "y = x + b";
  let description = [{
    The bias of a linear behind the sum over ranks of its results.

    ```mlir
    %y = equant.add_bias %sum, %bias : tensor<?x576xf32>, tensor<576xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$input, LM_Vector:$bias);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = "$input `,` $bias attr-dict `:` type($input) `,` type($bias)";
  let hasVerifier = 1;
}

#endif // EASYQUANT_DIALECT_EQUANT_IR_EQUANTRANKOPS
