// RUN: easyquant-opt %s --convert-lm-to-linalg --canonicalize --cse | FileCheck %s

// One sequence from its first token on: no batch, no cache; layers are called without them.

// CHECK-LABEL: func.func private @layer(
// CHECK-SAME:    %[[X:[a-z0-9]*]]: tensor<?x32xf32>, %[[T:[a-z0-9]*]]: tensor<64x4x2xf32>) -> tensor<?x32xf32>
// CHECK:         linalg.contract {{.*}} -> tensor<2x2x?x?xf32>
// CHECK:           arith.cmpi ule
// CHECK:           arith.cmpi ugt
// CHECK:           arith.select
// CHECK:           math.exp
// CHECK:         linalg.contract {{.*}} -> tensor<?x2x2x8xf32>
// CHECK:           arith.divf
// CHECK:         tensor.collapse_shape {{.*}} into tensor<?x32xf32>
!cache = !lm.kv_cache<layers = 1, kv_heads = 2, head_dim = 8>
func.func private @layer(%x: tensor<?x32xf32>, %table: tensor<64x4x2xf32>, %batch: !lm.batch, %cache: !cache) -> tensor<?x32xf32> {
  %k, %rest = lm.split %x : tensor<?x32xf32> -> tensor<?x16xf32>, tensor<?x16xf32>
  %q = lm.rope %x, %table, %batch {head_dim = 8 : i64} : tensor<?x32xf32>, tensor<64x4x2xf32>
  %y = lm.attention %q, %k, %rest, %cache, %batch
         {layer = 0, num_heads = 4, num_kv_heads = 2, head_dim = 8, scale = 3.5e-01, window = 5}
         : tensor<?x32xf32>, tensor<?x16xf32>, !cache
  return %y : tensor<?x32xf32>
}

// CHECK-LABEL: func.func @forward(
// CHECK-SAME:    %[[TOKENS:[a-z0-9]*]]: tensor<?xi32>, %[[ROWS:[a-z0-9]*]]: tensor<?xi32>, %[[E:[a-z0-9]*]]: tensor<96x32xf32>
// CHECK:         tensor.extract %[[E]]
// CHECK:         call @layer(%{{.*}}, %{{.*}}) : (tensor<?x32xf32>, tensor<64x4x2xf32>) -> tensor<?x32xf32>
func.func @forward(%tokens: tensor<?xi32>, %batch: !lm.batch, %rows: tensor<?xi32>, %cache: !cache, %e: tensor<96x32xf32>,
                   %table: tensor<64x4x2xf32>) -> tensor<?x32xf32> {
  %x = lm.embedding %tokens, %e : tensor<?xi32>, tensor<96x32xf32> -> tensor<?x32xf32>
  %y = call @layer(%x, %table, %batch, %cache) : (tensor<?x32xf32>, tensor<64x4x2xf32>, !lm.batch, !cache) -> tensor<?x32xf32>
  %z = lm.rows %y at %rows : tensor<?x32xf32>, tensor<?xi32>
  return %z : tensor<?x32xf32>
}

// CHECK-LABEL: func.func @norms(
// CHECK:           math.sqrt
// CHECK:         tensor.expand_shape {{.*}} output_shape [%{{.*}}, 4, 8]
// CHECK:           math.sqrt
// CHECK:           math.sqrt
func.func @norms(%x: tensor<?x32xf32>, %w: tensor<32xf32>, %b: tensor<32xf32>, %h: tensor<8xf32>) -> tensor<?x32xf32> {
  %a = lm.rms_norm %x, %w {epsilon = 1.0e-05 : f64} : tensor<?x32xf32>
  %c = lm.head_rms_norm %a, %h {epsilon = 1.0e-05 : f64} : tensor<?x32xf32>, tensor<8xf32>
  %d = lm.layer_norm %c, %w, %b {epsilon = 1.0e-05 : f64} : tensor<?x32xf32>
  return %d : tensor<?x32xf32>
}

// CHECK-LABEL: func.func @elements(
// CHECK-SAME:    %[[X:[a-z0-9]*]]: tensor<?x32xf32>
// CHECK:         linalg.contract {{.*}} -> tensor<?x32xf32>
// CHECK:           math.exp
// CHECK:           math.tanh
// CHECK:           math.erf
// CHECK:         tensor.extract_slice %{{.*}}[0, 0] [%{{.*}}, 32] [1, 1] : tensor<64x32xf32> to tensor<?x32xf32>
func.func @elements(%x: tensor<?x32xf32>, %w: tensor<32x32xf32>, %b: tensor<32xf32>, %p: tensor<64x32xf32>, %batch: !lm.batch) -> tensor<?x32xf32> {
  %a = lm.linear %x, %w bias(%b) {site = "a"} : (tensor<?x32xf32>, tensor<32x32xf32>, tensor<32xf32>) -> tensor<?x32xf32>
  %c = lm.glu silu %a, %x : tensor<?x32xf32>
  %h = lm.glu gelu_tanh %c, %x : tensor<?x32xf32>
  %i = lm.multiply %h {factor = 2.5 : f64} : tensor<?x32xf32>
  %j = lm.soft_cap %i {bound = 30.0 : f64} : tensor<?x32xf32>
  %d = lm.gelu %j approximate tanh : tensor<?x32xf32>
  %e = lm.gelu %d approximate none : tensor<?x32xf32>
  %f = lm.add %e, %x : tensor<?x32xf32>
  %g = lm.position_embedding %f, %p, %batch : tensor<?x32xf32>, tensor<64x32xf32>
  return %g : tensor<?x32xf32>
}
