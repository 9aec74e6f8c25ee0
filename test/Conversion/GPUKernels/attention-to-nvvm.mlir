// The kernels of what is between the projections: rotation, the cache and attention, for ever more rows.

// RUN: easyquant-opt %s --equant-emit-gpu-kernels="chip=sm_80" -o %t.kernels
// RUN: FileCheck %s < %t.kernels
// RUN: easyquant-opt %s --easyquant-gpu-pipeline="chip=sm_80" | FileCheck %s --check-prefix=NVVM

// CHECK: gpu.module @kernels {
// CHECK-LABEL: func.func @block(
// CHECK: lm.rope {{.*}}equant.kernels = [@kernels::@
// CHECK: lm.attention {{.*}}equant.kernels = [@kernels::@{{.*}}, @kernels::@

// NVVM: gpu.module @kernels [#nvvm.target<chip = "sm_80">] {
// NVVM-NOT: scf.
// NVVM: nvvm.kernel

func.func @block(%q: tensor<?x64xf32>, %k: tensor<?x32xf32>, %v: tensor<?x32xf32>, %table: tensor<128x8x2xf32>,
                 %cache: !lm.kv_cache<layers = 1, kv_heads = 2, head_dim = 16>, %position: index) -> tensor<?x64xf32> {
  %r = lm.rope %q, %table, %position {head_dim = 16} : tensor<?x64xf32>, tensor<128x8x2xf32>
  %a = lm.attention %r, %k, %v, %cache, %position
         {layer = 0, num_heads = 4, num_kv_heads = 2, head_dim = 16, scale = 0.25}
         : tensor<?x64xf32>, tensor<?x32xf32>, !lm.kv_cache<layers = 1, kv_heads = 2, head_dim = 16>
  return %a : tensor<?x64xf32>
}
