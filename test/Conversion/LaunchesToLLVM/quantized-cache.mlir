// RUN: easyquant-opt %s --easyquant-launches=max-rows=4 --convert-launches-to-llvm | FileCheck %s
// RUN: easyquant-opt %s "--easyquant-launches=max-rows=4 kv-cache=f32" --convert-launches-to-llvm | FileCheck %s --check-prefix=F32

// Two layers of one kv head of 8. In a page of 64 tokens, each has 4 + 4 bytes of int4 codes a token, slices of 4 bytes a value and of
// 2 · 8 · 2 bytes for 16 keys (f16); in the window, 1 + 16 float rows of keys and of values, each padded to 64 bytes.

// CHECK: module attributes {equant.program = {
// CHECK-SAME: cache = {page_bytes = 1792 : i64, page_tokens = 64 : i64, window_bytes = 1280 : i64},
// CHECK-SAME: cache_scheme = {bits = 4 : i64, group_size = 16 : i64, key_scales = "channel", keys = "pre-rope", residual = 16 : i64, sinks = 1 : i64},
// CHECK-SAME: cache_type = "f16"
// F32: cache = {page_bytes = 2560 : i64, page_tokens = 64 : i64, window_bytes = 2304 : i64},{{.*}} cache_type = "f32"

ml_program.global private @rope(#ml_program.extern : tensor<64x4x2xf32>) : tensor<64x4x2xf32> {equant.offset = 0 : i64}

!cache = !lm.kv_cache<layers = 2, kv_heads = 1, head_dim = 8>
#kv = #equant.kv_scheme<code = i4, group = 16, residual = 16, sinks = 1, keys = channel>

// CHECK-LABEL: func.func private @forward.kernels(
// CHECK-SAME: %[[PAGES:[^:]*]]: memref<?xi64>, %{{[^:]*}}: memref<?x8xf32{{.*}}>, %[[BATCH:[^:]*]]: memref<?x9xi32>,
// CHECK: %[[LAYER:.*]] = arith.constant 896 : index
// CHECK: %[[BEHIND:.*]] = arith.constant 640 : index
// CHECK: %[[WINDOWS:.*]] = arith.constant 1280 : index
// CHECK: call @attention_1of1x8_{{.*}}_f16_kv4_group16_residual16_sinks1_rope64(%{{.*}}, %{{.*}}, %[[PAGES]], %[[BATCH]], %[[LAYER]], %[[BEHIND]], %[[WINDOWS]], %{{.*}}
func.func @forward(%x: tensor<?x8xf32>, %batch: !lm.batch, %cache: !cache) -> tensor<?x8xf32> {
  %table = ml_program.global_load_const @rope : tensor<64x4x2xf32>
  %y = equant.attention %x, %x, %x, %cache, %batch rope(%table : tensor<64x4x2xf32>)
         {layer = 1 : i64, num_heads = 1 : i64, num_kv_heads = 1 : i64, head_dim = 8 : i64, scale = 5.0e-01 : f64, kv_scheme = #kv}
         : tensor<?x8xf32>, tensor<?x8xf32>, !cache
  return %y : tensor<?x8xf32>
}
