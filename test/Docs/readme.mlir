// The worked example of README.md.
// RUN: easyquant-opt %s --equant-absmax=scheme=W4A8 --equant-quantize | FileCheck %s

ml_program.global private @w(#ml_program.extern : tensor<576x1536xf32>) : tensor<576x1536xf32>

// CHECK-LABEL: func.func @forward(
// CHECK: %[[SCALE:.*]] = equant.choose_qparams %[[W:.*]] rule absmax {scheme = #equant.scheme<i4, symmetric, group = 128, scale = f16>}
// CHECK-SAME: (tensor<576x1536xf32>) -> tensor<576x12xf16>
// CHECK: %[[CODES:.*]] = equant.quantize %[[W]] scale(%[[SCALE]]) {scheme = #equant.scheme<i4, symmetric, group = 128, scale = f16>}
// CHECK-SAME: (tensor<576x1536xf32>, tensor<576x12xf16>) -> tensor<576x1536xi4>
// CHECK: equant.linear %{{.*}}, %[[CODES]] scale(%[[SCALE]])
// CHECK-SAME: {input_scheme = #equant.scheme<i8, symmetric, token, dynamic>, sites = ["model.layers.0.mlp.down_proj"],
// CHECK-SAME: weight_scheme = #equant.scheme<i4, symmetric, group = 128, scale = f16>}
// CHECK-SAME: (tensor<?x1536xf32>, tensor<576x1536xi4>, tensor<576x12xf16>) -> tensor<?x576xf32>
func.func @forward(%x: tensor<?x1536xf32>) -> tensor<?x576xf32> {
  %w = ml_program.global_load_const @w : tensor<576x1536xf32>
  %y = lm.linear %x, %w {site = "model.layers.0.mlp.down_proj"}
         : (tensor<?x1536xf32>, tensor<576x1536xf32>) -> tensor<?x576xf32>
  return %y : tensor<?x576xf32>
}
