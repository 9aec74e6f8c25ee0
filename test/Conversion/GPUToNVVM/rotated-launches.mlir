// Rows in a rotated basis: one launch of the kernel that makes, rotates and writes them. Blocks of 64 columns are those of lanes of one
// warp; longer ones are of several vectors of a thread, and none needs shared memory.

// RUN: easyquant-opt %s --easyquant-launches=target=sm_80 | FileCheck %s
// RUN: easyquant-opt %s --easyquant-launches=target=sm_80 --equant-lower-to-nvvm=target=sm_80 --equant-emit-gpu-binary="ptx=%t.ptx" -o /dev/null
// RUN: FileCheck %s --check-prefix=PTX < %t.ptx

// CHECK-LABEL: func.func @forward(
// CHECK:         launch.kernel other @kernels::@embedding_96x576_f32(
// CHECK-NOT:     launch.kernel
// CHECK:         launch.kernel other @kernels::@copy_576_h64_f32_to_f32(
// CHECK-NOT:     launch.kernel
// CHECK:         launch.kernel quantize @kernels::@rms_norm_576_eps3727c5ac_h64_f32_quantize(
// CHECK-NOT:     launch.kernel
// CHECK:         launch.kernel gemm
// CHECK:         launch.kernel quantize @kernels::@silu_mul_1536_h512_f32_to_bf16(
// CHECK-NOT:     launch.kernel
// CHECK:         launch.kernel gemm

// A stage within a vector is a sum and a difference, one between lanes a shuffle, and every number goes through one product.
// PTX-LABEL: .entry copy_576_h64_f32_to_f32(
// PTX-NOT:     .shared
// PTX-COUNT-48: shfl.sync.bfly
// PTX-NOT:     shfl.sync
// PTX:         ret;
// PTX-LABEL: .entry silu_mul_1536_h512_f32_to_bf16(
// PTX-NOT:     .shared
// PTX-COUNT-80: shfl.sync.bfly
// PTX-NOT:     shfl.sync
// PTX:         ret;

!up = !equant.weight<3072x576, #equant.scheme<i8, symmetric, channel, hadamard = 64>, #equant.layout<m16n8k32>>
!down = !equant.weight<576x1536, #equant.scheme<i8, symmetric, channel, hadamard = 512>, #equant.layout<m16n8k16>>
ml_program.global private @table(#ml_program.extern : tensor<96x576xf32>) : tensor<96x576xf32> {equant.offset = 0 : i64}
ml_program.global private @up(#ml_program.extern : !up) : !up {equant.offset = array<i64: 4096, 8192>}
ml_program.global private @down(#ml_program.extern : !down) : !down {equant.offset = array<i64: 0, 4096>}
func.func @forward(%tokens: tensor<?xi32>, %one: tensor<576xf32>) -> tensor<?x576xf32> {
  %table = ml_program.global_load_const @table : tensor<96x576xf32>
  %up = ml_program.global_load_const @up : !up
  %down = ml_program.global_load_const @down : !down
  %e = lm.embedding %tokens, %table : tensor<?xi32>, tensor<96x576xf32> -> tensor<?x576xf32>
  %x = equant.hadamard %e {block = 64 : i64} : tensor<?x576xf32>
  %n = lm.rms_norm %x, %one {epsilon = 1.0e-05 : f64} : tensor<?x576xf32>
  %r = equant.hadamard %n {block = 64 : i64} : tensor<?x576xf32>
  %g = equant.packed_linear %r, %up {sites = ["gate", "up"], input_scheme = #equant.scheme<i8, symmetric, token, dynamic, hadamard = 64>}
         : (tensor<?x576xf32>, !up) -> tensor<?x3072xf32>
  %gate, %u = lm.split %g : tensor<?x3072xf32> -> tensor<?x1536xf32>, tensor<?x1536xf32>
  %s = lm.glu silu %gate, %u : tensor<?x1536xf32>
  %t = equant.hadamard %s {block = 512 : i64} : tensor<?x1536xf32>
  %y = equant.packed_linear %t, %down {sites = ["down"]} : (tensor<?x1536xf32>, !down) -> tensor<?x576xf32>
  return %y : tensor<?x576xf32>
}
