//===- LMOps.td - Language model operations ----------------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_LM_IR_LMOPS
#define EASYQUANT_DIALECT_LM_IR_LMOPS

include "easyquant/Dialect/LM/IR/LMGradientOps.td"
include "easyquant/Dialect/LM/IR/LMOpBase.td"

//===----------------------------------------------------------------------===//
// Embeddings
//===----------------------------------------------------------------------===//

def LM_EmbeddingOp : LM_Op<"embedding", [Pure, LM_Differentiable]> {
  let summary = "rows of a table, one a token";
  let description = [{
    y[m] = table[tokens[m]]. Tokens lie in [0, V); the runtime checks them before the program runs. A `sharded` table is a rank's
    share of the vocabulary: rank r has the tokens from r · V on, and rows of others are zeros. A table of f16 or bf16, which
    `equant-materialize-weights` makes of one that the model's file has so, gives the f32 that its values are.

    ```mlir
    %y = lm.embedding %tokens, %table : tensor<?xi32>, tensor<49152x576xf32> -> tensor<?x576xf32>
    ```
  }];
  let arguments = (ins LM_Tokens:$tokens, LM_Table:$table, UnitAttr:$sharded);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = "$tokens `,` $table attr-dict `:` type($tokens) `,` type($table) `->` type($output)";
  let builders = [OpBuilder<(ins "::mlir::Value":$tokens, "::mlir::Value":$table)>];
  let hasVerifier = 1;
}

def LM_PositionEmbeddingOp : LM_RowOp<"position_embedding", [LM_Differentiable, LM_InPlace]> {
  let summary = "adds a learned embedding of each token's position";
  let description = [{
    y[m] = x[m] + table[p], p being the position of row m in its sequence.

    ```mlir
    %y = lm.position_embedding %x, %table, %batch : tensor<?x768xf32>, tensor<1024x768xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$input, LM_Matrix:$table, LM_BatchType:$batch);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = "$input `,` $table `,` $batch attr-dict `:` type($input) `,` type($table)";
  let hasVerifier = 1;
}

def LM_RopeOp : LM_RowOp<"rope", [LM_Differentiable, LM_InPlace]> {
  let summary = "rotary position embedding";
  let description = [{
    Rotates every head (head_dim consecutive columns) of row m by the angles of its position p in its sequence. With a table of
    R/2 pairs a position, dimension i pairs with i + R/2, and table[p, i] = (cos, sin) (Su et al., 2021, in the arrangement of
    Hugging Face):

        y[i]       = x[i] cos − x[i + R/2] sin
        y[i + R/2] = x[i + R/2] cos + x[i] sin

    R is at most head_dim. The dimensions behind the first R pass as they are.

    ```mlir
    %y = lm.rope %x, %table, %batch {head_dim = 64 : i64} : tensor<?x576xf32>, tensor<8192x32x2xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$input, LM_RopeTable:$table, LM_BatchType:$batch,
                       ConfinedAttr<I64Attr, [IntPositive]>:$head_dim);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = "$input `,` $table `,` $batch attr-dict `:` type($input) `,` type($table)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Norms and linear
//===----------------------------------------------------------------------===//

def LM_RmsNormOp : LM_RowOp<"rms_norm", [LM_Differentiable, LM_RowWise, LM_ScaleFoldable, LM_VectorOf<"input", "weight">]> {
  let summary = "root mean square norm of each row";
  let description = [{
    y = x / √(mean(x²) + epsilon) · weight (Zhang and Sennrich, 2019).

    ```mlir
    %y = lm.rms_norm %x, %weight {epsilon = 1.0e-05 : f64} : tensor<?x576xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$input, LM_Vector:$weight, F64Attr:$epsilon);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = "$input `,` $weight attr-dict `:` type($input)";
  let hasVerifier = 1;
}

def LM_HeadRmsNormOp : LM_RowOp<"head_rms_norm", [LM_Differentiable, LM_RowWise, LM_InPlace]> {
  let summary = "root mean square norm of each head of each row";
  let description = [{
    `lm.rms_norm` on every D consecutive columns by themselves, with one weight of D elements for all of them: what Qwen3
    does to the heads of q and k before it rotates them (Henry et al., 2020, with RMSNorm). Without a weight, which then counts as
    ones, `head_dim` is D: what Gemma 4 does to the heads of v.

    ```mlir
    %y = lm.head_rms_norm %x, %weight {epsilon = 1.0e-06 : f64} : tensor<?x2048xf32>, tensor<128xf32>
    %z = lm.head_rms_norm %x {epsilon = 1.0e-06 : f64, head_dim = 128 : i64} : tensor<?x2048xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$input, Optional<LM_Vector>:$weight, F64Attr:$epsilon,
                       OptionalAttr<ConfinedAttr<I64Attr, [IntPositive]>>:$head_dim);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = "$input (`,` $weight^)? attr-dict `:` type($input) (`,` type($weight)^)?";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// D.
    int64_t columnsOfHead();
  }];
}

def LM_LayerNormOp
    : LM_RowOp<"layer_norm",
               [LM_Differentiable, LM_RowWise, LM_ScaleFoldable, LM_VectorOf<"input", "weight">,
                LM_VectorOf<"input", "bias">]> {
  let summary = "mean and variance norm of each row";
  let description = [{
    y = (x − mean(x)) / √(var(x) + epsilon) · weight + bias, the variance being that of the population
    (Ba et al., 2016).

    ```mlir
    %y = lm.layer_norm %x, %weight, %bias {epsilon = 1.0e-05 : f64} : tensor<?x768xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$input, LM_Vector:$weight, LM_Vector:$bias, F64Attr:$epsilon);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = "$input `,` $weight `,` $bias attr-dict `:` type($input)";
  let hasVerifier = 1;
}

def LM_LinearOp : LM_Op<"linear", [AttrSizedOperandSegments, LM_Differentiable, Pure, LM_RowWise, LM_ScaleFoldable]> {
  let summary = "y = x Wᵀ + b";
  let description = [{
    The weight is N × K (out × in features), whatever the checkpoint's storage. `site` is the module's name in the
    checkpoint, by which patterns, reports and error messages speak of it. In a quantized model a site is what has a
    scheme.

    With `experts` there are E linears in one: the weight has the N × K of each, one below the other, and rows offsets[e] to
    offsets[e + 1] of x, which is all of them, meet those of expert e (`lm.route`). The site is that of all experts.

    ```mlir
    %y = lm.linear %x, %w {site = "model.layers.0.self_attn.q_proj"}
           : (tensor<?x576xf32>, tensor<576x576xf32>) -> tensor<?x576xf32>
    %z = lm.linear %x, %w bias(%b) {site = "h.0.attn.c_attn"}
           : (tensor<?x768xf32>, tensor<2304x768xf32>, tensor<2304xf32>) -> tensor<?x2304xf32>
    %u = lm.linear %rows, %all experts(%offsets) {site = "model.layers.0.mlp.experts.up_proj"}
           : (tensor<?x2048xf32>, tensor<98304x2048xf32>, tensor<129xi32>) -> tensor<?x768xf32>
    ```
  }];
  let arguments = (ins LM_FloatActivation:$input, LM_Matrix:$weight, Optional<LM_Vector>:$bias,
                       Optional<LM_ExpertOffsets>:$experts, StrAttr:$site);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = [{
    $input `,` $weight (`bias` `(` $bias^ `)`)? (`experts` `(` $experts^ `)`)? attr-dict `:`
    functional-type(operands, $output)
  }];
  let builders = [OpBuilder<(ins "::mlir::Value":$input, "::mlir::Value":$weight, "::mlir::Value":$bias,
                                 "::llvm::StringRef":$site, CArg<"::mlir::Value", "{}">:$experts)>];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

def LM_AttentionOp
    : LM_Op<"attention", [LM_Differentiable, LM_ScaleFoldable, AllTypesMatch<["query", "output"]>,
                         AllTypesMatch<["key", "value"]>]> {
  let summary = "appends to the cache and attends causally";
  let description = [{
    Appends each row of `key` and `value` to layer `layer` of its sequence's cache, at its position. Then row m of the
    result, at position p of its sequence, is for every head h the softmax over the tokens t ≤ p of that sequence of
    scale · ⟨q[m, h], k[t, h']⟩ applied to v[t, h'], h' = ⌊h · num_kv_heads / num_heads⌋ (Vaswani et al., 2017; Ainslie et
    al., 2023). With `window` W > 0 only the newest W of those tokens are seen. With `bound` c > 0 a product s = scale · ⟨q, k⟩ is
    c · tanh(s / c) before the softmax (Gemma 2). With `sink_logits` each softmax of head h has one product more, sink_logits[h],
    which takes its part of the weights and has no value (Xiao et al., 2024; gpt-oss).

    With `appended` another attention before it has appended the same rows of `key` and `value` to the same layer, and nothing is
    appended: so the last layers of Gemma 4 read what a layer before them made.

    It reads and writes the cache, so nothing may drop it or move another op that uses the cache across it.

    ```mlir
    %y = lm.attention %q, %k, %v, %cache, %batch
           {layer = 0, num_heads = 9, num_kv_heads = 3, head_dim = 64, scale = 1.25e-01}
           : tensor<?x576xf32>, tensor<?x192xf32>, !lm.kv_cache<layers = 30, kv_heads = 3, head_dim = 64>
    %z = lm.attention %q, %k, %v, %cache, %batch sink_logits(%s : tensor<9xf32>) {…} : …
    ```
  }];
  let arguments = (ins LM_Activation:$query, LM_Activation:$key, LM_Activation:$value,
                       Arg<LM_KVCacheType, "", [MemRead, MemWrite]>:$cache, LM_BatchType:$batch,
                       Optional<LM_Vector>:$sink_logits,
                       ConfinedAttr<I64Attr, [IntNonNegative]>:$layer,
                       ConfinedAttr<I64Attr, [IntPositive]>:$num_heads,
                       ConfinedAttr<I64Attr, [IntPositive]>:$num_kv_heads,
                       ConfinedAttr<I64Attr, [IntPositive]>:$head_dim, F64Attr:$scale,
                       DefaultValuedAttr<ConfinedAttr<I64Attr, [IntNonNegative]>, "0">:$window,
                       DefaultValuedAttr<F64Attr, "0.0">:$bound, UnitAttr:$appended);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = [{
    $query `,` $key `,` $value `,` $cache `,` $batch (`sink_logits` `(` $sink_logits^ `:` type($sink_logits) `)`)? attr-dict
    `:` type($query) `,` type($key) `,` qualified(type($cache))
  }];
  let hasVerifier = 1;
}

def LM_CachedAttentionOp : LM_Op<"cached_attention", [AllTypesMatch<["query", "output"]>]> {
  let summary = "attends to what the cache holds";
  let description = [{
    Row m of the result, at position p of its sequence, is what `lm.attention` makes of q[m] and the tokens t < p of layer `layer` of
    the cache: nothing is appended, and no row sees itself or another row of the step. With `window` W > 1 only the tokens t > p − W
    are seen. So the assistant of Gemma 4 reads the keys and values of the model that it drafts for. Each sequence must hold a token.

    It reads the cache, so nothing may move an op that writes the cache across it.

    ```mlir
    %y = lm.cached_attention %q, %cache, %batch
           {layer = 14, num_heads = 4, num_kv_heads = 1, head_dim = 256, scale = 1.0, window = 512}
           : tensor<?x1024xf32>, !lm.kv_cache<layers = 15, kv_heads = 1, head_dim = 256>
    ```
  }];
  let arguments = (ins LM_Activation:$query, Arg<LM_KVCacheType, "", [MemRead]>:$cache, LM_BatchType:$batch,
                       ConfinedAttr<I64Attr, [IntNonNegative]>:$layer,
                       ConfinedAttr<I64Attr, [IntPositive]>:$num_heads,
                       ConfinedAttr<I64Attr, [IntPositive]>:$num_kv_heads,
                       ConfinedAttr<I64Attr, [IntPositive]>:$head_dim, F64Attr:$scale,
                       DefaultValuedAttr<ConfinedAttr<I64Attr, [IntNonNegative]>, "0">:$window);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = "$query `,` $cache `,` $batch attr-dict `:` type($query) `,` qualified(type($cache))";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Layers with a recurrent state
//===----------------------------------------------------------------------===//

def LM_Conv1dOp : LM_Op<"conv1d", [LM_Differentiable]> {
  let summary = "causal depthwise convolution along each sequence";
  let description = [{
    For every column c, with W weights: y[t, c] = Σ_i weight[c, i] · x[t − W + 1 + i, c] + bias[c], t being a token of a sequence, and
    x of tokens before its first 0. With `silu` the result is y / (1 + exp(−y)). What the rows of a step do not have of these, the W − 1 tokens before them, are (W − 1) · C numbers
    of the sequence's recurrent state from number `first` on, in their order. The step leaves there the last W − 1 that it has seen.

    It reads and writes the state, so nothing may drop it or move another op that uses the state across it. Sums are taken in
    the order of i, so that the bits do not depend on where a text is cut.

    ```mlir
    %y = lm.conv1d %x, %w, %state, %batch {first = 0 : i64}
           : (tensor<?x1024xf32>, tensor<1024x3xf32>, !lm.recurrent<values = 20480>, !lm.batch) -> tensor<?x1024xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$input, LM_Matrix:$weight, Optional<LM_Vector>:$bias,
                       Arg<LM_RecurrentType, "", [MemRead, MemWrite]>:$state, LM_BatchType:$batch,
                       ConfinedAttr<I64Attr, [IntNonNegative]>:$first, UnitAttr:$silu);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = [{
    $input `,` $weight (`bias` `(` $bias^ `)`)? `,` $state `,` $batch attr-dict `:` functional-type(operands, $output)
  }];
  let hasVerifier = 1;
}

def LM_GatedDeltaOp : LM_Op<"gated_delta", [LM_Differentiable]> {
  let summary = "a gated delta net's recurrence along each sequence";
  let description = [{
    Each of `value_heads` heads has a state S of D_k x D_v numbers, zeros before a sequence's first token. With the head's columns v of
    `value`, those q and k of one of `key_heads` heads of `query` and `key`, scaled to length 1 (√(Σ x² + 1e-6) being the length), and
    the head's columns a of `decay` and b of `strength`, token by token (Yang et al., 2025):

        S ← exp(−exp(log_rate) · log(1 + exp(a + bias))) · S
        S ← S + k ⊗ σ(b) (v − Sᵀ k)
        y = Sᵀ q / √D_k

    Value head h has key head ⌊h · key_heads / value_heads⌋, where heads are `tiled` h mod key_heads. The states are value_heads · D_k ·
    D_v numbers of the sequence's recurrent state from number `first` on, head by head, rows of D_v. As `lm.conv1d`, it reads and writes
    the state, and its bits do not depend on where a text is cut.

    ```mlir
    %y = lm.gated_delta %q, %k, %v, %a, %b, %log_rate, %bias, %state, %batch {key_heads = 16, value_heads = 32, first = 0}
           : (tensor<?x2048xf32>, tensor<?x2048xf32>, tensor<?x4096xf32>, tensor<?x32xf32>, tensor<?x32xf32>, tensor<32xf32>, tensor<32xf32>,
              !lm.recurrent<values = 524288>, !lm.batch) -> tensor<?x4096xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$query, LM_Activation:$key, LM_Activation:$value, LM_Activation:$decay,
                       LM_Activation:$strength, LM_Vector:$log_rate, LM_Vector:$bias,
                       Arg<LM_RecurrentType, "", [MemRead, MemWrite]>:$state, LM_BatchType:$batch,
                       ConfinedAttr<I64Attr, [IntPositive]>:$key_heads,
                       ConfinedAttr<I64Attr, [IntPositive]>:$value_heads,
                       ConfinedAttr<I64Attr, [IntNonNegative]>:$first, UnitAttr:$tiled);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = [{
    $query `,` $key `,` $value `,` $decay `,` $strength `,` $log_rate `,` $bias `,` $state `,` $batch attr-dict `:`
    functional-type(operands, $output)
  }];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Activations and residuals
//===----------------------------------------------------------------------===//

def LM_GluOp : LM_Op<"glu", [LM_Differentiable, Pure, LM_RowWise, LM_ScaleFoldable, SameOperandsAndResultType]> {
  let summary = "activation(gate) · up";
  let description = [{
    The gated linear units SwiGLU (`silu`), GeGLU (`gelu_tanh`) and bilinear (`none`) behind their linears (Shazeer, 2020), and the
    sigmoid of the first ones (`sigmoid`; Dauphin et al., 2017), by which attention may be gated. With `clamped` it is
    (up' + 1) · gate' σ(1.702 gate'), gate' being at most 7, and up' from −7 to 7 (gpt-oss).

    ```mlir
    %y = lm.glu silu %gate, %up : tensor<?x1536xf32>
    ```
  }];
  let arguments = (ins LM_GluActivationAttr:$activation, LM_Activation:$gate, LM_Activation:$up);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = "$activation $gate `,` $up attr-dict `:` type($output)";
}

def LM_GeluOp : LM_Op<"gelu", [LM_Differentiable, Pure, LM_RowWise, SameOperandsAndResultType]> {
  let summary = "Gaussian error linear unit";
  let description = [{
    With the error function (`none`) or the approximation that GPT-2 was trained with (`tanh`); Hendrycks and Gimpel, 2016.

    ```mlir
    %y = lm.gelu %x approximate tanh : tensor<?x3072xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$input, LM_GeluApproximationAttr:$approximate);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = "$input `approximate` `` $approximate attr-dict `:` type($output)";
}

def LM_MultiplyOp : LM_RowOp<"multiply", [LM_Differentiable, LM_RowWise]> {
  let summary = "times a number";
  let description = [{
    y = factor · x, the factor in f32: what Gemma does to embeddings, and Granite to embeddings, to what a block adds to the residual
    stream, and to logits.

    ```mlir
    %y = lm.multiply %x {factor = 2.400000e+01 : f64} : tensor<?x576xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$input, F64Attr:$factor);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = "$input attr-dict `:` type($input)";
  let hasVerifier = 1;
}

def LM_SoftCapOp : LM_RowOp<"soft_cap", [LM_Differentiable, LM_RowWise]> {
  let summary = "values held softly within a bound";
  let description = [{
    y = bound · tanh(x / bound): what Gemma 2 and 4 do to logits (Bello et al., 2016).

    ```mlir
    %y = lm.soft_cap %x {bound = 3.000000e+01 : f64} : tensor<?x256000xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$input, F64Attr:$bound);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = "$input attr-dict `:` type($input)";
  let hasVerifier = 1;
}

def LM_MaskClustersOp : LM_Op<"mask_clusters", [Pure, LM_InPlace, AllTypesMatch<["logits", "output"]>]> {
  let summary = "logits of the tokens in chosen clusters";
  let description = [{
    Each row chooses the clusters of tokens with its `top_k` greatest distinct scores: equal scores count as one. The
    logits of tokens in them stay, those of others become the least f32. clusters[v] is the number of the cluster of token v, a
    whole number below the number of scores. So the small assistants of Gemma 4 choose among some tokens alone.

    ```mlir
    %y = lm.mask_clusters %logits, %scores, %clusters {top_k = 32 : i64}
      : tensor<?x262144xf32>, tensor<?x2048xf32>, tensor<262144xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$logits, LM_Activation:$scores, LM_Vector:$clusters,
                       ConfinedAttr<I64Attr, [IntPositive]>:$top_k);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = "$logits `,` $scores `,` $clusters attr-dict `:` type($logits) `,` type($scores) `,` type($clusters)";
  let hasVerifier = 1;
}

def LM_AddOp : LM_Op<"add", [LM_Differentiable, Pure, LM_RowWise, Commutative, SameOperandsAndResultType]> {
  let summary = "the residual connection";
  let description = [{
    ```mlir
    %y = lm.add %x, %attended : tensor<?x576xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$lhs, LM_Activation:$rhs);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($output)";
}

//===----------------------------------------------------------------------===//
// Parts
//===----------------------------------------------------------------------===//

def LM_SplitOp : LM_Op<"split", [LM_Differentiable, Pure, LM_RowWise, LM_View]> {
  let summary = "columns apart, left to right";
  let description = [{
    The widths of the results add up to that of the operand. Takes a fused q, k, v or gate, up apart.

    ```mlir
    %q, %k, %v = lm.split %qkv : tensor<?x960xf32> -> tensor<?x576xf32>, tensor<?x192xf32>, tensor<?x192xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$input);
  let results = (outs Variadic<LM_Activation>:$outputs);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($outputs)";
  let builders = [OpBuilder<(ins "::mlir::Value":$input, "::llvm::ArrayRef<int64_t>":$widths)>];
  let hasVerifier = 1;
  let hasFolder = 1;
  let hasCanonicalizeMethod = 1;
}

def LM_ConcatOp : LM_Op<"concat", [Pure, LM_RowWise]> {
  let summary = "columns side by side, left to right";
  let description = [{
    The inverse of `lm.split`, and so its gradient. A head that drafts reads an embedding beside a hidden state.

    ```mlir
    %y = lm.concat %e, %h : tensor<?x576xf32>, tensor<?x576xf32> -> tensor<?x1152xf32>
    ```
  }];
  let arguments = (ins Variadic<LM_Activation>:$inputs);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = "$inputs attr-dict `:` type($inputs) `->` type($output)";
  let hasVerifier = 1;
}

def LM_RowsOp : LM_RowOp<"rows", [LM_Differentiable, LM_ScaleFoldable]> {
  let summary = "some of the rows";
  let description = [{
    y[i] = x[rows[i]]. Every number is one of a row of x; the runtime sees to it. It spares the output head all rows but
    those whose logits are asked for.

    ```mlir
    %y = lm.rows %x at %rows : tensor<?x576xf32>, tensor<?xi32>
    ```
  }];
  let arguments = (ins LM_Activation:$input, LM_RowNumbers:$rows);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = "$input `at` $rows attr-dict `:` type($input) `,` type($rows)";
}

//===----------------------------------------------------------------------===//
// Mixtures of experts
//===----------------------------------------------------------------------===//

def LM_RouteOp : LM_Op<"route", [AttrSizedOperandSegments, LM_Differentiable, Pure]> {
  let summary = "which experts compute which rows";
  let description = [{
    Each row chooses the `top_k` experts with its greatest logits, of equal ones those that come first. The weight of a choice
    is its part of the softmax over all experts, or with `renormalize` over the chosen ones alone (Shazeer et al., 2017; Jiang
    et al., 2024).

    With `sigmoid` an expert's score is σ(logit), and experts are chosen by the sum of score and `bias`, if there is one, which
    only chooses. The weight of a choice is its score, with `renormalize` divided by the sum of those of the row, and 1e-20
    (DeepSeek-AI, 2024). In all of them weights are then multiplied by `scale`, and by the expert's number among `factors`.

    The choices of all rows, sorted by expert and then by row, are rows of their own, top_k times as many: `order` says of which
    row each is, `offsets` where those of each expert begin and the last ones end, `places` where the choices of a row lie, and
    `weights` what they count, both from the greatest logit on. `lm.rows` gathers what experts read, `lm.linear` computes with
    all of them, and `lm.combine` adds up.

    ```mlir
    %order, %offsets, %places, %weights = lm.route %logits {top_k = 8 : i64, renormalize}
      : tensor<?x128xf32> -> tensor<?xi32>, tensor<129xi32>, tensor<?x8xi32>, tensor<?x8xf32>
    %order, %offsets, %places, %weights = lm.route %logits bias(%b : tensor<128xf32>)
      {top_k = 8 : i64, sigmoid, renormalize, scale = 2.5 : f64}
      : tensor<?x128xf32> -> tensor<?xi32>, tensor<129xi32>, tensor<?x8xi32>, tensor<?x8xf32>
    %order, %offsets, %places, %weights = lm.route %logits factors(%f : tensor<128xf32>) {top_k = 8 : i64, renormalize}
      : tensor<?x128xf32> -> tensor<?xi32>, tensor<129xi32>, tensor<?x8xi32>, tensor<?x8xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$logits, Optional<LM_Vector>:$bias, Optional<LM_Vector>:$factors,
                       ConfinedAttr<I64Attr, [IntPositive]>:$top_k, UnitAttr:$renormalize, UnitAttr:$sigmoid, DefaultValuedAttr<F64Attr, "1.0">:$scale);
  let results = (outs LM_RowNumbers:$order, LM_ExpertOffsets:$offsets, LM_RowChoices:$places, LM_Activation:$weights);
  let assemblyFormat = [{
    $logits (`bias` `(` $bias^ `:` type($bias) `)`)? (`factors` `(` $factors^ `:` type($factors) `)`)? attr-dict `:` type($logits) `->` type($order) `,` type($offsets) `,`
    type($places) `,` type($weights)
  }];
  let builders = [OpBuilder<(ins "::mlir::Value":$logits, "int64_t":$topK, "bool":$renormalize,
                                 CArg<"::mlir::Value", "{}">:$bias, CArg<"::mlir::Value", "{}">:$factors,
                                 CArg<"bool", "false">:$sigmoid, CArg<"double", "1.0">:$scale)>];
  let hasVerifier = 1;
}

def LM_CombineOp : LM_Op<"combine", [LM_Differentiable, Pure, AllTypesMatch<["input", "output"]>]> {
  let summary = "adds up what the experts of a row give";
  let description = [{
    y[m] = Σ_j weights[m, j] · x[places[m, j]], in the order of j: x has a row for each choice that `lm.route` made. `shared` is
    what an expert gives that computes all rows, and the gate before it, one number a row: σ(gate[m]) · shared[m] is added
    (Qwen2-MoE).

    ```mlir
    %y = lm.combine %x, %places, %weights : tensor<?x2048xf32>, tensor<?x8xi32>, tensor<?x8xf32>
    %z = lm.combine %x, %places, %weights shared(%s, %gate : tensor<?x2048xf32>, tensor<?x1xf32>)
           : tensor<?x2048xf32>, tensor<?x8xi32>, tensor<?x8xf32>
    ```
  }];
  let arguments = (ins LM_Activation:$input, LM_RowChoices:$places, LM_Activation:$weights, Variadic<LM_Activation>:$shared);
  let results = (outs LM_Activation:$output);
  let assemblyFormat = [{
    $input `,` $places `,` $weights (`shared` `(` $shared^ `:` type($shared) `)`)? attr-dict `:` type($input) `,`
    type($places) `,` type($weights)
  }];
  let hasVerifier = 1;
}

#endif // EASYQUANT_DIALECT_LM_IR_LMOPS
