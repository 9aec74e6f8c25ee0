// A product more in each softmax is an operand of the kernels of CPUs, whatever the cache holds; GPUs have none for it, nor for a clamped gate.

// RUN: easyquant-opt %s --easyquant-launches="target=avx2 max-rows=64" --launch-print | FileCheck %s
// RUN: easyquant-opt %s --equant-simquant-kv="group=16 residual=16" --easyquant-launches="target=avx2 max-rows=64" --launch-print | FileCheck %s --check-prefix=CODES
// RUN: not easyquant-opt %s --easyquant-launches=target=sm_80 2>&1 | FileCheck %s --check-prefix=GPU
// RUN: not easyquant-opt %s --equant-simquant-kv="group=16 residual=16" --easyquant-launches=target=sm_80 2>&1 | FileCheck %s --check-prefix=GPU
// RUN: not easyquant-opt %s --equant-check-plans=target=cpu,gpu 2>&1 | FileCheck %s --check-prefix=PLANS
// RUN: easyquant-opt %s --equant-check-plans=target=cpu

// CHECK: launch.kernel attention @attention_2of1x16_scale3f000000_sinklogits_f32(
// CHECK: launch.kernel other @clamped_mul_32(
// CODES: launch.kernel attention @attention_2of1x16_scale3f000000_sinklogits_f16_kv4_group16_residual16_sinks4(
// GPU: error: {{.*}}attention' op has sink logits, for which there is no GPU kernel; compile it with --target cpu
// PLANS: 'lm.attention' op at 'layer' has sink logits, for which GPUs have no kernel yet; compile it with --target cpu

!cache = !lm.kv_cache<layers = 1, kv_heads = 1, head_dim = 16>
ml_program.global private @s(#ml_program.extern : tensor<2xf32>) : tensor<2xf32> {equant.offset = 0 : i64}

func.func @forward(%q: tensor<?x32xf32>, %k: tensor<?x16xf32>, %batch: !lm.batch, %cache: !cache) -> tensor<?x32xf32> {
  %s = ml_program.global_load_const @s : tensor<2xf32>
  %y = lm.attention %q, %k, %k, %cache, %batch sink_logits(%s : tensor<2xf32>)
         {layer = 0, num_heads = 2, num_kv_heads = 1, head_dim = 16, scale = 0.5 : f64} : tensor<?x32xf32>, tensor<?x16xf32>, !cache loc("layer")
  %z = lm.glu clamped %y, %q : tensor<?x32xf32>
  return %z : tensor<?x32xf32>
}
