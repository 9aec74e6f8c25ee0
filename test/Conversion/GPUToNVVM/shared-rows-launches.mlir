// Rows whose columns ranks share: one kernel leaves the largest magnitude of what a rank has of each row, another makes codes with that of
// the whole row.

// RUN: easyquant-opt %s --easyquant-launches=target=sm_80 | FileCheck %s

!w = !equant.weight<96x64, #equant.scheme<i8, symmetric, channel>, #equant.layout<m16n8k32>>
!codes = !equant.rows<?x64, #equant.scheme<i8, symmetric, token, dynamic>>
!summed = !equant.rows<?x64, #equant.scheme<i8, symmetric, token, dynamic>, sums = 0>
ml_program.global private @w(#ml_program.extern : !w) : !w {equant.offset = array<i64: 0, 8192>}

// CHECK-DAG: gpu.func @quantize_64_f32_absmax(
// CHECK-DAG: gpu.func @quantize_64_f32_given_absmax_sums0(
// CHECK-LABEL: func.func @down_proj(
// CHECK: %[[MOST:[0-9a-z_]+]] = launch.buffer({{.*}}) {{.*}}memref<?xf32>
// CHECK: launch.kernel quantize @kernels::@quantize_64_f32_absmax({{.*}}, %[[MOST]], {{.*}}site = "down_proj"
// CHECK: launch.kernel quantize @kernels::@quantize_64_f32_given_absmax_sums0({{.*}}, %[[MOST]]
// CHECK: launch.kernel {{[a-z]+}} @kernels::@linear_96x64_i8_q_f32_dot_1(
func.func @down_proj(%x: tensor<?x64xf32>) -> tensor<?x96xf32> {
  %w = ml_program.global_load_const @w : !w
  %most = equant.token_absmax %x : tensor<?x64xf32> -> tensor<?xf32>
  %q = equant.quantize_rows %x absmax(%most : tensor<?xf32>) : tensor<?x64xf32> -> !summed
  %y = equant.packed_linear %q, %w {sites = ["down_proj"]} : (!summed, !w) -> tensor<?x96xf32>
  return %y : tensor<?x96xf32>
}

// A rank leaves the int32 sums of its columns, which are scaled after they were added.
// CHECK-LABEL: func.func @sums(
// CHECK: %[[SUMS:.*]] = launch.buffer({{.*}}) {{.*}}memref<?x96xi32>
// CHECK: launch.kernel {{[a-z]+}} @kernels::@linear_96x64_i8_q_i32_dot_1(%{{[^,]*}}, %{{[^,]*}}, %[[SUMS]],
// CHECK: launch.kernel gemm @kernels::@rescale_96_i8(%[[SUMS]], {{.*}}site = "down_proj"
func.func @sums(%x: tensor<?x64xf32>) -> tensor<?x96xf32> {
  %w = ml_program.global_load_const @w : !w
  %q = equant.quantize_rows %x : tensor<?x64xf32> -> !codes
  %p = equant.packed_linear %q, %w {sites = ["down_proj"]} : (!codes, !w) -> tensor<?x96xi32>
  %y = equant.rescale %p of %q, %w {sites = ["down_proj"]} : (tensor<?x96xi32>, !codes, !w) -> tensor<?x96xf32>
  return %y : tensor<?x96xf32>
}
