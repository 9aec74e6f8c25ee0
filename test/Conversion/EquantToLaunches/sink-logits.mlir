// A product more in each softmax is an operand of the kernels, whatever the cache holds. Clamped gates have kernels, too.

// RUN: easyquant-opt %s --easyquant-launches="target=avx2 max-rows=64" --launch-print | FileCheck %s
// RUN: easyquant-opt %s --equant-simquant-kv="group=16 residual=16" --easyquant-launches="target=avx2 max-rows=64" --launch-print | FileCheck %s --check-prefix=CODES
// RUN: easyquant-opt %s --easyquant-launches=target=sm_80 --launch-print | FileCheck %s --check-prefix=GPU
// RUN: easyquant-opt %s --equant-simquant-kv="group=16 residual=16" --easyquant-launches=target=sm_80 --launch-print | FileCheck %s --check-prefix=GPU-CODES
// RUN: easyquant-opt %s --equant-check-plans=target=cpu,gpu

// CHECK: launch.kernel attention @attention_2of1x16_scale3f000000_sinklogits_f32(
// CHECK: launch.kernel other @clamped_mul_32(
// CODES: launch.kernel attention @attention_2of1x16_scale3f000000_sinklogits_f16_kv4_group16_residual16_sinks4(
// GPU: %[[SINKS:.*]] = memref.get_global @s
// GPU: launch.kernel attention @kernels::@attention_2of1x16_scale3f000000_sinklogits_split256_f32({{.*}}, %[[SINKS]], %{{.*}})
// GPU: launch.kernel attention @kernels::@attention_2of1x16_scale3f000000_sinklogits_blocked_f32({{.*}}, %[[SINKS]], %{{.*}})
// GPU: launch.kernel other @kernels::@clamped_mul_32_f32_to_f32(
// GPU-CODES: %[[SINKS:.*]] = memref.get_global @s
// GPU-CODES: launch.kernel attention @kernels::@attention_2of1x16_scale3f000000_sinklogits_kv4_group16_residual16_sinks4_split256_f32({{.*}}, %[[SINKS]], %{{.*}})

!cache = !lm.kv_cache<layers = 1, kv_heads = 1, head_dim = 16>
ml_program.global private @s(#ml_program.extern : tensor<2xf32>) : tensor<2xf32> {equant.offset = 0 : i64}

func.func @forward(%q: tensor<?x32xf32>, %k: tensor<?x16xf32>, %batch: !lm.batch, %cache: !cache) -> tensor<?x32xf32> {
  %s = ml_program.global_load_const @s : tensor<2xf32>
  %y = lm.attention %q, %k, %k, %cache, %batch sink_logits(%s : tensor<2xf32>)
         {layer = 0, num_heads = 2, num_kv_heads = 1, head_dim = 16, scale = 0.5 : f64} : tensor<?x32xf32>, tensor<?x16xf32>, !cache loc("layer")
  %z = lm.glu clamped %y, %q : tensor<?x32xf32>
  return %z : tensor<?x32xf32>
}
