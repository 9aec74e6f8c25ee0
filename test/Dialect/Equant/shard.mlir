// RUN: easyquant-opt %s -equant-shard="degree=2" | FileCheck %s
// RUN: easyquant-opt %s -equant-shard="degree=2" -lm-hoist-rows | FileCheck %s --check-prefix=ROWS
// RUN: easyquant-opt %s -equant-shard="degree=1" | FileCheck %s --check-prefix=ONE

// ONE-NOT: shard.

#channel = #equant.scheme<i8, symmetric, channel>
#token = #equant.scheme<i8, symmetric, token, dynamic>

// Each of two ranks has half of the heads, of the cache and of the MLP.
// CHECK: shard.grid @tensor_parallel(shape = 2)
// CHECK-LABEL: func.func @layer(
// CHECK-SAME:    %[[X:.*]]: tensor<?x8xf32>, %{{.*}}: !lm.batch, %{{.*}}: !lm.kv_cache<layers = 1, kv_heads = 1, head_dim = 4>,
func.func @layer(%x: tensor<?x8xf32>, %batch: !lm.batch, %cache: !lm.kv_cache<layers = 1, kv_heads = 2, head_dim = 4>, %q: !equant.weight<8x8, #channel>, %qb: tensor<8xf32>, %k: tensor<8x8xf32>, %v: tensor<8x8xf32>, %o: !equant.weight<8x8, #channel>, %gate: tensor<16x8xf32>, %up: tensor<16x8xf32>, %down: !equant.weight<8x16, #equant.scheme<i4, symmetric, group = 8>>, %s: tensor<2xf32>) -> tensor<?x8xf32> {
  // Rows of q, with their scales and biases.
  // CHECK: %[[QW:.*]] = equant.all_slice %{{.*}} on @tensor_parallel axis 0 : !equant.weight<8x8, #equant.scheme<i8, symmetric, channel>> -> !equant.weight<4x8, #equant.scheme<i8, symmetric, channel>>
  // CHECK: %[[QB:.*]] = shard.all_slice %{{.*}} slice_axis = 0 : tensor<8xf32> -> tensor<4xf32>
  // CHECK: equant.linear %[[X]], %[[QW]] bias(%[[QB]])
  // CHECK-SAME: -> tensor<?x4xf32>
  %qx = equant.linear %x, %q bias(%qb) {sites = ["q_proj"], input_scheme = #token} : (tensor<?x8xf32>, !equant.weight<8x8, #channel>, tensor<8xf32>) -> tensor<?x8xf32>
  // CHECK: lm.linear %[[X]], %{{.*}} {site = "k_proj"} : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
  %kx = lm.linear %x, %k {site = "k_proj"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %vx = lm.linear %x, %v {site = "v_proj"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  // CHECK: %[[S:.*]] = shard.all_slice %{{.*}} slice_axis = 0 : tensor<2xf32> -> tensor<1xf32>
  // CHECK: %[[A:.*]] = lm.attention {{.*}} sink_logits(%[[S]] : tensor<1xf32>) {{.*}}num_heads = 1 : i64, num_kv_heads = 1 : i64
  %a = lm.attention %qx, %kx, %vx, %cache, %batch sink_logits(%s : tensor<2xf32>)
    {layer = 0 : i64, num_heads = 2 : i64, num_kv_heads = 2 : i64, head_dim = 4 : i64, scale = 0.5 : f64}
    : tensor<?x8xf32>, tensor<?x8xf32>, !lm.kv_cache<layers = 1, kv_heads = 2, head_dim = 4>
  // Columns of o, whose scales are of whole rows; the residual comes behind the sum.
  // CHECK: %[[OW:.*]] = equant.all_slice %{{.*}} axis 1 : !equant.weight<8x8, {{.*}}> -> !equant.weight<8x4, {{.*}}>
  // CHECK: %[[P:.*]] = equant.linear %[[A]], %[[OW]]
  // CHECK-SAME: (tensor<?x4xf32>, !equant.weight<8x4, {{.*}}>) -> tensor<?x8xf32>
  // CHECK: %[[SUM:.*]] = shard.all_reduce %[[P]] on @tensor_parallel grid_axes = [0] : tensor<?x8xf32> -> tensor<?x8xf32>
  // CHECK: %[[H:.*]] = lm.add %[[X]], %[[SUM]]
  %ox = equant.linear %a, %o {sites = ["o_proj"], input_scheme = #token} : (tensor<?x8xf32>, !equant.weight<8x8, #channel>) -> tensor<?x8xf32>
  %h = lm.add %x, %ox : tensor<?x8xf32>
  %g = lm.linear %h, %gate {site = "gate_proj"} : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
  %u = lm.linear %h, %up {site = "up_proj"} : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
  // CHECK: lm.glu silu %{{.*}}, %{{.*}} : tensor<?x8xf32>
  %m = lm.glu silu %g, %u : tensor<?x16xf32>
  // Groups go with their columns.
  // CHECK: equant.all_slice %{{.*}} axis 1 : !equant.weight<8x16, {{.*}}> -> !equant.weight<8x8, {{.*}}>
  // CHECK: shard.all_reduce
  %d = equant.linear %m, %down {sites = ["down_proj"]} : (tensor<?x16xf32>, !equant.weight<8x16, #equant.scheme<i4, symmetric, group = 8>>) -> tensor<?x8xf32>
  %y = lm.add %h, %d : tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// Tokens are shared where the degree divides the vocabulary; rows that are not asked for are not summed, and not gathered.
// CHECK-LABEL: func.func @forward(
// ROWS-LABEL: func.func @forward(
// ROWS-SAME:    %[[TOKENS:.*]]: tensor<?xi32>, %[[ROWS:.*]]: tensor<?xi32>,
func.func @forward(%tokens: tensor<?xi32>, %rows: tensor<?xi32>, %table: tensor<10x8xf32>) -> tensor<?x10xf32> {
  // CHECK: %[[T:.*]] = shard.all_slice %{{.*}} slice_axis = 0 : tensor<10x8xf32> -> tensor<5x8xf32>
  // CHECK: %[[E:.*]] = lm.embedding %{{.*}}, %[[T]] {sharded} : tensor<?xi32>, tensor<5x8xf32> -> tensor<?x8xf32>
  // CHECK: shard.all_reduce %[[E]]
  // ROWS: %[[E:.*]] = lm.embedding
  // ROWS: %[[R:.*]] = lm.rows %[[E]] at %[[ROWS]]
  // ROWS: shard.all_reduce %[[R]]
  %x = lm.embedding %tokens, %table : tensor<?xi32>, tensor<10x8xf32> -> tensor<?x8xf32>
  // CHECK: %[[L:.*]] = lm.linear {{.*}} -> tensor<?x5xf32>
  // CHECK: shard.all_gather %[[L]] on @tensor_parallel grid_axes = [0] gather_axis = 1 : tensor<?x5xf32> -> tensor<?x10xf32>
  %r = lm.rows %x at %rows : tensor<?x8xf32>, tensor<?xi32>
  %y = lm.linear %r, %table {site = "lm_head"} : (tensor<?x8xf32>, tensor<10x8xf32>) -> tensor<?x10xf32>
  return %y : tensor<?x10xf32>
}

// CHECK-LABEL: func.func @odd_vocabulary(
// CHECK-NOT: shard.
// CHECK: return
func.func @odd_vocabulary(%tokens: tensor<?xi32>, %table: tensor<11x8xf32>) -> tensor<?x11xf32> {
  %x = lm.embedding %tokens, %table : tensor<?xi32>, tensor<11x8xf32> -> tensor<?x8xf32>
  %y = lm.linear %x, %table {site = "lm_head"} : (tensor<?x8xf32>, tensor<11x8xf32>) -> tensor<?x11xf32>
  return %y : tensor<?x11xf32>
}

// Whole blocks are of one rank.
// CHECK-LABEL: func.func @rotated(
// CHECK: %[[U:.*]] = lm.linear {{.*}}site = "up_proj"{{.*}} -> tensor<?x32xf32>
// CHECK: %[[R:.*]] = equant.hadamard %[[U]] {block = 32 : i64} : tensor<?x32xf32>
// CHECK: %[[Y:.*]] = lm.linear %[[R]], {{.*}}site = "down_proj"
// CHECK: shard.all_reduce %[[Y]]
func.func @rotated(%x: tensor<?x8xf32>, %up: tensor<64x8xf32>, %down: tensor<8x64xf32>) -> tensor<?x8xf32> {
  %h = lm.linear %x, %up {site = "up_proj"} : (tensor<?x8xf32>, tensor<64x8xf32>) -> tensor<?x64xf32>
  %r = equant.hadamard %h {block = 32 : i64} : tensor<?x64xf32>
  %y = lm.linear %r, %down {site = "down_proj"} : (tensor<?x64xf32>, tensor<8x64xf32>) -> tensor<?x8xf32>
  %z = lm.add %x, %y : tensor<?x8xf32>
  return %z : tensor<?x8xf32>
}
