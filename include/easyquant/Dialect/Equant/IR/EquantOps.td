//===- EquantOps.td - Quantization operations --------------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_EQUANT_IR_EQUANTOPS
#define EASYQUANT_DIALECT_EQUANT_IR_EQUANTOPS

include "easyquant/Dialect/Equant/IR/EquantOpBase.td"
include "easyquant/Dialect/Equant/IR/EquantRankOps.td"

//===----------------------------------------------------------------------===//
// Codes and scales
//===----------------------------------------------------------------------===//

def Equant_QuantizeOp : Equant_Op<"quantize", [AttrSizedOperandSegments]> {
  let summary = "a quantized weight of a constant, q = clamp(rne(x / s) + z), or with minima q = clamp(rne((x - m) / s) + min)";
  let description = [{
    Scales, and the zero points or minima of an asymmetric scheme, follow from the values by a rule, or are what a method has computed. Rule
    `percentile` takes a `percentile`; 99.99 when absent. Scales of a scheme with `outer = tensor` are in units of outer scales:
    max abs(x) / (largest value of a code · largest scale), once for every row, so that weights which are fused keep their own.

    Values are rounded half to even and clamped to the range of the scheme; codes that are no integers are the nearest of their
    format. With `rounded` the codes are these, which a method has chosen for the same scales to make up for the errors of others
    (GPTQ, LKD), instead of the nearest ones; the input says what they stand for. `lib/Numerics` defines it to the bit.

    ```mlir
    %w = equant.quantize %f rule absmax : (tensor<576x576xf32>) -> !equant.weight<576x576, #equant.scheme<i8, symmetric, channel>>
    %v = equant.quantize %f scale(%scale) rounded(%codes)
           : (tensor<576x576xf32>, tensor<576x1xf32>, tensor<576x576xi8>) -> !equant.weight<576x576, #equant.scheme<i8, symmetric, channel>>
    ```
  }];
  let arguments = (ins LM_Matrix:$input, Optional<Equant_Scales>:$scale, Optional<Equant_ZeroPoints>:$zero_point,
                       Optional<Equant_Minima>:$minimum, Optional<Equant_OuterScales>:$outer, Optional<Equant_Codes>:$rounded,
                       OptionalAttr<Equant_ScaleRuleAttr>:$rule, OptionalAttr<F64Attr>:$percentile);
  let results = (outs Equant_Weight:$weight);
  let assemblyFormat = [{
    $input (`rule` `` $rule^)? (`scale` `(` $scale^ `)`)? (`zero_point` `(` $zero_point^ `)`)?
    (`minimum` `(` $minimum^ `)`)? (`outer` `(` $outer^ `)`)? (`rounded` `(` $rounded^ `)`)? attr-dict `:` functional-type(operands, $weight)
  }];
  let hasVerifier = 1;
}

def Equant_FromCodesOp : Equant_Op<"from_codes", [AttrSizedOperandSegments]> {
  let summary = "a quantized weight of codes that exist";
  let description = [{
    The parts of a weight, from wherever they come, as one value: what they stand for is known by them alone. Codes have the type of the
    scheme, or are `i8`, one a byte, as plain files have them: integers, or the bits of other codes less 2^(b−1).

    ```mlir
    %w = equant.from_codes %codes scale(%scale)
           : (tensor<576x576xi8>, tensor<576x1xf32>) -> !equant.weight<576x576, #equant.scheme<i8, symmetric, channel>>
    ```
  }];
  let arguments = (ins Equant_Codes:$codes, Equant_Scales:$scale, Optional<Equant_ZeroPoints>:$zero_point,
                       Optional<Equant_Minima>:$minimum, Optional<Equant_OuterScales>:$outer);
  let results = (outs Equant_Weight:$weight);
  let assemblyFormat = [{
    $codes `scale` `(` $scale `)` (`zero_point` `(` $zero_point^ `)`)? (`minimum` `(` $minimum^ `)`)?
    (`outer` `(` $outer^ `)`)? attr-dict `:` functional-type(operands, $weight)
  }];
  let hasVerifier = 1;
}

def Equant_DequantizeOp : Equant_Op<"dequantize"> {
  let summary = "what the codes of a weight stand for, ŵ = s · (q − z)";
  let description = [{
    The weight in floats again, for ops that multiply these: convolutions, and other ops of `linalg`, whose activations stay float.

    ```mlir
    %f = equant.dequantize %w : !equant.weight<576x576, #equant.scheme<i8, symmetric, channel>> -> tensor<576x576xf32>
    ```
  }];
  let arguments = (ins Equant_Weight:$weight);
  let results = (outs LM_Matrix:$output);
  let assemblyFormat = "$weight attr-dict `:` qualified(type($weight)) `->` type($output)";
  let hasVerifier = 1;
}

def Equant_SliceOp : Equant_Op<"slice"> {
  let summary = "a part of a quantized weight";
  let description = [{
    Rows and columns of a weight with the scales that they have in the whole of it. Columns that share a scale, or the unit of
    scales, stay together.

    ```mlir
    %v = equant.slice %w [0, 128] [576, 128] : !equant.weight<576x576, #s> -> !equant.weight<576x128, #s>
    ```
  }];
  let arguments = (ins Equant_Weight:$input, DenseI64ArrayAttr:$offsets, DenseI64ArrayAttr:$sizes);
  let results = (outs Equant_Weight:$output);
  let assemblyFormat = "$input $offsets $sizes attr-dict `:` qualified(type($input)) `->` qualified(type($output))";
  let hasVerifier = 1;
}

def Equant_FakeQuantizeOp
    : Equant_Op<"fake_quantize", [LM_RowWise, AllTypesMatch<["input", "output"]>]> {
  let summary = "activations as their codes give them back: x̂ = s · value(nearest(x / s))";
  let description = [{
    Quantizes activations and gives back what their codes stand for, without codes in memory: what
    `equant-legalize-activations` makes for targets whose products are of floats. Scales are per token, from each row, or
    per tensor, the constant `scale`; or per group of a row, from its values, in units of the outer scale `scale` (NVFP4).
    Codes that are no integers only.

    ```mlir
    %y = equant.fake_quantize %x {scheme = #equant.scheme<f8E4M3FN, token, dynamic>} : tensor<?x576xf32>
    %z = equant.fake_quantize %x {scheme = #equant.scheme<f8E4M3FN, tensor>, scale = 2.5e-02 : f32} : tensor<?x576xf32>
    %u = equant.fake_quantize %x {scheme = #equant.scheme<f4E2M1FN, group = 16, dynamic, scale = f8E4M3FN, outer = tensor>,
                                  scale = 2.5e-03 : f32} : tensor<?x576xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$input, Equant_SchemeAttr:$scheme, OptionalAttr<F32Attr>:$scale);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = "$input attr-dict `:` type($input)";
  let hasVerifier = 1;
}

def Equant_QuantizeRowsOp : Equant_Op<"quantize_rows", [AttrSizedOperandSegments, LM_RowWise]> {
  let summary = "activations as codes";
  let description = [{
    q = clamp(rne(x / s) + z), row by row: per token, with scales from each row or each group of it, or per tensor, with the constant `scale` and
    the `zero_point` of an asymmetric scheme, or with online scales, the operand `online`. Codes of f8E4M3FN are those of the nearest values
    of x / s. Those of f4E2M1FN have scales of groups, from their values, in units of the constant `scale` (NVFP4). `lib/Numerics` defines it to the bit.

    With `absmax` the scales are those of these largest magnitudes, one a row, instead of the row's own. The columns of such rows
    are parts of longer rows, which other ranks have. They also decide which rows leave a static range with sinks apart.

    ```mlir
    %rows = equant.quantize_rows %x : tensor<?x576xf32> -> !equant.rows<?x576, #equant.scheme<i8, symmetric, token, dynamic>, sums = 128>
    %part = equant.quantize_rows %x : tensor<?x576xf32> -> !equant.rows<?x576, #equant.scheme<i8, symmetric, token, group = 32, dynamic>, sums = 32>
    ```
  }];
  let arguments = (ins LM_Activation:$input, Optional<Equant_RowScales>:$online, Optional<Equant_RowScales>:$absmax,
                       OptionalAttr<F32Attr>:$scale, OptionalAttr<I32Attr>:$zero_point);
  let results = (outs Equant_RowCodes:$rows);
  let assemblyFormat = [{
    $input (`online` `(` $online^ `:` type($online) `)`)? (`absmax` `(` $absmax^ `:` type($absmax) `)`)? attr-dict `:` type($input) `->` qualified(type($rows))
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::easyquant::equant::SchemeAttr getScheme() { return getRows().getType().getScheme(); }
  }];
}

//===----------------------------------------------------------------------===//
// Online scales
//===----------------------------------------------------------------------===//

def Equant_OnlineScaleOp : Equant_Op<"online_scale"> {
  let summary = "the scale that a row's sequence keeps for a site";
  let description = [{
    For each row of the step the scale of site `index` in the state of the sequence that it belongs to, as the last step of
    that sequence has left it (`easyquant/Numerics/OnlineScales.h`).

    ```mlir
    %s = equant.online_scale %state, %batch {index = 3 : i64} : !lm.state<sites = 118, fields = 2> -> tensor<?xf32>
    ```
  }];
  let arguments = (ins LM_StateType:$state, LM_BatchType:$batch, ConfinedAttr<I64Attr, [IntNonNegative]>:$index);
  let results = (outs Equant_RowScales:$scales);
  let assemblyFormat = "$state `,` $batch attr-dict `:` type($state) `->` type($scales)";
  let hasVerifier = 1;
}

def Equant_TrackOp : Op<Equant_Dialect, "track", [LM_ModelOp]> {
  let summary = "notes the extrema of each row for the next scale of a site";
  let description = [{
    The smallest and the largest value of each row, before it is rounded, for `equant.advance`: what the kernel that makes
    its codes gathers on its way.

    ```mlir
    equant.track %x in %state {index = 3 : i64} : tensor<?x576xf32>, !lm.state<sites = 118, fields = 2>
    ```
  }];
  let arguments = (ins LM_Activation:$input, LM_StateType:$state, ConfinedAttr<I64Attr, [IntNonNegative]>:$index);
  let assemblyFormat = "$input `in` $state attr-dict `:` type($input) `,` type($state)";
  let hasVerifier = 1;
}

def Equant_AdvanceOp : Op<Equant_Dialect, "advance", [LM_ModelOp]> {
  let summary = "brings the state of all sites up to date";
  let description = [{
    What each sequence of the step keeps, from the extrema that `equant.track` has noted of its rows: read from the
    sequence's slot, written to its next one. `decay` is the weight of the past; with `window` > 0 the largest magnitude of
    so many steps is averaged instead of that of this one. `easyquant/Numerics/OnlineScales.h` defines it to the bit.

    ```mlir
    equant.advance %state, %batch {decay = 0.9 : f64, window = 0 : i64} : !lm.state<sites = 118, fields = 2>
    ```
  }];
  let arguments = (ins LM_StateType:$state, LM_BatchType:$batch, F64Attr:$decay,
                       ConfinedAttr<I64Attr, [IntNonNegative]>:$window);
  let assemblyFormat = "$state `,` $batch attr-dict `:` type($state)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Fusions, and constants that are made of others
//===----------------------------------------------------------------------===//

def Equant_YieldOp : Op<Equant_Dialect, "yield", [Pure, Terminator, ReturnLike, ParentOneOf<["FusionOp"]>]> {
  let summary = "the results of a fusion";
  let arguments = (ins Variadic<AnyType>:$results);
  let assemblyFormat = "attr-dict ($results^ `:` type($results))?";
  let builders = [OpBuilder<(ins), "build($_builder, $_state, ::mlir::ValueRange());">];
}

def Equant_FusionOp : Op<Equant_Dialect, "fusion", [SingleBlockImplicitTerminator<"YieldOp">, RecursiveMemoryEffects]> {
  let summary = "ops that one kernel computes";
  let description = [{
    What the ops of the region compute; values between them need no memory. `equant-fuse-kernels` makes fusions, and a
    target's kernel library names the kernel.

    ```mlir
    %rows = equant.fusion {
      %h = lm.rms_norm %x, %weight {epsilon = 1.0e-05 : f64} : tensor<?x576xf32>
      %q = equant.quantize_rows %h : tensor<?x576xf32> -> !rows
      equant.yield %q : !rows
    } : !rows
    ```
  }];
  let results = (outs Variadic<AnyType>:$outputs);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$body attr-dict (`:` type($outputs)^)?";
  let hasVerifier = 1;
}

def Equant_ConcatOp : Equant_Op<"concat"> {
  let summary = "weights or biases below each other";
  let description = [{
    Concatenates along the first axis, the output features: the weights of linears that become one. They have one scheme, with
    scales per channel or per group.

    ```mlir
    %qkv = equant.concat %q, %k, %v : (!equant.weight<576x576, #s>, !equant.weight<192x576, #s>, !equant.weight<192x576, #s>)
             -> !equant.weight<960x576, #s>
    ```
  }];
  let arguments = (ins Variadic<Equant_Rows>:$inputs);
  let results = (outs Equant_Rows:$output);
  let assemblyFormat = "$inputs attr-dict `:` functional-type($inputs, $output)";
  let builders = [OpBuilder<(ins "::mlir::ValueRange":$inputs)>];
  let hasVerifier = 1;
  let hasFolder = 1;
  let hasCanonicalizeMethod = 1;
}

def Equant_ScaleOp : Equant_Op<"scale", [AllTypesMatch<["input", "output"]>]> {
  let summary = "rows or columns of a constant times a vector";
  let description = [{
    Multiplies element [i, j] of a matrix by factor[j] (axis 1) or factor[i] (axis 0), or divides by it; a vector has axis
    0. One IEEE binary32 operation an element. Equivalence transforms (SmoothQuant, AWQ) leave it on weights, norm weights
    and biases; `equant-materialize-weights` evaluates it.

    ```mlir
    %n2 = equant.scale %norm by %s {axis = 0, divide} : tensor<576xf32>, tensor<576xf32>
    %w2 = equant.scale %w by %s {axis = 1} : tensor<1536x576xf32>, tensor<576xf32>
    ```
  }];
  let arguments = (ins Equant_FloatRows:$input, LM_Vector:$factor, I64Attr:$axis, UnitAttr:$divide);
  let results = (outs Equant_FloatRows:$output);
  let assemblyFormat = "$input `by` $factor attr-dict `:` type($input) `,` type($factor)";
  let hasVerifier = 1;
}

def Equant_Rotatable : AnyTypeOf<[LM_Activation, LM_Matrix, LM_Vector], "", "::mlir::RankedTensorType">;

def Equant_HadamardOp
    : Equant_Op<"hadamard", [LM_Differentiable, LM_RowWise, AllTypesMatch<["input", "output"]>]> {
  let summary = "rows, or columns of a constant, in a rotated basis";
  let description = [{
    x H, with the orthogonal Hadamard matrix over blocks of `block` columns (`easyquant/Numerics/Hadamard.h`). H is symmetric and
    its own inverse, so that x Wᵀ = (x H)(W H)ᵀ. Activations are rotated at run time, weights when
    `equant-materialize-weights` evaluates them.

    With axis 0 it is H x, over blocks of `block` rows of a matrix or elements of a vector, which are constants: a linear whose weight
    and bias are rotated so gives its result in the rotated basis, (x Wᵀ + b) H = x (H W)ᵀ + H b. Rows before `first` stay as they
    are: those of queries and keys, where values are the last columns of one linear's result.

    ```mlir
    %r = equant.hadamard %x {block = 64 : i64} : tensor<?x576xf32>
    %v = equant.hadamard %w {block = 64 : i64} : tensor<1536x576xf32>
    %b = equant.hadamard %bias {axis = 0 : i64, block = 64 : i64} : tensor<192xf32>
    %qkv = equant.hadamard %fused {axis = 0 : i64, block = 64 : i64, first = 1536 : i64} : tensor<2304x768xf32>
    ```
  }];
  let arguments = (ins Equant_Rotatable:$input, I64Attr:$block, DefaultValuedAttr<I64Attr, "1">:$axis,
                       DefaultValuedAttr<I64Attr, "0">:$first);
  let results = (outs Equant_Rotatable:$output);
  let assemblyFormat = "$input attr-dict `:` type($input)";
  let hasVerifier = 1;
}

def Equant_ColumnOrder : Equant_TensorOf<"$t.getRank() == 1 && !$t.isDynamicDim(0) && $t.getElementType().isSignlessInteger(32)",
                                         "an order of columns, tensor<Kxi32>">;

def Equant_GatherColumnsOp
    : Equant_Op<"gather_columns", [LM_RowWise, AllTypesMatch<["input", "output"]>]> {
  let summary = "activations with their columns in another order";
  let description = [{
    y[m, k] = x[m, order[k]]: what a weight is multiplied with whose columns have been brought into the order of their groups. GPTQ
    rounds columns by importance (act-order), and files without static groups say of each column which group it is of. The order is
    a constant with each column once.

    ```mlir
    %order = ml_program.global_load_const @q_proj.weight_order : tensor<576xi32>
    %y = equant.gather_columns %x by %order : tensor<?x576xf32>, tensor<576xi32>
    ```
  }];
  let arguments = (ins LM_Activation:$input, Equant_ColumnOrder:$order);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = "$input `by` $order attr-dict `:` type($input) `,` type($order)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Quantized building blocks
//===----------------------------------------------------------------------===//

def Equant_LinearOp : Equant_Op<"linear", [AttrSizedOperandSegments, LM_RowWise]> {
  let summary = "y = x Ŵᵀ + b with a quantized weight and, if asked, quantized activations";
  let description = [{
    With an `input` scheme x is quantized at run time and the products are summed in int32, group by group; the verifier
    proves from the code ranges that no accumulator overflows. Without one the activations stay float. A static input
    scheme, per tensor, comes with its constant `input_scale`, and an asymmetric one with its `input_zero_point`. In a scheme
    with `outer = tensor` that is the outer scale. In an online scheme `input_scale` is the scale that a sequence starts with,
    until `equant-online-scales` gives the linear those that its sequence keeps, as `online`.

    `sites` names the linears of the checkpoint, from top to bottom: several after `equant-fuse-shared-input`. With `experts`
    it is as many linears as there are experts, as in `lm.linear`.

    ```mlir
    %y = equant.linear %x, %w {sites = ["model.layers.0.mlp.down_proj"], input_scheme = #equant.scheme<i8, symmetric, token, dynamic>}
           : (tensor<?x1536xf32>, !equant.weight<576x1536, #equant.scheme<i4, symmetric, group = 128>>) -> tensor<?x576xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$input, Equant_Weight:$weight, Optional<LM_Vector>:$bias,
                       Optional<Equant_RowScales>:$online, Optional<LM_ExpertOffsets>:$experts, StrArrayAttr:$sites,
                       OptionalAttr<Equant_SchemeAttr>:$input_scheme,
                       OptionalAttr<F32Attr>:$input_scale, OptionalAttr<I32Attr>:$input_zero_point);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = [{
    $input `,` $weight (`bias` `(` $bias^ `)`)? (`online` `(` $online^ `)`)?
    (`experts` `(` $experts^ `)`)? attr-dict `:` functional-type(operands, $output)
  }];
  let hasVerifier = 1;
}

def Equant_PackedLinearOp : Equant_Op<"packed_linear", [AttrSizedOperandSegments, LM_RowWise]> {
  let summary = "a linear whose weight lies as a target's kernels read it";
  let description = [{
    What `equant-materialize-weights` makes of an `equant.linear`. `equant-legalize-activations` then makes the quantization of
    activations an op, `equant.quantize_rows`, whose codes the linear reads; what is said of the input is in their type. Codes
    come with their sums where the target's kernels ask for them, and where the weight has zero points. On targets that
    multiply bf16 a linear on floats reads these.

    Asymmetric activations need a weight with `sums`. With results of i32, which codes and a scale a channel can have, the
    linear leaves its sums as they are before `equant.rescale`, and has no bias.

    ```mlir
    %y = equant.packed_linear %rows, %w {sites = ["model.layers.0.mlp.down_proj"]} : (!rows, !weight) -> tensor<?x576xf32>
    ```
  }];
  let arguments = (ins Equant_PackedInput:$input, Equant_PackedWeight:$weight, Optional<LM_Vector>:$bias,
                       Optional<Equant_RowScales>:$online, Optional<LM_ExpertOffsets>:$experts, StrArrayAttr:$sites,
                       OptionalAttr<Equant_SchemeAttr>:$input_scheme,
                       OptionalAttr<F32Attr>:$input_scale, OptionalAttr<I32Attr>:$input_zero_point);
  let results = (outs Equant_LinearOutput:$output);
  let assemblyFormat = [{
    $input `,` $weight (`bias` `(` $bias^ `)`)? (`online` `(` $online^ `)`)?
    (`experts` `(` $experts^ `)`)? attr-dict `:` functional-type(operands, $output)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The codes that it reads; null where it reads floats.
    ::easyquant::equant::RowsType getRows() { return ::llvm::dyn_cast<::easyquant::equant::RowsType>(getInput().getType()); }
    /// The scheme of its activations, whether they are codes already or not; null: they stay float.
    ::easyquant::equant::SchemeAttr getActivations() { return getRows() ? getRows().getScheme() : getInputSchemeAttr(); }
  }];
}

def Equant_EmbeddingOp : Equant_Op<"embedding"> {
  let summary = "rows of a quantized table, dequantized";
  let description = [{
    y[m] = s[t] · (q[t] − z[t]) for token t = tokens[m]. The table, packed or not, may be the weight of the output head that it is
    tied to. A `sharded` table is a rank's share of the vocabulary: rank r has the tokens from r · N on, and rows of others are zeros.

    ```mlir
    %y = equant.embedding %tokens, %table
           : (tensor<?xi32>, !equant.weight<49152x576, #equant.scheme<i8, symmetric, channel>>) -> tensor<?x576xf32>
    ```
  }];
  let arguments = (ins LM_Tokens:$tokens, Equant_AnyWeight:$table, UnitAttr:$sharded);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = "$tokens `,` $table attr-dict `:` functional-type(operands, $output)";
  let hasVerifier = 1;
}

def Equant_AttentionOp
    : Op<Equant_Dialect, "attention",
         [AttrSizedOperandSegments, AllTypesMatch<["query", "output"]>, AllTypesMatch<["key", "value"]>, LM_ModelOp]> {
  let summary = "attention over a cache of codes";
  let description = [{
    `lm.attention` whose cache holds keys and values as `kv_scheme` says: what leaves the float window is quantized, and
    attended to as codes.

    With a rotation table, keys come and are kept as they are before their rotation, and every one is rotated by the
    angles of its token as it is read; the query comes rotated.

    ```mlir
    %y = equant.attention %q, %k, %v, %cache, %batch
           {head_dim = 64 : i64, kv_scheme = #equant.kv_scheme<code = i4, group = 64, residual = 128, sinks = 4, keys = channel>,
            layer = 0 : i64, num_heads = 9 : i64, num_kv_heads = 3 : i64, scale = 1.25e-01 : f64}
           : tensor<?x576xf32>, tensor<?x192xf32>, !lm.kv_cache<layers = 30, kv_heads = 3, head_dim = 64>
    %z = equant.attention %q, %unrotated, %v, %cache, %batch rope(%table : tensor<8192x32x2xf32>) {…} : …
    ```
  }];
  let arguments = (ins LM_Activation:$query, LM_Activation:$key, LM_Activation:$value,
                       Arg<LM_KVCacheType, "", [MemRead, MemWrite]>:$cache, LM_BatchType:$batch,
                       Optional<LM_RopeTable>:$table, Optional<LM_Vector>:$sink_logits,
                       ConfinedAttr<I64Attr, [IntNonNegative]>:$layer,
                       ConfinedAttr<I64Attr, [IntPositive]>:$num_heads,
                       ConfinedAttr<I64Attr, [IntPositive]>:$num_kv_heads,
                       ConfinedAttr<I64Attr, [IntPositive]>:$head_dim, F64Attr:$scale,
                       DefaultValuedAttr<ConfinedAttr<I64Attr, [IntNonNegative]>, "0">:$window,
                       DefaultValuedAttr<F64Attr, "0.0">:$bound, Equant_KVSchemeAttr:$kv_scheme);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = [{
    $query `,` $key `,` $value `,` $cache `,` $batch (`rope` `(` $table^ `:` type($table) `)`)?
    (`sink_logits` `(` $sink_logits^ `:` type($sink_logits) `)`)? attr-dict `:` type($query) `,` type($key) `,`
    qualified(type($cache))
  }];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Calibration
//===----------------------------------------------------------------------===//

def Equant_ObserveOp
    : Op<Equant_Dialect, "observe", [MemoryEffects<[MemWrite]>, LM_ModelOp, AttrSizedOperandSegments]> {
  let summary = "shows activations to calibration";
  let description = [{
    Hands the rows of `input` to the observer that the program is given at run time; without observers in it a program
    takes none. `sites` are the linears that read these activations, `statistics` what is to be gathered of them.
    `easyquant/Numerics/SiteStatistics.h` lists the statistics, `Statistics.h` beside it defines them.

    What linears of experts read has a row for each choice (`lm.route`). With `experts` the observer is told of which token each
    row is and where the rows of each expert begin, and statistics are those of each expert.

    It writes what the program cannot see, so nothing may drop it. `equant-insert-observers` puts it there,
    `equant-attach-calibration` takes it away.

    ```mlir
    equant.observe %x {sites = ["model.layers.0.mlp.gate_proj", "model.layers.0.mlp.up_proj"], statistics = ["absmax"]}
      : tensor<?x576xf32>
    equant.observe %rows experts(%order, %offsets) {sites = ["model.layers.0.mlp.experts.up_proj"], statistics = ["hessian"]}
      : tensor<?x2048xf32>, tensor<?xi32>, tensor<129xi32>
    ```
  }];
  let arguments = (ins LM_Activation:$input, Optional<LM_RowNumbers>:$order, Optional<LM_ExpertOffsets>:$offsets,
                       StrArrayAttr:$sites, StrArrayAttr:$statistics);
  let assemblyFormat = [{
    $input (`experts` `(` $order^ `,` $offsets `)`)? attr-dict `:` type($input) (`,` type($order)^ `,` type($offsets))?
  }];
  let hasVerifier = 1;
}

def Equant_RoundActivationOp
    : Equant_Op<"round_activation", [LM_HostOp, LM_RowWise, AllTypesMatch<["input", "output"]>]> {
  let summary = "an activation as the caller of the program rounds it";
  let description = [{
    Gives what the codes of `input` stand for, by the scheme that the caller has said for this `number`, or `input` itself where it
    has said none (`CompiledSubgraph::roundInput`). One program then serves all formats that a search tries. Only subgraphs of
    calibration have such ops.

    ```mlir
    %y = equant.round_activation %x {number = 0 : i64} : tensor<?x576xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$input, ConfinedAttr<I64Attr, [IntNonNegative]>:$number);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = "$input attr-dict `:` type($input)";
}

#endif // EASYQUANT_DIALECT_EQUANT_IR_EQUANTOPS
