// RUN: easyquant-opt %s -split-input-file -verify-diagnostics

// expected-error @below {{layers, kv_heads and head_dim must be positive, found 0, 3 and 64}}
func.func private @cache(!lm.kv_cache<layers = 0, kv_heads = 3, head_dim = 64>)

// -----

// expected-error @below {{window must be left out, one number for all of 3 layers, or a list of one for each that are not all alike}}
func.func private @windows(!lm.kv_cache<layers = 3, kv_heads = 3, head_dim = 64, window = [8, 0]>)

// -----

// expected-error @below {{window must be 1 to 2147483647 tokens, or 0 in some layers; leave it out where no layer has one}}
func.func private @windows(!lm.kv_cache<layers = 3, kv_heads = 3, head_dim = 64, window = 0>)

// -----

func.func @static_rows(%x: tensor<4x8xf32>) {
  // expected-error @below {{must be activations tensor<?xCxf32>, a row per token, but got 'tensor<4x8xf32>'}}
  lm.gelu %x approximate tanh : tensor<4x8xf32>
  return
}

// -----

func.func @table_type(%tokens: tensor<?xi32>, %table: tensor<10x8xf64>) {
  // expected-error @below {{operand #1 must be matrix tensor<NxKxf32> or matrix tensor<NxKxf16> or tensor<NxKxbf16>}}
  lm.embedding %tokens, %table : tensor<?xi32>, tensor<10x8xf64> -> tensor<?x8xf32>
  return
}

// -----

// expected-error @below {{lm.file_type must be f16 or bf16, found f64}}
ml_program.global private @t(#ml_program.extern : tensor<8x4xf32>) : tensor<8x4xf32> {lm.file_type = f64}

// -----

// expected-error @below {{lm.file_type belongs to an ml_program.global of a static shape of f32}}
func.func private @f() attributes {lm.file_type = bf16}

// -----

func.func @table_width(%tokens: tensor<?xi32>, %table: tensor<10x8xf32>) {
  // expected-error @below {{result has 9 columns, but the table has 8}}
  lm.embedding %tokens, %table : tensor<?xi32>, tensor<10x8xf32> -> tensor<?x9xf32>
  return
}

// -----

func.func @position_width(%x: tensor<?x8xf32>, %table: tensor<10x4xf32>, %batch: !lm.batch) {
  // expected-error @below {{input has 8 columns, but the table has 4}}
  lm.position_embedding %x, %table, %batch : tensor<?x8xf32>, tensor<10x4xf32>
  return
}

// -----

func.func @rope_odd(%x: tensor<?x9xf32>, %table: tensor<10x1x2xf32>, %batch: !lm.batch) {
  // expected-error @below {{head_dim must be even, since dimensions turn in pairs; found 3}}
  lm.rope %x, %table, %batch {head_dim = 3} : tensor<?x9xf32>, tensor<10x1x2xf32>
  return
}

// -----

func.func @rope_heads(%x: tensor<?x10xf32>, %table: tensor<10x2x2xf32>, %batch: !lm.batch) {
  // expected-error @below {{input has 10 columns, which is no multiple of head_dim 4}}
  lm.rope %x, %table, %batch {head_dim = 4} : tensor<?x10xf32>, tensor<10x2x2xf32>
  return
}

// -----

func.func @rope_table(%x: tensor<?x8xf32>, %table: tensor<10x4x2xf32>, %batch: !lm.batch) {
  // expected-error @below {{table must be tensor<PxHx2xf32>, H from 1 to 2 for head_dim 4, found 'tensor<10x4x2xf32>'}}
  lm.rope %x, %table, %batch {head_dim = 4} : tensor<?x8xf32>, tensor<10x4x2xf32>
  return
}

// -----

func.func @norm_width(%x: tensor<?x8xf32>, %w: tensor<9xf32>) {
  // expected-error @below {{'weight' must have one element a column of 'input'}}
  "lm.rms_norm"(%x, %w) {epsilon = 1.0e-5 : f64} : (tensor<?x8xf32>, tensor<9xf32>) -> tensor<?x8xf32>
  return
}

// -----

func.func @norm_epsilon(%x: tensor<?x8xf32>, %w: tensor<8xf32>) {
  // expected-error @below {{epsilon must be finite and not negative, found -1}}
  lm.layer_norm %x, %w, %w {epsilon = -1.0 : f64} : tensor<?x8xf32>
  return
}

// -----

func.func @linear_k(%x: tensor<?x8xf32>, %w: tensor<4x9xf32>) {
  // expected-error @below {{input has 8 columns, but the weight of 'a.b' takes 9}}
  lm.linear %x, %w {site = "a.b"} : (tensor<?x8xf32>, tensor<4x9xf32>) -> tensor<?x4xf32>
  return
}

// -----

func.func @linear_n(%x: tensor<?x8xf32>, %w: tensor<4x8xf32>) {
  // expected-error @below {{result has 5 columns, but the weight of 'a.b' gives 4}}
  lm.linear %x, %w {site = "a.b"} : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x5xf32>
  return
}

// -----

func.func @linear_bias(%x: tensor<?x8xf32>, %w: tensor<4x8xf32>, %b: tensor<5xf32>) {
  // expected-error @below {{bias has 5 elements, but the weight of 'a.b' gives 4}}
  lm.linear %x, %w bias(%b) {site = "a.b"} : (tensor<?x8xf32>, tensor<4x8xf32>, tensor<5xf32>) -> tensor<?x4xf32>
  return
}

// -----

func.func @linear_site(%x: tensor<?x8xf32>, %w: tensor<4x8xf32>) {
  // expected-error @below {{site must name the linear}}
  lm.linear %x, %w {site = ""} : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
  return
}

// -----

func.func @split_widths(%x: tensor<?x8xf32>) {
  // expected-error @below {{widths of the results do not add up to the 8 columns of the input}}
  lm.split %x : tensor<?x8xf32> -> tensor<?x3xf32>, tensor<?x4xf32>
  return
}

// -----

func.func @split_nothing(%x: tensor<?x8xf32>) {
  // expected-error @below {{must have a result}}
  "lm.split"(%x) : (tensor<?x8xf32>) -> ()
  return
}

// -----

func.func @head_norm_width(%x: tensor<?x12xf32>, %w: tensor<5xf32>) {
  // expected-error @below {{input has 12 columns, which are no heads of 5, the elements of the weight}}
  lm.head_rms_norm %x, %w {epsilon = 1.0e-6 : f64} : tensor<?x12xf32>, tensor<5xf32>
  return
}

// -----

func.func @head_norm_epsilon(%x: tensor<?x12xf32>, %w: tensor<4xf32>) {
  // expected-error @below {{epsilon must be finite and not negative}}
  lm.head_rms_norm %x, %w {epsilon = -1.0 : f64} : tensor<?x12xf32>, tensor<4xf32>
  return
}

// -----

func.func @head_norm_of_nothing(%x: tensor<?x12xf32>) {
  // expected-error @below {{expected a weight or head_dim, and not both}}
  lm.head_rms_norm %x {epsilon = 1.0e-6 : f64} : tensor<?x12xf32>
  return
}

// -----

func.func @head_norm_of_both(%x: tensor<?x12xf32>, %w: tensor<4xf32>) {
  // expected-error @below {{expected a weight or head_dim, and not both}}
  lm.head_rms_norm %x, %w {epsilon = 1.0e-6 : f64, head_dim = 4 : i64} : tensor<?x12xf32>, tensor<4xf32>
  return
}

// -----

func.func @plain_head_norm_width(%x: tensor<?x12xf32>) {
  // expected-error @below {{input has 12 columns, which are no heads of head_dim 5}}
  lm.head_rms_norm %x {epsilon = 1.0e-6 : f64, head_dim = 5 : i64} : tensor<?x12xf32>
  return
}

// -----

// expected-error @below {{head_dim must be one number for all of 3 layers, or a list of one for each that are not all alike}}
func.func private @short_list(!lm.kv_cache<layers = 3, kv_heads = 3, head_dim = [64, 32]>)

// -----

// expected-error @below {{kv_heads must be one number for all of 2 layers, or a list of one for each that are not all alike}}
func.func private @alike(!lm.kv_cache<layers = 2, kv_heads = [3, 3], head_dim = 64>)

// -----

// expected-error @below {{layers, kv_heads and head_dim must be positive, found 2, 3 and 0}}
func.func private @second(!lm.kv_cache<layers = 2, kv_heads = 3, head_dim = [64, 0]>)

// -----

func.func @factor(%x: tensor<?x12xf32>) {
  // expected-error @below {{factor must be a positive number that f32 holds, found}}
  lm.multiply %x {factor = 1.0e300 : f64} : tensor<?x12xf32>
  return
}

// -----

func.func @soft_cap(%x: tensor<?x12xf32>) {
  // expected-error @below {{bound must be a positive number that f32 holds, found 0}}
  lm.soft_cap %x {bound = 0.0 : f64} : tensor<?x12xf32>
  return
}

// -----

func.func @clusters_of_other_tokens(%x: tensor<?x12xf32>, %s: tensor<?x4xf32>, %c: tensor<11xf32>) {
  // expected-error @below {{clusters have 11 numbers for 12 columns of logits}}
  lm.mask_clusters %x, %s, %c {top_k = 2 : i64} : tensor<?x12xf32>, tensor<?x4xf32>, tensor<11xf32>
  return
}

// -----

func.func @more_clusters_than_there_are(%x: tensor<?x12xf32>, %s: tensor<?x4xf32>, %c: tensor<12xf32>) {
  // expected-error @below {{chooses 5 of 4 clusters}}
  lm.mask_clusters %x, %s, %c {top_k = 5 : i64} : tensor<?x12xf32>, tensor<?x4xf32>, tensor<12xf32>
  return
}

// -----

// expected-error @below {{values must be 1 to 4294967296, found 0}}
func.func private @recurrent(!lm.recurrent<values = 0>)

// -----

func.func @convolution_of_other_columns(%x: tensor<?x8xf32>, %w: tensor<9x3xf32>, %state: !lm.recurrent<values = 32>, %batch: !lm.batch) {
  // expected-error @below {{input has 8 columns, expected weight and bias to have as many rows}}
  lm.conv1d %x, %w, %state, %batch {first = 0} : (tensor<?x8xf32>, tensor<9x3xf32>, !lm.recurrent<values = 32>, !lm.batch) -> tensor<?x8xf32>
  return
}

// -----

func.func @convolution_of_one_token(%x: tensor<?x8xf32>, %w: tensor<8x1xf32>, %state: !lm.recurrent<values = 32>, %batch: !lm.batch) {
  // expected-error @below {{weight must have 2 to 64 columns, found 1}}
  lm.conv1d %x, %w, %state, %batch {first = 0} : (tensor<?x8xf32>, tensor<8x1xf32>, !lm.recurrent<values = 32>, !lm.batch) -> tensor<?x8xf32>
  return
}

// -----

func.func @convolution_behind_the_state(%x: tensor<?x8xf32>, %w: tensor<8x3xf32>, %state: !lm.recurrent<values = 32>, %batch: !lm.batch) {
  // expected-error @below {{has 2 x 8 numbers of the state from 17 on, which has only 32}}
  lm.conv1d %x, %w, %state, %batch {first = 17} : (tensor<?x8xf32>, tensor<8x3xf32>, !lm.recurrent<values = 32>, !lm.batch) -> tensor<?x8xf32>
  return
}

// -----

func.func @convolution_far_behind_the_state(%x: tensor<?x8xf32>, %w: tensor<8x3xf32>, %state: !lm.recurrent<values = 32>, %batch: !lm.batch) {
  // expected-error @below {{numbers of the state from 9223372036854775807 on}}
  lm.conv1d %x, %w, %state, %batch {first = 9223372036854775807} : (tensor<?x8xf32>, tensor<8x3xf32>, !lm.recurrent<values = 32>, !lm.batch) -> tensor<?x8xf32>
  return
}

// -----

func.func @heads_of_keys(%q: tensor<?x8xf32>, %k: tensor<?x8xf32>, %v: tensor<?x12xf32>, %a: tensor<?x4xf32>, %b: tensor<?x4xf32>,
                       %rate: tensor<4xf32>, %bias: tensor<4xf32>, %state: !lm.recurrent<values = 60>, %batch: !lm.batch) {
  // expected-error @below {{has key and value of 8 and 12 columns; expected 3 and 4 heads, these a multiple of those}}
  lm.gated_delta %q, %k, %v, %a, %b, %rate, %bias, %state, %batch {key_heads = 3, value_heads = 4, first = 0}
    : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x12xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<4xf32>, tensor<4xf32>, !lm.recurrent<values = 60>, !lm.batch) -> tensor<?x12xf32>
  return
}

// -----

func.func @decays(%q: tensor<?x8xf32>, %k: tensor<?x8xf32>, %v: tensor<?x12xf32>, %a: tensor<?x5xf32>, %b: tensor<?x4xf32>,
                       %rate: tensor<4xf32>, %bias: tensor<4xf32>, %state: !lm.recurrent<values = 60>, %batch: !lm.batch) {
  // expected-error @below {{one number for each of 4 value heads}}
  lm.gated_delta %q, %k, %v, %a, %b, %rate, %bias, %state, %batch {key_heads = 2, value_heads = 4, first = 0}
    : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x12xf32>, tensor<?x5xf32>, tensor<?x4xf32>, tensor<4xf32>, tensor<4xf32>, !lm.recurrent<values = 60>, !lm.batch) -> tensor<?x12xf32>
  return
}

// -----

func.func @delta_behind_the_state(%q: tensor<?x8xf32>, %k: tensor<?x8xf32>, %v: tensor<?x12xf32>, %a: tensor<?x4xf32>, %b: tensor<?x4xf32>,
                       %rate: tensor<4xf32>, %bias: tensor<4xf32>, %state: !lm.recurrent<values = 60>, %batch: !lm.batch) {
  // expected-error @below {{has 4 x 12 numbers of the state from 13 on, which has only 60}}
  lm.gated_delta %q, %k, %v, %a, %b, %rate, %bias, %state, %batch {key_heads = 2, value_heads = 4, first = 13}
    : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x12xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<4xf32>, tensor<4xf32>, !lm.recurrent<values = 60>, !lm.batch) -> tensor<?x12xf32>
  return
}
