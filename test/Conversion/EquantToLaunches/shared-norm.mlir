// RUN: easyquant-opt %s --easyquant-launches=target=avx2 | FileCheck %s
// RUN: easyquant-opt %s --easyquant-launches=target=sm_80 | FileCheck %s --check-prefix=GPU

// The norm of rows of which two ranks have parts: the squares of both are added up between two kernels.

// CHECK-LABEL: func.func @forward(
// CHECK: %[[S:.*]] = launch.buffer({{.*}}) {{.*}}memref<?xf32>
// CHECK: launch.kernel attention @token_squares_8({{.*}}, %[[S]]
// CHECK: launch.collective {{[0-9]+}} all_reduce sum(%[[S]])
// CHECK: launch.kernel attention @part_norm_8of16_eps{{[0-9a-f]+}}({{.*}}%[[S]]
// GPU-LABEL: func.func @forward(
// GPU: %[[S:.*]] = launch.buffer({{.*}}) {{.*}}memref<?xf32>
// GPU: launch.kernel attention @kernels::@rms_norm_8_eps0_f32_squares({{.*}}, %[[S]]
// GPU: launch.collective {{[0-9]+}} all_reduce sum(%[[S]])
// GPU: launch.kernel attention @kernels::@rms_norm_8_eps{{[0-9a-f]+}}_f32_part_of16_to_f32({{.*}}%[[S]]
shard.grid @tensor_parallel(shape = 2)
ml_program.global private @w(#ml_program.extern : tensor<8xf32>) : tensor<8xf32> {equant.offset = 0 : i64}

func.func @forward(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %w = ml_program.global_load_const @w : tensor<8xf32>
  %own = equant.token_squares %x : tensor<?x8xf32> -> tensor<?xf32>
  %all = shard.all_reduce %own on @tensor_parallel grid_axes = [0] : tensor<?xf32> -> tensor<?xf32>
  %y = equant.part_rms_norm %x, %w of %all {epsilon = 1.0e-06 : f64, columns = 16 : i64} : tensor<?x8xf32>, tensor<8xf32>, tensor<?xf32>
  return %y : tensor<?x8xf32>
}
