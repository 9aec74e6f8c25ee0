//===- LMGradientOps.td - Gradients of operations ----------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// What the gradients of the model's ops need beyond these ops themselves. L is the number whose
// gradients they are, dv stands for that of a value v, x is what the op read and dy the gradient of what it made.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_LM_IR_LMGRADIENTOPS
#define EASYQUANT_DIALECT_LM_IR_LMGRADIENTOPS

include "easyquant/Dialect/LM/IR/LMOpBase.td"

class LM_GradientOp<string mnemonic, list<Trait> traits = []> : LM_Op<mnemonic, traits # [Pure]>;

//===----------------------------------------------------------------------===//
// Linears
//===----------------------------------------------------------------------===//

def LM_LinearInputGradientOp : LM_GradientOp<"linear_input_gradient", [LM_HostOp, LM_RowWise]> {
  let summary = "dx = dy W";
  let description = [{
    The gradient of what an `lm.linear` of weight W (N × K) reads: dx[m, k] = Σₙ dy[m, n] W[n, k].

    With `experts`, rows offsets[e] to offsets[e + 1] of dy meet the rows of W that are those of expert e, as in `lm.linear`.

    ```mlir
    // Before: y = x Wᵀ in a layer, of whose result dy is the gradient.
    %y = lm.linear %x, %w {site = "up_proj"} : (tensor<?x576xf32>, tensor<1536x576xf32>) -> tensor<?x1536xf32>
    // After: what it adds to the layer's gradients.
    %dx = lm.linear_input_gradient %dy, %w : tensor<?x1536xf32>, tensor<1536x576xf32> -> tensor<?x576xf32>
    %dw = lm.linear_weight_gradient %dy, %x : tensor<?x1536xf32>, tensor<?x576xf32> -> tensor<1536x576xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$gradient, LM_Matrix:$weight, Optional<LM_ExpertOffsets>:$experts);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = [{
    $gradient `,` $weight (`experts` `(` $experts^ `:` type($experts) `)`)? attr-dict `:` type($gradient) `,` type($weight) `->` type($output)
  }];
  let hasVerifier = 1;
}

def LM_LinearWeightGradientOp : LM_GradientOp<"linear_weight_gradient", [LM_HostOp]> {
  let summary = "dW = dyᵀ x";
  let description = [{
    The gradient of the weight of an `lm.linear`: dW[n, k] = Σₘ dy[m, n] x[m, k], summed over all tokens. With `experts` the gradient of the weight of
    each is that of its rows, 0 where it has none.

    ```mlir
    %dw = lm.linear_weight_gradient %dy, %x : tensor<?x1536xf32>, tensor<?x576xf32> -> tensor<1536x576xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$gradient, LM_Activation:$input, Optional<LM_ExpertOffsets>:$experts);
  let results = (outs LM_Matrix:$output);
  let assemblyFormat = [{
    $gradient `,` $input (`experts` `(` $experts^ `:` type($experts) `)`)? attr-dict `:` type($gradient) `,` type($input) `->` type($output)
  }];
  let hasVerifier = 1;
}

def LM_BiasGradientOp : LM_GradientOp<"bias_gradient", [LM_HostOp, LM_VectorOf<"gradient", "output">]> {
  let summary = "the sum of all rows";
  let description = [{
    db[n] = Σₘ dy[m, n]: the gradient of what an `lm.linear` or `lm.layer_norm` adds to every row.

    ```mlir
    %db = lm.bias_gradient %dy : tensor<?x2304xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$gradient);
  let results = (outs LM_Vector:$output);
  let assemblyFormat = "$gradient attr-dict `:` type($gradient)";
}

//===----------------------------------------------------------------------===//
// Norms
//===----------------------------------------------------------------------===//

def LM_RmsNormGradientOp
    : LM_GradientOp<"rms_norm_gradient", [LM_RowWise, AllTypesMatch<["gradient", "input", "output"]>]> {
  let summary = "the gradient of what an RMS norm reads";
  let description = [{
    Differentiates `lm.rms_norm` and `lm.head_rms_norm`, whose weight w has D elements. Every D columns of a row stand by themselves.
    Where there is no weight, `head_dim` is D, and w is 1. With r = 1 / √(mean(x²) + epsilon) and g = dy w,

        dx = r (g − r² mean(g x) x)

    ```mlir
    // Before
    %y = lm.rms_norm %x, %w {epsilon = 1.0e-05 : f64} : tensor<?x576xf32>
    // After
    %dx = lm.rms_norm_gradient %dy, %x, %w {epsilon = 1.0e-05 : f64} : tensor<?x576xf32>, tensor<576xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$gradient, LM_Activation:$input, Optional<LM_Vector>:$weight, F64Attr:$epsilon,
                       OptionalAttr<ConfinedAttr<I64Attr, [IntPositive]>>:$head_dim);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = [{
    $gradient `,` $input (`,` $weight^)? attr-dict `:` type($input) (`,` type($weight)^)?
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// D.
    int64_t columnsOfHead();
  }];
}

def LM_RmsNormWeightGradientOp
    : LM_GradientOp<"rms_norm_weight_gradient", [LM_HostOp, AllTypesMatch<["gradient", "input"]>]> {
  let summary = "the gradient of the weight of an RMS norm";
  let description = [{
    dw[i] = Σ dy x r, r as in `lm.rms_norm_gradient`, summed over all tokens and, where the weight has fewer elements than a
    row (`lm.head_rms_norm`), all heads.

    ```mlir
    %dw = lm.rms_norm_weight_gradient %dy, %x {epsilon = 1.0e-05 : f64} : tensor<?x2048xf32> -> tensor<128xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$gradient, LM_Activation:$input, F64Attr:$epsilon);
  let results = (outs LM_Vector:$output);
  let assemblyFormat = "$gradient `,` $input attr-dict `:` type($input) `->` type($output)";
  let hasVerifier = 1;
}

def LM_LayerNormGradientOp
    : LM_GradientOp<"layer_norm_gradient", [LM_RowWise, AllTypesMatch<["gradient", "input", "output"]>,
                                            LM_VectorOf<"input", "weight">]> {
  let summary = "the gradient of what a layer norm reads";
  let description = [{
    With r = 1 / √(var(x) + epsilon), z = r (x − mean(x)) and g = dy w,

        dx = r (g − mean(g) − mean(g z) z)

    ```mlir
    // Before
    %y = lm.layer_norm %x, %w, %b {epsilon = 1.0e-05 : f64} : tensor<?x768xf32>
    // After
    %dx = lm.layer_norm_gradient %dy, %x, %w {epsilon = 1.0e-05 : f64} : tensor<?x768xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$gradient, LM_Activation:$input, LM_Vector:$weight, F64Attr:$epsilon);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = "$gradient `,` $input `,` $weight attr-dict `:` type($input)";
  let hasVerifier = 1;
}

def LM_LayerNormWeightGradientOp
    : LM_GradientOp<"layer_norm_weight_gradient",
                    [LM_HostOp, AllTypesMatch<["gradient", "input"]>, LM_VectorOf<"input", "output">]> {
  let summary = "the gradient of the weight of a layer norm";
  let description = [{
    dw[i] = Σₘ dy[m, i] z[m, i], z as in `lm.layer_norm_gradient`.

    ```mlir
    %dw = lm.layer_norm_weight_gradient %dy, %x {epsilon = 1.0e-05 : f64} : tensor<?x768xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$gradient, LM_Activation:$input, F64Attr:$epsilon);
  let results = (outs LM_Vector:$output);
  let assemblyFormat = "$gradient `,` $input attr-dict `:` type($input)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

def LM_AttentionGradientOp
    : LM_GradientOp<"attention_gradient",
                    [LM_HostOp, AllTypesMatch<["gradient", "query", "query_gradient"]>,
                     AllTypesMatch<["key", "value", "key_gradient", "value_gradient"]>]> {
  let summary = "the gradients of query, key and value";
  let description = [{
    Differentiates an `lm.attention` on one sequence from its beginning: its rows are all tokens that there are. For a head h with P = softmax(S), S = scale ·
    q kᵀ where a token sees another (itself, those before it, the newest `window` of them) and P = 0 elsewhere,

        dP = dy vᵀ          dS = P ∘ (dP − rowsum(P ∘ dP))
        dv = Pᵀ dy          dq = scale · dS k          dk = scale · dSᵀ q

    where dk and dv are summed over the heads that read one key. With a `bound` c, S is c tanh(S / c) and dS that times 1 − tanh²(S / c). P is computed again, tile by tile, so that memory grows
    with the tokens and not with their square.

    ```mlir
    // Before
    %y = lm.attention %q, %k, %v, %cache, %batch
           {layer = 0, num_heads = 9, num_kv_heads = 3, head_dim = 64, scale = 1.25e-01}
           : tensor<?x576xf32>, tensor<?x192xf32>, !lm.kv_cache<layers = 30, kv_heads = 3, head_dim = 64>
    // After
    %dq, %dk, %dv = lm.attention_gradient %dy, %q, %k, %v
           {num_heads = 9, num_kv_heads = 3, head_dim = 64, scale = 1.25e-01} : tensor<?x576xf32>, tensor<?x192xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$gradient, LM_Activation:$query, LM_Activation:$key, LM_Activation:$value,
                       ConfinedAttr<I64Attr, [IntPositive]>:$num_heads,
                       ConfinedAttr<I64Attr, [IntPositive]>:$num_kv_heads,
                       ConfinedAttr<I64Attr, [IntPositive]>:$head_dim, F64Attr:$scale,
                       DefaultValuedAttr<ConfinedAttr<I64Attr, [IntNonNegative]>, "0">:$window,
                       DefaultValuedAttr<F64Attr, "0.0">:$bound);
  let results = (outs LM_Activation:$query_gradient, LM_Activation:$key_gradient, LM_Activation:$value_gradient);
  let assemblyFormat = [{
    $gradient `,` $query `,` $key `,` $value attr-dict `:` type($query) `,` type($key)
  }];
  let hasVerifier = 1;
}

def LM_RopeGradientOp : LM_GradientOp<"rope_gradient", [LM_InPlace, AllTypesMatch<["gradient", "output"]>]> {
  let summary = "rotates back";
  let description = [{
    The gradient of what `lm.rope` reads: dy rotated by the negated angles, which is the transpose of a rotation.

    ```mlir
    // Before
    %y = lm.rope %x, %table, %batch {head_dim = 64 : i64} : tensor<?x576xf32>, tensor<8192x32x2xf32>
    // After
    %dx = lm.rope_gradient %dy, %table, %batch {head_dim = 64 : i64} : tensor<?x576xf32>, tensor<8192x32x2xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$gradient, LM_RopeTable:$table, LM_BatchType:$batch,
                       ConfinedAttr<I64Attr, [IntPositive]>:$head_dim);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = "$gradient `,` $table `,` $batch attr-dict `:` type($gradient) `,` type($table)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Activation functions
//===----------------------------------------------------------------------===//

def LM_GluGradientOp
    : LM_GradientOp<"glu_gradient", [LM_RowWise, SameOperandsAndResultType]> {
  let summary = "the gradients of gate and up";
  let description = [{
    With the activation a: dup = dy a(gate), dgate = dy up a'(gate). silu'(x) = s (1 + x (1 − s)) with s = 1 / (1 + exp(−x)); that of
    `gelu_tanh` has `lm.gelu_gradient`.

    ```mlir
    // Before
    %y = lm.glu silu %gate, %up : tensor<?x1536xf32>
    // After
    %dgate, %dup = lm.glu_gradient silu %dy, %gate, %up : tensor<?x1536xf32>
    ```
  }];
  let arguments = (ins LM_GluActivationAttr:$activation, LM_Activation:$gradient, LM_Activation:$gate, LM_Activation:$up);
  let results = (outs LM_Activation:$gate_gradient, LM_Activation:$up_gradient);
  let assemblyFormat = "$activation $gradient `,` $gate `,` $up attr-dict `:` type($gate)";
}

def LM_GeluGradientOp : LM_GradientOp<"gelu_gradient", [LM_RowWise, SameOperandsAndResultType]> {
  let summary = "the gradient of what a GELU reads";
  let description = [{
    dx = dy gelu'(x). With the error function gelu'(x) = Φ(x) + x φ(x), the distribution function and density of the standard
    normal; with the approximation, for s = 1 / (1 + exp(−2u)) and u = √(2/π) (x + 0.044715 x³), gelu'(x) = s + 2 x u' s (1 − s).

    ```mlir
    // Before
    %y = lm.gelu %x approximate tanh : tensor<?x3072xf32>
    // After
    %dx = lm.gelu_gradient %dy, %x approximate tanh : tensor<?x3072xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$gradient, LM_Activation:$input, LM_GeluApproximationAttr:$approximate);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = "$gradient `,` $input `approximate` `` $approximate attr-dict `:` type($output)";
}

def LM_SoftCapGradientOp : LM_GradientOp<"soft_cap_gradient", [LM_RowWise, SameOperandsAndResultType]> {
  let summary = "the gradient of what a soft cap reads";
  let description = [{
    dx = dy (1 − tanh²(x / bound)).

    ```mlir
    // Before
    %y = lm.soft_cap %x {bound = 3.000000e+01 : f64} : tensor<?x256xf32>
    // After
    %dx = lm.soft_cap_gradient %dy, %x {bound = 3.000000e+01 : f64} : tensor<?x256xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$gradient, LM_Activation:$input, F64Attr:$bound);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = "$gradient `,` $input attr-dict `:` type($output)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

def LM_RowsGradientOp
    : LM_GradientOp<"rows_gradient", [LM_HostOp, AllTypesMatch<["gradient", "input", "output"]>]> {
  let summary = "rows put back in their places";
  let description = [{
    The gradient of what `lm.rows` reads: dx[n] = Σ dy[i] over the i whose row is n, for the rows n of x.

    ```mlir
    // Before
    %y = lm.rows %x at %rows : tensor<?x576xf32>, tensor<?xi32>
    // After
    %dx = lm.rows_gradient %dy, %x at %rows : tensor<?x576xf32>, tensor<?xi32>
    ```
  }];
  let arguments = (ins LM_Activation:$gradient, LM_Activation:$input, LM_RowNumbers:$rows);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = "$gradient `,` $input `at` $rows attr-dict `:` type($gradient) `,` type($rows)";
}

//===----------------------------------------------------------------------===//
// Mixtures of experts
//===----------------------------------------------------------------------===//

def LM_RouteGradientOp : LM_GradientOp<"route_gradient", [LM_HostOp, AllTypesMatch<["logits", "output"]>]> {
  let summary = "the gradient of the logits that experts are chosen by";
  let description = [{
    Given the gradients of the weights of the choices that `lm.route` made of these logits, and which these choices are. Who is chosen counts as constant. Without
    `renormalize` weights are parts of the softmax over all experts, and all logits have gradients; else those of the chosen ones alone.

    ```mlir
    // Before
    %order, %offsets, %places, %weights = lm.route %logits {top_k = 8 : i64, renormalize}
      : tensor<?x128xf32> -> tensor<?xi32>, tensor<129xi32>, tensor<?x8xi32>, tensor<?x8xf32>
    // After
    %dlogits = lm.route_gradient %dweights, %logits, %offsets, %places {renormalize}
      : tensor<?x8xf32>, tensor<?x128xf32>, tensor<129xi32>, tensor<?x8xi32>
    ```
  }];
  let arguments = (ins LM_Activation:$gradient, LM_Activation:$logits, LM_ExpertOffsets:$offsets, LM_RowChoices:$places, Optional<LM_Vector>:$factors,
                       UnitAttr:$renormalize, UnitAttr:$sigmoid, DefaultValuedAttr<F64Attr, "1.0">:$scale);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = [{
    $gradient `,` $logits `,` $offsets `,` $places (`factors` `(` $factors^ `:` type($factors) `)`)? attr-dict `:` type($gradient) `,` type($logits) `,`
    type($offsets) `,` type($places)
  }];
  let hasVerifier = 1;
}

def LM_WeighChoicesOp : LM_GradientOp<"weigh_choices", [LM_HostOp, AllTypesMatch<["input", "output"]>]> {
  let summary = "rows of choices times their weights";
  let description = [{
    y[places[m, j]] = weights[m, j] · x[places[m, j]]: the gradient of what `lm.combine` adds up, x being the rows of its result's gradient that the choices are of.

    ```mlir
    // Before
    %y = lm.combine %x, %places, %weights : tensor<?x2048xf32>, tensor<?x8xi32>, tensor<?x8xf32>
    // After
    %rows = lm.rows %dy at %order : tensor<?x2048xf32>, tensor<?xi32>
    %dx = lm.weigh_choices %rows, %places, %weights : tensor<?x2048xf32>, tensor<?x8xi32>, tensor<?x8xf32>
    %dweights = lm.choice_weights_gradient %dy, %x, %places : tensor<?x2048xf32>, tensor<?x8xi32> -> tensor<?x8xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$input, LM_RowChoices:$places, LM_Activation:$weights);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = "$input `,` $places `,` $weights attr-dict `:` type($input) `,` type($places) `,` type($weights)";
  let hasVerifier = 1;
}

def LM_ChoiceWeightsGradientOp : LM_GradientOp<"choice_weights_gradient", [LM_HostOp, AllTypesMatch<["gradient", "input"]>]> {
  let summary = "the gradient of what choices count";
  let description = [{
    dweights[m, j] = ⟨dy[m], x[places[m, j]]⟩, of the weights of an `lm.combine` of x.

    ```mlir
    %dweights = lm.choice_weights_gradient %dy, %x, %places : tensor<?x2048xf32>, tensor<?x8xi32> -> tensor<?x8xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$gradient, LM_Activation:$input, LM_RowChoices:$places);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = "$gradient `,` $input `,` $places attr-dict `:` type($gradient) `,` type($places) `->` type($output)";
  let hasVerifier = 1;
}

def LM_SharedExpertGradientOp
    : LM_GradientOp<"shared_expert_gradient", [LM_HostOp, AllTypesMatch<["gradient", "shared", "shared_gradient"]>,
                                               AllTypesMatch<["gate", "gate_gradient"]>]> {
  let summary = "the gradients of what an expert of all rows adds";
  let description = [{
    The gradients of the two `shared` operands of an `lm.combine`: dshared[m] = σ(gate[m]) dy[m] and dgate[m] = σ'(gate[m]) ⟨dy[m], shared[m]⟩.

    ```mlir
    %ds, %dg = lm.shared_expert_gradient %dy, %s, %gate : tensor<?x2048xf32>, tensor<?x1xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$gradient, LM_Activation:$shared, LM_Activation:$gate);
  let results = (outs LM_Activation:$shared_gradient, LM_Activation:$gate_gradient);
  let assemblyFormat = "$gradient `,` $shared `,` $gate attr-dict `:` type($shared) `,` type($gate)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Convolutions, gated delta nets and tables
//===----------------------------------------------------------------------===//

def LM_Conv1dGradientOp
    : LM_GradientOp<"conv1d_gradient", [AttrSizedOperandSegments, LM_HostOp, AllTypesMatch<["gradient", "output"]>]> {
  let summary = "the gradient of what a convolution reads";
  let description = [{
    dx[t, c] = Σ_i weight[c, i] · dy[t + W − 1 − i, c] over the rows that there are: all tokens of one sequence, from its first on. Behind a convolution with
    `silu`, dy is times its slope at what the convolution of x, and the bias, is.

    ```mlir
    // Before
    %y = lm.conv1d %x, %w, %state, %batch {first = 0 : i64}
           : (tensor<?x1024xf32>, tensor<1024x3xf32>, !lm.recurrent<values = 20480>, !lm.batch) -> tensor<?x1024xf32>
    // After
    %dx = lm.conv1d_gradient %dy, %w : (tensor<?x1024xf32>, tensor<1024x3xf32>) -> tensor<?x1024xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$gradient, LM_Matrix:$weight, Optional<LM_Activation>:$silu_of, Optional<LM_Vector>:$bias);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = [{
    $gradient `,` $weight (`silu_of` `(` $silu_of^ `)`)? (`bias` `(` $bias^ `)`)? attr-dict `:` functional-type(operands, $output)
  }];
  let hasVerifier = 1;
}

def LM_GatedDeltaGradientOp
    : LM_GradientOp<"gated_delta_gradient",
                    [LM_HostOp, AllTypesMatch<["query", "key", "query_gradient", "key_gradient"]>,
                     AllTypesMatch<["gradient", "value", "value_gradient"]>,
                     AllTypesMatch<["decay", "strength", "decay_gradient", "strength_gradient"]>]> {
  let summary = "the gradients of what a gated delta net reads";
  let description = [{
    Differentiates an `lm.gated_delta` on one sequence from its beginning: its rows are all tokens that there are. With G the gradient of a head's state behind a
    token, d its decay, β its strength, S the state before it and u = v − d Sᵀ k, back from the last token to the first:

        G ← G + q ⊗ dy          dq = S' dy, S' being the state behind the token
        dv = β Gᵀ k             dβ = (Gᵀ k) · u        dk = β G u − d S dv
        G ← G − k ⊗ dv          dd = Σ G ∘ S           G ← d G

    and from there through decays, strengths and lengths. Those of a key are summed over the heads that read it. States are computed again, some tokens at a time.

    ```mlir
    // Before
    %y = lm.gated_delta %q, %k, %v, %a, %b, %log_rate, %bias, %state, %batch {key_heads = 1, value_heads = 2, first = 0}
           : (tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x2xf32>, tensor<?x2xf32>, tensor<2xf32>, tensor<2xf32>,
              !lm.recurrent<values = 16>, !lm.batch) -> tensor<?x4xf32>
    // After
    %dq, %dk, %dv, %da, %db = lm.gated_delta_gradient %dy, %q, %k, %v, %a, %b, %log_rate, %bias {key_heads = 1, value_heads = 2}
           : tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x2xf32>, tensor<2xf32>, tensor<2xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$gradient, LM_Activation:$query, LM_Activation:$key, LM_Activation:$value,
                       LM_Activation:$decay, LM_Activation:$strength, LM_Vector:$log_rate, LM_Vector:$bias,
                       ConfinedAttr<I64Attr, [IntPositive]>:$key_heads,
                       ConfinedAttr<I64Attr, [IntPositive]>:$value_heads, UnitAttr:$tiled);
  let results = (outs LM_Activation:$query_gradient, LM_Activation:$key_gradient, LM_Activation:$value_gradient,
                      LM_Activation:$decay_gradient, LM_Activation:$strength_gradient);
  let assemblyFormat = [{
    $gradient `,` $query `,` $key `,` $value `,` $decay `,` $strength `,` $log_rate `,` $bias attr-dict `:` type($query) `,`
    type($value) `,` type($decay) `,` type($log_rate) `,` type($bias)
  }];
  let hasVerifier = 1;
}

def LM_EmbeddingGradientOp : LM_GradientOp<"embedding_gradient", [LM_HostOp]> {
  let summary = "the gradient of a table of embeddings";
  let description = [{
    dtable[t] = Σ dy[m] over the rows m whose token is t, in their order.

    ```mlir
    // Before
    %y = lm.embedding %tokens, %table : tensor<?xi32>, tensor<49152x576xf32> -> tensor<?x576xf32>
    // After
    %dtable = lm.embedding_gradient %dy, %tokens : tensor<?x576xf32>, tensor<?xi32> -> tensor<49152x576xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$gradient, LM_Tokens:$tokens);
  let results = (outs LM_Matrix:$output);
  let assemblyFormat = [{
    $gradient `,` $tokens attr-dict `:` type($gradient) `,` type($tokens) `->` type($output)
  }];
  let hasVerifier = 1;
}

def LM_PositionEmbeddingGradientOp : LM_GradientOp<"position_embedding_gradient", [LM_HostOp]> {
  let summary = "the gradient of a table of positions";
  let description = [{
    dtable[p] = Σ dy[m] over the rows m at position p of their sequences. What `lm.position_embedding` reads besides has the
    gradient dy.

    ```mlir
    // Before
    %y = lm.position_embedding %x, %table, %batch : tensor<?x768xf32>, tensor<1024x768xf32>
    // After
    %dtable = lm.position_embedding_gradient %dy, %batch : tensor<?x768xf32> -> tensor<1024x768xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$gradient, LM_BatchType:$batch);
  let results = (outs LM_Matrix:$output);
  let assemblyFormat = "$gradient `,` $batch attr-dict `:` type($gradient) `->` type($output)";
  let hasVerifier = 1;
}

#endif // EASYQUANT_DIALECT_LM_IR_LMGRADIENTOPS
