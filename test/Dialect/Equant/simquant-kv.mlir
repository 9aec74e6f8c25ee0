// RUN: easyquant-opt %s --equant-simquant-kv | FileCheck %s
// RUN: easyquant-opt %s --equant-simquant-kv="scheme=int2 group=32 residual=64 sinks=0 keys=pre-rope key-scales=token" \
// RUN:   | FileCheck %s --check-prefix=BEFORE

// RUN: easyquant-opt %s --equant-simquant-kv="keys=hadamard" | easyquant-opt | FileCheck %s --check-prefix=BASIS

!cache = !lm.kv_cache<layers = 1, kv_heads = 3, head_dim = 64>

// Keys come behind their rotary rotation, and have a slice a token.
// BASIS: %[[KR:.*]] = lm.rope %{{.*}} : tensor<?x192xf32>
// BASIS: equant.attention %{{.*}}, %[[KR]], %{{.*}} {
// BASIS-SAME: kv_scheme = #equant.kv_scheme<code = i4, group = 64, residual = 128, sinks = 4, keys = token, hadamard = 64>

// CHECK-LABEL: func.func private @layer_0(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<?x576xf32>, %[[K:[^:]*]]: tensor<?x192xf32>, %[[V:[^:]*]]: tensor<?x192xf32>,
// CHECK-SAME: %[[BATCH:[^:]*]]: !lm.batch, %[[CACHE:[^:]*]]: !lm.kv_cache<
// CHECK: %[[KR:.*]] = lm.rope %[[K]],
// CHECK-NOT: lm.attention
// CHECK: equant.attention %{{.*}}, %[[KR]], %[[V]], %[[CACHE]], %[[BATCH]]
// CHECK-SAME: kv_scheme = #equant.kv_scheme<code = i4, group = 64, residual = 128, sinks = 4, keys = channel>
// CHECK-SAME: layer = 0 : i64, num_heads = 9 : i64, num_kv_heads = 3 : i64, scale = 1.250000e-01 : f64, window = 100 : i64

// The rotation of the keys goes; that of the queries stays.
// BEFORE-LABEL: func.func private @layer_0(
// BEFORE-SAME: %[[Q:[^:]*]]: tensor<?x576xf32>, %[[K:[^:]*]]: tensor<?x192xf32>
// BEFORE: %[[TABLE:.*]] = ml_program.global_load_const
// BEFORE: %[[QR:.*]] = lm.rope %[[Q]],
// BEFORE-NOT: lm.rope
// BEFORE: equant.attention %[[QR]], %[[K]], %{{.*}} rope(%[[TABLE]] : tensor<256x32x2xf32>)
// BEFORE-SAME: kv_scheme = #equant.kv_scheme<code = i2, group = 32, residual = 64, sinks = 0, keys = token>

ml_program.global private @rope(#ml_program.extern : tensor<256x32x2xf32>) : tensor<256x32x2xf32>

func.func private @layer_0(%q: tensor<?x576xf32>, %k: tensor<?x192xf32>, %v: tensor<?x192xf32>, %batch: !lm.batch,
                           %cache: !cache) -> tensor<?x576xf32> {
  %table = ml_program.global_load_const @rope : tensor<256x32x2xf32>
  %qr = lm.rope %q, %table, %batch {head_dim = 64 : i64} : tensor<?x576xf32>, tensor<256x32x2xf32>
  %kr = lm.rope %k, %table, %batch {head_dim = 64 : i64} : tensor<?x192xf32>, tensor<256x32x2xf32>
  %y = lm.attention %qr, %kr, %v, %cache, %batch
         {layer = 0 : i64, num_heads = 9 : i64, num_kv_heads = 3 : i64, head_dim = 64 : i64, scale = 1.25e-01 : f64, window = 100 : i64}
         : tensor<?x576xf32>, tensor<?x192xf32>, !cache
  return %y : tensor<?x576xf32>
}
