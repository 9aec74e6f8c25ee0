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

// A bias is added once, behind the sum.
// CHECK-LABEL: func.func @bias(
// CHECK-SAME:    %[[BIAS:[a-z0-9]*]]: tensor<8xf32>)
// CHECK: %[[D:.*]] = lm.linear %{{[^ ]*}}, %{{[^ ]*}} {site = "down_proj"}
// CHECK: %[[SUM:.*]] = shard.all_reduce %[[D]]
// CHECK: %[[Y:.*]] = equant.add_bias %[[SUM]], %[[BIAS]] : tensor<?x8xf32>, tensor<8xf32>
// CHECK: lm.add %{{.*}}, %[[Y]]
func.func @bias(%x: tensor<?x8xf32>, %up: tensor<16x8xf32>, %down: tensor<8x16xf32>, %b: tensor<8xf32>) -> tensor<?x8xf32> {
  %u = lm.linear %x, %up {site = "up_proj"} : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
  %d = lm.linear %u, %down bias(%b) {site = "down_proj"} : (tensor<?x16xf32>, tensor<8x16xf32>, tensor<8xf32>) -> tensor<?x8xf32>
  %y = lm.add %x, %d : tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// Every rank routes alike and has a part of each of three experts, and of the one that computes all rows; one sum is behind what adds them up.
// CHECK-LABEL: func.func @experts(
// CHECK: %[[LOGITS:.*]] = lm.linear %{{.*}} {site = "router"} : {{.*}} -> tensor<?x3xf32>
// CHECK: lm.route %[[LOGITS]]
// CHECK: %[[U:.*]] = equant.all_slice %{{.*}} on @tensor_parallel axis 0 parts [64, 64, 64] : !equant.weight<192x8, {{.*}}> -> !equant.weight<96x8, {{.*}}>
// CHECK: %[[UB:.*]] = equant.all_slice %{{.*}} on @tensor_parallel axis 0 parts [64, 64, 64] : tensor<192xf32> -> tensor<96xf32>
// CHECK: equant.linear %{{.*}}, %[[U]] bias(%[[UB]]) experts({{.*}} -> tensor<?x32xf32>
// CHECK: %[[D:.*]] = shard.all_slice %{{.*}} slice_axis = 1 : tensor<24x64xf32> -> tensor<24x32xf32>
// CHECK: %[[DB:.*]] = equant.first_rank %{{.*}} on @tensor_parallel : tensor<24xf32>
// CHECK: lm.linear %{{.*}}, %[[D]] bias(%[[DB]]) experts({{.*}} -> tensor<?x8xf32>
// CHECK: lm.linear %{{.*}} {site = "shared_up"} : {{.*}} -> tensor<?x8xf32>
// CHECK: lm.linear %{{.*}} {site = "shared_gate"} : {{.*}} -> tensor<?x1xf32>
// CHECK-NOT: shard.all_reduce
// CHECK: %[[C:.*]] = lm.combine
// CHECK: %[[Y:.*]] = shard.all_reduce %[[C]]
// CHECK-NOT: shard.all_reduce
// CHECK: lm.add %{{.*}}, %[[Y]]
func.func @experts(%x: tensor<?x8xf32>, %router: tensor<3x8xf32>, %up: !equant.weight<192x8, #channel>, %ub: tensor<192xf32>, %down: tensor<24x64xf32>, %db: tensor<24xf32>,
                   %su: tensor<16x8xf32>, %sd: tensor<8x16xf32>, %sg: tensor<1x8xf32>) -> tensor<?x8xf32> {
  %logits = lm.linear %x, %router {site = "router"} : (tensor<?x8xf32>, tensor<3x8xf32>) -> tensor<?x3xf32>
  %order, %offsets, %places, %weights = lm.route %logits {top_k = 2} : tensor<?x3xf32> -> tensor<?xi32>, tensor<4xi32>, tensor<?x2xi32>, tensor<?x2xf32>
  %rows = lm.rows %x at %order : tensor<?x8xf32>, tensor<?xi32>
  %u = equant.linear %rows, %up bias(%ub) experts(%offsets) {sites = ["up_proj"], input_scheme = #token}
    : (tensor<?x8xf32>, !equant.weight<192x8, #channel>, tensor<192xf32>, tensor<4xi32>) -> tensor<?x64xf32>
  %h = lm.gelu %u approximate none : tensor<?x64xf32>
  %d = lm.linear %h, %down bias(%db) experts(%offsets) {site = "down_proj"} : (tensor<?x64xf32>, tensor<24x64xf32>, tensor<24xf32>, tensor<4xi32>) -> tensor<?x8xf32>
  %v = lm.linear %x, %su {site = "shared_up"} : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
  %s = lm.linear %v, %sd {site = "shared_down"} : (tensor<?x16xf32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  %g = lm.linear %x, %sg {site = "shared_gate"} : (tensor<?x8xf32>, tensor<1x8xf32>) -> tensor<?x1xf32>
  %c = lm.combine %d, %places, %weights shared(%s, %g : tensor<?x8xf32>, tensor<?x1xf32>) : tensor<?x8xf32>, tensor<?x2xi32>, tensor<?x2xf32>
  %y = lm.add %x, %c : tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// Keys and values that another layer reads are a rank's own; what all ranks read of a layer's embedding is not, nor the linears around it.
!cache = !lm.kv_cache<layers = 2, kv_heads = [4, 2], head_dim = [2, 4]>
// CHECK-LABEL: func.func private @makes(
// CHECK-SAME:    %{{.*}}: !lm.kv_cache<layers = 2, kv_heads = [2, 1], head_dim = [2, 4]>,
// CHECK-SAME:    -> (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
func.func private @makes(%x: tensor<?x8xf32>, %batch: !lm.batch, %cache: !cache, %w: tensor<8x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) {
  %q = lm.linear %x, %w {site = "q_proj"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %k = lm.linear %x, %w {site = "k_proj"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %v = lm.head_rms_norm %k {epsilon = 1.0e-06 : f64, head_dim = 4 : i64} : tensor<?x8xf32>
  // CHECK: lm.attention {{.*}}num_heads = 1 : i64, num_kv_heads = 1 : i64
  %a = lm.attention %q, %k, %v, %cache, %batch {layer = 1 : i64, num_heads = 2 : i64, num_kv_heads = 2 : i64, head_dim = 4 : i64, scale = 0.5 : f64}
    : tensor<?x8xf32>, tensor<?x8xf32>, !cache
  %o = lm.linear %a, %w {site = "o_proj"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  return %o, %k, %v : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>
}

// CHECK-LABEL: func.func private @reads(
// CHECK-SAME:    %[[K:[a-z0-9]*]]: tensor<?x4xf32>, %[[V:[a-z0-9]*]]: tensor<?x4xf32>, %[[E:[a-z0-9]*]]: tensor<?x8xf32>)
// CHECK: lm.attention %{{.*}}, %[[K]], %[[V]]
// CHECK: %[[G:.*]] = lm.linear {{.*}} {site = "gate"} : {{.*}} -> tensor<?x8xf32>
// CHECK: lm.glu silu %[[G]], %[[E]] : tensor<?x8xf32>
// CHECK: %[[P:.*]] = lm.linear {{.*}} {site = "projection"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
// CHECK-NEXT: lm.rms_norm %[[P]]
func.func private @reads(%x: tensor<?x8xf32>, %batch: !lm.batch, %cache: !cache, %w: tensor<8x8xf32>, %n: tensor<8xf32>, %k: tensor<?x8xf32>, %v: tensor<?x8xf32>, %e: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %q = lm.linear %x, %w {site = "q_proj"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %a = lm.attention %q, %k, %v, %cache, %batch {appended, layer = 1 : i64, num_heads = 2 : i64, num_kv_heads = 2 : i64, head_dim = 4 : i64, scale = 0.5 : f64}
    : tensor<?x8xf32>, tensor<?x8xf32>, !cache
  %o = lm.linear %a, %w {site = "o_proj"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %g = lm.linear %o, %w {site = "gate"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %m = lm.glu silu %g, %e : tensor<?x8xf32>
  %p = lm.linear %m, %w {site = "projection"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %r = lm.rms_norm %p, %n {epsilon = 1.0e-06 : f64} : tensor<?x8xf32>
  %y = lm.add %o, %r : tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// What is done to each logit alike, ranks do to their own.
// CHECK-LABEL: func.func @calls(
// CHECK: %[[L:.*]]:3 = call @makes({{.*}}) : {{.*}} -> (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
// CHECK: call @reads(%[[L]]#0, {{.*}}, %[[L]]#1, %[[L]]#2, {{.*}})
// CHECK: %[[P:.*]] = lm.linear {{.*}} {site = "lm_head"} : {{.*}} -> tensor<?x5xf32>
// CHECK: %[[OWN:.*]] = lm.soft_cap %[[P]] {{.*}} : tensor<?x5xf32>
// CHECK: shard.all_gather %[[OWN]]
func.func @calls(%x: tensor<?x8xf32>, %batch: !lm.batch, %cache: !cache, %w: tensor<8x8xf32>, %n: tensor<8xf32>, %head: tensor<10x8xf32>) -> tensor<?x10xf32> {
  %a, %k, %v = call @makes(%x, %batch, %cache, %w) : (tensor<?x8xf32>, !lm.batch, !cache, tensor<8x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>)
  %b = call @reads(%a, %batch, %cache, %w, %n, %k, %v, %x) : (tensor<?x8xf32>, !lm.batch, !cache, tensor<8x8xf32>, tensor<8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %l = lm.linear %b, %head {site = "lm_head"} : (tensor<?x8xf32>, tensor<10x8xf32>) -> tensor<?x10xf32>
  %y = lm.soft_cap %l {bound = 3.0e+01 : f64} : tensor<?x10xf32>
  return %y : tensor<?x10xf32>
}
