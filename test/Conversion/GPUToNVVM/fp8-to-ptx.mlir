// FP8 on FP8: codes are multiplied as they are where the chip has such products, else as f16, which holds them all.

// RUN: easyquant-opt %s --easyquant-launches=target=sm_89 | FileCheck %s
// RUN: easyquant-opt %s --easyquant-launches=target=sm_89 --equant-lower-to-nvvm="target=sm_89" --equant-emit-gpu-binary="ptx=%t.89.ptx" -o /dev/null
// RUN: FileCheck %s --check-prefixes=PTX,OWN < %t.89.ptx
// RUN: easyquant-opt %s --easyquant-launches=target=sm_90a --equant-lower-to-nvvm="target=sm_90a" --equant-emit-gpu-binary="ptx=%t.90a.ptx" -o /dev/null
// RUN: FileCheck %s --check-prefixes=PTX,HALF < %t.90a.ptx

// PTX: .visible .entry quantize_256_f32_f8E4M3FN(
// PTX: .visible .entry linear_96x256_f8E4M3FN_q_f32_dot_16(
// OWN-NOT: m16n8k16
// OWN: mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32
// HALF-NOT: e4m3.e4m3
// HALF: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
// PTX: .visible .entry linear_96x256_f8E4M3FN_q_f32_mma_
// OWN-NOT: m16n8k16
// OWN: mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32
// HALF-NOT: e4m3.e4m3
// HALF: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
// PTX: .visible .entry quantize_256_f32_static_f8E4M3FN(

!w = !equant.weight<96x256, #equant.scheme<f8E4M3FN, channel>, #equant.layout<m16n8k32>>
ml_program.global private @w(#ml_program.extern : !w) : !w {equant.offset = array<i64: 0, 32768>}

// CHECK-LABEL: func.func @block(
// CHECK: launch.kernel {{[a-z]+}} @kernels::@quantize_256_f32_f8E4M3FN(
// CHECK: launch.kernel {{[a-z]+}} @kernels::@linear_96x256_f8E4M3FN_q_f32_dot_16(
// CHECK: launch.kernel {{[a-z]+}} @kernels::@quantize_256_f32_static_f8E4M3FN(
// CHECK: launch.kernel {{[a-z]+}} @kernels::@linear_96x256_f8E4M3FN_q_f32_dot_16(
func.func @block(%x: tensor<?x256xf32>) -> (tensor<?x96xf32>, tensor<?x96xf32>) {
  %w = ml_program.global_load_const @w : !w
  %y = equant.packed_linear %x, %w {sites = ["dynamic"], input_scheme = #equant.scheme<f8E4M3FN, token, dynamic>}
    : (tensor<?x256xf32>, !w) -> tensor<?x96xf32>
  %z = equant.packed_linear %x, %w {sites = ["static"], input_scale = 2.5e-01 : f32, input_scheme = #equant.scheme<f8E4M3FN, tensor>}
    : (tensor<?x256xf32>, !w) -> tensor<?x96xf32>
  return %y, %z : tensor<?x96xf32>, tensor<?x96xf32>
}
