//===- EquantRankOps.td - What ranks share -----------------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_EQUANT_IR_EQUANTRANKOPS
#define EASYQUANT_DIALECT_EQUANT_IR_EQUANTRANKOPS

include "easyquant/Dialect/Equant/IR/EquantOpBase.td"

//===----------------------------------------------------------------------===//
// Parts of weights
//===----------------------------------------------------------------------===//

def Equant_Sliceable : AnyTypeOf<[Equant_Weight, Equant_FloatRows]>;

def Equant_AllSliceOp : Equant_Op<"all_slice"> {
  let summary = "the part of a weight that a rank has";
  let description = [{
    Rank r of D ranks has the r-th of D equal parts of the rows (axis 0) or columns (axis 1): `shard.all_slice` of a quantized weight.

    With `parts` it has the r-th of D equal parts of each of so many rows or columns, one behind the other, of quantized weights and of
    constants: the rows of its heads in one weight for q, k and v, or those of each expert. Parts along axis 1 are of one width.

    ```mlir
    %v = equant.all_slice %w on @tensor_parallel axis 0 : !equant.weight<576x576, #s> -> !equant.weight<288x576, #s>
    %u = equant.all_slice %qkv on @tensor_parallel axis 0 parts [512, 128, 128] : tensor<768x512xf32> -> tensor<384x512xf32>
    ```
  }];
  let arguments = (ins Equant_Sliceable:$input, FlatSymbolRefAttr:$grid, ConfinedAttr<I64Attr, [IntNonNegative, IntMaxValue<1>]>:$axis,
                       OptionalAttr<DenseI64ArrayAttr>:$parts);
  let results = (outs Equant_Sliceable:$output);
  let assemblyFormat = [{
    $input `on` $grid `axis` $axis (`parts` $parts^)? attr-dict `:` qualified(type($input)) `->` qualified(type($output))
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// How many ranks the parts are for.
    int64_t getRanks();
    /// Where the pieces of a rank begin along the axis, and their extents.
    ::llvm::SmallVector<std::pair<int64_t, int64_t>> piecesOf(int64_t rank);
  }];
}

//===----------------------------------------------------------------------===//
// Rows whose columns ranks share
//===----------------------------------------------------------------------===//

def Equant_SyncExtremaOp : Op<Equant_Dialect, "sync_extrema", [LM_ModelOp, AllTypesMatch<["state", "synced"]>]> {
  let summary = "makes the extrema of rows those of all ranks";
  let description = [{
    What `equant.track` has noted so far, where ranks have parts of the columns, for `equant.advance`: one all-reduce of a step. The
    state is that of before; what reads the result waits for the extrema of all ranks.

    ```mlir
    %synced = equant.sync_extrema %state on @tensor_parallel : !lm.state<sites = 118, fields = 2>
    ```
  }];
  let arguments = (ins LM_StateType:$state, FlatSymbolRefAttr:$grid);
  let results = (outs LM_StateType:$synced);
  let assemblyFormat = "$state `on` $grid attr-dict `:` type($state)";
}

def Equant_TokenAbsMaxOp : Equant_Op<"token_absmax", [LM_RowWise]> {
  let summary = "the largest magnitude of each row";
  let description = [{
    a[m] = max |x[m, ·]|: what the scale of a row follows from. Where ranks have parts of the columns it is the largest of theirs.

    ```mlir
    %a = equant.token_absmax %x : tensor<?x512xf32> -> tensor<?xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$input);
  let results = (outs Equant_RowScales:$absmax);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($absmax)";
}

def Equant_TokenSquaresOp : Equant_Op<"token_squares"> {
  let summary = "the sum of the squares of each row";
  let description = [{
    s[m] = Σ x[m, ·]²: what the norm of a row follows from. Where ranks have parts of the columns it is the sum of theirs.

    ```mlir
    %s = equant.token_squares %x : tensor<?x512xf32> -> tensor<?xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$input);
  let results = (outs Equant_RowScales:$squares);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($squares)";
}

def Equant_PartRmsNormOp : Equant_Op<"part_rms_norm", [AllTypesMatch<["input", "output"]>]> {
  let summary = "root mean square norm of rows of which ranks have parts";
  let description = [{
    `lm.rms_norm` on some of the `columns` of each row, with the squares of all of them, which the ranks have added up, and their part
    of its weight: y = x / √(squares / columns + epsilon) · weight.

    ```mlir
    %y = equant.part_rms_norm %x, %weight of %s {epsilon = 1.0e-06 : f64, columns = 1024 : i64}
           : tensor<?x512xf32>, tensor<512xf32>, tensor<?xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$input, LM_Vector:$weight, Equant_RowScales:$squares, F64Attr:$epsilon,
                       ConfinedAttr<I64Attr, [IntPositive]>:$columns);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = [{
    $input `,` $weight `of` $squares attr-dict `:` type($input) `,` type($weight) `,` type($squares)
  }];
  let hasVerifier = 1;
}

def Equant_RescaleOp : Equant_Op<"rescale", [LM_RowWise]> {
  let summary = "y = s_x · s_w · sums + b";
  let description = [{
    What a quantized linear does with its int32 sums, apart from it: the scale of each channel of the weight, then that of each
    row of the activations, then the bias. Sums of ranks are added before, so that nothing is rounded but once.

    ```mlir
    %y = equant.rescale %sums of %rows, %w {sites = ["down_proj"]} : (tensor<?x576xi32>, !rows, !weight) -> tensor<?x576xf32>
    ```
  }];
  let arguments = (ins Equant_RowSums:$sums, Equant_RowCodes:$rows, Equant_PackedWeight:$weight, Optional<LM_Vector>:$bias,
                       StrArrayAttr:$sites);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = [{
    $sums `of` $rows `,` $weight (`bias` `(` $bias^ `)`)? attr-dict `:` functional-type(operands, $output)
  }];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Sums over ranks
//===----------------------------------------------------------------------===//

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
