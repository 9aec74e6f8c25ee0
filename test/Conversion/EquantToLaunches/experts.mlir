// Routing is two launches; what experts read and write has top_k rows for each row of the step.

// RUN: easyquant-opt %s --easyquant-launches="target=avx2 max-rows=64" --launch-print | FileCheck %s
// RUN: easyquant-opt %s --easyquant-launches="target=sm_80 max-rows=64" --launch-print | FileCheck %s --check-prefix=GPU

// CHECK-LABEL: func.func @forward(
// CHECK:         launch.kernel other @choose_experts_2_of_4_renormalized(
// CHECK:         %[[ALL:.*]] = arith.muli %{{.*}}, %c2
// CHECK:         launch.buffer(%[[ALL]]) {multiple = 2 : i64, offset = {{.*}}} : memref<?xi32>
// CHECK:         launch.kernel other @sort_choices_2_of_4(
// CHECK:         launch.buffer(%[[ALL]]) {multiple = 2 : i64, offset = {{.*}}} : memref<?x8xf32>
// CHECK:         launch.kernel other @gather_8(
// CHECK:         launch.buffer(%[[ALL]]) {multiple = 2 : i64, offset = {{.*}}} : memref<?x8xf32>
// CHECK:         launch.kernel gemm @linear_8x8_f32_experts4(
// CHECK:         launch.kernel other @combine_2x8(
// CHECK:         launch.kernel other @choose_experts_2_of_4_sigmoid_bias_factors_scale40200000(
// CHECK:         launch.kernel other @combine_2x8_shared(

// On GPUs the linears of experts take lists of items, one for few rows of each and one for many, in a grid that is the same for all.
// GPU-LABEL: func.func @forward(
// GPU:         launch.kernel other @kernels::@choose_experts_2_of_4_renormalized(
// GPU:         %[[ITEMS:.*]] = launch.buffer(%{{.*}}) {multiple = 3 : i64, offset = {{.*}}} : memref<?x8xi32>
// GPU:         %[[ORDER:.*]] = launch.buffer(%[[ALL:.*]]) {multiple = 2 : i64, offset = {{.*}}} : memref<?xi32>
// GPU:         launch.kernel other @kernels::@sort_choices_2_of_4_few({{.*}}%[[ORDER]], %[[ITEMS]]{{.*}}rows = array<i64: 1, 64>
// GPU:         launch.kernel other @kernels::@sort_choices_2_of_4({{.*}}rows = array<i64: 65, 0>
// GPU:         launch.kernel other @kernels::@gather_8_chosen({{.*}}%[[ORDER]], {{.*}}%[[ALL]])
// GPU:         launch.kernel gemm @kernels::@linear_8x8_bf16_bf16_of4_f32_mma_16x{{.*}}%[[ITEMS]], %[[ALL]]){{.*}}rows = array<i64: 1, 64>
// GPU:         launch.kernel gemm @kernels::@linear_8x8_bf16_bf16_of4_f32_mma_64x{{.*}}%[[ITEMS]], %[[ALL]]){{.*}}rows = array<i64: 65, 0>
// GPU:         launch.kernel other @kernels::@combine_experts_2x8(
// GPU:         launch.kernel other @kernels::@choose_experts_2_of_4_sigmoid_bias_factors_by40200000(
// GPU:         launch.kernel other @kernels::@combine_experts_2x8_shared(

ml_program.global private @w(#ml_program.extern : tensor<32x8xf32>) : tensor<32x8xf32> {equant.offset = 0 : i64, equant.bf16_offset = 0 : i64}

ml_program.global private @b(#ml_program.extern : tensor<4xf32>) : tensor<4xf32> {equant.offset = 1024 : i64}

func.func @forward(%x: tensor<?x8xf32>, %logits: tensor<?x4xf32>, %gate: tensor<?x1xf32>) -> tensor<?x8xf32> {
  %w = ml_program.global_load_const @w : tensor<32x8xf32>
  %order, %offsets, %places, %weights = lm.route %logits {top_k = 2, renormalize}
    : tensor<?x4xf32> -> tensor<?xi32>, tensor<5xi32>, tensor<?x2xi32>, tensor<?x2xf32>
  %rows = lm.rows %x at %order : tensor<?x8xf32>, tensor<?xi32>
  %d = lm.linear %rows, %w experts(%offsets) {site = "experts.down"} : (tensor<?x8xf32>, tensor<32x8xf32>, tensor<5xi32>) -> tensor<?x8xf32>
  %y = lm.combine %d, %places, %weights : tensor<?x8xf32>, tensor<?x2xi32>, tensor<?x2xf32>
  %b = ml_program.global_load_const @b : tensor<4xf32>
  %order2, %offsets2, %places2, %weights2 = lm.route %logits bias(%b : tensor<4xf32>) factors(%b : tensor<4xf32>) {top_k = 2, sigmoid, scale = 2.5 : f64}
    : tensor<?x4xf32> -> tensor<?xi32>, tensor<5xi32>, tensor<?x2xi32>, tensor<?x2xf32>
  %rows2 = lm.rows %y at %order2 : tensor<?x8xf32>, tensor<?xi32>
  %z = lm.combine %rows2, %places2, %weights2 shared(%x, %gate : tensor<?x8xf32>, tensor<?x1xf32>)
    : tensor<?x8xf32>, tensor<?x2xi32>, tensor<?x2xf32>
  return %z : tensor<?x8xf32>
}
