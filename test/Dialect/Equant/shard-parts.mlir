// RUN: easyquant-opt %s -equant-shard="degree=2" -split-input-file | FileCheck %s

// What ranks cut in several parts: one weight for several projections, norms of all heads, and layers with a recurrent state.

!w = !equant.weight<24x8, #equant.scheme<i8, symmetric, channel>>
// Rows of queries, of keys and of values: 8, 8 and 8. A bias goes with them.
// CHECK-LABEL: func.func @fused(
// CHECK: %[[W:.*]] = equant.all_slice %{{.*}} on @tensor_parallel axis 0 parts [8, 8, 8] : !equant.weight<24x8, {{.*}}> -> !equant.weight<12x8, {{.*}}>
// CHECK: %[[B:.*]] = equant.all_slice %{{.*}} on @tensor_parallel axis 0 parts [8, 8, 8] : tensor<24xf32> -> tensor<12xf32>
// CHECK: equant.linear %{{.*}}, %[[W]] bias(%[[B]])
// CHECK: %[[QKV:.*]]:3 = lm.split %{{.*}} : tensor<?x12xf32> -> tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>
// CHECK: lm.attention %[[QKV]]#0, %[[QKV]]#1, %[[QKV]]#2, {{.*}}num_heads = 1 : i64, num_kv_heads = 1 : i64
func.func @fused(%x: tensor<?x8xf32>, %batch: !lm.batch, %cache: !lm.kv_cache<layers = 1, kv_heads = 2, head_dim = 4>, %w: !w, %b: tensor<24xf32>, %o: tensor<8x8xf32>, %gu: tensor<48x8xf32>, %down: tensor<8x24xf32>) -> tensor<?x8xf32> {
  %qkv = equant.linear %x, %w bias(%b) {sites = ["qkv_proj"]} : (tensor<?x8xf32>, !w, tensor<24xf32>) -> tensor<?x24xf32>
  %q, %k, %v = lm.split %qkv : tensor<?x24xf32> -> tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>
  %a = lm.attention %q, %k, %v, %cache, %batch {layer = 0 : i64, num_heads = 2 : i64, num_kv_heads = 2 : i64, head_dim = 4 : i64, scale = 0.5 : f64}
    : tensor<?x8xf32>, tensor<?x8xf32>, !lm.kv_cache<layers = 1, kv_heads = 2, head_dim = 4>
  %h = lm.linear %a, %o {site = "o_proj"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  // Constants that stay float, too.
  // CHECK: %[[GU:.*]] = equant.all_slice %{{.*}} axis 0 parts [24, 24] : tensor<48x8xf32> -> tensor<24x8xf32>
  // CHECK: lm.linear %{{.*}}, %[[GU]] {site = "gate_up_proj"}
  // CHECK: lm.split %{{.*}} : tensor<?x24xf32> -> tensor<?x12xf32>, tensor<?x12xf32>
  %both = lm.linear %h, %gu {site = "gate_up_proj"} : (tensor<?x8xf32>, tensor<48x8xf32>) -> tensor<?x48xf32>
  %g, %u = lm.split %both : tensor<?x48xf32> -> tensor<?x24xf32>, tensor<?x24xf32>
  %m = lm.glu silu %g, %u : tensor<?x24xf32>
  // CHECK: shard.all_slice %{{.*}} slice_axis = 1 : tensor<8x24xf32> -> tensor<8x12xf32>
  %d = lm.linear %m, %down {site = "down_proj"} : (tensor<?x24xf32>, tensor<8x24xf32>) -> tensor<?x8xf32>
  %y = lm.add %h, %d : tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// Squares are added up over ranks. A norm of rows that all ranks have stays as it is.
// CHECK-LABEL: func.func @norm(
// CHECK: lm.rms_norm %{{.*}} : tensor<?x8xf32>
// CHECK: %[[Q:.*]] = lm.linear {{.*}}site = "q_proj"{{.*}} -> tensor<?x8xf32>
// CHECK: %[[N:.*]] = shard.all_slice %{{.*}} slice_axis = 0 : tensor<16xf32> -> tensor<8xf32>
// CHECK: %[[OWN:.*]] = equant.token_squares %[[Q]] : tensor<?x8xf32> -> tensor<?xf32>
// CHECK: %[[ALL:.*]] = shard.all_reduce %[[OWN]] on @tensor_parallel grid_axes = [0] : tensor<?xf32> -> tensor<?xf32>
// CHECK: %[[Y:.*]] = equant.part_rms_norm %[[Q]], %[[N]] of %[[ALL]] {columns = 16 : i64, epsilon = {{.*}} : f64}
// CHECK: lm.linear %[[Y]], {{.*}}site = "o_proj"
func.func @norm(%x: tensor<?x8xf32>, %n: tensor<8xf32>, %q: tensor<16x8xf32>, %qn: tensor<16xf32>, %o: tensor<8x16xf32>) -> tensor<?x8xf32> {
  %h = lm.rms_norm %x, %n {epsilon = 1.0e-06 : f64} : tensor<?x8xf32>
  %qx = lm.linear %h, %q {site = "q_proj"} : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
  %qy = lm.rms_norm %qx, %qn {epsilon = 1.0e-06 : f64} : tensor<?x16xf32>
  %y = lm.linear %qy, %o {site = "o_proj"} : (tensor<?x16xf32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  %z = lm.add %x, %y : tensor<?x8xf32>
  return %z : tensor<?x8xf32>
}

// -----

// The parts of a convolution are those that are taken apart behind it; it keeps half of the state, from half of the place on.
// Value heads in turns, two of each of two key heads: a rank has the first and the second one of its key head.
// CHECK-LABEL: func.func @delta(
// CHECK-SAME: !lm.recurrent<values = 80>
// CHECK: %[[IN:.*]] = equant.all_slice %{{.*}} axis 0 parts [8, 8, 8, 8] : tensor<32x8xf32> -> tensor<16x8xf32>
// CHECK: lm.linear %{{.*}}, %[[IN]] {site = "in_proj_qkv"}
// CHECK: equant.all_slice %{{.*}} axis 0 parts [8, 8] : tensor<16x8xf32> -> tensor<8x8xf32>
// CHECK: site = "in_proj_z"
// CHECK: equant.all_slice %{{.*}} axis 0 parts [2, 2] : tensor<4x8xf32> -> tensor<2x8xf32>
// CHECK: %[[C:.*]] = equant.all_slice %{{.*}} axis 0 parts [8, 8, 8, 8] : tensor<32x3xf32> -> tensor<16x3xf32>
// CHECK: lm.conv1d %{{.*}}, %[[C]], {{.*}}first = 16 : i64
// CHECK: lm.split %{{.*}} : tensor<?x16xf32> -> tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x8xf32>
// CHECK: equant.all_slice %{{.*}} axis 0 parts [2, 2] : tensor<4xf32> -> tensor<2xf32>
// CHECK: lm.gated_delta {{.*}}first = 48 : i64, key_heads = 1 : i64, tiled, value_heads = 2 : i64
// CHECK: lm.head_rms_norm %{{.*}} : tensor<?x8xf32>, tensor<4xf32>
// CHECK: %[[OUT:.*]] = equant.all_slice %{{.*}} axis 1 parts [8, 8] : !equant.weight<8x16, {{.*}}> -> !equant.weight<8x8, {{.*}}>
// CHECK: equant.linear %{{.*}}, %[[OUT]]
// CHECK: shard.all_reduce
!out = !equant.weight<8x16, #equant.scheme<i4, symmetric, group = 4>>
!state = !lm.recurrent<values = 160>
func.func @delta(%x: tensor<?x8xf32>, %batch: !lm.batch, %state: !state, %in: tensor<32x8xf32>, %z: tensor<16x8xf32>, %a: tensor<4x8xf32>, %b: tensor<4x8xf32>, %c: tensor<32x3xf32>, %rate: tensor<4xf32>, %bias: tensor<4xf32>, %n: tensor<4xf32>, %out: !out) -> tensor<?x8xf32> {
  %mixed = lm.linear %x, %in {site = "in_proj_qkv"} : (tensor<?x8xf32>, tensor<32x8xf32>) -> tensor<?x32xf32>
  %gate = lm.linear %x, %z {site = "in_proj_z"} : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
  %strength = lm.linear %x, %b {site = "in_proj_b"} : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
  %decay = lm.linear %x, %a {site = "in_proj_a"} : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
  %conv = lm.conv1d %mixed, %c, %state, %batch {first = 32 : i64, silu} : (tensor<?x32xf32>, tensor<32x3xf32>, !state, !lm.batch) -> tensor<?x32xf32>
  %q, %k, %v = lm.split %conv : tensor<?x32xf32> -> tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x16xf32>
  %y = lm.gated_delta %q, %k, %v, %decay, %strength, %rate, %bias, %state, %batch {key_heads = 2, value_heads = 4, first = 96, tiled}
    : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x16xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<4xf32>, tensor<4xf32>, !state, !lm.batch) -> tensor<?x16xf32>
  %normed = lm.head_rms_norm %y, %n {epsilon = 1.0e-06 : f64} : tensor<?x16xf32>, tensor<4xf32>
  %gated = lm.glu silu %gate, %normed : tensor<?x16xf32>
  %o = equant.linear %gated, %out {sites = ["out_proj"]} : (tensor<?x16xf32>, !out) -> tensor<?x8xf32>
  %r = lm.add %x, %o : tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}
