// Scales of f16 become f32 in registers; zero points, in fields of the width of their codes, come a word for several rows.

// RUN: easyquant-opt %s --easyquant-launches=target=sm_80 | FileCheck %s
// RUN: easyquant-opt %s --easyquant-launches=target=sm_80 --equant-lower-to-nvvm="chip=sm_80" --equant-emit-gpu-binary="ptx=%t.ptx" -o /dev/null
// RUN: FileCheck %s --check-prefix=PTX < %t.ptx

// PTX-LABEL: .visible .entry linear_96x64_i2_sf16_g32_q_f32_dp4a_1(
// PTX: ld.global.nc.b16
// PTX: cvt.f32.f16
// PTX-LABEL: .visible .entry linear_96x64_i2_sf16_g32_q_f32_mma_16x128x32(
// PTX: ld.global.nc.b32
// PTX: cvt.f32.f16
// PTX: cvt.f32.f16
// PTX-LABEL: .visible .entry linear_96x64_i4_sf16_g32_zp_bf16_f32_stream_1(
// PTX-NOT: ld.global.nc.b8
// PTX: cvt.f32.f16
// PTX-NOT: ld.global.nc.b8
// PTX: .visible .entry linear_96x64_i4_sf16_g32_zp_bf16_f32_stream_8(

#w2 = #equant.scheme<i2, symmetric, group = 32, scale = f16>
#w4 = #equant.scheme<i4, asymmetric, group = 32, scale = f16>
#token = #equant.scheme<i8, symmetric, token, dynamic>

// CHECK-LABEL: func.func @block(
// CHECK: launch.kernel @kernels::@quantize_64_f32(
// CHECK: launch.kernel @kernels::@linear_96x64_i2_sf16_g32_q_f32_dp4a_1(
// CHECK: launch.kernel @kernels::@linear_96x64_i4_sf16_g32_zp_bf16_f32_stream_1(
func.func @block(%x: tensor<?x64xf32>, %codes2: tensor<96x64xi2>, %scale: tensor<96x2xf16>, %codes4: tensor<96x64xi4>,
                 %zero: tensor<96x2xi32>) -> (tensor<?x96xf32>, tensor<?x96xf32>) {
  %y = equant.linear %x, %codes2 scale(%scale) {sites = ["a"], weight_scheme = #w2, input_scheme = #token}
         : (tensor<?x64xf32>, tensor<96x64xi2>, tensor<96x2xf16>) -> tensor<?x96xf32>
  %z = equant.linear %x, %codes4 scale(%scale) zero_point(%zero) {sites = ["b"], weight_scheme = #w4}
         : (tensor<?x64xf32>, tensor<96x64xi4>, tensor<96x2xf16>, tensor<96x2xi32>) -> tensor<?x96xf32>
  return %y, %z : tensor<?x96xf32>, tensor<?x96xf32>
}
