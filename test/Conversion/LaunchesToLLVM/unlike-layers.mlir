// RUN: easyquant-opt %s --easyquant-launches=max-rows=4 --convert-launches-to-llvm | FileCheck %s
// RUN: easyquant-opt %s --easyquant-launches=target=sm_80 --launch-print | FileCheck %s --check-prefix=GPU
// RUN: easyquant-opt %s --equant-simquant-kv="group=16 residual=32 sinks=0" --easyquant-launches=target=sm_80 --launch-print | FileCheck %s --check-prefix=CODES
// RUN: easyquant-opt %s --equant-check-plans=target=cpu,gpu

// Layers whose heads differ in number and size: a page of 64 tokens has 2 · 64 · 4 bytes for each column of keys, layer by layer, and each
// layer begins behind those before it.

// CHECK: module attributes {equant.program = {
// CHECK-SAME: cache = {page_bytes = 28672 : i64, page_tokens = 64 : i64, window_bytes = 0 : i64},
// CHECK-LABEL: func.func private @forward.kernels(
// CHECK: call @attention_2of2x8_{{[^,]*}}, {{.*}}, %c0{{[_0-9]*}},
// CHECK: %[[SECOND:.*]] = arith.constant 8192 : index
// CHECK: call @attention_1of1x16_{{.*}}, %[[SECOND]],
// CHECK: %[[THIRD:.*]] = arith.constant 16384 : index
// CHECK: call @attention_3of3x8_{{.*}}, %[[THIRD]],

// Pages of GPUs, and windows beside codes, are laid out alike.

// GPU-LABEL: func.func @forward(
// GPU: launch.cache %{{.*}} from 0 :
// GPU: launch.kernel attention @kernels::@attention_2of2x8_
// GPU: %[[SECOND:.*]] = launch.cache %{{.*}} from 4096 :
// GPU: launch.kernel attention @kernels::@attention_1of1x16_{{[^,]*}}, %{{[^,]*}}, %[[SECOND]],
// GPU: %[[THIRD:.*]] = launch.cache %{{.*}} from 8192 :
// GPU: launch.kernel attention @kernels::@attention_3of3x8_{{[^,]*}}, %{{[^,]*}}, %[[THIRD]],

// CODES-LABEL: func.func @forward(
// CODES: launch.cache %{{.*}} from 1792 :
// CODES-NEXT: %[[WINDOW:.*]] = launch.cache %{{.*}} from 2048 :
// CODES-NEXT: %[[ALL:.*]] = arith.constant 7168 : index
// CODES: launch.kernel attention @kernels::@attention_1of1x16_{{.*}}, %[[WINDOW]], %[[ALL]],
// CODES-LABEL: func.func @forward.restore(
// CODES: launch.cache %{{.*}} from 3328 :
// CODES-NEXT: %[[WINDOW:.*]] = launch.cache %{{.*}} from 4096 :
// CODES-NEXT: %[[ALL:.*]] = arith.constant 7168 : index
// CODES: launch.kernel attention @kernels::@kv_restore_3x8_{{.*}}, %[[WINDOW]], %[[ALL]],

!cache = !lm.kv_cache<layers = 3, kv_heads = [2, 1, 3], head_dim = [8, 16, 8]>

func.func @forward(%x: tensor<?x16xf32>, %z: tensor<?x24xf32>, %batch: !lm.batch, %cache: !cache) -> tensor<?x24xf32> {
  %a = lm.attention %x, %x, %x, %cache, %batch
         {layer = 0, num_heads = 2, num_kv_heads = 2, head_dim = 8, scale = 0.5} : tensor<?x16xf32>, tensor<?x16xf32>, !cache loc("first")
  %b = lm.attention %a, %a, %a, %cache, %batch
         {layer = 1, num_heads = 1, num_kv_heads = 1, head_dim = 16, scale = 0.5} : tensor<?x16xf32>, tensor<?x16xf32>, !cache
  %c = lm.add %x, %b : tensor<?x16xf32>
  %d = lm.attention %z, %z, %z, %cache, %batch
         {layer = 2, num_heads = 3, num_kv_heads = 3, head_dim = 8, scale = 0.5} : tensor<?x24xf32>, tensor<?x24xf32>, !cache
  return %d : tensor<?x24xf32>
}
