// RUN: easyquant-opt %s --easyquant-launches=target=avx2 | FileCheck %s
// RUN: easyquant-opt %s --easyquant-launches=target=sm_80 | FileCheck %s --check-prefix=GPU

// Layers with a recurrent state: each has a part of it, and all are launched for the rows of all sequences at once.

// CHECK-LABEL: func.func @forward(
// CHECK-SAME:    memref<?x80xf32> {launch.argument = "recurrent"}
// CHECK: launch.kernel other @conv1d_12x3_of80(
// CHECK: launch.kernel other @gated_delta_1x4_2x2_of80(
// CHECK: launch.kernel other @conv1d_4x3_of80_bias(
// GPU-LABEL: func.func @forward(
// GPU-SAME:    memref<?x80xf32> {launch.argument = "recurrent"}
// GPU-SAME:    {launch.argument = "row_places"}
// GPU: launch.kernel other @kernels::@conv1d_12x3_of80(
// GPU: launch.kernel other @kernels::@gated_delta_1x4_2x2_of80(
// GPU: launch.kernel other @kernels::@conv1d_4x3_of80_bias(
ml_program.global private @w(#ml_program.extern : tensor<12x3xf32>) : tensor<12x3xf32> {equant.offset = 0 : i64}
ml_program.global private @u(#ml_program.extern : tensor<4x3xf32>) : tensor<4x3xf32> {equant.offset = 192 : i64}
ml_program.global private @b(#ml_program.extern : tensor<4xf32>) : tensor<4xf32> {equant.offset = 256 : i64}
ml_program.global private @rate(#ml_program.extern : tensor<2xf32>) : tensor<2xf32> {equant.offset = 320 : i64}
ml_program.global private @bias(#ml_program.extern : tensor<2xf32>) : tensor<2xf32> {equant.offset = 384 : i64}

func.func @forward(%x: tensor<?x16xf32>, %batch: !lm.batch, %state: !lm.recurrent<values = 80>) -> tensor<?x4xf32> {
  %w = ml_program.global_load_const @w : tensor<12x3xf32>
  %u = ml_program.global_load_const @u : tensor<4x3xf32>
  %b = ml_program.global_load_const @b : tensor<4xf32>
  %rate = ml_program.global_load_const @rate : tensor<2xf32>
  %bias = ml_program.global_load_const @bias : tensor<2xf32>
  %qkv, %decay, %strength = lm.split %x : tensor<?x16xf32> -> tensor<?x12xf32>, tensor<?x2xf32>, tensor<?x2xf32>
  %c = lm.conv1d %qkv, %w, %state, %batch {first = 0}
         : (tensor<?x12xf32>, tensor<12x3xf32>, !lm.recurrent<values = 80>, !lm.batch) -> tensor<?x12xf32>
  %q, %k, %v = lm.split %c : tensor<?x12xf32> -> tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>
  %y = lm.gated_delta %q, %k, %v, %decay, %strength, %rate, %bias, %state, %batch {key_heads = 1, value_heads = 2, first = 24}
         : (tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x2xf32>, tensor<?x2xf32>, tensor<2xf32>, tensor<2xf32>,
            !lm.recurrent<values = 80>, !lm.batch) -> tensor<?x4xf32>
  %z = lm.conv1d %y, %u bias(%b), %state, %batch {first = 40}
         : (tensor<?x4xf32>, tensor<4x3xf32>, tensor<4xf32>, !lm.recurrent<values = 80>, !lm.batch) -> tensor<?x4xf32>
  return %z : tensor<?x4xf32>
}
