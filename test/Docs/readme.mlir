// The worked example of README.md.
// RUN: easyquant-opt %s --equant-absmax=scheme=W4A8 --equant-rotate --equant-quantize | FileCheck %s

ml_program.global private @w(#ml_program.extern : tensor<576x1536xf32>) : tensor<576x1536xf32>

// CHECK-LABEL: func.func @forward(
// CHECK-DAG: %[[R:.*]] = equant.hadamard %arg0 {block = 512 : i64} : tensor<?x1536xf32>
// CHECK-DAG: %[[V:.*]] = equant.hadamard %{{.*}} {block = 512 : i64} : tensor<576x1536xf32>
// CHECK: %[[Q:.*]] = equant.quantize %[[V]] rule absmax : (tensor<576x1536xf32>) -> !equant.weight<576x1536, #equant.scheme<i4, symmetric, group = 128, hadamard = 512, scale = f16>>
// CHECK: equant.linear %[[R]], %[[Q]] {input_scheme = #equant.scheme<i8, symmetric, token, dynamic, hadamard = 512>, sites = ["model.layers.0.mlp.down_proj"]}
// CHECK-SAME: (tensor<?x1536xf32>, !equant.weight<576x1536, #equant.scheme<i4, symmetric, group = 128, hadamard = 512, scale = f16>>) -> tensor<?x576xf32>
func.func @forward(%x: tensor<?x1536xf32>) -> tensor<?x576xf32> {
  %w = ml_program.global_load_const @w : tensor<576x1536xf32>
  %y = lm.linear %x, %w {site = "model.layers.0.mlp.down_proj"}
         : (tensor<?x1536xf32>, tensor<576x1536xf32>) -> tensor<?x576xf32>
  return %y : tensor<?x576xf32>
}
