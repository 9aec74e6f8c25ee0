// RUN: easyquant-opt %s -equant-legalize-activations | FileCheck %s
// RUN: easyquant-opt %s -equant-legalize-activations=target=gpu | FileCheck %s --check-prefix=GPU

// Linears that read the same codes share one. A GPU needs no sums of codes where weights have no zero points, and reads bf16 elsewhere.
// GPU-LABEL: func.func @forward(
// GPU-SAME:    %[[X:.*]]: tensor<?x8xf32>
// GPU-NOT:       fake_quantize
// GPU:           %[[C:.*]], %[[SCALES:.*]], %{{.*}} = equant.quantize_rows %[[X]]
// GPU:           equant.linear %[[C]], %{{.*}} row_scales(%[[SCALES]]) {
// GPU:           %[[H:.*]] = arith.truncf %[[X]] : tensor<?x8xf32> to tensor<?x8xbf16>
// GPU:           lm.linear %[[H]],
// CHECK-LABEL: func.func @forward(
// CHECK-SAME:    %[[X:.*]]: tensor<?x8xf32>
// CHECK:         %[[Q:.*]] = equant.fake_quantize %[[X]] {scheme = #equant.scheme<f8E4M3FN, token, dynamic>} : tensor<?x8xf32>
// CHECK:         equant.linear %[[Q]], %{{.*}} {sites = ["gate"], weight_scheme = #equant.scheme<f8E4M3FN, channel>}
// CHECK:         equant.linear %[[Q]], %{{.*}} {sites = ["up"],
// CHECK:         %[[S:.*]] = equant.fake_quantize %[[X]] {scale = 2.500000e-01 : f32, scheme = #equant.scheme<f8E4M3FN, tensor>} : tensor<?x8xf32>
// CHECK:         equant.linear %[[S]], %{{.*}} {sites = ["static"], weight_scheme
// CHECK:         %[[C:.*]], %[[SCALES:.*]], %[[SUMS:.*]] = equant.quantize_rows %[[X]] {group = 0 : i64, scheme = #equant.scheme<i8, symmetric, token, dynamic>}
// CHECK:         equant.linear %[[C]], %{{.*}} row_scales(%[[SCALES]]) row_sums(%[[SUMS]]) {input_scheme = #equant.scheme<i8, symmetric, token, dynamic>, sites = ["integer"]
func.func @forward(%x: tensor<?x8xf32>, %w: tensor<16x8xf8E4M3FN>, %s: tensor<16x1xf32>, %i: tensor<16x8xi8>, %f: tensor<16x8xf32>) {
  %g = equant.linear %x, %w scale(%s) {sites = ["gate"], input_scheme = #equant.scheme<f8E4M3FN, token, dynamic>, weight_scheme = #equant.scheme<f8E4M3FN, channel>}
    : (tensor<?x8xf32>, tensor<16x8xf8E4M3FN>, tensor<16x1xf32>) -> tensor<?x16xf32>
  %u = equant.linear %x, %w scale(%s) {sites = ["up"], input_scheme = #equant.scheme<f8E4M3FN, token, dynamic>, weight_scheme = #equant.scheme<f8E4M3FN, channel>}
    : (tensor<?x8xf32>, tensor<16x8xf8E4M3FN>, tensor<16x1xf32>) -> tensor<?x16xf32>
  %t = equant.linear %x, %w scale(%s) {sites = ["static"], input_scale = 2.5e-01 : f32, input_scheme = #equant.scheme<f8E4M3FN, tensor>, weight_scheme = #equant.scheme<f8E4M3FN, channel>}
    : (tensor<?x8xf32>, tensor<16x8xf8E4M3FN>, tensor<16x1xf32>) -> tensor<?x16xf32>
  %j = equant.linear %x, %i scale(%s) {sites = ["integer"], input_scheme = #equant.scheme<i8, symmetric, token, dynamic>, weight_scheme = #equant.scheme<i8, symmetric, channel>}
    : (tensor<?x8xf32>, tensor<16x8xi8>, tensor<16x1xf32>) -> tensor<?x16xf32>
  %l = lm.linear %x, %f {site = "float"} : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
  return
}
