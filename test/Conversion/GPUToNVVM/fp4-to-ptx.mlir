// NVFP4 on NVFP4: codes and scales are multiplied as they are where the chip has such products, else activations are rounded and bf16.

// RUN: easyquant-opt %s --easyquant-launches=target=sm_120a | FileCheck %s --check-prefix=BLOCKS
// RUN: easyquant-opt %s --easyquant-launches=target=sm_120a --equant-lower-to-nvvm="target=sm_120a" --equant-emit-gpu-binary="ptx=%t.ptx" -o /dev/null
// RUN: FileCheck %s --check-prefix=PTX < %t.ptx
// RUN: easyquant-opt %s --easyquant-launches=target=sm_90a | FileCheck %s --check-prefix=ROUNDED

// PTX: .visible .entry block_codes_256(
// PTX: .visible .entry linear_96x256_f4E2M1FN_sf8E4M3FN_g16_blocks_f32_dot(
// PTX: mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3
// PTX: .visible .entry linear_96x256_f4E2M1FN_sf8E4M3FN_g16_blocks_f32_mma_
// PTX: mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3
// PTX: .visible .entry linear_96x256_f4E2M1FN_sf8E4M3FN_outer_g16_blocks_accumulate_f32_dot(

!w = !equant.weight<96x256, #equant.scheme<f4E2M1FN, group = 16, scale = f8E4M3FN, outer = tensor>, #equant.layout<m16n8k16>>
!u = !equant.weight<96x256, #equant.scheme<f4E2M1FN, group = 16, scale = f8E4M3FN>, #equant.layout<m16n8k16>>
#x = #equant.scheme<f4E2M1FN, group = 16, dynamic, scale = f8E4M3FN, outer = tensor>
ml_program.global private @w(#ml_program.extern : !w) : !w {equant.offset = array<i64: 0, 16384, 20480>}
ml_program.global private @n(#ml_program.extern : tensor<256xf32>) : tensor<256xf32> {equant.offset = 65536 : i64}
ml_program.global private @u(#ml_program.extern : !u) : !u {equant.offset = array<i64: 32768, 49152>}

// The norm writes rows, which a kernel of its own makes codes of, once for both linears; the second is added to.
// BLOCKS-LABEL: func.func @block(
// BLOCKS: launch.kernel {{[a-z]+}} @kernels::@rms_norm_256
// BLOCKS: launch.kernel {{[a-z]+}} @kernels::@block_codes_256(
// BLOCKS-NOT: block_codes
// BLOCKS: launch.kernel {{[a-z]+}} @kernels::@linear_96x256_f4E2M1FN_sf8E4M3FN_g16_blocks_f32_dot(
// BLOCKS: launch.kernel {{[a-z]+}} @kernels::@linear_96x256_f4E2M1FN_sf8E4M3FN_g16_blocks_f32_mma_
// BLOCKS: launch.kernel {{[a-z]+}} @kernels::@linear_96x256_f4E2M1FN_sf8E4M3FN_outer_g16_blocks_accumulate_f32_dot(
// ROUNDED-LABEL: func.func @block(
// ROUNDED: launch.kernel {{[a-z]+}} @kernels::@fake_quantize_256_f4E2M1FN_g16_static_bf16(
// ROUNDED: launch.kernel {{[a-z]+}} @kernels::@linear_96x256_f4E2M1FN_sf8E4M3FN_g16_bf16_f32_stream_1(
// ROUNDED-NOT: blocks
func.func @block(%x: tensor<?x256xf32>) -> tensor<?x96xf32> {
  %n = ml_program.global_load_const @n : tensor<256xf32>
  %w = ml_program.global_load_const @w : !w
  %u = ml_program.global_load_const @u : !u
  %r = lm.rms_norm %x, %n {epsilon = 1.0e-5 : f64} : tensor<?x256xf32>
  %a = equant.packed_linear %r, %u {sites = ["a"], input_scale = 2.5e-03 : f32, input_scheme = #x} : (tensor<?x256xf32>, !u) -> tensor<?x96xf32>
  %b = equant.packed_linear %r, %w {sites = ["b"], input_scale = 2.5e-03 : f32, input_scheme = #x} : (tensor<?x256xf32>, !w) -> tensor<?x96xf32>
  %s = lm.add %a, %b : tensor<?x96xf32>
  return %s : tensor<?x96xf32>
}
