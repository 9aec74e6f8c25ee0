// Scales of f16 become f32 in registers; zero points, in fields of the width of their codes, come a word for several rows.

// RUN: easyquant-opt %s --easyquant-launches=target=sm_80 | FileCheck %s
// RUN: easyquant-opt %s --easyquant-launches=target=sm_80 --equant-lower-to-nvvm="target=sm_80" --equant-emit-gpu-binary="ptx=%t.ptx" -o /dev/null
// RUN: FileCheck %s --check-prefix=PTX < %t.ptx

// PTX-LABEL: .visible .entry linear_96x64_i2_sf16_g32_q_f32_dot_1(
// PTX: ld.global.nc.b16
// PTX: cvt.f32.f16
// PTX-LABEL: .visible .entry linear_96x64_i2_sf16_g32_q_f32_mma_32x64x32(
// PTX: ld.global.nc.b32
// PTX: cvt.f32.f16
// PTX: cvt.f32.f16
// PTX-LABEL: .visible .entry linear_96x64_i4_sf16_g32_zp_bf16_f32_stream_1(
// PTX-NOT: ld.global.nc.b8
// PTX: cvt.f32.f16
// PTX-NOT: ld.global.nc.b8
// PTX: .visible .entry linear_96x64_i4_sf16_g32_zp_bf16_f32_stream_8(

!w2 = !equant.weight<96x64, #equant.scheme<i2, symmetric, group = 32, scale = f16>, #equant.layout<m16n8k32>>
!w4 = !equant.weight<96x64, #equant.scheme<i4, asymmetric, group = 32, scale = f16>, #equant.layout<m16n8k16>>
#token = #equant.scheme<i8, symmetric, token, dynamic>
ml_program.global private @w2(#ml_program.extern : !w2) : !w2 {equant.offset = array<i64: 0, 4096>}
ml_program.global private @w4(#ml_program.extern : !w4) : !w4 {equant.offset = array<i64: 8192, 16384, 20480>}

// CHECK-LABEL: func.func @block(
// CHECK: launch.kernel {{[a-z]+}} @kernels::@quantize_64_f32(
// CHECK: launch.kernel {{[a-z]+}} @kernels::@linear_96x64_i2_sf16_g32_q_f32_dot_1(
// CHECK: launch.kernel {{[a-z]+}} @kernels::@linear_96x64_i4_sf16_g32_zp_bf16_f32_stream_1(
func.func @block(%x: tensor<?x64xf32>) -> (tensor<?x96xf32>, tensor<?x96xf32>) {
  %w2 = ml_program.global_load_const @w2 : !w2
  %y = equant.packed_linear %x, %w2 {sites = ["a"], input_scheme = #token} : (tensor<?x64xf32>, !w2) -> tensor<?x96xf32>
  %w4 = ml_program.global_load_const @w4 : !w4
  %z = equant.packed_linear %x, %w4 {sites = ["b"]} : (tensor<?x64xf32>, !w4) -> tensor<?x96xf32>
  return %y, %z : tensor<?x96xf32>, tensor<?x96xf32>
}
