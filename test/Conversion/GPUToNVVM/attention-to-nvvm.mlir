// The kernels of what is between the projections: rotation, the cache and attention, for sequences with ever more rows.

// RUN: easyquant-opt %s --easyquant-launches=target=sm_80 -o %t.kernels
// RUN: FileCheck %s < %t.kernels
// RUN: easyquant-opt %s --easyquant-gpu-pipeline="target=sm_80" | FileCheck %s --check-prefix=NVVM

// CHECK: gpu.module @kernels {
// CHECK-LABEL: func.func @block(
// The caller's rows are not overwritten.
// CHECK: launch.kernel {{[a-z]+}} @kernels::@copy_64_f32_to_f32(
// CHECK: launch.kernel {{[a-z]+}} @kernels::@heads_4x16_rope128(
// CHECK: launch.kernel {{[a-z]+}} @kernels::@kv_append_2x16(
// CHECK: launch.kernel {{[a-z]+}} @kernels::@attention_{{.*}}_split256_f32(
// CHECK: launch.kernel {{[a-z]+}} @kernels::@attention_{{.*}}_blocked_f32(

// NVVM: gpu.module @kernels [#nvvm.target<chip = "sm_80">] {
// NVVM-NOT: scf.
// NVVM: nvvm.kernel

func.func @block(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %v: tensor<?x32xf32>, %table: tensor<128x8x2xf32>,
                 %cache: !lm.kv_cache<layers = 1, kv_heads = 2, head_dim = 16>, %batch: !lm.batch) -> tensor<?x64xf32> {
  %r = lm.rope %q, %table, %batch {head_dim = 16} : tensor<?x64xf32>, tensor<128x8x2xf32>
  %a = lm.attention %r, %k, %v, %cache, %batch
         {layer = 0, num_heads = 4, num_kv_heads = 2, head_dim = 16, scale = 0.25}
         : tensor<?x64xf32>, tensor<?x32xf32>, !lm.kv_cache<layers = 1, kv_heads = 2, head_dim = 16>
  return %a : tensor<?x64xf32>
}
