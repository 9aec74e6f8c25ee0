// RUN: easyquant-opt %s --split-input-file --verify-diagnostics | easyquant-opt --split-input-file | FileCheck %s

!cache = !lm.kv_cache<layers = 1, kv_heads = 1, head_dim = 8>

// CHECK-LABEL: @both_forms
// CHECK: equant.attention %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} {head_dim = 8 : i64,
// CHECK-SAME: kv_scheme = #equant.kv_scheme<code = i2, group = 16, residual = 32, sinks = 1, keys = channel>
// CHECK: equant.attention %{{.*}}, %{{.*}} rope(%{{.*}} : tensor<40x4x2xf32>) {
// CHECK-SAME: kv_scheme = #equant.kv_scheme<code = i8, group = 16, residual = 32, sinks = 1, keys = token>
func.func @both_forms(%q: tensor<?x16xf32>, %k: tensor<?x8xf32>, %p: !lm.batch, %table: tensor<40x4x2xf32>, %cache: !cache) {
  %y = equant.attention %q, %k, %k, %cache, %p
    {layer = 0, num_heads = 2, num_kv_heads = 1, head_dim = 8, scale = 0.5 : f64,
     kv_scheme = #equant.kv_scheme<code = i2, group = 16, residual = 32, sinks = 1, keys = channel>}
    : tensor<?x16xf32>, tensor<?x8xf32>, !cache
  %z = equant.attention %q, %k, %k, %cache, %p rope(%table : tensor<40x4x2xf32>)
    {layer = 0, num_heads = 2, num_kv_heads = 1, head_dim = 8, scale = 0.5 : f64,
     kv_scheme = #equant.kv_scheme<code = i8, group = 16, residual = 32, sinks = 1, keys = token>}
    : tensor<?x16xf32>, tensor<?x8xf32>, !cache
  return
}

// CHECK-LABEL: @sink_logits
// CHECK: equant.attention %{{.*}}, %{{.*}} sink_logits(%{{.*}} : tensor<2xf32>) {
// CHECK: equant.attention %{{.*}}, %{{.*}} rope(%{{.*}} : tensor<40x4x2xf32>) sink_logits(%{{.*}} : tensor<2xf32>) {
func.func @sink_logits(%q: tensor<?x16xf32>, %k: tensor<?x8xf32>, %p: !lm.batch, %table: tensor<40x4x2xf32>, %s: tensor<2xf32>, %cache: !cache) {
  %y = equant.attention %q, %k, %k, %cache, %p sink_logits(%s : tensor<2xf32>)
    {layer = 0, num_heads = 2, num_kv_heads = 1, head_dim = 8, scale = 0.5 : f64,
     kv_scheme = #equant.kv_scheme<code = i2, group = 16, residual = 32, sinks = 1, keys = channel>}
    : tensor<?x16xf32>, tensor<?x8xf32>, !cache
  %z = equant.attention %q, %k, %k, %cache, %p rope(%table : tensor<40x4x2xf32>) sink_logits(%s : tensor<2xf32>)
    {layer = 0, num_heads = 2, num_kv_heads = 1, head_dim = 8, scale = 0.5 : f64,
     kv_scheme = #equant.kv_scheme<code = i8, group = 16, residual = 32, sinks = 1, keys = token>}
    : tensor<?x16xf32>, tensor<?x8xf32>, !cache
  return
}
