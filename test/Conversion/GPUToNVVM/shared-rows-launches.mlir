// Rows whose columns ranks share: one kernel leaves the largest magnitude of what a rank has of each row, another makes codes with that of
// the whole row.

// RUN: easyquant-opt %s --easyquant-launches=target=sm_80 | FileCheck %s

// CHECK-DAG: gpu.func @quantize_64_f32_absmax(
// CHECK-DAG: gpu.func @quantize_64_f32_given_absmax_sums0(
// CHECK-LABEL: func.func @down_proj(
// CHECK: %[[MOST:[0-9a-z_]+]] = launch.buffer({{.*}}) {{.*}}memref<?xf32>
// CHECK: launch.kernel @kernels::@quantize_64_f32_absmax({{.*}}, %[[MOST]], {{.*}}phase = "quantize"
// CHECK: launch.kernel @kernels::@quantize_64_f32_given_absmax_sums0({{.*}}, %[[MOST]], {{.*}}phase = "quantize"
// CHECK: launch.kernel @kernels::@linear_96x64_i8_q_f32_dp4a_1(
func.func @down_proj(%x: tensor<?x64xf32>, %w: tensor<96x64xi8>, %scale: tensor<96x1xf32>) -> tensor<?x96xf32> {
  %most = equant.token_absmax %x : tensor<?x64xf32> -> tensor<?xf32>
  %q, %s, %t = equant.quantize_rows %x absmax(%most : tensor<?xf32>) {scheme = #equant.scheme<i8, symmetric, token, dynamic>, group = 0 : i64}
    : tensor<?x64xf32> -> tensor<?x64xi8>, tensor<?xf32>, tensor<?x1xi32>
  %y = equant.linear %q, %w scale(%scale) row_scales(%s) row_sums(%t)
    {sites = ["down_proj"], weight_scheme = #equant.scheme<i8, symmetric, channel>, input_scheme = #equant.scheme<i8, symmetric, token, dynamic>}
    : (tensor<?x64xi8>, tensor<96x64xi8>, tensor<96x1xf32>, tensor<?xf32>, tensor<?x1xi32>) -> tensor<?x96xf32>
  return %y : tensor<?x96xf32>
}

// A rank leaves the int32 sums of its columns, which are scaled after they were added.
// CHECK-LABEL: func.func @sums(
// CHECK: %[[SUMS:.*]] = launch.buffer({{.*}}) {{.*}}memref<?x96xi32>
// CHECK: launch.kernel @kernels::@linear_96x64_i8_q_i32_dp4a_1(%{{[^,]*}}, %{{[^,]*}}, %[[SUMS]],
// CHECK: launch.kernel @kernels::@rescale_96_i8(%[[SUMS]], {{.*}}phase = "gemm"
func.func @sums(%x: tensor<?x64xf32>, %w: tensor<6x2x32x16xi8>, %scale: tensor<1x2x64xf32>) -> tensor<?x96xf32> {
  %q, %s, %t = equant.quantize_rows %x {scheme = #equant.scheme<i8, symmetric, token, dynamic>, group = 0 : i64}
    : tensor<?x64xf32> -> tensor<?x64xi8>, tensor<?xf32>, tensor<?x1xi32>
  %p = equant.linear %q, %w scale(%scale) row_scales(%s) row_sums(%t)
    {sites = ["down_proj"], weight_scheme = #equant.scheme<i8, symmetric, channel>, input_scheme = #equant.scheme<i8, symmetric, token, dynamic>,
     layout = #equant.layout<mma_sync, order = m16n8k32>}
    : (tensor<?x64xi8>, tensor<6x2x32x16xi8>, tensor<1x2x64xf32>, tensor<?xf32>, tensor<?x1xi32>) -> tensor<?x96xi32>
  %y = equant.rescale %p scale(%scale) row_scales(%s)
    {sites = ["down_proj"], weight_scheme = #equant.scheme<i8, symmetric, channel>, layout = #equant.layout<mma_sync, order = m16n8k32>}
    : (tensor<?x96xi32>, tensor<1x2x64xf32>, tensor<?xf32>) -> tensor<?x96xf32>
  return %y : tensor<?x96xf32>
}
