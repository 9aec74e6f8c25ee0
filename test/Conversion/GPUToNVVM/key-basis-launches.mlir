// Keys of a cache of codes in a basis of their heads: a stage of the kernel that rotates queries and keys by their positions, at once where
// they lie side by side. What is not rotated by its position goes to the basis in memory of its own. A session that goes back has codes of
// the basis, and a window in it.

// RUN: easyquant-opt %s "--easyquant-launches=target=sm_80 max-rows=16" | FileCheck %s
// RUN: easyquant-opt %s --easyquant-launches=target=sm_80 --equant-lower-to-nvvm=target=sm_80 --equant-emit-gpu-binary="ptx=%t.ptx" -o /dev/null
// RUN: FileCheck %s --check-prefix=PTX < %t.ptx

// CHECK-LABEL: func.func @forward(
// CHECK:       launch.kernel gemm {{.*}}, 0>, site = "qkv"
// CHECK-NOT:   launch.kernel
// CHECK:       launch.kernel attention @kernels::@heads_4_2x16_rope64_h16(
// CHECK:       launch.kernel attention @kernels::@attention_
// CHECK:       launch.kernel gemm {{.*}}, 0>, site = "v"
// CHECK-NOT:   launch.kernel
// CHECK:       launch.kernel attention @kernels::@heads_4x16_rope64_h16(
// CHECK-NOT:   launch.kernel
// CHECK:       launch.kernel attention @kernels::@heads_2x16_rope64_h16(
// CHECK-NOT:   launch.kernel
// CHECK:       launch.kernel attention @kernels::@attention_
// CHECK:       launch.kernel attention @kernels::@copy_64_h16_f32_to_f32(
// CHECK:       launch.kernel attention @kernels::@copy_32_h16_f32_to_f32(
// CHECK:       launch.kernel attention @kernels::@attention_
// CHECK-LABEL: func.func @forward.restore(
// CHECK-COUNT-3: launch.kernel attention @kernels::@kv_restore_2x16_

// Eight lanes have a head: three stages are between them, of two numbers each, and one is in registers.
// PTX-LABEL: .entry heads_4_2x16_rope64_h16(
// PTX-NOT:     .shared
// PTX-COUNT-6: shfl.sync.bfly
// PTX-NOT:     shfl.sync
// PTX:         ret;
ml_program.global private @e(#ml_program.extern : tensor<40x64xf32>) : tensor<40x64xf32> {equant.offset = 0 : i64, equant.bf16_offset = 16384 : i64}
ml_program.global private @w(#ml_program.extern : tensor<128x64xf32>) : tensor<128x64xf32> {equant.bf16_offset = 32768 : i64}
ml_program.global private @u(#ml_program.extern : tensor<64x64xf32>) : tensor<64x64xf32> {equant.bf16_offset = 65536 : i64}
ml_program.global private @z(#ml_program.extern : tensor<32x64xf32>) : tensor<32x64xf32> {equant.bf16_offset = 98304 : i64}
ml_program.global private @rope(#ml_program.extern : tensor<64x8x2xf32>) : tensor<64x8x2xf32> {equant.offset = 131072 : i64}

!cache = !lm.kv_cache<layers = 3, kv_heads = 2, head_dim = 16>
#kv = #equant.kv_scheme<code = i4, group = 16, residual = 16, sinks = 4, keys = token, hadamard = 16>

func.func @forward(%tokens: tensor<?xi32>, %batch: !lm.batch, %cache: !cache) -> tensor<?x64xf32> {
  %e = ml_program.global_load_const @e : tensor<40x64xf32>
  %w = ml_program.global_load_const @w : tensor<128x64xf32>
  %u = ml_program.global_load_const @u : tensor<64x64xf32>
  %z = ml_program.global_load_const @z : tensor<32x64xf32>
  %table = ml_program.global_load_const @rope : tensor<64x8x2xf32>
  %x = lm.embedding %tokens, %e : tensor<?xi32>, tensor<40x64xf32> -> tensor<?x64xf32>
  %qkv = lm.linear %x, %w {site = "qkv"} : (tensor<?x64xf32>, tensor<128x64xf32>) -> tensor<?x128xf32>
  %q, %k, %v = lm.split %qkv : tensor<?x128xf32> -> tensor<?x64xf32>, tensor<?x32xf32>, tensor<?x32xf32>
  %qr = lm.rope %q, %table, %batch {head_dim = 16} : tensor<?x64xf32>, tensor<64x8x2xf32>
  %kr = lm.rope %k, %table, %batch {head_dim = 16} : tensor<?x32xf32>, tensor<64x8x2xf32>
  %a = equant.attention %qr, %kr, %v, %cache, %batch
         {layer = 0, num_heads = 4, num_kv_heads = 2, head_dim = 16, scale = 0.25 : f64, kv_scheme = #kv} : tensor<?x64xf32>, tensor<?x32xf32>, !cache
  %q1 = lm.linear %a, %u {site = "q"} : (tensor<?x64xf32>, tensor<64x64xf32>) -> tensor<?x64xf32>
  %k1 = lm.linear %a, %z {site = "k"} : (tensor<?x64xf32>, tensor<32x64xf32>) -> tensor<?x32xf32>
  %v1 = lm.linear %a, %z {site = "v"} : (tensor<?x64xf32>, tensor<32x64xf32>) -> tensor<?x32xf32>
  %q1r = lm.rope %q1, %table, %batch {head_dim = 16} : tensor<?x64xf32>, tensor<64x8x2xf32>
  %k1r = lm.rope %k1, %table, %batch {head_dim = 16} : tensor<?x32xf32>, tensor<64x8x2xf32>
  %b = equant.attention %q1r, %k1r, %v1, %cache, %batch
         {layer = 1, num_heads = 4, num_kv_heads = 2, head_dim = 16, scale = 0.25 : f64, kv_scheme = #kv} : tensor<?x64xf32>, tensor<?x32xf32>, !cache
  %c = equant.attention %b, %v1, %v1, %cache, %batch
         {layer = 2, num_heads = 4, num_kv_heads = 2, head_dim = 16, scale = 0.25 : f64, kv_scheme = #kv} : tensor<?x64xf32>, tensor<?x32xf32>, !cache
  return %c : tensor<?x64xf32>
}
