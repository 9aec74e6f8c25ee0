// Experts of NVFP4 on rows of NVFP4, which lie as the choices do: codes of gathered rows, and linears by lists of items.

// RUN: easyquant-opt %s --easyquant-launches="target=sm_120a max-rows=64" --launch-print | FileCheck %s

// CHECK-LABEL: func.func @forward(
// CHECK:         %[[ITEMS:.*]] = launch.buffer(%{{.*}}) {multiple = 3 : i64, offset = {{.*}}} : memref<?x8xi32>
// CHECK:         launch.kernel other @kernels::@gather_64_chosen(
// CHECK:         %[[CODES:.*]] = launch.buffer(%{{.*}}) {multiple = 2 : i64, offset = {{.*}}} : memref<?x32xi8>
// CHECK:         %[[SCALES:.*]] = launch.buffer(%{{.*}}) {multiple = 2 : i64, offset = {{.*}}} : memref<?x1xi32>
// CHECK:         %[[OUTER:.*]] = launch.buffer(%{{.*}}) {multiple = 2 : i64, offset = {{.*}}} : memref<?xf32>
// CHECK:         launch.kernel quantize @kernels::@block_codes_64({{.*}}%[[CODES]], %[[SCALES]], %[[OUTER]],
// CHECK:         launch.kernel gemm @kernels::@linear_64x64_f4E2M1FN_sf8E4M3FN_outer_g16_blocks_of4_f32_mma_16x{{.*}}(%[[CODES]], %[[SCALES]], %[[OUTER]], {{.*}}%[[ITEMS]], {{.*}}rows = array<i64: 1, 64>
// CHECK:         launch.kernel gemm @kernels::@linear_64x64_f4E2M1FN_sf8E4M3FN_outer_g16_blocks_of4_f32_mma_64x{{.*}}(%[[CODES]], %[[SCALES]], %[[OUTER]], {{.*}}%[[ITEMS]], {{.*}}rows = array<i64: 65, 0>

!w = !equant.weight<256x64, #equant.scheme<f4E2M1FN, group = 16, scale = f8E4M3FN, outer = tensor>, #equant.layout<m16n8k16>>
#x = #equant.scheme<f4E2M1FN, group = 16, dynamic, scale = f8E4M3FN, outer = tensor>
ml_program.global private @w(#ml_program.extern : !w) : !w {equant.offset = array<i64: 0, 8192, 12288>}
func.func @forward(%x: tensor<?x64xf32>, %logits: tensor<?x4xf32>) -> tensor<?x64xf32> {
  %w = ml_program.global_load_const @w : !w
  %order, %offsets, %places, %weights = lm.route %logits {top_k = 2, renormalize}
    : tensor<?x4xf32> -> tensor<?xi32>, tensor<5xi32>, tensor<?x2xi32>, tensor<?x2xf32>
  %rows = lm.rows %x at %order : tensor<?x64xf32>, tensor<?xi32>
  %d = equant.packed_linear %rows, %w experts(%offsets) {sites = ["experts.down"], input_scale = 2.5e-03 : f32, input_scheme = #x}
    : (tensor<?x64xf32>, !w, tensor<5xi32>) -> tensor<?x64xf32>
  %y = lm.combine %d, %places, %weights : tensor<?x64xf32>, tensor<?x2xi32>, tensor<?x2xf32>
  return %y : tensor<?x64xf32>
}
