// RUN: easyquant-opt %s --lm-hoist-rows --split-input-file | FileCheck %s

// The last layer is inlined, and behind its attention only the rows that are asked for are computed.

// CHECK-NOT:   @layer_1
// CHECK-LABEL: func.func @forward(
// CHECK-SAME:    %[[TOKENS:[a-z0-9]*]]: tensor<?xi32>, %[[BATCH:[a-z0-9]*]]: !lm.batch, %[[NUMBERS:[a-z0-9]*]]: tensor<?xi32>
// CHECK:         %[[X:.*]] = call @layer_0(
// CHECK:         %[[ROWS:.*]] = lm.rows %[[X]] at %[[NUMBERS]]
// CHECK:         %[[NORMED:.*]] = lm.rms_norm %[[X]]
// CHECK:         %[[ATTENDED:.*]] = lm.attention %[[NORMED]]
// CHECK:         %[[LAST:.*]] = lm.rows %[[ATTENDED]] at %[[NUMBERS]]
// CHECK:         %[[PROJECTED:.*]] = lm.linear %[[LAST]]
// CHECK:         %[[ADDED:.*]] = lm.add %[[ROWS]], %[[PROJECTED]]
// CHECK:         %[[A:.*]]:2 = lm.split %[[ADDED]]
// CHECK:         lm.gelu %[[A]]#0
// CHECK-NOT:     lm.rows
// CHECK:         return
!cache = !lm.kv_cache<layers = 2, kv_heads = 1, head_dim = 8>
func.func private @layer_0(%x: tensor<?x8xf32>, %batch: !lm.batch, %cache: !cache) -> tensor<?x8xf32> {
  return %x : tensor<?x8xf32>
}
func.func private @layer_1(%x: tensor<?x8xf32>, %batch: !lm.batch, %cache: !cache) -> tensor<?x8xf32> {
  %norm = arith.constant dense<1.0> : tensor<8xf32>
  %w = arith.constant dense<1.0> : tensor<8x8xf32>
  %n = lm.rms_norm %x, %norm {epsilon = 1.0e-05 : f64} : tensor<?x8xf32>
  %a = lm.attention %n, %n, %n, %cache, %batch
         {layer = 1, num_heads = 1, num_kv_heads = 1, head_dim = 8, scale = 1.0}
         : tensor<?x8xf32>, tensor<?x8xf32>, !cache
  %o = lm.linear %a, %w {site = "o_proj"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %y = lm.add %x, %o : tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}
func.func @forward(%tokens: tensor<?xi32>, %batch: !lm.batch, %rows: tensor<?xi32>, %cache: !cache) -> tensor<?x4xf32> {
  %table = arith.constant dense<1.0> : tensor<16x8xf32>
  %0 = lm.embedding %tokens, %table : tensor<?xi32>, tensor<16x8xf32> -> tensor<?x8xf32>
  %1 = call @layer_0(%0, %batch, %cache) : (tensor<?x8xf32>, !lm.batch, !cache) -> tensor<?x8xf32>
  %2 = call @layer_1(%1, %batch, %cache) : (tensor<?x8xf32>, !lm.batch, !cache) -> tensor<?x8xf32>
  %a, %b = lm.split %2 : tensor<?x8xf32> -> tensor<?x4xf32>, tensor<?x4xf32>
  %g = lm.gelu %a approximate tanh : tensor<?x4xf32>
  %4 = lm.rows %g at %rows : tensor<?x4xf32>, tensor<?xi32>
  return %4 : tensor<?x4xf32>
}

// -----

// Not where other rows are needed too, nor where which rows is computed.

// CHECK-LABEL: func.func @needed(
// CHECK:         %[[Y:.*]] = lm.add
// CHECK-NEXT:    lm.gelu %[[Y]]
// CHECK-NEXT:    lm.rows %[[Y]]
func.func @needed(%x: tensor<?x8xf32>, %rows: tensor<?xi32>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %y = lm.add %x, %x : tensor<?x8xf32>
  %z = lm.gelu %y approximate none : tensor<?x8xf32>
  %r = lm.rows %y at %rows : tensor<?x8xf32>, tensor<?xi32>
  return %z, %r : tensor<?x8xf32>, tensor<?x8xf32>
}

// CHECK-LABEL: func.func @computed(
// CHECK:         %[[Y:.*]] = lm.add
// CHECK:         lm.rows %[[Y]]
func.func @computed(%x: tensor<?x8xf32>, %rows: tensor<?xi32>) -> tensor<?x8xf32> {
  %y = lm.add %x, %x : tensor<?x8xf32>
  %next = arith.addi %rows, %rows : tensor<?xi32>
  %r = lm.rows %y at %next : tensor<?x8xf32>, tensor<?xi32>
  return %r : tensor<?x8xf32>
}

// -----

// A layer that is called twice stays.

// CHECK-LABEL: func.func private @shared(
// CHECK-LABEL: func.func @twice(
// CHECK:         call @shared
// CHECK:         call @shared
// CHECK:         lm.rows
func.func private @shared(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  return %x : tensor<?x8xf32>
}
func.func @twice(%x: tensor<?x8xf32>, %rows: tensor<?xi32>) -> tensor<?x8xf32> {
  %1 = call @shared(%x) : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %2 = call @shared(%1) : (tensor<?x8xf32>) -> tensor<?x8xf32>
  %3 = lm.rows %2 at %rows : tensor<?x8xf32>, tensor<?xi32>
  return %3 : tensor<?x8xf32>
}
