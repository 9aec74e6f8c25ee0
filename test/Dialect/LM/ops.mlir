// RUN: easyquant-opt %s | easyquant-opt | FileCheck %s
// RUN: easyquant-opt %s --mlir-print-op-generic | easyquant-opt | FileCheck %s

!cache = !lm.kv_cache<layers = 2, kv_heads = 3, head_dim = 64>

// CHECK-LABEL: func.func @embeddings(
// CHECK-SAME:    %[[TOKENS:.*]]: tensor<?xi32>, %[[TABLE:.*]]: tensor<100x576xf32>, %[[POSITIONS:.*]]: tensor<32x576xf32>, %[[BATCH:.*]]: !lm.batch)
func.func @embeddings(%tokens: tensor<?xi32>, %table: tensor<100x576xf32>, %positions: tensor<32x576xf32>,
                      %batch: !lm.batch) -> tensor<?x576xf32> {
  // CHECK: %[[X:.*]] = lm.embedding %[[TOKENS]], %[[TABLE]] : tensor<?xi32>, tensor<100x576xf32> -> tensor<?x576xf32>
  %x = lm.embedding %tokens, %table : tensor<?xi32>, tensor<100x576xf32> -> tensor<?x576xf32>
  // CHECK: lm.position_embedding %[[X]], %[[POSITIONS]], %[[BATCH]] : tensor<?x576xf32>, tensor<32x576xf32>
  %y = lm.position_embedding %x, %positions, %batch : tensor<?x576xf32>, tensor<32x576xf32>
  return %y : tensor<?x576xf32>
}

// CHECK: ml_program.global private @table({{.*}}) : tensor<100x8xf32> {lm.file_type = bf16}
ml_program.global private @table(#ml_program.extern : tensor<100x8xf32>) : tensor<100x8xf32> {lm.file_type = bf16}

// CHECK-LABEL: func.func @halves(
func.func @halves(%tokens: tensor<?xi32>, %table: tensor<100x8xbf16>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  // CHECK: lm.embedding %{{.*}}, %{{.*}} : tensor<?xi32>, tensor<100x8xbf16> -> tensor<?x8xf32>
  %x = lm.embedding %tokens, %table : tensor<?xi32>, tensor<100x8xbf16> -> tensor<?x8xf32>
  %stored = ml_program.global_load_const @table : tensor<100x8xf32>
  %y = lm.embedding %tokens, %stored : tensor<?xi32>, tensor<100x8xf32> -> tensor<?x8xf32>
  return %x, %y : tensor<?x8xf32>, tensor<?x8xf32>
}

// CHECK-LABEL: func.func @norms(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<?x8xf32>, %[[W:[^:]*]]: tensor<8xf32>, %[[B:[^:]*]]: tensor<8xf32>)
func.func @norms(%x: tensor<?x8xf32>, %w: tensor<8xf32>, %b: tensor<8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  // CHECK: lm.rms_norm %[[X]], %[[W]] {epsilon = 1.000000e-05 : f64} : tensor<?x8xf32>
  %y = lm.rms_norm %x, %w {epsilon = 1.0e-5 : f64} : tensor<?x8xf32>
  // CHECK: lm.layer_norm %[[X]], %[[W]], %[[B]] {epsilon = 0.000000e+00 : f64} : tensor<?x8xf32>
  %z = lm.layer_norm %x, %w, %b {epsilon = 0.0 : f64} : tensor<?x8xf32>
  return %y, %z : tensor<?x8xf32>, tensor<?x8xf32>
}

// CHECK-LABEL: func.func @head_norm(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<?x12xf32>, %[[W:[^:]*]]: tensor<4xf32>)
func.func @head_norm(%x: tensor<?x12xf32>, %w: tensor<4xf32>) -> tensor<?x12xf32> {
  // CHECK: lm.head_rms_norm %[[X]], %[[W]] {epsilon = 1.250000e-01 : f64} : tensor<?x12xf32>, tensor<4xf32>
  %y = lm.head_rms_norm %x, %w {epsilon = 0.125 : f64} : tensor<?x12xf32>, tensor<4xf32>
  return %y : tensor<?x12xf32>
}

// CHECK-LABEL: func.func @plain_head_norm(
// CHECK: lm.head_rms_norm %{{.*}} {epsilon = 1.250000e-01 : f64, head_dim = 4 : i64} : tensor<?x12xf32>
func.func @plain_head_norm(%x: tensor<?x12xf32>) -> tensor<?x12xf32> {
  %y = lm.head_rms_norm %x {epsilon = 0.125 : f64, head_dim = 4 : i64} : tensor<?x12xf32>
  return %y : tensor<?x12xf32>
}

// Layers whose heads differ, in number, in size, or in both.
// CHECK: func.func private @numbers(!lm.kv_cache<layers = 3, kv_heads = [2, 2, 1], head_dim = 8>)
func.func private @numbers(!lm.kv_cache<layers = 3, kv_heads = [2, 2, 1], head_dim = 8>)
// CHECK: func.func private @windows(!lm.kv_cache<layers = 2, kv_heads = 1, head_dim = 8, window = [512, 0]>, !lm.kv_cache<layers = 2, kv_heads = 1, head_dim = 8, window = 512>)
func.func private @windows(!lm.kv_cache<layers = 2, kv_heads = 1, head_dim = 8, window = [512, 0]>, !lm.kv_cache<layers = 2, kv_heads = 1, head_dim = 8, window = 512>)
// CHECK: func.func private @both(!lm.kv_cache<layers = 2, kv_heads = [2, 1], head_dim = [8, 16]>)
func.func private @both(!lm.kv_cache<layers = 2, kv_heads = [2, 1], head_dim = [8, 16]>)

// CHECK-LABEL: func.func @linear(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<?x8xf32>, %[[W:[^:]*]]: tensor<4x8xf32>, %[[B:[^:]*]]: tensor<4xf32>)
func.func @linear(%x: tensor<?x8xf32>, %w: tensor<4x8xf32>, %b: tensor<4xf32>) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
  // CHECK: lm.linear %[[X]], %[[W]] {site = "lm_head"} : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
  %y = lm.linear %x, %w {site = "lm_head"} : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
  // CHECK: lm.linear %[[X]], %[[W]] bias(%[[B]]) {site = "c_attn"} : (tensor<?x8xf32>, tensor<4x8xf32>, tensor<4xf32>) -> tensor<?x4xf32>
  %z = lm.linear %x, %w bias(%b) {site = "c_attn"} : (tensor<?x8xf32>, tensor<4x8xf32>, tensor<4xf32>) -> tensor<?x4xf32>
  return %y, %z : tensor<?x4xf32>, tensor<?x4xf32>
}

// CHECK-LABEL: func.func @attention(
// CHECK-SAME:    %[[QKV:.*]]: tensor<?x960xf32>, %[[TABLE:.*]]: tensor<128x32x2xf32>, %[[BATCH:.*]]: !lm.batch, %[[CACHE:.*]]: !lm.kv_cache<layers = 2, kv_heads = 3, head_dim = 64>)
func.func @attention(%qkv: tensor<?x960xf32>, %table: tensor<128x32x2xf32>, %batch: !lm.batch, %cache: !cache)
    -> tensor<?x576xf32> {
  // CHECK: %[[PARTS:.*]]:3 = lm.split %[[QKV]] : tensor<?x960xf32> -> tensor<?x576xf32>, tensor<?x192xf32>, tensor<?x192xf32>
  %q, %k, %v = lm.split %qkv : tensor<?x960xf32> -> tensor<?x576xf32>, tensor<?x192xf32>, tensor<?x192xf32>
  // CHECK: %[[Q:.*]] = lm.rope %[[PARTS]]#0, %[[TABLE]], %[[BATCH]] {head_dim = 64 : i64} : tensor<?x576xf32>, tensor<128x32x2xf32>
  %r = lm.rope %q, %table, %batch {head_dim = 64} : tensor<?x576xf32>, tensor<128x32x2xf32>
  // CHECK: %[[Y:.*]] = lm.attention %[[Q]], %[[PARTS]]#1, %[[PARTS]]#2, %[[CACHE]], %[[BATCH]]
  // CHECK-SAME: {head_dim = 64 : i64, layer = 1 : i64, num_heads = 9 : i64, num_kv_heads = 3 : i64, scale = 1.250000e-01 : f64}
  // CHECK-SAME: : tensor<?x576xf32>, tensor<?x192xf32>, !lm.kv_cache<layers = 2, kv_heads = 3, head_dim = 64>
  %y = lm.attention %r, %k, %v, %cache, %batch
         {layer = 1, num_heads = 9, num_kv_heads = 3, head_dim = 64, scale = 0.125 : f64}
         : tensor<?x576xf32>, tensor<?x192xf32>, !cache
  // CHECK: lm.attention %[[Y]], {{.*}} window = 16 : i64}
  %z = lm.attention %y, %k, %v, %cache, %batch
         {layer = 0, num_heads = 9, num_kv_heads = 3, head_dim = 64, scale = 0.125 : f64, bound = 50.0 : f64, window = 16}
         : tensor<?x576xf32>, tensor<?x192xf32>, !cache
  // CHECK: lm.attention %{{.*}} {appended, head_dim = 64 : i64, layer = 0 : i64,
  %u = lm.attention %z, %k, %v, %cache, %batch
         {layer = 0, num_heads = 9, num_kv_heads = 3, head_dim = 64, scale = 0.125 : f64, appended} : tensor<?x576xf32>, tensor<?x192xf32>, !cache
  return %u : tensor<?x576xf32>
}

// CHECK-LABEL: func.func @cached_attention(
// CHECK-SAME:    %[[Q:[^:]*]]: tensor<?x576xf32>, %[[BATCH:[^:]*]]: !lm.batch, %[[CACHE:[^:]*]]: !lm.kv_cache
func.func @cached_attention(%q: tensor<?x576xf32>, %batch: !lm.batch, %cache: !cache) -> tensor<?x576xf32> {
  // CHECK: %[[Y:.*]] = lm.cached_attention %[[Q]], %[[CACHE]], %[[BATCH]] {head_dim = 64 : i64, layer = 0 : i64, num_heads = 9 : i64, num_kv_heads = 3 : i64, scale = 1.000000e+00 : f64} : tensor<?x576xf32>, !lm.kv_cache
  %y = lm.cached_attention %q, %cache, %batch {layer = 0, num_heads = 9, num_kv_heads = 3, head_dim = 64, scale = 1.0 : f64}
         : tensor<?x576xf32>, !cache
  // CHECK: lm.cached_attention %[[Y]], {{.*}} window = 16 : i64}
  %z = lm.cached_attention %y, %cache, %batch {layer = 0, num_heads = 9, num_kv_heads = 3, head_dim = 64, scale = 1.0 : f64, window = 16}
         : tensor<?x576xf32>, !cache
  return %z : tensor<?x576xf32>
}

// CHECK-LABEL: func.func @mask_clusters(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<?x12xf32>, %[[S:[^:]*]]: tensor<?x4xf32>, %[[C:[^:]*]]: tensor<12xf32>)
func.func @mask_clusters(%x: tensor<?x12xf32>, %s: tensor<?x4xf32>, %c: tensor<12xf32>) -> tensor<?x12xf32> {
  // CHECK: lm.mask_clusters %[[X]], %[[S]], %[[C]] {top_k = 2 : i64} : tensor<?x12xf32>, tensor<?x4xf32>, tensor<12xf32>
  %y = lm.mask_clusters %x, %s, %c {top_k = 2 : i64} : tensor<?x12xf32>, tensor<?x4xf32>, tensor<12xf32>
  return %y : tensor<?x12xf32>
}

// CHECK-LABEL: func.func @sink_logits(
// CHECK-SAME:    %[[Q:[^:]*]]: tensor<?x576xf32>, %[[K:[^:]*]]: tensor<?x192xf32>, %[[S:[^:]*]]: tensor<9xf32>,
func.func @sink_logits(%q: tensor<?x576xf32>, %k: tensor<?x192xf32>, %s: tensor<9xf32>, %batch: !lm.batch, %cache: !cache) -> tensor<?x576xf32> {
  // CHECK: lm.attention %[[Q]], %[[K]], %[[K]], %{{.*}}, %{{.*}} sink_logits(%[[S]] : tensor<9xf32>) {head_dim = 64 : i64,
  %y = lm.attention %q, %k, %k, %cache, %batch sink_logits(%s : tensor<9xf32>)
         {layer = 1, num_heads = 9, num_kv_heads = 3, head_dim = 64, scale = 0.125 : f64} : tensor<?x576xf32>, tensor<?x192xf32>, !cache
  // CHECK: lm.glu clamped
  %z = lm.glu clamped %y, %q : tensor<?x576xf32>
  return %z : tensor<?x576xf32>
}

// CHECK-LABEL: func.func @elementwise(
// CHECK-SAME:    %[[A:[^:]*]]: tensor<?x8xf32>, %[[B:[^:]*]]: tensor<?x8xf32>, %[[ROWS:.*]]: tensor<?xi32>)
func.func @elementwise(%a: tensor<?x8xf32>, %b: tensor<?x8xf32>, %rows: tensor<?xi32>) -> tensor<?x8xf32> {
  // CHECK: %[[C:.*]] = lm.glu silu %[[A]], %[[B]] : tensor<?x8xf32>
  %c = lm.glu silu %a, %b : tensor<?x8xf32>
  // CHECK: %[[D:.*]] = lm.gelu %[[C]] approximate tanh : tensor<?x8xf32>
  %d = lm.gelu %c approximate tanh : tensor<?x8xf32>
  // CHECK: %[[E:.*]] = lm.gelu %[[D]] approximate none : tensor<?x8xf32>
  %e = lm.gelu %d approximate none : tensor<?x8xf32>
  // CHECK: %[[F:.*]] = lm.add %[[E]], %[[A]] : tensor<?x8xf32>
  %f = lm.add %e, %a : tensor<?x8xf32>
  // CHECK: %[[H:.*]] = lm.glu gelu_tanh %[[F]], %[[B]] : tensor<?x8xf32>
  %h = lm.glu gelu_tanh %f, %b : tensor<?x8xf32>
  // CHECK: %[[I:.*]] = lm.multiply %[[H]] {factor = 2.500000e+00 : f64} : tensor<?x8xf32>
  %i = lm.multiply %h {factor = 2.5 : f64} : tensor<?x8xf32>
  // CHECK: %[[J:.*]] = lm.soft_cap %[[I]] {bound = 3.000000e+01 : f64} : tensor<?x8xf32>
  %j = lm.soft_cap %i {bound = 30.0 : f64} : tensor<?x8xf32>
  // CHECK: lm.rows %[[J]] at %[[ROWS]] : tensor<?x8xf32>, tensor<?xi32>
  %g = lm.rows %j at %rows : tensor<?x8xf32>, tensor<?xi32>
  return %g : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @convolutions(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<?x8xf32>, %[[W:[^:]*]]: tensor<8x3xf32>, %[[B:[^:]*]]: tensor<8xf32>, %[[STATE:[^:]*]]: !lm.recurrent<values = 32>, %[[BATCH:[^:]*]]: !lm.batch)
func.func @convolutions(%x: tensor<?x8xf32>, %w: tensor<8x3xf32>, %b: tensor<8xf32>, %state: !lm.recurrent<values = 32>,
                        %batch: !lm.batch) -> tensor<?x8xf32> {
  // CHECK: %[[Y:.*]] = lm.conv1d %[[X]], %[[W]], %[[STATE]], %[[BATCH]] {first = 0 : i64} : (tensor<?x8xf32>, tensor<8x3xf32>, !lm.recurrent<values = 32>, !lm.batch) -> tensor<?x8xf32>
  %y = lm.conv1d %x, %w, %state, %batch {first = 0}
         : (tensor<?x8xf32>, tensor<8x3xf32>, !lm.recurrent<values = 32>, !lm.batch) -> tensor<?x8xf32>
  // CHECK: %[[Z:.*]] = lm.conv1d %[[Y]], %[[W]] bias(%[[B]]), %[[STATE]], %[[BATCH]] {first = 16 : i64}
  %z = lm.conv1d %y, %w bias(%b), %state, %batch {first = 16}
         : (tensor<?x8xf32>, tensor<8x3xf32>, tensor<8xf32>, !lm.recurrent<values = 32>, !lm.batch) -> tensor<?x8xf32>
  // CHECK: lm.glu none %[[Z]], %[[X]] : tensor<?x8xf32>
  %g = lm.glu none %z, %x : tensor<?x8xf32>
  // CHECK: lm.conv1d %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} {first = 0 : i64, silu}
  %s = lm.conv1d %g, %w, %state, %batch {first = 0, silu} : (tensor<?x8xf32>, tensor<8x3xf32>, !lm.recurrent<values = 32>, !lm.batch) -> tensor<?x8xf32>
  // CHECK: lm.glu sigmoid
  %h = lm.glu sigmoid %s, %g : tensor<?x8xf32>
  return %g : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @gated_delta(
func.func @gated_delta(%q: tensor<?x8xf32>, %k: tensor<?x8xf32>, %v: tensor<?x12xf32>, %a: tensor<?x4xf32>, %b: tensor<?x4xf32>,
                       %rate: tensor<4xf32>, %bias: tensor<4xf32>, %state: !lm.recurrent<values = 60>, %batch: !lm.batch) {
  // CHECK: lm.gated_delta %{{.*}} {first = 12 : i64, key_heads = 2 : i64, tiled, value_heads = 4 : i64} : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x12xf32>
  lm.gated_delta %q, %k, %v, %a, %b, %rate, %bias, %state, %batch {key_heads = 2, value_heads = 4, first = 12, tiled}
    : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x12xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<4xf32>, tensor<4xf32>, !lm.recurrent<values = 60>, !lm.batch) -> tensor<?x12xf32>
  return
}
